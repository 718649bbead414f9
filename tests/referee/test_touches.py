"""Addresses and `lru` pricing of orders, against line-by-line twins."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pebbler as pb
from naive_lru import lru_energy
from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine
from pebbler.referee.touches import touch
from pebbler.trace.analysis import analyse, trace_of


@st.composite
def programs(draw: st.DrawFn) -> tuple[pb.Graph, list[int]]:
    """A random program with in-place updates, and an order of it (program order, sometimes with an op run twice)."""
    graph = pb.Graph("random")
    count = draw(st.integers(1, 3))
    for i in range(count):
        graph.tensor(f"p{i}", draw(st.integers(0, 5)), kind=draw(st.sampled_from(["param", "input"])))
    alive = [f"p{i}" for i in range(count)]
    order: list[int] = []
    for i in range(draw(st.integers(1, 8))):
        reads = draw(st.lists(st.sampled_from(alive), max_size=3))
        if draw(st.booleans()):
            writes = [draw(st.sampled_from(alive))]
        else:
            graph.tensor(f"t{i}", draw(st.integers(0, 5)))
            alive.append(f"t{i}")
            writes = [f"t{i}"]
        graph.op(f"o{i}", reads, writes)
        order += [i] * (2 if draw(st.booleans()) and writes[0] not in reads and writes[0] == f"t{i}" else 1)
    return graph, order


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


@given(programs(), st.integers(1, 3), st.integers(1, 9))
def test_a_trace_in_pieces_lists_every_unit_of_every_run(
    program: tuple[pb.Graph, list[int]], line: int, chunk: int
) -> None:
    graph, order = program
    runs = touch(graph, order, "own", line)
    expected = [
        (unit, write, tensor, order[step])
        for begin, units, write, tensor, step in zip(
            *(getattr(runs, f).tolist() for f in runs.__dataclass_fields__), strict=True
        )
        for unit in range(begin, begin + units)
    ]
    pieces = list(trace_of(graph, order, "own", line, chunk=chunk))
    found = [
        row for p in pieces for row in zip(*(c.tolist() for c in (p.address, p.write, p.tensor, p.op)), strict=True)
    ]
    assert found == expected
    assert all(len(piece) == chunk for piece in pieces[:-1])


@given(programs(), st.integers(1, 3))
def test_reuse_never_gives_two_live_values_one_address(program: tuple[pb.Graph, list[int]], line: int) -> None:
    """Run the order on a plain memory of addresses: every read must find what was last written for that tensor."""
    graph, order = program
    flow = graph.dataflow
    touches = touch(graph, order, "reuse", line)
    memory: dict[int, tuple[int, int]] = {}
    stamp = {int(t): 0 for t in range(len(graph.tensors))}
    started = {int(flow.storage[t]) for t in np.flatnonzero(flow.start_value >= 0)}
    for i in range(len(touches.address)):
        root = int(flow.storage[touches.tensor[i]])
        for unit in range(int(touches.address[i]), int(touches.address[i] + touches.units[i])):
            if touches.write[i]:
                memory[unit] = (root, i)
            elif unit in memory or root not in started:
                assert memory[unit] == (root, stamp[root])
        if touches.write[i]:
            stamp[root] = i


def test_reuse_takes_less_memory_than_own_addresses() -> None:
    graph = pb.workloads.mlp(n=20, hidden=100)
    order = np.arange(len(graph.ops))
    extent = {}
    for allocator in ("own", "reuse"):
        touches = touch(graph, order, allocator)
        extent[allocator] = int((touches.address + touches.units).max())
    live = sum(t.size for t in graph.tensors if t.kind != "temp") + graph.tensor_named("dW1").size
    assert live <= extent["reuse"] < extent["own"] == sum(t.size for t in graph.tensors)


def test_program_order_of_the_notes_step_costs_what_the_design_says() -> None:
    own = msgspec.structs.replace(pb.machine("notes"), allocator="own")
    judgement = pb.check(pb.Plan.in_order(pb.workloads.mlp(n=20, hidden=1000), own))
    assert judgement.energy == 12_843_490


def test_a_trace_that_no_disk_holds_is_refused() -> None:
    graph = pb.Graph("huge")
    for i in range(3):
        graph.tensor(f"x{i}", 2**48, kind="input")
        graph.op(f"o{i}", reads=[f"x{i}"] * 2**14)
    with pytest.raises(InputError, match=f"huge: touches {3 * 2**62:,} units one by one"):
        next(trace_of(graph, range(3)))
