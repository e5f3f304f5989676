"""How often the vitals of a process at rest wake it: waking is what costs, and `labctl bench` measures that."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

REST_S = 6
PROGRAM = f"""
import asyncio, os, resource
import uvloop
from broker.node.log import JsonLog
from broker.node.vitals import Vitals

async def main():
    log = JsonLog(os.open(os.devnull, os.O_WRONLY), "b1")
    vitals = Vitals(log.emit)
    vitals.start()
    await asyncio.sleep(2.5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    await asyncio.sleep({REST_S})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)

uvloop.run(main())
"""


def test_vitals_of_a_process_at_rest_wake_it_about_once_a_second() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    # A busy process is woken ten times a second; one wake more is the end of the sleep itself.
    assert int(done.stdout) <= 3 * REST_S
