"""Launch fusion: ops that a plan runs one right after the other become one kernel launch.

A plan says when each value is made and dropped. Where ops that a compiler can fuse follow one another and share a value, one
launch does the work of all of them: the value is read once, and what is dropped again before the next op never exists. Such
ops are first moved next to each other where the referee agrees and the plan's peak does not grow. A launch is only made if it
is faster than its parts, and if what it holds, measured, stays below that peak; so the promise of the plan holds for it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pebbler.game.moves import Compute, Copy, Drop, Move
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check, require_legal
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.cost.costs import Cost

__all__ = ["Launch", "Price", "early_drops", "held_between", "launch_group", "plan_launches"]

Launch = Sequence[int]  # the computes that it runs, as positions among the plan's moves
Price = Callable[[Phase, CallGroup], Cost]
_WINDOW = 12  # computes to look back for one to join
_LEAST_GAIN = 0.02  # of the time of the parts
_MOST_CALLS = 48  # of one launch


def plan_launches(
    phase: Phase, plan: Plan, level: str, costs: Sequence[Cost], price: Price, room: int
) -> tuple[Plan, list[Launch], int]:
    """Return the plan with ops that can be launched together next to each other, the launches of two or more ops, and
    the most units that `level` holds while one of them runs, 0 without any.

    `costs` are those of the ops alone, `price` measures a group of several, and `room` is how many units `level` may hold.
    """
    return _LaunchFusion(phase, plan, level, costs, price, room).result()


def launch_group(phase: Phase, moves: Sequence[Move], launch: Launch) -> CallGroup:
    """Return the calls of a launch as one group; values dropped before the next op are none of its results.

    >>> import torch
    >>> from pebbler.run.torch.capture.captured import capture
    >>> from pebbler.run.torch.fuse.fusion import fuse
    >>> def step(x):
    ...     y = x.exp()
    ...     return y @ x, y.cos() @ x
    >>> phase = fuse(capture(step, torch.ones(3, 3))).phases[0]
    >>> moves = [Compute("exp_0"), Compute("cos_2"), Compute("mm_1"), Drop("exp_0", "memory")]
    >>> group = launch_group(phase, moves, (0, 1))
    >>> [call.name for call in group.calls], [phase.storage_names[s] for s in sorted(group.makes)]
    (['exp', 'cos'], ['exp_0', 'cos_2'])
    """
    calls = (call for position in launch for call in phase.group(_op(moves, position)).calls)
    launched = CallGroup.of(calls, fused=True)
    made: set[str] = set()
    for move in moves[launch[0] : _after_drops(moves, launch[-1])]:
        match move:
            case Compute(op):
                made |= {phase.storage_names[s] for s in phase.group(op).makes}
            case Drop(tensor):
                made.discard(tensor)
    launched.makes = {s for s in launched.makes if phase.storage_names.get(s) in made}
    return launched


def _op(moves: Sequence[Move], position: int) -> str:
    move = moves[position]
    assert isinstance(move, Compute)
    return move.op


def _after_drops(moves: Sequence[Move], position: int) -> int:
    """Return the next position whose move is no drop."""
    position += 1
    while position < len(moves) and isinstance(moves[position], Drop):
        position += 1
    return position


@dataclass
class _LaunchFusion:
    phase: Phase
    plan: Plan
    level: str
    costs: Sequence[Cost]
    price: Price
    room: int

    def __post_init__(self) -> None:
        self.moves = early_drops(self.plan)

    def result(self) -> tuple[Plan, list[Launch], int]:
        """Return the plan with its moves put together, the launches, and their memory."""
        self._gather()
        plan = self.plan.with_moves(self.moves)
        require_legal(plan)
        held = held_between(plan, self.level)
        launches = list(self._launches(held))
        return plan, launches, max((self._need(launch, held) for launch in launches), default=0)

    # Moving ops next to each other ------------------------------------------------------------------------------------

    def _gather(self) -> None:
        position = 0
        while position < len(self.moves):
            if self._is_fusable(position):
                for earlier in self._earlier(position):
                    if self._join(earlier, position):
                        break
            position += 1

    def _earlier(self, position: int) -> Iterator[int]:
        """Yield fusable computes before a compute that it shares a value with, the nearest first."""
        group = self._group(self.moves, position)
        seen = 0
        for other in range(position - 1, -1, -1):
            if isinstance(self.moves[other], Compute):
                seen += 1
                if seen > _WINDOW:
                    return
                if self._is_fusable(other) and self._shares(self._group(self.moves, other), group):
                    yield other

    def _join(self, earlier: int, position: int) -> bool:
        """Move a compute right after an earlier one if that is legal and pays; return whether they are now adjacent."""
        if _after_drops(self.moves, earlier) == position:
            return True
        if self._is_bound(earlier, position):
            return False  # the referee would say so too, but takes longer
        moved = [
            *self.moves[: earlier + 1],
            self.moves[position],
            *self.moves[earlier + 1 : position],
            *self.moves[position + 1 :],
        ]
        candidate = early_drops(self.plan.with_moves(moved))
        judgement = check(self.plan.with_moves(candidate))
        if not judgement.legal or judgement.peak[self.level] > self.room:
            return False
        if self._gain(candidate, (earlier, _after_drops(candidate, earlier))) is None:
            return False
        self.moves = candidate
        return True

    def _is_bound(self, earlier: int, position: int) -> bool:
        """Whether an op between two computes keeps the second from moving up to the first."""
        group = self._group(self.moves, position)
        uses, writes = group.reads | group.mutates, group.makes | group.mutates
        others = (self.phase.group(m.op) for m in self.moves[earlier + 1 : position] if isinstance(m, Compute))
        return any((other.makes | other.mutates) & uses or other.reads & writes for other in others)

    # Launches ---------------------------------------------------------------------------------------------------------

    def _launches(self, held: Sequence[int]) -> Iterator[Launch]:
        current: tuple[int, ...] = ()
        for position, move in enumerate(self.moves):
            if isinstance(move, Drop):
                continue
            joined = (*current, position)
            if current and self._is_fusable(position) and self._relates(current, position) and self._fits(joined, held):
                current = joined
                continue
            if len(current) > 1:
                yield current
            current = (position,) if self._is_fusable(position) else ()
        if len(current) > 1:
            yield current

    def _relates(self, launch: Launch, position: int) -> bool:
        group = self._group(self.moves, position)
        return any(self._shares(self._group(self.moves, other), group) for other in launch)

    def _fits(self, launch: Launch, held: Sequence[int]) -> bool:
        return self._gain(self.moves, launch) is not None and self._need(launch, held) <= self.room

    def _need(self, launch: Launch, held: Sequence[int]) -> int:
        """Return the units that the level holds while a launch runs: earlier contents, results and scratch."""
        group = launch_group(self.phase, self.moves, launch)
        results = sum(self.plan.graph.tensor_named(self.phase.storage_names[s]).size for s in group.makes)
        return held[launch[0]] + results + self.price(self.phase, group).scratch

    def _gain(self, moves: Sequence[Move], launch: Launch) -> Cost | None:
        """Return the cost of a launch if it is less than that of its parts."""
        group = launch_group(self.phase, moves, launch)
        if len(group.calls) > _MOST_CALLS or self._makes_again(moves, launch):
            return None
        alone = [self.costs[self.phase.graph.op_index(_op(moves, position))].seconds for position in launch]
        parts = sum(alone)
        if len(launch) > 2:  # the parts have been joined before
            parts = alone[-1]
            before = self._gain(moves, launch[:-1])
            if before is None:
                return None
            parts += before.seconds
        cost = self.price(self.phase, group)
        return cost if cost.seconds < (1 - _LEAST_GAIN) * parts else None

    def _makes_again(self, moves: Sequence[Move], launch: Launch) -> bool:
        """Whether an op makes what an earlier one of the same launch has used: one kernel cannot hold both."""
        touched: set[int] = set()
        for position in launch:
            group = self._group(moves, position)
            if group.makes & touched:
                return True
            touched |= group.touches
        return False

    def _is_fusable(self, position: int) -> bool:
        return isinstance(self.moves[position], Compute) and self._group(self.moves, position).fused

    def _group(self, moves: Sequence[Move], position: int) -> CallGroup:
        return self.phase.group(_op(moves, position))

    def _shares(self, a: CallGroup, b: CallGroup) -> bool:
        made_here = {s for s in a.touches if self.phase.record.storages[s].place is None}
        return bool(made_here & (b.reads | b.mutates))


def held_between(plan: Plan, level: str) -> list[int]:
    """Return the number of units that a level holds before the first move, and after every move."""
    replay, at = plan.replay(), plan.machine.level_index(level)
    size = plan.graph.dataflow.value_size.tolist()

    def here(held: Iterable[tuple[int, int]]) -> int:
        return sum(size[value] for value, where in held if where == at)

    held = [here(replay.start)]
    for step in replay:
        held.append(held[-1] + here(step.added) - here(step.removed))
    return held


def early_drops(plan: Plan) -> list[Move]:
    """Return the moves with every drop right after the last compute before it that touches the dropped value.

    A drop behind a copy stays where it is: until then the copy has time to end.
    """
    touched = {op.name: {*op.reads, *op.writes} for op in plan.graph.ops}
    drops_after: dict[int, list[Move]] = {}  # by the number of the other move that they follow, -1 for the start
    last: dict[str, int] = {}
    rest: list[Move] = []
    for move in plan.moves:
        match move:
            case Drop(tensor):
                position = last.get(tensor, -1)
                if position >= 0 and isinstance(rest[position], Copy):
                    position = len(rest) - 1
                drops_after.setdefault(position, []).append(move)
                continue
            case Compute(op):
                last.update(dict.fromkeys(touched[op], len(rest)))
            case Copy(tensor):
                last[tensor] = len(rest)
        rest.append(move)
    moves = drops_after.get(-1, [])
    for i, move in enumerate(rest):
        moves += [move, *drops_after.get(i, [])]
    return moves
