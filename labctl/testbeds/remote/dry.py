"""What a run on a lab would do on each host, in commands; nothing is done, and no host is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labctl.experiment import selection
from labctl.output import Output
from labctl.run import runner
from labctl.testbeds.labs.store import Store
from labctl.testbeds.remote import places
from labctl.testbeds.remote.recorder import Recorder
from labctl.testbeds.ssh.connections import Connections

if TYPE_CHECKING:
    from labctl.conduct.conductor import RunOrder


def show(out: Output, name: str, what: RunOrder, pack: bool) -> None:
    """Deployment once, then every cell's first repetition."""
    for host, lines in commands(Store(name), what, pack, out).items():
        out.say(f"\n{host}:")
        for line in lines:
            out.say(f"  {line}")


def commands(store: Store, what: RunOrder, pack: bool, out: Output) -> dict[str, list[str]]:
    """By host: what the run asks of hosts that only write it down."""
    recorder = Recorder(Connections(store, store.lab()))

    def say(host: str, text: str) -> None:
        if recorder.lab.host(host).state != "ready":  # of the others its lines tell
            out.note(f"{host}: {text}")

    with places.on(recorder, selection.modules(what.cells), say, pack, token=lambda: "ID") as there:
        for cell in what.cells:
            unit = next(unit for unit in what.units() if unit.cell == cell)
            recorder.about = cell.id
            job = what.job(unit)  # without the wait of BL-WAIT, which a calibration tells
            with runner.crew_of(job, Path(cell.id), there) as crew:
                runner.bring_up(crew, job)
    return recorder.lines
