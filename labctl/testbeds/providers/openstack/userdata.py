"""What a machine is told at its first boot, as cloud-init's user data. Pure.

It gets the host key that we made for it, the lab's public key for its user, and a timer that shuts it
down when the lab's lifetime ends, also after a reboot. It gets no credential of the cloud.
"""

from __future__ import annotations

import datetime
import json

from labctl.testbeds.labs.lab import Host

TIMER = "labctl-lifetime"


def user_data(host: Host, hostname: str, public_key: str, host_key_private: str, expires_at_s: float) -> str:
    """JSON is YAML, and has no doubt about quoting."""
    config = {
        "hostname": hostname,
        "preserve_hostname": False,
        "manage_etc_hosts": True,
        "users": [
            {
                "name": host.user,
                "shell": "/bin/bash",
                "lock_passwd": True,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": [public_key],
            }
        ],
        "disable_root": True,
        "ssh_pwauth": False,
        # Only our own key proves the host; no other may be offered.
        "ssh_deletekeys": True,
        "ssh_genkeytypes": [],
        "ssh_keys": {"ed25519_private": host_key_private, "ed25519_public": host.host_key},
        "package_update": False,
        "package_upgrade": False,
        "write_files": [
            {"path": f"/etc/systemd/system/{TIMER}.service", "content": _SERVICE},
            {"path": f"/etc/systemd/system/{TIMER}.timer", "content": _timer(expires_at_s)},
        ],
        "runcmd": [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", f"{TIMER}.timer"]],
    }
    return "#cloud-config\n" + json.dumps(config, indent=1) + "\n"


_SERVICE = """[Unit]
Description=Shut down: the lifetime of this machine's lab is over
[Service]
Type=oneshot
ExecStart=/usr/bin/systemctl poweroff
"""


def _timer(expires_at_s: float) -> str:
    """At a point in time, not after a span: a machine that was off in between is not given more."""
    moment = datetime.datetime.fromtimestamp(expires_at_s, datetime.UTC)
    return f"""[Unit]
Description=The lifetime of this machine's lab
[Timer]
OnCalendar={moment:%Y-%m-%d %H:%M:%S} UTC
Persistent=true
AccuracySec=1s
[Install]
WantedBy=timers.target
"""
