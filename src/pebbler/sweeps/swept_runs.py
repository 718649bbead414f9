"""The runs of a sweep: every combination of the values in its specification."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.files import require_no_pipe
from pebbler.game.amounts import number_text
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.machine import machine as find_machine
from pebbler.limits import beyond, limits
from pebbler.solver.recompute.recompute_problem import program_order_peak
from pebbler.sweeps.solve_task import SolveTask
from pebbler.sweeps.sweep_spec import RunOptions, SweepSpec
from pebbler.sweeps.swept_graphs import SweptGraph, count_graphs, find_graphs
from pebbler.sweeps.swept_run import SweptRun
from pebbler.sweeps.value_ranges import Amount, amounts_of

__all__ = ["list_runs"]

FASTEST = "fastest"


def list_runs(spec: SweepSpec, folder: Path, *, allow_code: bool = True) -> list[SweptRun]:
    """Return the runs of a spec in its own order; files are looked for in `folder`.

    Without `allow_code` a spec that names PyTorch steps is refused, before any of their code is imported.

    >>> runs = list_runs(SweepSpec(graphs="chain:length=4|5", capacity={"fast": "3..5"}, seed=[0, 1]), Path("."))
    >>> len(runs), runs[0].columns["capacity"], runs[-1].columns["graph"]
    (12, 3, 'chain:length=5')
    """
    each = _runs_per_graph(spec)
    count = each * count_graphs(spec, folder)
    if count > limits.runs:
        raise beyond("runs", f"this sweep has {number_text(count)} runs")
    found: dict[str, SweptRun] = {}
    carried = 0
    for graph in find_graphs(spec, folder):
        if graph.step is not None and not allow_code:
            raise InputError(
                f"{quoted(graph.step)} is Python code, and a spec runs none: with --allow-code (in Python, allow_code=True) it "
                "is imported and called as if you had written it"
            )
        data = b"" if graph.graph is None else graph.graph.to_json()
        carried += each * len(data)
        if carried > limits.graphs:
            raise beyond("graphs", f"the runs of this sweep carry graphs of {carried / 2**20:,.0f} MiB")
        for one in _runs_of(graph, data, spec, folder):
            found.setdefault(one.run, one)
    if not found:
        raise InputError("this sweep has no runs")
    return list(found.values())


def _runs_per_graph(spec: SweepSpec) -> int:
    """Return the largest number of runs per graph in a specification, without making any."""
    machines = len(spec.machines) if isinstance(spec.machines, list | tuple) else 1
    capacities = prod(len(amounts_of(given, f"capacity of {quoted(name)}")) for name, given in spec.capacity.items())
    budgets = 1 if spec.budget is None else len(amounts_of(spec.budget, "budget"))
    return max(1, machines * capacities, budgets) * spec.option_count()


def _runs_of(graph: SweptGraph, data: bytes, spec: SweepSpec, folder: Path) -> Iterator[SweptRun]:
    if graph.step is not None:
        from pebbler.sweeps.swept_steps import step_runs  # PyTorch is not everywhere

        yield from step_runs(graph, spec)
        return
    assert graph.graph is not None
    if spec.budget is not None and not spec.machines and not spec.capacity:
        raise InputError(f"{quoted(graph.name)} is no PyTorch step: budgets are for those, capacities for machines")
    for machine in _machines(spec, graph.graph, folder):
        for sized, columns in _sized(machine, spec, graph.graph):
            for options in spec.options():
                yield _solve_run(graph, data, sized, columns, options)


def _solve_run(
    graph: SweptGraph, data: bytes, machine: Machine, columns: dict[str, Any], options: RunOptions
) -> SweptRun:
    assert graph.graph is not None
    about = {
        "graph": graph.name, "unit": graph.graph.unit, "machine": machine.name, **columns, **graph.parameters,
        "tile": options.tile, "seed": options.seed, "time_limit": options.time_limit,
    }  # fmt: skip
    if machine.management == "explicit":
        about["family"] = _family(data, machine, columns["level"], options)
    task = SolveTask(
        data, msgspec.json.encode(machine), options.tile, options.seed, options.time_limit, options.quick,
        options.steady, options.threads,
    )  # fmt: skip
    return SweptRun(about, "pebbler.sweeps.solve_task:solve_task", task, options.time_limit)


def _family(graph: bytes, machine: Machine, level: str, options: RunOptions) -> str:
    """Return a hash of what runs share that differ in one capacity, in seeds and time limits only."""
    same = (
        machine.resized(machine.level_index(level), 1)
        if machine.level[machine.level_index(level)].capacity
        else machine
    )
    parts = (graph, msgspec.json.encode(same), options.tile.encode(), str(options.steady).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _machines(spec: SweepSpec, graph: Graph, folder: Path) -> list[Machine]:
    default = "red-blue" if graph.unit == "pebble" else "notes"
    given = spec.machines if isinstance(spec.machines, list | tuple) else [spec.machines or default]
    found = []
    for one in given or [default]:
        if isinstance(one, str) and one.endswith(".toml"):
            one = folder / one
            require_no_pipe(one)
        if not isinstance(one, str | Path | Machine):
            raise InputError(f"machines: expected names or TOML files, got {quoted(one)}")
        found.append(find_machine(one).in_unit(graph.unit))
    return found


def _sized(machine: Machine, spec: SweepSpec, graph: Graph) -> Iterator[tuple[Machine, dict[str, Any]]]:
    """Yield the machine with every combination of capacities, and the columns about them."""
    axes: dict[int, list[Amount]] = {}
    for name, given in spec.capacity.items():
        level = 0 if name == FASTEST and FASTEST not in machine.names else machine.level_index(name)
        if level in axes:
            raise InputError(f"capacity: {quoted(name)} is given twice for machine {quoted(machine.name)}")
        axes[level] = amounts_of(given, f"capacity of {quoted(name)}")
    shares = any(amount.share is not None for amounts in axes.values() for amount in amounts)
    peak = program_order_peak(graph) if shares else 0
    for chosen in product(*axes.values()):
        sized = machine
        for level, amount in zip(axes, chosen, strict=True):
            sized = sized.resized(level, amount.units(graph.unit, peak))
        yield _about(sized, dict(zip(axes, chosen, strict=True)))


def _about(machine: Machine, chosen: Mapping[int, Amount]) -> tuple[Machine, dict[str, Any]]:
    bounded = [i for i, level in enumerate(machine.level) if level.capacity is not None]
    first = next(iter(chosen), bounded[0] if bounded else 0)
    return machine, {
        "level": machine.level[first].name,
        "capacity": machine.level[first].capacity,
        "share": chosen[first].share if first in chosen else None,
        "capacities": " ".join(f"{machine.level[i].name}={machine.level[i].capacity}" for i in bounded),
    }
