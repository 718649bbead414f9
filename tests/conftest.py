"""Settings that every test shares."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pebbler.cli import main
from pebbler.game.plan import Plan
from pebbler.solver import solve
from pebbler.solver.warm_up import PARTS, warm_up

# A program that tests start in processes of their own: importing it loads all of Inductor.
collect_ignore = ["distributed_training.py"]

# Files that take fifteen seconds or more, longest first. Tests of one file stay in one process, so these are begun first: one at
# the end would leave the other process without work.
LONG_FILES = (
    "run/torch/test_semantics.py",
    "run/torch/run/test_planned_step.py",
    "show/test_report_views.py",
    "run/torch/capture/test_surroundings.py",
    "solver/tiling/test_attacks.py",
    "show/test_report_page.py",
    "cli/test_commands.py",
    "solver/tiling/test_renaming.py",
    "test_docs.py",
    "solver/test_warm_up.py",
    "run/torch/fuse/test_fusion.py",
    "test_compiled.py",
    "run/torch/run/test_compiled_step.py",
    "notes/test_demo.py",
    "cli/test_interruption.py",
    "show/play/test_play_page.py",
    "run/torch/run/test_training.py",
    "referee/test_known_prices.py",
    "test_kernel_names.py",
    "test_examples.py",
    "run/torch/run/test_host_copies.py",
    "notes/test_reproduction.py",
)

# The same cases on every run: a failure that comes and goes helps nobody.
settings.register_profile(
    "pebbler",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pebbler")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile kernels before any test runs: on all cores, once, and with no test that hears of it."""
    if not hasattr(session.config, "workerinput"):
        warm_up(PARTS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; with `--no-loadscope-reorder` they are handed to processes in this order."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


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
