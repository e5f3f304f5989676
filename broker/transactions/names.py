"""Ids of transactions; pure."""

from __future__ import annotations

from broker.routing.ready import ProtocolError


def check_name(tx: str, client: str, incarnation: int) -> None:
    """A transaction's id must tell whose it is, so that no two are alike."""
    prefix, _, number = tx.rpartition("/")
    if prefix != f"{client}/{incarnation}" or not (number.isascii() and number.isdigit()):
        raise ProtocolError(f"{tx} is no id for a transaction of {client}")
