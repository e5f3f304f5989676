"""A broker's configuration: TOML text in, typed settings out, and a clear sentence for every mistake.

TOML, because a host that only runs brokers has no YAML library; `labctl` writes these files. Pure: the
caller reads the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct

from broker.address import AddressError, parse_address
from broker.delay import Delay
from broker.filters import Overlap
from broker.limits import Limits

DELAY_KEYS = Delay.__struct_fields__


class ConfigError(Exception):
    """The configuration cannot be used; the text is one sentence for the person who wrote it."""


class Neighbour(Struct, frozen=True):
    id: str
    address: str
    """Empty: the neighbour dials us."""
    delay: Delay


class NodeConfig(Struct, frozen=True):
    id: str
    listen: str
    overlap: Overlap = "all"
    grace_ms: int = 5000
    """How long a client may be away before it is gone."""
    queue_bytes_max: int = 16 << 20
    """What may wait for one client; with more it is a slow consumer and is disconnected."""
    neighbours: tuple[Neighbour, ...] = ()
    clients: Delay = Delay()
    """Emulated delay from this broker to each of its clients."""
    limits: Limits = Limits()


def parse(text: str, source: str) -> NodeConfig:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from None
    _check_keys(table, NodeConfig.__struct_fields__, source)
    given = dict(table)
    given["neighbours"] = _neighbours(given.get("neighbours", []), source)
    given["clients"] = _section(given.get("clients", {}), Delay, f"{source}, [clients]")
    given["limits"] = _section(given.get("limits", {}), Limits, f"{source}, [limits]")
    for key in ("id", "listen"):
        if not given.get(key):
            raise ConfigError(f"{source}: the key {key!r} is missing")
    config: NodeConfig = _convert(given, NodeConfig, source)
    _check(config, source)
    return config


def _check(config: NodeConfig, source: str) -> None:
    _check_address(config.listen, source)
    seen = {config.id}
    for neighbour in config.neighbours:
        if neighbour.id == config.id:
            raise ConfigError(f"{source}: broker {config.id} names itself as a neighbour")
        if neighbour.id in seen:
            raise ConfigError(f"{source}: the neighbour {neighbour.id} stands there twice")
        seen.add(neighbour.id)
        if neighbour.address:
            _check_address(neighbour.address, source)
    for name in ("grace_ms", "queue_bytes_max"):
        if getattr(config, name) <= 0:
            raise ConfigError(f"{source}: {name} must be above 0")


def _check_address(text: str, source: str) -> None:
    try:
        parse_address(text)
    except AddressError as error:
        raise ConfigError(f"{source}: {error}") from None


def _neighbours(given: object, source: str) -> list[Neighbour]:
    if not isinstance(given, list):
        raise ConfigError(f"{source}: neighbours are written as [[neighbours]] tables")
    found = []
    for place, table in enumerate(given, 1):
        where = f"{source}, neighbour {place}"
        _check_keys(table, ("id", "address", *DELAY_KEYS), where)
        if not isinstance(table.get("id"), str) or not table["id"]:
            raise ConfigError(f"{where}: the key 'id' is missing")
        delay = _section({k: v for k, v in table.items() if k in DELAY_KEYS}, Delay, where)
        found.append(Neighbour(table["id"], str(table.get("address", "")), delay))
    return found


def _section(table: object, type_: type[Any], where: str) -> Any:
    _check_keys(table, type_.__struct_fields__, where)
    return _convert(table, type_, where)


def _check_keys(table: object, known: tuple[str, ...], where: str) -> None:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: a table was expected, not {table!r}")
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key!r}; {hint}")


def _convert(table: object, type_: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(table, type_)
    except ValueError as error:  # of msgspec, or of a type's own check
        raise ConfigError(f"{where}: {error}") from None
