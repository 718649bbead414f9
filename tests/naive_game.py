"""The explicit game played the slow way, straight from its rules: an oracle for the referee and for every solver.

Nothing here uses pebbler's dataflow, referee or solvers; graphs and machines are only read field by field. A state is the set
of ops that have run and, for every value, the set of levels that hold a copy.

- `NaiveGame.play` judges a list of moves;
- `NaiveGame.solve_plain` is Dijkstra over every state and every move, drops one by one; for very small games;
- `NaiveGame.solve` is Dijkstra too, but a drop happens only in a smallest set of drops that makes room for the next move (on
  machines whose slower levels are not cheaper to read, where an extra copy never hurts). No other shortcut.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine

INFINITY = float("inf")


class TooBig(Exception):
    """The game has more states than the oracle was allowed to look at."""


@dataclass
class Verdict:
    legal: bool
    energy: float
    at: int | None = None  # the first illegal move, 0-based; None: the start, the end, or no move at all
    why: str = ""


@dataclass
class RandomGame:
    graph: Graph
    machine: Machine
    steady: bool
    start: dict[str, str | list[str]] = field(default_factory=dict)


State = tuple[int, tuple[int, ...], tuple[int, ...]]  # ops that ran, levels of every value, start levels of every param


class NaiveGame:
    def __init__(self, graph: Graph, machine: Machine, steady: bool, start: dict | None = None) -> None:
        self.steady = steady
        self.fastest_only = machine.operands == "fastest"
        self.over = machine.results == "over"
        self.levels = [level.name for level in machine.level]
        self.capacity = [INFINITY if level.capacity is None else level.capacity for level in machine.level]
        self.read = [level.read for level in machine.level]
        self.write = [level.write for level in machine.level]
        self._number_values(graph)
        self.start = dict(start or {})
        self.op_name = [op.name for op in graph.ops]
        self.cost = [op.cost for op in graph.ops]

    def _number_values(self, graph: Graph) -> None:
        by_name = {tensor.name: tensor for tensor in graph.tensors}

        def storage(name: str) -> str:
            while by_name[name].overwrites is not None:
                name = by_name[name].overwrites
            return name

        self.tensor_of: list[str] = []
        self.size: list[int] = []
        self.maker: list[int | None] = []
        self.destroyer: list[int | None] = []
        in_storage: dict[str, int] = {}
        newest: dict[str, int] = {}

        def new(name: str, maker: int | None) -> int:
            value = len(self.size)
            self.tensor_of.append(name)
            self.size.append(by_name[name].size)
            self.maker.append(maker)
            self.destroyer.append(None)
            newest[name] = in_storage[storage(name)] = value
            return value

        for tensor in graph.tensors:
            if tensor.kind in ("input", "param"):
                new(tensor.name, None)
        self.start_value = dict(newest)
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.destroys: list[list[int]] = []
        for number, op in enumerate(graph.ops):
            self.reads.append([newest[name] for name in op.reads])
            destroyed = [in_storage[storage(name)] for name in op.writes if storage(name) in in_storage]
            for value in destroyed:
                self.destroyer[value] = number
            self.destroys.append(destroyed)
            self.writes.append([new(name, number) for name in op.writes])
        self.params = [tensor.name for tensor in graph.tensors if tensor.kind == "param"]
        self.inputs = [tensor.name for tensor in graph.tensors if tensor.kind == "input"]
        self.final = {name: in_storage[storage(name)] for name in by_name if storage(name) in in_storage}
        kept = {tensor.name for tensor in graph.tensors if tensor.kind in ("param", "output")}
        self.survives = [any(self.final[name] == value for name in kept) for value in range(len(self.size))]
        self.readers = [
            [op for op in range(len(graph.ops)) if value in self.reads[op]] for value in range(len(self.size))
        ]
        self.may_repeat = [not op.once and not self.destroys[i] for i, op in enumerate(graph.ops)]

    # The rules --------------------------------------------------------------------------------------------------------

    def used(self, present: tuple[int, ...], level: int) -> int:
        return sum(size for size, where in zip(self.size, present, strict=True) if where >> level & 1)

    def fits(self, present: tuple[int, ...]) -> bool:
        return all(self.used(present, level) <= self.capacity[level] for level in range(len(self.levels)))

    def overwritten(self, ran: int, value: int) -> bool:
        return self.destroyer[value] is not None and bool(ran >> self.destroyer[value] & 1)

    def why_not_compute(self, ran: int, present: tuple[int, ...], op: int, level: int) -> str:
        """Why an op cannot run now ('' when it can), room aside."""
        if self.fastest_only and level != 0:
            return "result must go to the fastest level"
        for value in self.reads[op]:
            if present[value] == 0 or (self.fastest_only and not present[value] & 1):
                return "read not present"
        if ran >> op & 1:
            if not self.may_repeat[op]:
                return "cannot run again"
            if any(self.overwritten(ran, value) for value in self.writes[op]):
                return "would bring back an old version"
        for value in self.destroys[op]:
            if self.maker[value] is not None and not ran >> self.maker[value] & 1:
                return "overwrites what is not yet written"
            if any(reader != op and not ran >> reader & 1 for reader in self.readers[value]):
                return "overwrites what is still to be read"
        return ""

    def compute(self, ran: int, present: tuple[int, ...], op: int, level: int) -> tuple[int, tuple[int, ...], float]:
        energy = self.cost[op]
        if not self.fastest_only:
            for value in self.reads[op]:
                nearest = min(level for level in range(len(self.levels)) if present[value] >> level & 1)
                energy += self.size[value] * self.read[nearest]
            energy += sum(self.size[value] * self.write[level] for value in self.writes[op])
        after = list(present)
        for value in self.destroys[op]:
            after[value] = 0
        for value in self.writes[op]:
            after[value] |= 1 << level
        return ran | 1 << op, tuple(after), energy

    def copy_price(self, value: int, source: int, target: int) -> float:
        return self.size[value] * (self.read[source] + self.write[target])

    def dead(self, ran: int, present: tuple[int, ...]) -> bool:
        """Whether a value that is still needed can never be had again."""
        memo: dict[int, bool] = {}

        def obtainable(value: int) -> bool:
            if present[value]:
                return True
            if value not in memo:
                maker = self.maker[value]
                if maker is None:
                    memo[value] = False
                elif not ran >> maker & 1:
                    memo[value] = True  # its turn is still to come; what that needs is checked for itself
                else:
                    memo[value] = (
                        self.may_repeat[maker]
                        and not any(self.overwritten(ran, other) for other in self.writes[maker])
                        and all(obtainable(other) for other in self.reads[maker])
                    )
            return memo[value]

        return any(
            (self.survives[value] or any(not ran >> op & 1 for op in self.readers[value])) and not obtainable(value)
            for value in range(len(self.size))
        )

    def begin(self) -> Iterator[State]:
        """Every state the game may begin in; more than one only when steady."""
        slowest = len(self.levels) - 1
        choices = []
        for value in range(len(self.size)):
            if self.maker[value] is not None:
                choices.append([0])
            elif self.steady and self.tensor_of[value] in self.params:
                choices.append(list(range(1, 1 << len(self.levels))))
            else:
                where = self.start.get(self.tensor_of[value], self.levels[slowest])
                names = [where] if isinstance(where, str) else where
                choices.append([sum(1 << level for level in {self.levels.index(name) for name in names})])
        for present in itertools.product(*choices):
            if self.fits(present):
                placed = tuple(present[self.start_value[name]] for name in self.params) if self.steady else ()
                yield 0, present, placed

    def finished(self, state: State, *, exactly: bool) -> bool:
        ran, present, placed = state
        if ran != (1 << len(self.cost)) - 1:
            return False
        if any(must and not where for must, where in zip(self.survives, present, strict=True)):
            return False
        ends = [present[self.final[name]] for name in self.params]
        if exactly:
            return all(end == where for end, where in zip(ends, placed, strict=False))
        return all(end & where == where for end, where in zip(ends, placed, strict=False))

    # Judging a list of moves ------------------------------------------------------------------------------------------

    def play(self, moves: list[tuple[str, ...]]) -> Verdict:
        """Judge the moves from the start placement given to the game (also when steady)."""
        slowest = len(self.levels) - 1
        placement = [0] * len(self.size)
        for name, value in self.start_value.items():
            where = self.start.get(name, self.levels[slowest])
            names = [where] if isinstance(where, str) else where
            placement[value] = sum(1 << level for level in {self.levels.index(level) for level in names})
            if self.steady and name in self.inputs and placement[value] != 1 << slowest:
                return Verdict(False, 0.0, None, "inputs arrive in the slowest level")
        present = tuple(placement)
        placed = tuple(present[self.start_value[name]] for name in self.params) if self.steady else ()
        if not self.fits(present):
            return Verdict(False, 0.0, None, "start does not fit")
        ran, total = 0, 0.0
        crowded = False  # a result is in the room of what is dropped next
        for at, move in enumerate(moves):
            if move[0] == "compute":
                op = self.op_name.index(move[1])
                level = self.levels.index(move[2]) if len(move) > 2 else 0
                why = self.why_not_compute(ran, present, op, level)
                if why:
                    return Verdict(False, total, at, why)
                ran, present, energy = self.compute(ran, present, op, level)
            else:
                level = self.levels.index(move[2])
                here = [v for v, t in enumerate(self.tensor_of) if t == move[1] and present[v] >> level & 1]
                if not here:
                    return Verdict(False, total, at, "not there")
                (value,) = here
                after = list(present)
                if move[0] == "copy":
                    target = self.levels.index(move[3])
                    if target == level:
                        return Verdict(False, total, at, "same level")
                    energy = self.copy_price(value, level, target)
                    after[value] |= 1 << target
                else:
                    energy = 0.0
                    after[value] &= ~(1 << level)
                present = tuple(after)
            total += energy
            crowded = self.over and not self.fits(present) and (crowded or move[0] == "compute")
            waits = crowded and at + 1 < len(moves) and moves[at + 1][0] == "drop"
            if not self.fits(present) and not waits:
                return Verdict(False, total, at, "overflow")
            if self.dead(ran, present):
                return Verdict(False, total, at, "lost for good")
        return Verdict(self.finished((ran, present, placed), exactly=True), total)

    # Solving ----------------------------------------------------------------------------------------------------------

    def solve_plain(self, limit: int = 200_000) -> float | None:
        """The least energy of any legal plan by looking at everything; None when there is no legal plan."""
        return self._dijkstra(self._plain_moves, limit, exactly=True)

    def solve(self, limit: int = 200_000) -> float | None:
        """The same, faster: drops only when room is needed, and only as many as needed."""
        if not self.fastest_only and any(a > b for a, b in itertools.pairwise(self.read)):
            raise ValueError("an extra copy may hurt on this machine; use solve_plain")
        return self._dijkstra(self._lazy_moves, limit, exactly=False)

    def _dijkstra(self, moves, limit: int, *, exactly: bool) -> float | None:
        best: dict[State, float] = {}
        heap: list[tuple[float, State]] = []
        for state in self.begin():
            best[state] = 0.0
            heap.append((0.0, state))
        heapq.heapify(heap)
        while heap:
            spent, state = heapq.heappop(heap)
            if spent > best[state]:
                continue
            if self.finished(state, exactly=exactly):
                return spent
            if len(best) > limit:
                raise TooBig
            ran, present, placed = state
            for next_ran, next_present, energy in moves(ran, present):
                following = (next_ran, next_present, placed)
                if spent + energy < best.get(following, INFINITY):
                    best[following] = spent + energy
                    heapq.heappush(heap, (spent + energy, following))
        return None

    def _plain_moves(self, ran: int, present: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...], float]]:
        for op, level in itertools.product(range(len(self.cost)), range(len(self.levels))):
            if not self.why_not_compute(ran, present, op, level):
                after = self.compute(ran, present, op, level)
                if self.fits(after[1]):
                    yield after
                elif self.over:
                    for fewer in self._drop_any(after[1], level):
                        if self.fits(fewer) and not self.dead(after[0], fewer):
                            yield after[0], fewer, after[2]
        for value, level in itertools.product(range(len(self.size)), range(len(self.levels))):
            if present[value] >> level & 1:
                without = _with(present, value, present[value] & ~(1 << level))
                if not self.dead(ran, without):
                    yield ran, without, 0.0
                for target in range(len(self.levels)):
                    if not present[value] >> target & 1:
                        more = _with(present, value, present[value] | 1 << target)
                        if self.fits(more):
                            yield ran, more, self.copy_price(value, level, target)

    def _lazy_moves(self, ran: int, present: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...], float]]:
        for op, level in itertools.product(range(len(self.cost)), range(len(self.levels))):
            if self.why_not_compute(ran, present, op, level):
                continue
            if self.over:
                after = self.compute(ran, present, op, level)
                for fewer in self._make_room(after[1], level, set(), set()):
                    if not self.dead(after[0], fewer):
                        yield after[0], fewer, after[2]
                continue
            for before in self._make_room(present, level, set(self.destroys[op]), set(self.writes[op])):
                if not self.why_not_compute(ran, before, op, level):
                    after = self.compute(ran, before, op, level)
                    if not self.dead(after[0], after[1]):
                        yield after
        for value, target in itertools.product(range(len(self.size)), range(len(self.levels))):
            if present[value] and not present[value] >> target & 1:
                sources = [level for level in range(len(self.levels)) if present[value] >> level & 1]
                energy = min(self.copy_price(value, source, target) for source in sources)
                for before in self._make_room(present, target, set(), {value}):
                    after = _with(before, value, before[value] | 1 << target)
                    if not self.dead(ran, after):
                        yield ran, after, energy

    def _drop_any(self, present: tuple[int, ...], level: int) -> Iterator[tuple[int, ...]]:
        """Every choice of copies that stay at `level`."""
        held = [v for v in range(len(self.size)) if present[v] >> level & 1]
        for kept in itertools.product([False, True], repeat=len(held)):
            after = present
            for value, stays in zip(held, kept, strict=True):
                after = after if stays else _with(after, value, after[value] & ~(1 << level))
            yield after

    def _make_room(
        self, present: tuple[int, ...], level: int, going: set[int], coming: set[int]
    ) -> Iterator[tuple[int, ...]]:
        """Every smallest set of drops at `level` after which `coming` fits there, once `going` has gone."""
        held = [v for v in range(len(self.size)) if present[v] >> level & 1 and v not in going]
        total = sum(self.size[v] for v in held) + sum(self.size[v] for v in coming if v not in held)
        need = total - self.capacity[level]
        if need <= 0:
            yield present
            return
        able = [v for v in held if v not in coming and self.size[v] > 0]
        for count in range(1, len(able) + 1):
            for drops in itertools.combinations(able, count):
                freed = sum(self.size[v] for v in drops)
                if freed >= need and freed - min(self.size[v] for v in drops) < need:
                    after = present
                    for value in drops:
                        after = _with(after, value, after[value] & ~(1 << level))
                    yield after


def _with(present: tuple[int, ...], value: int, where: int) -> tuple[int, ...]:
    return (*present[:value], where, *present[value + 1 :])


# Random games -----------------------------------------------------------------------------------------------------------


def random_game(
    rng: random.Random,
    max_ops: int = 8,
    *,
    max_levels: int = 3,
    max_start: int = 3,
    operands: str | None = None,
    steady: bool | None = None,
    monotone: bool = True,
    results: str = "apart",
) -> RandomGame:
    """A random game with everything the rules allow: updates in place, overwrites, once, several writes, zero sizes.

    `monotone=False` also gives machines whose slower levels are cheaper to read.
    """
    graph = _random_graph(rng, rng.randint(1, max_ops), max_start)
    machine = _random_machine(rng, graph, max_levels, operands, monotone, results)
    is_steady = rng.random() < 0.4 if steady is None else steady
    start: dict[str, str | list[str]] = {}
    for tensor in graph.tensors:
        if tensor.kind in ("input", "param") and not (is_steady and tensor.kind == "input") and rng.random() < 0.3:
            names = rng.sample(machine.names, rng.randint(1, len(machine.names)))
            start[tensor.name] = names[0] if len(names) == 1 else names
    return RandomGame(graph, machine, is_steady, start)


def _random_graph(rng: random.Random, ops: int, max_start: int) -> Graph:
    graph = Graph("random", unit="pebble")
    whole = rng.random() < 0.7
    live: list[str] = []  # tensors that hold a value no one has overwritten
    kinds = rng.choices(["input", "param"], k=rng.randint(0 if ops < 3 else 1, max_start))

    def size() -> int:
        return rng.choice([0, 1, 1, 1, 2, 2, 3, 4])

    for i, kind in enumerate(kinds):
        graph.tensor(f"s{i}", size(), kind)
        live.append(f"s{i}")
    planned: list[tuple[list[str], list[str]]] = []
    outputs: set[str] = set()
    fresh: dict[str, tuple[int, str | None]] = {}
    for i in range(ops):
        # Recent values are read more often, as in a program.
        weights = [1 + 2 * (k >= len(live) - 3) for k in range(len(live))]
        reads = rng.choices(live, weights, k=rng.choice([0, 1, 1, 2, 2, 3])) if live else []
        if rng.random() < 0.9:
            reads = list(dict.fromkeys(reads))
        writes: list[str] = []
        for j in range(rng.choice([1, 1, 1, 1, 2]) if reads else 1):
            style = rng.random()
            free = [name for name in live if name not in writes]
            if style < 0.2 and free:
                writes.append(rng.choice(free))  # an update in place, whether it reads the old version or not
            elif style < 0.32 and free:
                old = rng.choice(free)
                name = f"t{i}_{j}"
                room = graph.tensor_named(old).size if old in {t.name for t in graph.tensors} else fresh[old][0]
                if _root(fresh, old) in {_root(fresh, other) for other in writes}:
                    continue
                fresh[name] = (min(size(), room), old)
                live.remove(old)
                live.append(name)
                writes.append(name)
            else:
                name = f"t{i}_{j}"
                fresh[name] = (size(), None)
                live.append(name)
                writes.append(name)
        roots = [_root(fresh, name) for name in writes]
        writes = [name for k, name in enumerate(writes) if roots[k] not in roots[:k]]
        if not writes and not reads:
            fresh[f"t{i}_9"] = (size(), None)
            live.append(f"t{i}_9")
            writes = [f"t{i}_9"]
        planned.append((reads, writes))
    written = {name for _, writes in planned for name in writes}
    live = [name for name in live if name in written or name.startswith("s")]
    outputs = {name for name in live if name in fresh and rng.random() < 0.35}
    for name, (amount, old) in fresh.items():
        if name in written:
            graph.tensor(name, amount, "output" if name in outputs else "temp", overwrites=old)
    for i, (reads, writes) in enumerate(planned):
        cost = float(rng.choice([0, 0, 1, 2, 5])) if whole else round(rng.random() * 5, 3)
        graph.op(f"o{i}", reads, writes, cost, once=rng.random() < 0.15)
    return graph


def _root(fresh: dict[str, tuple[int, str | None]], name: str) -> str:
    while name in fresh and fresh[name][1] is not None:
        name = fresh[name][1]
    return name


def _random_machine(
    rng: random.Random, graph: Graph, max_levels: int, operands: str | None, monotone: bool, results: str
) -> Machine:
    rule = operands or rng.choice(["fastest", "any"])
    largest = max(
        (sum(t.size for t in graph.tensors if t.name in {*op.reads, *op.writes}) for op in graph.ops), default=1
    )
    count = rng.choice([1, *[2] * 4, *range(3, max_levels + 1)]) if max_levels > 1 else 1

    def price() -> float:
        return float(rng.choice([0, 1, 1, 2, 3, 5, 10])) if rng.random() < 0.8 else round(rng.random() * 8, 2)

    reads = [price() for _ in range(count)]
    if monotone:
        reads.sort()
    levels = []
    for i in range(count):
        capacity = max(1, largest + rng.choice([-1, 0, 0, 0, 1, 1, 2, 3, 5]))
        if rule == "any" and rng.random() < 0.5:
            capacity = rng.randint(1, max(1, largest))
        if count == 1 and rng.random() < 0.7:
            capacity = max(1, largest + rng.choice([0, 1, 2, 3, 4, 6]))
        bounded = i < count - 1 or (count == 1 and rng.random() < 0.9)
        levels.append(Level(f"L{i}", reads[i], price(), capacity if bounded else None))
    return Machine("random", "pebble", tuple(levels), operands=rule, results=results)
