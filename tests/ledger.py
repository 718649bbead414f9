"""The ledger of a long run: what passed is written down test by test, so that `make slow` goes on where it was stopped.

A ledger is of one state of `src` and `tests`. Its first line names that; on any other state it begins anew. With
`python tests/ledger.py` it is folded into `.ci/slow.json`, which can be committed: the run then goes on in any other clone. That
record keeps for every case the latest state on which it has passed. On a new state all are run again, and those first that have
never passed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

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
        # Digests of what passed elsewhere, on this state and on earlier ones.
        self.known, self.earlier = _known(config.rootpath, json.loads(lines[0])["state"])

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        first_cases_first(items)  # those that have passed count among the first, so that a run goes on with other tests
        done = {item for item in items if item.nodeid in self.passed or _digest(item.nodeid) in self.known}
        config.hook.pytest_deselected(items=[item for item in items if item in done])
        items[:] = [item for item in items if item not in done]
        items.sort(key=lambda item: _digest(item.nodeid) in self.earlier)

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


def fold(root: Path, ledger: Path) -> tuple[int, int, float]:
    """Add what passed by a ledger to the record that can be committed.

    Returns how many cases have passed on the ledger's state, how many others on earlier ones, and the seconds of the former.
    """
    lines = ledger.read_text().splitlines()
    state = json.loads(lines[0])["state"]
    rows = [json.loads(line) for line in lines[1:]]
    record = _record(root)
    mine = record.pop(state, {"seconds": 0.0, "passed": {}})
    known = _digests(mine)
    passed = {test for test in _passed(lines) if _digest(test) not in known}
    for test in sorted(passed):
        file = test.partition("::")[0]
        mine["passed"][file] = f"{mine['passed'].get(file, '')} {_digest(test)}".strip()
    mine["seconds"] = round(mine["seconds"] + sum(row["seconds"] for row in rows if row["test"] in passed), 1)
    now, earlier = _digests(mine), 0
    for before in record.values():
        before["passed"] = _without(before["passed"], now)
        earlier += len(_digests(before))
    record = {name: before for name, before in record.items() if before["passed"]} | {state: mine}
    (root / _RECORD).write_text(json.dumps(record, indent=1) + "\n")
    return len(now), earlier, mine["seconds"]


def _without(passed: dict[str, str], digests: set[str]) -> dict[str, str]:
    left = {file: " ".join(x for x in known.split() if x not in digests) for file, known in passed.items()}
    return {file: known for file, known in left.items() if known}


def _passed(lines: list[str]) -> set[str]:
    """Return the tests that have passed by the lines of a ledger, or were skipped."""
    last = {row["test"]: row["outcome"] for row in map(json.loads, lines[1:])}
    return {test for test, outcome in last.items() if outcome != "failed"}


def _record(root: Path) -> dict[str, Any]:
    """Return the committed record: by state, the seconds and the digests of what has passed there last, by file."""
    path = root / _RECORD
    return json.loads(path.read_text()) if path.exists() else {}


def _known(root: Path, state: str) -> tuple[set[str], set[str]]:
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for name, row in _record(root).items():
        found[name == state] |= _digests(row)
    return found[True], found[False]


def _digests(row: dict[str, Any]) -> set[str]:
    return set(" ".join(row["passed"].values()).split())


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
    cases, earlier, seconds = fold(Path(), Path("out") / "slow.jsonl")
    print(f"{_RECORD}: {cases} cases passed on this state, in {seconds:,.0f} s, {earlier} others on earlier ones")
