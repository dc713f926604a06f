"""How many CPUs this process may really use: those it may run on, and no more than a container's quota."""

from __future__ import annotations

import os
from functools import lru_cache
from math import ceil
from pathlib import Path


@lru_cache(maxsize=1)
def usable() -> int:
    """Give the CPUs that threads of this process can keep busy at once, at least 1."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        allowed = os.cpu_count() or 1
    return max(min(allowed, quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")) or allowed), 1)


def stagers(cpus: int) -> int:
    """Give how many threads of a pool copy at once on so many CPUs.

    Three of four: memory gives no more to all of them, and the caller, the waiter and the driver have to run, too.
    """
    return max(3 * cpus // 4, 1)


def quota(membership: Path, root: Path) -> int | None:
    """Give the CPUs of the tightest CPU quota among the process's control groups; None without one.

    *membership* is the file that names the groups, *root* where they are mounted. Reads version 2 (``cpu.max``) and
    version 1 (``cpu.cfs_quota_us``); inside a container the own group is often mounted at the root itself.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found: list[float] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "cpu" if controllers else root
        group = mount / path.lstrip("/")
        for place in (group, *group.parents):
            share = _share(place)
            if share is not None:
                found.append(share)
            if place == mount or mount not in place.parents:
                break
    return max(ceil(min(found)), 1) if found else None


def _share(group: Path) -> float | None:
    try:
        most, period = (group / "cpu.max").read_text(encoding="utf-8").split()[:2]
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        most, period = (
            int((group / name).read_text(encoding="utf-8")) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        return None if most <= 0 else most / period
    except (OSError, ValueError, ZeroDivisionError):
        return None
