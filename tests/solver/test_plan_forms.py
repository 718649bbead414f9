"""Which problem a plan is a plan of: what is resumed from, and what is said of tiles and sources."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

import pebbler as pb
from attacks import random_tilable, transforms
from naive_game import NaiveGame, TooBig
from pebbler.errors import InputError, PebblerError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.sums import Sums
from pebbler.solver.assessment import assess
from pebbler.solver.plan_forms import form_in, source_problem

TWO = Machine("two", "float32", (Level("near", 1, 1, capacity=100), Level("far", 100, 100)), operands="any")


def vector() -> Graph:
    graph = Graph("vector").tensor("x", 4, "input", axes=[("i", 4)]).tensor("y", 4, "output", axes=[("i", 4)])
    return graph.op("f", ["x"], ["y"], pointwise=True)


def computes(graph: Graph) -> list[tuple[str, ...]]:
    return [("compute", op.name) for op in graph.ops]


def resumed(known: Plan, **options: object) -> Plan:
    return pb.solve(vector(), TWO, steady=False, time_limit=2, threads=1, resume=known, **options)


def test_tiles_that_start_apart_get_the_bound_of_their_own_graph() -> None:
    graph = vector()
    tiled = pb.tile(graph, "i", 1)
    start = {"x[0]": "near"}
    good = Plan(tiled, TWO, computes(tiled), start, False, source=graph)
    assert pb.check(good).energy == 305
    poor = Plan(
        tiled, TWO, [("copy", "x[0]", "near", "far"), *computes(tiled)], start, False, 406, 300, "bounded", "", graph
    )
    found = assess(poor, seconds=10)
    assert source_problem(poor) is None
    assert found.bound is not None
    assert found.bound <= 305
    assert found.unverified == ()


def test_tiles_that_start_as_one_get_the_bound_of_their_source() -> None:
    tiled = pb.tile(vector(), "i", 1)
    plan = Plan(
        tiled, TWO, computes(tiled), {f"x[{i}]": "near" for i in range(4)}, False, 8, 8, "optimal", "", vector()
    )
    problem = source_problem(plan)
    assert problem is not None
    assert (problem.graph, problem.start) == (vector(), {"x": "near"})
    assert assess(plan, seconds=10).status == "optimal"


@pytest.mark.parametrize("tiled", [False, True])
def test_a_plan_from_other_starts_is_not_resumed_from(tiled: bool) -> None:
    graph = vector()
    form = pb.tile(graph, "i", 1) if tiled else graph
    known = Plan(
        form, TWO, computes(form), {t.name: "near" for t in form.tensors if t.kind == "input"}, False, source=graph
    )
    with pytest.raises(InputError, match="resume: its plan starts from other levels than the problem"):
        resumed(known)
    assert resumed(replace(known, start={})).energy == 404


def test_a_graph_that_is_no_form_is_not_resumed_from() -> None:
    other = Graph("other").tensor("a", 1, "output").op("f", writes=["a"])
    known = Plan(other, TWO, [("compute", "f")], {}, False, source=vector())
    with pytest.raises(InputError, match="resume: its graph other is no form of vector"):
        resumed(known)


def test_the_command_refuses_such_files(cli, tmp_path) -> None:
    vector().save(tmp_path / "vector.json")
    (tmp_path / "two.toml").write_text(
        'name = "two"\nunit = "float32"\noperands = "any"\n'
        '[[level]]\nname = "near"\nread = 1\nwrite = 1\ncapacity = 100\n[[level]]\nname = "far"\nread = 100\nwrite = 100\n'
    )
    other = Graph("other").tensor("a", 1, "output").op("f", writes=["a"])
    Plan(other, TWO, [("compute", "f")], {}, False, 1, 1, "optimal", "", vector()).save(tmp_path / "known.json")
    status, _, err = cli("solve", "vector.json", "--machine", "two.toml", "--resume", "known.json", "--time-limit", "1")
    assert status == 2
    assert "known.json: its graph other is no form of vector" in err
    status, out, _ = cli("check", "known.json")
    assert status == 0
    assert "not verified: that its graph is a form of vector" in " ".join(out.split())


def test_nothing_is_said_of_a_source_that_a_graph_is_no_form_of() -> None:
    other = Graph("other").tensor("a", 1, "output").op("f", writes=["a"])
    found = assess(Plan(other, TWO, [("compute", "f")], {}, False, 1, 1, "optimal", "", vector()), seconds=10)
    assert found.unverified == ("source",)
    assert (found.bound, found.status) == (1, "optimal")  # of its own graph


def test_what_meta_says_of_tiles_is_not_believed() -> None:
    graph = vector()
    tiled = pb.tile(graph, "i", 2)
    wild = [
        {"tile": {"of": "x", "at": {"i": [0, 1]}}}, {"tile": {"of": "x", "at": {"j": [0, 2]}}},
        {"tile": {"of": "x", "at": {"i": [4, 2]}}}, {"tile": 5}, {},
    ]  # fmt: skip
    for meta in wild:
        tensors = [msgspec.structs.replace(tensor, meta=meta) for tensor in tiled.tensors]
        changed = Graph(tiled.name, tiled.unit, tensors, tiled.ops, tiled.meta)
        form = form_in(changed, graph)
        assert form is None or form == tiled
    endless = Graph("g").tensor("x", 2**40, "input", axes=[("i", 2**40)]).op("f", ["x"])
    one = Graph("h").tensor("x", 1, "input", axes=[("i", 1)], meta={"tile": {"of": "x", "at": {"i": [0, 1]}}})
    assert form_in(one.op("f", ["x"]), endless) is None


def test_sums_in_another_order_are_a_form() -> None:
    graph = pb.workloads.matmul(2, 2, 2)
    sums = Sums.of(graph)
    assert sums is not None
    assert form_in(sums.in_order([3, 1, 2, 0, 7, 5, 4, 6]), graph) is not None
    assert form_in(sums.in_order([3, 1, 2, 0, 7, 5, 4, 6]), pb.workloads.matmul(2, 2, 3)) is None


def _mutated(rng: random.Random, graph: Graph) -> Graph:
    """Return the graph with one thing about it changed."""
    tensors, ops = list(graph.tensors), list(graph.ops)
    place, at = rng.randrange(len(tensors)), rng.randrange(len(ops))
    kind = rng.randrange(6)
    if kind == 0:
        tensors[place] = msgspec.structs.replace(tensors[place], size=tensors[place].size + 1, axes=None)
    elif kind == 1 and tensors[place].kind in ("temp", "output"):
        tensors[place] = msgspec.structs.replace(
            tensors[place], kind="temp" if tensors[place].kind == "output" else "output"
        )
    elif kind == 2:
        ops[at] = msgspec.structs.replace(ops[at], cost=ops[at].cost + 1)
    elif kind == 3 and ops[at].reads:
        ops[at] = msgspec.structs.replace(ops[at], reads=ops[at].reads[1:])
    elif kind == 4:
        ops[at] = msgspec.structs.replace(ops[at], once=not ops[at].once)
    else:
        ops = ops[:at] + ops[at + 1 :]
    return Graph(graph.name, graph.unit, tensors, ops, graph.meta)


def attack_forms(seed: int) -> int:
    """Forms are known as such, and with anything changed they are not; returns how many were changed."""
    rng = random.Random(seed)
    graph, changed = random_tilable(rng), 0
    for form, _ in transforms(rng, graph, 3):
        for _ in range(4):
            try:
                other = _mutated(rng, form)
                _ = other.dataflow
            except InputError:
                continue
            if other.to_file() != form.to_file():
                assert form_in(other, graph) is None, f"seed {seed}"
                changed += 1
    return changed


def test_forms_with_anything_changed_are_none() -> None:
    assert sum(attack_forms(seed) for seed in range(40)) > 200


def attack_starts(seed: int) -> bool:
    """Tiles start anywhere: what is stated of a plan is no more than the optimum of its own problem."""
    rng = random.Random(seed)
    graph = (
        vector()
        if seed % 3
        else Graph("sum").tensor("x", 3, "input", axes=[("i", 3)]).tensor("y", 1, "output").op("f", ["x"], ["y"])
    )
    tiled = pb.tile(graph, "i", rng.choice([1, 2]))
    levels = (
        Level("near", rng.randint(0, 3), rng.randint(0, 3), capacity=rng.randint(1, 5)),
        Level("far", rng.randint(3, 9), 5),
    )
    machine = Machine("two", "float32", levels, operands=rng.choice(["any", "fastest"]))
    starts = {t.name: rng.choice(["near", "far", ["near", "far"]]) for t in tiled.tensors if t.kind == "input"}
    starts = {name: where for name, where in starts.items() if rng.random() < 0.7}
    try:
        best = NaiveGame(tiled, machine, False, starts).solve(20_000)
        plan = pb.solve(tiled, machine, start=starts, steady=False, tile="none", time_limit=1, threads=1)
    except (PebblerError, TooBig):
        return False
    said = Plan(tiled, machine, plan.moves, starts, False, plan.energy, 1, "bounded", "", graph)
    found = assess(said, seconds=10)
    assert best is not None, f"seed {seed}"
    assert found.bound is None or found.bound <= best, f"seed {seed}: {found.bound} is above {best}"
    return True


def test_bounds_of_tiles_that_start_anywhere() -> None:
    assert sum(attack_starts(seed) for seed in range(25)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_forms_and_starts_in_many_cases(part: int) -> None:
    assert sum(attack_forms(seed) for seed in range(1_000 + 100 * part, 1_100 + 100 * part)) > 400
    assert sum(attack_starts(seed) for seed in range(1_000 + 60 * part, 1_060 + 60 * part)) > 20
