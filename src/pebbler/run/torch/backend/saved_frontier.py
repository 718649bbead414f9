"""Choices of saved values from fast to small: minimum cuts at many prices of a byte, checkpoints between them, each one simulated.

At a price of `p` per byte, the values to save are a minimum cut: a node that runs again costs its seconds or joules, a saved value
its bytes times `p` (the graph of torch's own partitioner, where running again is free or forbidden, with prices). Minimum cuts know
sums and no order, so more is added. Checkpoints: values that cross narrow places of forward cost nothing to save, else
backward would compute all of forward again before its first use. Mixed choices: layers alike change sides at the same price all at
once, so a choice may follow one cut in the later part of forward and the next smaller one in the earlier part. Single values more
or less than in the best choices so far. And the peak of each is simulated, not added up.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

import numpy as np
from ortools.graph.python import max_flow

from pebbler.arrays import Ints
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.step_memory import SavedChoice, StepMemory

__all__ = ["pareto", "saved_frontier"]

_ENDLESS = 1 << 50
_TICKS = 1e12  # capacities are whole parts of what forward costs
_PRICES = (2.0**-9, 2.0**7)  # of what forward takes per byte that torch would save
_HULL = 24  # cuts between them
_CHECKPOINTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_WORTH = 0.001  # of the peak: what a slower choice must save
_TRIES = 6_000_000  # nodes simulated when values are saved or left out one by one
_PARTS = 8  # mixed choices between two neighbours


def saved_frontier(memory: StepMemory, starts: Sequence[Sequence[int]], time_limit: float) -> list[SavedChoice]:
    """Return choices of growing cost and falling peak; the first, `starts[0]`, is torch's own without a budget.

    Further `starts` are taken where nothing better is found.

    The same graph gives the same choices, unless the time limit (seconds) ends the search.
    """
    deadline = time.monotonic() + time_limit
    found = [memory.simulate(start) for start in starts]
    # Where torch would run again what we never do, such as the making of seeds, that is saved too.
    step = memory.step
    fixed = [i for i, never in enumerate(step.fixed) if never and step.tensor[i] and not step.given[i]]
    found += [memory.simulate({*start, *fixed}) for start, c in zip(starts, found, strict=True) if not c.legal]
    for saved in _cuts(memory, found[0]):
        if time.monotonic() > deadline:
            return pareto(found)
        found.append(memory.simulate(saved))
    for _ in range(2):
        for loose, tight in pairwise(pareto(found)):
            for part in _mixed(loose, tight):
                if time.monotonic() > deadline:
                    return pareto(found)
                found.append(memory.simulate(part))
    return _improved(memory, pareto(found), deadline)


def _cuts(memory: StepMemory, first: SavedChoice) -> Iterable[set[int]]:
    """Return minimum cuts at many prices of a byte, with few and with many checkpoints."""
    step = memory.step
    cuts = _CutGraph(step)
    work = sum(t for t, runs in zip(step.cost, step.required, strict=True) if runs)
    unit = max(work, 1e-9) / max(first.bytes, 1)
    for count in _CHECKPOINTS:
        free = _checkpoints(step, count)
        if count and not free:
            return
        for saved in cuts.hull(unit, free, _HULL if not count else _HULL // 4):
            yield {*saved, *free}


def _improved(memory: StepMemory, front: list[SavedChoice], deadline: float) -> list[SavedChoice]:
    """Return the choices with what comes of saving single values more or less, as long as that gives better ones.

    Those that give most for their cost are then taken together, one after the other: layers alike have values alike.
    """
    step = memory.step
    tries = _TRIES // len(step.nodes)
    worth = _WORTH * front[0].peak
    pool = sorted({i for c in front for i in c.saved if not step.given[i] and step.size[i] >= worth})
    tried = {front[0].saved}
    while (here := _next_start(front, tried)) is not None:
        tried.add(here.saved)
        saved = set(here.saved)
        found: list[SavedChoice] = []
        gains: list[tuple[float, int]] = []  # cost per byte, value
        for i in pool:
            tries -= 1
            if tries < 0 or time.monotonic() > deadline:
                return pareto([*front, *found])
            found.append(memory.simulate(saved ^ {i}))
            less = here.peak - found[-1].peak
            if less > 0:
                gains.append(((found[-1].cost - here.cost) / less, i))
        for _, i in sorted(gains):
            tries -= 1
            saved ^= {i}
            found.append(memory.simulate(saved))
        front = pareto([*front, *found])
    return front


def _next_start(front: Sequence[SavedChoice], tried: Collection[tuple[int, ...]]) -> SavedChoice | None:
    """Return the choice to go on from: in turn the smallest, and the one before the largest step in cost."""
    new = [k for k, choice in enumerate(front) if choice.saved not in tried]
    if not new:
        return None
    if len(tried) % 2:
        return front[new[-1]]
    ends = [*(choice.cost for choice in front[1:]), front[-1].cost]
    return front[max(new, key=lambda k: ends[k] - front[k].cost)]


def pareto(found: Sequence[SavedChoice]) -> list[SavedChoice]:
    """Return the first choice, and those of lower peak that no other beats in both cost and peak."""
    kept = [found[0]]
    for choice in sorted((c for c in found[1:] if c.legal), key=lambda c: (c.cost, c.peak, c.saved)):
        if choice.peak < kept[-1].peak * (1 - _WORTH):
            kept.append(choice)
    return kept


def _mixed(loose: SavedChoice, tight: SavedChoice) -> Iterable[set[int]]:
    """Return choices that save what the tight one saves, and what the loose one saves late in forward: backward needs it first."""
    more = sorted(set(loose.saved) - set(tight.saved))
    for part in range(1, _PARTS):
        start = len(more) * part // _PARTS
        if 0 < start < len(more):
            yield {*tight.saved, *more[start:]}


def _checkpoints(step: JointStep, count: int) -> set[int]:
    """Return the values that cross `count` narrow places of forward, spread evenly over its bytes."""
    if not count:
        return set()
    order = [i for i, runs in enumerate(step.required) if runs and not step.given[i]]
    place = {node: t for t, node in enumerate(order)}
    last = {node: max((place[u] for u in step.users[node] if u in place), default=-1) for node in order}
    for node in reversed(order):  # a view keeps what it looks at
        for source in step.inputs[node]:
            if (step.view[node] or not step.tensor[source]) and source in last:
                last[source] = max(last[source], last[node])
    change = [0] * (len(order) + 1)
    for node in order:
        change[place[node]] += step.size[node]
        change[max(last[node], place[node])] -= step.size[node]
    width = np.cumsum(change[:-1])
    done = np.cumsum([step.size[node] for node in order])
    if len(order) < 2 * count:
        return set()
    found: set[int] = set()
    edges = np.searchsorted(done, [done[-1] * k / (count + 1) for k in range(count + 2)])
    half = (edges[1:] - edges[:-1]) // 2
    for k in range(1, count + 1):
        low, high = int(edges[k] - half[k - 1]), int(edges[k] + half[k]) + 1
        t = low + int(np.argmin(width[low:high]))
        crossing = [n for n in order[: t + 1] if last[n] > t and step.tensor[n] and not step.view[n] and step.size[n]]
        found.update(n for n in crossing if not step.again[n])
    return found


class _CutGraph:
    """The flow network of a step: nodes are split in two, arcs between them are what saving costs."""

    def __init__(self, step: JointStep) -> None:
        self.step = step
        count = len(step.nodes)
        self.ticks = _TICKS / max(sum(step.cost), 1e-30)
        self.source, self.sink = 2 * count, 2 * count + 1
        arcs: list[tuple[int, int, int]] = []
        saving: list[tuple[int, int]] = []  # arc, node
        ends = set(step.backward_outputs)
        for i in range(count):
            before, after = 2 * i, 2 * i + 1
            if step.tangent[i] or step.again[i]:
                arcs.append((before, self.sink, _ENDLESS))
                continue
            if i in ends:
                arcs.append((after, self.sink, _ENDLESS))
            if step.fixed[i]:
                arcs.append((self.source, before, _ENDLESS))
            elif step.required[i]:
                arcs.append((self.source, before, int(step.cost[i] * self.ticks)))
            if step.given[i] and step.fixed[i]:
                arcs.append((before, after, 0))  # what the graph was given stays anyway
            elif step.tensor[i] and not step.view[i]:
                saving.append((len(arcs), i))
                arcs.append((before, after, 0))
            else:
                arcs.append((before, after, _ENDLESS))
            arcs += [(after, 2 * user, _ENDLESS) for user in step.users[i]]
        self.tails, self.heads, self.capacities = (
            np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True)
        )
        self.saving = saving

    def solve(self, price: float, free: Iterable[int]) -> list[int] | None:
        """Return the values to save where a byte costs `price` and some values nothing; None where no cut is finite."""
        step, gratis = self.step, set(free)
        capacities: Ints = self.capacities.copy()
        for arc, node in self.saving:
            capacities[arc] = 0 if node in gratis else min(int(step.size[node] * price * self.ticks) + 1, _ENDLESS >> 4)
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(self.tails, self.heads, capacities)
        if flow.solve(self.source, self.sink) != flow.OPTIMAL or flow.optimal_flow() >= _ENDLESS:
            return None
        reached = set(flow.get_source_side_min_cut())
        return [
            i for i in range(len(step.nodes)) if 2 * i in reached and 2 * i + 1 not in reached and not step.tangent[i]
        ]

    def hull(self, unit: float, free: Iterable[int], most: int) -> Iterable[list[int]]:
        """Return at most so many cuts at prices around `unit`: between two neighbours, the price at which they cost the same."""
        gratis = set(free)
        ends = [(price, self.solve(price, gratis)) for price in (unit * _PRICES[0], unit * _PRICES[1])]
        pairs = []
        for _, saved in ends:
            if saved is not None:
                yield saved
        if all(saved is not None for _, saved in ends):
            pairs.append((self._cost(ends[0][1] or [], gratis), self._cost(ends[1][1] or [], gratis)))
        while pairs and most > 0:
            (size, cost), (smaller, more) = pairs.pop(0)
            if smaller >= size or more <= cost:
                continue
            most -= 1
            saved = self.solve((more - cost) / (size - smaller), gratis)
            if saved is None:
                continue
            middle = self._cost(saved, gratis)
            if smaller < middle[0] < size:
                yield saved
                pairs += [((size, cost), middle), (middle, (smaller, more))]

    def _cost(self, saved: Iterable[int], gratis: set[int]) -> tuple[int, float]:
        """Return the bytes that are paid for, and the cost of what runs again."""
        step = self.step
        kept = set(saved)
        again = [False] * len(step.nodes)
        cost = 0.0
        for i in range(len(step.nodes) - 1, -1, -1):
            if step.tangent[i]:
                again[i] = True
            elif i not in kept and not step.given[i] and any(again[user] for user in step.users[i]):
                again[i] = True
                cost += step.cost[i]
        return sum(step.size[i] for i in kept if i not in gratis and not step.given[i]), cost
