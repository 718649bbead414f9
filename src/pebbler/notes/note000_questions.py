"""The open questions of note 000: depth, hazards, recomputation and batches."""

from __future__ import annotations

import msgspec
import numpy as np

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine, machine
from pebbler.game.plan import Plan
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.notes.every_order import all_orders, recency_energies
from pebbler.notes.experiment import Question, Value, show, table
from pebbler.notes.note000_savings import NEEDS_SOLVER, PJ_PER_UJ, Solver
from pebbler.notes.reference_orders import note_order
from pebbler.referee.judgement import check, require_legal
from pebbler.workloads import deep_mlp, mlp

__all__ = ["batch_question", "computed_once", "depth_question", "eager_order", "hazard_question", "recompute_question"]

_LAYERS = (1, 2, 4, 8, 16)
_BATCHES = (1, 4, 8, 16, 32, 64, 128)


def eager_order(graph: Graph) -> list[int]:
    """Return program order with every update moved to the first place where no hazard forbids it.

    >>> from pebbler import workloads
    >>> graph = workloads.mlp()
    >>> [graph.ops[op].name for op in eager_order(graph)][6:9]
    ['bwd_db2', 'upd_b2', 'bwd_dh']
    """
    flow = graph.dataflow
    return schedule_by_key(ReadyList.of(flow), key=lambda op: not flow.op_in_place[op])


def depth_question(solve: Solver | None) -> Question:
    """Answer whether gains grow with depth, once the weights leave L2."""
    recency, lru = machine("notes-recency"), machine("notes")
    rows: list[tuple[Value, ...]] = []
    gains = []
    for layers in _LAYERS:
        graph = deep_mlp(n=20, hidden=1000, layers=layers)
        orders = np.array([np.arange(len(graph.ops)), eager_order(graph)])
        program, eager = (recency_energies(graph, recency, orders) / PJ_PER_UJ).tolist()
        gains.append(100 * (1 - eager / program))
        cached = require_legal(Plan.in_order(graph, lru, steady=True)).energy / PJ_PER_UJ
        solved: tuple[Value, Value] = (NEEDS_SOLVER, None)
        plan = None if solve is None else solve(graph, lru)
        if plan is not None:
            best = require_legal(plan).energy / PJ_PER_UJ
            solved = (best, 100 * (1 - best / cached))
        floats = sum(tensor.size for tensor in graph.tensors)
        rows.append((layers, floats, program, eager, gains[-1], cached, *solved))
    return Question(
        question="Do the gains grow with depth, once the working set leaves L2?",
        answer=(
            f"Not from order alone: updating as early as the hazards allow saves {gains[0]:.2f} % with one hidden layer and "
            f"{gains[-1]:.3f} % with {_LAYERS[-1]}, because a weight matrix of a million floats comes from HBM in any order. "
            "The last columns let the solver tile and fuse as well, on the notes' LRU machine."
        ),
        tables=(
            table(
                "One step of a deeper network, hidden 1000: by note 000's pricing, then on LRU caches",
                ["layers", "floats", "program µJ", "eager µJ", "saved %", "LRU program µJ", "solver µJ", "saved %"],
                rows,
            ),
        ),
    )


def hazard_question(graph: Graph) -> Question:
    """Answer whether anti-dependencies can be found automatically: they follow from program order."""
    found = [hazard for hazard in graph.dataflow.hazards() if hazard.kind == "WAR"]
    broken: list[tuple[Value, ...]] = []
    for name in ("fused", "perlayer"):
        verdict = check(Plan.in_order(graph, machine("notes-recency"), note_order(name)))
        broken.append((name, verdict.legal, verdict.error or ""))
    return Question(
        question="Are anti-dependencies found automatically?",
        answer=(
            f"Yes: {len(found)} follow from program order alone, nothing is declared by hand, and the referee names the "
            "move of each broken order that violates one."
        ),
        tables=(
            table(
                "Anti-dependencies of the step (WAR)",
                ["tensor", "read by", "overwritten by"],
                [(hazard.tensor, hazard.before, hazard.after) for hazard in found],
            ),
            table("What the referee says of the note's orders", ["order", "legal", "why not"], broken),
        ),
    )


def recompute_question(solve: Solver | None) -> Question:
    """Answer what recomputation buys on the explicit machine, where the plan decides what to keep."""
    question = "What does recomputation buy?"
    rows: list[tuple[Value, ...]] = []
    energies = []
    for graph, allowed in ((computed_once(mlp(n=20, hidden=1000)), "no"), (mlp(n=20, hidden=1000), "yes")):
        plan = None if solve is None else solve(graph, machine("notes-explicit"))
        if plan is None:
            return Question(question=question, answer=NEEDS_SOLVER)
        energies.append(require_legal(plan).energy / PJ_PER_UJ)
        again = len(plan.moves.order) - len(plan.graph.ops)
        rows.append((allowed, energies[-1], again, plan.status))
    return Question(
        question=question,
        answer=f"On the explicit machine it saves {100 * (1 - energies[1] / energies[0]):.1f} % of the step's energy.",
        tables=(table("Best plan found", ["recomputation", "µJ", "recomputed ops", "status"], rows),),
    )


def computed_once(graph: Graph) -> Graph:
    """Return the same graph with every op marked `once`: nothing may be recomputed.

    >>> computed_once(mlp(n=20, hidden=50)).ops[0].once
    True
    """
    return Graph(graph.name, graph.unit, graph.tensors, [msgspec.structs.replace(op, once=True) for op in graph.ops])


def batch_question(levels: Machine) -> Question:
    """Answer whether the best order depends on the batch, by pricing every hazard-free order of every batch size."""
    rows: list[tuple[Value, ...]] = []
    stays = 0
    for batch in _BATCHES:
        graph = mlp(n=20, hidden=1000, batch=batch)
        orders = all_orders(graph)
        energies = recency_energies(graph, levels, orders) / PJ_PER_UJ
        note = np.array([graph.op_index(op) for op in note_order("optimal")])
        mine = float(recency_energies(graph, levels, note[None])[0]) / PJ_PER_UJ
        best = float(energies.min())
        stays = batch if mine == best else stays
        saved = 100 * (1 - best / energies[0])
        rows.append((batch, float(energies[0]), mine, best, int((energies == best).sum()), float(saved), mine == best))
    return Question(
        question="Does the best order change with the batch?",
        answer=f"Yes: the note's order stays best up to a batch of {stays} and is not beyond; its saving falls from "
        f"{show(rows[0][5])} % to {show(rows[-1][5])} % as activations outgrow the parameters.",
        tables=(
            table(
                "Every hazard-free order, by batch size (note 000's pricing, µJ)",
                ["batch", "program", "note's best", "true best", "orders at best", "saved %", "note's is best"],
                rows,
            ),
        ),
    )
