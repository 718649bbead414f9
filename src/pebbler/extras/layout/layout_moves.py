"""A layout as moves, at every op what is copied and dropped before it and where its result goes; and the layout that a plan has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pebbler.extras.layout.kernels.rerouting import take_all
from pebbler.extras.layout.kernels.value_route import Routes, empty_room, scratch_for
from pebbler.extras.layout.layout_arrays import LayoutGame
from pebbler.game.moves import COMPUTE, DROP, MoveList
from pebbler.game.plan import Plan
from pebbler.solver.problem import Problem

__all__ = ["layout_plan", "routes_of"]


def layout_plan(problem: Problem, game: LayoutGame, routes: Routes, source: Problem | None = None) -> Plan:
    """Return the plan of a layout; `source` is the problem as it was given, where this one is of its graph in another form."""
    writer = _Writer(problem, game, routes)
    moves = writer.write().moves(problem.graph, problem.machine)
    start = dict(problem.start) | writer.start
    return (source or problem).plan(moves, start, problem.graph)


class _Writer:
    """The moves while they are written: who is where, and how much room is left."""

    def __init__(self, problem: Problem, game: LayoutGame, routes: Routes) -> None:
        self.flow, self.game = problem.graph.dataflow, game
        # A result that nobody needs takes no room: it is dropped right after.
        self.cheapest = int(np.argmin([level.write for level in problem.machine.level]))
        self.moves = MoveList()
        self.levels = game.levels.tolist()
        self.read = game.arrays.read.tolist()
        self.size = game.arrays.size.tolist()
        self.tensor = self.flow.value_tensor[game.values].tolist()
        self.room = game.capacity.tolist()
        self.held: list[set[int]] = [set() for _ in self.size]
        self.changes, self.begins = self._changes(routes)
        self.start: dict[str, str | list[str]] = {}
        for tensor in problem.free_starts:
            self.start[self.flow.tensor_names[tensor]] = problem.machine.names[-1]
        begun = {self.tensor[value]: level for value, level in self.begins.pop(0, [])}
        for tensor, where in problem.start_choices().items():
            wanted = self.levels[begun[tensor]] if tensor in begun else None
            if tensor in begun:
                self._put(self.number[int(self.flow.start_value[tensor])], begun[tensor])
            if where is not None:  # one copy is routed; others, and what nobody needs, leave their room at once
                for level in where if self.flow.tensor_size[tensor] else ():
                    if level != wanted:
                        self.moves.drop(tensor, level)
            elif wanted is not None:
                self.start[self.flow.tensor_names[tensor]] = problem.machine.names[wanted]

    def _changes(self, routes: Routes) -> tuple[dict[int, dict[int, set[int]]], dict[int, list[tuple[int, int]]]]:
        """Return per slot which values are in which levels from then on, and which values begin where."""
        arrays = self.game.arrays
        near, far = routes.near.tolist(), routes.far.tolist()
        use_start, use = arrays.use_start.tolist(), arrays.use.tolist()
        changes: dict[int, dict[int, set[int]]] = {}
        begins: dict[int, list[tuple[int, int]]] = {}
        for value, (first, end) in enumerate(zip(arrays.first.tolist(), arrays.end.tolist(), strict=True)):
            base = arrays.parts * use_start[value] + value
            begins.setdefault(first, []).append((value, near[base]))
            before = {near[base]}
            steps = (0, 2) if arrays.parts == 2 else (0, 1, 2)
            slots = [2 * p + step for p in use[use_start[value] : use_start[value + 1]] for step in steps]
            for k, slot in enumerate(slots, 1):
                now = {near[base + k]} | ({far[base + k]} if far[base + k] >= 0 else set())
                if slot < end and now != before:
                    changes.setdefault(slot, {})[value] = now
                    before = now
            if end < arrays.slots:
                changes.setdefault(end, {})[value] = set()
        return changes, begins

    def write(self) -> MoveList:
        """Write all moves."""
        for position, op in enumerate(self.game.order.tolist(), 1):
            self._change(self.changes.get(2 * position, {}))
            results = self.begins.get(2 * position + 1, [])
            brief = [value for value in self.flow.op_writes.row(op).tolist() if value not in self.number]
            self.moves.compute(op, self.levels[results[0][1]] if results else self.cheapest)
            for value in brief if not results else ():
                if self.flow.value_size[value]:
                    self.moves.drop(int(self.flow.value_tensor[value]), self.cheapest)
            for value in self._destroyed(op):
                for level in sorted(self.held[value]):
                    self._take(value, level)
            for value, level in results:
                self._put(value, level)
            for value, wanted in sorted(self.changes.get(2 * position + 1, {}).items()):
                self._drop(value, self.held[value] - wanted)
        return self.moves

    def _destroyed(self, op: int) -> Iterable[int]:
        gone = self.flow.op_destroys.row(op).tolist()
        return [self.number[value] for value in gone if value in self.number]

    @property
    def number(self) -> dict[int, int]:
        """The numbers that the arrays have for the graph's values."""
        if not hasattr(self, "_number"):
            self._number = {value: i for i, value in enumerate(self.game.values.tolist())}
        return self._number

    def _change(self, wanted: dict[int, set[int]]) -> None:
        """Copy and drop until every value is where it is wanted; what stands in its own way takes a detour by the last level."""
        for value in sorted(wanted):
            if wanted[value] <= self.held[value]:
                self._drop(value, self.held[value] - wanted[value])
        waiting = [value for value in sorted(wanted) if wanted[value] - self.held[value]]
        while waiting:
            stuck = []
            for value in waiting:
                for level in sorted(wanted[value] - self.held[value]):
                    if self.room[level] >= self.size[value]:
                        self._copy(value, level)
                if wanted[value] <= self.held[value]:
                    self._drop(value, self.held[value] - wanted[value])
                else:
                    stuck.append(value)
            if len(stuck) == len(waiting):
                self._copy(stuck[0], len(self.levels) - 1)
                self._drop(stuck[0], self.held[stuck[0]] - {len(self.levels) - 1})
            waiting = stuck

    def _copy(self, value: int, level: int) -> None:
        if level in self.held[value]:
            return
        source = min(self.held[value], key=lambda at: (self.read[at], at))
        self.moves.copy(self.tensor[value], self.levels[source], self.levels[level])
        self._put(value, level)

    def _drop(self, value: int, levels: set[int]) -> None:
        for level in sorted(levels):
            self.moves.drop(self.tensor[value], self.levels[level])
            self._take(value, level)

    def _put(self, value: int, level: int) -> None:
        self.held[value].add(level)
        self.room[level] -= self.size[value]

    def _take(self, value: int, level: int) -> None:
        self.held[value].remove(level)
        self.room[level] += self.size[value]


# The way back: the layout that a plan has ------------------------------------------------------------------------------


def routes_of(game: LayoutGame, plan: Plan) -> Routes | None:
    """Return the routes of a plan that runs every op once; None where it has more copies than routes can say."""
    held = _held_by_slot(game, plan)
    arrays = game.arrays
    near: list[int] = []
    far: list[int] = []
    rank = {int(level): i for i, level in enumerate(game.levels)}
    steps = (0, 2) if arrays.parts == 2 else (0, 1, 2)
    for value, (first, end) in enumerate(zip(arrays.first.tolist(), arrays.end.tolist(), strict=True)):
        uses = arrays.use[arrays.use_start[value] : arrays.use_start[value + 1]].tolist()
        slots = [first, *(2 * use + step for use in uses for step in steps)]
        for slot in slots:
            # A segment without slots takes no room; it has what comes before it.
            levels = held[value].get(slot) if slot < end else None
            found = sorted(rank[level] for level in levels) if levels and all(x in rank for x in levels) else None
            if levels is None and near:
                found = [near[-1]]
            if found is None or len(found) > 2 or not found:
                return None
            near.append(found[0])
            far.append(found[1] if len(found) == 2 else -1)
    routes = Routes(np.array(near, np.int8), np.array(far, np.int8), np.zeros(len(arrays.size)))
    room = empty_room(game.capacity, arrays.slots, len(arrays.size), single=False)
    take_all(arrays, scratch_for(arrays), room, routes)
    return routes if bool((room.taken <= game.capacity[:, None]).all()) else None


def _held_by_slot(game: LayoutGame, plan: Plan) -> list[dict[int, frozenset[int]]]:
    """Return per value the levels that hold it in the slots next to its birth and its uses."""
    flow, arrays = plan.graph.dataflow, game.arrays
    present: dict[int, set[int]] = {}
    current = flow.start_value.tolist()
    for tensor, levels in plan.start_levels().items():
        present[current[tensor]] = set(levels)
    wanted: dict[int, set[int]] = {}
    for value, first in enumerate(arrays.first.tolist()):
        uses = arrays.use[arrays.use_start[value] : arrays.use_start[value + 1]].tolist()
        for slot in (first, *(2 * use + step for use in uses for step in (0, 1, 2))):
            wanted.setdefault(slot, set()).add(value)
    held: list[dict[int, frozenset[int]]] = [{} for _ in arrays.size]
    values = game.values.tolist()

    def note(slot: int) -> None:
        for value in wanted.get(slot, ()):
            held[value][slot] = frozenset(present.get(values[value], ()))

    note(0)
    moves = plan.moves
    columns = (moves.kind.tolist(), moves.subject.tolist(), moves.level.tolist(), moves.to.tolist())
    position, after = 1, False
    for kind, subject, level, goal in zip(*columns, strict=True):
        if after and kind != DROP:
            note(2 * position - 1)
            after = False
        if kind == COMPUTE:
            note(2 * position)
            for value in flow.op_destroys.row(subject).tolist():
                present.pop(value, None)
            for value in flow.op_writes.row(subject).tolist():
                current[flow.value_tensor[value]] = value
                present[value] = {level}
            position, after = position + 1, True
        elif kind == DROP:
            present[current[subject]].discard(level)
        else:
            present[current[subject]].add(goal)
    note(2 * position - 1)
    note(2 * position)
    return held
