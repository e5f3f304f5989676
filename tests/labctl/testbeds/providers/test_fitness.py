"""What `labctl doctor --testbed` says of machines that exist already."""

from __future__ import annotations

from dataclasses import replace

from labctl.testbeds.providers.fitness import Look, judge
from playbooks.prepare import Found

FOUND = Found("/there/.labctl", (3, 11, 2), "x86_64", "glibc", 5_000_000_000, kernel="6.1.0", clock_s=100.5)
FIT = Look("broker-1", FOUND, asked_s=100.0, answered_s=101.0)


def checks(*looks: Look) -> dict[str, tuple[bool, bool, str]]:
    return {check.name: (check.ok, check.required, check.detail) for check in judge(looks)}


def test_a_host_that_is_well_is_described_and_its_kernel_named() -> None:
    said = checks(FIT)
    assert said["broker-1"] == (True, True, "Python 3.11.2, 5.0 GB free")
    assert said["clocks"][0]
    assert said["kernels"] == (True, True, "6.1.0")


def test_a_clock_is_wrong_only_by_what_the_way_to_the_host_does_not_explain() -> None:
    slow = Look("slow", FOUND, asked_s=80.0, answered_s=110.0)
    late = Look("late", FOUND, asked_s=160.5, answered_s=161.0)
    early = Look("early", FOUND, asked_s=70.0, answered_s=70.5)
    ok, required, detail = checks(slow, late, early)["clocks"]
    assert not ok
    assert not required
    assert detail == "off: late by -60 s, early by +30 s"


def test_a_kernel_without_what_brokers_need_is_not_fit() -> None:
    ok, required, detail = checks(FIT, Look("old", replace(FOUND, lacks=("timerfd", "pidfd"))))["kernels"]
    assert not ok
    assert required
    assert detail == "old lacks timerfd and pidfd"


def test_a_host_that_could_not_be_looked_at_says_why() -> None:
    said = checks(Look("gone", problem="gone (192.0.2.1:22) cannot be reached: No route to host"))
    assert said == {"gone": (False, True, "gone (192.0.2.1:22) cannot be reached: No route to host")}
