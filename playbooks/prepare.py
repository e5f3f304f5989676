"""Look at a host: is Python new enough, how much disk is there, and what of an earlier deployment?"""

from __future__ import annotations

import json
from dataclasses import dataclass

from playbooks.steps import CommandResult, Playbook, PlaybookError, Run, Target, shell

PYTHON_MIN = (3, 11)

# Runs under whatever python3 a host has, so it uses nothing that an old one lacks.
LOOK = """
import ctypes, json, os, platform, sys, time
def has_timerfd():
    try:
        number = ctypes.CDLL(None).timerfd_create(1, os.O_NONBLOCK)
    except (OSError, AttributeError):
        return False
    if number >= 0:
        os.close(number)
    return number >= 0
root = os.path.expanduser("~/" + sys.argv[1])
bundles = os.path.join(root, "bundles")
if sys.version_info >= (3, 11):
    os.makedirs(bundles, 0o700, exist_ok=True)
disk = os.statvfs(bundles if os.path.isdir(bundles) else os.path.expanduser("~"))
names = sorted(os.listdir(bundles)) if os.path.isdir(bundles) else []
print(json.dumps({
    "root": root,
    "python": list(sys.version_info[:3]),
    "machine": platform.machine(),
    "libc": platform.libc_ver()[0] or "musl",
    "kernel": platform.release(),
    "timerfd": has_timerfd(),
    "pidfd": hasattr(os, "pidfd_open") and os.path.exists("/proc/self/stat"),
    "clock_s": time.time(),
    "free_bytes": disk.f_bavail * disk.f_frsize,
    "starting": os.path.isdir("/run/cloud-init") and not os.path.exists("/run/cloud-init/result.json"),
    "present": [name for name in names if "." not in name],
    "parts": dict((name[:-5], os.path.getsize(os.path.join(bundles, name)))
                  for name in names if name.endswith(".part")),
}))
"""

UNUSED = {
    "python": [*PYTHON_MIN, 0],
    "machine": "x86_64",
    "libc": "glibc",
    "kernel": "",
    "timerfd": True,
    "pidfd": True,
    "clock_s": 0.0,
    "free_bytes": 1 << 40,
    "starting": False,
    "present": [],
    "parts": {},
}
"""What it says of a host that was never used."""


@dataclass(frozen=True)
class Found:
    """What a host has."""

    root: str
    """Where everything of ours is, as an absolute path."""
    python: tuple[int, int, int]
    machine: str
    libc: str
    free_bytes: int
    kernel: str = ""
    lacks: tuple[str, ...] = ()
    """Of what brokers and the agent ask of a kernel: `timerfd` for precise delays, `pidfd` for whom they stop."""
    clock_s: float = 0.0
    """What time it is there."""
    present: frozenset[str] = frozenset()
    """Bundles that are there, whole."""
    parts: tuple[tuple[str, int], ...] = ()
    """Bytes of those whose transfer was cut off."""
    is_starting: bool = False
    """It lets us in, and cloud-init has not come to its end yet."""

    @property
    def kind(self) -> tuple[tuple[int, int], str, str]:
        """What compiled packages depend on."""
        return (self.python[0], self.python[1]), self.machine, self.libc


def prepare(target: Target) -> Playbook[Found]:
    result = yield Run(
        shell([target.python, "-c", LOOK, target.folder]),
        why="Python, disk, and what is there already",
        shows=shell([target.python, "-c", "...", target.folder]),
        answers=json.dumps({"root": f"~/{target.folder}", **UNUSED}),
        may_fail=True,
    )
    if result.code == 127 or "not found" in result.err:
        raise PlaybookError(f"{target.name} has no {target.python}; install Python 3.11 or later there")
    if result.code:
        raise PlaybookError(f"{target.name} cannot be prepared: {result.last_words}")
    return read(target, result)


def wait_for_start() -> Playbook[None]:
    """What cloud-init still does would be measured with us. How it ends is its own business."""
    yield Run(
        shell(["cloud-init", "status", "--wait"]),
        why="the end of its start, as cloud-init sees it",
        may_fail=True,
        takes="boot",
    )


def read(target: Target, result: CommandResult) -> Found:
    try:
        # A login script may have printed something before.
        seen = json.loads(result.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise PlaybookError(f"{target.name} answered what nobody asked: {result.last_words}") from None
    version = seen["python"]
    if tuple(version[:2]) < PYTHON_MIN:
        has, wanted = ".".join(map(str, version)), ".".join(map(str, PYTHON_MIN))
        raise PlaybookError(f"{target.name} has Python {has}; it needs {wanted} or later")
    return Found(
        root=seen["root"],
        python=(version[0], version[1], version[2]),
        machine=seen["machine"],
        libc=seen["libc"],
        free_bytes=seen["free_bytes"],
        kernel=seen["kernel"],
        lacks=tuple(name for name in ("timerfd", "pidfd") if not seen[name]),
        clock_s=seen["clock_s"],
        present=frozenset(seen["present"]),
        parts=tuple(seen["parts"].items()),
        is_starting=seen["starting"],
    )
