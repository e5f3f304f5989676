"""`make demo`: a dispatch by hand and as a transaction, a proof, a benchmark, and an experiment with its report.

The exchange is the paper's dispatching use case: a dispatcher hands a process instance to an agent by a
hole in its own subscription, and the next event finds the agent. By hand everybody has to wait until it
holds everywhere; as a transaction all of it happens at once or not at all. The experiment is the paper's first,
in its quick profile: calibrated, run, checked and reported by the commands that a user would type.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from broker.protocol.vocabulary import D_TX, PROTOCOLS, S_TX, S_TX_SAFE
from client import Connection, Delivery, TimedOut, connect
from client.core.transactions import Handler
from labctl.bench import chain
from labctl.bench.ends import roles
from labctl.bench.view import chain_table
from labctl.exits import CHECK_FAILED, DONE, LabError
from labctl.output import Output
from labctl.overlay import local
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.runner import simulate
from labctl.topology import standard

SCHEDULES = 100
MAIN = "from labctl.cli import main; main()"

QUIET_S = 0.3
"""Long enough on a loopback overlay to be sure that nothing comes."""


def main() -> int:
    try:
        print("Three brokers in a line: b1 - b2 - b3")
        with local.running(standard(3), f"demo-{os.getpid()}") as state:
            addresses = {broker.id: broker.address for broker in state.brokers}
            asyncio.run(_dispatch(addresses))
            asyncio.run(_transact(addresses))
        _prove()
        _benchmark()
        _experiment()
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


async def _transact(at: dict[str, str]) -> None:
    def reacting(client: str) -> Handler:
        return lambda tcm, frame: roles.react(client, tcm, frame)

    async with (
        connect(at["b1"], client_id="E") as environment,
        connect(at["b2"], client_id="D", on_tcm=reacting("D")) as dispatcher,
        connect(at["b3"], client_id="A", on_tcm=reacting("A")) as agent,
    ):
        for session in (environment, dispatcher, agent):
            await roles.settle_in(session, session.client_id)
        print("The same as one transaction: E asks D, D asks A and lets go, E publishes; all or nothing.\n")
        for protocol in (D_TX, S_TX_SAFE, S_TX):
            name = f"x-{protocol}"
            began = time.perf_counter()
            await roles.dispatch(environment, protocol, name)
            taken_ms = 1e3 * (time.perf_counter() - began)
            print(
                f"  {protocol:9}  committed in {taken_ms:4.1f} ms  ->  A gets {_text(await agent.next_delivery(5))}"
            )
        print(f"                                      D gets {await _nothing(dispatcher)}\n")


def _prove() -> None:
    print(
        f"Is that always so? {SCHEDULES} random schedules of each protocol, with crashes and aborts, simulated:\n"
    )
    for protocol in PROTOCOLS:
        generators = [GENERATORS[name] for name in ("dispatch", "overlapping", "crash", "disjoint")]
        each = SCHEDULES // len(generators)
        results = [simulate(make(seed, [protocol])) for make in generators for seed in range(each)]
        faults = sum(len(result.faults) for result in results)
        messages = sum(result.messages for result in results)
        print(f"  {protocol:15}  {messages:6} messages, {faults} broken promises")
    print()


async def _nothing(session: Connection) -> str:
    try:
        return _text(await session.next_delivery(QUIET_S))
    except TimedOut:
        return "nothing, as it should"


def _text(delivery: Delivery) -> str:
    event = ", ".join(f"{name} {value}" for name, value in delivery.event.items())
    return f"[{event}] {delivery.payload.decode()!r}" if delivery.payload else f"[{event}]"


def _benchmark() -> None:
    print(
        "How fast is it? The same events through three brokers, and through three relays that decide nothing:\n"
    )
    result = chain.run(chain.ChainSettings(events=150_000, round_trips=1000, rounds=1))
    Output().table(*chain_table(result), figures=True)
    print()


def _experiment() -> None:
    print(
        "And the paper's first experiment: which approach takes how long, on three brokers with emulated links?\n"
        "BL-WAIT, which only waits, is calibrated first; all that follows takes two to four minutes.\n"
    )
    result = Path("results", "base", "latest")
    _labctl("run", "experiment", "base", "--profile", "quick", "--recalibrate")
    _labctl("check", str(result))
    _labctl("report", str(result))
    print("Next: labctl run experiment all, labctl simulate --seeds 0:1000, labctl --help (in .venv/bin)")
    print(f"\nOpen this page: {result.resolve() / 'report' / 'report.html'}")


def _labctl(*arguments: str) -> None:
    """As a user would; a check that fails or a claim that does not hold is for the user to read."""
    print(f"$ labctl {' '.join(arguments)}", flush=True)
    code = subprocess.run([sys.executable, "-c", MAIN, *arguments], check=False).returncode
    print(flush=True)
    if code not in (DONE, CHECK_FAILED):
        raise DemoStopped(f"labctl {arguments[0]} ended with {code}; its message is above")


class DemoStopped(LabError):
    """A command that did not do its work."""


if __name__ == "__main__":
    sys.exit(main())
