"""A real OpenStack on loopback for the time of a test run: Keystone, Glance, Placement, Nova, Neutron.

Unless another one is given, Nova has its fake hypervisor: machines never run, all else is as in a cloud.
MariaDB and RabbitMQ come from the system, the services from .venv-openstack. By hand, until Ctrl-C, with
FOLDER/clouds.yaml:

    .venv/bin/python -m tests.openstack.control_plane FOLDER
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from labctl.paths import PROJECT
from tests.openstack import configs, seed
from tests.openstack.configs import APIS, Places
from tests.openstack.hypervisors import Fake, Hypervisor
from tests.openstack.services import NotReady, Services, free_ports, listens

VENV = PROJECT / ".venv-openstack"
SYSTEM_PATH = "/usr/lib/rabbitmq/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
DATABASES = ("keystone", "placement", "glance", "nova", "nova_api", "nova_cell0", "neutron")
WSGI = {
    "identity": "keystone.wsgi.api",
    "placement": "placement.wsgi.api",
    "image": "glance.wsgi.api",
    "compute": "nova.wsgi.osapi_compute",
    "network": "neutron.wsgi.api",
}
DRIVER = "[neutron.ml2.mechanism_drivers]\nlabctl_tests = lab_binding:BindEverything\n"

THREADS = {"placement": "1"}
"""Two claims at once of what only one can have are both granted now and then: when Placement tries again after a
conflict, it counts what was used before it began."""
START_S = 120.0
"""For one program to become ready; a busy machine takes three times as long as a quiet one."""
SCHEMA_S = 300.0
ENDS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class ControlPlane:
    folder: Path
    places: Places
    hypervisor: Hypervisor = field(default_factory=Fake)
    connections: dict[str, openstack.connection.Connection] = field(default_factory=dict)

    @property
    def clouds_file(self) -> Path:
        return self.folder / "clouds.yaml"

    def connect(self, cloud: str) -> openstack.connection.Connection:
        """As one of the users in clouds.yaml; the same connection each time."""
        if cloud not in self.connections:
            config = openstack.config.OpenStackConfig(config_files=[str(self.clouds_file)])
            self.connections[cloud] = openstack.connection.Connection(config=config.get_one(cloud))
        return self.connections[cloud]

    def close(self) -> None:
        while self.connections:
            self.connections.popitem()[1].close()


@contextmanager
def running(
    folder: Path, say: Callable[[str], None] = lambda _: None, hypervisor: Hypervisor | None = None
) -> Iterator[ControlPlane]:
    """Start everything from nothing, and stop it in any case."""
    ports = dict(zip((*APIS, "rabbit", "rabbit-peers", "rabbit-names"), free_ports(8), strict=True))
    plane = ControlPlane(folder, Places(folder, VENV, ports), hypervisor or Fake())
    services = Services(folder, _environment(plane.places))
    began = time.monotonic()
    try:
        for step in (_database_and_queue, _schema, _identity, _apis, _compute, _content):
            step(plane, services)
            say(f"{time.monotonic() - began:5.1f} s  {step.__name__.strip('_').replace('_', ' ')}")
        yield plane
    finally:
        plane.close()
        services.stop()
        _stop_name_server(plane.places)


@contextmanager
def attached(folder: Path) -> Iterator[ControlPlane]:
    """One that runs already, started by hand."""
    ports = json.loads((folder / "ports.json").read_text())
    plane = ControlPlane(folder, Places(folder, VENV, ports))
    try:
        yield plane
    finally:
        plane.close()


def missing() -> str:
    """Which part is not installed; empty when all are."""
    if not (VENV / ".installed").exists():
        return "the OpenStack services are not installed; `make .venv-openstack/.installed` does it"
    for program in ("mariadbd", "rabbitmq-server"):
        if shutil.which(program, path=SYSTEM_PATH) is None:
            return f"{program} is not installed; tests/system-packages.sh installs it or says how"
    return ""


def _environment(places: Places) -> dict[str, str]:
    etc = str(places.folder / "etc")
    return {
        "PATH": f"{places.venv}/bin:{SYSTEM_PATH}",
        "HOME": str(places.folder),
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(places.folder / "plugins"),
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
        **{f"OS_{name}_CONFIG_DIR": etc for name in ("KEYSTONE", "PLACEMENT", "GLANCE", "NOVA", "NEUTRON")},
        "OS_NEUTRON_CONFIG_FILES": str(places.file("neutron")),
    }


def _database_and_queue(plane: ControlPlane, services: Services) -> None:
    places = plane.places
    configs.write_all(places, plane.hypervisor.nova(places), plane.hypervisor.neutron(places))
    _install_plugins(plane.folder / "plugins", plane.hypervisor)
    queue, data = plane.folder / "rabbit", plane.folder / "db"
    queue.mkdir()
    (queue / "plugins").write_text("[].\n")
    (queue / "rabbit.conf").write_text("vm_memory_high_watermark.absolute = 1GB\n")
    services.start(
        "rabbit",
        ["rabbitmq-server"],
        {
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(places.ports["rabbit-names"]),
            "RABBITMQ_NODENAME": "labctl-tests@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(places.ports["rabbit"]),
            "RABBITMQ_DIST_PORT": str(places.ports["rabbit-peers"]),
            "RABBITMQ_MNESIA_BASE": str(queue),
            "RABBITMQ_LOG_BASE": str(services.logs),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(queue / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(queue / "rabbit.conf"),
            # One scheduler that does not spin while it waits: the cores are for the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        },
    )
    user = f"--user={getpass.getuser()}"
    make = ["mariadb-install-db", "--no-defaults", user, f"--datadir={data}", "--skip-test-db"]
    services.run("database", [[*make, "--auth-root-authentication-method=normal"]], START_S)
    services.start(
        "database",
        [
            "mariadbd",
            "--no-defaults",
            user,
            f"--datadir={data}",
            f"--socket={places.socket}",
            f"--pid-file={plane.folder / 'mariadb.pid'}",
            "--skip-networking",
            "--max-connections=500",
            # What is lost with the machine is not missed.
            "--innodb-flush-log-at-trx-commit=0",
            "--skip-innodb-doublewrite",
        ],
    )
    services.wait("database", places.socket.exists, START_S)
    client = [
        "mariadb",
        "--no-defaults",
        f"--socket={places.socket}",
        f"--user={configs.DATABASE_USER}",
        "--execute",
    ]
    create = "; ".join(f"create database {name} character set utf8mb3" for name in DATABASES)
    services.run("databases", [[*client, create]], START_S)


def _install_plugins(folder: Path, hypervisor: Hypervisor) -> None:
    """Neutron finds its driver by an entry point, for which a dist-info on its path is enough."""
    info = folder / "lab_binding-1.0.dist-info"
    info.mkdir(parents=True)
    for module in (Path(__file__).with_name("lab_binding.py"), *hypervisor.plugins):
        shutil.copy(module, folder)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab_binding\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(DRIVER)


def _schema(plane: ControlPlane, services: Services) -> None:
    places = plane.places

    def keystone(*words: str) -> list[str | Path]:
        return places.command("keystone-manage", "keystone", *words)

    def nova(*words: str) -> list[str | Path]:
        return places.command("nova-manage", "nova", *words)

    user = ("--keystone-user", getpass.getuser(), "--keystone-group", getpass.getuser())
    url = places.url("identity")
    bootstrap = ["--bootstrap-password", configs.ADMIN_PASSWORD, "--bootstrap-region-id", "RegionOne"]
    for interface in ("public", "internal", "admin"):
        bootstrap += [f"--bootstrap-{interface}-url", url]
    for folder in ("fernet", "credential"):
        (plane.folder / "etc" / folder).mkdir(mode=0o700)
    work: dict[str, list[list[str | Path]]] = {
        "schema-keystone": [
            keystone("db_sync"),
            keystone("fernet_setup", *user),
            keystone("credential_setup", *user),
            keystone("bootstrap", *bootstrap),
            places.command("placement-manage", "placement", "db", "sync"),
            places.command("glance-manage", "glance-api", "db_sync"),
        ],
        "schema-nova": [
            nova("api_db", "sync"),
            nova("cell_v2", "map_cell0", "--database_connection", places.database("nova_cell0")),
            nova("db", "sync"),
            nova("cell_v2", "create_cell", "--name", "cell1"),
        ],
        "schema-neutron": [places.command("neutron-db-manage", "neutron", "upgrade", "heads")],
    }
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(services.run, name, commands, SCHEMA_S) for name, commands in work.items()]:
            done.result()


def _identity(plane: ControlPlane, services: Services) -> None:
    for service in ("identity", "placement", "image"):
        _start_api(plane, services, service)
    _wait_for_api(plane, services, "identity")
    seed.write_clouds(plane.places, plane.clouds_file)
    seed.users_and_catalogue(plane.places, plane.connect("admin"))
    # A connection keeps the catalogue that it got when it logged in.
    plane.close()


def _apis(plane: ControlPlane, services: Services) -> None:
    """Whatever else the APIs call at their start is there by now."""
    services.wait("rabbit", lambda: listens(plane.places.ports["rabbit"]), START_S)
    for service in ("network", "compute"):
        _start_api(plane, services, service)
    for program, service in (("neutron-rpc-server", "neutron"), ("nova-scheduler", "nova")):
        services.start(program, plane.places.command(program, service))
    services.start("nova-conductor", plane.places.command("nova-conductor", "nova", "--debug"))


def _compute(plane: ControlPlane, services: Services) -> None:
    """The hypervisor's first call to a conductor that does not listen yet would cost a minute."""
    log = services.log("nova-conductor")
    joined = "Join ServiceGroup membership"
    services.wait("nova-conductor", lambda: joined in log.read_text(errors="replace"), START_S)
    plane.hypervisor.start(plane, services)
    services.start("nova-compute", plane.places.command("nova-compute", "nova"))
    for service in APIS:
        _wait_for_api(plane, services, service)
    admin = plane.connect("admin")
    services.wait("nova-compute", lambda: _hypervisor_is_up(admin), START_S)


def _content(plane: ControlPlane, services: Services) -> None:
    (plane.folder / "ports.json").write_text(json.dumps(plane.places.ports))
    admin = plane.connect("admin")
    seed.flavors_and_public_network(admin)
    seed.raise_quota(admin)
    plane.hypervisor.complete(plane, services)


def _start_api(plane: ControlPlane, services: Services, service: str) -> None:
    command: list[str | Path] = [plane.places.program("uwsgi")]
    command += ["--http-socket", f"127.0.0.1:{plane.places.ports[service]}"]
    command += ["--module", f"{WSGI[service]}:application", "--need-app", "--lazy-apps", "--master"]
    command += ["--processes", "1", "--threads", THREADS.get(service, "4"), "--enable-threads"]
    command += ["--die-on-term", "--buffer-size", "65535", "--http-chunked-input", "--disable-logging"]
    # It closes connections without saying so, which the other side takes for an error.
    command += ["--add-header", "Connection: close"]
    services.start(service, command)


def _wait_for_api(plane: ControlPlane, services: Services, service: str) -> None:
    services.wait(service, lambda: listens(plane.places.ports[service]), START_S)


def _hypervisor_is_up(admin: openstack.connection.Connection) -> bool:
    compute: Any = admin.compute
    try:
        up = {service.binary for service in compute.services() if service.state == "up"}
        known = list(compute.hypervisors(details=False))
    except (SDKException, ClientException):
        return False
    return bool(known) and up >= {"nova-compute", "nova-scheduler", "nova-conductor"}


def _stop_name_server(places: Places) -> None:
    """RabbitMQ starts epmd as a daemon of its own; it is the one that listens at our port."""
    if not listens(places.ports["rabbit-names"]):
        return
    wanted = str(places.ports["rabbit-names"])
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _is_name_server(entry, wanted):
            os.kill(int(entry.name), signal.SIGTERM)


def _is_name_server(entry: Path, port: str) -> bool:
    try:
        program = (entry / "comm").read_text().strip()
        environment = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return program == "epmd" and f"ERL_EPMD_PORT={port}".encode() in environment


def _end_once(_number: int, _frame: FrameType | None) -> None:
    """A second signal must not end the stopping of what was started."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    # A shell lets what it starts in the background ignore Ctrl-C, and nobody else says it more politely.
    for number in ENDS:
        signal.signal(number, _end_once)
    if problem := missing():
        raise SystemExit(problem)
    try:
        with running(folder, lambda text: print(text, flush=True)) as plane:  # noqa: T201 - by hand
            print(f"ready: OS_CLIENT_CONFIG_FILE={plane.clouds_file} OS_CLOUD=member", flush=True)  # noqa: T201
            signal.pause()
    except KeyboardInterrupt:
        return
    except NotReady as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
