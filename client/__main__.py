"""`python -m client --scenario dispatching --role E --approach s-tx --broker host:port`: one scenario client.

The coordinator (E of dispatching, C of consolidation) waits until all others are ready, prints one JSON
object for each transaction and one that sums them up, and tells the others to stop. SIGTERM and Ctrl-C end
any of them cleanly. Exit codes: 0 done, or stopped as asked; 1 the scenario could not be played to its
end; 2 usage; 4 no connection; 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from typing import Any, get_args

import msgspec
import uvloop

from broker.node.garbage import collect_rarely
from broker.protocol.delay import Delay
from broker.protocol.events import Detail
from client.connection import connect
from client.core.errors import ClientError, ConnectionFailed, RefusedByBroker
from client.scenarios import catalogue
from client.scenarios.cases import by_name
from client.scenarios.cues import Cues
from client.scenarios.roles import Coordinator, Role
from client.scenarios.stage import Cast, Options, ScenarioError, Stage

DONE, FAILED, USAGE, NO_CONNECTION, INTERRUPTED = 0, 1, 2, 4, 130


def parser() -> argparse.ArgumentParser:
    defaults = Options()
    found = argparse.ArgumentParser(prog="python -m client", description="One client of a scenario.")
    add = found.add_argument
    add("--scenario", required=True, help="dispatching, consolidation, disruption, or a module of your own")
    add("--role", required=True, help="E, D, A1, A2, ... of dispatching; C, E, A1, A2, ... of consolidation")
    add("--approach", default=defaults.approach, help="a protocol, bl-wait, or a module of your own")
    add("--broker", required=True, metavar="HOST:PORT")
    add("--agents", type=_count, default=2, metavar="N", help="how many agents the scenario has")
    add("--suffix", default="", help="tells copies of a scenario in one overlay apart; part of every name")
    add("--transactions", type=_count, default=defaults.transactions, metavar="N")
    add("--concurrency", type=_count, default=1, metavar="N", help="transactions in flight at a time")
    add("--wait-ms", type=_amount, default=defaults.wait_ms, metavar="MS", help="of bl-wait")
    add("--prefix", default=defaults.prefix, help="of the names of instances; no two runs may share one")
    add("--patience-s", type=_amount, default=defaults.patience_s, metavar="S")
    add("--ready-s", type=_amount, default=defaults.ready_s, metavar="S", help="how long others are awaited")
    add("--timeout-s", type=_amount, default=10.0, metavar="S", help="of every request and commit")
    add("--connect-s", type=_amount, default=2.0, metavar="S", help="how long the broker is sought at first")
    add("--history", metavar="FILE", help="gets one JSON object for whatever happens")
    add("--history-detail", default="all", choices=get_args(Detail))
    add("--log", metavar="FILE", help="gets connections and vitals")
    add("--delay-ms", type=_amount, default=0.0, metavar="MS", help="emulated on the way to the broker")
    add("--sigma", type=_amount, default=0.0, help="of that delay, log-normal")
    add("--seed", type=int, default=0, help="of that delay")
    add("--stall-probability", type=_amount, default=0.0, help="that a message to the broker meets a stall")
    add("--stall-ms", type=_pair, default=(60.0, 120.0), metavar="MS,MS", help="shortest and longest stall")
    add("--warm-up", type=int, default=0, metavar="N", help="so many of the transactions come first")
    add("--work", default=defaults.work, choices=("dispatching", "consolidation"), help="of disruption")
    add("--load", default=defaults.load, choices=("closed", "open"), help="of disruption")
    add("--rounds", type=_count, default=defaults.rounds, metavar="N", help="of disruption")
    add("--events", type=_count, default=defaults.events, metavar="N", help="in a round of disruption")
    add("--instances", type=_count, default=defaults.instances, metavar="N", help="handed over after a round")
    add("--open-share", type=_amount, default=defaults.open_share, help="of the capacity, in the open loop")
    add(
        "--window-ms",
        type=_amount,
        default=defaults.window_ms,
        metavar="MS",
        help="in which events are counted",
    )
    add("--rates", default="", metavar="FILE", help="gets what was counted")
    add("--returns", action="store_true", help="of a member that was killed after the beginning")
    add("--controlled", action="store_true", help="go on at a line `go` on stdin; see client.scenarios.cues")
    return found


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        scenario = by_name.scenario(options.scenario)
        catalogue.approach(options.approach)
    except ScenarioError as error:
        return _fail(USAGE, str(error))
    also = (options.work,) if options.scenario == "disruption" else ()
    cast: Cast = scenario.cast(options.agents, options.suffix, *also)
    name = options.role + options.suffix
    if name not in (cast.coordinator, *cast.members):
        known = ", ".join(member.removesuffix(options.suffix) for member in (cast.coordinator, *cast.members))
        return _fail(USAGE, f"{options.scenario} has no role {options.role}; it has {known}")
    role: Role = scenario.role(name, cast, _options(options))
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_play(role, options))


def _options(given: argparse.Namespace) -> Options:
    return Options(**{name: getattr(given, name) for name in Options.__struct_fields__})


async def _play(role: Role, given: argparse.Namespace) -> int:
    task = asyncio.create_task(_connected(role, given))
    got: list[int] = []

    def stop(number: int) -> None:
        got.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
        code = DONE
    except asyncio.CancelledError:
        code = INTERRUPTED if signal.SIGINT in got else DONE
    except (ConnectionFailed, RefusedByBroker) as error:
        code = _fail(NO_CONNECTION, str(error))
    except (ClientError, ScenarioError) as error:
        code = _fail(FAILED, str(error))
    except OSError as error:
        code = _fail(NO_CONNECTION, f"{error.filename}: {error.strerror}")
    role.close()
    _tell_results(role)
    return code


async def _connected(role: Role, given: argparse.Namespace) -> None:
    async with connect(
        given.broker,
        client_id=role.name,
        on_delivery=role.deliver,
        on_tcm=role.on_tcm,
        timeout_s=given.timeout_s,
        connect_s=given.connect_s,
        history=given.history,
        history_detail=given.history_detail,
        log_file=given.log,
        delay=Delay(given.delay_ms, given.sigma, given.stall_probability, given.stall_ms, given.seed),
    ) as session:
        if given.controlled and isinstance(role, Coordinator):
            Cues(role, sys.stdin.fileno(), _print)
        await role.run(Stage(session, session, time.monotonic, session.call_later))


def _tell_results(role: Role) -> None:
    """Also of a run that was stopped: then what is not certain says so."""
    if isinstance(role, Coordinator):
        report = role.report
        report.ended = report.ended or time.monotonic()
        for line in report.lines():
            _print(line)
        _print({"summary": report.summary()})


def _print(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return code


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _pair(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    return _amount(low), _amount(high)


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not an amount")
    return value


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # whoever read our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
