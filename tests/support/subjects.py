"""Which test is about what, as far as its name does not say: `tests/test_rooms.py` keeps both tables short and true."""

from __future__ import annotations

SUBJECTS = {
    "broker/serving/test_agrees_with_model.py": "all of the server, against the checks",
    "broker/serving/test_hostile_sockets.py": "all of the server, against peers that are not ours",
    "broker/serving/test_transactions.py": "all of the server, while connections are lost in transactions",
    "broker/test_process.py": "`python -m broker`, from outside",
    "broker/transactions/stx/test_lost_participants.py": "S-TX at brokers and clients together",
    "broker/transport/test_cuts.py": "links of an overlay whose connections are cut at random",
    "client/scenarios/test_extending.py": "docs/extending.md",
    "client/test_process.py": "`python -m client`, from outside",
    "labctl/report/judgement/test_parts.py": "what of the report needs no Spark",
    "labctl/simulate/test_schedules.py": "worlds, programs and search together, in numbers",
    "labctl/test_readme.py": "README.md",
    "labctl/testbeds/remote/test_lab_hosts.py": "the pure parts of labs, from file to command lines",
    "labctl/testbeds/remote/test_netns_lab.py": "a lab of namespaces from provision to destroy",
    "labctl/testbeds/remote/test_shared_hosts.py": "a lab with several processes on each host",
}
"""Tests whose subject is not one module."""

TESTED_BY = {
    "broker": {
        "broker/protocol/test_wire_fuzz.py": "config",
        "labctl/simulate/test_linked.py": "protocols",
    },
    "broker.gate": {
        "broker/gate/test_gate.py": "clock",
        "broker/gate/test_transit.py": "outgoing parties",
        "labctl/simulate/test_linked.py": "channel cutter holding",
    },
    "broker.journal": {"broker/journal/test_folder.py": "contents making"},
    "broker.matching": {"broker/matching/test_index_oracle.py": "holes"},
    "broker.node": {
        "broker/test_process.py": "garbage",
        "labctl/results/test_histories.py": "history",
    },
    "broker.protocol": {"client/core/test_verbs.py": "stx"},
    "broker.routing": {
        "broker/test_core.py": "membership prt publications regular settling state",
        "broker/transactions/stx/test_lost_participants.py": "retirement",
    },
    "broker.serving": {
        "broker/serving/test_hostile_sockets.py": "monitors reception sessions",
    },
    "broker.transactions": {"labctl/simulate/search/test_campaign.py": "machine names"},
    "broker.transactions.dtx": {
        "client/core/test_transactions.py": "context operations",
        "paper/test_counterexamples.py": "decisions order",
    },
    "broker.transactions.stx": {
        "broker/transactions/stx/test_lost_participants.py": "planning registry wellformed",
        "paper/test_counterexamples_of_plans.py": "decisions execution machine steps",
    },
    "broker.transport": {
        "broker/serving/test_hostile_sockets.py": "dial",
        "broker/serving/test_peer.py": "channel",
    },
    "client": {
        "client/test_process.py": "history settings",
    },
    "client.asking": {
        "labctl/run/test_runner.py": "observer",
    },
    "client.core": {
        "broker/transactions/stx/test_lost_participants.py": "outcomes",
        "client/core/test_transactions.py": "frames port",
        "client/test_connection.py": "errors session",
    },
    "client.scenarios": {
        "client/scenarios/test_extending.py": "catalogue",
        "labctl/run/test_runner.py": "cues",
    },
    "client.scenarios.cases": {
        "labctl/run/test_runner.py": "disruption",
        "labctl/experiment/test_experiment.py": "by_name",
    },
    "labctl": {"labctl/bench/test_bench.py": "workers", "labctl/test_yamlfile.py": "yamlfaults"},
    "labctl.bench": {
        "labctl/bench/test_bench.py": "bitset chain durability history_cost matching recovery rest transactions"
    },
    "labctl.bench.ends": {
        "labctl/bench/test_bench.py": "bare confirmed disk events library mosquitto relay roles servers"
    },
    "labctl.commands": {
        "labctl/bench/test_bench.py": "bench",
        "labctl/overlay/test_local.py": "overlay",
        "labctl/test_cli.py": "doctor options",
        "labctl/testbeds/remote/test_netns_lab.py": "hosts",
    },
    "labctl.commands.views": {
        "labctl/commands/test_labs.py": "labs",
        "labctl/overlay/test_local.py": "overlay",
    },
    "labctl.host": {
        "labctl/overlay/test_local.py": "ports",
        "labctl/results/test_lines.py": "whole_lines",
        "labctl/run/test_crew.py": "agent",
        "labctl/bench/test_rounds.py": "machine",
    },
    "labctl.report.judgement": {"labctl/report/test_pipeline.py": "origins verdicts"},
    "labctl.results": {
        "labctl/checks/test_repetition.py": "accounts",
        "labctl/conduct/test_conductor.py": "layout",
        "labctl/report/judgement/test_parts.py": "reading",
    },
    "labctl.run": {"labctl/run/test_runner.py": "observer"},
    "labctl.simulate": {
        "client/core/test_transactions.py": "clients tasks",
        "client/scenarios/test_cases.py": "stage",
        "labctl/checks/test_beside.py": "epilogue",
        "labctl/simulate/search/test_explore.py": "snapshot",
        "labctl/simulate/test_linked.py": "nodes",
        "paper/test_transcripts.py": "world",
    },
    "labctl.simulate.programs": {
        "labctl/simulate/search/test_campaign.py": "maker narrow resting windows",
    },
    "labctl.simulate.recorded": {"labctl/simulate/recorded/test_world.py": "judging"},
    "labctl.simulate.search": {
        "labctl/simulate/search/test_campaign.py": "shrink",
        "labctl/simulate/views/test_diagram.py": "measure",
    },
    "labctl.simulate.views": {"labctl/simulate/views/test_diagram.py": "console"},
    "labctl.testbeds": {"labctl/testbeds/ssh/test_reach.py": "timeouts"},
    "labctl.testbeds.providers": {
        "labctl/commands/test_labs.py": "provisioning",
        "labctl/testbeds/providers/openstack/test_plan.py": "provider",
        "labctl/testbeds/remote/test_lab_hosts.py": "hosts",
    },
    "labctl.testbeds.providers.netns": {
        "labctl/testbeds/remote/test_lab_hosts.py": "commands",
        "labctl/testbeds/ssh/test_bastion.py": "machine",
    },
    "labctl.testbeds.providers.openstack": {
        "labctl/testbeds/providers/openstack/test_cloud.py": "provider",
        "openstack/test_crashes.py": "inventory release",
        "openstack/test_errors.py": "examine",
    },
    "labctl.testbeds.remote": {"labctl/testbeds/remote/test_dry_run.py": "deploy places recorder"},
    "labctl.testbeds.ssh": {
        "labctl/testbeds/remote/test_lab_hosts.py": "connections",
        "labctl/testbeds/remote/test_netns_lab.py": "line",
        "playbooks/test_playbooks.py": "play",
    },
}
"""By room, the test of each module that neither has one of its own name nor is imported by a test of its room or of one
above: the one that has most to say about it."""
