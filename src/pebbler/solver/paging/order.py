"""Orders for explicit machines: rules of thumb to start from, and a search over sequences with placement inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
from pebbler.solver.paging.kernels.paging_state import Game, Routes, Track, build_track, empty_routes, total_cost
from pebbler.solver.paging.kernels.placement import crowding, place, relax
from pebbler.solver.paging.kernels.ready import LEAST_LIVE, RECENT, list_schedule
from pebbler.solver.paging.kernels.sequence import Rules, explore

__all__ = ["Placed", "Sequences", "initial_orders", "order_is_forced", "rules_of"]

Ints = npt.NDArray[np.int64]


def initial_orders(graph: Graph) -> dict[str, Ints]:
    """Return legal orders to start from: program order and two by list scheduling, without repetitions.

    >>> from pebbler import workloads
    >>> list(initial_orders(workloads.chain(3)))
    ['program order']
    """
    flow = graph.dataflow
    before = flow.predecessors()
    after: list[list[int]] = [[] for _ in range(flow.ops)]
    for op, earlier in enumerate(before):
        for other in earlier:
            after[other].append(op)
    successors = Rows.of(after)
    orders = {"program order": np.arange(flow.ops)}
    for name, rule in (("most recent first", RECENT), ("least live first", LEAST_LIVE)):
        order = list_schedule(
            rule, successors.start, successors.items, np.array([len(row) for row in before], np.int64),
            flow.op_reads.start, flow.op_reads.items, flow.op_writes.start, flow.op_writes.items,
            np.diff(flow.value_readers.start), flow.value_size, flow.value_must_survive | (flow.value_maker == NONE),
        )  # fmt: skip
        if not any(np.array_equal(order, known) for known in orders.values()):
            orders[name] = order
    return orders


def order_is_forced(graph: Graph) -> bool:
    """Whether program order is the only legal order: every op must wait for the one before it.

    >>> from pebbler import workloads
    >>> order_is_forced(workloads.chain(3)), order_is_forced(workloads.note_mlp())
    (True, False)
    """
    return all(op in before for op, before in enumerate(graph.dataflow.predecessors()[1:]))


def rules_of(graph: Graph, most: int) -> Rules:
    """Return which ops may run again and until when; sequences may be up to `most` long.

    >>> from pebbler import workloads
    >>> int(rules_of(workloads.chain(3), 10).rerun.sum())
    7
    """
    flow = graph.dataflow
    killers = []
    for op in range(flow.ops):
        values = [*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()]
        found = {int(flow.value_destroyer[value]) for value in values} - {NONE, op}
        killers.append(sorted(found))
    rows = Rows.of(killers)
    return Rules(flow.value_maker, ~(flow.op_once | flow.op_in_place), rows.start, rows.items, most)


@dataclass(frozen=True)
class Placed:
    """A sequence of ops, where everything lives while it runs, and the energy of that."""

    track: Track
    routes: Routes
    energy: float


class Sequences:
    """Places sequences of one game and searches for better ones; deterministic for a seed."""

    def __init__(self, graph: Graph, game: Game, seed: int, clock: Callable[[], float]) -> None:
        """`clock` says how many seconds are left."""
        self.graph, self.game, self.clock = graph, game, clock
        self.rng = np.array([(seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64 or 1], np.uint64)
        self.cut_off = False

    def place(self, order: Ints, prices: npt.NDArray[np.float64] | None = None) -> Placed | None:
        """Return a quick placement: every chain the cheapest way in the room that is left; None if a chain finds none."""
        game = self.game
        track = build_track(game, np.ascontiguousarray(order, np.int64))
        routes = empty_routes(game, track)
        if (routes.used > game.capacity[:, None]).any():
            return None
        chains = np.argsort(crowding(game, track), kind="stable")
        cum = self._worth(track, prices)
        found = place(game, track, routes, chains, cum, 0.0 if prices is None else 1.0, 0, self.rng)
        return Placed(track, routes, total_cost(game, track, routes)) if found else None

    def polish(self, placed: Placed, rounds: int, prices: npt.NDArray[np.float64] | None = None) -> Placed:
        """Return the placement improved by taking chains out and putting them back, up to `rounds` times per chain."""
        track = placed.track
        routes = Routes(*(array.copy() for array in placed.routes))
        cum = self._worth(track, prices)
        batch = 50
        left = rounds * len(routes.cost)
        nothing = np.zeros(0, np.int64)
        while left > 0:
            if self.clock() <= 0:
                self.cut_off = True
                break
            place(self.game, track, routes, nothing, cum, 0.0, min(batch, left), self.rng)
            left -= batch
        return Placed(track, routes, total_cost(self.game, track, routes))

    def price_room(self, placed: Placed, rounds: int) -> tuple[float, npt.NDArray[np.float64]]:
        """Return a lower bound on every placement of this sequence, and prices of room that prove it."""
        game = self.game._replace(step_price=0.0)
        prices = np.zeros(placed.routes.used.shape)
        bound = -np.inf
        for _ in range(max(1, rounds // 20)):
            if self.clock() <= 0:
                self.cut_off = True
                break
            better, prices = relax(game, placed.track, prices, placed.energy, 20, 4)
            stalled = better <= bound * (1 + 1e-5)
            bound = max(bound, better)
            if stalled:
                break
        return float(bound), prices

    def search(self, placed: Placed, rounds: int, heat: float, *, reruns: bool, polish: int = 2) -> Placed:
        """Return the best of `rounds` moves of simulated annealing from a placement; `heat` is relative to its energy."""
        track, routes = placed.track, placed.routes
        rules = rules_of(self.graph, self._longest(track) if reruns else len(track.seq))
        best_track, best_routes = track, routes
        hot = heat * placed.energy
        done, batch = 0, max(1, min(200, 20_000 // (1 + len(track.seq))))
        cooling = 1e-3 ** (1 / max(1, rounds))
        while done < rounds:
            if self.clock() <= 0:
                self.cut_off = True
                break
            count = min(batch, rounds - done)
            track, routes, best_track, best_routes = explore(
                self.game, rules, track, routes, best_track, best_routes, 0, 0,
                count, hot * cooling**done, hot * cooling ** (done + count), polish, self.rng,
            )  # fmt: skip
            done += count
        return Placed(best_track, best_routes, total_cost(self.game, best_track, best_routes))

    def sweep_reruns(self, placed: Placed) -> Placed:
        """Return the placement after trying, from the end to the start, to make every operand again just before its use."""
        track, routes = placed.track, placed.routes
        rules = rules_of(self.graph, self._longest(track))
        high, batch = len(track.seq), max(1, 4000 // (1 + len(track.seq)))
        while high > 0:
            if self.clock() <= 0:
                self.cut_off = True
                break
            low = max(0, high - batch)
            track, routes, _, _ = explore(
                self.game, rules, track, routes, track, routes, high, low, 0, 0.0, 0.0, 2, self.rng
            )
            high -= batch
        return Placed(track, routes, total_cost(self.game, track, routes))

    def _longest(self, track: Track) -> int:
        return max(len(track.seq), 3 * self.graph.dataflow.ops) + 8

    def _worth(self, track: Track, prices: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
        """Return prefix sums over slots of the prices of room."""
        cum = np.zeros((len(self.game.capacity), 2 * len(track.seq) + 3))
        if prices is not None:
            cum[:, 1:] = np.cumsum(prices, axis=1)
        return cum
