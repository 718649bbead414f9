"""The placement game of a problem as flat arrays, and routes turned back into moves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.plan import Move
from pebbler.referee import books as pricing
from pebbler.solver.paging.kernels.paging_state import (
    AFTER,
    AT,
    AT_START,
    BOUNDED,
    DESTROYS,
    FIRST,
    INFINITE,
    MAKE,
    OUT,
    UNTIL_FIRST,
    WRAPS,
    Game,
    Routes,
    Track,
)
from pebbler.solver.problem import Problem

__all__ = ["chain_of_values", "copies_are_direct", "game_of", "moves_of"]

Ints = npt.NDArray[np.int64]


def chain_of_values(graph: Graph) -> Ints:
    """Return the storage of every value, named by the tensor at the end of its `overwrites` chain.

    >>> from pebbler import workloads
    >>> chain_of_values(workloads.note_mlp())[[0, -4]].tolist()  # W1 and W1_new
    [0, 0]
    """
    root = list(range(len(graph.tensors)))
    for i, tensor in enumerate(graph.tensors):
        while tensor.overwrites is not None:
            tensor = graph.tensor_named(tensor.overwrites)
        root[i] = graph.tensor_index(tensor.name)
    return np.array(root, np.int64)[graph.dataflow.value_tensor]


def game_of(problem: Problem) -> Game:
    """Return the game of a problem.

    >>> from pebbler import machine, workloads
    >>> game = game_of(Problem.of(workloads.chain(2), machine("red-blue")))
    >>> game.masks.tolist(), game.trans[2].tolist()  # from slow only: to be in fast as well costs a load
    ([0, 1, 2, 3], [0.0, 100.0, 0.0, 100.0])
    """
    graph, machine, flow = problem.graph, problem.machine, problem.graph.dataflow
    chain = chain_of_values(graph)
    chains = len(graph.tensors)
    levels = len(machine.level)
    start, wraps = np.zeros(chains, np.int64), np.zeros(chains, np.bool_)
    first, survives = np.full(chains, NONE, np.int64), np.zeros(chains, np.bool_)
    start_masks = {}
    looped = set(problem.looped_params)
    for tensor, where in problem.start_choices().items():
        value = int(flow.start_value[tensor])
        c = int(chain[value])
        first[c] = value
        wraps[c] = tensor in looped
        start_masks[c] = sum(1 << level for level in where or [levels - 1])
    survives[chain[flow.value_must_survive]] = True
    masks = _states(levels, set(start_masks.values()))
    for c, mask in start_masks.items():
        start[c] = masks.index(mask)
    read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
    top = [min((at for at in range(levels) if mask >> at & 1), default=0) for mask in masks]
    join = [[masks.index(mask | 1 << at) if mask | 1 << at in masks else -1 for at in range(levels)] for mask in masks]
    touches = [_touches(problem, chain, op) for op in range(flow.ops)]
    flat = np.array([touch for row in touches for touch in row], np.int64).reshape(-1, 5)
    steps = 2 * flow.ops + 2
    return Game(
        fastest=machine.operands == "fastest",
        capacity=pricing.capacities(machine),
        write=write,
        masks=np.array(masks, np.int64),
        trans=np.array([[_copy_price(a, b, read, write) for b in masks] for a in masks]),
        state_read=read[top],
        join=np.array(join, np.int64),
        size=flow.value_size,
        touch_start=np.cumsum([0, *(len(row) for row in touches)], dtype=np.int64),
        touch=flat,
        op_cost=flow.op_cost,
        op_makes=np.diff(flow.op_writes.start),
        chain=np.stack([start, wraps, first, survives], axis=1).astype(np.int64),
        step_price=1e-8 * float(max(read.max(), write.max(), 1e-9)) / steps,
    )


def _states(levels: int, wanted: set[int]) -> list[int]:
    """Return the states a chain may be in: every set of levels while they are few, else one or two levels and what starts so."""
    if levels <= 4:
        return list(range(1 << levels))
    few = {1 << at for at in range(levels)}
    few |= {1 << a | 1 << b for a, b in combinations(range(levels), 2) if levels <= 6 or a == 0 or b == levels - 1}
    return [0, *sorted(few | wanted)]


def _copy_price(old: int, new: int, read: npt.NDArray[np.float64], write: npt.NDArray[np.float64]) -> float:
    """Return the price per unit of the copies that lead from one set of levels to another, each from its cheapest source."""
    added = [at for at in range(len(read)) if new >> at & 1 and not old >> at & 1]
    if added and old == 0:
        return INFINITE
    total, held = 0.0, [at for at in range(len(read)) if old >> at & 1]
    for at in sorted(added, key=lambda at: (read[at], at)):
        total += min(read[source] for source in held) + write[at]
        held.append(at)
    return float(total)


def copies_are_direct(game: Game) -> bool:
    """Whether no detour through a further level makes copies cheaper, so that the game's copy prices are the least there are.

    >>> from pebbler import machine, workloads
    >>> copies_are_direct(game_of(Problem.of(workloads.chain(2), machine("red-blue"))))
    True
    """
    detour = (game.trans[:, :, None] + game.trans[None, :, :]).min(axis=1)
    return bool((game.trans <= detour * (1 + 1e-12)).all())


def _touches(problem: Problem, chain: Ints, op: int) -> list[tuple[int, int, int, int, int]]:
    """Return, for every storage that an op touches: its number, reads, value before, value made, whether that overwrites."""
    flow = problem.graph.dataflow
    found: dict[int, list[int]] = {}
    for value in flow.op_reads.row(op).tolist():
        touch = found.setdefault(int(chain[value]), [0, value, NONE, 0])
        touch[0] += 1
    for value in flow.op_destroys.row(op).tolist():
        touch = found.setdefault(int(chain[value]), [0, value, NONE, 0])
        touch[3] = 1
    for value in flow.op_writes.row(op).tolist():
        touch = found.setdefault(int(chain[value]), [0, value, NONE, 0])
        touch[2] = value
    return [(c, *touch) for c, touch in found.items()]  # type: ignore[misc]


# Back to moves --------------------------------------------------------------------------------------------------------


def moves_of(
    problem: Problem, game: Game, track: Track, routes: Routes
) -> tuple[list[Move], dict[str, str | Sequence[str]]]:
    """Return the moves and the start of a placement.

    Copies of one gap are ordered so that they fit; where two levels would have to swap through each other, one goes by the
    slowest.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.paging.order import Sequences
    >>> problem = Problem.of(workloads.chain(1), machine("red-blue"))
    >>> game = game_of(problem)
    >>> placed = Sequences(problem.graph, game, 0, lambda: 1.0).place(np.arange(3))
    >>> [" ".join(move) for move in moves_of(problem, game, placed.track, placed.routes)[0] if move[0] != "drop"]
    ['copy N0 slow fast', 'compute c1', 'compute b1', 'compute b0']
    """
    return _Realiser(problem, game, track, routes).run()


class _Realiser:
    """Walks through the sequence with the state of every chain at hand."""

    def __init__(self, problem: Problem, game: Game, track: Track, routes: Routes) -> None:
        self.game, self.track, self.routes = game, track, routes
        self.problem = problem
        flow = problem.graph.dataflow
        self.levels = problem.machine.names
        self.read = pricing.prices(problem.machine, "read").tolist()
        self.capacity = game.capacity.tolist()
        self.names = [flow.tensor_names[tensor] for tensor in flow.value_tensor]
        self.masks = game.masks.tolist()
        self.held = [self.masks[state] for state in routes.chain[:, AT_START]]
        self.value = game.chain[:, FIRST].tolist()
        self.used = [0] * len(self.levels)
        for c, value in enumerate(self.value):
            self._count(c, self.held[c] if value >= 0 else 0, 1)
        self.moves: list[Move] = []

    def run(self) -> tuple[list[Move], dict[str, str | Sequence[str]]]:
        game, track, routes = self.game, self.track, self.routes
        start: dict[str, str | Sequence[str]] = dict(self.problem.start)
        for c in np.flatnonzero(game.chain[:, WRAPS]):
            where = [name for at, name in enumerate(self.levels) if self.held[c] >> at & 1]
            start[self.names[self.value[c]]] = where[0] if len(where) == 1 else where
        events: list[list[int]] = [[] for _ in track.seq]
        chain = np.repeat(np.arange(len(game.chain)), np.diff(track.start))
        for e in np.argsort(track.when, kind="stable").tolist():
            events[track.when[e]].append(e)
        target = {c: self.masks[state] for c, state in enumerate(routes.chain[:, UNTIL_FIRST].tolist())}
        for t, op in enumerate(track.seq.tolist()):
            target |= {int(chain[e]): self.masks[routes.event[e, AT]] for e in events[t]}
            self._gap(target)
            self._compute(op, events[t], chain)
            target = {int(chain[e]): self.masks[routes.event[e, AFTER]] for e in events[t]}
        self._gap(target)
        return self.moves, start

    def _compute(self, op: int, events: list[int], chain: Ints) -> None:
        game, level = self.game, 0
        for e in events:
            k, c = self.track.touch[e], int(chain[e])
            if game.touch[k, MAKE] >= 0:
                level = int(self.routes.event[e, OUT])
                if game.touch[k, DESTROYS]:
                    self._count(c, self.held[c], -1)
                    self.held[c] = 0
                self.value[c] = int(game.touch[k, MAKE])
                self._count(c, 1 << level & ~self.held[c], 1)
                self.held[c] |= 1 << level
        name = self.problem.graph.ops[op].name
        self.moves.append(("compute", name) if level == 0 else ("compute", name, self.levels[level]))

    def _count(self, c: int, mask: int, sign: int) -> None:
        size = int(self.game.size[self.value[c]]) if self.value[c] >= 0 else 0
        for at in range(len(self.used)):
            if mask >> at & 1:
                self.used[at] += sign * size

    def _gap(self, target: dict[int, int]) -> None:
        """Copy and drop until every chain of `target` is where it should be."""
        pending = {c: mask for c, mask in target.items() if mask != self.held[c]}
        while pending:
            progress = False
            for c, mask in list(pending.items()):
                progress |= self._drop(c, mask)
            for c, mask in list(pending.items()):
                progress |= self._copy(c, mask)
                if self.held[c] == mask:
                    del pending[c]
            if not progress and pending:
                self._detour(pending)

    def _best_source(self, c: int) -> int:
        return min((at for at in range(len(self.used)) if self.held[c] >> at & 1), key=lambda at: (self.read[at], at))

    def _drop(self, c: int, mask: int) -> bool:
        """Drop what is not wanted, except the copy that missing ones are made from."""
        keep = mask
        if mask & ~self.held[c]:
            keep |= 1 << self._best_source(c)
        extra = int(self.held[c] & ~keep)
        for at in range(len(self.used)):
            if extra >> at & 1:
                self.moves.append(("drop", self.names[self.value[c]], self.levels[at]))
        self._count(c, extra, -1)
        self.held[c] &= ~extra
        return extra != 0

    def _copy(self, c: int, mask: int) -> bool:
        """Make the missing copies that fit, the cheapest to read first."""
        size, progress = int(self.game.size[self.value[c]]), False
        missing = [at for at in range(len(self.used)) if (mask & ~self.held[c]) >> at & 1]
        for at in sorted(missing, key=lambda at: (self.read[at], at)):
            if self.used[at] + size <= self.capacity[at]:
                self._add(c, at)
                progress = True
        return progress

    def _add(self, c: int, at: int) -> None:
        source = self._best_source(c)
        self.moves.append(("copy", self.names[self.value[c]], self.levels[source], self.levels[at]))
        self._count(c, 1 << at, 1)
        self.held[c] |= 1 << at

    def _detour(self, pending: dict[int, int]) -> None:
        """Levels would have to swap: send the smallest chain that can leave a full one through the slowest."""
        slowest = len(self.used) - 1
        if self.capacity[slowest] < BOUNDED:
            raise AssertionError("a placement on one level never copies")
        stuck = [c for c, mask in pending.items() if self.held[c] & ~mask and self.held[c] != 1 << slowest]
        c = min(stuck, key=lambda c: (int(self.game.size[self.value[c]]), c))
        if not self.held[c] >> slowest & 1:
            self._add(c, slowest)
        extra = self.held[c] & ~pending[c] & ~(1 << slowest)
        for at in range(slowest):
            if extra >> at & 1:
                self.moves.append(("drop", self.names[self.value[c]], self.levels[at]))
        self._count(c, extra, -1)
        self.held[c] &= ~extra
