"""A bound from all moments of a plan together: at none of them can all that is alive be in the fastest level.

A value is wanted in the fastest level by several ops, one after the other. Between two of them it stays there or comes back. Which
do what is an integer program with the room at each moment as a constraint; `docs/exact.md` proves that no plan costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ortools.sat.python import cp_model

from pebbler.game.dataflow import NONE, Dataflow
from pebbler.solver.bounds import Bound, bounds
from pebbler.solver.bounds.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.solver.bounds.eviction_cost import copy_in, copy_out_and_in
from pebbler.solver.problem import Problem

__all__ = [
    "EFFORT",
    "TightMoment",
    "WantedValue",
    "all_moments",
    "bounds_in_stages",
    "cheapest_stays",
    "moments",
    "stays",
]

EFFORT = 5.0  # of CP-SAT, in its deterministic seconds
_MOST_TERMS = 300_000  # values alive, added up over moments: what a model may have
_SCALE = 1 << 40


@dataclass(frozen=True)
class WantedValue:
    """A value that is wanted in the fastest level at the first runs of ops, each of which comes before the next in every order.

    Time is cut by these runs: gap i comes after that of `wanted[i]`, gap -1 before all of them. With `around` the last gap goes on
    into the next step, up to its first run. If the value is not in the fastest level at some moment of a gap, that costs `back[i]`;
    if it is ever so, that costs `away` besides. It may not exist, or not matter, in the gaps of `idle`.
    """

    values: frozenset[int]  # the value; for a param of a steady step its final value too
    size: int
    wanted: tuple[int, ...]
    back: float
    away: float
    idle: frozenset[int] = frozenset()
    around: bool = False
    tail: bool = False  # after the last run it need not come back

    def gaps(self, ran: int, waiting: int) -> set[int]:
        """Return the gaps in which a moment may be after the ops of `ran` and before those of `waiting`; empty if it may be idle.

        >>> stay = WantedValue(frozenset({7}), 1, (0, 1, 2), 1.0, 1.0, idle=frozenset({-1, 2}))
        >>> stay.gaps(ran=0b001, waiting=0b100), stay.gaps(ran=0b011, waiting=0b100), stay.gaps(ran=0b001, waiting=0)
        ({0, 1}, {1}, set())
        """
        last = len(self.wanted) - 1
        low = max((place for place, op in enumerate(self.wanted) if ran >> op & 1), default=-1)
        high = min((place - 1 for place, op in enumerate(self.wanted) if waiting >> op & 1), default=last)
        found = set(range(low, high + 1))
        if found & self.idle:
            return set()
        return {last if self.around and gap < 0 else gap for gap in found}

    def price(self, gap: int) -> float:
        """Return what it costs to come back within a gap."""
        return 0.0 if self.tail and gap == len(self.wanted) - 1 else self.back


@dataclass(frozen=True)
class TightMoment:
    """The time just after an op's first run, or the end: what is alive then, in which gaps, and the room beside the op's own."""

    room: int
    alive: tuple[tuple[int, frozenset[int]], ...]  # stays by their place in the list, and the gaps they may be in


def bounds_in_stages(problem: Problem, seconds_left: Callable[[], float]) -> Iterator[list[Bound]]:
    """Yield bounds of every legal plan of an explicit machine: those known at once first, then what takes longer."""
    yield bounds(problem, cuts=0)
    yield bounds(problem)
    yield all_moments(problem, 0.1 * seconds_left())


def all_moments(problem: Problem, seconds: float, effort: float = EFFORT) -> list[Bound]:
    """Return the bound of an explicit machine whose ops take their operands from the fastest level; nothing on others.

    >>> from pebbler import Graph, Level, Machine
    >>> graph = Graph("sgd", "pebble")
    >>> for name in ("A", "B", "C"):
    ...     _ = graph.tensor(name, 2, "param").op(f"update_{name}", [name], [name], cost=1)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 10, 10)))
    >>> [bound.value for bound in all_moments(Problem.of(graph, two, steady=True), 1.0)]  # two of three come and go in every step
    [83.0]
    """
    machine = problem.machine
    capacity = machine.level[0].capacity
    if machine.management != "explicit" or machine.operands != "fastest" or len(machine.level) == 1 or capacity is None:
        return []
    prices = ValuePrices.of(problem)
    found = stays(problem, prices)
    more = cheapest_stays(found, moments(problem.graph.dataflow, capacity, found), seconds, effort)
    value = compulsory_traffic(problem, prices) + more
    proof = f"compulsory traffic, and what is alive at any moment cannot all be in {machine.names[0]}"
    return [Bound(value * (1 - 1e-12) if value % 1 else value, proof)]


def stays(problem: Problem, prices: ValuePrices) -> list[WantedValue]:
    """Return all values that have to stay in the fastest level or pay for it.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.chain(3), machine("red-blue"))
    >>> [(stay.wanted, stay.back, stay.away) for stay in stays(problem, ValuePrices.of(problem))][:2]
    [((0, 6), 100.0, 0.0), ((0, 1, 5, 6), 1.0, 0.0)]
    """
    flow = problem.graph.dataflow
    finals = {int(flow.start_value[tensor]): int(flow.final_value[tensor]) for tensor in problem.looped_params}
    merged = {final for first, final in finals.items() if final != first}
    found = []
    for value in range(flow.values):
        if value in finals:
            stay = _param(flow, prices, value, finals[value])
        elif value in merged or prices.start[value] == []:
            continue
        elif flow.value_maker[value] != NONE:
            stay = _made(flow, prices, value)
        else:
            stay = _started(flow, prices, value)
        if stay is not None and stay.size > 0 and stay.back + stay.away > 0:
            found.append(stay)
    return found


def _param(flow: Dataflow, prices: ValuePrices, value: int, final: int) -> WantedValue | None:
    """Return a steady step's param: what is updated is wanted by the next step, so it is copied out once if ever away."""
    readers = _in_turn(flow, value)
    if not readers:
        return None
    size, idle = int(min(flow.value_size[value], flow.value_size[final])), frozenset[int]()
    if final != value:
        updater = int(flow.value_maker[final])
        if updater not in readers:
            idle = frozenset({len(readers) - 1})  # nobody wants it any more
            readers = [*readers, updater]
    back = size * copy_in(prices, 0)
    away = size * copy_out_and_in(prices, 0) - back if final != value else 0.0
    return WantedValue(frozenset({value, final}), size, tuple(readers), back, away, idle, around=True)


def _made(flow: Dataflow, prices: ValuePrices, value: int) -> WantedValue | None:
    """Return what is made: it comes back by a copy, after one out, or by another run of its maker."""
    size, again = int(flow.value_size[value]), prices.again[value]
    readers, survives = _in_turn(flow, value), bool(flow.value_must_survive[value])
    if not readers and not survives:
        return None
    back = min(again, size * copy_in(prices, 0))
    away = max(0.0, min(again, size * copy_out_and_in(prices, 0)) - back)
    if survives:
        away = min(away, again, size * (prices.read[0] + min(prices.write[1:])))
    wanted = (int(flow.value_maker[value]), *readers)
    idle = frozenset({-1} if survives else {-1, len(wanted) - 1})
    return WantedValue(frozenset({value}), size, wanted, back, away, idle, tail=survives)


def _started(flow: Dataflow, prices: ValuePrices, value: int) -> WantedValue | None:
    """Return what is there at the start: its first load is compulsory if it starts elsewhere."""
    start, readers, size = prices.start[value], _in_turn(flow, value), int(flow.value_size[value])
    if start is None or not readers:
        return None
    back, away = size * copy_in(prices, 0), 0.0
    if start == [0]:
        away = size * copy_out_and_in(prices, 0) - back
    last = len(readers) - 1
    return WantedValue(
        frozenset({value}), size, tuple(readers), back, away, frozenset({last} if 0 in start else {-1, last})
    )


def _in_turn(flow: Dataflow, value: int) -> list[int]:
    """Return as many readers of a value as have to run one after the other, in that order."""
    readers = sorted(flow.value_readers.row(value).tolist(), key=lambda op: flow.ancestors[op].bit_count())
    best: dict[int, list[int]] = {}
    for op in readers:
        before = [best[other] for other in best if flow.ancestors[op] >> other & 1]
        best[op] = [*max(before, key=len, default=[]), op]
    return max(best.values(), key=len, default=[])


def moments(flow: Dataflow, capacity: int, found: list[WantedValue]) -> list[TightMoment]:
    """Return the moments at which not everything that is alive has room, the end of the plan included."""
    where: dict[int, list[int]] = {}
    for place, stay in enumerate(found):
        for value in stay.values:
            where.setdefault(value, []).append(place)
    listed: dict[tuple[int, tuple[tuple[int, frozenset[int]], ...]], TightMoment] = {}
    terms = 0
    for ran, waiting, inside in _runs(flow):
        room = max(0, capacity - sum(int(flow.value_size[value]) for value in inside))
        own = {place for value in inside for place in where.get(value, [])}
        alive = tuple(
            (place, frozenset(gaps))
            for place, stay in enumerate(found)
            if place not in own and (gaps := stay.gaps(ran, waiting))
        )
        if sum(found[place].size for place, _ in alive) > room:
            listed.setdefault((room, alive), TightMoment(room, alive))
            terms += len(alive)
            if terms > _MOST_TERMS:
                break
    return list(listed.values())


def _runs(flow: Dataflow) -> Iterator[tuple[int, int, set[int]]]:
    """Yield every moment: what has run by then, what has not, and the values that the op just run has in the fastest level."""
    yield (1 << flow.ops) - 1, 0, set()
    for op in range(flow.ops):
        inside = set(flow.op_reads.row(op).tolist()) - set(flow.op_destroys.row(op).tolist())
        yield flow.ancestors[op] | 1 << op, flow.descendants[op], inside | set(flow.op_writes.row(op).tolist())


def cheapest_stays(found: list[WantedValue], when: list[TightMoment], seconds: float, effort: float) -> float:
    """Return what plans pay at the least beyond compulsory traffic, as far as CP-SAT proves it within its deterministic time."""
    prices = [stay.away + stay.back * len(stay.wanted) for stay in found]
    total = sum(prices)
    if not when or total <= 0:
        return 0.0
    whole = all(stay.away % 1 == 0 and stay.back % 1 == 0 for stay in found) and total < _SCALE
    scale = 1.0 if whole else _SCALE / total
    model = cp_model.CpModel()
    ever = [model.new_bool_var("") for _ in found]
    gone: dict[tuple[int, frozenset[int]], cp_model.IntVar] = {}

    def away(place: int, gaps: frozenset[int]) -> cp_model.IntVar:
        """Return whether a value is away at a moment in one of these gaps."""
        key = (place, gaps)
        if key not in gone:
            gone[key] = model.new_bool_var("")
            if len(gaps) == 1:
                model.add_implication(gone[key], ever[place])
            else:
                model.add_bool_or([gone[key].negated(), *(away(place, frozenset({gap})) for gap in sorted(gaps))])
        return gone[key]

    for moment in when:
        model.add(sum(found[place].size * away(place, gaps).negated() for place, gaps in moment.alive) <= moment.room)
    costs = [int(stay.away * scale) * one for stay, one in zip(found, ever, strict=True)]
    for (place, gaps), one in gone.items():
        if len(gaps) == 1:
            costs.append(int(found[place].price(*gaps) * scale) * one)
    model.minimize(sum(costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # more would make the answer depend on the number of threads
    solver.parameters.catch_sigint_signal = False  # Ctrl-C is for the whole search, not for this part of it
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = effort
    if solver.solve(model) == cp_model.MODEL_INVALID:
        return 0.0
    return max(0.0, float(int(solver.best_objective_bound + 1e-6)) / scale)
