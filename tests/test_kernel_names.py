"""Compiled code of many processes in one process: no name stands for two things, and every kind of game is priced right.

numba numbers what it compiles from 1 in every process. Functions inside of `np.sort` and `np.argsort` have the same names but for
that number, so code that two processes had kept was mixed up by a third that loaded both: a price of 12,743,390 was 3,150,500.
"""

from __future__ import annotations

import itertools
import os
import pickle
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pebbler.compiled import source_key
from pebbler.kernel_folder import cache_folder
from price_kinds import KINDS
from small_package import call, install

# Two kernels that a process may compile in either order, or one of them only. Long arrays are sorted by functions of their own.
SORTS = """
import numpy as np
from pebbler.compiled import kernel

@kernel
def in_order(x):
    return np.sort(x)

@kernel
def order(x):
    return np.argsort(x)
"""
TRY = """
import numpy as np
{before}
from pebbler import probe_inner
x = np.arange(40, dtype=np.int64) * 29 % 41
right = dict(in_order=np.sort(x), order=np.argsort(x))
print(sum(not np.array_equal(getattr(probe_inner, name)(x), right[name]) for name in {names!r}))
"""
NAMES = ["in_order", "order"]


@pytest.fixture
def sorting(tmp_path: Path) -> Path:
    """A package whose kernels sort."""
    package = install(tmp_path)
    (package / "probe_inner.py").write_text(SORTS)
    return package


def sort(package: Path, home: Path, names: list[str], before: str = "") -> int:
    """Call kernels in this order in a new process; return how many results are wrong."""
    return call(package, TRY.format(before=before, names=names), HOME=str(home))[0]


COUNTED = """
from numba.core.bytecode import FunctionIdentity
import pebbler.compiled
for _ in range(3):
    next(FunctionIdentity._unique_ids)
"""


def test_code_of_several_processes_is_not_mixed_up(sorting: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    # Each is compiled by a process of its own. numba's count would reach 7 at the sorting inside of both.
    assert sort(sorting, home, ["in_order"]) == 0
    assert sort(sorting, home, ["order"], before=COUNTED) == 0
    assert sort(sorting, home, NAMES) == 0
    assert sort(sorting, home, NAMES[::-1]) == 0


USED_BEFORE = """
import numba
own = numba.njit(lambda x: np.sort(x))
own(np.arange(40, dtype=np.int64))
"""


@pytest.mark.slow
def test_kernels_that_hold_names_from_before_are_right_and_not_kept(sorting: Path, tmp_path: Path) -> None:
    """numba was used before pebbler was imported: what it has compiled has numbers that another process gives to other things."""
    home = tmp_path / "home"
    assert sort(sorting, home, NAMES[:1], before=USED_BEFORE) == 0
    assert not list(home.rglob("*.nbc"))
    assert sort(sorting, home, NAMES[:1]) == 0
    assert len(list(home.rglob("*.nbc"))) == 1
    assert sort(sorting, home, NAMES[:1], before=USED_BEFORE) == 0


BOTH_TYPES = """
import sys
import numpy as np
from pebbler.probe_outer import outer
types = [np.int64, np.float64, np.int32, np.uint8]
x = np.arange(7)
print(sum(not np.array_equal(outer(x.astype(one)), 10 * (x.astype(one) + 1)) for one in types[{0}:] + types[:{0}]))
print(sum(outer.stats.cache_hits.values()))
"""


def test_processes_that_compile_side_by_side_do_not_mix_results_up(tmp_path: Path) -> None:
    """Several signatures of one kernel are written at once: an index of them would say of one that it is another."""
    package = install(tmp_path)

    def run_both() -> list[list[int]]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda i: call(package, BOTH_TYPES.format(i), HOME=str(tmp_path / "home")), (0, 2)))

    assert [wrong for wrong, _ in run_both()] == [0, 0]
    assert run_both() == [[0, 4], [0, 4]]


FORKED = """
import os
from numba.core.bytecode import FunctionIdentity
import pebbler.compiled
drawn = []
for _ in range(4):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(next(FunctionIdentity._unique_ids)).encode())
        os._exit(0)
    os.wait()
    drawn.append(int(os.read(read, 100)))
print(len(set(drawn)), int(min(drawn) >= 1 << 127))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_processes_draw_different_numbers(sorting: Path, tmp_path: Path) -> None:
    assert call(sorting, FORKED, HOME=str(tmp_path)) == [4, 1]


# All that is on disk ----------------------------------------------------------------------------------------------------


def visible_symbols(code: bytes) -> Iterator[tuple[str, int]]:
    """Yield the symbols that an ELF object defines and shows to others, with their type (1: data, 2: a function)."""
    table, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + 64 * i) for i in range(count)]
    for section in sections:
        if section[1] == 2:  # symbols
            names = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, info, _, home, _, _ = struct.unpack_from("<IBBHQQ", code, at)
                if info >> 4 and home:
                    yield code[names + name : code.index(b"\0", names + name)].decode(), info & 15


def kept_objects() -> Iterator[bytes]:
    """Yield the machine code that is on disk of all kernels as their sources are now."""
    source = Path(__file__).parents[1] / "src"
    for path in source.rglob("kernels/*.py"):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for file in (cache_folder().path / f"{module}-{source_key(module)}").glob("*.nbc"):
            _, called, own = pickle.loads(file.read_bytes()[32:])
            yield from (state[0][2][0] for state in (own, *(state for _, state in called)))


@pytest.mark.skipif(sys.platform != "linux", reason="it reads ELF objects")
def test_no_symbol_on_disk_has_two_bodies() -> None:
    bodies: dict[str, set[bytes]] = defaultdict(set)
    objects = set(kept_objects())
    for code in objects:
        for name, kind in visible_symbols(code):
            # A pointer to what Python objects a function needs is data, and one for all copies of the function.
            assert kind == 2 or "NumbaEnv" in name, name
            if kind == 2:
                bodies[name].add(code)
    assert len(objects) > 200  # the tests begin with all kernels compiled
    assert len(bodies) >= len(objects)
    assert [name for name, codes in bodies.items() if len(codes) > 1] == []


# Every kind in every order ----------------------------------------------------------------------------------------------


def price(*orders: tuple[str, ...], **environment: str) -> str:
    """Price kinds of games in some orders, each in a process of its own; return what is wrong."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(here / "price_kinds.py"), *map(",".join, orders)],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else done.stderr


def test_every_kind_is_priced_right_after_every_other() -> None:
    """Each before and each after every other one; right after each other only with -m slow."""
    kinds = tuple(KINDS)
    assert price(kinds, kinds[::-1]) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_kind_is_priced_right_in_every_order() -> None:
    assert price(*itertools.permutations(("lru", "recency", "any", "trace", "solved-lru", "solved-recency"))) == ""
    assert price(*itertools.permutations(KINDS, 3)) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("backwards", [False, True])
def test_every_kind_is_priced_right_while_all_is_compiled(tmp_path: Path, backwards: bool) -> None:
    """From an empty folder: each process compiles what the ones before have not."""
    home = {"NUMBA_CACHE_DIR": str(tmp_path)}
    kinds = tuple(KINDS)[:: -1 if backwards else 1]
    assert price(*((kind,) for kind in kinds), kinds, kinds[::-1], **home) == ""


STEPS = """
from price_kinds import _game
import pebbler as pb

def order(machine):
    graph = pb.workloads.note_mlp()
    return pb.check(pb.Plan.in_order(graph, pb.machine(machine), steady=True)).energy

def small(management):
    pb.solve(*_game(management), time_limit=5, threads=1, tile="none")
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_notes_step_costs_the_same_after_a_recency_problem(tmp_path: Path) -> None:
    """Four ordinary processes that share an empty folder; the last one had priced the step at 3,150,500, or died."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")])
    for step in (
        'pb.solve("mlp:n=4,hidden=8", "notes", time_limit=2, threads=1)',
        'order("notes-recency")',
        'small("lru")',
        'small("recency"); print(order("notes"))',
    ):
        done = subprocess.run(
            [sys.executable, "-c", STEPS + step],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "12743390"
