"""Games in which an op that only passes a value on is merged with that value's maker: fewer ops, and no plan costs more.

PageRank divides every rank before it is read. The rank and its share are never both needed, so they count as one value.
`docs/exact.md` ("Ops that pass a value on") says why bounds hold for the game as it was, and when plans cost the same in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.moves import Compute, Copy, Drop, Move
from pebbler.solver.problem import Problem

__all__ = ["JoinedOps", "join_ops"]


@dataclass(frozen=True)
class JoinedOps:
    """A game with fewer ops, and the ops of the graph that they stand for."""

    problem: Problem
    original: Problem
    ops: dict[str, list[str]]  # per op that stands for several: those, in the order in which they run
    forms: dict[str, list[str]]  # per value that is left of several: those, one made from the other

    def moves(self, moves: Iterable[Move]) -> list[Move]:
        """Return moves of the game as it was for moves of the game with fewer ops; they may cost more, or be illegal."""
        return _SplitMoves(self).moves(moves)


def join_ops(problem: Problem) -> JoinedOps | None:
    """Return the game with ops joined; None where there is nothing to join, or the game is not one of two levels.

    >>> from pebbler.game.machine import Level, Machine
    >>> graph = Graph("share", unit="pebble").tensor("a", 1, kind="input").tensor("rank", 1).tensor("share", 1)
    >>> graph = graph.tensor("b", 1, kind="output").op("sum", ["a"], ["rank"], 2).op("divide", ["rank"], ["share"], 1)
    >>> graph = graph.op("add", ["a", "share"], ["b"], 2)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1)))
    >>> joined = join_ops(Problem.of(graph, two, steady=False))
    >>> joined.ops, [(op.name, op.reads, op.cost) for op in joined.problem.graph.ops]
    ({'sum': ['sum', 'divide']}, [('sum', ('a',), 3.0), ('add', ('a', 'share'), 2.0)])
    """
    flow, levels = problem.graph.dataflow, problem.machine.level
    plain = problem.machine.management == "explicit" and problem.machine.operands == "fastest" and problem.plain
    if (
        not plain
        or len(levels) != 2
        or problem.steady
        or levels[1].capacity is not None
        or len(flow.destroyed_values())
    ):
        return None
    load = levels[1].read + levels[0].write
    tensors = {tensor.name: tensor for tensor in problem.graph.tensors}
    ops = {op.name: op for op in problem.graph.ops}
    readers: dict[str, list[str]] = {name: [] for name in tensors}
    for op in ops.values():
        for name in dict.fromkeys(op.reads):
            readers[name].append(op.name)
    joined: dict[str, list[str]] = {}
    forms: dict[str, list[str]] = {}
    for op in problem.graph.ops:
        first = ops.get(op.name)
        while first is not None and len(first.writes) == 1 and readers[first.writes[0]]:
            value, then = tensors[first.writes[0]], ops[readers[first.writes[0]][0]]
            alone = len(readers[value.name]) == 1 and value.kind == "temp"
            if not alone or not _passes_on(first, then, tensors, load):
                break
            result = tensors[then.writes[0]]
            if not _all_make_something(readers[result.name], ops, tensors):
                break
            joined.setdefault(first.name, [first.name]).append(then.name)
            forms[result.name] = [*forms.pop(value.name, [value.name]), result.name]
            cost, once = first.cost + then.cost, first.once or then.once
            first = msgspec.structs.replace(first, writes=then.writes, cost=cost, once=once, whole=(), pointwise=False)
            ops[first.name] = first
            del ops[then.name], tensors[value.name]
    if not joined:
        return None
    file = problem.graph.to_file()
    graph = Graph.from_file(msgspec.structs.replace(file, tensors=list(tensors.values()), ops=list(ops.values())))
    return JoinedOps(replace(problem, graph=graph), problem, joined, forms)


def _passes_on(first: Op, then: Op, tensors: dict[str, Tensor], load: float) -> bool:
    """Return whether the second op does nothing but make one value of another, which costs no less to make than to load."""
    if len(then.reads) != 1 or len(then.writes) != 1:
        return False
    size = tensors[then.reads[0]].size
    return 0 < size == tensors[then.writes[0]].size and first.cost >= load * size


def _all_make_something(names: list[str], ops: dict[str, Op], tensors: dict[str, Tensor]) -> bool:
    """Return whether each of some ops has a result that takes room: just before it runs, that room is free."""
    return all(any(tensors[name].size for name in ops[op].writes) for op in names)


class _SplitMoves:
    """Plays moves of the game with fewer ops, and writes down those of the game as it was."""

    def __init__(self, joined: JoinedOps) -> None:
        self.joined = joined
        graph, machine = joined.original.graph, joined.original.machine
        self.size = {tensor.name: tensor.size for tensor in graph.tensors}
        self.ops = {op.name: op for op in joined.problem.graph.ops}
        self.passes = {name: ops[1:] for name, ops in joined.ops.items()}
        self.made_by = {op.writes[0]: op.name for op in joined.problem.graph.ops if op.name in joined.ops}
        self.fast_name, self.slow_name = machine.names
        self.room = machine.level[0].capacity or 0
        for tensor, levels in joined.original.plan([]).start_levels().items():
            self.room -= graph.tensors[tensor].size if 0 in levels else 0
        self.form: dict[str, int] = {}  # per joined value in the fast level: as which of its forms it is there
        self.saved: dict[str, int] = {}  # the same of the slow level, the latest
        self.out: list[Move] = []

    def moves(self, moves: Iterable[Move]) -> list[Move]:
        between: list[Copy | Drop] = []
        for move in moves:
            if isinstance(move, Compute):
                self._copy_and_drop(between)
                self._run(self.ops[move.op])
                between = []
            else:
                between.append(move)
        self._copy_and_drop(between)
        return self.out

    def _copy_and_drop(self, moves: list[Copy | Drop]) -> None:
        """Make the copies and drops between two runs: what makes room first, and of that values not in their last form at last."""
        leaving = [
            move
            for move in moves
            if isinstance(move, Drop) or (isinstance(move, Copy) and move.source == self.fast_name)
        ]
        unfinished = {name for name, form in self.form.items() if form < len(self.joined.forms[name]) - 1}
        for late in (False, True):
            if late:
                for name in sorted(unfinished):
                    self._finish(name, forced=False)
            for move in leaving:
                if (move.tensor in unfinished) == late:
                    self._leave(move)
        for move in moves:
            if move not in leaving:
                self._load(move.tensor)

    def _finish(self, name: str, *, forced: bool) -> None:
        """Bring a value into its last form, if there is room beside it (or there has to be)."""
        forms, passes = self.joined.forms[name], self.passes[self.made_by[name]]
        while self.form[name] < len(forms) - 1 and (forced or self.room >= self.size[name]):
            self.out.append(Compute(passes[self.form[name]]))
            self.out.append(Drop(forms[self.form[name]], self.fast_name))
            self.form[name] += 1

    def _now(self, name: str, form: dict[str, int]) -> str:
        return self.joined.forms[name][form[name]] if name in form else name

    def _leave(self, move: Copy | Drop) -> None:
        name = self._now(move.tensor, self.form)
        if isinstance(move, Copy):
            self.out.append(Copy(name, self.fast_name, self.slow_name))
            if move.tensor in self.form:
                self.saved[move.tensor] = self.form[move.tensor]
        else:
            self.out.append(Drop(name, self.fast_name))
            self.room += self.size[name]
            self.form.pop(move.tensor, None)

    def _load(self, name: str) -> None:
        self.out.append(Copy(self._now(name, self.saved), self.slow_name, self.fast_name))
        self.room -= self.size[name]
        if name in self.saved:
            self.form[name] = self.saved[name]

    def _run(self, op: Op) -> None:
        for name in op.reads:
            if name in self.form:
                self._finish(name, forced=True)
        self.out.append(Compute(op.name))
        for name in op.writes:
            self.room -= self.size[name]
            if name in self.joined.forms:
                self.form[name] = 0
