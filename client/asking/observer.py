"""`python -m client.asking.observer`: asks brokers about themselves for somebody who cannot reach them.

Brokers listen on the network of their lab only. Started on a host of the lab, it takes requests on its
standard input and answers each with one line, both JSON: `{"ask": {broker: address}, "dump": false}` with
what each broker says of itself, or a sentence where it says nothing; `{"prove": {broker: address}, "links":
[[a, b]]}` with how long an event took over each link. It ends when nobody asks any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from client.asking import probe
from client.asking.monitor import fetch_status
from client.core.errors import ClientError


async def answer(request: dict[str, Any]) -> dict[str, Any]:
    timeout_s = float(request.get("timeout_s", 5.0))
    if "prove" not in request:
        return {"brokers": await ask(request["ask"], bool(request.get("dump")), timeout_s)}
    try:
        return {"took_ms": await probe.prove(request["links"], request["prove"], timeout_s)}
    except ClientError as error:
        return {"error": str(error)}


async def ask(addresses: Mapping[str, str], dump: bool, timeout_s: float) -> dict[str, dict[str, Any] | str]:
    """Every broker at once; a sentence instead of a document where one does not answer."""

    async def one(address: str) -> dict[str, Any] | str:
        try:
            return await fetch_status(address, dump=dump, timeout_s=timeout_s)
        except ClientError as error:
            return str(error)

    answers = await asyncio.gather(*(one(address) for address in addresses.values()))
    return dict(zip(addresses, answers, strict=True))


def main() -> int:
    for line in sys.stdin.buffer:
        found = asyncio.run(answer(msgspec.json.decode(line)))
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
