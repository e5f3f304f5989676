"""What tests do with labs in the cloud: run labctl as a user does, and look at what is there, as nobody can
hide it: through the administrator's eyes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.openstack.control_plane import ControlPlane
from tests.openstack.proxy import Proxy

COMMAND_S = 400.0
BED = """provider: openstack
cloud: {cloud}
ready: active
placement: {placement}
timeouts: {{poll_s: 0.3, build_s: 300, delete_s: 120, conflict_s: {conflict_s}}}
{more}
"""


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@dataclass
class User:
    """Somebody with a home, a clouds.yaml and labctl."""

    home: Path
    clouds: Path
    environment: dict[str, str] = field(default_factory=dict)

    def bed(
        self, more: str = "", cloud: str = "member", placement: str = "spread", conflict_s: int = 30
    ) -> Path:
        path = self.home / "bed.yaml"
        path.write_text(BED.format(cloud=cloud, placement=placement, conflict_s=conflict_s, more=more))
        return path

    def labctl(self, *arguments: str | Path, proxy: Proxy | None = None, limit_s: float = COMMAND_S) -> Done:
        process = self.start(arguments)
        if proxy is not None:
            proxy.aim(process.pid)
        stdout, stderr = process.communicate(timeout=limit_s)
        return Done(process.returncode, stdout, stderr)

    def start(self, arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
        # Without it each of some hundred runs would compile the cloud's library anew.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {
            **{name: value for name, value in kept.items() if not name.startswith("OS_")},
            "XDG_STATE_HOME": str(self.home),
            "OS_CLIENT_CONFIG_FILE": str(self.clouds),
            **self.environment,
        }
        return subprocess.Popen(
            [Path(sys.executable).with_name("labctl"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def labs(self) -> list[str]:
        return [path.parent.name for path in self._labs.glob("*/lab.json")]

    def state(self, lab: str = "default") -> Any:
        return json.loads(self._state_file(lab).read_text())

    def let_expire(self, lab: str = "default") -> None:
        """Time is what the state says it is."""
        state = self.state(lab)
        self._state_file(lab).write_text(json.dumps({**state, "expires_at_s": state["created_at_s"]}))

    def _state_file(self, lab: str) -> Path:
        return self._labs / lab / "lab.json"

    @property
    def _labs(self) -> Path:
        return self.home / "labctl" / "labs"


def inventory(plane: ControlPlane) -> dict[str, set[str]]:
    """Everything of the project, kind by kind: names with ids. What a project has by default is left out."""
    admin = plane.connect("admin")
    network: Any = admin.network
    compute: Any = admin.compute
    member = plane.connect("member")
    project = member.current_project_id
    servers = compute.servers(all_projects=True, project_id=project)
    groups: Any = member.compute
    found = {
        "server": {f"{each.name} {each.id}" for each in servers},
        "server-group": {f"{each.name} {each.id}" for each in groups.server_groups()},
        **{
            kind: {f"{each.name} {each.id}" for each in listing(project_id=project) if each.name != "default"}
            for kind, listing in (
                ("network", network.networks),
                ("subnet", network.subnets),
                ("router", network.routers),
                ("port", network.ports),
                ("security-group", network.security_groups),
                ("floating-ip", network.ips),
            )
        },
    }
    return {kind: things for kind, things in found.items() if things}
