"""The services' configuration files, as functions of where things are. Only what differs from a default.

Every file has a section for each service's credentials: Keystone knows one user for all of them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

Sections = dict[str, dict[str, object]]

DATABASE_USER = "root"
SERVICE_USER = "service-user"
SERVICE_PASSWORD = "service-password"
# Of a cloud that lives as long as a test run, on loopback.
ADMIN_PASSWORD = "admin-password"
APIS = ("identity", "image", "placement", "compute", "network")


@dataclass(frozen=True)
class Places:
    """Where the control plane of this run is."""

    folder: Path
    venv: Path
    ports: dict[str, int]
    """Of the APIs by service type, of RabbitMQ and of its name server."""

    def url(self, service: str) -> str:
        path = {"identity": "/v3", "compute": "/v2.1"}.get(service, "")
        return f"http://127.0.0.1:{self.ports[service]}{path}"

    def program(self, name: str) -> Path:
        return self.venv / "bin" / name

    def file(self, service: str) -> Path:
        return self.folder / "etc" / f"{service}.conf"

    def command(self, program: str, service: str, *words: str) -> list[str | Path]:
        return [self.program(program), "--config-file", self.file(service), *words]

    def database(self, name: str) -> str:
        return f"mysql+pymysql://{DATABASE_USER}@localhost/{name}?unix_socket={self.socket}&charset=utf8"

    @property
    def socket(self) -> Path:
        return self.folder / "my.sock"

    @property
    def queue(self) -> str:
        return f"rabbit://guest:guest@127.0.0.1:{self.ports['rabbit']}/"


def write_all(places: Places, nova: Sections, neutron: Sections) -> None:
    """With what depends on the hypervisor, of Nova's and of Neutron's."""
    files = {
        "keystone": _keystone(places),
        "placement": _placement(places),
        "glance-api": _glance(places),
        "nova": _merged(_nova(places), nova),
        "neutron": _merged(_neutron(places), neutron),
    }
    for folder in ("etc", "locks", "images/staging", "images/tasks", "nova/instances", "neutron"):
        (places.folder / folder).mkdir(parents=True, exist_ok=True)
    for name, sections in files.items():
        places.file(name).write_text(as_text(sections))
    # Nova's API looks for this one beside its own, whatever the configuration says.
    shutil.copy(places.venv / "etc/nova/api-paste.ini", places.folder / "etc")


def _merged(usual: Sections, more: Sections) -> Sections:
    return {**usual, **{name: {**usual.get(name, {}), **options} for name, options in more.items()}}


def as_text(sections: Sections) -> str:
    lines = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    return "\n".join(lines) + "\n"


def _credentials(places: Places) -> dict[str, object]:
    return {
        "auth_type": "password",
        "auth_url": places.url("identity"),
        "username": SERVICE_USER,
        "password": SERVICE_PASSWORD,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }


def _checks_tokens(places: Places) -> Sections:
    more = {"service_token_roles": "service", "service_token_roles_required": "true"}
    return {"keystone_authtoken": {**_credentials(places), **more}}


def _locks(places: Places) -> Sections:
    return {"oslo_concurrency": {"lock_path": places.folder / "locks"}}


def _keystone(places: Places) -> Sections:
    return {
        "database": {"connection": places.database("keystone")},
        "fernet_tokens": {"key_repository": places.folder / "etc" / "fernet"},
        "credential": {"key_repository": places.folder / "etc" / "credential"},
        # Hashing is slow on purpose; here nobody attacks.
        "identity": {"password_hash_rounds": 4},
    }


def _placement(places: Places) -> Sections:
    return {
        "api": {"auth_strategy": "keystone"},
        "placement_database": {"connection": places.database("placement")},
        **_checks_tokens(places),
    }


def _glance(places: Places) -> Sections:
    images = places.folder / "images"
    return {
        "DEFAULT": {"enabled_backends": "disk:file", "workers": 1},
        "database": {"connection": places.database("glance")},
        "glance_store": {"default_backend": "disk"},
        "disk": {"filesystem_store_datadir": images},
        "os_glance_staging_store": {"filesystem_store_datadir": images / "staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": images / "tasks"},
        "paste_deploy": {
            "flavor": "keystone",
            "config_file": places.venv / "etc/glance/glance-api-paste.ini",
        },
        **_locks(places),
        **_checks_tokens(places),
    }


def _nova(places: Places) -> Sections:
    credentials = _credentials(places)
    return {
        "DEFAULT": {
            "host": "compute1",
            "my_ip": "127.0.0.1",
            "state_path": places.folder / "nova",
            "instances_path": places.folder / "nova/instances",
            "transport_url": places.queue,
            "vif_plugging_is_fatal": "false",
            "vif_plugging_timeout": 0,
            # Or the first report of the hypervisor comes up to a minute late.
            "periodic_fuzzy_delay": 0,
        },
        "api": {"auth_strategy": "keystone"},
        "api_database": {"connection": places.database("nova_api")},
        "database": {"connection": places.database("nova")},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 2},
        "glance": {"endpoint_override": places.url("image")},
        "neutron": {**credentials, "endpoint_override": places.url("network")},
        "placement": {**credentials, "endpoint_override": places.url("placement")},
        "service_user": {**credentials, "send_service_user_token": "true"},
        "vnc": {"enabled": "false"},
        **_locks(places),
        **_checks_tokens(places),
    }


def _neutron(places: Places) -> Sections:
    return {
        "DEFAULT": {
            "core_plugin": "ml2",
            "service_plugins": "router",
            "auth_strategy": "keystone",
            "transport_url": places.queue,
            "state_path": places.folder / "neutron",
            "api_paste_config": places.venv / "etc/neutron/api-paste.ini",
            "rpc_workers": 1,
        },
        "database": {"connection": places.database("neutron")},
        "nova": {**_credentials(places), "endpoint_type": "public"},
        "ml2": {
            "type_drivers": "flat,vxlan",
            "tenant_network_types": "vxlan",
            "mechanism_drivers": "labctl_tests",
            "extension_drivers": "port_security",
        },
        "ml2_type_vxlan": {"vni_ranges": "1:1000"},
        "ml2_type_flat": {"flat_networks": "*"},
        **_locks(places),
        **_checks_tokens(places),
    }
