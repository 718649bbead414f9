"""A lower bound on the energy of every legal plan, with its reason and its certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pebbler.arrays import Floats
from pebbler.files import int_if_whole
from pebbler.referee.certificates import VERSION
from pebbler.referee.programs.formulas import prove
from pebbler.solver.problem import Problem

__all__ = ["Bound", "certified", "certified_moments", "product_bounds", "written_price"]

_FINEST = 1 << 24  # what prices of room are multiples of one over, where they are no simple fractions


@dataclass(frozen=True)
class Bound:
    """An energy that no legal plan is below, and why."""

    value: float
    proof: str
    certificate: Mapping[str, Any] | None = None


def certified(problem: Problem, proof: str, formula: str, ends: float = math.inf, **arguments: Any) -> Bound:
    """Return the bound that a formula proves for the graph as it is, with its certificate; raise if it takes longer than `ends`."""
    certificate = {"covers": "graph", "formula": formula, **arguments}
    value = prove(problem.task, certificate, ends)
    return Bound(value, proof, {"bound": int_if_whole(value), "version": VERSION, **certificate})


def certified_moments(
    problem: Problem, proof: str, moments: Iterable[tuple[int, Floats]], ends: float = math.inf
) -> Bound:
    """Return the bound of moments with prices of room: an op, or the number of ops for the end, and a price per boundary."""
    ops = len(problem.graph.ops)
    listed = [
        [None if op == ops else int(op), [str(written_price(float(price))) for price in prices]]
        for op, prices in moments
    ]
    return certified(problem, proof, "moments", ends, moments=listed)


def written_price(price: float) -> Fraction:
    """Return a price as a fraction that takes few digits."""
    near = Fraction(price).limit_denominator(1_000)
    return near if abs(float(near) - price) <= 1e-12 * price else Fraction(round(price * _FINEST), _FINEST)


def product_bounds(problem: Problem) -> list[Bound]:
    """Return the bound of matrix products among the ops, if there are any."""
    found = certified(problem, "matrix products: what must be read from outside of each level", "products")
    return [found] if found.value > 0 else []
