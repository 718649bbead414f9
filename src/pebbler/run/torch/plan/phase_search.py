"""One phase of a step within a capacity: values are made again or go to the host, and the referee judges the plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from pebbler.arrays import Ints
from pebbler.files import int_if_whole
from pebbler.game.byte_sizes import bytes_down, bytes_up, shown_bytes
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import Link
from pebbler.run.torch.plan.host_link import MEMORY, machine_with_host, predicted_cost
from pebbler.run.torch.plan.offload_search import OffloadCandidate, OffloadSearch
from pebbler.solver import finish
from pebbler.solver.capacity import single_level_requirement
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute import solve_recompute
from pebbler.solver.recompute.annealing import AnnealingSettings, improve
from pebbler.solver.recompute.checkpointing import checkpointings
from pebbler.solver.recompute.least_capacity import LeastCapacity, least_capacity
from pebbler.solver.recompute.recompute_problem import RecomputeProblem, program_order_peak
from pebbler.solver.recompute.start_sequences import early_ends_order, fit, low_memory_order

__all__ = ["least_units", "quick_cost", "solve_phases"]

_MOST = 2**50  # bytes: more than any device has
_CHEAPER = 4  # rounds of annealing for a plan of little memory
_LEAST_SECONDS = 5.0  # spent on the least budget when the given one is too small
_BEFORE, _RELIEVED, _AFTER = 0.1, 0.5, 0.05  # of the time, for plans with copies: besides all of it for one without
_SHARES = (0.75, 0.5, 0.3, 0.15, 0.05, 0.0)  # of the memory above the capacity that values are not made again for
_HIDDEN = 0.85  # of what the link could move until the peak and after it
_FREE = Link(0.0, 0.0, overlap=True)


Report = Callable[[Search], None]
Stop = Callable[[], bool]


def _never() -> bool:
    return False


def _after(seconds: float, stop: Stop) -> Stop:
    """Return a test, to be called repeatedly, for the end of the time or a request to stop."""
    ends = time.monotonic() + seconds
    return lambda: stop() or time.monotonic() >= ends


def least_units(graphs: Sequence[Graph], seconds: float, *, offload: bool = False) -> tuple[int, int]:
    """Return a capacity below which some phase has no plan, and the least one for which all of them have one that was found."""
    host = max(_offload(graph, 1, _FREE, 0).least[0] for graph in graphs)
    if offload:
        return host, host
    least = _least_of_all(graphs, seconds)
    return max(least.lower, host), least.upper


def _least_of_all(graphs: Sequence[Graph], seconds: float) -> LeastCapacity:
    """Return the least capacity found for all phases of a step: that of the phase that needs most."""
    found = [_least(graph, _after(seconds / len(graphs), _never)) for graph in graphs]
    lowest = max(found, key=lambda least: least.lower)
    return replace(max(found, key=lambda least: least.upper), lower=lowest.lower, reason=lowest.reason)


def _least(graph: Graph, is_over: Stop, enough: int = 0) -> LeastCapacity:
    """Return the least capacity found, with its plan: the first that is `enough`, or the best when time `is_over`.

    The search makes the same steps for the same ops and sizes, whatever ops cost, and time ends it between two of them. So whoever
    gives it the time finds what was found before. On graphs of hundreds of ops halving gets further than trying the bound first.
    """
    problem = Problem.of(_of_equal_costs(graph), _machine(_MOST))
    least = least_capacity(problem, 0.0)
    endless = RecomputeProblem.of(problem)

    def peak(sequence: Ints) -> int:
        return int(endless.measure(sequence).memory.max(initial=1))

    orders = [endless.program, early_ends_order(endless), low_memory_order(endless)]
    starts = [sequence for order in orders for sequence in (order, *checkpointings(endless, order))]
    starts.append(least.plan.moves.order)
    best = min((sequence for sequence in starts if endless.measure(sequence).legal), key=peak)
    upper, failed = peak(best), least.lower - 1
    share = 0.25  # of what is left to gain; more as long as that works
    while failed + max(1, upper // 200) < upper and upper > enough and not is_over():
        aim = upper - max(1, int(share * (upper - failed)))
        game = RecomputeProblem.of(problem, aim)
        for start in (best, *orders):
            found = _brought_down(game, start, is_over)
            if is_over():
                break  # it may have been cut off
            if peak(found) < upper:
                best, upper = found, peak(found)
            if upper <= aim:
                break
        if upper <= aim:
            share = min(0.5, 1.5 * share)
        else:
            failed, share = max(failed, aim), 0.5
    plan = Problem.of(graph, _machine(_MOST)).plan(endless.moves(best))
    return replace(least, upper=check(plan).peak[MEMORY], plan=plan)


def _of_equal_costs(graph: Graph) -> Graph:
    """Return a graph whose ops all cost the same: measured costs differ from one measurement to the next."""
    return Graph(graph.name, graph.unit, graph.tensors, (msgspec.structs.replace(op, cost=1) for op in graph.ops))


def _brought_down(game: RecomputeProblem, start: Ints, is_over: Stop) -> Ints:
    """Return a sequence with values made again until it fits, or as near to that as a short search brings it."""
    found = fit(game, start, is_over=is_over)
    for number in range(3):
        if game.measure(found).fits or is_over():
            break
        found = improve(game, found, AnnealingSettings.of(number, 0))
    return found


def solve_phases(
    graphs: Sequence[Graph],
    capacity: int | None,
    headroom: int,
    seconds: float,
    seed: int,
    link: Link | None = None,
    report: Report | None = None,
    stop: Stop = _never,
) -> list[Plan]:
    """Return the cheapest plan found of every phase; messages add `headroom` to a capacity (None: no limit).

    The last phase, which repeats, gets the time; the others run once each, and for them any plan that fits will do. Without a
    link values stay in memory. With one they may go to the host; that plan never costs more than the one without, which gets
    all of `seconds` for itself before copies replace some of what it makes again. `report` hears of every change in that search;
    `stop` is asked again and again whether to end with what there is.

    >>> graph = Graph("one", unit="byte")
    >>> _ = graph.tensor("a", 4), graph.tensor("b", 4, kind="output")
    >>> _ = graph.op("make", [], ["a"], cost=1), graph.op("use", ["a"], ["b"], cost=1)
    >>> [plan.energy for plan in solve_phases([graph], 8, 0, 1.0, 0)]
    [2]
    """
    repeats = _PhaseSearch(seconds, seed, report, stop)
    first = _PhaseSearch(seconds, seed, None, stop, any_plan=True)
    searches = [*[first] * (len(graphs) - 1), repeats]
    if capacity is None:
        return [repeats.solve(graph, program_order_peak(graph)) for graph in graphs]
    needs = [_offload(graph, capacity, _FREE, seed).least for graph in graphs]
    least, reason = max(needs, key=lambda need: need[0])
    beside = f", beside {shown_bytes(headroom)} of headroom" if headroom else ""
    if link is not None and capacity < least:
        raise Impossible(f"{_refusal(capacity + headroom, least + headroom)}, and less cannot: {reason}{beside}")
    if link is not None:
        return [one.solve_with_host(graph, capacity, link) for one, graph in zip(searches, graphs, strict=True)]
    try:
        return [one.solve(graph, capacity) for one, graph in zip(searches, graphs, strict=True)]
    except Impossible:
        # What the phase that has no plan needs is not enough where a later one needs more.
        known = _least_of_all(graphs, max(_LEAST_SECONDS, seconds))
        hint = f". With offload to the host's memory {bytes_up(least + headroom)} works" if least <= capacity else ""
        raise Impossible(
            f"{_refusal(capacity + headroom, known.upper + headroom)}; below {bytes_down(known.lower + headroom)} nothing can: "
            f"{known.reason}{beside}{hint}. The least budget that is known to work is {known.upper + headroom:,} bytes"
        ) from None


def _refusal(asked: int, works: int) -> str:
    """Return the budgets that do not work and that work, in full where rounding would make them equal.

    >>> _refusal(2**20, 4_276_000), _refusal(4_275_999, 4_276_000)
    ('no plan fits 1.00 MiB. 4.08 MiB works', 'no plan fits 4,275,999 bytes. 4,276,000 bytes works')
    """
    if bytes_up(asked) == bytes_up(works):
        return f"no plan fits {asked:,} bytes. {works:,} bytes works"
    return f"no plan fits {shown_bytes(asked)}. {bytes_up(works)} works"


def quick_cost(graph: Graph, capacity: int, seconds: float, link: Link | None) -> tuple[int, float] | None:
    """Return the peak and the cost of a plan of one phase that fits, as far as some seconds find it; None if there is none."""
    search = _PhaseSearch(seconds, 0, None, _after(3 * seconds, _never))
    try:
        plan = search.solve(graph, capacity) if link is None else search.solve_with_host(graph, capacity, link)
    except Impossible:
        return None
    judged = check(plan)
    cost = predicted_cost(plan, True) if link is not None and link.overlap else judged.energy
    return judged.peak[MEMORY], float(cost)


def _has_plan(search: Search) -> bool:
    return search.best is not None


@dataclass(frozen=True)
class _PhaseSearch:
    """The settings of a phase's search: time, callback, or the first plan found."""

    seconds: float
    seed: int
    report: Report | None
    stop: Stop
    any_plan: bool = False

    def solve(self, graph: Graph, capacity: int) -> Plan:
        """Return the cheapest plan found without copies; raises `Impossible` with a reason."""
        need = single_level_requirement(Problem.of(graph, _machine(_MOST)))
        if max(need.units, 1) > capacity:
            raise Impossible(need.reason)
        search = self._search(graph, capacity, self.seconds, self.report)
        search.as_it_is = True
        search.enough = _has_plan if self.any_plan else None
        solve_recompute(search)
        if search.best is None:
            self._offer_least(search, capacity)
        return finish(search)

    def _search(self, graph: Graph, room: int, seconds: float, report: Report | None = None) -> Search:
        return Search(Problem.of(graph, _machine(room), seed=self.seed), seconds, report, self.stop)

    def _offer_least(self, search: Search, capacity: int) -> None:
        """Offer a plan of little memory, whatever the time: what was named as enough once is enough whenever it is asked for."""
        least = _least(search.problem.graph, self.stop, capacity)
        if least.upper > capacity:
            raise Impossible("none was found")
        game = RecomputeProblem.of(search.problem)
        sequence = least.plan.moves.order
        for number in range(_CHEAPER):
            sequence = improve(game, sequence, AnnealingSettings.of(number, search.problem.seed))
        search.offer(game.moves(sequence))

    def solve_with_host(self, graph: Graph, capacity: int, link: Link) -> Plan:
        """Return the cheapest plan found in which values may go to the host."""
        offload = _offload(graph, capacity, link, self.seed)
        game = offload.game
        is_over = _after(0.0 if self.any_plan else _BEFORE * self.seconds, self.stop)
        sequences = [game.program] if self.any_plan else _sequences(graph, game, capacity, is_over)
        best = offload.best_of(sequences, is_over)
        assert best is not None, "with everything away program order needs no more than the least"
        if not self.any_plan and not offload.done(best):
            # Copies relieve a plan of what it holds too much, so one that holds that much more is looked for, and one that does
            # not.
            relieved = capacity + _relief(offload, best)
            for room, share in ((relieved, _RELIEVED), (capacity, 1.0)):
                if not offload.done(best):
                    best = self._from_recomputation(offload, graph, room, share, best)
        machine = machine_with_host(capacity, link) if best.copied or not offload.done(best) else _machine(capacity)
        start = {tensor.name: MEMORY for tensor in graph.tensors if tensor.kind in ("input", "param")}
        made = Plan(graph, machine, offload.moves(best).moves(graph, machine), start if len(machine.level) > 1 else {})
        energy, bound = check(made).energy, min(game.base_cost, best.cost)
        status = EnergyScale.of(made.graph, made.machine).status(bound, energy)
        return replace(
            made, energy=int_if_whole(energy), bound=int_if_whole(bound), status=status,
            proof="every op runs at least once", meta={} if offload.done(best) or not offload.cut_off else {"cut_off": True},
        )  # fmt: skip

    def _from_recomputation(
        self, offload: OffloadSearch, graph: Graph, room: int, share: float, best: OffloadCandidate
    ) -> OffloadCandidate:
        """Return the best candidate after a search without copies for `room`, and one from there with them."""
        search = self._search(graph, room, share * self.seconds)
        search.enough = lambda search: search.bound >= best.cost  # nothing that fits into this room is any cheaper
        with suppress(Impossible):
            solve_recompute(search)
        offload.cut_off |= search.cut_off
        if search.best is None:
            return best
        found = offload.best_of([search.best.moves.order], _after(_AFTER * self.seconds, self.stop))
        return best if found is None or best.merit <= found.merit else found


def _relief(offload: OffloadSearch, best: OffloadCandidate) -> int:
    """Return the bytes that copies can take off a plan's peak: those that the link moves in time, or that `best` relies on."""
    memory = offload.game.measure(best.sequence).memory
    most = max(0, int(memory.max(initial=0)) - offload.capacity)
    link = offload.link
    if not link.overlap or not link.out + link.into:
        return most
    timeline = offload.timeline(offload.game.program)
    peak = int(np.argmax(timeline.memory))
    before, total = float(timeline.began[peak]), offload.game.base_cost
    moved = min(before / link.out if link.out else np.inf, (total - before) / link.into if link.into else np.inf)
    return min(int(_HIDDEN * moved), max(0, int(timeline.memory.max()) - offload.capacity))


def _sequences(graph: Graph, game: RecomputeProblem, capacity: int, is_over: Stop) -> Iterator[Ints]:
    """Yield sequences that need less and less memory: orders as they are, and with more and more of their values made again."""
    yield game.program
    yield low_memory_order(game)
    peak = int(game.measure(game.program).memory.max(initial=capacity))
    for share in _SHARES:
        sized = RecomputeProblem.of(Problem.of(graph, _machine(_MOST)), capacity + int(share * (peak - capacity)))
        yield fit(sized, game.program, is_over=is_over)


def _offload(graph: Graph, capacity: int, link: Link, seed: int) -> OffloadSearch:
    game = RecomputeProblem.of(Problem.of(graph, _machine(_MOST)))
    movable = [tensor for tensor in graph.tensors if tensor.kind in ("temp", "output")]
    large = {tensor.name for tensor in movable if tensor.size >= link.least}
    search = OffloadSearch(game, capacity, link, large, seed)
    if len(large) == len(movable) or search.least[0] <= capacity:
        return search
    return OffloadSearch(game, capacity, link, {tensor.name for tensor in movable}, seed)


def _machine(capacity: int) -> Machine:
    return Machine("device", "byte", (Level(MEMORY, 0, 0, capacity=capacity),), operands="fastest")
