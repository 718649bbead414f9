"""The number of legal orders of a graph's ops, counted exactly where that is feasible.

Counting linear extensions is hard in general, so the partial order is decomposed first. Independent parts interleave freely (a
multinomial), and an op that is comparable with all others splits its part in two. The remaining parts are counted by dynamic
programming over the sets of ops that may have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

from pebbler.game.bit_sets import members
from pebbler.game.dataflow import Dataflow
from pebbler.game.graph import Graph
from pebbler.game.ready_list import ReadyList

__all__ = ["count_orders", "iterate_orders"]

MOST_OPS = 20_000  # the reachability of more would take too much memory: ops^2 / 8 bytes


def count_orders(graph: Graph, *, war: bool = True, limit: int = 500_000) -> int | None:
    """Return the number of legal orders, or None when the count would take more than `limit` steps (about a second).

    Without `war` the anti-dependencies are ignored, as the notes did.

    >>> from pebbler.workloads import note_mlp
    >>> count_orders(note_mlp()), count_orders(note_mlp(), war=False)
    (7290, 7560)
    """
    flow = graph.dataflow
    if flow.ops > MOST_OPS:
        return 1 if all(i == 0 or i - 1 in row for i, row in enumerate(flow.predecessors(war=war))) else None
    return _Counter(flow if war else flow.without_war(), limit).count((1 << flow.ops) - 1)


class _Counter:
    """Counts with the reachability of every op as bits; `limit` is the work left."""

    def __init__(self, flow: Dataflow, limit: int) -> None:
        self.ancestors, self.descendants, self.followers = flow.ancestors, flow.descendants, flow.after.lists()
        self.limit = limit
        self.step = 1 + flow.ops // 1000  # wide sets of bits take longer

    def count(self, ops: int) -> int | None:
        """Return the number of orders of a set of ops (as bits); None when it is too much work."""
        total = 1
        pending = [ops]
        while pending:
            part = pending.pop()
            if part & (part - 1) == 0:
                continue
            self.limit -= self.step * part.bit_count() // 8 + 1  # taking apart is cheaper than counting
            if self.limit < 0:
                return None
            pieces = self.components(part)
            if len(pieces) > 1:
                done = 0
                for piece in pieces:
                    done += piece.bit_count()
                    total *= comb(done, piece.bit_count())
                pending += pieces
                continue
            slices = self.slices(part)
            if len(slices) > 1:
                pending += slices
                continue
            ways = self.by_sets(part)
            if ways is None:
                return None
            total *= ways
        return total

    def components(self, part: int) -> list[int]:
        """Return the parts that no hazard connects."""
        pieces = []
        while part:
            piece, frontier = 0, part & -part
            while frontier:
                piece |= frontier
                reach = 0
                for op in members(frontier):
                    reach |= self.ancestors[op] | self.descendants[op]
                frontier = reach & part & ~piece
            pieces.append(piece)
            part &= ~piece
        return pieces

    def slices(self, part: int) -> list[int]:
        """Return the part cut at every op that is comparable with all others of it."""
        cuts = [op for op in members(part) if (self.ancestors[op] | self.descendants[op] | 1 << op) & part == part]
        cuts.sort(key=lambda op: (self.ancestors[op] & part).bit_count())
        pieces, left = [], part
        for op in cuts:
            pieces += [piece for piece in (self.ancestors[op] & left, 1 << op) if piece]
            left &= ~(self.ancestors[op] | 1 << op)
        return [*pieces, left] if left else pieces

    def by_sets(self, part: int) -> int | None:
        """Return the number of orders by dynamic programming over the sets of ops that may have run."""
        first = sum(1 << op for op in members(part) if self.ancestors[op] & part == 0)
        ways = {0: (1, first)}  # per set that may have run: in how many orders, and which ops may run next
        for _ in range(part.bit_count()):
            after: dict[int, tuple[int, int]] = {}
            for done, (count, ready) in ways.items():
                self.limit -= self.step * ready.bit_count()
                if self.limit < 0:
                    return None
                for op in members(ready):
                    reached = done | 1 << op
                    if reached in after:
                        after[reached] = after[reached][0] + count, after[reached][1]
                        continue
                    freed = 0
                    for next_op in self.followers[op]:
                        if part >> next_op & 1 and self.ancestors[next_op] & part & ~reached == 0:
                            freed |= 1 << next_op
                    after[reached] = count, ready & ~(1 << op) | freed
            ways = after
        return ways[part][0]


def iterate_orders(graph: Graph, *, war: bool = True) -> Iterator[Sequence[int]]:
    """Yield every order of the ops (as positions in program order), in lexicographic order.

    >>> from pebbler.workloads import chain
    >>> list(iterate_orders(chain(1)))
    [[0, 1, 2]]
    """
    flow = graph.dataflow if war else graph.dataflow.without_war()
    ready = ReadyList.of(flow)
    order: list[int] = []
    # Per position: the ops that may stand there, and how many of them have been tried. No recursion: graphs may be long.
    choices = [ready.first]
    tried = [0]
    if not flow.ops:
        yield []
    while choices:
        if len(order) == len(choices):  # back from all orders that begin like this: take the last op off
            ready.take_back(order.pop())
        if tried[-1] == len(choices[-1]):
            choices.pop()
            tried.pop()
            continue
        op = choices[-1][tried[-1]]
        tried[-1] += 1
        order.append(op)
        left = [other for other in choices[-1] if other != op] + ready.run(op)
        if len(order) == flow.ops:
            yield list(order)
        else:
            choices.append(sorted(left))
            tried.append(0)
