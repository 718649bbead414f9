"""The referee: the one place that decides whether a plan is legal and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.errors import IllegalPlan, quoted
from pebbler.files import int_if_whole
from pebbler.game.dataflow import NONE
from pebbler.game.machine import Machine
from pebbler.game.plan import COMPUTE, KINDS, EncodedMoves, Plan
from pebbler.referee import books as pricing
from pebbler.referee.kernels import explicit_play as rules

__all__ = ["Judgement", "check", "require_legal"]


@dataclass(frozen=True)
class Judgement:
    """What the referee says of a plan. Energies are in the graph's energy unit, peaks in the graph's unit.

    Every breakdown adds up to `energy`: `levels` and `tensors` by themselves (an op's own cost counts where its results go,
    with the first tensor it writes), `ops` together with `moves["copy"]`. Of an illegal plan they cover the moves before the
    illegal one; where the order alone makes the price (`lru`, `recency`), nothing.
    """

    legal: bool
    energy: float
    error: str | None
    move: int | None  # 1-based; None when the plan is legal, or breaks a rule at the start or the end
    peak: Mapping[str, int]
    levels: Mapping[str, float]
    tensors: Mapping[str, float]
    ops: Mapping[str, float]
    moves: Mapping[str, float]
    step_energy: npt.NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as `pebbler check --json` prints it."""
        result: dict[str, Any] = {"legal": self.legal, "energy": self.energy}
        if self.error is not None:
            result["error"] = self.error
        if self.move is not None:
            result["move"] = self.move
        result |= {"peak": dict(self.peak), "levels": dict(self.levels), "moves": dict(self.moves)}
        return result | {"tensors": dict(self.tensors), "ops": dict(self.ops)}


def check(plan: Plan, *, ignore_war: bool = False) -> Judgement:
    """Return whether a plan is legal, what it costs and where.

    `ignore_war` lets an update overwrite what is still to be read, as the notes did, to price their broken orders.

    >>> from pebbler import workloads, machine
    >>> step = workloads.note_mlp()
    >>> broken = [op.name for op in step.ops]
    >>> broken.insert(6, broken.pop(broken.index("upd_W2")))
    >>> check(Plan.in_order(step, machine("notes-recency"), broken)).error
    'move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it'
    """
    graph, flow = plan.graph, plan.graph.dataflow
    machine = plan.machine.in_unit(graph.unit)
    moves = plan.encode()
    explicit = machine.management == "explicit"
    # A cache keeps every value somewhere, so there the order alone is judged, on one endless level.
    arena = machine if explicit else Machine(machine.name, machine.unit, machine.level[-1:], operands="any")
    start_mask, start_error = _place_start(plan) if explicit else (_start_somewhere(plan), None)
    params = [i for i, tensor in enumerate(graph.tensors) if tensor.kind == "param"]

    def play(count: int) -> tuple[tuple[int, ...], pricing.Books, npt.NDArray[np.int64]]:
        books, peak = pricing.Books.empty(len(arena.level), flow, count), np.zeros(len(arena.level), np.int64)
        verdict = rules.play(
            moves.kind[:count], moves.subject[:count],
            moves.level[:count] if explicit else np.zeros(count, np.int8), moves.to[:count],
            pricing.capacities(arena), pricing.prices(arena, "read"), pricing.prices(arena, "write"),
            arena.operands == "fastest",
            flow.value_tensor, flow.value_size, flow.value_maker, flow.value_must_survive,
            flow.op_cost, flow.op_once, flow.op_in_place,
            flow.op_reads.start, flow.op_reads.items, flow.op_writes.start, flow.op_writes.items,
            flow.op_destroys.start, flow.op_destroys.items, flow.value_readers.start, flow.value_readers.items,
            len(graph.tensors), start_mask, flow.start_value[params], flow.final_value[params],
            bool(plan.steady) and explicit, ignore_war,
            books.by_level, books.by_tensor, books.by_op, books.by_kind, peak, books.step_energy,
        )  # fmt: skip
        return tuple(map(int, verdict)), books, peak

    playable = len(moves.kind) if explicit else _leading_computes(moves)
    (reason, at, *about), books, peak = play(playable)
    error, move = start_error, None
    if error is None and at == playable < len(moves.kind):
        move, what = playable + 1, KINDS[moves.kind[playable]]
        error = f"move {move}: a {what}, but under management {machine.management!r} moves are computes only"
    elif error is None and reason != rules.LEGAL:
        move = at + 1 if 0 <= at < playable else None
        place = "start" if at < 0 else "end" if move is None else f"move {move}"
        error = f"{place}: {_explain(reason, plan, machine, about)}"
    if start_error is not None or (explicit and at < playable):
        _, books, peak = play(0 if start_error is not None else max(at, 0))  # the illegal move itself is in no book
    if not explicit:
        order = moves.subject if error is None else moves.subject[:0]
        if machine.management == "recency":
            books = pricing.price_recency(graph, machine, order)
        else:
            books = pricing.price_lru(graph, machine, order, steady=bool(plan.steady))
    return Judgement(
        legal=error is None,
        energy=int_if_whole(float(books.by_level.sum())),
        error=error,
        move=move,
        peak={level.name: int(units) for level, units in zip(machine.level, peak, strict=False)} if explicit else {},
        levels=_named([level.name for level in machine.level], books.by_level),
        tensors=_named(flow.tensor_names, books.by_tensor),
        ops=_named(flow.op_names, books.by_op),
        moves=_named(KINDS, books.by_kind),
        step_energy=books.step_energy,
    )


def require_legal(plan: Plan) -> Judgement:
    """Return the judgement of a legal plan; raise `IllegalPlan` for any other."""
    judgement = check(plan)
    if not judgement.legal:
        raise IllegalPlan(judgement.error)
    return judgement


def _place_start(plan: Plan) -> tuple[npt.NDArray[np.int64], str | None]:
    """Return the levels of every value at the start, as bits, and what is wrong with them."""
    flow = plan.graph.dataflow
    slowest = len(plan.machine.level) - 1
    mask = np.zeros(flow.values, np.int64)
    error = None
    for tensor, levels in plan.start_levels().items():
        mask[flow.start_value[tensor]] = sum(1 << level for level in levels)
        if plan.steady and plan.graph.tensors[tensor].kind == "input" and levels != [slowest]:
            name, level = quoted(flow.tensor_names[tensor]), quoted(plan.machine.names[slowest])
            error = error or f"start: in a steady plan input {name} arrives in {level}, and only there"
    return mask, error


def _start_somewhere(plan: Plan) -> npt.NDArray[np.int64]:
    """Return where values start on the one level of a cache's arena."""
    plan.start_levels()  # refuses names that do not exist
    mask: npt.NDArray[np.int64] = (plan.graph.dataflow.value_maker == NONE).astype(np.int64)
    return mask


def _leading_computes(moves: EncodedMoves) -> int:
    """Return how many moves come before the first that is not a compute."""
    other = np.flatnonzero(moves.kind != COMPUTE)
    return int(other[0]) if len(other) else len(moves.kind)


def _named(names: Sequence[str], amounts: npt.NDArray[np.float64]) -> dict[str, float]:
    return {name: int_if_whole(float(amount)) for name, amount in zip(names, amounts, strict=True)}


_REASONS = {
    rules.OVERFLOW: "{level_a} would hold {count_b}; its capacity is {capacity_a}",
    rules.NOT_MADE: "{op_b} reads {value_a}, which {maker_a} has not made yet",
    rules.NOT_PRESENT: "{op_b} reads {value_a}, which is in no level any more",
    rules.NOT_THERE: "{tensor_a} is not in {level_b}",
    rules.NOT_FAST: "{op_b} reads {value_a}, which is not in the fastest level ({level_c})",
    rules.RESULT_NOT_FAST: "results of {op_a} must go to the fastest level ({level_c}), not to {level_b}",
    rules.OVERWRITES_EARLY: "{op_c} overwrites {value_a} before {op_b} reads it",
    rules.OVERWRITES_UNMADE: "{op_c} overwrites {value_a} before {op_b} writes it",
    rules.ALREADY_RAN: "{op_a} has run and cannot run again: {once_a}",
    rules.STALE_RESULT: "running {op_b} again would bring back {value_a}, which {destroyer_a} has overwritten",
    rules.LOSES_NEEDED: "{value_c} is lost, and with it {value_a}, which {op_b} still needs and nothing can recompute",
    rules.SAME_LEVEL: "copies {tensor_a} from {level_b} to the same level",
    rules.NEVER_RAN: "{op_a} has not run",
    rules.NOT_AT_END: "{value_a} must survive, but is in no level",
    rules.NOT_STEADY: "a steady plan must leave {value_a} in {levels_c}, where its param started, not in {levels_b}",
}


def _explain(reason: int, plan: Plan, machine: Machine, about: Sequence[int]) -> str:
    """Return why a move is illegal, from what the kernel returned."""
    template = _REASONS[reason]
    if reason == rules.LOSES_NEEDED and about[0] == about[2]:
        template = "{value_c} is lost, which {op_b} still needs and nothing can recompute"
    return template.format_map(_Words(plan, machine, about))


class _Words(dict[str, str]):
    """The words of a reason: `{op_b}` is the op whose number is the second of the three that the kernel returned."""

    def __init__(self, plan: Plan, machine: Machine, about: Sequence[int]) -> None:
        self.plan, self.machine, self.about = plan, machine, dict(zip("abc", about, strict=True))

    def __missing__(self, key: str) -> str:
        kind, letter = key.split("_")
        i, flow = self.about[letter], self.plan.graph.dataflow
        names = self.machine.names
        match kind:
            case "op":
                return quoted(flow.op_names[i]) if i >= 0 else "the end"
            case "maker":
                return quoted(flow.op_names[flow.value_maker[i]])
            case "destroyer":
                return quoted(flow.op_names[flow.value_destroyer[i]])
            case "value":
                return flow.name_value(i)
            case "tensor":
                return quoted(flow.tensor_names[i])
            case "level":
                return quoted(names[i])
            case "levels":
                return " and ".join(quoted(name) for bit, name in enumerate(names) if i >> bit & 1) or "no level"
            case "capacity":
                return f"{self.machine.level[i].capacity:,}"
            case "count":
                return f"{i:,} {'unit' if i == 1 else 'units'}"
            case "once":
                return "it is marked once" if flow.op_once[i] else "it updates in place"
        raise KeyError(key)
