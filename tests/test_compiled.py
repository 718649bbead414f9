"""Compiled kernels on disk: kept, thrown away when any source they are made from changes, and never a reason to fail."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from pebbler.compiled import kernel, source_key
from small_package import INNER, call, install


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return install(tmp_path)


def test_an_edit_in_a_called_kernel_is_noticed(installed: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    assert call(installed, **home) == [20, 0]
    assert call(installed, **home) == [20, 1]
    inner = installed / "probe_inner.py"
    stamp = inner.stat()
    inner.write_text(INNER.format(2))
    os.utime(inner, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # the time stamp says nothing
    assert call(installed, **home) == [30, 0]
    inner.write_text(INNER.format(1))
    assert call(installed, **home) == [20, 1]  # the first version's code is still there


def test_an_install_elsewhere_shares_what_is_compiled(installed: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    assert call(installed, **home) == [20, 0]
    elsewhere = tmp_path / "elsewhere" / "pebbler"
    shutil.copytree(installed, elsewhere)
    assert call(elsewhere, **home) == [20, 1]


RECORD = """
from typing import NamedTuple

class Record(NamedTuple):
    x: int
"""
ON_RECORDS = """
from pebbler.compiled import kernel

@kernel
def outer(record):
    return 20 * record.x
"""
CALL_WITH_RECORD = """
from pebbler.probe_outer import outer
from pebbler.{} import Record
print(outer(Record(1)), sum(outer.stats.cache_hits.values()))
"""


def test_compiled_code_that_names_what_is_gone_is_made_again(installed: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    (installed / "probe_outer.py").write_text(ON_RECORDS)
    (installed / "probe_record.py").write_text(RECORD)
    assert call(installed, CALL_WITH_RECORD.format("probe_record"), **home) == [20, 0]
    assert call(installed, CALL_WITH_RECORD.format("probe_record"), **home) == [20, 1]
    (installed / "probe_record.py").rename(installed / "probe_moved.py")
    assert call(installed, CALL_WITH_RECORD.format("probe_moved"), **home) == [20, 0]
    assert call(installed, CALL_WITH_RECORD.format("probe_moved"), **home) == [20, 1]


def test_damaged_files_are_made_again(installed: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    assert call(installed, **home) == [20, 0]
    files = list((tmp_path / "home").rglob("*.nbc"))
    assert len(files) >= 2
    for damage in (b"", b"not a pickle", b"\x80\x04N."):
        for path in files:
            path.write_bytes(hashlib.sha256(damage).digest() + damage)
        assert call(installed, **home) == [20, 0], damage
    assert call(installed, **home) == [20, 1]


def test_code_under_another_key_is_not_taken(installed: Path, tmp_path: Path) -> None:
    """A file says itself what it is the code of: its name alone decides nothing."""
    home = {"HOME": str(tmp_path / "home")}
    script = "from pebbler.probe_inner import inner\nprint(int(10 * inner({})), sum(inner.stats.cache_hits.values()))"
    assert call(installed, script.format("1"), **home) == [20, 0]
    (whole,) = (tmp_path / "home").rglob("*.inner-*")
    assert call(installed, script.format("0.5"), **home) == [15, 0]
    (half,) = set((tmp_path / "home").rglob("*.inner-*")) - {whole}
    shutil.copy(whole, half)
    assert call(installed, script.format("0.5"), **home) == [15, 0]
    assert call(installed, script.format("0.5"), **home) == [15, 1]


SEPARATE = """
import numpy as np
from pebbler.compiled import inner_kernel, kernel, separate_kernel

@separate_kernel
def deepest(x):
    if x < 0:
        raise ValueError("below zero")
    return x + np.arange(3)

@separate_kernel
def deep(x):
    return deepest(x).sum() + deepest(x)[0]

@kernel
def _between(x):
    return deep(x)
"""
CALLERS = """
from pebbler.compiled import kernel
from pebbler.probe_inner import _between, deepest

@kernel
def outer(x):
    return 2 * _between(x) + deepest(x)[0]

@kernel
def other(x):
    return _between(x) + 1
"""
CALL_BOTH = """
from pebbler.probe_outer import {0}, {1}
print({0}(1), {1}(1), sum(outer.stats.cache_hits.values()), sum(other.stats.cache_hits.values()))
try:
    outer(-1)
except ValueError as error:
    assert str(error) == "below zero"
else:
    raise AssertionError
"""


@pytest.fixture
def linked(installed: Path) -> Path:
    """A package whose kernels are linked to separate ones, directly and through one of their own."""
    (installed / "probe_inner.py").write_text(SEPARATE)
    (installed / "probe_outer.py").write_text(CALLERS)
    return installed


def forget(folder: Path, *names: str) -> None:
    """Remove the compiled code of some kernels, and only theirs."""
    files = [path for path in folder.rglob("*.nbc") if any(f".{name}-" in path.name for name in names)]
    assert files
    for path in files:
        path.unlink()


MISSING = [("deepest",), ("deep", "_between"), ("outer",), ("other", "deepest"), ("deepest", "deep", "outer")]


@pytest.mark.parametrize("missing", [MISSING[-1:], pytest.param(MISSING, marks=pytest.mark.slow)], ids=["one", "all"])
def test_separate_kernels_are_kept_with_those_that_call_them(
    linked: Path, tmp_path: Path, missing: list[tuple[str, ...]]
) -> None:
    home = {"HOME": str(tmp_path / "home")}
    first, second = CALL_BOTH.format("outer", "other"), CALL_BOTH.format("other", "outer")
    assert call(linked, first, **home) == [15, 8, 0, 0]
    assert call(linked, first, **home) == [15, 8, 1, 1]
    assert call(linked, second, **home) == [8, 15, 1, 1]
    # Whatever is missing on disk: what is there is linked to what it was compiled with, or to what was made again.
    for names in missing:
        forget(tmp_path / "home", *names)
        kept = [int(name not in names) for name in ("outer", "other")]
        assert call(linked, first, **home) == [15, 8, *kept], names
    assert call(linked, second, **home) == [8, 15, 1, 1]


def test_separate_kernels_compiled_side_by_side_by_two_processes_fit_together(linked: Path, tmp_path: Path) -> None:
    # Each writes its own copy of the separate kernels, the other's are gone, and their symbols have other names.
    one, two, both = tmp_path / "one", tmp_path / "two", tmp_path / "both"
    more = "from pebbler.compiled import kernel\n@kernel\ndef early(x):\n    return x\nearly(1)\n"
    assert call(linked, CALL_BOTH.format("outer", "other"), HOME=str(one)) == [15, 8, 0, 0]
    assert call(linked, more + CALL_BOTH.format("other", "outer"), HOME=str(two)) == [8, 15, 0, 0]
    shutil.copytree(one, both)
    forget(both, "other", "deepest", "deep")
    for path in two.rglob("*.nbc"):
        if any(f".{name}-" in path.name for name in ("other", "deepest", "deep")):
            shutil.copy(path, both / path.relative_to(two))
    assert call(linked, CALL_BOTH.format("outer", "other"), HOME=str(both)) == [15, 8, 1, 1]
    assert call(linked, CALL_BOTH.format("other", "outer"), HOME=str(both)) == [8, 15, 1, 1]


LINKED = """
from pebbler.probe_inner import deep
from pebbler.probe_outer import outer
outer(1)
(caller,), (called,) = outer.overloads.values(), deep.overloads.values()
module = caller.library._final_module
print(int(module.get_function(called.fndesc.mangled_name).is_declaration))
try:
    deep(1)
except TypeError as error:
    assert "deep is called by kernels only" in str(error)
"""


def test_separate_kernels_are_not_compiled_again_for_their_callers(linked: Path, tmp_path: Path) -> None:
    assert call(linked, LINKED, HOME=str(tmp_path / "home")) == [1]


def test_keys_are_of_the_sources() -> None:
    assert source_key("pebbler.game.graph") == source_key("pebbler.game.graph")
    assert source_key("pebbler.game.graph") != source_key("pebbler.game.machine")
    assert source_key("pebbler.compiled") != source_key("pebbler.kernel_folder")


def test_a_kernel_without_a_file_is_compiled_all_the_same() -> None:
    names: dict[str, object] = {"kernel": kernel}
    exec("@kernel\ndef three(x):\n    return 3 * x\n", names)
    assert names["three"](2) == 6  # type: ignore[operator]


def test_a_kernel_for_kernels_is_not_called_from_python() -> None:
    # Without a way in from Python numba would jump to address 0.
    @kernel
    def _inner(x):  # type: ignore[no-untyped-def]
        return x + 1

    @kernel
    def outer(x):  # type: ignore[no-untyped-def]
        return _inner(x)

    assert outer(1) == 2
    with pytest.raises(TypeError, match="_inner is called by kernels only"):
        _inner(1)
    assert _inner.py_func(1) == 2


def test_constants_do_not_compile_a_kernel_anew() -> None:
    @kernel
    def _scaled(x, factor, negated=False):  # type: ignore[no-untyped-def]
        return -factor * x if negated else factor * x

    @kernel
    def outer(x):  # type: ignore[no-untyped-def]
        return _scaled(x, 2) + _scaled(x, 3) + _scaled(x, x, negated=True)

    assert outer(5) == 10 + 15 - 25
    assert len(_scaled.signatures) <= 2  # with and without the default
