"""What the vitals of a process at rest cost, measured in a process that does nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CPU_PERCENT_MAX = 0.06
"""0.026 to 0.028 was measured on a quiet virtual machine; twice that is allowed on a disturbed one. A
broker at rest may use 0.1 in all."""

PROGRAM = """
import asyncio, os, time
import uvloop
from broker.transport.log import JsonLog
from broker.transport.vitals import Vitals

async def main():
    log = JsonLog(os.open(os.devnull, os.O_WRONLY), "b1")
    vitals = Vitals(log.emit)
    vitals.start()
    await asyncio.sleep(2.5)
    before = time.process_time()
    await asyncio.sleep(8)
    print(100 * (time.process_time() - before) / 8)

uvloop.run(main())
"""


def test_vitals_of_a_process_at_rest_cost_next_to_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) <= CPU_PERCENT_MAX
