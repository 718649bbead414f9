"""Turns of processes that are timed: the others stand still, whatever happens to the one whose turn it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.quiet_turns import QuietTurns, Turn

ROOT = Path(__file__).parents[1]
START = "import os, sys, time\nfrom pathlib import Path\nfrom benchmarks.quiet_turns import Turn\nfolder = Path(sys.argv[1])\n"

# Works on with a child of its own, as compilers do: both write down when they were awake.
WORKER = """
import subprocess
child = "import sys, time\\nwhile True:\\n  print(time.time(), file=open(sys.argv[1], 'a'))\\n  time.sleep(0.005)"
other = subprocess.Popen([sys.executable, "-c", child, str(folder / "child.log")])
turn = Turn(folder, "worker")
while not (folder / "stop").exists():
    print(time.time(), file=open(folder / "worker.log", "a"))
    time.sleep(0.005)
(folder / "stood").write_text(str(turn.paused()))
other.kill()
"""

TIMED = """
turn = Turn(folder, "timed")
while not (folder / "worker.log").exists() or not (folder / "child.log").exists():
    time.sleep(0.01)
with turn.alone():
    began = time.time()
    time.sleep(0.4)
    (folder / "span").write_text(f"{began} {time.time()}")
time.sleep(0.2)
(folder / "stop").touch()
"""

WAITS = """
while not (folder / "worker.log").exists():
    time.sleep(0.01)
turn = Turn(folder, "timed")
"""

DIES = (
    WAITS
    + """
with turn.alone():
    os._exit(7)
"""
)

LINGERS = (
    WAITS
    + """
with turn.alone():
    while not turn.taken_away():
        time.sleep(0.01)
(folder / "stop").touch()
"""
)


def start(turns: QuietTurns, name: str, code: str) -> None:
    turns.add(name, [sys.executable, "-c", START + code, str(turns.folder)], {"PYTHONPATH": str(ROOT)})


def times(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().split()]


def test_others_and_their_children_stand_still_during_a_turn(tmp_path):
    with QuietTurns(tmp_path, at_once=2) as turns:
        start(turns, "worker", WORKER)
        start(turns, "timed", TIMED)
        turns.serve(time.time() + 60)
    assert [process.returncode for process in turns.processes.values()] == [0, 0]
    began, ended = (float(word) for word in (tmp_path / "span").read_text().split())
    for log in ("worker.log", "child.log"):
        awake = times(tmp_path / log)
        assert not any(began < moment < ended for moment in awake)
        assert any(moment < began for moment in awake)
        assert any(moment > ended for moment in awake)
    assert 0.4 <= float((tmp_path / "stood").read_text()) < 30


def test_a_process_that_dies_in_its_turn_holds_nobody_up(tmp_path):
    with QuietTurns(tmp_path, at_once=2) as turns:
        start(turns, "worker", WORKER)
        start(turns, "timed", DIES)
        turns.serve(time.time() + 60, lambda: _stop_when_dead(turns))
    assert turns.processes["timed"].returncode == 7
    assert turns.processes["worker"].returncode == 0


def _stop_when_dead(turns: QuietTurns) -> None:
    if "timed" in turns.processes and turns.processes["timed"].poll() is not None:
        (turns.folder / "stop").touch()


def test_a_turn_that_takes_too_long_ends(tmp_path):
    with QuietTurns(tmp_path, at_once=2, longest_turn=0.3) as turns:
        start(turns, "worker", WORKER)
        start(turns, "timed", LINGERS)
        turns.serve(time.time() + 60)
    assert [process.returncode for process in turns.processes.values()] == [0, 0]


def test_no_more_than_so_many_run_and_the_rest_ends_in_time(tmp_path):
    running = []
    with QuietTurns(tmp_path, at_once=1) as turns:
        start(turns, "first", "time.sleep(0.2)")
        start(turns, "second", "time.sleep(60)")
        turns.serve(time.time() + 5, lambda: running.append(sum(p.poll() is None for p in turns.processes.values())))
    assert max(running) == 1
    assert turns.processes["first"].returncode == 0
    assert turns.processes["second"].returncode == -signal.SIGKILL


def test_ending_the_parent_ends_those_that_stand_still(tmp_path):
    parent = (
        "import sys, time\nfrom pathlib import Path\nfrom benchmarks.quiet_turns import QuietTurns\n"
        "sleeps = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
        "with QuietTurns(Path(sys.argv[1]), 2) as turns:\n"
        "    turns.add('a', sleeps, {})\n    turns.add('b', sleeps, {})\n"
        "    (Path(sys.argv[1]) / 'a.asks').touch()\n"  # b stands still from now on
        "    turns.serve(time.time() + 60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    while not (tmp_path / "a.turn").exists():
        assert process.poll() is None
        time.sleep(0.01)
    children = _children(process.pid)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    assert len(children) == 2
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def test_alone_without_a_folder_there_is_nothing_to_wait_for():
    turn = Turn(None, "one")
    with turn.alone():
        assert not turn.taken_away()
    assert turn.paused() == 0.0


def test_an_orphan_does_not_wait_for_a_turn(tmp_path, monkeypatch):
    turn = Turn(tmp_path, "one")
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(RuntimeError, match="has ended"), turn.alone():
        pass
