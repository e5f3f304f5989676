"""Does a host's sshd answer, with the key that we know? Whether it lets us in is found out at login.

Behind a bastion the question is asked from there.
"""

from __future__ import annotations

import operator
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from labctl.checkup import Check
from labctl.exits import LabError
from labctl.retry import look_until
from labctl.testbeds.labs.lab import Host
from labctl.testbeds.testbed import Bastion, Testbed
from labctl.testbeds.timeouts import Timeouts

if TYPE_CHECKING:
    import paramiko

Dial = Callable[[str, int, float], "socket.socket | paramiko.Channel"]
"""Address, port and seconds to a connection; raises `OSError`."""

ASKED_AT_ONCE = 32


@contextmanager
def dialing(testbed: Testbed) -> Iterator[Dial]:
    """How hosts are called. Raises `LabError` when the bastion does not let us in."""
    if not isinstance(testbed.reach, Bastion):
        yield from_here
        return
    from labctl.testbeds.ssh.bastion import OpenBastion

    with OpenBastion(testbed, testbed.reach) as gate:
        yield gate.dial


def examine(testbed: Testbed) -> list[Check]:
    """For `labctl doctor --testbed`: the bastion, if there is one."""
    if not isinstance(testbed.reach, Bastion):
        return []
    name = f"bastion {testbed.reach.host}"
    try:
        with dialing(testbed):
            return [Check(name, True, "lets us in")]
    except LabError as error:
        return [Check(name, False, str(error), "see reach: in the testbed file; a plain ssh must get in too")]


def wait_for_sshd(
    hosts: Sequence[Host], testbed: Testbed, answered: Callable[[Host], None]
) -> dict[str, str]:
    """Ask all in rounds until they answer as themselves or `boot_s` is over; returns name to problem for the others.

    Rounds, and not a thread that waits for each: an interrupt need not wait longer than one round.
    """
    problems = {host.name: "not asked yet" for host in hosts}
    timeouts = testbed.timeouts
    with dialing(testbed) as dial, ThreadPoolExecutor(ASKED_AT_ONCE) as pool:

        def ask_the_silent() -> dict[str, str]:
            silent = [host for host in hosts if host.name in problems]
            said = pool.map(lambda host: _unfit(host, timeouts, dial), silent)
            for host, problem in zip(silent, said, strict=True):
                problems[host.name] = problem
                if not problem:
                    del problems[host.name]
                    answered(host)
            return problems

        return look_until(operator.not_, ask_the_silent, timeouts.boot_s, timeouts.poll_s)


def _unfit(host: Host, timeouts: Timeouts, dial: Dial) -> str:
    """What keeps us from logging in; a wrong key may still be that of a machine whose start has not ended."""
    problem = answer(host.address, host.port, timeouts.connect_s, dial)
    if problem or not host.host_key:
        return problem
    from labctl.testbeds.ssh.login import other_key

    try:
        with dial(host.address, host.port, timeouts.connect_s) as connection:
            return other_key(connection, host.host_key, timeouts.login_s)
    except OSError as error:
        return error.strerror or str(error)


def from_here(address: str, port: int, limit_s: float) -> socket.socket:
    return socket.create_connection((address, port), limit_s)


def answer(address: str, port: int, limit_s: float, dial: Dial = from_here) -> str:
    """What keeps an sshd from greeting us; empty when it does."""
    try:
        with dial(address, port, limit_s) as connection:
            connection.settimeout(limit_s)
            greeting = connection.recv(255)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if greeting.startswith(b"SSH-") else "something answers, but it is not sshd"
