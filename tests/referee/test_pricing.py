"""What orders cost on caches, against slow twins, note 000's table and the design's figure."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_recency
import pebbler as pb
from naive_lru import lru_energy
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.plan import Plan
from pebbler.notes import note_order
from pebbler.referee.judgement import check
from pebbler.referee.pricing import price_recency
from pebbler.referee.touches import touch
from pebbler.trace.cache_analysis import analyse
from pebbler.trace.plan_trace import trace_of
from pebbler.workloads import note_mlp
from strategies import generators, programs, random_cache_machine, random_graph, random_order

PUBLISHED = {  # pJ: register, L1, L2, HBM
    "standard": (50, 300_040, 10_704_400, 0),
    "fused": (50, 340_080, 10_504_200, 0),
    "perlayer": (50, 340_080, 10_504_200, 0),
    "optimal": (55, 360_060, 10_404_200, 0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_note_000_by_level(name):
    graph = note_mlp()
    books = price_recency(graph, machine("notes-recency"), np.array([graph.op_index(op) for op in note_order(name)]))
    assert tuple(books.by_level) == PUBLISHED[name]
    assert naive_recency.price(graph, machine("notes-recency"), note_order(name)) == dict(
        zip(["register", "L1", "L2", "HBM"], PUBLISHED[name], strict=True)
    )


@given(generators)
def test_recency_is_its_twin(rng):
    graph = random_graph(rng, 10)
    small = random_cache_machine(rng, "recency")
    order = [graph.ops[op].name for op in random_order(rng, graph, war=rng.random() < 0.5)]
    for _ in range(rng.randint(0, 2)):  # some ops again, where that is legal
        order.insert(rng.randint(0, len(order)), rng.choice(order))
    judgement = check(Plan.in_order(graph, small, order), ignore_war=True)
    if judgement.legal:
        assert judgement.levels == naive_recency.price(graph, small, order)


def test_bytes_cost_what_floats_cost():
    floats = machine("notes-recency")
    graph = note_mlp()
    order = np.arange(15)
    # A machine given per byte is the same machine: four bytes make a float.
    assert price_recency(graph, floats.in_unit("byte"), order).by_level.sum() == 11_004_490


@given(programs(), st.integers(1, 4), st.sampled_from(["own", "reuse"]), st.booleans(), st.data())
def test_lru_price_equals_the_line_by_line_twin(
    program: tuple[pb.Graph, list[int]], line: int, allocator: str, steady: bool, data: st.DataObject
) -> None:
    graph, order = program
    sizes = data.draw(st.lists(st.integers(line, 12), min_size=0, max_size=3))
    prices = data.draw(st.lists(st.integers(0, 9), min_size=2 * len(sizes) + 2, max_size=2 * len(sizes) + 2))
    caps = [*sizes, None]
    reads, writes = prices[: len(caps)], prices[len(caps) :]
    levels = tuple(Level(f"L{i}", reads[i], writes[i], caps[i]) for i in range(len(caps)))
    machine = Machine("m", "float32", levels, management="lru", operands="any", allocator=allocator, line=line)  # type: ignore[arg-type]
    plan = pb.Plan.in_order(graph, machine, [graph.ops[i].name for i in order], steady=steady)
    judgement = pb.check(plan)
    runs = touch(graph, order, allocator, line)
    touches = []
    for begin, units, write in zip(runs.address.tolist(), runs.units.tolist(), runs.write.tolist(), strict=True):
        lines = Counter(unit // line for unit in range(begin, begin + units))
        touches += [(where, count, write) for where, count in sorted(lines.items())]
    assert judgement.legal
    assert judgement.energy == pytest.approx(lru_energy(touches, caps, reads, writes, line, steady))
    assert sum(judgement.levels.values()) == pytest.approx(judgement.energy)
    assert sum(judgement.tensors.values()) == pytest.approx(judgement.energy)
    assert sum(judgement.ops.values()) == pytest.approx(judgement.energy)
    pieces = list(trace_of(graph, order, allocator, line, chunk=data.draw(st.integers(1, 9))))
    if pieces:  # and `pebbler cache` prices the trace of a plan as `pebbler check` prices the plan
        assert analyse(pieces, machine=machine, steady=steady).energy == pytest.approx(judgement.energy)


def test_program_order_of_the_notes_step_costs_what_the_design_says() -> None:
    own = msgspec.structs.replace(pb.machine("notes"), allocator="own")
    judgement = pb.check(pb.Plan.in_order(pb.workloads.mlp(n=20, hidden=1000), own))
    assert judgement.energy == 12_843_490
