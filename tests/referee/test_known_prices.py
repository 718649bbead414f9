"""The figures that kernels are tried on are those of the brute-force twins; a kernel that gives others never prices anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numba import typeof

import naive_allocator
from naive_game import NaiveGame
from pebbler.game.plan import Plan
from pebbler.referee.known_prices import _ORDER, KNOWN, WrongKernel, _require, small_cache, small_graph, small_plans
from pebbler.referee.lru_window import price_window
from pebbler.referee.touches import Touches, touches_of_ops
from price_kinds import cache_twin

RIGHT = {kernel.__name__: right for kernel, _, right in KNOWN}


def in_order(machine, steady=False):
    graph = small_graph()
    return Plan.in_order(graph, machine, [graph.ops[op].name for op in _ORDER], steady=steady)


def test_the_figures_are_the_twins():
    machines = [small_cache("lru", allocator, line) for allocator in ("own", "reuse") for line in (1, 4)]
    assert RIGHT["lru_price"] == [cache_twin(in_order(one, steady)) for one in machines for steady in (False, True)]
    assert RIGHT["recency_price"] == RIGHT["price_prefix"][0] == cache_twin(in_order(small_cache("recency")))
    for plan, right in zip(small_plans(), RIGHT["play"], strict=True):
        verdict = NaiveGame(plan.graph, plan.machine, bool(plan.steady)).play([move.words for move in plan.moves])
        assert (verdict.legal, verdict.energy) == (True, right)
    places = np.array(naive_allocator.reuse(small_graph(), _ORDER.tolist(), 4)) // 4
    assert RIGHT["allocate"][1] == places @ np.arange(1, len(places) + 1)


def test_the_pieces_give_the_price_of_the_whole():
    """What has no twin of its own, together with what has: runs cut from an order's touches and priced as a window."""
    machine = small_cache("lru", "reuse", 4)
    runs, _, _ = Touches.of(touches_of_ops(small_graph(), "reuse", 4), _ORDER).in_lines(4)
    prices = [np.array([getattr(level, part) for level in machine.level], float) for part in ("read", "write")]
    costs = sum(op.cost for op in small_graph().ops)
    assert price_window(runs, np.array([3, 12]), *prices, steady=False).energy + costs == RIGHT["lru_price"][6]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known[0].__name__)
def test_a_kernel_is_tried_on_what_it_is_called_with(known):
    """Else nothing would be compared: the problem has the types that the kernel is compiled for."""
    kernel, ask, right = known
    calls = []

    def run(*arguments):
        calls.append(tuple(map(typeof, arguments)))
        return kernel(*arguments)

    assert ask(run) == right
    assert set(calls) <= set(kernel.signatures)
    assert len(set(calls)) == 1


def test_wrong_code_is_refused():
    kernel, ask, right = next(known for known in KNOWN if known[0].__name__ == "lru_price")
    (result,) = kernel.overloads.values()
    _require("lru_price", ask, right, result)

    def fail(*arguments):
        raise IndexError("index 86 is out of bounds")

    for wrong in (fail, lambda *arguments: result.entry_point(*arguments) + 1, lambda *arguments: None):
        with pytest.raises(WrongKernel, match=r"'lru_price' gives .* and \[15185.* is right"):
            _require("lru_price", ask, right, SimpleNamespace(signature=result.signature, entry_point=wrong))
    other = SimpleNamespace(signature=SimpleNamespace(args=()), entry_point=fail)
    _require("lru_price", ask, right, other)  # code for other types is not asked


# Code that gives one more is kept under the name and key of the right one, as a fault of the compiler or of the disk would.
PRICE = """
import numpy as np
from pebbler import machine
from pebbler.referee.pricing import price_prefix, price_recency
from pebbler.workloads import note_mlp
print(int(price_recency(note_mlp(), machine("notes-recency"), np.arange(15)).by_level.sum()))
print(sum(price_prefix.stats.cache_hits.values()))
"""
SPOIL = """
from pebbler.compiled import kernel

@kernel
def wrong(game, order, count, detail, books):
    books.by_level[0] += 1
    return price_prefix(game, order, count, detail, books)

(signature,) = price_prefix.signatures
wrong.compile(signature)
price_prefix._cache.save_overload(signature, wrong.overloads[signature])
"""


@pytest.mark.slow
def test_wrong_code_on_disk_is_set_aside_and_compiled_anew(tmp_path: Path):
    def run(script: str) -> tuple[list[str], str]:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), done.stderr

    assert run(PRICE + SPOIL) == (["11004490", "0"], "")
    prices, said = run(PRICE)
    assert prices == ["11004490", "0"]
    assert said.startswith("pebbler: compiled code in ")
    assert said.count("\n") == 1
    assert "'price_prefix' gives [8401.0, 2280.0, 12280.0, 302.0" in said
    assert len(list(tmp_path.glob("kernels-wrong-*"))) == 1
    assert run(PRICE) == (["11004490", "1"], "")
