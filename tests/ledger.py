"""The ledger of a long run: what passed is written down test by test, so that `make slow` goes on where it was stopped.

A ledger is of one state of `src` and `tests`. Its first line names that; on any other state it begins anew. With
`python tests/ledger.py` it is folded into `.ci/slow.json`, which can be committed: the run then goes on in any other clone.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

__all__ = ["Ledger", "first_cases_first", "fold"]

_LONGEST_REASON = 4_000
_RECORD = Path(".ci") / "slow.json"


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
        lines = self.begun.read_text().splitlines()
        self.passed = _passed(lines)
        self.known = _known(config.rootpath, json.loads(lines[0])["state"])  # digests of what passed elsewhere

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        first_cases_first(items)  # those that have passed count among the first, so that a run goes on with other tests
        done = {item for item in items if item.nodeid in self.passed or _digest(item.nodeid) in self.known}
        config.hook.pytest_deselected(items=[item for item in items if item in done])
        items[:] = [item for item in items if item not in done]

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


def fold(root: Path, ledger: Path) -> tuple[int, float]:
    """Add what passed by a ledger to the record that can be committed; return how many cases that are, and their seconds."""
    lines = ledger.read_text().splitlines()
    state = json.loads(lines[0])["state"]
    rows = [json.loads(line) for line in lines[1:]]
    path = root / _RECORD
    record = json.loads(path.read_text()) if path.exists() else {}
    if record.get("state") != state:
        record = {"state": state, "seconds": 0.0, "passed": {}}
    known = {digest for digests in record["passed"].values() for digest in digests.split()}
    passed = {test for test in _passed(lines) if _digest(test) not in known}
    for test in sorted(passed):
        file = test.partition("::")[0]
        record["passed"][file] = f"{record['passed'].get(file, '')} {_digest(test)}".strip()
    record["seconds"] = round(record["seconds"] + sum(row["seconds"] for row in rows if row["test"] in passed), 1)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return len(known) + len(passed), record["seconds"]


def _passed(lines: list[str]) -> set[str]:
    """Return the tests that have passed by the lines of a ledger, or were skipped."""
    last = {row["test"]: row["outcome"] for row in map(json.loads, lines[1:])}
    return {test for test, outcome in last.items() if outcome != "failed"}


def _known(root: Path, state: str) -> set[str]:
    path = root / _RECORD
    record = json.loads(path.read_text()) if path.exists() else {}
    return set(" ".join(record["passed"].values()).split()) if record.get("state") == state else set()


def _digest(test: str) -> str:
    return hashlib.sha256(test.encode()).hexdigest()[:10]


def _state_of_code(root: Path) -> str:
    """Return the trees of `src` and `tests`, with a digest of what is changed since, or "unknown" outside of a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout

    try:
        trees, changes = git("rev-parse", "HEAD:src", "HEAD:tests").split(), git("diff", "HEAD", "--", "src", "tests")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return "-".join(tree[:12] for tree in trees) + ("+" + _digest(changes) if changes else "")


if __name__ == "__main__":
    cases, seconds = fold(Path(), Path("out") / "slow.jsonl")
    print(f"{cases} cases have passed, in {seconds:,.0f} s of tests: {_RECORD}")
