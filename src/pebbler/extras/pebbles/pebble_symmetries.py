"""Interchangeable ops and values of a pebble game, once some ops have run.

After the last product of a linear solver its components are alike: a position in which the first two are done is as good as one
in which the last two are. `docs/exact.md` ("Positions that are alike") says how the searches use it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pebbler.extras.pebbles.kernels.pebble_state import BEFORE, MOST_SWAPS, READS, WITHIN, WRITES, PebbleGame
from pebbler.game.bit_sets import members

__all__ = ["Swap", "swap_back", "with_symmetries"]

_MOST_SETS = 62  # after which something may change places: a state has six bits to say which

Node = tuple[bool, int]  # whether it is an op, and its number


class Swap(NamedTuple):
    """Ops and values that change places with others, pair by pair."""

    pairs: tuple[tuple[int, int, int], ...]  # the two numbers, and 1 for ops, 0 for values


def with_symmetries(game: PebbleGame, seconds_left: Callable[[], float]) -> PebbleGame:
    """Return the same game with the swaps allowed after each set of ops, where nothing pays to run twice.

    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.extras.pebbles.pebble_rules import pebble_rules
    >>> from pebbler.solver.problem import Problem
    >>> graph = Graph("alike", unit="pebble").tensor("a", 1, kind="input")
    >>> for name in "xyz":
    ...     graph = graph.tensor(name, 1, kind="output").op(name, ["a"], [name], 9)
    >>> two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=2), Level("slow", 1, 1)))
    >>> game = with_symmetries(pebble_rules(Problem.of(graph, two, steady=False)).game, lambda: 1.0)
    >>> game.pairs[:4].tolist()  # ops 0 and 1 with their values, 1 and 2 with theirs
    [[1, 2, 0], [0, 1, 1], [2, 3, 0], [1, 2, 1]]
    """
    if game.repeat:
        return game
    known: list[Swap] = []
    found: list[tuple[int, list[Swap]]] = []
    everything = (1 << len(game.needs)) - 1
    for fixed in sorted({0, *game.ops[:, WITHIN].tolist()}, key=int.bit_count):
        if seconds_left() <= 0:
            break
        if fixed != everything:
            runs = _Residual(game, fixed).runs_of_swaps(known)
            order = [swap for run in runs for swap in _in_turn(run)][:MOST_SWAPS]
            if order and not any({*order} <= {*swaps} for base, swaps in found if not base & ~fixed):
                found.append((fixed, order))
    found.sort(key=lambda one: -len({*one[1]}))
    return _as_arrays(game, found[:_MOST_SETS])


def _in_turn(run: list[Swap]) -> list[Swap]:
    """Return the swaps of neighbours that sort a row of blocks, whatever they are."""
    return [run[i] for last in range(len(run), 0, -1) for i in range(last)]


def _as_arrays(game: PebbleGame, found: list[tuple[int, list[Swap]]]) -> PebbleGame:
    swaps = list(dict.fromkeys(swap for _, order in found for swap in order))
    number = {swap: i for i, swap in enumerate(swaps)}
    pairs = [pair for swap in swaps for pair in swap.pairs]
    return game._replace(
        fixed=np.array([fixed for fixed, _ in found], np.int64),
        swap_start=np.cumsum([0, *(len(order) for _, order in found)]).astype(np.int64),
        swaps=np.array([number[swap] for _, order in found for swap in order], np.int64),
        pair_start=np.cumsum([0, *(len(swap.pairs) for swap in swaps)]).astype(np.int64),
        pairs=np.array(pairs, np.int64).reshape(-1, 3),
    )


def swap_back(game: PebbleGame, code: int, ops: list[int], values: list[int]) -> None:
    """Undo `kernels.pebble_state.canonical_state` in place: give ops and values of a state their own names again."""
    if code == 0:
        return
    base = (code & 63) - 1
    made = [
        int(game.swaps[k])
        for bit, k in enumerate(range(int(game.swap_start[base]), int(game.swap_start[base + 1])))
        if code >> 6 + bit & 1
    ]
    for swap in made:
        for a, b, is_op in game.pairs[int(game.pair_start[swap]) : int(game.pair_start[swap + 1])].tolist():
            names = ops if is_op else values
            names[a], names[b] = names[b], names[a]


def _by_number(colours: dict[Node, int]) -> dict[int, list[Node]]:
    found: dict[int, list[Node]] = {}
    for node, colour in colours.items():
        found.setdefault(colour, []).append(node)
    return found


class _Residual:
    """The rest of a game once a set of ops has run: ops, the values that they read or make, and the touches between them."""

    def __init__(self, game: PebbleGame, fixed: int) -> None:
        self.game, self.fixed = game, fixed
        table = game.ops.tolist()
        self.ops = [op for op in range(len(table)) if not fixed >> op & 1]
        self.around: dict[Node, list[tuple[int, Node]]] = {(True, op): [] for op in self.ops}
        for op in self.ops:
            for column in (READS, WRITES):
                for v in members(table[op][column]):
                    self.around[True, op].append((column, (False, v)))
                    self.around.setdefault((False, v), []).append((column, (True, op)))
        self.before = {op: table[op][BEFORE] & ~fixed for op in self.ops}
        looks = {node: (node[0], *self._look_of(node)) for node in self.around}
        number = {look: i for i, look in enumerate(sorted(set(looks.values())))}
        self.kinds = {node: number[look] for node, look in looks.items()}

    def _kind(self, node: Node) -> int:
        """Number what may only change places with its like: all that costs and estimates look at, the past included."""
        return self.kinds[node]

    def _look_of(self, node: Node) -> tuple[object, ...]:
        game, (is_op, number) = self.game, node
        if is_op:
            return int(game.needs[number]), int(game.ops[number, WITHIN]) & self.fixed
        used = int(game.readers[number]) & self.fixed
        if game.maker[number] >= 0:
            used |= 1 << int(game.maker[number]) & self.fixed
        # An op that filled the memory pushed out what it does not use; whether something used it since is seen by `used`.
        pushed = []
        for op in np.flatnonzero(game.needs == game.capacity).tolist():
            own = int(game.ops[op, READS] | game.ops[op, WRITES]) if self.fixed >> op & 1 else 0
            pushed.append((own >> number & 1, used & ~int(game.ops[op, WITHIN]) == 0))
        masks = (game.survive, game.given, game.fetched)
        return *(mask >> number & 1 for mask in masks), used > 0, tuple(pushed)

    def _classes(self, marked: Node | None) -> dict[Node, int]:
        """Number the nodes such that nodes that may change places, with the marked one where it is, have the same number."""
        colour = {node: 2 * self._kind(node) + (node == marked) for node in self.around}
        count = 0
        while len(set(colour.values())) > count:
            count = len(set(colour.values()))
            seen = {
                node: (colour[node], tuple(sorted((kind, colour[other]) for kind, other in near)))
                for node, near in self.around.items()
            }
            number = {one: i for i, one in enumerate(sorted(set(seen.values())))}
            colour = {node: number[one] for node, one in seen.items()}
        return colour

    def runs_of_swaps(self, known: list[Swap]) -> list[list[Swap]]:
        """Return rows of swaps, each of neighbouring blocks; new ones are added to those known."""
        runs = self._twins()
        for alike in _by_number(self._classes(None)).values():
            run: list[Swap] = []
            for a, b in pairwise(sorted(op for is_op, op in alike if is_op)):
                swap = self._swap(a, b, known)
                if swap is not None and not any(swap in other for other in runs):
                    run.append(swap)
                elif run:
                    runs.append(run)
                    run = []
            if run:
                runs.append(run)
        return runs

    def _twins(self) -> list[list[Swap]]:
        """Return rows of swaps of two values each, which are made elsewhere and read by the same ops."""
        twins: dict[tuple[int, tuple[tuple[int, Node], ...]], list[int]] = {}
        for (is_op, number), near in self.around.items():
            if not is_op:
                twins.setdefault((self._kind((is_op, number)), tuple(sorted(near))), []).append(number)
        return [[Swap(((a, b, 0),)) for a, b in pairwise(sorted(row))] for row in twins.values() if len(row) > 1]

    def _swap(self, a: int, b: int, known: list[Swap]) -> Swap | None:
        for swap in known:
            if (a, b, 1) in swap.pairs and self.allows(swap):
                return swap
        first, second = (_by_number(self._classes((True, op))) for op in (a, b))
        pairs: list[tuple[int, int, int]] = []
        for colour, nodes in sorted(first.items()):
            others = second.get(colour, [])
            if len(nodes) == len(others) and not {*nodes} & {*others}:
                for (is_op, one), (_, other) in zip(sorted(nodes), sorted(others), strict=True):
                    if (other, one, int(is_op)) not in pairs:
                        pairs.append((one, other, int(is_op)))
        if (a, b, 1) not in pairs:  # of two blocks either may come first
            pairs = [(other, one, is_op) for one, other, is_op in pairs]
        swap = Swap(tuple(pairs))
        if not pairs or not self.allows(swap):
            return None
        known.append(swap)
        return swap

    def allows(self, swap: Swap) -> bool:
        """Return whether the swap leaves the rest of the game as it is."""
        to: dict[Node, Node] = {node: node for node in self.around}
        for a, b, is_op in swap.pairs:
            one, other = (bool(is_op), a), (bool(is_op), b)
            if to.get(one) != one or to.get(other) != other or one == other:
                return False
            to[one], to[other] = other, one
        for node, near in self.around.items():
            if self._kind(node) != self._kind(to[node]):
                return False
            if {(kind, to[other]) for kind, other in near} != set(self.around[to[node]]):
                return False
        return all(
            {to[True, other][1] for other in members(before)} == set(members(self.before[to[True, op][1]]))
            for op, before in self.before.items()
        )
