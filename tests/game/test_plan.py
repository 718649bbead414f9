"""Plans: files, names to numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.moves import COMPUTE, COPY, DROP, Compute, Copy, Drop
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.workloads import chain, mlp, note_mlp
from strategies import generators, random_graph, random_machine, random_plan


def small(**more) -> Plan:
    moves = [("compute", "c1"), ("compute", "b1"), ("compute", "b0")]
    return Plan(chain(1), machine("red-blue"), moves, start={"N0": "fast"}, **more)


def test_a_plan_survives_its_file(tmp_path):
    plan = small(energy=3.0, bound=3, status="optimal", proof="counted", source=chain(2), meta={"by": "hand"})
    plan.save(tmp_path / "p.json")
    loaded = Plan.load(tmp_path / "p.json")
    assert loaded.moves == plan.moves
    assert (loaded.graph, loaded.machine, loaded.start, loaded.steady) == (plan.graph, plan.machine, plan.start, False)
    assert (loaded.energy, loaded.bound, loaded.status, loaded.proof) == (3, 3, "optimal", "counted")
    assert (loaded.source, loaded.meta) == (chain(2), {"by": "hand"})
    assert check(loaded).energy == 3
    text = json.loads((tmp_path / "p.json").read_text())
    assert text["format"] == "pebbler-plan-1"
    assert text["energy"] == 3
    assert text["machine"]["level"][0] == {"name": "fast", "capacity": 11, "read": 0, "write": 0}
    assert text["moves"][0] == ["compute", "c1"]


@given(generators)
def test_random_plans_survive_json_and_keep_their_judgement(rng):
    import tempfile

    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph))
    if plan is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        plan.save(f"{folder}/p.json")
        again = Plan.load(f"{folder}/p.json")
    assert check(again).to_dict() == check(plan).to_dict()


def test_steady_is_the_default_of_graphs_that_update_params():
    assert Plan.in_order(mlp(), machine("notes")).steady
    assert Plan.in_order(note_mlp(), machine("notes")).steady
    assert not small().steady
    assert not Plan.in_order(mlp(), machine("notes"), steady=False).steady


def test_gap():
    assert small().gap is None
    assert small(energy=3, bound=3).gap == 0
    assert small(energy=3, bound=2).gap == 0.5
    assert small(energy=3, bound=0).gap == float("inf")


def test_moves_as_numbers():
    plan = Plan(
        chain(1),
        machine("red-blue"),
        [("compute", "c1"), ("compute", "b1", "fast"), ("copy", "N0", "slow", "fast"), ("drop", "N1", "slow")],
    )
    moves = plan.moves
    assert moves.kind.tolist() == [COMPUTE, COMPUTE, COPY, DROP]
    assert moves.subject.tolist() == [0, 1, 0, 1]
    assert moves.level.tolist() == [0, 0, 1, 1]
    assert moves.to.tolist() == [0, 0, 0, 0]
    assert moves.order.tolist() == [0, 1]
    assert moves == [Compute("c1"), Compute("b1"), Copy("N0", "slow", "fast"), Drop("N1", "slow")]
    assert moves[1:] == list(moves)[1:]
    assert moves[-1] == Drop("N1", "slow")
    assert moves != moves[:3]
    assert plan.with_moves(moves.words()).moves == moves


def test_moves_keep_their_meaning_on_another_machine():
    plan = Plan(chain(1), machine("red-blue"), [("copy", "N0", "slow", "fast")])
    levels = (Level("tiny", 0, 0, capacity=1), Level("fast", 0, 0, capacity=9), Level("slow", 0, 0))
    moved = replace(plan, machine=Machine("deep", "pebble", levels))
    assert moved.moves == plan.moves
    assert (moved.moves.level.tolist(), moved.moves.to.tolist()) == ([2], [1])


@pytest.mark.parametrize(
    ("move", "message"),
    [
        ((), r"moves\[1\]: expected one of"),
        (("fly", "c1"), r"moves\[1\]: expected one of .*; got \[fly, c1\]"),
        (("compute",), r'moves\[1\]: expected \["compute", op\]'),
        (("compute", "c1", "fast", "slow"), r'moves\[1\]: expected \["compute", op\]'),
        (("copy", "N0", "fast"), r'moves\[1\]: expected \["copy", tensor, from, to\]; got \[copy, N0, fast\]'),
        (("drop", "N0"), r'moves\[1\]: expected \["drop", tensor, level\]'),
        (("drop", "N0", "fast", "slow"), r'moves\[1\]: expected \["drop"'),
        (("compute", "C1"), r"moves\[1\]: graph chain:length=1 has no op C1 \(did you mean c1"),
        (("compute", "c1", "fats"), r"moves\[1\]: machine red-blue has no level fats \(did you mean fast"),
        (("copy", "c1", "fast", "slow"), r"moves\[1\]: graph chain:length=1 has no tensor c1"),
        (("copy", "N0", "fast", "moon"), r"moves\[1\]: machine red-blue has no level moon"),
        (("drop", "N0", "moon"), r"moves\[1\]: machine red-blue has no level moon"),
        (("compute", 5), r"moves\[1\]: expected"),
        (("x" * 5000, "\n") * 500, r"moves\[1\]: expected one of"),
    ],
)
def test_moves_of_what_does_not_exist_are_refused_with_their_place(move, message):
    with pytest.raises(InputError, match=message) as caught:
        Plan(chain(1), machine("red-blue"), [("compute", "c1"), move], start={"N0": "fast"})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"N1": "fast"}, "start: N1 is of kind temp; only inputs and params exist at the start"),
        ({"N0": []}, "start: N0 must be in at least one level"),
        ({"N0": "moon"}, "start: machine red-blue has no level moon"),
        ({"N0": ["fast", "moon"]}, "start: machine red-blue has no level moon"),
        ({"Q": "fast"}, "start: graph chain:length=1 has no tensor Q"),
    ],
)
def test_wrong_starts_are_refused(start, message):
    with pytest.raises(InputError, match=message):
        check(Plan(chain(1), machine("red-blue"), [], start=start))


def test_a_start_in_several_levels():
    plan = Plan(chain(1), machine("red-blue"), [], start={"N0": ["slow", "fast", "fast"]})
    assert plan.start_levels() == {0: [0, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(format="pebbler-plan-2"), "format: pebbler-plan-2 is not one of pebbler-plan-1"),
        (lambda p: p.pop("moves"), "missing required field `moves`"),
        (lambda p: p.update(colour="red"), "unknown field `colour`"),
        (lambda p: p.update(moves=[["compute", 3]]), r"moves\[0\]\[1\]: expected text, got a whole number"),
        (lambda p: p.update(steady="yes"), "steady: expected true or false or null, got text"),
        (lambda p: p.update(energy="336"), "energy: expected a number or null, got text"),
        (lambda p: p.update(status="best"), "status: best is not one of bounded, heuristic, optimal"),
        (lambda p: p.update(start={"N0": 1}), r"start\[...\]: expected"),
        (
            lambda p: p["graph"]["ops"][0].update(reads=["Q"]),
            r"graph: ops\[0\] \(c1\): reads Q, which no tensor declares",
        ),
        (lambda p: p.update(source=p["graph"] | {"ops": [{"name": "f"}]}), r"source: ops\[0\] \(f\): reads and writes"),
        (
            lambda p: p["machine"]["level"][0].update(capacity=0),
            r"machine.level\[0\].capacity: expected a whole number >= 1",
        ),
        (lambda p: p["machine"]["level"][1].update(name="fast"), r"level\[1\] \(fast\): the name is taken"),
    ],
)
def test_wrong_plan_files_are_refused_with_the_place(tmp_path, change, message):
    plan = json.loads(small().to_json())
    change(plan)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(plan))
    with pytest.raises(InputError, match=message) as caught:
        Plan.load(path)
    assert str(caught.value).startswith(str(path))


def test_a_plan_says_what_its_costs_are_counted_in():
    assert small().energy_unit == "units"
    assert small(meta={"cost_unit": "ns"}).energy_unit == "ns"
    assert small(meta={"cost_unit": 7}).energy_unit == "units"
    assert Plan.in_order(note_mlp(), machine("notes-recency")).energy_unit == "pJ"
