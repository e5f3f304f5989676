"""A Neutron mechanism driver for a cloud without a network: every port is bound at once.

It runs inside the control plane's own environment. No agent has to be alive, no packet ever flows; the
fake hypervisor does not plug anything in.
"""

from __future__ import annotations

from typing import Any

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class BindEverything(api.MechanismDriver):  # type: ignore[misc]  # its base is not installed here
    def initialize(self) -> None:
        """There is nothing to prepare."""

    @property
    def connectivity(self) -> Any:
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context: Any) -> None:
        segment = context.segments_to_bind[0]
        context.set_binding(
            segment[api.ID],
            portbindings.VIF_TYPE_BRIDGE,
            {portbindings.CAP_PORT_FILTER: False},
            status=constants.PORT_STATUS_ACTIVE,
        )
