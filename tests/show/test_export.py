"""Exports: what other tools read is what the referee says."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings

from pebbler import machine, workloads
from pebbler.errors import InputError
from pebbler.game.plan import Plan
from pebbler.notes import note_order
from pebbler.referee.judgement import check
from pebbler.show.export import TABLES, export, lifetimes, table_of, trace_events
from strategies import generators, random_graph, random_machine, random_plan


@pytest.fixture
def plan() -> Plan:
    return Plan.in_order(workloads.note_mlp(), machine("notes-recency"), note_order("optimal"))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_adds_up_to_the_energy(plan: Plan, tmp_path: Path, name: str) -> None:
    export(plan, tmp_path / "table.csv", table=name)
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(float(row["energy"]) for row in rows) == check(plan).energy


def test_moves_carry_levels_and_running_energy() -> None:
    explicit = Plan(
        workloads.chain(1),
        machine("red-blue"),
        [
            ("copy", "N0", "slow", "fast"),
            ("compute", "c1"),
            ("compute", "b1"),
            ("drop", "N0", "slow"),
            ("compute", "b0"),
        ],
    )
    columns = table_of(explicit, "moves").columns
    assert columns["level"] == ["slow", None, None, "slow", None]
    assert columns["to"][0] == "fast"
    assert columns["energy_so_far"] == [100, 101, 102, 102, 103]


def test_an_illegal_plan_has_no_energies_from_its_illegal_move_on() -> None:
    broken = Plan(workloads.chain(1), machine("red-blue"), [("copy", "N0", "slow", "fast"), ("compute", "b0")])
    assert table_of(broken, "moves").columns["energy"] == [100, None]
    cached = Plan.in_order(workloads.note_mlp(), machine("notes-recency"), note_order("fused"))
    assert set(table_of(cached, "moves").columns["energy"]) == {None}


def test_names_survive_csv_whatever_is_in_them(tmp_path: Path) -> None:
    from pebbler.game.graph import Graph

    graph = Graph("odd", unit="pebble")
    graph.tensor('a,"b"\nc', 1, kind="output")
    graph.op("é;\t", writes=['a,"b"\nc'])
    export(Plan.in_order(graph, machine("red-blue")), tmp_path / "t.csv", table="tensors")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        assert [row["tensor"] for row in csv.DictReader(file)] == ['a,"b"\nc']


def test_parquet_holds_the_same_table_or_says_what_it_needs(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "pyarrow" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(InputError, match="pip install pyarrow"):
            export(plan, tmp_path / "t.parquet")
        monkeypatch.delitem(sys.modules, "pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    export(plan, tmp_path / "t.parquet", table="moves")
    found = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    expected = table_of(plan, "moves").columns
    assert found["subject"] == expected["subject"]
    assert found["energy"] == expected["energy"]


def test_wrong_requests_say_what_would_be_right(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        export(plan, tmp_path / "x.xlsx")
    with pytest.raises(InputError, match="moves"):
        export(plan, tmp_path / "x.csv", table="move")
    with pytest.raises(InputError, match="move or energy"):
        trace_events(plan, "time")  # type: ignore[arg-type]


@settings(max_examples=60)
@given(generators)
def test_slices_are_the_lifetimes_and_never_overlap_in_a_lane(rng) -> None:
    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph))
    if plan is None:
        return
    judgement = check(plan)
    lives = lifetimes(plan)
    sizes = graph.dataflow.value_size
    used: Counter[tuple[int, int]] = Counter()
    for life in lives:
        for step in range(life.begin, len(plan.moves) + 1 if life.end is None else life.end):
            used[life.level, step] += int(sizes[life.value])
    for level, name in enumerate(plan.machine.names):
        assert max((units for (at, _), units in used.items() if at == level), default=0) == judgement.peak[name]
    for clock in ("move", "energy"):
        events = json.loads(json.dumps(trace_events(plan, clock)))["traceEvents"]
        slices = sorted((e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "value")
        assert len(slices) == len(lives)
        for one, other in pairwise(slices):
            assert one[:2] != other[:2] or other[2] >= one[3] - 1e-9
        totals = [e["args"] for e in events if e["name"] == "energy so far"]
        assert not totals or next(iter(totals[-1].values())) == pytest.approx(judgement.energy)
