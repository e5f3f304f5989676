"""Free ports to listen on. Standard library only: it also runs on hosts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from labctl.exits import LabError

PORT_MIN = 10_000
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoPorts(LabError):
    """Fewer free ports than are needed."""


@contextmanager
def reserved(count: int, address: str) -> Iterator[list[int]]:
    """Free ports of an address of this machine, held until the block ends.

    They lie below the range from which the kernel takes ports for outgoing connections: a broker
    that dials its neighbour must not be given the port on which a third is about to listen.
    """
    first = int(_EPHEMERAL_PORTS.read_text().split()[0]) if _EPHEMERAL_PORTS.exists() else 32_768
    candidates = range(PORT_MIN, first) if first > PORT_MIN + 1_000 else range(PORT_MIN, 65_536)
    ports: list[int] = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    why = "all are in use"
    with ExitStack() as held:
        for port in random.sample(candidates, len(candidates)):
            if len(ports) == count:
                break
            probe = socket.socket(family)
            try:
                probe.bind((address, port))
            except OSError as error:
                why = error.strerror or str(error)
                probe.close()
                continue
            held.enter_context(probe)
            ports.append(port)
        if len(ports) < count:
            raise NoPorts(f"only {len(ports)} free ports at {address}, and {count} are needed ({why})")
        yield ports
