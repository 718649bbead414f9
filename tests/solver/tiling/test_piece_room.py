"""What pieces touch at once needs room, beside what lasts: bounds by hand, and wrong ones that plans undercut."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from attacks import cheapest_order, cheapest_placement, random_large_pieces, transforms
from pebbler import workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.machine import machine as named
from pebbler.game.moves import Compute, Drop, Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.tiling import piece_room
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.case_bound import CaseBound
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.piece_room import RaisedGroups
from pebbler.solver.tiling.tiling_bound import tiled_bound


def step(width: int, *, param: int = 4, touched: bool = False, rows: int = 1) -> Graph:
    """Return t = f(x), u = g(t) or g(t, p), p = h(p, u): g touches all t and u at once, and p is there all the time.

    All are tensors of one element each, or of one per row.
    """
    graph = Graph("step", unit="pebble")
    params = [f"p{number}" for number in range(param)]
    for name in params:
        graph.tensor(name, 1, "param")
    made = {letter: [f"{letter}{number}" for number in range(width)] for letter in "xtu"}
    for letter, names in made.items():
        for name in names:
            graph.tensor(name, rows, "input" if letter == "x" else "temp", axes=[("i", rows)])
    graph.op("f", made["x"], made["t"])
    graph.op("g", [*made["t"], *(params if touched else [])], made["u"])
    graph.tensor("y", 1, "output")
    graph.op("h", made["u"], ["y"])
    for name in params:
        graph.op(f"update {name}", [name, "y"], [name])
    return graph


def levels(room: int, results: str = "apart") -> Machine:
    return Machine(
        "two", "pebble", (Level("near", 1, 1, capacity=room), Level("far", 10, 10)), "explicit", "any", results=results
    )


def energies(graph: Graph, machine: Machine, size: int | None = None) -> tuple[float, float]:
    """Return the bound and the cheapest plan found for one tile size."""
    form = graph if size is None else tile(graph, "i", size)
    plan = cheapest_placement(random.Random(0), form, machine, graph, steady=True, tries=12)
    assert plan is not None
    sizes = {} if size is None else {"i": size}
    return tiled_bound(Problem.of(graph, machine, steady=True), sizes=sizes).energy, check(plan).energy


def test_what_fits_beside_each_other_is_all_near():
    # x is read from afar, 5 * 10; t and u are written and read, so are p, all near, and y, which every update reads.
    assert energies(step(5), levels(14)) == (50 + 20 + 8 + 5, 50 + 20 + 8 + 5)


def test_what_an_op_reads_and_writes_is_there_at_once():
    # Of the 10 elements that g touches one is far: it is written there, or read from there, for 9 more.
    bound, energy = energies(step(5, param=0), levels(9))
    assert bound == 50 + 20 + 1 + 9 <= energy


def test_what_lasts_needs_room_beside_every_piece():
    # g leaves room for 3 of the 4.
    bound, energy = energies(step(5), levels(13))
    assert bound == 83 + 9 <= energy


def test_what_lasts_needs_room_beside_each_of_many_pieces():
    # Each of the seven pieces of g touches 2 elements of t and 2 of u: in a room of 9 one of the 6 that last is elsewhere at some
    # time. Prices of levels do not say so: at the next one, 9 more, staying beside all pieces would cost 63, and leaving 18.
    roomy, _ = energies(step(2, param=6, rows=7), levels(10), 1)
    bound, energy = energies(step(2, param=6, rows=7), levels(9), 1)
    tighter, less = energies(step(2, param=6, rows=7), levels(8), 1)
    assert roomy + 9 < bound <= energy
    assert bound + 9 < tighter <= less


WRONG = {
    "nothing is taken off": (step(5, touched=True), levels(14), None),
    "pieces that are not full": (step(2, param=0, rows=7), levels(15), 5),
    "what lasts pays twice": (step(5, param=6), levels(15), None),
    "what a piece touches lasts beside it": (step(5, touched=True), levels(14), None),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_version_is_undercut_by_a_plan(fault, monkeypatch):
    bound, energy = energies(*WRONG[fault])
    assert bound <= energy
    stays, credit, lasting = RaisedGroups.stays, piece_room._credit, CaseFamily._lasting_tensors
    if fault == "nothing is taken off":
        monkeypatch.setattr(piece_room, "_credit", lambda choice, levels: Fraction())
        monkeypatch.setattr(piece_room.GroupTouches, "pieces", lambda self, case: (0, 0))
    elif fault == "pieces that are not full":
        monkeypatch.setattr(piece_room, "_credit", lambda choice, prices: credit(_all_full(choice), prices))
    elif fault == "what lasts pays twice":
        monkeypatch.setattr(RaisedGroups, "stays", lambda self, groups: tuple(3 * p for p in stays(self, groups)))
    else:
        monkeypatch.setattr(CaseFamily, "_lasting_tensors", lambda self: {key: set() for key in lasting(self)})
    assert energies(*WRONG[fault])[0] > energy


def test_results_over_operands_need_no_room_of_their_own(monkeypatch):
    graph, machine = step(1, param=0), levels(1, "over")
    moves = [Compute("f"), Compute("g"), Drop("t0", "near"), Compute("h"), Drop("u0", "near")]
    energy = check(Plan(graph, machine, Moves.of(graph, machine, moves), steady=True)).energy
    problem = Problem.of(graph, machine, steady=True)
    assert tiled_bound(problem).energy <= energy == 10 + 2 + 2 + 1
    monkeypatch.setattr(CapacityLP, "results_apart", property(lambda self: True))
    assert tiled_bound(problem).energy > energy


def on_cache(graph: Graph, room: int) -> tuple[float, float]:
    """Return the bound and the cheapest plan found on a cache of two levels."""
    levels = (Level("near", 1, 1, capacity=room), Level("far", 10, 10))
    machine = Machine("cache", "pebble", levels, "lru", "any", allocator="own")
    plan = cheapest_order(random.Random(0), graph, machine, graph, steady=True, tries=40)
    return tiled_bound(Problem.of(graph, machine, steady=True), sizes={}).energy, check(plan).energy


def test_a_piece_that_fills_a_cache_pushes_out_what_lasts():
    roomy, _ = on_cache(step(5, param=2), 11)
    bound, energy = on_cache(step(5, param=2), 10)
    # x and p are found far away once, for 9 more each, and p has been written back, for 10 each.
    assert bound == roomy + 5 * 9 + 2 * (9 + 10) <= energy


@pytest.mark.parametrize("fault", ["pieces touch twice as much", "what a piece touches is pushed out"])
def test_a_wrong_push_is_undercut_by_a_plan(fault, monkeypatch):
    graph, room = (
        (step(5, param=2), 20) if fault == "pieces touch twice as much" else (step(3, param=8, touched=True), 14)
    )
    bound, energy = on_cache(graph, room)
    assert bound <= energy
    touches = CaseBound._full_touches.func
    if fault == "pieces touch twice as much":
        monkeypatch.setattr(
            CaseBound, "_full_touches", property(lambda self: {g: 2 * n for g, n in touches(self).items()})
        )
    else:
        monkeypatch.setattr(CaseFamily, "touching", property(lambda self: [set() for _ in self.flow.storage]))
    assert on_cache(graph, room)[0] > energy


@pytest.mark.parametrize(
    ("workload", "name", "sizes", "least"),
    [
        ("attention", "notes-explicit", {"tokens": 63}, 26.7e6),  # 17.9 before pieces had to fit beside parameters
        ("attention", "notes", {"tokens": 63}, 15.9e6),  # 11.3
        ("attention:tokens=1024,width=1024,heads=16", "h200", {"tokens": 512}, 75e9),  # 70.4
    ],
)
def test_tiles_of_attention_that_do_not_fit_beside_each_other(workload, name, sizes, least):
    graph = workloads.load(workload)
    problem = Problem.of(graph, named(name).in_unit(graph.unit))
    assert tiled_bound(problem, sizes=sizes).energy > least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "name", "least"),
    [
        ("attention", "notes-explicit", 19.2e6),
        ("attention", "notes", 12.4e6),
        ("attention:tokens=1024,width=1024,heads=16", "h200", 72.9e9),
    ],
)
def test_every_tiling_of_attention(workload, name, least):
    graph = workloads.load(workload)
    problem = Problem.of(graph, named(name).in_unit(graph.unit))
    assert tiled_bound(problem, work=250_000).energy > least


def _all_full(choice: piece_room._Choice) -> piece_room._Choice:
    return piece_room._Choice(choice.price, choice.gain, choice.pieces, 0)


def attack(seed: int) -> None:
    rng = random.Random(seed)
    graph, machine = random_large_pieces(rng)
    steady = rng.random() < 0.9
    for form, sizes in transforms(rng, graph, 3):
        plan = cheapest_placement(rng, form, machine, graph, steady=steady, tries=12)
        if plan is not None:
            bound = tiled_bound(Problem.of(graph, machine, steady=steady), sizes=sizes)
            assert check(plan).energy >= bound.energy, f"seed {seed}: a plan is below {bound} of tiles {sizes}"


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_of_large_pieces_is_below_its_bound(seed):
    attack(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_no_plan_of_large_pieces_is_below_its_bound_in_thousands_of_cases(seed):
    attack(seed)
