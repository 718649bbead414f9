"""A bound from all moments of a plan together: at none of them can all that is alive be in the fastest level.

A value is wanted in the fastest level by several ops, one after the other. Between two of them it stays there or comes back. Which
do what is an integer program with the room at each moment as a constraint; `docs/exact.md` proves that no plan costs less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from pebbler.game.dataflow import Dataflow
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.referee.programs.remade_values import NOTHING_REMADE, ParamUpdate, RemadeValues, op_room, remade_values
from pebbler.referee.programs.wanted_values import WantedValue, stays
from pebbler.solver.bounds import Bound, bounds
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.bounds.stay_program import TightMoment, cheapest_stays
from pebbler.solver.problem import Problem

__all__ = ["EFFORT", "all_moments", "bounds_in_stages", "moments"]

EFFORT = 5.0  # of CP-SAT, in its deterministic seconds
_LONGEST = 1e6  # seconds, where there is no limit
_MOST_TERMS = 300_000  # values alive, added up over moments: what a model may have


def bounds_in_stages(problem: Problem, seconds_left: Callable[[], float]) -> Iterator[list[Bound]]:
    """Yield bounds of every legal plan of an explicit machine: those known at once first, then what takes longer."""
    yield bounds(problem, cuts=0)
    yield bounds(problem)
    yield large_bounds(problem, lambda: 0.3 * seconds_left())
    yield all_moments(problem, 0.3 * seconds_left())


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
    seconds = min(seconds, _LONGEST)
    ends = time.monotonic() + seconds
    flow, prices = problem.graph.dataflow, ValuePrices.of(problem)
    found = stays(problem, prices)
    remade = remade_values(flow, prices, found, capacity)
    listed = moments(flow, capacity, found, ends=ends - 0.6 * seconds)
    more = cheapest_stays(found, listed, max(0.0, ends - time.monotonic() - 0.2 * seconds), effort)
    if remade.updates and time.monotonic() < ends:  # a larger program, of which less may be proven in the same time
        listed = moments(flow, capacity, found, remade, ends)
        more = max(more, cheapest_stays(found, listed, max(0.0, ends - time.monotonic()), effort, remade))
    value = compulsory_traffic(problem, prices) + more
    proof = f"compulsory traffic, and what is alive at any moment cannot all be in {machine.names[0]}"
    return [Bound(problem.scale.lowered(value), proof)]


def moments(
    flow: Dataflow,
    capacity: int,
    found: list[WantedValue],
    remade: RemadeValues = NOTHING_REMADE,
    ends: float = math.inf,
) -> list[TightMoment]:
    """Return the moments at which not everything that is alive has room, the end of the plan included.

    Each is a fact by itself: fewer of them, because they are many or the monotonic clock is past `ends`, are a weaker program.
    """
    listed: dict[TightMoment, None] = {}
    terms = 0
    for moment in _all_moments(_Moments(flow, capacity, found, remade)):
        alive = sum(found[place].size for place, _ in moment.alive)
        parts = {part for number in moment.remakings for part in remade.remakings[number].parts}
        if alive + sum(remade.parts[part].size for part in parts) > moment.room and moment not in listed:
            listed[moment] = None
            terms += len(moment.alive) + len(parts) + len(moment.remakings)
        if terms > _MOST_TERMS or time.monotonic() >= ends:
            break
    return list(listed)


class _Moments:
    """What is alive when, of one list of stays."""

    def __init__(self, flow: Dataflow, capacity: int, found: list[WantedValue], remade: RemadeValues) -> None:
        self.flow, self.capacity, self.found, self.remade = flow, capacity, found, remade
        self.places: dict[int, set[int]] = {}
        for place, stay in enumerate(found):
            for value in stay.values:
                self.places.setdefault(value, set()).add(place)

    def of(self, ran: int, waiting: int, inside: set[int], remakings: tuple[int, ...] = ()) -> TightMoment:
        """Return a moment at which these values are inside, of which those of the lineages in question are not counted as alive."""
        remade = {
            value
            for number in remakings
            for part in self.remade.remakings[number].parts
            for value in self.remade.parts[part].values
        }
        not_alive = {place for value in inside | remade for place in self.places.get(value, ())}
        alive = tuple(
            (place, frozenset(gaps))
            for place, stay in enumerate(self.found)
            if place not in not_alive and (gaps := stay.gaps(ran, waiting))
        )
        return TightMoment(max(0, self.capacity - self.size(inside)), alive, remakings)

    def size(self, values: set[int]) -> int:
        """Return how much room values take."""
        return int(self.flow.value_size[sorted(values)].sum()) if values else 0

    def pair(self, number: int, update: ParamUpdate) -> TightMoment:
        """Return the later of two times: when `near` runs first, and when the change is made that `last` reads."""
        flow, near, maker = self.flow, update.near, update.maker
        ran = flow.ancestors[near] | flow.ancestors[maker] | 1 << near | 1 << maker
        at_near, at_maker = op_room(flow, near) | {update.change}, op_room(flow, maker) | {update.value}
        moment = self.of(ran, flow.descendants[update.last] | 1 << update.last, at_near | at_maker)
        room = max(0, self.capacity - min(self.size(at_near), self.size(at_maker)))
        return TightMoment(room, moment.alive, pair=number)

    def remakings(self, ran: int, waiting: int, inside: set[int]) -> tuple[int, ...]:
        """Return the remakings that lie ahead at a moment and of whose lineage nothing is inside."""
        return tuple(
            number
            for number, one in enumerate(self.remade.remakings)
            if waiting >> one.second.near & 1
            and waiting >> one.second.maker & 1
            and waiting >> one.first.last & 1
            and all(ran >> self.found[place].wanted[0] & 1 for place in one.places)
            and not any(inside & self.remade.parts[part].values for part in one.parts)
        )


def _all_moments(moments: _Moments) -> Iterator[TightMoment]:
    """Yield the end, the times right after the first run of each op, and those of pairs."""
    flow = moments.flow
    yield moments.of((1 << flow.ops) - 1, 0, set())
    for op in range(flow.ops):
        ran, waiting, inside = flow.ancestors[op] | 1 << op, flow.descendants[op], op_room(flow, op)
        plain = moments.of(ran, waiting, inside)
        yield plain
        if remakings := moments.remakings(ran, waiting, inside):
            yield moments.of(ran, waiting, inside, remakings)
    for number, update in enumerate(moments.remade.updates):
        yield moments.pair(number, update)
