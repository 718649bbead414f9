"""Moments for the formula `passes`: ops of one depth, which all wait for the same inputs; and lines through the graph.

In the first kind many ops wait for many inputs, as the outputs of an FFT do: once the first of them can run, all inputs have been
there, and for the others they must come again. The second kind are ops at equal distances along a path, which share the graph with
other such paths: a step of a stencil at one point needs what is around it some steps before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import Dataflow, Rows
from pebbler.referee.certificates import NotProven
from pebbler.referee.programs.passes import Moment, PassLedger, Span
from pebbler.solver.bounds.bound import Bound, certified
from pebbler.solver.problem import Problem

__all__ = ["pass_bounds"]

Chain = list[tuple[Moment, Fraction]]
_DEPTHS = 24  # that are tried
_STEPS = (4, 6, 9, 14, 20, 30, 45, 68, 100, 150)  # ops from one moment of a path to the next
_TURNS = (0.5, 1.0, 0.0)  # which of the ops that wait for one a path goes on with: by program order, as a share of them
_MUCH = 0.9  # of the most that a depth brings
_MISSES = 8  # paths in a row that bring nothing
_KEPT, _TRIES = 4, 16  # ways to go along paths, and times that the graph is filled with them
_PROVING = 0.4  # of the time, for adding up what was found


def pass_bounds(problem: Problem, seconds_left: Callable[[], float]) -> list[Bound]:
    """Return the bounds that passes prove for a problem beyond compulsory traffic; none where passes are not defined.

    >>> from pebbler import Graph, Level, Machine
    >>> graph = Graph("there and back", "pebble")
    >>> for i in range(8):
    ...     _ = graph.tensor(f"x{i}", 1, "input")
    >>> _ = graph.tensor("s0", 1, "input")
    >>> for step, at in enumerate([*range(8), *range(7, -1, -1)]):
    ...     _ = graph.tensor(f"s{step + 1}", 1, "output" if step == 15 else "temp")
    ...     _ = graph.op(f"add{step}", [f"s{step}", f"x{at}"], [f"s{step + 1}"])
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 10, 10)))
    >>> [bound.value for bound in pass_bounds(Problem.of(graph, two, steady=False), lambda: 5.0)]
    [150.0]
    """
    try:
        ledger = PassLedger(problem.task)
    except NotProven:
        return []
    if not ledger.flow.ops:
        return []
    proving = _PROVING * begun if (begun := seconds_left()) < math.inf else 0.0
    search = _PassSearch(ledger, lambda: seconds_left() - proving, problem.seed)
    gained = search.run()
    if gained <= 0:
        return []
    words = "compulsory traffic, and what must come in or be made once more between some first runs"
    ends = time.monotonic() + seconds_left()
    listed = [[[list(first), str(rate)] for first, rate in chain] for chain in search.chains]
    with suppress(NotProven):  # if there is no time to add it up
        return [certified(problem, words, "passes", ends, chains=listed)]
    return []


class _PassSearch:
    """One run: the chains so far, and what they bring."""

    def __init__(self, ledger: PassLedger, seconds_left: Callable[[], float], seed: int) -> None:
        self.ledger, self.flow, self.seconds_left = ledger, ledger.flow, seconds_left
        self.rates = sorted({ledger.load, ledger.load + ledger.store})
        self.rng = np.random.default_rng(seed)
        self.chains: list[Chain] = []
        self.depth = _depths(ledger.flow)
        self.begun = seconds_left()

    def run(self) -> int:
        """Find chains; return their gain together, the end of the plan included."""
        end = self.ledger.charge_end()
        fresh, best = self._left(), 0
        by_depth, pilots = self._by_depth(), self._pilots()
        for number in range(_TRIES if pilots else 1):
            if number and self.share(1.0) <= 0:
                break
            self._restore(fresh)
            chains = [by_depth] if by_depth and number % 2 == 0 else []
            gained = sum(self.ledger.chain(chain) for chain in chains)
            if pilots:
                gained += self._pack(chains, *pilots[number // 2 % len(pilots)])
            if gained > best:
                best, self.chains = gained, chains
        return best + end if best else 0

    def share(self, part: float) -> float:
        """Return the seconds left of a part of the time."""
        return self.seconds_left() - (1 - part) * self.begun if self.begun < math.inf else math.inf

    def _left(self) -> tuple[Ints, Ints, Ints]:
        return self.ledger.load_left.copy(), self.ledger.store_left.copy(), self.ledger.rerun_left.copy()

    def _restore(self, left: tuple[Ints, Ints, Ints]) -> None:
        self.ledger.load_left, self.ledger.store_left, self.ledger.rerun_left = (one.copy() for one in left)

    def _best_span(self, first: Moment, until: Moment | None) -> tuple[Span, Fraction]:
        """Return the best span with its price of room."""
        spans = [(self.ledger.span(first, until, rate), rate) for rate in self.rates]
        return max(spans, key=lambda one: one[0].gain)

    def _by_depth(self) -> Chain:
        """Return a chain of moments at which the first op of some depth can run: the last that brings much, then earlier ones."""
        depths = np.unique(np.linspace(0, int(self.depth.max()), _DEPTHS).astype(np.int64))[::-1].tolist()
        levels = [np.flatnonzero(self.depth == depth).tolist() for depth in depths]
        chain: Chain = []
        until: Moment | None = None
        while levels:
            found: list[tuple[int, Fraction]] = []
            for level in levels:
                gain, rate = 0, Fraction()
                if self.share(0.25) > 0:
                    with suppress(NotProven):  # nothing must run in between
                        span, rate = self._best_span(level, until)
                        gain = span.gain
                found.append((gain, rate))
            most = max(gain for gain, _ in found)
            if not most:
                break
            at = next(number for number, (gain, _) in enumerate(found) if gain >= _MUCH * most)
            until = levels[at]
            chain.insert(0, (until, found[at][1]))
            levels = levels[at + 1 :]
        return chain

    def _pilots(self) -> list[tuple[int, float]]:
        """Return the distances between the moments of a path, and the way it continues: only moments with a gain, most first."""
        found: dict[tuple[int, float], float] = {}
        middle = np.argsort(np.abs(self.depth - self.depth.max() / 2), kind="stable")[: max(1, self.flow.ops // 10)]
        for anchor in self.rng.choice(middle, 2).tolist():
            for turn in _TURNS:
                path = self._path(anchor, turn)
                at = path.index(anchor)
                for step in _STEPS:
                    if at + step >= len(path) or self.share(0.4) <= 0:
                        break
                    span, _ = self._best_span([path[at]], [path[at + step]])
                    # So many paths, and moments on each, find room beside each other, as far as one can guess.
                    found[step, turn] = max(found.get((step, turn), 0.0), span.gain / step**1.5)
        return sorted((one for one in found if found[one] > 0), key=lambda one: -found[one])[:_KEPT]

    def _pack(self, chains: list[Chain], step: int, turn: float) -> int:
        """Add chains along paths as long as they bring something; return what they bring."""
        gained, misses = 0, 0
        makes = np.diff(self.flow.op_writes.start) > 0
        result = self.flow.op_writes.items[
            np.minimum(self.flow.op_writes.start[:-1], len(self.flow.op_writes.items) - 1)
        ]
        fresh = self.ledger.load_left.copy()
        for op in self.rng.permutation(self.flow.ops).tolist():
            if misses >= _MISSES or self.share(1.0) <= 0:
                break
            if not makes[op] or self.ledger.load_left[result[op]] < fresh[result[op]]:
                continue
            path = self._path(op, turn)
            offset = int(self.rng.integers(min(step, len(path))))
            chain, gain = self._charged(path[offset::step])
            gained += gain
            misses = 0 if gain else misses + 1
            if gain:
                chains.append(chain)
        return gained

    def _charged(self, ops: Sequence[int]) -> tuple[Chain, int]:
        """Return a chain of ops with the best prices of room, and what it brings; charge it."""
        spans: list[Span] = []
        chain: Chain = []
        for number, op in enumerate(ops):
            until = [ops[number + 1]] if number + 1 < len(ops) else None
            span, rate = self._best_span([op], until)
            chain.append(([op], rate))
            if span.gain > 0:
                self.ledger.store_left -= span.stores
                spans.append(span)
        self.ledger.charge_chain(spans)
        return chain, sum(span.gain for span in spans)

    def _path(self, op: int, turn: float) -> list[int]:
        """Return ops that wait for each other, from one that waits for none to one that none waits for, through this op."""
        before, after = _walk(self.flow.before, op, 1 - turn), _walk(self.flow.after, op, turn)
        return [*before[:0:-1], *after]


def _walk(rows: Rows, op: int, turn: float) -> list[int]:
    path = [op]
    while len(near := rows.row(path[-1])):
        path.append(int(near[round(turn * (len(near) - 1))]))
    return path


def _depths(flow: Dataflow) -> Ints:
    """Return per op how many ops must run before it, one after the other."""
    depth = np.zeros(flow.ops, np.int64)
    for op, near in enumerate(flow.before.lists()):
        depth[op] = 1 + max((depth[other] for other in near), default=-1)
    return depth
