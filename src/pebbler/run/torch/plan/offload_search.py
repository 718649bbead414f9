"""The search for values to send to the host's memory and back, combined with recomputation.

A sequence of ops, some of them more than once, holds too much at some of its runs; values that lie idle over those runs go to the
host. Which ones is a greedy choice improved by local search, and every choice is scheduled and timed by the same kernel
(`schedule_copies`), so that a copy costs what the computation has to wait for it. Everything here is a pure function of
the graph, its costs, the link and the capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Bools, Ints
from pebbler.errors import quoted
from pebbler.game.moves import MoveList
from pebbler.run.torch.cost.costs import Link
from pebbler.run.torch.plan.kernels import copy_schedule as kernel
from pebbler.run.torch.plan.kernels import idle_spans
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["OffloadCandidate", "OffloadSearch"]

_MEMORY, _HOST = 0, 1  # levels of the machine
_LATENESS = (0.0, 2.0, 8.0)
_LEADS = (2.0, 8.0, np.inf)  # how many copies ahead of its use a load may begin
_ROUNDS = 500  # of local search
_NOISE = 0.5


@dataclass(frozen=True)
class OffloadCandidate:
    """A sequence of ops, the spans over which values are away, and what that costs."""

    sequence: Ints
    chosen: Bools  # per touch of the sequence's timeline
    lead: float
    cost: float
    copied: int  # bytes, both ways

    @property
    def merit(self) -> tuple[float, int]:
        """Lower is better."""
        return self.cost, self.copied


class OffloadSearch:
    """The search for one graph, capacity and link.

    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.run.torch.plan.host_link import machine_with_host
    >>> g = Graph("stack", unit="byte")
    >>> _ = [g.tensor(name, 10) for name in ("a", "b", "c", "d")], g.tensor("e", 0, kind="output")
    >>> _ = g.op("fa", [], ["a"], cost=50, once=True), g.op("fb", [], ["b"], cost=50), g.op("fc", ["b"], ["c"], cost=50)
    >>> _ = g.op("fd", ["c"], ["d"], cost=50), g.op("fe", ["a", "d"], ["e"], cost=50)
    >>> link = Link(1.0, 1.0, True)
    >>> game = RecomputeProblem.of(Problem.of(g, Machine("one", "byte", (Level("memory", 0, 0, capacity=20),))))
    >>> search = OffloadSearch(game, 20, link, {"a", "b", "c", "d"})
    >>> best = search.best_of([game.program])
    >>> moves = search.moves(best).moves(g, machine_with_host(20, link))
    >>> best.cost, best.copied, [move for move in moves if move.words[0] == "copy"]
    (260.0, 20, [Copy('a', 'memory', 'host'), Copy('a', 'host', 'memory')])
    """

    def __init__(
        self, game: RecomputeProblem, capacity: int, link: Link, movable: Iterable[str], seed: int = 0
    ) -> None:
        self.game, self.capacity, self.link = game, capacity, link
        names = set(movable)
        named = np.array([name in names for name in game.flow.tensor_names], np.bool_)
        self.movable: Bools = named[game.flow.value_tensor] & (game.arrays.size > 0) & ~game.at_start
        self.cut_off = False  # whether time ended something
        self.rng = np.random.default_rng([seed, 17])

    # What there is to choose from -------------------------------------------------------------------------------------

    def timeline(self, sequence: Ints) -> idle_spans.Timeline:
        """Return the touches of a sequence."""
        made: idle_spans.Timeline = idle_spans.timeline(self.game.arrays, sequence)
        return made

    def idle(self, timeline: idle_spans.Timeline) -> Ints:
        """Return the touches after which a value lies idle over at least one run."""
        runs = len(timeline.memory)
        after = np.where(timeline.t_next == idle_spans.END, runs, timeline.t_run[np.maximum(timeline.t_next, 0)])
        idle = (timeline.t_next != idle_spans.DEAD) & (after > timeline.t_run + 1) & self.movable[timeline.t_value]
        return np.flatnonzero(idle)

    @cached_property
    def least(self) -> tuple[int, str]:
        """The least capacity that any plan needs, and why: with everything movable away, program order needs no more."""
        timeline = self.timeline(self.game.program)
        chosen = np.zeros(len(timeline.t_value), np.bool_)
        chosen[self.idle(timeline)] = True
        held = timeline.most.copy()
        for i in np.flatnonzero(chosen).tolist():
            held[timeline.t_run[i] + 1 : idle_spans.span_end(timeline, i)] -= self.game.arrays.size[timeline.t_value[i]]
        size, flow = self.game.arrays.size, self.game.flow
        floor = [
            (int(size[self.game.at_start].sum()), "what is there at the start"),
            (int(size[self.game.arrays.survive].sum()), "what must be there at the end"),
        ]
        if len(held):
            op = int(np.argmax(held))
            floor.append((int(held[op]), f"{quoted(flow.op_names[op])}, with the state and the batch,"))
        units, what = max(floor, key=lambda item: item[0])
        return max(units, 1), f"{what} needs {units:,} bytes at once, whatever goes to the host"

    # One candidate ----------------------------------------------------------------------------------------------------

    def schedule(
        self, sequence: Ints, timeline: idle_spans.Timeline, chosen: Bools, lead: float
    ) -> OffloadCandidate | None:
        """Return a choice of spans with its cost, None if it does not fit."""
        cost, kinds, subjects = self._events(sequence, timeline, chosen, lead)
        if not np.isfinite(cost):
            return None
        copied = self.game.arrays.size[subjects[(kinds == kernel.STORE) | (kinds == kernel.LOAD)]].sum()
        return OffloadCandidate(sequence, chosen, lead, cost, int(copied))

    def _events(
        self, sequence: Ints, timeline: idle_spans.Timeline, chosen: Bools, lead: float
    ) -> tuple[float, npt.NDArray[np.int8], Ints]:
        prices = float(self.link.out), float(self.link.into), self.link.overlap
        cost, events = kernel.schedule_copies(
            timeline, self.game.arrays, sequence, chosen, self.capacity, *prices, float(lead)
        )
        return float(cost), events["kind"], events["subject"]

    def moves(self, candidate: OffloadCandidate) -> MoveList:
        """Return a candidate as moves."""
        tensor = self.game.flow.value_tensor.tolist()
        timeline = self.timeline(candidate.sequence)
        _, kinds, subjects = self._events(candidate.sequence, timeline, candidate.chosen, candidate.lead)
        moves = MoveList()
        for value in np.flatnonzero(self.game.at_start & (timeline.first == idle_spans.DEAD)).tolist():
            moves.drop(tensor[value], _MEMORY)
        for kind, subject in zip(kinds.tolist(), subjects.tolist(), strict=True):
            match kind:
                case kernel.RUN:
                    moves.compute(subject)
                case kernel.STORE:
                    moves.copy(tensor[subject], _MEMORY, _HOST)
                case kernel.LOAD:
                    moves.copy(tensor[subject], _HOST, _MEMORY)
                case _:
                    moves.drop(tensor[subject], _MEMORY if kind == kernel.DROP else _HOST)
        return moves

    def choose(self, sequence: Ints, lateness: float, noise: float, leads: Sequence[float]) -> OffloadCandidate | None:
        """Return a sequence with spans chosen greedily, None if that does not fit."""
        timeline = self.timeline(sequence)
        chosen = np.zeros(len(timeline.t_value), np.bool_)
        if not self._repair(timeline, chosen, lateness, noise):
            return None
        found = [self.schedule(sequence, timeline, chosen, lead) for lead in leads]
        return min((c for c in found if c is not None), key=lambda c: c.merit, default=None)

    def _repair(self, timeline: idle_spans.Timeline, chosen: Bools, lateness: float, noise: float) -> bool:
        idle = self.idle(timeline)
        factor = np.exp(noise * self.rng.standard_normal(len(idle))) if noise else np.ones(len(idle))
        price = float(self.link.out + self.link.into)
        return bool(
            idle_spans.choose_spans(timeline, self.game.arrays.size, idle, chosen, self.capacity, price, lateness, factor)
        )  # fmt: skip

    # The search -------------------------------------------------------------------------------------------------------

    def best_of(
        self, sequences: Iterable[Ints], is_over: Callable[[], bool] = lambda: False
    ) -> OffloadCandidate | None:
        """Return the best candidate on any of some sequences, made better by local search; None if none fits."""
        best: OffloadCandidate | None = None
        if self.capacity < self.least[0]:
            return None
        for sequence in sequences:
            for lateness in _LATENESS:
                found = self.choose(sequence, lateness, 0.0, _LEADS)
                best = found if found is not None and (best is None or found.merit < best.merit) else best
            if self._late(is_over):
                break
        return None if best is None else self.improve(best, is_over)

    def _late(self, is_over: Callable[[], bool]) -> bool:
        late = is_over()
        self.cut_off |= late
        return late

    def improve(self, best: OffloadCandidate, is_over: Callable[[], bool] = lambda: False) -> OffloadCandidate:
        """Return a candidate that is no worse, after a fixed amount of local search or when time `is_over`."""
        for _ in range(_ROUNDS):
            if self.done(best) or self._late(is_over):
                break
            trial = self._neighbour(best)
            if trial is not None and trial.merit <= best.merit:
                best = trial
        return self._pruned(best, is_over)

    def done(self, candidate: OffloadCandidate) -> bool:
        """Whether nothing can be cheaper: every op runs once and nothing waits."""
        return candidate.cost <= self.game.base_cost * (1 + 1e-12)

    def _neighbour(self, here: OffloadCandidate) -> OffloadCandidate | None:
        rng = self.rng
        lateness, lead = float(rng.choice(_LATENESS)), float(rng.choice(_LEADS))
        kind = rng.integers(4)
        if kind == 0:
            return self.choose(here.sequence, lateness, _NOISE, (here.lead, lead))
        if kind == 1:
            timeline, chosen = self.timeline(here.sequence), here.chosen.copy()
            away = np.flatnonzero(chosen)
            if not len(away):
                return None
            chosen[rng.choice(away, min(len(away), int(rng.integers(1, 5))), replace=False)] = False
            if not self._repair(timeline, chosen, lateness, _NOISE):
                return None
            return self.schedule(here.sequence, timeline, chosen, here.lead)
        sequence = self._fewer_runs(here) if kind == 2 else self._more_runs(here)
        if sequence is None or not self.game.measure(sequence).legal:
            return None
        return self.choose(sequence, lateness, float(rng.choice((0.0, _NOISE))), (here.lead,))

    def _fewer_runs(self, here: OffloadCandidate) -> Ints | None:
        """Return the sequence without some reruns that are close together."""
        seen: set[int] = set()
        again = []
        for p, op in enumerate(here.sequence.tolist()):
            if op in seen:
                again.append(p)
            seen.add(op)
        if not again:
            return None
        count = min(len(again), 2 ** int(self.rng.integers(5)))
        first = int(self.rng.integers(len(again) - count + 1))
        return np.delete(here.sequence, again[first : first + count])

    def _more_runs(self, here: OffloadCandidate) -> Ints | None:
        """Return the sequence with a value made again before its use, instead of being away."""
        timeline = self.timeline(here.sequence)
        makers = self.game.arrays.maker[timeline.t_value]
        away = np.flatnonzero(here.chosen & (timeline.t_next >= 0) & self.game.arrays.again[makers])
        if not len(away):
            return None
        count = min(len(away), 2 ** int(self.rng.integers(4)))
        first = int(self.rng.integers(len(away) - count + 1))
        picked = away[first : first + count]
        uses = timeline.t_run[timeline.t_next[picked]]
        return np.insert(here.sequence, uses, makers[picked])

    def _pruned(self, here: OffloadCandidate, is_over: Callable[[], bool]) -> OffloadCandidate:
        """Return the candidate without spans that it can do without."""
        timeline = self.timeline(here.sequence)
        for i in np.flatnonzero(here.chosen).tolist():
            if self._late(is_over):
                break
            chosen = here.chosen.copy()
            chosen[i] = False
            trial = self.schedule(here.sequence, timeline, chosen, here.lead)
            if trial is not None and trial.merit <= here.merit:
                here = trial
        return here
