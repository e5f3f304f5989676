"""The commands of `labctl`, a module for each group: options in, a call, and what it returns shown.

    run.py        `labctl run experiment`, `labctl calibrate-wait`
    report.py     `labctl report`
    check.py      `labctl check`
    simulate.py   `labctl simulate`
    bench.py      `labctl bench`
    overlay.py    `labctl overlay`
    labs.py       `labctl provision`, `status`, `destroy`, `gc`
    hosts.py      `labctl ssh`, `labctl logs`
    doctor.py     `labctl doctor`
    options.py    options that several commands share
    schema.py     `labctl schema`

    views/        how commands show what they have done

May import: broker.protocol, client.scenarios, labctl, labctl.bench, labctl.checks, labctl.commands.views,
labctl.conduct, labctl.experiment, labctl.overlay, labctl.report, labctl.report.judgement,
labctl.report.pages, labctl.report.tables, labctl.results, labctl.run, labctl.simulate.programs,
labctl.simulate.recorded, labctl.simulate.search, labctl.simulate.views, labctl.testbeds,
labctl.testbeds.labs, labctl.testbeds.providers, labctl.testbeds.providers.netns,
labctl.testbeds.providers.openstack, labctl.testbeds.remote, labctl.testbeds.ssh, playbooks.
"""
