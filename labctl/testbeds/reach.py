"""Does a host's sshd answer? Only that: who it is and whether it lets us in is checked at login.

A host behind a bastion cannot be asked from here without logging in to the bastion, and is taken at its
provider's word.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from labctl.testbeds.lab import Host
from labctl.testbeds.testbed import Bastion, Testbed

ASKED_AT_ONCE = 32


def wait_for_sshd(
    hosts: Sequence[Host], testbed: Testbed, answered: Callable[[Host], None]
) -> dict[str, str]:
    """Ask all in rounds until they answer or `boot_s` is over; returns name to problem for the silent ones.

    Rounds, and not a thread that waits for each: an interrupt need not wait longer than one round.
    """
    problems = {} if isinstance(testbed.reach, Bastion) else {host.name: "not asked yet" for host in hosts}
    for host in hosts:
        if host.name not in problems:
            answered(host)
    deadline = time.monotonic() + testbed.timeouts.boot_s
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        while problems:
            silent = [host for host in hosts if host.name in problems]
            said = pool.map(lambda host: answer(host.address, host.port, testbed.timeouts.connect_s), silent)
            for host, problem in zip(silent, said, strict=True):
                problems[host.name] = problem
                if not problem:
                    del problems[host.name]
                    answered(host)
            if time.monotonic() > deadline:
                break
            if problems:
                time.sleep(testbed.timeouts.poll_s)
    return problems


def answer(address: str, port: int, limit_s: float) -> str:
    """What keeps an sshd from greeting us; empty when it does."""
    try:
        with socket.create_connection((address, port), limit_s) as connection:
            connection.settimeout(limit_s)
            greeting = connection.recv(255)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if greeting.startswith(b"SSH-") else "something answers, but it is not sshd"
