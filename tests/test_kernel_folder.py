"""The folder of compiled kernels is one that nobody else can write to, or a private one; a full disk spoils nothing."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from pebbler import kernel_folder
from pebbler.kernel_folder import KernelFolder
from small_package import CALL, install, run

pytestmark = pytest.mark.skipif(not kernel_folder._CHECKED, reason="owners and permissions are POSIX's")
ANOTHER = 12345  # a user who is neither this one nor root


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes something another user's."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, ANOTHER, -1, follow_symlinks=False)
        else:  # nothing can be given away, so this process becomes another user's
            monkeypatch.setattr(kernel_folder.os, "geteuid", lambda: ANOTHER)

    return give


def refused(folder: KernelFolder, why: str | None = None) -> bool:
    """Return whether a folder is neither read nor written, and for that reason."""
    for attempt in (folder.make, lambda: folder.write("part", "name", b"code"), lambda: folder.read("part", "name")):
        with pytest.raises(OSError, match=why):
            attempt()
    folder.mark("ready")
    return not folder.has("ready")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = KernelFolder(tmp_path / "a" / "kernels")
    with pytest.raises(FileNotFoundError):
        folder.write("part", "name", b"code")  # it is made when it is chosen, not later
    folder.make()
    folder.make()
    folder.write("part", "name", b"code")
    assert folder.read("part", "name") == b"code"
    folder.write("part", "name", b"other code")
    assert folder.read("part", "name") == b"other code"
    assert os.listdir(tmp_path / "a" / "kernels" / "part") == ["name"]
    assert not folder.has("ready")
    folder.mark("ready")
    assert folder.has("ready")
    with folder.locked("lock"):
        pass


def test_folders_and_files_are_for_the_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = KernelFolder(tmp_path / "a" / "b" / "kernels")
        folder.make()
        folder.write("part", "name", b"code")
        folder.mark("ready")
        with folder.locked("lock"):
            pass
    finally:
        os.umask(before)
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert len(made) == 7
    assert {(path.is_dir(), mode(path)) for path in made} == {(True, 0o700), (False, 0o600)}


@pytest.mark.parametrize("bits", [0o770, 0o720, 0o707, 0o702, 0o777, 0o1777])
@pytest.mark.parametrize("where", [".", "..", "../..", "part"])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, where: str, bits: int) -> None:
    folder = KernelFolder(tmp_path / "a" / "b" / "kernels")
    folder.make()
    folder.write("part", "name", b"code")
    (folder.path / where).resolve().chmod(bits)
    if where == "part":
        for attempt in (lambda: folder.write("part", "name", b"code"), lambda: folder.read("part", "name")):
            with pytest.raises(OSError, match="others can write to it"):
                attempt()
    elif bits == 0o1777 and where != ".":
        assert folder.read("part", "name") == b"code"  # nobody else can move our folder away there
    else:
        assert refused(folder, "others can write to it")


@pytest.mark.parametrize("where", [".", "..", "part"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, where: str, give_away) -> None:
    folder = KernelFolder(tmp_path / "a" / "kernels")
    folder.make()
    folder.write("part", "name", b"code")
    give_away((folder.path / where).resolve())
    with pytest.raises(OSError, match="belongs to another user"):
        folder.read("part", "name")
    with pytest.raises(OSError, match="belongs to another user"):
        folder.write("part", "name", b"code")


def test_a_folder_that_another_user_made_first_in_the_temporary_one_is_refused(tmp_path: Path, give_away) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "tmp" / "pebbler-0").mkdir(mode=0o777)
    give_away(tmp_path / "tmp" / "pebbler-0")
    assert refused(KernelFolder(tmp_path / "tmp" / "pebbler-0" / "kernels"), "belongs to another user")
    assert not os.listdir(tmp_path / "tmp" / "pebbler-0")


def test_links_are_followed_only_if_the_user_or_root_made_them(tmp_path: Path, give_away) -> None:
    real = KernelFolder(tmp_path / "real" / "kernels")
    real.make()
    real.write("part", "name", b"code")
    for number, target in enumerate((tmp_path / "real", "real", "../" + tmp_path.name + "/real", "2/../2")):
        (tmp_path / str(number)).symlink_to(target)
        assert KernelFolder(tmp_path / str(number) / "kernels").read("part", "name") == b"code"
    (tmp_path / "loop").symlink_to("loop")
    assert refused(KernelFolder(tmp_path / "loop" / "kernels"))
    give_away(tmp_path / "1")
    with pytest.raises(OSError, match="another user"):
        KernelFolder(tmp_path / "1" / "kernels").read("part", "name")


def test_a_link_to_a_folder_that_others_can_write_to_is_no_way_around(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "inner").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "open" / "inner")
    assert refused(KernelFolder(tmp_path / "link"), "others can write to it")


@pytest.mark.parametrize("step", ["a", "kernels", "part"])
def test_what_is_swapped_between_the_look_and_the_use_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A link in the place of a folder, put there after each look at the folder's name."""
    folder, evil = KernelFolder(tmp_path / "a" / "kernels"), KernelFolder(tmp_path / "evil" / "kernels")
    for one, code in ((folder, b"code"), (evil, b"evil")):
        one.make()
        one.write("part", "name", code)
    place = {"a": folder.path.parent, "kernels": folder.path, "part": folder.path / "part"}[step]
    target = {"a": evil.path.parent, "kernels": evil.path, "part": evil.path / "part"}[step]
    look, swapped = os.stat, []

    def swap(name, *arguments, **named):
        about = look(name, *arguments, **named)
        if name == {"a": "a", "kernels": "kernels", "part": "kernels"}[step] and not swapped:
            place.rename(place.with_name("gone"))
            place.symlink_to(target)
            swapped.append(name)
        return about

    monkeypatch.setattr(kernel_folder.os, "stat", swap)
    with pytest.raises(OSError):  # noqa: PT011  the system says which
        folder.read("part", "name")
    assert swapped


def test_files_that_others_can_write_to_links_and_damaged_ones_are_not_read(tmp_path: Path) -> None:
    folder = KernelFolder(tmp_path / "kernels")
    folder.make()
    folder.write("part", "name", b"code" * 100)
    file = folder.path / "part" / "name"
    whole = file.read_bytes()
    for damage in (b"", whole[:-1], whole + b"x", whole[:50] + b"x" + whole[51:], b"x" * 32, b"\0" * len(whole)):
        file.write_bytes(damage)
        with pytest.raises(OSError, match="damaged"):
            folder.read("part", "name")
    file.write_bytes(whole)
    assert folder.read("part", "name") == b"code" * 100
    file.chmod(0o620)
    with pytest.raises(OSError, match="others can write to it"):
        folder.read("part", "name")
    file.chmod(0o600)
    file.rename(file.with_name("other"))
    file.symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        folder.read("part", "name")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = KernelFolder(tmp_path / "kernels")
    folder.make()
    folder.write("part", "name", b"code")

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kernel_folder.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        folder.write("part", "name", b"other")
    monkeypatch.undo()
    assert folder.read("part", "name") == b"code"
    assert os.listdir(folder.path / "part") == ["name"]


# Which folder it is -----------------------------------------------------------------------------------------------------

KEPT_IN = """
from pebbler.kernel_folder import cache_folder
print(cache_folder().path)
"""
TWICE = CALL + "\nfrom pebbler.kernel_folder import cache_folder\ncache_folder()\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    return install(tmp_path)


def test_the_first_folder_that_is_safe_is_taken(installed: Path, tmp_path: Path) -> None:
    a, b, c = (
        {"NUMBA_CACHE_DIR": str(tmp_path / "a")},
        {"XDG_CACHE_HOME": str(tmp_path / "b")},
        {"HOME": str(tmp_path / "c")},
    )
    assert run(installed, KEPT_IN, **a, **b, **c) == (str(tmp_path / "a" / "kernels"), "")
    assert run(installed, KEPT_IN, **b, **c) == (str(tmp_path / "b" / "pebbler" / "kernels"), "")
    assert run(installed, KEPT_IN, **c) == (str(tmp_path / "c" / ".cache" / "pebbler" / "kernels"), "")
    (tmp_path / "a").chmod(0o770)
    where, said = run(installed, KEPT_IN, **a, **b, **c)
    assert where == str(tmp_path / "b" / "pebbler" / "kernels")
    assert said == (
        f"pebbler: {str(tmp_path / 'a')!r} is passed over: others can write to it; compiled kernels are kept in {where!r}\n"
    )


def test_without_a_safe_folder_it_is_a_private_one_for_this_run(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    nowhere = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "TMPDIR": str(tmp_path / "tmp")}
    for _ in range(2):
        printed, said = run(installed, TWICE, **nowhere)
        assert printed == "20 0"
        assert said == (
            "pebbler: compiled kernels are kept for this run only; NUMBA_CACHE_DIR can name a folder of your own\n"
        )
        assert not os.listdir(tmp_path / "tmp")
    assert not list(installed.rglob("*.nbc"))


def test_a_temporary_folder_that_is_not_safe_is_not_used(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o777)  # without the sticky bit anybody can put something else in the place of a folder
    where, said = run(installed, KEPT_IN, HOME=os.devnull, TMPDIR=str(tmp_path / "tmp"))
    assert not where.startswith(str(tmp_path))
    assert said.count("\n") == 1
    assert not os.listdir(tmp_path / "tmp")


CHILDREN = """
import os, subprocess, sys
from pebbler.kernel_folder import cache_folder, child_variables
from pebbler.probe_outer import outer
outer(1)
child = "from pebbler.probe_outer import outer; print(outer(1), sum(outer.stats.cache_hits.values()))"
for _ in range(2):
    subprocess.run([sys.executable, "-c", child], env=os.environ | child_variables(), check=True)
if os.fork() == 0:
    sys.exit()
os.wait()
print(int(cache_folder().path.is_dir()))
"""


def test_child_processes_share_a_temporary_folder_and_leave_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    printed, said = run(installed, CHILDREN, HOME=os.devnull, TMPDIR=str(tmp_path / "tmp"))
    assert printed.split() == ["20", "1", "20", "1", "1"]
    assert said.count("\n") == 1
    assert not os.listdir(tmp_path / "tmp")


SMALL_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({}, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("limit", [1000, *(pytest.param(size, marks=pytest.mark.slow) for size in (0, 4000))])
def test_a_folder_that_takes_no_more_does_not_spoil_an_answer(installed: Path, tmp_path: Path, limit: int) -> None:
    """Writing fails in the middle of a file, as on a full disk."""
    home = {"NUMBA_CACHE_DIR": str(tmp_path / "a")}
    full = SMALL_FILES.format(limit) + CALL
    assert run(installed, full, **home) == ("20 0", "")
    assert not [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert run(installed, CALL, **home) == ("20 0", "")
    assert run(installed, full, **home) == ("20 1", "")  # what is there is read
    shutil.rmtree(tmp_path / "a")
    assert run(installed, CALL, **home) == ("20 0", "")


def test_a_folder_that_is_removed_meanwhile_does_not_spoil_an_answer(installed: Path, tmp_path: Path) -> None:
    gone = "import shutil\nfrom pebbler.kernel_folder import cache_folder\nshutil.rmtree(cache_folder().path.parent)\n"
    assert run(installed, gone + CALL, NUMBA_CACHE_DIR=str(tmp_path / "a")) == ("20 0", "")
    assert not (tmp_path / "a").exists()
