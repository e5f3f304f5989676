"""Figures of docs/testbeds.md: how long a deployment to namespace hosts takes, and what 49 hosts cost labctl.

Run as root, by hand: `python -m tests.support.deploy_figures`. Not a test: it measures time.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from labctl.commands.labs import connect
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers import provisioning
from labctl.testbeds.providers.provisioning import Size
from labctl.testbeds.remote import bundles, deploy
from labctl.testbeds.remote.places import at
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.ssh.play import Player
from labctl.testbeds.testbed import NetnsOptions
from labctl.testbeds.testbed_file import resolve

CIDR = "10.79.64.0/22"


def quiet(_host: str, _text: str) -> None: ...


@contextmanager
def lab(hosts: int) -> Iterator[tuple[Store, Lab]]:
    testbed = structs.replace(resolve("netns"), options=NetnsOptions(CIDR))
    name = f"figures-{hosts}"
    made = provisioning.provision(
        name, testbed, Size(min(9, hosts), max(0, hosts - 9)), connect, quiet, lambda lab, plan: None
    )
    try:
        failed = [f"{host.name}: {host.detail}" for host in made.hosts if host.state != "ready"]
        assert not failed, failed
        yield Store(name), made
    finally:
        left = provisioning.destroy(name, connect, quiet).left
        assert not left, left


def deployed_s(store: Store, known: Lab) -> float:
    """Login included."""
    shelf = deploy.BundleStore()
    began = time.monotonic()
    with Connections(store, known) as connections:
        deploy.everywhere(Player(connections), known.hosts, shelf, quiet)
    return time.monotonic() - began


@contextmanager
def changed_code() -> Iterator[None]:
    """One more file in the bundle."""
    genuine = bundles.pack

    def pack(kind: str, files: dict[str, bytes], executable: object = ()) -> bundles.Bundle:
        extra = {f"changed_{time.monotonic_ns()}.py": b"x = 1\n"} if kind == "code" else {}
        return genuine(kind, {**files, **extra}, executable)  # type: ignore[arg-type]

    bundles.pack = pack  # type: ignore[assignment]
    try:
        yield
    finally:
        bundles.pack = genuine


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="labctl-figures-") as folder:
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        for hosts in (1, 20):
            with lab(hosts) as (store, known):
                _warm_cache()
                cold = deployed_s(store, known)
                again = deployed_s(store, known)
                with changed_code():
                    code = deployed_s(store, known)
                say(
                    f"{hosts} hosts: cold {cold:.2f} s, nothing new {again:.2f} s, code only {code:.2f} s "
                    f"(load {os.getloadavg()[0]:.1f})"
                )
        with lab(49) as (store, known):
            began = time.monotonic()
            with at(store, known, (), quiet) as site:
                took = time.monotonic() - began
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                say(
                    f"{len(site.posts)} hosts, agents up in {took:.1f} s; peak memory of labctl {peak:.0f} MB"
                )


def _warm_cache() -> None:
    """Packing the packages happens once in the life of a machine, not once per deployment."""
    from labctl.testbeds.remote import wheels

    wheels.packages(wheels.own())


if __name__ == "__main__":
    main()
