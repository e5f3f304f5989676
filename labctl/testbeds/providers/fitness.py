"""Is a host fit for a lab? Judged by what was seen of it; pure.

What must be well stands in a line for each host. What is only advisable stands in one line for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from labctl.checkup import Check
from playbooks.prepare import Found

CLOCK_S_MAX = 1.0


class Look(Struct, frozen=True):
    """One look at a host."""

    name: str
    found: Found | None = None
    asked_s: float = 0.0
    answered_s: float = 0.0
    """By our clock; the host read its own in between."""
    problem: str = ""

    @property
    def clock_off_s(self) -> float:
        """By how much its clock is wrong at least, if ours is right."""
        assert self.found is not None
        there = self.found.clock_s
        return min(0.0, there - self.asked_s) + max(0.0, there - self.answered_s)


def judge(looks: Sequence[Look]) -> list[Check]:
    seen = [look for look in looks if look.found is not None]
    checks = [_host(look) for look in looks]
    return [*checks, _clocks(seen), _kernels(seen)] if seen else checks


def _host(look: Look) -> Check:
    found = look.found
    if found is None:
        return Check(look.name, False, look.problem, "log in by hand and see; labctl ssh is as strict")
    version = ".".join(map(str, found.python))
    return Check(look.name, True, f"Python {version}, {found.free_bytes / 1e9:.1f} GB free")


def _clocks(looks: Sequence[Look]) -> Check:
    wrong = [
        f"{look.name} by {look.clock_off_s:+.0f} s" for look in looks if abs(look.clock_off_s) > CLOCK_S_MAX
    ]
    if not wrong:
        return Check("clocks", True, f"none is off by more than {CLOCK_S_MAX:g} s", required=False)
    advice = "let NTP set them: no result depends on it, but logs are dated by them"
    return Check("clocks", False, f"off: {', '.join(wrong)}", advice, required=False)


def _kernels(looks: Sequence[Look]) -> Check:
    found = [(look.name, look.found) for look in looks if look.found is not None]
    lacking = [f"{name} lacks {' and '.join(each.lacks)}" for name, each in found if each.lacks]
    if lacking:
        advice = "use Linux 5.4 or later: delays between brokers and the end of processes depend on it"
        return Check("kernels", False, "; ".join(lacking), advice)
    return Check("kernels", True, ", ".join(sorted({each.kernel for _, each in found})))
