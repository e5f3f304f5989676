"""A broker's configuration: TOML text in, typed settings out, and a clear sentence for every mistake.

TOML, because a host that only runs brokers has no YAML library; `labctl` writes these files. Pure: the
caller reads the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import Struct

from broker.protocol.address import AddressError, parse_address
from broker.protocol.delay import Delay
from broker.protocol.events import Detail
from broker.protocol.filters import Overlap
from broker.protocol.limits import Limits, publication_bytes_max
from broker.protocol.wire import MESSAGE_BYTES_MAX

Durable = Literal["none", "os", "fsync"]
DELAY_KEYS = Delay.__struct_fields__
ID_LENGTH_MAX = 200
INTEGER_MAX = 1 << 40
"""Of milliseconds and bytes; more is a slip of the hand, and timers do not take it."""


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
    silence_ms: int = 15_000
    """After so much silence a connection is dead, whatever TCP says."""
    patience_ms: int = 250
    """How long publishers wait for a client that has much to take and takes nothing."""
    queue_bytes_max: int = 16 << 20
    """What may wait for one client; with more it is a slow consumer and is disconnected."""
    log_bytes_max: int = 16 << 20
    """Of the file that its log goes to; a few older ones are kept beside it."""
    neighbours: tuple[Neighbour, ...] = ()
    clients: Delay = Delay()
    """Emulated delay from this broker to each of its clients."""
    limits: Limits = Limits()
    data: str = ""
    """The folder of its write-ahead log, with `durable`."""
    durable: Durable = "none"
    """What a crash does not undo: of this process (`os`), of the machine as well (`fsync`)."""
    redo_ms_max: int = 500
    """What a crash leaves to be done again should take no longer: a snapshot is due."""
    overlay: str = ""
    """Whose broker it is: a data folder is not taken over by another overlay."""
    history: str = ""
    """A file that gets a line of JSON for whatever happens to transactions; empty: none is kept."""
    history_detail: Detail = "all"
    control: str = ""
    """A file that says which links are cut or slow at present, for experiments with faults; empty: none is."""


def parse(text: str, source: str, data: str = "") -> NodeConfig:
    """`data`: the data folder, whatever the text says of it; who names one means to be durable."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise ConfigError(f"{source} is not TOML: {error}") from None
    _check_keys(table, NodeConfig.__struct_fields__, source)
    given = dict(table)
    if data:
        given = {"durable": "fsync", **given, "data": data}
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
    _check_id(config.id, source)
    _check_address(config.listen, source)
    seen = {config.id}
    for neighbour in config.neighbours:
        if neighbour.id == config.id:
            raise ConfigError(f"{source}: broker {config.id} names itself as a neighbour")
        if neighbour.id in seen:
            raise ConfigError(f"{source}: the neighbour {neighbour.id} stands there twice")
        seen.add(neighbour.id)
        _check_id(neighbour.id, source)
        if neighbour.address and not _check_address(neighbour.address, source):
            raise ConfigError(f"{source}: the address {neighbour.address} of {neighbour.id} has no port")
    for name in ("grace_ms", "silence_ms", "patience_ms", "queue_bytes_max", "log_bytes_max", "redo_ms_max"):
        _check_integer(name, getattr(config, name), source)
    _check_limits(config.limits, f"{source}, [limits]")
    if config.durable != "none" and not config.data:
        raise ConfigError(f'{source}: durable = {config.durable!r} needs a folder: data = "DIR"')
    if config.durable != "none" and config.history and config.history_detail == "all":
        raise ConfigError(
            f"{source}: a history of all is kept by a broker that is not durable; lower history_detail"
        )


def _check_limits(limits: Limits, where: str) -> None:
    for name in Limits.__struct_fields__:
        _check_integer(name, getattr(limits, name), where)
    size = publication_bytes_max(limits)
    if size > MESSAGE_BYTES_MAX:
        raise ConfigError(
            f"{where}: a publication could take {size} bytes, a message holds {MESSAGE_BYTES_MAX};"
            " lower payload_bytes_max, attributes_max or text_length_max"
        )


def _check_integer(name: str, value: int, where: str) -> None:
    if not 0 < value <= INTEGER_MAX:
        raise ConfigError(f"{where}: {name} must be above 0 and at most {INTEGER_MAX}")


def _check_id(broker: str, source: str) -> None:
    if not broker.isprintable() or len(broker) > ID_LENGTH_MAX:
        shown = f"{broker[:20]!r}"
        raise ConfigError(
            f"{source}: a broker's id is at most {ID_LENGTH_MAX} printable characters, not {shown}"
        )


def _check_address(text: str, source: str) -> int:
    """Its port."""
    try:
        return parse_address(text)[1]
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
