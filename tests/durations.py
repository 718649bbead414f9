"""What tests take in seconds of CPU: `pytest --record-durations` writes `durations.json`, `python tests/durations.py` shows it.

CPU time is of the process and of those child processes that have ended: it depends little on what else the machine does.
"""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

__all__ = ["RECORD", "Recorder", "longest_files"]

RECORD = Path(__file__).with_name("durations.json")
_TESTS = 60  # of each kind that are recorded one by one


def longest_files() -> dict[str, float]:
    """Return what the files of the quick suite take, longest first, by path from the root of the repository."""
    return dict(json.loads(RECORD.read_text())["quick"]["files"])


def _used() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


class Recorder:
    """A plugin that adds up what tests take, wherever they run, and records it at the end; what did not run stays as it was."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # quick or slow
        self.tests: Counter[str] = Counter()
        self._before = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        self._before = _used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note in the report, which goes from a worker to the process that writes, what was used since the last one."""
        report = yield
        now = _used()
        report.cpu, self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += getattr(report, "cpu", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        before = record.get(self.kind, {"files": {}, "tests": {}})
        ran = {file_of(test) for test in self.tests}
        files, tests = (
            Counter(
                {
                    name: cpu
                    for name, cpu in before[what].items()
                    if file_of(name) not in ran and Path(file_of(name)).exists()
                }
            )
            for what in ("files", "tests")
        )
        tests.update(self.tests)
        for test, cpu in self.tests.items():
            files[file_of(test)] += cpu
        record[self.kind] = {
            "files": {name: round(cpu, 1) for name, cpu in files.most_common()},
            "tests": {name: round(cpu, 1) for name, cpu in tests.most_common(_TESTS)},
        }
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


def file_of(test: str) -> str:
    return test.partition("::")[0]


def show() -> None:
    """Print the sums of both kinds, their longest files and their longest tests."""
    for kind, record in json.loads(RECORD.read_text()).items():
        print(f"{kind}: {sum(record['files'].values()):,.0f} seconds of CPU in {len(record['files'])} files")
        for what, number in (("files", 25), ("tests", 25)):
            for name, cpu in list(record[what].items())[:number]:
                print(f"{cpu:9.1f}  {name}")


if __name__ == "__main__":
    show()
