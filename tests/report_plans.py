"""Plans that a report page must be able to show: one of every kind, small and large, legal and not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pebbler import machine, solve_chain, workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.notes.reference_orders import note_order
from pebbler.solver import solve
from pebbler.solver.tiling.list_order import nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph

SCRIPT, QUOTED = "<script>window.hacked=1</script>", 'it\'s "quoted" & <b>bold</b>'


def two_axes(layers: int, batch: int, hidden: int) -> Plan:
    """Return a deep network with its batch and its first layer cut to single elements, in an order that goes back and forth."""
    step = workloads.deep_mlp(n=hidden, hidden=hidden, layers=layers, batch=batch)
    graph, levels = tile(tile(step, "batch", 1), "hidden1", 1), machine("notes")
    nodes = NodeGraph.of(graph)
    assert nodes is not None
    order = nodes.order(nearest_first(nodes, levels))
    return Plan.in_order(graph, levels, [graph.op_names[op] for op in np.asarray(order)], source=step)


def explicit_with_copies() -> Plan:
    """Return a tiled plan on explicit memory that stores, loads and recomputes."""
    plan = solve("mlp:n=20,hidden=1000", "notes-explicit", quick=True, time_limit=None)
    assert {0, 1, 2} == set(plan.moves.kind.tolist())
    return plan


def odd_names() -> Plan:
    """Return a plan whose names would be markup if anybody let them."""
    graph = Graph("<i>graph</i>", unit="pebble")
    graph.tensor(SCRIPT, 1, kind="input").tensor(QUOTED, 1, kind="output").tensor("=cmd|'x'!A1", 1)
    graph.op("</script><img src=x onerror=window.hacked=2>", [SCRIPT], ["=cmd|'x'!A1"], cost=1)
    graph.op(QUOTED, ["=cmd|'x'!A1"], [QUOTED], cost=1)
    return Plan.in_order(graph, machine("red-blue"), start={SCRIPT: "fast"})


def illegal() -> Plan:
    """Return note 000's broken order."""
    return Plan.in_order(workloads.note_mlp(), machine("notes-recency"), note_order("fused"))


MAKERS = {
    "note-mlp": lambda: Plan.in_order(workloads.note_mlp(), machine("notes-recency"), note_order("optimal")),
    "two axes": lambda: two_axes(2, 6, 12),
    "explicit": explicit_with_copies,
    "chain": lambda: solve_chain(60, red=6),
    "illegal": illegal,
    "odd names": odd_names,
}


def strange() -> dict[str, Plan]:
    """Return plans at the edges of what there can be."""
    empty = Graph("none", unit="pebble")
    nothing = (
        Graph("zero", unit="pebble").tensor("a", 0, kind="input").tensor("b", 0, kind="output").op("o", ["a"], ["b"])
    )
    step = workloads.mlp(n=4, hidden=6, batch=4)
    cubes = tile(tile(tile(step, "hidden", 2), "batch", 2), "n", 2)
    levels = (*(Level(f"level {i}", i, i, 10**i) for i in range(1, 9)), Level("last", 20, 20))
    deep = workloads.deep_mlp(n=4, hidden=4, layers=40)
    chain = solve_chain(30, red=4)
    computes = [("compute", op.name) for op in workloads.note_mlp().ops]
    return {
        "no ops": Plan.in_order(empty, machine("red-blue")),
        "no units": Plan.in_order(nothing, machine("red-blue"), start={"a": "fast"}),
        "three axes": Plan.in_order(cubes, machine("notes"), source=step),
        "nine levels": Plan.in_order(workloads.mlp(n=5, hidden=20), Machine("nine", "float32", levels, "lru")),
        "one level": solve(workloads.chain(12), Machine("one", "pebble", (Level("fast", 0, 0, 5),)), time_limit=2),
        "cut short": replace(chain, moves=list(chain.moves)[:-3]),
        "backwards": replace(chain, moves=list(chain.moves)[::-1]),
        "no moves": replace(chain, moves=[]),
        "copy on a cache": Plan(workloads.note_mlp(), machine("notes"), [("copy", "W1", "HBM", "L1"), *computes]),
        "many families": Plan.in_order(tile(deep, "hidden1", 1), machine("notes"), source=deep),
        "many whole ops": Plan.in_order(workloads.deep_mlp(n=4, hidden=4, layers=60), machine("notes")),
    }
