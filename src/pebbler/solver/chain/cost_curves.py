"""The cost of a chain against the number of red pebbles and against the price of slow memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import msgspec

from pebbler.errors import InputError
from pebbler.files import int_if_whole
from pebbler.game.plan import Status
from pebbler.jobs.run_all import run_all
from pebbler.solver.chain import ChainSolution, solve_uniform

__all__ = ["CurvePoint", "PriceRange", "default_reds", "io_curve", "point_task", "red_curve"]

_LONG = 20_000  # layers from which on a point takes longer than a process to start


@dataclass(frozen=True)
class CurvePoint:
    """The optimum for one number of red pebbles; `strategy` is one word for its treatment of values that do not fit."""

    red: int
    energy: float
    computes: int
    loads: int
    stores: int
    status: Status
    strategy: str


@dataclass(frozen=True)
class PriceRange:
    """A range of prices over which one schedule stays the best: energy = fixed + transfers x io."""

    low: float
    high: float
    fixed: float
    loads: int
    stores: int

    @property
    def transfers(self) -> int:
        """Loads and stores together."""
        return self.loads + self.stores


def red_curve(length: int, reds: Iterable[int], compute: float = 1.0, io: float = 100.0) -> list[CurvePoint]:
    """Return the optimum for each number of red pebbles.

    >>> [(point.red, point.energy, point.strategy) for point in red_curve(100, [3, 11, 101])]
    [(3, 1814, 'stores and recomputes'), (11, 336, 'recomputes'), (101, 201, 'keeps all')]
    """
    payloads = [msgspec.msgpack.encode((length, red, compute, io)) for red in reds]
    found = dict(run_all(point_task, payloads, apart=length >= _LONG))
    return [CurvePoint(*msgspec.msgpack.decode(found[number])) for number in range(len(payloads))]


def point_task(payload: bytes) -> bytes:
    """Return one point of the curve over red pebbles; called in a separate process."""
    length, red, compute, io = msgspec.msgpack.decode(payload)
    solved = solve_uniform(length, red, compute, io)
    point = CurvePoint(
        red, solved.energy, solved.computes, solved.loads, solved.stores, solved.status, _strategy(solved)
    )
    return msgspec.msgpack.encode(astuple(point))


def default_reds(length: int, red: int) -> list[int]:
    """Return the numbers of red pebbles to plot: 3 to 16 (2 if asked for), powers of two, `red`, its neighbours, the most of use.

    >>> default_reds(30, 11)
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 31]
    """
    most = length + 1
    powers = [2**k for k in range(5, 24)]
    return sorted(
        {
            max(2 if length == 1 or red == 2 else 3, min(most, r))
            for r in [*range(3, 17), *powers, red - 1, red, red + 1, most]
        }
    )


def _strategy(solved: ChainSolution) -> str:
    recomputes = solved.computes > solved.chain.length
    if solved.stores:
        return "stores and recomputes" if recomputes else "stores"
    return "recomputes" if recomputes else "keeps all"


def io_curve(
    length: int, red: int, compute: float = 1.0, low: float | None = None, high: float = math.inf
) -> list[PriceRange]:
    """Return the ranges of the load/store price with the best schedule in each, from `low` (default `compute`) to `high`.

    The optimum is the lower envelope of lines (computes fixed, transfers times the price), so every breakpoint is where two
    neighbouring lines meet; they are found by solving at these meeting points until no new line shows up. The last piece,
    without transfers, begins where storing ceases to pay (with two pebbles it never does).

    >>> [(piece.low, piece.high, piece.transfers) for piece in io_curve(9, 4)]
    [(1, 2.5, 2), (2.5, inf, 0)]
    """
    low = compute if low is None else low
    if not 0 < low <= high:
        raise InputError(f"prices must be in order, 0 < low <= high, got {low} and {high}")
    # With two pebbles nothing can be made again, so some transfers stay; they are fewest where one outweighs every step.
    dearest = high if red > 2 or length == 1 else min(high, max(low, compute * (4 * length**2 + 1)))
    first, last = _line(length, red, compute, low), _line(length, red, compute, dearest)
    lines = [first, *_between(length, red, compute, first, last), last]
    pieces: list[PriceRange] = []
    at = low
    for i, line in enumerate(lines):
        if i + 1 < len(lines) and lines[i + 1][1:] == line[1:]:
            continue
        end = high if i + 1 == len(lines) else _meeting(line, lines[i + 1])
        if end > at or not pieces:
            pieces.append(PriceRange(int_if_whole(at), int_if_whole(end), int_if_whole(line[0]), line[1], line[2]))
            at = end
    return pieces


Line = tuple[float, int, int]


def _line(length: int, red: int, compute: float, io: float) -> Line:
    solved = solve_uniform(length, red, compute, io)
    if solved.status != "optimal":
        raise InputError(
            f"the optimum at io {io:g} is not proven, so no curve can be drawn through it; start from io {compute:g}"
        )
    return solved.computes * compute + solved.chain.backward_total, solved.loads, solved.stores


def _meeting(left: Line, right: Line) -> float:
    """The price at which two schedules cost the same; the left one has more transfers."""
    return (right[0] - left[0]) / (left[1] + left[2] - right[1] - right[2])


def _between(length: int, red: int, compute: float, left: Line, right: Line) -> list[Line]:
    if left[1] + left[2] <= right[1] + right[2]:
        return []
    price = _meeting(left, right)
    middle = _line(length, red, compute, price)
    cost = left[0] + (left[1] + left[2]) * price
    if middle[0] + (middle[1] + middle[2]) * price >= cost * (1 - 1e-9):  # the price where two lines meet is rounded
        return []
    return [*_between(length, red, compute, left, middle), middle, *_between(length, red, compute, middle, right)]
