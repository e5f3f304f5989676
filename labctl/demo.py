"""`make demo`: an overlay of three brokers, a short exchange between four clients, a short benchmark.

The exchange is the paper's dispatching use case without its transaction: a dispatcher hands a process
instance to an agent by a hole in its own subscription, and the next event finds the agent.
"""

from __future__ import annotations

import asyncio
import os
import sys

from client import Connection, Delivery, TimedOut, connect
from labctl import overlay
from labctl.bench import chain
from labctl.bench.view import chain_table
from labctl.exits import LabError
from labctl.output import Output
from labctl.topology import standard

QUIET_S = 0.3
"""Long enough on a loopback overlay to be sure that nothing comes."""


def main() -> int:
    try:
        print("Three brokers in a line: b1 - b2 - b3")
        with overlay.running(standard(3), f"demo-{os.getpid()}") as state:
            addresses = {broker.id: broker.address for broker in state.brokers}
            asyncio.run(_dispatch(addresses))
        _benchmark()
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


async def _dispatch(at: dict[str, str]) -> None:
    async with (
        connect(at["b1"], client_id="E") as environment,
        connect(at["b2"], client_id="D") as dispatcher,
        connect(at["b3"], client_id="A1") as agent,
    ):
        await environment.advertise({"process": "p1"})
        await dispatcher.subscribe({"process": "p1"})
        await dispatcher.settled()
        print(
            "E at b1 advertises process p1; the dispatcher D at b2 subscribes to all of it; agent A1 is at b3.\n"
        )

        await environment.publish({"process": "p1", "instance": "x1", "step": 1}, b"a new instance")
        print(f"  E publishes step 1 of x1  ->  D gets {_text(await dispatcher.next_delivery(5))}")

        await agent.subscribe({"process": "p1", "instance": "x1"})
        await dispatcher.unsubscribe({"process": "p1", "instance": "x1"})
        await agent.settled()
        await dispatcher.settled()
        print("  D hands x1 over: A1 subscribes to it, D takes it out of its own subscription")

        await environment.publish({"process": "p1", "instance": "x1", "step": 2}, b"work on it")
        print(f"  E publishes step 2 of x1  ->  A1 gets {_text(await agent.next_delivery(5))}")
        print(f"                                D gets {await _nothing(dispatcher)}\n")


async def _nothing(session: Connection) -> str:
    try:
        return _text(await session.next_delivery(QUIET_S))
    except TimedOut:
        return "nothing, as it should"


def _text(delivery: Delivery) -> str:
    event = ", ".join(f"{name} {value}" for name, value in delivery.event.items())
    return f"[{event}] {delivery.payload.decode()!r}"


def _benchmark() -> None:
    print(
        "How fast is it? The same events through three brokers, and through three relays that decide nothing:\n"
    )
    result = chain.run(chain.Plan(events=150_000, round_trips=1000, rounds=1))
    Output().table(*chain_table(result), figures=True)
    print(
        "\nNext: labctl overlay up --brokers 9, labctl bench --peer mosquitto, labctl --help (in .venv/bin)"
    )


if __name__ == "__main__":
    sys.exit(main())
