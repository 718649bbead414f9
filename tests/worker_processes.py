"""Finding the processes that a sweep has started, so that tests can end them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["children_of", "has_ended", "wait_for"]

PATIENCE = 120  # seconds, on a machine that is busy


def children_of(parent: int, word: str = "pebbler.jobs.child") -> list[int]:
    """Return the processes below another, directly or not, whose command line holds a word."""
    parents, named = {}, set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if status[0] == "Z":
            continue
        parents[int(place.name)] = int(status[1])
        if word in command:
            named.add(int(place.name))

    def below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == parent:
                return True
        return False

    return sorted(pid for pid in named if pid != os.getpid() and below(pid))


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or waits for its parent to hear of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_for(what: Callable[[], object], patience: float = PATIENCE) -> object:
    """Return what a function gives as soon as it is true."""
    ends = time.monotonic() + patience
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < ends, "it did not come"
        time.sleep(0.02)
