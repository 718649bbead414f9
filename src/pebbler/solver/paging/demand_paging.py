"""Plans in a given order by simple rules: demand loading with LRU eviction, and Belady's farthest next use.

Under operands "fastest" the runtime loads on demand, evicts the least recently used (or the value whose next use is farthest)
and writes back what has no other copy. In a loop, the params that one step leaves in the fastest level are there when the next
one begins. Under "any" nothing is ever copied: reads happen where the value is, and a result, or in a steady plan a param, goes
to the fastest level that has room for it. Where results may go over what is dropped right after, the room of what nothing reads
any more counts as free.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Literal

from pebbler.game.moves import MoveList
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem

__all__ = ["RUNTIME", "demand_plan", "program_order_plan"]

# What program order means where somebody has to decide what is where, by the machine's `operands`.
RUNTIME = {
    "fastest": "tensors loaded on demand, the least recently used evicted; params that fit stay from step to step",
    "any": "every tensor stays in the fastest level with room for it",
}
_ROUNDS = 8  # steps that are run to find which params stay in fast memory


def program_order_plan(problem: Problem) -> Plan | None:
    """Return program order as a straightforward runtime would run it; None if no plan in that order fits.

    >>> from pebbler import machine, workloads
    >>> list(program_order_plan(Problem.of(workloads.chain(1), machine("red-blue"))).moves)[:3]
    [Copy('N0', 'slow', 'fast'), Compute('c1'), Compute('b1')]
    """
    return demand_plan(problem, range(len(problem.graph.ops)), evict="least recent")


def demand_plan(problem: Problem, order: Sequence[int], evict: Literal["least recent", "farthest"]) -> Plan | None:
    """Return a plan in some order, without recomputation, by one of two eviction rules; None if the order does not fit.

    `farthest` is Belady's rule (IBM Systems Journal 5, 1966), ties going to what needs no write-back. Under "any" nothing is
    evicted.

    >>> from pebbler import machine, workloads
    >>> from pebbler.game.moves import COPY
    >>> problem = Problem.of(workloads.chain(12), machine("red-blue"))
    >>> plan = demand_plan(problem, range(25), "farthest")
    >>> int((plan.moves.kind == COPY).sum())  # N0 twice; one store and its load
    4
    """
    runtime = _Runtime(problem, order, evict)
    plan = runtime.run()
    if plan is not None and problem.machine.operands == "fastest" and len(problem.machine.level) > 1:
        plan = _with_kept_params(problem, order, evict, plan, runtime.left_in_fastest)
    if plan is None and problem.machine.operands == "any" and len(problem.machine.level) > 1:
        plan = _Runtime(problem, order, evict, all_in_slowest=True).run()
    return plan


def _with_kept_params(problem: Problem, order: Sequence[int], evict: str, plan: Plan, kept: set[int]) -> Plan:
    """Return a plan of a steady step that begins with the params in fast memory that it ends with, `kept` at the most.

    Params that are evicted after all go back to the slowest level, and the step runs again without them; `plan`, which keeps
    none, is returned where nothing is left or it is cheaper.
    """
    for _ in range(_ROUNDS):
        if not kept:
            break
        runtime = _Runtime(problem, order, evict, kept=kept)
        found = runtime.run()
        if found is not None and runtime.left_in_fastest >= kept:
            return min(plan, found, key=lambda one: check(one).energy)
        kept = kept & runtime.left_in_fastest if found is not None else set()
    return plan


class _Runtime:
    """The memory as it is while the order runs; `kept` are steady params that start and end in the fastest level."""

    def __init__(
        self,
        problem: Problem,
        order: Sequence[int],
        evict: str,
        all_in_slowest: bool = False,
        kept: Collection[int] = (),
    ) -> None:
        self.flow = flow = problem.graph.dataflow
        self.all_in_slowest = all_in_slowest
        self.kept = kept
        self.left_in_fastest: set[int] = set()  # steady params, by tensor, that are there when the last op has run
        self.problem, self.order, self.evict = problem, list(order), evict
        self.names = problem.machine.names
        self.capacity = [level.capacity for level in problem.machine.level]
        self.sizes = flow.value_size.tolist()
        self.tensor = flow.value_tensor.tolist()
        self.held: dict[int, set[int]] = {}  # per value that is there: its levels
        self.used = [0] * len(self.names)
        self.touched: dict[int, int] = {}
        # A heap; entries whose rank has changed since are passed over.
        self.victims: list[tuple[tuple[int, ...], int]] = []
        self.moves = MoveList()
        self.start = dict(problem.start)
        self.reads, self.writes, self.destroys = flow.op_reads.lists(), flow.op_writes.lists(), flow.op_destroys.lists()
        # Positions of the reads of every value, last first, so that the next one is popped off the end.
        self.uses: list[list[int]] = [[] for _ in range(flow.values)]
        for position in range(len(self.order) - 1, -1, -1):
            for value in dict.fromkeys(self.reads[self.order[position]]):
                self.uses[value].append(position)
        self.storage = flow.storage[flow.value_tensor].tolist()
        self.room: dict[int, int] = {}  # per storage: the most that it ever needs, for its versions may differ in size
        for value, storage in enumerate(self.storage):
            self.room[storage] = max(self.room.get(storage, 0), self.sizes[value])
        self.homes: dict[int, int] = {}  # per storage of a steady param: the level where it starts and ends

    def run(self) -> Plan | None:
        if not self._begin():
            return None
        fastest = self.problem.machine.operands == "fastest"
        for position, op in enumerate(self.order):
            done = self._run_in_fastest(op) if fastest else self._run_anywhere(op)
            if not done:
                return None
            for value in (*self.reads[op], *self.writes[op]):
                self.touched[value] = position
                if self.uses[value] and self.uses[value][-1] == position:
                    self.uses[value].pop()
            for value in dict.fromkeys((*self.reads[op], *self.writes[op])):
                if value in self.held and not self._wanted(value):
                    self._drop(value, sorted(self.held[value]))
                self._rank_anew(value)
        return self._finish()

    def _begin(self) -> bool:
        """Put the start values in place; steady params go where they will be at the end as well."""
        problem, slowest = self.problem, len(self.names) - 1
        looped = set(problem.looped_params)
        for tensor, levels in problem.start_choices().items():
            value = int(self.flow.start_value[tensor])
            if tensor in looped:
                home = 0 if tensor in self.kept else slowest
                if problem.machine.operands == "any":
                    home = min(slowest, self._first_with_room(self.room[self.storage[value]]))
                levels, self.homes[self.storage[value]] = [home], home
                self.start[self.flow.tensor_names[tensor]] = self.names[home]
            elif levels is None:  # free: as near as there is room, one tensor after the other
                near = problem.machine.operands == "any"
                levels = [min(slowest, self._first_with_room(self.sizes[value])) if near else slowest]
                self.start[self.flow.tensor_names[tensor]] = self.names[levels[0]]
            elif problem.steady:
                self.start.pop(self.flow.tensor_names[tensor], None)  # an input: it is in the slowest level only
            for level in levels or ():
                self._put(value, level)
        if any(limit is not None and used > limit for used, limit in zip(self.used, self.capacity, strict=True)):
            return False
        for value in sorted(self.held):
            if not self._wanted(value):
                self._drop(value, sorted(self.held[value]))
        return True

    def _finish(self) -> Plan | None:
        """Bring steady params back to where they started."""
        final = {tensor: int(self.flow.final_value[tensor]) for tensor in self.problem.looped_params}
        self.left_in_fastest = {tensor for tensor, value in final.items() if 0 in self.held[value]}
        for tensor in self.problem.looped_params:
            value = int(self.flow.final_value[tensor])
            home = self.homes[self.storage[value]]
            if home not in self.held[value]:
                limit = self.capacity[home]
                if limit is not None and self.used[home] + self.sizes[value] > limit:
                    return None
                self._copy(value, min(self.held[value]), home)
            self._drop(value, sorted(self.held[value] - {home}))
        return self.problem.plan(self.moves.moves(self.problem.graph, self.problem.machine), self.start)

    # Operands in the fastest level ------------------------------------------------------------------------------------

    def _run_in_fastest(self, op: int) -> bool:
        reads = list(dict.fromkeys(self.reads[op]))
        pinned = set(reads)
        if not self._make_room(sum(self.sizes[value] for value in reads if 0 not in self.held[value]), pinned):
            return False
        for value in reads:
            if 0 not in self.held[value]:
                self._copy(value, min(self.held[value]), 0)
        freed = sum(self.sizes[value] for value in self.destroys[op] if value in self.held and 0 in self.held[value])
        if not self._make_room(sum(self.sizes[value] for value in self.writes[op]) - freed, pinned):
            return False
        self._compute(op, 0)
        return True

    def _make_room(self, units: int, pinned: set[int]) -> bool:
        limit = self.capacity[0]
        if limit is None:
            return True
        while self.used[0] + units > limit:
            value = self._victim(pinned)
            if value is None:
                return False
            if len(self.held[value]) == 1 and self._wanted(value):
                if len(self.names) == 1:
                    return False  # nowhere to write it to
                self._copy(value, 0, len(self.names) - 1)
            self._drop(value, [0])
        return True

    def _victim(self, pinned: set[int]) -> int | None:
        """Return the value that the rule evicts next, if there is one."""
        spared = []
        found = None
        while self.victims and found is None:
            rank, value = heappop(self.victims)
            if 0 in self.held.get(value, ()) and rank == self._rank(value):
                if value in pinned:
                    spared.append((rank, value))
                else:
                    found = value
        for entry in spared:
            heappush(self.victims, entry)
        return found

    def _rank(self, value: int) -> tuple[int, ...]:
        if self.evict == "farthest":
            next_use = self.uses[value][-1] if self.uses[value] else len(self.order)
            return -next_use, -(len(self.held[value]) > 1), -self.sizes[value]
        return (self.touched.get(value, -1),)

    def _rank_anew(self, value: int) -> None:
        """Enter a value among those that may be evicted; older entries of it no longer have its rank, or are the same."""
        if self.sizes[value] > 0 and 0 in self.held.get(value, ()):
            heappush(self.victims, (self._rank(value), value))

    # Operands anywhere ------------------------------------------------------------------------------------------------

    def _run_anywhere(self, op: int) -> bool:
        freed = [0] * len(self.names)
        for value in self.destroys[op]:
            for level in self.held.get(value, ()):
                freed[level] += self.sizes[value]
        written = self.writes[op]
        if self.problem.machine.results == "over":
            for value in {value for value in self.reads[op] if value not in self.destroys[op]}:
                if len(self.uses[value]) == 1 and not self._kept(value):
                    for level in self.held[value]:
                        freed[level] += self.sizes[value]
            written = [value for value in written if self._wanted(value)]
        units = sum(self.sizes[value] for value in written)
        level = self._first_with_room(units, freed)
        if len(self.writes[op]) == 1:  # an updated param goes back to where it was
            home = self.homes.get(self.storage[self.writes[op][0]])
            level = level if home is None or not self._has_room(home, units, freed) else home
        if level >= len(self.names):
            return False
        self._compute(op, level)
        return True

    def _first_with_room(self, units: int, freed: Sequence[int] | None = None) -> int:
        for level in range(len(self.capacity)):
            if self.all_in_slowest and level < len(self.capacity) - 1:
                continue
            if self._has_room(level, units, freed):
                return level
        return len(self.names)

    def _has_room(self, level: int, units: int, freed: Sequence[int] | None) -> bool:
        limit = self.capacity[level]
        return limit is None or self.used[level] - (freed[level] if freed else 0) + units <= limit

    # Moves ------------------------------------------------------------------------------------------------------------

    def _wanted(self, value: int) -> bool:
        return bool(self.uses[value]) or self._kept(value)

    def _kept(self, value: int) -> bool:
        if self.flow.value_must_survive[value]:
            return True
        # Under "any" a steady param never leaves its home, so that its room there is its own.
        return self.problem.machine.operands == "any" and self.storage[value] in self.homes

    def _put(self, value: int, level: int) -> None:
        levels = self.held.setdefault(value, set())
        if level not in levels:
            levels.add(level)
            self.used[level] += self.sizes[value]
            self._rank_anew(value)

    def _take(self, value: int, level: int) -> None:
        self.held[value].remove(level)
        self.used[level] -= self.sizes[value]
        if not self.held[value]:
            del self.held[value]
        self._rank_anew(value)

    def _copy(self, value: int, source: int, goal: int) -> None:
        self.moves.copy(self.tensor[value], source, goal)
        self._put(value, goal)

    def _drop(self, value: int, levels: list[int]) -> None:
        for level in levels:
            self.moves.drop(self.tensor[value], level)
            self._take(value, level)

    def _compute(self, op: int, level: int) -> None:
        self.moves.compute(op, level)
        for value in self.destroys[op]:
            for at in sorted(self.held.get(value, ())):
                self._take(value, at)
        for value in self.writes[op]:
            self._put(value, level)
