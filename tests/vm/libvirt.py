"""Machines that run: libvirt with QEMU in software, a bridge, and Neutron's DHCP agent.

Only for namespaces of its own (`private.sh`): libvirt reads and writes at fixed places, and everything here
assumes that nobody else is there.
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.openstack import seed
from tests.openstack.configs import Places, Sections
from tests.openstack.control_plane import START_S, SYSTEM_PATH, VENV, ControlPlane
from tests.openstack.services import Services

HERE = Path(__file__).parent
GUEST = HERE.parents[1] / "build" / "vm"
PROGRAMS = (
    "qemu-system-x86_64",
    "qemu-img",
    "libvirtd",
    "dnsmasq",
    "dhcp_release",
    "iptables",
    "genisoimage",
)
SETTINGS = Path("/etc/libvirt")
SOCKET = Path("/run/libvirt/libvirt-sock")
DHCP = "neutron-dhcp-agent"
NETWORK = "guests"
CIDR = ipaddress.ip_network("10.88.0.0/24")
GATEWAY = CIDR[1]
"""The bridge's own address: from here the machines are reached."""
UPLOAD_S = 300

QEMU_CONF = """user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
stdio_handler = "file"
cgroup_controllers = [ ]
namespaces = [ ]
"""
LIBVIRTD_CONF = """auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
"""


def missing() -> str:
    """Which part is not installed; empty when all are."""
    for program in PROGRAMS:
        if shutil.which(program, path=SYSTEM_PATH) is None:
            return f"{program} is not installed; `tests/system-packages.sh vm` installs it or says how"
    if not (VENV / ".libvirt").exists():
        return "Nova's way to libvirt is not installed; `make .venv-openstack/.libvirt` does it"
    if not (GUEST / "disk.qcow2").exists():
        return "there is no guest; `make build/vm/disk.qcow2` builds it"
    return ""


def _make_bridge(name: str) -> None:
    for words in (
        ["link", "add", name, "type", "bridge", "forward_delay", "0"],
        ["address", "add", f"{GATEWAY}/{CIDR.prefixlen}", "dev", name],
        ["link", "set", name, "up"],
    ):
        subprocess.run(["ip", *words], check=True, timeout=START_S)


class Libvirt:
    plugins = (HERE / "bridge_interface.py",)

    def nova(self, places: Places) -> Sections:
        helper: dict[str, object] = {
            "helper_command": " ".join(map(str, places.command("privsep-helper", "nova")))
        }
        return {
            "DEFAULT": {"compute_driver": "libvirt.LibvirtDriver", "reserved_host_memory_mb": 512},
            "libvirt": {
                # /dev/kvm may be there and still not work.
                "virt_type": "qemu",
                "cpu_mode": "none",
                # Translated code, in MB; the default takes a gigabyte for each machine.
                "tb_cache_size": 256,
                "num_pcie_ports": 8,
            },
            # The default asks sudo, of whom we have no need.
            **dict.fromkeys(
                ("privsep", "nova_sys_admin", "vif_plug_linux_bridge_privileged", "privsep_osbrick"), helper
            ),
        }

    def neutron(self, places: Places) -> Sections:
        return {
            "DEFAULT": {
                "host": "compute1",
                "interface_driver": "bridge_interface.BridgeInterface",
                "enable_isolated_metadata": "false",
                "dnsmasq_config_file": places.folder / "etc" / "dnsmasq.conf",
            },
            "agent": {"root_helper": "env", "root_helper_daemon": ""},
        }

    def start(self, plane: ControlPlane, services: Services) -> None:
        (SETTINGS / "qemu.conf").write_text(QEMU_CONF)
        (SETTINGS / "libvirtd.conf").write_text(LIBVIRTD_CONF)
        services.start("libvirtd", ["libvirtd", "--config", SETTINGS / "libvirtd.conf"])
        services.wait("libvirtd", SOCKET.exists, START_S)

    def complete(self, plane: ControlPlane, services: Services) -> None:
        network: Any = plane.connect("admin").network
        # It would become somebody who may not be allowed to read what is in our folder.
        (plane.folder / "etc" / "dnsmasq.conf").write_text("user=root\n")
        # Its first call to a server that does not listen yet would cost a minute, so it comes late; and only
        # networks that are made when it is known are given to it.
        services.start(DHCP, plane.places.command(DHCP, "neutron"))
        services.wait(DHCP, lambda: any(agent.is_alive for agent in network.agents(binary=DHCP)), START_S)
        made = network.create_network(name=NETWORK, is_shared=True)
        _make_bridge(f"brq{made.id[:11]}")
        network.create_subnet(
            network_id=made.id, ip_version=4, cidr=str(CIDR), gateway_ip=str(GATEWAY), name=NETWORK
        )
        self._upload(plane)
        leases = plane.folder / "neutron" / "dhcp" / made.id / "pid"
        services.wait(DHCP, leases.exists, START_S)

    def _upload(self, plane: ControlPlane) -> None:
        """Without a boot loader: the kernel is given to the machine from outside."""
        admin = plane.connect("admin")
        kernel = seed.upload(admin, f"{seed.IMAGE}-kernel", "aki", (GUEST / "kernel").read_bytes())
        initrd = seed.upload(admin, f"{seed.IMAGE}-initrd", "ari", (GUEST / "initrd").read_bytes())
        seed.upload(
            admin,
            seed.IMAGE,
            "qcow2",
            (GUEST / "disk.qcow2").read_bytes(),
            UPLOAD_S,
            kernel_id=kernel,
            ramdisk_id=initrd,
            min_disk=2,
            # An emulated machine has little chance of its own, and sshd waits for it.
            hw_rng_model="virtio",
        )
