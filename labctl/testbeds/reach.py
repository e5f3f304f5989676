"""Does a host's sshd answer? Only that: who it is and whether it lets us in is checked at login.

A host behind a bastion cannot be asked from here without logging in to the bastion, and is taken at its
provider's word.
"""

from __future__ import annotations

import socket
import time

from labctl.testbeds.lab import Host
from labctl.testbeds.testbed import Bastion, Testbed


def wait_for_sshd(host: Host, testbed: Testbed) -> str:
    """Until it answers or `boot_s` is over; says what was the matter last, or nothing when it answers."""
    if isinstance(testbed.reach, Bastion):
        return ""
    deadline = time.monotonic() + testbed.timeouts.boot_s
    while True:
        problem = answer(host.address, host.port, testbed.timeouts.connect_s)
        if not problem or time.monotonic() > deadline:
            return problem
        time.sleep(testbed.timeouts.poll_s)


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
