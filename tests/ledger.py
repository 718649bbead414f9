"""The ledger of a long run: what passed is written down test by test, so that `make slow` goes on where it was stopped.

A ledger is of one state of the code. Its first line names the commit and the changes to it; on any other state it begins anew.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

__all__ = ["Ledger", "first_cases_first"]

_LONGEST_REASON = 4_000


class Ledger:
    """A plugin that leaves out what has passed on this state of the code, and writes down how every test ends.

    The process that hands out tests writes; its workers read what had passed when it began, so that all collect the same.
    """

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self.path = path
        self.begun = path.with_suffix(".begun")
        self.writes = not hasattr(config, "workerinput")
        if self.writes:
            state = {"state": _state_of_code(config.rootpath)}
            lines = path.read_text().splitlines() if path.exists() else []
            if not lines or json.loads(lines[0]) != state:
                path.parent.mkdir(parents=True, exist_ok=True)
                lines = [json.dumps(state)]
                path.write_text(lines[0] + "\n")
            self.begun.write_text("\n".join(lines))
        rows = [json.loads(line) for line in self.begun.read_text().splitlines()[1:]]
        last = {row["test"]: row["outcome"] for row in rows}
        self.passed = {test for test, outcome in last.items() if outcome != "failed"}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        first_cases_first(items)  # those that have passed count among the first, so that a run goes on with other tests
        done = [item for item in items if item.nodeid in self.passed]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in self.passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line when a test has been called, or when it could not be, or failed to clear up."""
        if self.writes and (report.when == "call" or report.outcome != "passed"):
            row = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 1)}
            if report.failed:  # a run that is stopped prints none of this
                row["why"] = report.longreprtext[-_LONGEST_REASON:]
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def first_cases_first(items: list[pytest.Item]) -> None:
    """Put three cases of every test before all further ones: each kind of fault shows early."""
    met: Counter[str] = Counter()
    late = {}
    for item in items:
        kind = item.nodeid.partition("[")[0]
        late[item] = met[kind] >= 3
        met[kind] += 1
    items.sort(key=late.__getitem__)


def _state_of_code(root: Path) -> str:
    """Return the commit, with a digest of what is changed since, or "unknown" outside of a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout

    try:
        commit, changes = git("rev-parse", "HEAD").strip(), git("diff", "HEAD", "--", "src", "tests")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" + hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else "")
