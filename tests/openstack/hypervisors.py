"""What a control plane needs to know of its hypervisor; and Nova's fake one, whose machines never run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tests.openstack import seed
from tests.openstack.configs import Places, Sections

if TYPE_CHECKING:
    from tests.openstack.control_plane import ControlPlane
    from tests.openstack.services import Services


class Hypervisor(Protocol):
    @property
    def plugins(self) -> tuple[Path, ...]:
        """Modules that services find on their path."""

    def nova(self, places: Places) -> Sections:
        """Over what Nova's configuration says with any hypervisor."""

    def neutron(self, places: Places) -> Sections: ...

    def start(self, plane: ControlPlane, services: Services) -> None:
        """What nova-compute talks to."""

    def complete(self, plane: ControlPlane, services: Services) -> None:
        """What machines need, when everything else runs: an image, and networks."""


class Fake:
    """Machines are entries in a table; everything in front of the hypervisor is real."""

    plugins: tuple[Path, ...] = ()

    def nova(self, places: Places) -> Sections:
        return {"DEFAULT": {"compute_driver": "fake.FakeDriver"}}

    def neutron(self, places: Places) -> Sections:
        return {"DEFAULT": {"dhcp_agent_notification": "false"}}

    def start(self, plane: ControlPlane, services: Services) -> None:
        """It is a part of nova-compute."""

    def complete(self, plane: ControlPlane, services: Services) -> None:
        seed.blank_image(plane.connect("admin"))
