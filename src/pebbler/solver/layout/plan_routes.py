"""The layout that a plan has: which levels hold each value before, at and after each of its uses."""

from __future__ import annotations

import numpy as np

from pebbler.game.moves import COMPUTE, DROP
from pebbler.game.plan import Plan
from pebbler.solver.layout.kernels.rerouting import take_all
from pebbler.solver.layout.kernels.room import empty_room
from pebbler.solver.layout.kernels.value_route import Routes, scratch_for
from pebbler.solver.layout.layout_arrays import LayoutGame

__all__ = ["routes_of"]


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
    room = empty_room(game.capacity, arrays.slots, bool((arrays.size == 1).all()))
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
