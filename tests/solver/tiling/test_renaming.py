"""Names are the user's: whatever tensors and ops are called, the same plan is found."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pebbler as pb
from pebbler.game.graph import Graph
from pebbler.game.tile_meta import origin
from pebbler.run.numbers import verify
from pebbler.solver.problem import Impossible
from pebbler.solver.tiling.transform_space import Transform, TransformSpace
from strategies import generators, random_graph, random_tilable_graph

# Names that look like tiles, fused ops and each other, and any others.
names = st.one_of(
    st.from_regex(r"\A[ab](\[[01]\]){0,2}(\+[ab](\[0\])?)?'?\Z"),
    st.text(alphabet="ab[]01+', é名Z", min_size=1, max_size=6),
)
SMALL = (pb.Level("a", 1, 1, 8), pb.Level("b", 4, 5, 40), pb.Level("c", 30, 20))
MACHINES = [
    pb.Machine("caches", "float32", SMALL, "lru", "any"),
    pb.Machine("explicit", "float32", SMALL, "explicit", "any"),
]


def renamed(graph: Graph, tensors: dict[str, str], ops: dict[str, str]) -> Graph:
    """The graph with other names for its tensors and ops, and nothing else changed."""
    return Graph(
        graph.name,
        graph.unit,
        [
            msgspec.structs.replace(one, name=tensors[one.name], overwrites=one.overwrites and tensors[one.overwrites])
            for one in graph.tensors
        ],
        [
            msgspec.structs.replace(
                one,
                name=ops[one.name],
                reads=tuple(tensors[name] for name in one.reads),
                writes=tuple(tensors[name] for name in one.writes),
                meta={**one.meta, "adds": [tensors[name] for name in one.meta["adds"]]}
                if "adds" in one.meta
                else one.meta,
            )
            for one in graph.ops
        ],
        graph.meta,
    )


def mapping(old: list[str], new: list[str]) -> dict[str, str]:
    return dict(zip(old, new[: len(old)], strict=True))


def drawn(graph: Graph, data: st.DataObject) -> tuple[Graph, dict[str, str], dict[str, str]]:
    """A random renaming of a graph: of anything to anything, as long as no two get the same name."""
    found = []
    for old in ([one.name for one in graph.tensors], [one.name for one in graph.ops]):
        new = data.draw(st.lists(names, min_size=len(old), max_size=len(old), unique=True))
        found.append(mapping(old, new))
    return renamed(graph, *found), found[0], found[1]


def assert_same_graph(one: Graph, other: Graph, tensors: dict[str, str], ops: dict[str, str]) -> None:
    """Two forms of a graph that differ in names only; `tensors` and `ops` are the renaming of the source."""
    flow, same = one.dataflow, other.dataflow
    for field in ("value_tensor", "value_size", "value_maker", "storage", "op_cost"):
        assert getattr(flow, field).tolist() == getattr(same, field).tolist()
    for rows in ("op_reads", "op_writes"):
        assert getattr(flow, rows).items.tolist() == getattr(same, rows).items.tolist()
    assert [tensors[origin(t)] for t in one.tensors] == [origin(t) for t in other.tensors]
    for a, b in zip(one.ops, other.ops, strict=True):
        assert a.meta.get("tile", {}).get("at") == b.meta.get("tile", {}).get("at")
        assert origin(b) == ops.get(origin(a), origin(b))


def assert_same(one: pb.Plan, other: pb.Plan, tensors: dict[str, str], ops: dict[str, str]) -> None:
    """Two plans that differ in names only."""
    assert (one.energy, one.bound, one.status) == (other.energy, other.bound, other.status)
    for field in ("kind", "subject", "level", "to"):
        assert getattr(one.moves, field).tolist() == getattr(other.moves, field).tolist()
    assert_same_graph(one.graph, other.graph, tensors, ops)
    index, other_index = one.graph.tensor_index, other.graph.tensor_index
    assert {index(name): where for name, where in one.start.items()} == {
        other_index(name): where for name, where in other.start.items()
    }


@settings(max_examples=40)
@given(generators, st.data(), st.booleans())
def test_transforms_are_made_and_ranked_alike_under_other_names(
    rng: random.Random, data: st.DataObject, training: bool
) -> None:
    graph = pb.workloads.get("mlp:n=2,hidden=3,batch=2") if training else random_tilable_graph(rng)
    other, tensors, ops = drawn(graph, data)
    spaces = TransformSpace(graph), TransformSpace(other)
    found, expected = [], []
    for _ in range(4):
        sizes = {axis: rng.randrange(1, 4) for axis in spaces[0].axes if rng.random() < 0.7}
        fused = [temp for temp in spaces[0].temps if rng.random() < 0.7]
        reverse = [op.name for op in graph.ops if rng.random() < 0.5]
        rng.shuffle(fused)
        transform = spaces[0].effective(Transform(fused=tuple(fused), reverse=tuple(reverse)).with_sizes(**sizes))
        again = Transform(fused=tuple(map(tensors.get, fused)), reverse=tuple(map(ops.get, reverse))).with_sizes(
            **sizes
        )
        again = spaces[1].effective(again)
        made = spaces[0].transformed(transform), spaces[1].transformed(again)
        assert (made[0] is None) == (made[1] is None)
        if made[0] is not None:
            assert_same_graph(*made, tensors, ops)
        assert [(tensors[temp], at) for temp, at in spaces[0].recomputable(transform)] == list(
            spaces[1].recomputable(again)
        )
        found.append(spaces[0].rank(transform))
        expected.append(spaces[1].rank(again))
    assert found == expected


def solve_renamed(graph: Graph, data: st.DataObject) -> list[pb.Plan]:
    """Solve a graph by its own names and by others on every machine; return the latter plans."""
    other, tensors, ops = drawn(graph, data)
    found = []
    for machine in MACHINES:
        plans = [pb.solve(one, machine, time_limit=None, quick=True) for one in (graph, other)]
        assert_same(*plans, tensors, ops)
        found.append(plans[1])
    return found


steps = st.sampled_from(["mlp:n=2,hidden=6", "mlp:n=2,hidden=4,batch=2", "deep-mlp:n=2,hidden=3,layers=2"])


@pytest.mark.slow
@settings(max_examples=5)
@given(generators, st.data())
def test_a_tilable_graph_with_other_names_gets_the_same_plan(rng: random.Random, data: st.DataObject) -> None:
    solve_renamed(random_tilable_graph(rng), data)


@pytest.mark.slow
@settings(max_examples=2)
@given(st.data(), steps)
def test_a_training_step_with_other_names_gets_the_same_plan(data: st.DataObject, spec: str) -> None:
    for plan in solve_renamed(pb.workloads.get(spec), data):
        assert verify(plan).largest_difference <= 1e-12


@pytest.mark.slow
@settings(max_examples=60)
@given(generators, st.data(), st.none() | steps)
def test_many_graphs_with_other_names_get_the_same_plan(
    rng: random.Random, data: st.DataObject, spec: str | None
) -> None:
    solve_renamed(random_tilable_graph(rng) if spec is None else pb.workloads.get(spec), data)


@settings(max_examples=60)
@given(generators, st.data(), st.sampled_from(["one", "two"]))
def test_a_small_graph_with_other_names_gets_the_same_plan(
    rng: random.Random, data: st.DataObject, levels: str
) -> None:
    graph = random_graph(rng, 7)
    room = rng.randint(1, int(graph.dataflow.value_size.sum()) + 1)
    fast, slow = pb.Level("fast", 0, 0, capacity=room), pb.Level("slow", 3, 5)
    machine = pb.Machine(levels, "pebble", (fast,) if levels == "one" else (fast, slow))
    other, tensors, ops = drawn(graph, data)
    try:
        plan = pb.solve(graph, machine, time_limit=None)
    except Impossible:
        with pytest.raises(Impossible):
            pb.solve(other, machine, time_limit=None)
        return
    assert_same(plan, pb.solve(other, machine, time_limit=None), tensors, ops)


@pytest.mark.parametrize(
    "rename",
    [
        pytest.param(lambda i, name: f"{name}[0]", marks=pytest.mark.slow, id="brackets"),
        pytest.param(lambda i, name: f"{name[0]}[{i}]", marks=pytest.mark.slow, id="numbers"),
        pytest.param(lambda i, name: f"z{999 - i}", id="reversed"),
        pytest.param(lambda i, name: f" {name} ", marks=pytest.mark.slow, id="spaces"),
    ],
)
def test_the_notes_step_costs_the_same_by_any_name(rename, flagship: pb.Plan) -> None:
    graph = pb.workloads.mlp(n=20, hidden=1000)
    tensors = {one.name: rename(i, one.name) for i, one in enumerate(graph.tensors)}
    ops = {one.name: rename(i, one.name) for i, one in enumerate(graph.ops)}
    plan = pb.solve(renamed(graph, tensors, ops), "notes", time_limit=None, quick=True)
    assert_same(flagship, plan, tensors, ops)
    assert plan.energy == 4_008_530
