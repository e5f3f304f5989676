"""Running what `commands.py` writes, and looking at what this machine has."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from labctl.host import processes
from labctl.testbeds.providers.netns.commands import Command
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.timeouts import Timeouts

NEEDED = ("ip", "unshare", "mount", "sshd")
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


class ThisMachine:
    """This one, with the time-outs of a testbed."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts

    def run(self, command: Command) -> str:
        done = self._do(command)
        if done.returncode:
            raise ProviderError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def try_run(self, command: Command) -> str:
        """What it has to complain about; empty when it went well."""
        done = self._do(command)
        return (done.stderr.strip() or f"it ended with {done.returncode}") if done.returncode else ""

    def _do(self, command: Command) -> subprocess.CompletedProcess[str]:
        path = f"{os.environ.get('PATH', '')}:{_SBIN}"
        try:
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=self._timeouts.command_s,
                env={**os.environ, "PATH": path},
            )
        except FileNotFoundError:
            raise ProviderError(f"{command[0]} is not installed on this machine") from None
        except subprocess.TimeoutExpired:
            raise ProviderError(
                f"`{' '.join(command)}` did not end within {self._timeouts.command_s:g} s"
            ) from None

    def namespaces(self) -> set[str]:
        found = json.loads(self.run(["ip", "-json", "netns", "list"]) or "[]")
        return {each["name"] for each in found}

    def links(self) -> set[str]:
        found: list[dict[str, Any]] = json.loads(self.run(["ip", "-json", "link", "show"]) or "[]")
        return {each["ifname"] for each in found}

    def using(self, cidr: str) -> list[tuple[str, str]]:
        """Links and networks of this machine that overlap a network."""
        wanted = ipaddress.ip_network(cidr)
        found = []
        for link in json.loads(self.run(["ip", "-json", "address", "show"]) or "[]"):
            for entry in link.get("addr_info", []):
                network = ipaddress.ip_interface(f"{entry['local']}/{entry['prefixlen']}").network
                if network.version == wanted.version and network.overlaps(wanted):
                    found.append((str(link["ifname"]), str(network)))
        return found

    def start(self, command: Command, log: Path) -> processes.Process | None:
        """A process that outlives us."""
        with log.open("ab") as out:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": f"{os.environ.get('PATH', '')}:{_SBIN}", "LANG": "C.UTF-8"},
                cwd="/",
            )
        # Without this, Python would complain that nobody waits for it.
        child.returncode = 0
        return processes.look(child.pid)

    def inhabitants(self, namespace: str) -> list[processes.Process]:
        """Every process in a namespace."""
        pids = self.run(["ip", "netns", "pids", namespace]).split()
        seen = (processes.look(int(pid)) for pid in pids)
        return [process for process in seen if process is not None]

    def empty(self, namespace: str) -> str:
        """Kill whatever is in a namespace, which is ours, until nothing is; says what is left."""
        deadline = time.monotonic() + self._timeouts.delete_s
        while inhabitants := self.inhabitants(namespace):
            if time.monotonic() > deadline:
                return f"pid {', '.join(str(each.pid) for each in inhabitants)} does not end"
            # The parent outside goes by itself when it has collected the host's first process.
            inside = [each for each in inhabitants if each.arguments[:1] != ("unshare",)]
            processes.stop(inside or inhabitants, term_s=0.0)
        return ""


def program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_SBIN)


def missing_programs() -> list[str]:
    return [name for name in NEEDED if program(name) is None]
