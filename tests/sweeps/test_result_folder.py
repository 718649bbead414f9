"""Rows and plans on disk: whole or not there, whatever happens to them, and claims between processes."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import time

import pytest

from pebbler.errors import InputError
from pebbler.sweeps.result_folder import ResultFolder

KEY = "ab" + "0123456789abcdef" * 2
ROW = {
    "key": KEY,
    "run": "r",
    "energy": 336,
    "gap": 0.1,
    "bound": None,
    "error": 'a "word", and\nanother',
    "status": "optimal",
}
PLAN = b'{"format": "pebbler-plan-1"}\n' * 40


@pytest.fixture
def folder(tmp_path):
    made = ResultFolder(tmp_path / "sweep")
    made.put(KEY, ROW, PLAN)
    yield made
    made.close()


def test_what_is_put_is_there(folder):
    assert folder.row(KEY, whole=True) == ROW
    assert list(folder.rows()) == [ROW]
    assert folder.done() == {KEY}
    assert folder.plan_path(KEY).read_bytes() == PLAN


def test_a_run_without_a_plan_needs_none(folder):
    folder.put("cd34", {"status": "impossible"}, None)
    assert folder.done() == {KEY, "cd34"}


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_file_is_as_good_as_none(folder, seed):
    rng = random.Random(seed)
    path = folder.row_path(KEY) if seed % 2 else folder.plan_path(KEY)
    data = bytearray(path.read_bytes())
    how = rng.choice(["cut", "flip", "empty", "gone", "zeros"])
    if how == "cut":
        del data[rng.randrange(len(data) - 1) :]
    elif how == "flip":
        at = rng.randrange(len(data))
        while chr(data[at]).isspace():  # space between fields says nothing
            at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(7)
    elif how == "zeros":
        data[: len(data) // 2] = bytes(len(data) // 2)
    path.write_bytes(b"" if how == "empty" else bytes(data))
    if how == "gone":
        path.unlink()
    assert folder.done() == set()
    folder.put(KEY, ROW, PLAN)
    assert folder.done() == {KEY}


def test_a_row_under_another_name_is_not_that_run(folder):
    other = "ab" + "f" * 30
    folder.row_path(other).write_bytes(folder.row_path(KEY).read_bytes())
    assert folder.row(other) is None
    assert folder.done() == {KEY}


CLAIM = """
import sys
from pebbler.sweeps.result_folder import ResultFolder
folder = ResultFolder(sys.argv[1])
print([folder.claim(key) for key in sys.argv[2:]], flush=True)
sys.stdin.read()
"""


def test_claims_are_seen_by_other_processes_and_end_with_them(folder):
    mine, free = "11" * 16, "22" * 16
    assert folder.claim(mine)
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder.path), mine, free],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "[False, True]"
        assert not folder.claim(free)
        other.kill()
    assert folder.claim(free)
    folder.release(free)


def test_where_there_are_no_locks_everything_is_free(folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.lockf", refuse)
    assert folder.claim("11" * 16)
    folder.release("11" * 16)


def test_only_old_leftovers_are_removed(folder):
    old, new = (folder.path / "rows" / f".pebbler.{name}.part" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 86400,) * 2)
    folder.remove_left_behind()
    assert not old.exists()
    assert new.exists()
    assert folder.done() == {KEY}


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="this is a file"):
        ResultFolder(tmp_path / "file")
    with pytest.raises(InputError, match="there is no sweep"):
        ResultFolder(tmp_path, create=False)
