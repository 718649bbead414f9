"""A plan in other tools' formats: a trace for Perfetto or chrome://tracing, and tables as CSV or Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import csv_text, int_if_whole, write_bytes, write_text
from pebbler.game.dataflow import NONE
from pebbler.game.moves import COMPUTE, KINDS
from pebbler.game.plan import Plan
from pebbler.referee.judgement import Judgement, check

__all__ = ["TABLES", "PlanTable", "export", "lifetimes", "table_of", "trace_events"]

TimeAxis = Literal["move", "energy"]
TABLES = ("moves", "tensors", "ops", "levels")


@dataclass(frozen=True)
class PlanTable:
    """Named columns of equal length."""

    columns: dict[str, list[Any]]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        return zip(*self.columns.values(), strict=True)


@dataclass(frozen=True)
class Lifetime:
    """A value in a level: from the start (0) or the move `begin` until the move `end` removes it, or to the end (None)."""

    value: int
    level: int | None  # None where a cache places values by itself
    begin: int
    end: int | None


def export(plan: Plan | str | Path, path: str | Path, *, table: str = "moves", clock: TimeAxis = "move") -> None:
    """Write a plan as a trace (.json, for Perfetto or chrome://tracing) or one of its tables (.csv, .parquet).

    In a trace one unit of time is one move, or with `clock="energy"` one unit of energy; both are written as microseconds. Tables:
    moves, tensors, ops, levels. Parquet needs pyarrow.

    >>> import tempfile
    >>> from pebbler import machine, workloads
    >>> plan = Plan.in_order(workloads.chain(1), machine("red-blue"), start={"N0": "fast"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(plan, Path(folder, "ops.csv"), table="ops")
    ...     print(Path(folder, "ops.csv").read_text().splitlines()[1])
    c1,1,1
    """
    if not isinstance(plan, Plan):
        plan = Plan.load(plan)
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        write_bytes(path, msgspec.json.encode(trace_events(plan, clock)) + b"\n")
    elif suffix == ".csv":
        found = table_of(plan, table)
        write_text(path, csv_text(list(found.columns), found.rows()))
    elif suffix == ".parquet":
        write_bytes(path, _parquet(table_of(plan, table)))
    else:
        raise InputError(f"{path}: a plan is exported as .json (a trace), .csv or .parquet (a table)")


def table_of(plan: Plan, name: str) -> PlanTable:
    """Return one table of a plan as the referee judges it; energies are in the graph's energy unit.

    >>> from pebbler import machine, workloads
    >>> table_of(Plan.in_order(workloads.note_mlp(), machine("notes-recency")), "levels").columns["energy"]
    [50, 300040, 10704400, 0]
    """
    if name not in TABLES:
        raise InputError(f"no table {quoted(name)}{near_matches(name, TABLES)}")
    judgement = check(plan)
    graph, machine = plan.graph, plan.machine.in_unit(plan.graph.unit)
    if name == "tensors":
        return PlanTable({
            "tensor": list(graph.tensor_names),
            "kind": [tensor.kind for tensor in graph.tensors],
            "size": graph.dataflow.tensor_size.tolist(),
            "energy": list(judgement.tensors.values()),
        })  # fmt: skip
    if name == "ops":
        runs = np.bincount(plan.moves.order, minlength=len(graph.ops)).tolist()
        return PlanTable({"op": list(graph.op_names), "runs": runs, "energy": list(judgement.ops.values())})
    if name == "levels":
        return PlanTable({
            "level": machine.names,
            "capacity": [level.capacity for level in machine.level],
            "read_price": [int_if_whole(level.read) for level in machine.level],
            "write_price": [int_if_whole(level.write) for level in machine.level],
            "peak": [judgement.peak.get(level) for level in machine.names],
            "energy": list(judgement.levels.values()),
        })  # fmt: skip
    return _moves(plan, judgement)


def lifetimes(plan: Plan) -> list[Lifetime]:
    """Return the lifetimes of all values by level, up to the first illegal move; on a cache machine, from first write to last use.

    >>> from pebbler import machine, workloads
    >>> plan = Plan.in_order(workloads.chain(1), machine("red-blue"), start={"N0": "fast"})
    >>> [(life.value, life.begin, life.end) for life in lifetimes(plan)]
    [(0, 0, None), (1, 1, None), (2, 2, None), (3, 3, None)]
    """
    judgement = check(plan)
    count = len(plan.moves) if judgement.move is None else judgement.move - 1
    flow, replay = plan.graph.dataflow, plan.replay()
    explicit = plan.machine.management == "explicit"
    since = dict.fromkeys(replay.start, 0)
    last: dict[int, int] = {}  # per value: the last move that reads it
    found: list[tuple[int, int, int, int | None]] = []
    for i, step in enumerate(islice(replay, count), 1):
        last |= {value: i for value, _ in step.reads}
        found += [(value, level, since.pop((value, level)), i) for value, level in step.removed]
        since |= dict.fromkeys(step.added, i)
    for (value, level), begin in since.items():
        stays = explicit or flow.value_must_survive[value] or flow.value_maker[value] == NONE
        found.append((value, level, begin, None if stays else max(begin, last.get(value, begin))))
    # A cache places values by itself, so there a lifetime is in no level.
    return [
        Lifetime(value, level if explicit else None, begin, end)
        for value, level, begin, end in sorted(found, key=lambda life: (life[2], life[0], life[1]))
    ]


def trace_events(plan: Plan, clock: TimeAxis = "move") -> dict[str, Any]:
    """Return a plan in the Trace Event Format: a process per level with a slice per value in it, the ops, and running sums.

    >>> from pebbler import machine, workloads
    >>> found = trace_events(Plan.in_order(workloads.note_mlp(), machine("notes-recency")))
    >>> [event["name"] for event in found["traceEvents"] if event["ph"] == "X"][:2]
    ['fwd_linear1', 'fwd_relu']
    """
    if clock not in ("move", "energy"):
        raise InputError(f"clock must be move or energy, got {quoted(clock)}")
    flow, machine = plan.graph.dataflow, plan.machine.in_unit(plan.graph.unit)
    judgement = check(plan)
    paid = judgement.step_energy.tolist()
    paid += [0.0] * (len(plan.moves) - len(paid))
    running = [0.0, *accumulate(paid)]
    when = [float(i) for i in range(len(plan.moves) + 1)] if clock == "move" else running
    explicit = machine.management == "explicit"
    groups = machine.names if explicit else ["values"]
    events: list[dict[str, Any]] = [_name("process_name", 0, 0, "moves")]
    events += [_name("process_name", i + 1, 0, f"level {name}" if explicit else name) for i, name in enumerate(groups)]
    events += [_sort(i, i) for i in range(len(groups) + 1)]
    moves = plan.moves
    for i, (kind, subject) in enumerate(zip(moves.kind.tolist(), moves.subject.tolist(), strict=True)):
        what = flow.op_names[subject] if kind == COMPUTE else f"{KINDS[kind]} {flow.tensor_names[subject]}"
        args = {"move": i + 1, "energy": int_if_whole(paid[i])}
        lane = 0 if kind == COMPUTE else 1
        events.append(_slice(what, 0, lane, when[i], when[i + 1], KINDS[kind], args))
        events.append(
            {
                "ph": "C",
                "name": "energy so far",
                "pid": 0,
                "ts": when[i + 1],
                "args": {plan.energy_unit: int_if_whole(running[i + 1])},
            }
        )
    events += _memory_events(plan, when)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "graph": plan.graph.name,
            "machine": machine.name,
            "clock": "1 µs is 1 move" if clock == "move" else f"1 µs is 1 {plan.energy_unit}",
            "energy": judgement.energy,
            "legal": judgement.legal,
        },
    }


def _memory_events(plan: Plan, when: list[float]) -> Iterator[dict[str, Any]]:
    """Yield a slice per lifetime, in lanes so that none overlap, and the room taken in each level."""
    flow = plan.graph.dataflow
    lanes: dict[int, list[int]] = {}  # per process: the move at which each lane becomes free
    room: dict[int, dict[int, int]] = {}
    for life in lifetimes(plan):
        process, size = 1 + (life.level or 0), int(flow.value_size[life.value])
        free = lanes.setdefault(process, [])
        lane = next((i for i, end in enumerate(free) if end <= life.begin), len(free))
        if lane == len(free):
            free.append(0)
            yield _name("thread_name", process, lane, f"slot {lane + 1}")
        stop = len(plan.moves) + 1 if life.end is None else life.end
        free[lane] = max(stop, life.begin + 1)
        begin, end = when[life.begin], when[min(stop, len(plan.moves))]
        name = flow.tensor_names[flow.value_tensor[life.value]]
        args = {"size": size, "unit": plan.graph.unit, "version": int(flow.value_version[life.value])}
        yield _slice(name, process, lane, begin, end, "value", args)
        change = room.setdefault(process, {})
        change[life.begin] = change.get(life.begin, 0) + size
        if life.end is not None:
            change[life.end] = change.get(life.end, 0) - size
    for process, change in sorted(room.items()):
        steps = sorted(change)
        for step, total in zip(steps, accumulate(change[step] for step in steps), strict=True):
            yield {"ph": "C", "name": "room taken", "pid": process, "ts": when[step], "args": {plan.graph.unit: total}}


def _moves(plan: Plan, judgement: Judgement) -> PlanTable:
    paid: list[float | None] = [int_if_whole(float(energy)) for energy in judgement.step_energy]
    if not judgement.legal:
        known = 0 if judgement.move is None or plan.machine.management != "explicit" else judgement.move - 1
        paid = paid[:known]
    paid += [None] * (len(plan.moves) - len(paid))
    running = accumulate(energy for energy in paid if energy is not None)
    told = [next(running, None) if energy is not None else None for energy in paid]
    rows = [(*words, None, None)[:4] for words in plan.moves.words()]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("kind", "subject", "level", "to"))}
    return PlanTable({
        "move": list(range(1, len(plan.moves) + 1)),
        **columns,
        "energy": paid,
        "energy_so_far": [int_if_whole(energy) for energy in told],
    })  # fmt: skip


def _parquet(table: PlanTable) -> bytes:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install pyarrow, or export as .csv") from None
    numbers = {"energy", "energy_so_far", "read_price", "write_price"}
    columns = {
        name: pyarrow.array(values, pyarrow.float64() if name in numbers else None)
        for name, values in table.columns.items()
    }
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _slice(name: str, pid: int, tid: int, begin: float, end: float, kind: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin, "args": args}


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _sort(pid: int, index: int) -> dict[str, Any]:
    return {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": index}}
