"""Which process goes to which host of a lab; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from labctl.exits import UsageProblem
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.testbed import Role


class TooFewHosts(UsageProblem):
    """More processes than hosts."""


def place(
    lab: Lab, hosts: Sequence[Host], brokers: Sequence[str], clients: Sequence[str], pack: bool
) -> dict[str, Host]:
    """One host for each; with `pack`, or in a lab that is meant to be shared, several on one where needed."""
    pack = pack or lab.may_share
    return {
        **_spread(lab, hosts, brokers, "broker", pack),
        **_spread(lab, hosts, clients, "client", pack),
    }


def _spread(lab: Lab, hosts: Sequence[Host], nodes: Sequence[str], role: Role, pack: bool) -> dict[str, Host]:
    fit = [host for host in hosts if host.role == role]
    if len(fit) < len(nodes) and not pack:
        raise TooFewHosts(
            f"{len(nodes)} {role}s for {len(fit)} hosts of the lab {lab.name}; provision more with `labctl "
            f"provision --lab {lab.name} --{role}s {len(nodes)}`, or put several on one host with --pack"
        )
    return dict(zip(nodes, cycle(fit or hosts), strict=False))


def tournament(names: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds in which all meet all, each only one at a time: so that nobody disturbs another's measurement."""
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(a, b) for a, b in met if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds
