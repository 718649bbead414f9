"""Kernels are compiled before the clock starts, once, and all that the search then calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

import pebbler as pb
from pebbler.extras.pebbles.kernels.pebble_layers import enter_newest, expand_layer
from pebbler.extras.pebbles.pebble_sweep import solve_sweep
from pebbler.game.machine import Level, Machine, builtin_machines
from pebbler.kernel_folder import KernelFolder
from pebbler.solver import problem, solve_search, warm_up
from pebbler.solver.case import Case
from pebbler.solver.problem import Problem
from pebbler.workloads import chain, matmul, mlp

PARTS = dict(warm_up.PARTS)


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """A machine on which nothing has been compiled yet, and parts that only say that they ran."""
    ran: list[str] = []
    parts = {part: (seconds, lambda part=part: ran.append(part)) for part, (seconds, _) in PARTS.items()}
    folder = KernelFolder(tmp_path / "kernels")
    folder.make()
    monkeypatch.setattr(warm_up, "cache_folder", lambda: folder)
    monkeypatch.setattr(warm_up, "PARTS", parts)
    monkeypatch.setattr(warm_up.sys, "executable", "/bin/false")  # processes fail, so that the parts are compiled here
    return ran


# A kernel that calls NumPy compiled as the processes that only compile do it, and as everywhere else.
FLAGS = """
import numpy as np
from numba.core.compiler import Flags
from pebbler.compiled import compare_flags_quickly, inner_kernel, kernel

@kernel
def _first(n):
    return np.zeros(n, np.int64).sum() + np.empty(3).size

@inner_kernel
def third(values):
    return np.int64(values.sum())

@kernel
def second(n):
    return _first(n) + np.zeros(n, np.int64).size + third(np.ones(n, np.int64))

a, b, c = Flags(), Flags(), Flags()
a.nrt, b.nrt, c.nrt = True, True, False
b.no_cpython_wrapper = True
compare_flags_quickly()
assert a == b and hash(a) == hash(b) and a != c and a != 3
assert second(4) == 11
"""


def test_flags_that_make_no_difference_are_passed_over():
    done = subprocess.run([sys.executable, "-c", FLAGS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_said_and_done_once(cold, capsys):
    assert warm_up.warm_up(["lru", "play"])
    assert cold == ["lru", "play"]
    assert "compiling kernels, once" in capsys.readouterr().err
    assert not warm_up.warm_up(["lru", "play"])
    assert cold == ["lru", "play"]
    assert capsys.readouterr().err == ""
    assert warm_up.warm_up(["exact", "play"])
    assert cold == ["lru", "play", "exact"]


def test_a_long_wait_says_how_long_it_has_taken():
    told: list[str] = []
    running = [
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        for _ in range(2)
    ]

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            for process in running:
                process.stdin.close()

    warm_up._wait(running, time.monotonic() - 60, tell, every=0.05)
    assert told[:2] == ["compiling kernels: 60 s so far"] * 2
    assert [process.returncode for process in running] == [0, 0]


def test_the_clock_starts_when_the_kernels_are_ready(cold, monkeypatch):
    began = []
    monkeypatch.setattr(
        problem.time, "monotonic", lambda: float(len(cold))
    )  # time passes while parts are compiled, and only then
    search = solve_search("note-mlp", "notes-recency", report=lambda search: began.append(search.elapsed))
    assert cold == ["recency", "play", "recency-orders"]
    assert began
    assert set(began) == {0.0}
    assert search.best is not None


def test_program_order_needs_no_kernels_of_the_search(cold):
    pb.solve("note-mlp", "notes-recency", time_limit=0)
    assert cold == []


@pytest.mark.parametrize("parts", [["lru"], list(PARTS), ["pages", "exact", "sequences", "play", "prices"]])
@pytest.mark.parametrize("cores", [1, 2, 3, 64])
def test_every_part_is_dealt_out_once(parts, cores):
    shares = warm_up._shares(parts, cores)
    assert sorted(part for share in shares for part in share) == sorted(parts)
    assert len(shares) <= cores
    assert all(shares)


@pytest.mark.parametrize("name", builtin_machines())
def test_every_machine_has_its_parts(name):
    machine = pb.machine(name)
    graph = {"pebble": chain(5), "element": matmul(1, 2, 2)}.get(machine.unit, mlp(n=2, hidden=4))
    assert "play" in warm_up.needed(Case(Problem.of(graph, machine)))


# Small problems that between them go through every method; each is solved in a process that has compiled, or taken from disk,
# what `needed` says and nothing else. What they import is imported once.
CALLS = """
import os
import sys
import traceback
from numba.core.dispatcher import Dispatcher
from pebbler.game.machine import Level, Machine
from pebbler.solver import new_search, warm_up
from pebbler.solver.case import Case
from pebbler.solver.methods import run
from pebbler.solver.problem import Problem
from pebbler.workloads import attention, chain, deep_mlp, matmul, mlp, note_mlp

ONE = Machine("one", "pebble", (Level("fast", 0, 0, capacity=6),))
TWO = Machine("two", "float32", (Level("fast", 1, 1, capacity=200), Level("slow", 9, 9)), operands="fastest")
ANY = Machine("any", "pebble", (Level("fast", 1, 1, capacity=40), Level("slow", 9, 9)), operands="any")
CASES = [
    (mlp(n=2, hidden=8), "notes", "auto"),
    (mlp(n=2, hidden=8), "notes", "none"),
    (note_mlp(), "notes-recency", "auto"),
    (mlp(n=2, hidden=8), "notes-explicit", "auto"),
    (note_mlp(), "notes-explicit", "none"),
    (deep_mlp(n=2, hidden=4, layers=4), TWO, "none"),
    (chain(30), ONE, "auto"),
    (chain(30), "red-blue", "auto"),
    (chain(3_000), ONE, "auto"),
    (deep_mlp(n=2, hidden=4, layers=8), "notes", "none"),
    (chain(1_200), ANY, "auto"),
    (matmul(2, 2, 2), "grid", "auto"),
    (attention(4, 4, 2), "notes-recency", "auto"),
]


def kernels():
    found = {}
    for module in [module for name, module in sys.modules.items() if name.startswith("pebbler.")]:
        for thing in vars(module).values():
            if isinstance(thing, Dispatcher):
                found[thing.__module__ + "." + thing.__name__] = set(thing.signatures)
    return found


def solve(graph, machine, tile):
    for part in warm_up.needed(Case(Problem.of(graph, machine), tile)):
        warm_up.PARTS[part][1]()
    before = kernels()
    search = new_search(graph, machine, time_limit=0.7, tile=tile)
    run(search)
    assert search.best is not None
    return {name: signatures for name, signatures in kernels().items() if signatures - before.get(name, set())}


for number, case in enumerate(CASES):
    if sys.argv[1:] and str(number) not in sys.argv[1:]:
        continue
    child = os.fork()
    if child == 0:
        try:
            if late := solve(*case):
                print(number, late, flush=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(number, "failed", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    "cases", [["0", "2", "5", "6", "11"], pytest.param([], marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_a_search_calls_no_kernel_that_was_not_compiled_before_its_clock(cases):
    done = subprocess.run([sys.executable, "-c", CALLS, *cases], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_pebble_games_are_ready_to_be_gone_through_layer_by_layer():
    warm_up.PARTS["pebbles"][1]()
    compiled = [set(kernel.signatures) for kernel in (expand_layer, enter_newest)]
    sum_of_two = pb.Graph("sum", unit="pebble").tensor("a", 1, kind="input").tensor("b", 1, kind="output")
    search = problem.Search(
        Problem.of(
            sum_of_two.op("add", ["a"], ["b"], 9),
            Machine("two", "pebble", (Level("fast", 0, 0, 2), Level("slow", 1, 1))),
        )
    )
    solve_sweep(search)
    assert search.done
    assert all(compiled)
    assert compiled == [set(kernel.signatures) for kernel in (expand_layer, enter_newest)]


def test_of_several_that_begin_at_once_one_compiles(cold):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(warm_up.warm_up(["play"], lambda _: None))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cold == ["play"]
    assert sorted(answers) == [False, False, False, True]
