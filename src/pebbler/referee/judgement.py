"""The referee: the one place that decides whether a plan is legal and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.errors import IllegalPlan, one_line, quoted
from pebbler.files import int_if_whole
from pebbler.game.amounts import energy_text
from pebbler.game.dataflow import NONE
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.machine import Machine
from pebbler.game.moves import COMPUTE, KINDS, Moves
from pebbler.game.plan import Plan
from pebbler.game.rich_repr import RichRepr
from pebbler.referee import pricing
from pebbler.referee.kernels import explicit_game as rules
from pebbler.referee.kernels.books import Books
from pebbler.referee.kernels.explicit_game import LEGAL, ExplicitGame, MoveArrays
from pebbler.referee.kernels.explicit_play import play

__all__ = ["Judgement", "check", "judge", "require_legal"]


@dataclass(frozen=True, repr=False)
class Judgement(RichRepr):
    """The referee's judgement of a plan. Energies are in the graph's energy unit, peaks in the graph's unit.

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
    unit: str = "units"  # of the energies

    def __repr__(self) -> str:
        """Return one line, however large the graph is."""
        if not self.legal:
            return f"Judgement(illegal, {one_line(self.error or '')})"
        levels = ", ".join(f"{quoted(name)} {energy_text(part, self.unit)}" for name, part in self.levels.items())
        return f"Judgement(legal, {energy_text(self.energy, self.unit)}: {levels})"

    def to_dict(self) -> dict[str, Any]:
        """Return the judgement as `pebbler check --json` prints it; an illegal plan has no energy."""
        result: dict[str, Any] = {"legal": self.legal, "energy": self.energy if self.legal else None}
        if self.error is not None:
            result["error"] = self.error
        if self.move is not None:
            result["move"] = self.move
        books = {"levels": self.levels, "moves": self.moves, "tensors": self.tensors, "ops": self.ops}
        priced = self.legal or self.energy > 0
        return result | {"peak": dict(self.peak)} | {name: dict(book) if priced else {} for name, book in books.items()}


def check(plan: Plan | str | Path, *, ignore_war: bool = False) -> Judgement:
    """Return whether a plan, or the plan in a file, is legal, what it costs and where.

    `ignore_war` lets an update overwrite what is still to be read, as the notes did, to price their broken orders.

    >>> from pebbler import workloads, machine
    >>> step = workloads.note_mlp()
    >>> broken = [op.name for op in step.ops]
    >>> broken.insert(6, broken.pop(broken.index("upd_W2")))
    >>> check(Plan.in_order(step, machine("notes-recency"), broken)).error
    'move 7: upd_W2 overwrites W2 (version 0) before bwd_dh reads it'
    """
    return judge(plan if isinstance(plan, Plan) else Plan.load(plan), play, ignore_war=ignore_war)


def judge(plan: Plan, play: Callable[..., Any], *, ignore_war: bool = False) -> Judgement:
    """Return the judgement of a plan whose moves are played by the code of `explicit_play.play` that is given."""
    graph, flow = plan.graph, plan.graph.dataflow
    machine = plan.machine.in_unit(graph.unit)
    moves = plan.moves
    explicit = machine.management == "explicit"
    # A cache keeps every value somewhere, so there the order alone is judged, on one endless level.
    played_on = machine if explicit else Machine(machine.name, machine.unit, machine.level[-1:], operands="any")
    start_mask, start_error = _place_start(plan) if explicit else (_start_somewhere(plan), None)
    game = _explicit_game(plan, played_on, start_mask, steady=bool(plan.steady) and explicit, ignore_war=ignore_war)

    def play_first(count: int) -> tuple[tuple[int, ...], Books]:
        books = Books.empty(len(played_on.level), len(graph.tensors), len(graph.ops), count)
        level = moves.level[:count] if explicit else np.zeros(count, np.int8)
        part = MoveArrays(moves.kind[:count], moves.subject[:count], level, moves.to[:count])
        return tuple(map(int, play(game, part, books))), books

    playable = len(moves.kind) if explicit else _leading_computes(moves)
    (reason, at, *about), books = play_first(playable)
    error, move = start_error, None
    if error is None and at == playable < len(moves.kind):
        move, what = playable + 1, KINDS[moves.kind[playable]]
        error = f"move {move}: a {what}, but under management {machine.management!r} moves are computes only"
    elif error is None and reason != LEGAL:
        move = at + 1 if 0 <= at < playable else None
        place = "start" if at < 0 else "end" if move is None else f"move {move}"
        error = f"{place}: {explain(reason, plan, machine, about)}"
    if start_error is not None or (explicit and at < playable):
        _, books = play_first(0 if start_error is not None else max(at, 0))  # the illegal move itself is in no book
    if not explicit:
        order = moves.subject if error is None else moves.subject[:0]
        if machine.management == "recency":
            books = pricing.price_recency(graph, machine, order)
        else:
            books = pricing.price_lru(graph, machine, order, steady=bool(plan.steady))
    energy = float(books.by_level.sum())
    if error is None:
        EnergyScale.of(graph, machine).require_exact(energy)
    return Judgement(
        legal=error is None,
        energy=int_if_whole(energy),
        error=error,
        move=move,
        peak=dict(zip(machine.names, books.peak.tolist(), strict=True)) if explicit else {},
        levels=_named(machine.names, books.by_level),
        tensors=_named(flow.tensor_names, books.by_tensor),
        ops=_named(flow.op_names, books.by_op),
        moves=_named(KINDS, books.by_kind),
        step_energy=books.step_energy,
        unit=plan.energy_unit,
    )


def require_legal(plan: Plan) -> Judgement:
    """Return the judgement of a legal plan; raise `IllegalPlan` for any other."""
    judgement = check(plan)
    if not judgement.legal:
        raise IllegalPlan(judgement.error)
    return judgement


def _explicit_game(
    plan: Plan, machine: Machine, start: npt.NDArray[np.int64], *, steady: bool, ignore_war: bool
) -> ExplicitGame:
    """Return the plan's graph on a machine as the rules see it."""
    flow = plan.graph.dataflow
    params = [i for i, tensor in enumerate(plan.graph.tensors) if tensor.kind == "param"]
    return ExplicitGame(
        capacity=pricing.capacities(machine),
        read_price=pricing.prices(machine, "read"),
        write_price=pricing.prices(machine, "write"),
        fastest_only=machine.operands == "fastest",
        over=machine.results == "over",
        tensor=flow.value_tensor,
        size=flow.value_size,
        maker=flow.value_maker,
        survives=flow.value_must_survive,
        cost=flow.op_cost,
        once=flow.op_once,
        in_place=flow.op_in_place,
        reads_start=flow.op_reads.start,
        reads=flow.op_reads.items,
        writes_start=flow.op_writes.start,
        writes=flow.op_writes.items,
        destroys_start=flow.op_destroys.start,
        destroys=flow.op_destroys.items,
        readers_start=flow.value_readers.start,
        readers=flow.value_readers.items,
        tensors=len(plan.graph.tensors),
        start=start,
        param_start=flow.start_value[params],
        param_end=flow.final_value[params],
        steady=steady,
        ignore_war=ignore_war,
    )


def _place_start(plan: Plan) -> tuple[npt.NDArray[np.int64], str | None]:
    """Return the levels of every value at the start, as bits, and the error in them, if any."""
    flow = plan.graph.dataflow
    slowest = len(plan.machine.level) - 1
    mask = np.zeros(flow.values, np.int64)
    error = None
    for tensor, levels in plan.start_levels().items():
        mask[flow.start_value[tensor]] = sum(1 << level for level in levels)
        arrives = plan.graph.tensors[tensor].kind == "input" and plan.graph.tensors[tensor].start is None
        if plan.steady and arrives and levels != [slowest]:
            name, level = quoted(flow.tensor_names[tensor]), quoted(plan.machine.names[slowest])
            error = error or f"start: in a steady plan input {name} arrives in {level}, and only there"
    return mask, error


def _start_somewhere(plan: Plan) -> npt.NDArray[np.int64]:
    """Return the initial placement of values on the one endless level."""
    plan.start_levels()  # refuses names that do not exist
    mask: npt.NDArray[np.int64] = (plan.graph.dataflow.value_maker == NONE).astype(np.int64)
    return mask


def _leading_computes(moves: Moves) -> int:
    """Return the number of moves that come before the first that is not a compute."""
    other = np.flatnonzero(moves.kind != COMPUTE)
    return int(other[0]) if len(other) else len(moves.kind)


def _named(names: Sequence[str], amounts: npt.NDArray[np.float64]) -> dict[str, float]:
    return {name: int_if_whole(float(amount)) for name, amount in zip(names, amounts, strict=True)}


# Messages for illegal plans: error codes of the rules, with the names of the graph and the machine --------------------


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


def explain(reason: int, plan: Plan, machine: Machine, about: Sequence[int]) -> str:
    """Return the reason why a move is illegal, from what the kernel returned."""
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
