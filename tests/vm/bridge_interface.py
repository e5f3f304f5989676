"""How Neutron's DHCP agent gets its port into the bridge that Nova plugs machines into.

It runs inside the control plane's own environment. A pair of interfaces leads from the agent's namespace to
the bridge, which is there already (`libvirt.py` makes it).
"""

from __future__ import annotations

from typing import Any

from neutron.agent.linux import bridge_lib, interface, ip_lib


class BridgeInterface(interface.LinuxInterfaceDriver):  # type: ignore[misc]  # its base is not installed here
    DEV_NAME_PREFIX = "ns-"

    def plug_new(  # noqa: PLR0917 - Neutron passes them by position
        self,
        network_id: str,
        port_id: str,
        device_name: str,
        mac_address: str,
        bridge: str | None = None,
        namespace: str | None = None,
        prefix: str | None = None,
        mtu: int | None = None,
        link_up: bool = True,
    ) -> None:
        name = self._outer(device_name, prefix)
        outer, inner = ip_lib.IPWrapper().add_veth(name, device_name, namespace2=namespace)
        inner.link.set_address(mac_address)
        for end in (outer, inner):
            if mtu:
                end.link.set_mtu(mtu)
        bridge_lib.BridgeDevice(f"brq{network_id[:11]}").addif(name)
        outer.link.set_up()
        if link_up:
            inner.link.set_up()

    def unplug(
        self, device_name: str, bridge: Any = None, namespace: Any = None, prefix: str | None = None
    ) -> None:
        """The other end goes with it."""
        ip_lib.IPDevice(self._outer(device_name, prefix)).link.delete()

    def _outer(self, device_name: str, prefix: str | None) -> str:
        return device_name.replace(prefix or self.DEV_NAME_PREFIX, "tap", 1)
