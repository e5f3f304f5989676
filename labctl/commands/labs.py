"""`labctl provision`, `status`, `destroy` and `gc`: labs on machines other than processes of this one."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import structs

from labctl.checkup import Check
from labctl.commands.options import DEFAULT_NAME, DryRun, Json, LabName, Yes
from labctl.commands.views import labs as view
from labctl.exits import INFRASTRUCTURE, LEFT_IN_CLOUD, LabError, UsageProblem
from labctl.output import Output, print_error
from labctl.testbeds.labs import store
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.providers import provisioning
from labctl.testbeds.providers.provider import AcquirePlan, LeftBehind, Provider, ProviderError, Released
from labctl.testbeds.providers.provisioning import Size
from labctl.testbeds.ssh import reach
from labctl.testbeds.testbed import (
    KINDS,
    ExistingNetwork,
    Kind,
    OpenStackOptions,
    Testbed,
    contradiction,
    duration_s,
)
from labctl.testbeds.testbed_file import resolve

PROVIDERS: dict[Kind, str] = {
    "netns": "labctl.testbeds.providers.netns.provider",
    "hosts": "labctl.testbeds.providers.hosts",
    "openstack": "labctl.testbeds.providers.openstack.provider",
}
"""Where `connect(testbed: Testbed) -> Provider` is found; loaded when it is asked for, since a cloud's library takes
long. A new provider needs a line here, a kind and its options in `labctl/testbeds/testbed.py`, and nothing else."""

TestbedWord = Annotated[
    str | None, typer.Option("--testbed", help=f"A testbed file, or one of {', '.join(KINDS)}.")
]

_CLOUD = "Instead of, or over, the testbed file"
Cloud = Annotated[str | None, typer.Option(help="Its name in clouds.yaml.", rich_help_panel=_CLOUD)]
Image = Annotated[str | None, typer.Option(help="Name or id.", rich_help_panel=_CLOUD)]
Flavor = Annotated[str | None, typer.Option(help="Name or id.", rich_help_panel=_CLOUD)]
Network = Annotated[str | None, typer.Option(help="One that exists.", rich_help_panel=_CLOUD)]
User = Annotated[str | None, typer.Option(help="Who logs in.", rich_help_panel=_CLOUD)]
Lifetime = Annotated[str | None, typer.Option(help="Such as 90m, 8h, 2d.", rich_help_panel=_CLOUD)]
OnFailure = Annotated[
    Literal["keep", "delete"],
    typer.Option(help="When some hosts cannot be had: keep the others, or delete the lab."),
]


def provision(  # noqa: PLR0913, PLR0917 - each option is one setting of the lab
    testbed: TestbedWord = None,
    lab: LabName = DEFAULT_NAME,
    experiment: Annotated[str | None, typer.Option(help="As many hosts as it needs.")] = None,
    brokers: Annotated[int | None, typer.Option(min=0, help="Hosts for brokers.")] = None,
    clients: Annotated[int | None, typer.Option(min=0, help="Hosts for clients.")] = None,
    machines: Annotated[
        int | None, typer.Option(min=1, help="At most so many hosts, shared by brokers and clients.")
    ] = None,
    cloud: Cloud = None,
    image: Image = None,
    flavor: Flavor = None,
    network: Network = None,
    user: User = None,
    lifetime: Lifetime = None,
    on_failure: OnFailure = "keep",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Make a lab, or complete and repair the one that is there; nothing is created twice.

    The plan comes first: what will be created, the quota for it, the VM-hours. Ends with 4 when a host
    could not be had.
    """
    out = Output(json)
    bed = _testbed(testbed, cloud, image, flavor, network, user, lifetime)
    size = structs.replace(_size(lab, experiment, brokers, clients), machines=machines)
    if dry_run:
        planned, plan = provisioning.plan(lab, bed, size, connect)
        out.document(view.plan_document(planned, plan))
        if not json:
            view.show_plan(out, planned, plan)
        _refuse_shortage(plan)
        return
    began = time.monotonic()

    def show(planned: Lab, plan: AcquirePlan) -> None:
        view.show_plan(out, planned, plan)

    with view.host_progress(out) as report:
        try:
            made = provisioning.provision(lab, bed, size, connect, report, show)
        except provisioning.AcquireFailed as error:
            if on_failure == "delete":
                _give_up(out, lab, str(error))
            raise
    failed = [host for host in made.hosts if host.state != "ready"]
    if failed and on_failure == "delete":
        _give_up(out, lab, "; ".join(f"{host.name}: {host.detail}" for host in failed))
    out.document({**view.lab_document(made), "elapsed_s": round(time.monotonic() - began, 3)})
    if not json:
        view.show_lab(out, made)
    if failed:
        said = "; ".join(f"{host.name}: {host.detail or host.state}" for host in failed)
        raise ProviderError(
            f"{len(failed)} of {len(made.hosts)} hosts could not be had: {said}. The others are kept; run "
            f"provision again to complete the lab, or `labctl destroy --lab {lab}`"
        )


def connect(testbed: Testbed) -> Provider:
    module = PROVIDERS.get(testbed.provider)
    if module is None:
        known = ", ".join(PROVIDERS)
        raise UsageProblem(
            f"the testbed {testbed.provider} needs no provisioning here; these can be provisioned: {known}"
        )
    made: Provider = importlib.import_module(module).connect(testbed)
    return made


def _refuse_shortage(plan: AcquirePlan) -> None:
    if plan.shortages:
        raise ProviderError(f"quota exceeded: {'; '.join(plan.shortages)}")


def _give_up(out: Output, lab: str, why: str) -> None:
    """After a failure with `--on-failure delete`: nothing stays, and the failure is still what is said."""
    print_error(f"{why}; the lab is deleted, as you wished")
    with view.host_progress(out) as report:
        released = provisioning.destroy(lab, connect, report)
    _say_left(lab, released)
    raise typer.Exit(INFRASTRUCTURE)


def _testbed(
    word: str | None,
    cloud: str | None,
    image: str | None,
    flavor: str | None,
    network: str | None,
    user: str | None,
    lifetime: str | None,
) -> Testbed | None:
    """The file or kind, with what the options say laid over it; None when nothing is said at all."""
    given = {"cloud": cloud, "image": image, "flavor": flavor, "network": network}
    special = {name: value for name, value in given.items() if value is not None}
    if word is None and not special and user is None and lifetime is None:
        return None
    bed = resolve(word or "openstack")
    if special and not isinstance(bed.options, OpenStackOptions):
        raise UsageProblem(f"--{next(iter(special))} is for a cloud; the testbed is {bed.provider}")
    options = structs.replace(
        bed.options, **special | ({"network": ExistingNetwork(network)} if network is not None else {})
    )
    lifetime_s = bed.lifetime_s if lifetime is None else duration_s(lifetime)
    if not lifetime_s:
        raise UsageProblem(f"--lifetime {lifetime}: a number and a unit, such as 90m, 8h or 2d")
    bed = structs.replace(bed, options=options, user=user or bed.user, lifetime_s=lifetime_s)
    if problem := contradiction(bed):
        raise UsageProblem(problem)
    return bed


def _size(lab: str, experiment: str | None, brokers: int | None, clients: int | None) -> Size:
    if experiment is not None:
        if brokers is not None or clients is not None:
            raise UsageProblem(
                "--experiment says how many hosts there are; leave --brokers and --clients out"
            )
        return provisioning.size_of_experiment(experiment)
    found = store.Store(lab).find()
    if brokers is None and clients is None and found is None:
        raise UsageProblem("how many hosts? Say --brokers N --clients M, or --experiment NAME")
    has = (len(found.of_role("broker")), len(found.of_role("client"))) if found else (0, 0)
    return Size(has[0] if brokers is None else brokers, has[1] if clients is None else clients)


def status(lab: LabName = DEFAULT_NAME, json: Json = False) -> None:
    """Show a lab's hosts as their provider sees them now; ends with 4 when one is not ready."""
    out = Output(json)
    seen = provisioning.inspect(lab, connect)
    out.document(view.lab_document(seen))
    if not json:
        view.show_lab(out, seen)
    if any(host.state != "ready" for host in seen.hosts):
        raise typer.Exit(INFRASTRUCTURE)


def destroy(
    lab: LabName = DEFAULT_NAME,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete what was created for a lab, look whether it is gone, and forget the lab.

    Only what the lab's journal records and what carries the lab's tag is touched. Ends with 5, and the
    list, when something may be left; then it can be run again. There is no harm in doing it twice.
    """
    out = Output(json)
    _confirm(out, yes, [lab] if store.Store(lab).find() else [])
    with view.host_progress(out) as report:
        released = provisioning.destroy(lab, connect, report)
    out.document({"lab": lab, **_released_document(released)})
    if not json:
        _show_released(out, lab, released)
    _say_left(lab, released)


def gc(
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Destroy every lab of this user whose lifetime is over."""
    out = Output(json)
    over = [lab.name for lab in provisioning.expired(time.time())]
    if dry_run:
        out.document({"labs": over, "deleted": [], "left": [], "untouched": []})
        if not json:
            out.say(f"over: {', '.join(over)}" if over else "no lab is past its lifetime")
        return
    _confirm(out, yes, over)
    done: dict[str, Released] = {}
    failures: list[str] = []
    for name in over:
        try:
            with view.host_progress(out) as report:
                done[name] = provisioning.destroy(name, connect, report)
        except LabError as error:
            # One cloud that does not answer must not keep the others' labs alive.
            failures.append(f"lab {name}: {error}")
    total = Released(
        tuple(each for released in done.values() for each in released.deleted),
        tuple(each for released in done.values() for each in released.left),
        tuple(each for released in done.values() for each in released.untouched),
    )
    out.document({"labs": over, **_released_document(total)})
    if not json:
        for name, released in done.items():
            _show_released(out, name, released)
        if not over:
            out.say("no lab is past its lifetime")
    for name, released in done.items():
        _say_left(name, released)
    if failures:
        raise LeftBehind("something may be left in the cloud: " + "; ".join(failures))


def _confirm(out: Output, yes: bool, names: list[str]) -> None:
    """Asked only where somebody can answer."""
    import sys

    if yes or out.json or not names or not sys.stdin.isatty() or not sys.stderr.isatty():
        return
    typer.confirm(f"Destroy {', '.join(names)}?", abort=True, err=True)


def _released_document(released: Released) -> dict[str, object]:
    return {"deleted": released.deleted, "left": released.left, "untouched": released.untouched}


def _show_released(out: Output, lab: str, released: Released) -> None:
    if released.deleted:
        view.show_resources(out, f"Lab {lab}: deleted", released.deleted)
    elif not released.left:
        out.say(f"lab {lab}: there is nothing to destroy")
    if released.left:
        view.show_resources(out, f"Lab {lab}: left", released.left)


def _say_left(lab: str, released: Released) -> None:
    if released.untouched:
        Output().note(
            f"not touched, since labctl has not made it: {provisioning.describe(released.untouched)}"
        )
    if released.left:
        print_error(
            f"something may be left of the lab {lab}: {provisioning.describe(released.left)}. Run `labctl destroy "
            f"--lab {lab}` again, or look in the cloud"
        )
        raise typer.Exit(LEFT_IN_CLOUD)


def examine(word: str, brokers: int, clients: int) -> tuple[str, list[Check]]:
    """For `labctl doctor --testbed`: a title and the checks."""
    bed = resolve(word)
    there = connect(bed)
    try:
        return f"Testbed {Path(word).name}", [*reach.examine(bed), *there.examine(brokers, clients)]
    finally:
        there.close()
