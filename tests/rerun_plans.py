"""Plans of any graph with ops that run again: orders for caches, and where a plan places everything a runtime of random habits.

They share nothing with the searches of the library but the referee.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.moves import Compute, Copy, Drop, Move, Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check

NEVER, AT_END = 10**9, 10**8  # when a value is used next


@dataclass(frozen=True)
class Attacked:
    """What plans are sought for."""

    graph: Graph
    machine: Machine
    steady: bool
    source: Graph | None


def random_orders(rng: random.Random, graph: Graph, count: int = 6) -> Iterator[list[int]]:
    """Yield program order, and orders tile by tile with axes and directions as they come, deep first, or by chance."""
    flow = graph.dataflow
    yield list(range(flow.ops))
    at = [op.meta.get("tile", {}).get("at", {}) for op in graph.ops]
    axes = sorted({axis for one in at for axis in one})
    for _ in range(count):
        first, sign = rng.sample(axes, len(axes)), {axis: rng.choice([1, -1]) for axis in axes}
        noise = [rng.random() for _ in range(flow.ops)]
        where = [tuple(sign[axis] * one.get(axis, (0, 0))[0] for axis in first) for one in at]
        kind = rng.choice(["tiles", "tiles", "deep tiles", "chance"])
        keys: list[object] = [
            {"tiles": (where[op], op), "deep tiles": (where[op][:1], -op), "chance": noise[op]}[kind]
            for op in range(flow.ops)
        ]
        waits, after = [len(row) for row in flow.before], flow.after.lists()
        ready, order = [op for op, number in enumerate(waits) if number == 0], []
        while ready:
            op = min(ready, key=lambda one: keys[one])  # type: ignore[return-value]
            ready.remove(op)
            order.append(op)
            for other in after[op]:
                waits[other] -= 1
                ready += [other] if waits[other] == 0 else []
        yield order


def with_reruns(rng: random.Random, graph: Graph, order: list[int]) -> list[int]:
    """Return the order with some makers run again before their results are read, where those were used some time ago."""
    flow, share, age = graph.dataflow, rng.choice([0.2, 0.5, 1.0]), rng.randint(1, 6)
    reads, writes = flow.op_reads.lists(), flow.op_writes.lists()
    picked = {op for op in range(flow.ops) if flow.op_can_rerun[op] and rng.random() < share}
    used: dict[int, int] = {}
    gone: set[int] = set()
    found: list[int] = []

    def run(op: int, depth: int) -> None:
        for value in reads[op]:
            maker = int(flow.value_maker[value])
            old = value in used and len(found) - used[value] > age
            if maker in picked and old and depth < 3 and not gone.intersection((*reads[maker], *writes[maker])):
                run(maker, depth + 1)
        found.append(op)
        used.update(dict.fromkeys((*reads[op], *writes[op]), len(found)))
        gone.update(flow.op_destroys.row(op).tolist())

    for op in order:
        run(op, 0)
    return found


def changed(rng: random.Random, graph: Graph, order: list[int]) -> list[int]:
    """Return an order with one run more or less, makers run again, a stretch turned around or a few runs elsewhere."""
    order, pick = list(order), rng.random()
    if pick < 0.2:
        order.insert(rng.randint(0, len(order)), rng.choice(order))
    elif pick < 0.35:
        del order[rng.randrange(len(order))]
    elif pick < 0.5:
        return with_reruns(rng, graph, order)
    elif pick < 0.6:
        first, last = sorted(rng.sample(range(len(order) + 1), 2))
        order[first:last] = order[first:last][::-1]
    else:
        start, block = rng.randrange(len(order)), rng.randint(1, 4)
        moved = order[start : start + block]
        del order[start : start + block]
        place = rng.randint(0, len(order))
        order[place:place] = moved
    return order


def cheapest_found(rng: random.Random, attacked: Attacked, tries: int) -> float:
    """Return the energy of the cheapest plan found by hill climbing; infinite if none was."""
    graph, machine = attacked.graph, attacked.machine
    params = [tensor.name for tensor in graph.tensors if tensor.kind == "param"]
    best, energy = ([*range(len(graph.ops))], dict[str, int]()), float("inf")

    def starts() -> dict[str, int]:
        near = rng.choice([0.0, 0.5, 1.0])
        return {name: rng.randrange(len(machine.level)) for name in params if rng.random() < near}

    def consider(order: list[int], start: dict[str, int]) -> None:
        nonlocal best, energy
        if machine.management == "explicit":
            plan = Runtime(rng, attacked, order, start).played()
        else:
            moves = Moves.computes(graph, machine, order)
            plan = Plan(graph, machine, moves, steady=attacked.steady, source=attacked.source)
        judgement = check(plan) if plan is not None else None
        if judgement is not None and judgement.legal and judgement.energy < energy:
            best, energy = (order, start), judgement.energy

    for order in random_orders(rng, graph):
        consider(order, starts())
        consider(with_reruns(rng, graph, order), starts())
    for _ in range(tries):
        if params and machine.management == "explicit" and rng.random() < 0.2:
            consider(best[0], starts())
        else:
            consider(changed(rng, graph, best[0]) or [0], best[1])
    return energy


class Runtime:
    """Plays a sequence of runs. By habit it prefers some levels, loads what is used soon, and drops what is made again."""

    def __init__(self, rng: random.Random, attacked: Attacked, sequence: list[int], start: dict[str, int]) -> None:
        self.attacked, self.sequence, self.start = attacked, sequence, start
        self.graph, self.machine, self.flow = attacked.graph, attacked.machine, attacked.graph.dataflow
        self.room = [level.capacity if level.capacity is not None else 10**15 for level in self.machine.level]
        levels = range(len(self.room))
        self.horizon, self.small = rng.choice([0, 1, 3, 10, 1000]), rng.choice([1, 2, 5, 1000])
        self.prefers = [*levels] if rng.random() < 0.7 else rng.sample(levels, len(levels))
        self.loads_to = rng.choice(levels)
        self.eager = rng.random() < 0.7
        self.held: dict[int, set[int]] = {}
        self.used = [0] * len(self.room)
        self.moves: list[Move] = []
        self.ends: dict[int, int] = {}  # values that must be at one level in the end
        self.uses: dict[int, list[int]] = {}
        for when, op in enumerate(sequence):
            for value in self.flow.op_reads.row(op).tolist():
                self.uses.setdefault(value, []).append(when)

    def played(self) -> Plan | None:
        """Return the plan, or None where something did not fit or was not there."""
        start = self._begin()
        if not all(self._run(at, op) for at, op in enumerate(self.sequence)) or not self._end():
            return None
        moves = Moves.of(self.graph, self.machine, self.moves)
        return Plan(self.graph, self.machine, moves, start, self.attacked.steady, source=self.attacked.source)

    def _begin(self) -> dict[str, str]:
        flow, slowest, start = self.flow, len(self.room) - 1, {}
        for tensor, one in enumerate(self.graph.tensors):
            value = int(flow.start_value[tensor])
            if value == NONE:
                continue
            looped = self.attacked.steady and one.kind == "param"
            level = self.start.get(one.name, slowest) if looped else slowest
            level = level if self.used[level] + one.size <= self.room[level] else slowest
            if level != slowest:
                start[one.name] = self.machine.names[level]
            self._add(value, level)
            if looped:
                self.ends[int(flow.final_value[tensor])] = level
        return start

    def _run(self, at: int, op: int) -> bool:
        flow, fastest = self.flow, self.machine.operands == "fastest"
        reads, writes = flow.op_reads.row(op).tolist(), flow.op_writes.row(op).tolist()
        kept = {*reads, *writes}
        for value in reads:
            if not self.held.get(value):
                return False
            soon = any(at < when <= at + self.horizon for when in self.uses[value]) and self._size(value) <= self.small
            target = 0 if fastest else self.loads_to
            wanted = fastest or (soon and target < min(self.held[value]))
            if wanted and target not in self.held[value] and self._make_room(target, self._size(value), kept, at):
                self._copy(value, target)
            if fastest and 0 not in self.held[value]:
                return False
        gone = flow.op_destroys.row(op).tolist() if op not in self.sequence[:at] else []
        level = self._place(at, writes, gone, kept)
        if level is None:
            return False
        self.moves.append(Compute(flow.op_names[op], self.machine.names[level]))
        for value in gone:
            self._forget(value, said=False)
        for value in writes:
            self._add(value, level)
        for value in kept:
            again = self.eager and self._comes_again(value, at + 1)
            if self.held.get(value) and (self._next_use(value, at + 1) == NEVER or again):
                self._forget(value, said=True)
        return True

    def _place(self, at: int, writes: list[int], gone: list[int], kept: set[int]) -> int | None:
        large = sum(map(self._size, writes)) > 3 * self.small
        prefers = [*self.prefers[1:], self.prefers[0]] if large else self.prefers
        for level in [0] if self.machine.operands == "fastest" else prefers:
            new = sum(self._size(value) for value in writes if level not in self.held.get(value, ()))
            new -= sum(self._size(value) for value in gone if level in self.held.get(value, ()))
            if self._make_room(level, new, {*kept, *gone}, at):
                return level
        return None

    def _end(self) -> bool:
        for value, level in self.ends.items():
            if not self.held.get(value):
                return False
            if level not in self.held[value]:
                if not self._make_room(level, self._size(value), set(self.ends), len(self.sequence)):
                    return False
                self._copy(value, level)
            for other in self.held[value] - {level}:
                self._drop(value, other)
        return True

    def _make_room(self, level: int, units: int, kept: set[int], at: int) -> bool:
        """Make room in a level, farthest use first; what is still needed and nowhere else is saved further down."""
        while self.used[level] + units > self.room[level]:
            here = [value for value, where in self.held.items() if level in where and value not in kept]
            if not here:
                return False
            value = max(here, key=lambda one: (self._next_use(one, at), len(self.held[one]), self._size(one)))
            needed = self._next_use(value, at) < NEVER and not self._comes_again(value, at)
            if needed and len(self.held[value]) == 1:
                down = [
                    to for to in range(level + 1, len(self.room)) if self.used[to] + self._size(value) <= self.room[to]
                ]
                if not down:
                    return False
                self._copy(value, down[0])
            self._drop(value, level)
        return True

    def _next_use(self, value: int, at: int) -> int:
        survives = bool(self.flow.value_must_survive[value]) or value in self.ends
        return next((when for when in self.uses.get(value, ()) if when >= at), AT_END if survives else NEVER)

    def _comes_again(self, value: int, at: int) -> bool:
        """Whether its maker runs once more before the next use."""
        use = self._next_use(value, at)
        return use < AT_END and int(self.flow.value_maker[value]) in self.sequence[at:use]

    def _size(self, value: int) -> int:
        return int(self.flow.value_size[value])

    def _name(self, value: int) -> str:
        return self.flow.tensor_names[self.flow.value_tensor[value]]

    def _add(self, value: int, level: int) -> None:
        if level not in self.held.setdefault(value, set()):
            self.held[value].add(level)
            self.used[level] += self._size(value)

    def _copy(self, value: int, level: int) -> None:
        source = min(self.held[value], key=lambda at: self.machine.level[at].read)
        self.moves.append(Copy(self._name(value), self.machine.names[source], self.machine.names[level]))
        self._add(value, level)

    def _drop(self, value: int, level: int, *, said: bool = True) -> None:
        self.held[value].discard(level)
        self.used[level] -= self._size(value)
        if said:
            self.moves.append(Drop(self._name(value), self.machine.names[level]))

    def _forget(self, value: int, *, said: bool) -> None:
        for level in sorted(self.held.get(value, ())):
            self._drop(value, level, said=said)
        self.held.pop(value, None)
