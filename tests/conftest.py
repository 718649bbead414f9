"""Settings that every test shares."""

from __future__ import annotations

import fcntl
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from durations import Recorder, longest_files
from ledger import Ledger
from pebbler.cli import main
from pebbler.game.plan import Plan
from pebbler.solver import solve
from pebbler.solver.warm_up import PARTS, warm_up

# A program that tests start in processes of their own: importing it loads all of Inductor.
collect_ignore = ["distributed_training.py"]

_FEW_EXAMPLES = 10

# The same cases on every run: a failure that comes and goes helps nobody.
settings.register_profile(
    "pebbler",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pebbler")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="record what tests take in tests/durations.json")
    parser.addoption("--ledger", help="write down here what passed, and leave that out the next time")
    parser.addoption("--all-examples", action="store_true", help="try as many examples as property tests ask for")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--ledger")) is not None:
        config.pluginmanager.register(Ledger(config.rootpath / path, config))
    if config.getoption("--record-durations"):
        config.pluginmanager.register(Recorder("slow" if config.option.markexpr.startswith("slow") else "quick"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile kernels before any test runs: on all cores, once, and with no test that hears of it."""
    if not hasattr(session.config, "workerinput"):
        warm_up(PARTS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that took longest when that was last recorded first: with `--no-loadscope-reorder` they begin in this order.

    Tests of one file stay in one process, and a long one at the end would leave the other process without work.
    """
    if not config.getoption("--all-examples"):
        _try_fewer_examples(items)
    if config.getoption("--ledger") is not None:
        return  # which puts a few cases of every test first
    places = {config.rootpath / name: place for place, name in enumerate(longest_files())}
    items.sort(key=lambda item: places.get(item.path, -1))  # those that have not been recorded may be the longest


def pytest_collection_finish() -> None:
    """Freeze what was imported, a million objects: collections of garbage pass it by, and captures look through it once."""
    _freeze()


_file: list[Path] = []  # of the last test


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Freeze what the last file has left, most of it modules of torch: collections were a sixth of the time of its tests."""
    if _file and _file[0] != item.path:
        _freeze()
    _file[:] = [item.path]


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _try_fewer_examples(items: list[pytest.Item]) -> None:
    """Let property tests of the quick suite try a part of their examples, the same ones every time; `make slow` tries all."""
    tests = {item.obj for item in items if hasattr(item, "obj") and item.get_closest_marker("slow") is None}
    for test in tests:
        asked = getattr(test, "_hypothesis_internal_use_settings", None)
        if asked is not None:
            fewer = max(min(asked.max_examples, _FEW_EXAMPLES), asked.max_examples // 4)
            test._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)


@pytest.fixture(scope="session")
def flagship(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Plan:
    """The notes' step as the solver tiles it, with its activations computed a second time; solved once for all processes."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if hasattr(request.config, "workerinput") else folder
    with (folder / "flagship.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "flagship.json").exists():
            solve("mlp:n=20,hidden=1000", "notes", quick=True, time_limit=None).save(folder / "flagship.json")
    return Plan.load(folder / "flagship.json")


@pytest.fixture
def columns() -> int:
    """How wide the terminal of `cli` is; files whose tests need another width say so."""
    return 80


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, columns: int
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `pebbler` with these arguments in an empty folder: status, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pebbler", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run
