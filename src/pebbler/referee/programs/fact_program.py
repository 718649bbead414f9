"""Programs in 0-1 variables of which every legal plan gives a solution that costs no more than the plan does, and their bounds.

A *row* says that a sum of factors times variables is at least a number. Take a weight of 0 or more for each row. A solution costs
at least what it costs less the sum of weight * (its row's sum - its number), since no row's sum is below its number; and that is a
constant plus a sum over variables, so each variable may be chosen for itself: whatever the weights are,

    constant + sum of weight * number + sum over variables of min(0, cost - sum of weight * factor)

is a bound. A *tree* splits on a variable: it is 0 in one half and 1 in the other, and each leaf has weights of its own. The least
of all leaves is a bound, and where costs are multiples of a quantum each leaf may be rounded up. How weights are found needs no
proof.

A *cut* is one more row: rows with weights are added up, with `x <= 1` of some variables among them, and all factors and the number
are rounded up. Variables are whole and not negative, so that holds as well (Gomory 1958, Chvatal 1973).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pebbler.referee.certificates import NotProven, common_denominator, in_time, read_weights, short
from pebbler.referee.programs.compulsory_traffic import Amount

__all__ = ["CUT", "MOST_ONE", "FactProgram", "FactRow", "Key", "add_cuts", "leaf_bound", "rounded_up", "tree_bound"]

Key = tuple[Any, ...]
CUT, MOST_ONE = "cut", "most 1"  # names of rows: ("cut", number), and ("most 1", *variable)
MOST_LEAVES = 20_000
MOST_CUTS = 20_000


@dataclass(frozen=True)
class FactRow:
    """A constraint: the sum of factors times variables, given by number, is at least a constant."""

    terms: tuple[tuple[int, int], ...]
    least: int


class FactProgram:
    """A program while it is built: variables with costs and rows, each by a name.

    >>> program = FactProgram(5)
    >>> x, y = program.variable(("x",), 3), program.variable(("y",), 2)
    >>> program.row(("one of them",), [(x, 1), (y, 1)], 1)
    >>> leaf_bound(program, {("one of them",): Fraction(2)})
    Fraction(7, 1)
    """

    def __init__(self, constant: Amount = 0) -> None:
        self.constant = constant
        self.numbers: dict[Key, int] = {}
        self.costs: list[int | Fraction] = []
        self.rows: dict[Key, FactRow] = {}

    def variable(self, name: Key, cost: Amount = 0) -> int:
        """Return the number of a variable, which is added if it is new; its cost is the one that it is first named with."""
        if name not in self.numbers:
            self.numbers[name] = len(self.costs)
            self.costs.append(cost if isinstance(cost, (int, Fraction)) else Fraction(cost))
        return self.numbers[name]

    def row(self, name: Key, terms: Iterable[tuple[int, int]], least: int) -> None:
        """Add a row; terms of one variable are added up."""
        found: dict[int, int] = defaultdict(int)
        for variable, factor in terms:
            found[variable] += factor
        self.rows[name] = FactRow(tuple((variable, factor) for variable, factor in found.items() if factor), least)

    @property
    def names(self) -> list[Key]:
        """The names of the variables, by number."""
        return list(self.numbers)


def rounded_up(program: FactProgram, weights: Mapping[Key, Fraction]) -> FactRow:
    """Return the row that follows from some rows with weights when all factors are rounded up.

    >>> program = FactProgram()
    >>> x, y, z = (program.variable((name,)) for name in "xyz")
    >>> program.row(("room",), [(x, 10), (y, 10), (z, 25)], 12)
    >>> rounded_up(program, {("room",): Fraction(1, 10), ("most 1", "z"): Fraction(1, 2)})  # 10 x + 10 y + 20 z >= 7
    FactRow(terms=((0, 1), (1, 1), (2, 2)), least=1)
    """
    over = common_denominator(weights)
    total, charged = _added(program, weights, over)
    return FactRow(tuple((v, -(-factor // over)) for v, factor in charged.items() if factor), -(-total // over))


def add_cuts(program: FactProgram, cuts: object, ends: float) -> None:
    """Add the cuts of a certificate to a program, one after the other: each may be made of those before it."""
    if not isinstance(cuts, Sequence) or isinstance(cuts, str) or len(cuts) > MOST_CUTS:
        raise NotProven("it has no list of cuts, or too long a one")
    for number, weights in enumerate(cuts):
        in_time(ends, number, "cuts")
        program.rows[CUT, number] = rounded_up(program, read_weights(weights))


def _added(program: FactProgram, weights: Mapping[Key, Fraction], over: int) -> tuple[int, dict[int, int]]:
    """Return the weighted sum of rows, times a number: the sum of their constants, and per variable the sum of its factors."""
    total = 0
    charged: dict[int, int] = defaultdict(int)
    for name, weight in weights.items():
        times = weight.numerator * (over // weight.denominator)
        row = program.rows.get(name)
        if row is not None:
            total += times * row.least
            for variable, factor in row.terms:
                charged[variable] += times * factor
        elif name[:1] == (MOST_ONE,) and name[1:] in program.numbers:
            total -= times
            charged[program.numbers[name[1:]]] -= times
        else:
            raise NotProven(f"there is no row {short(name)}")
    return total, charged


def leaf_bound(
    program: FactProgram, weights: Mapping[Key, Fraction], fixed: Mapping[int, int] | None = None
) -> Fraction:
    """Return the bound that weights of rows prove where some variables are fixed at 0 or 1."""
    fixed = fixed or {}
    over = common_denominator(weights)
    constants, charged = _added(program, weights, over)
    total: int | Fraction = constants
    for variable, amount in charged.items():
        if variable not in fixed:
            total += min(0, program.costs[variable] * over - amount)
    for variable, value in fixed.items():
        if value:
            total += program.costs[variable] * over - charged.get(variable, 0)
    return Fraction(program.constant) + Fraction(total) / over


def tree_bound(program: FactProgram, certificate: Mapping[str, Any], quantum: Fraction, ends: float) -> Fraction:
    """Return the bound of a certificate's weakest leaf; bounds are rounded up to multiples of the quantum, if that is not 0."""
    add_cuts(program, certificate.get("cuts", ()), ends)
    least: Fraction | None = None
    for number, (weights, fixed) in enumerate(_leaves(program, certificate.get("tree"))):
        in_time(ends, number, "leaves")
        if number >= MOST_LEAVES:
            raise NotProven(f"it has more than {MOST_LEAVES:,} leaves")
        found = leaf_bound(program, read_weights(weights), fixed)
        if quantum:
            found = -(-found // quantum) * quantum
        least = found if least is None else min(least, found)
    return least if least is not None else Fraction()


def _leaves(program: FactProgram, tree: object) -> Iterator[tuple[object, dict[int, int]]]:
    """Yield the weights of all leaves, with the variables that are 0 or 1 there; no split leaves anything out."""
    pending: list[tuple[object, dict[int, int]]] = [(tree, {})]
    while pending:
        node, fixed = pending.pop()
        if not isinstance(node, Mapping):
            raise NotProven(f"expected a split or a leaf, got {short(node)}")
        if "variable" not in node:
            yield node.get("weights"), fixed
            continue
        name = node["variable"]
        variable = program.numbers.get(_key(name))
        if variable is None or variable in fixed:
            raise NotProven(f"there is no variable {short(name)} to split on")
        pending += [(node.get("zero"), {**fixed, variable: 0}), (node.get("one"), {**fixed, variable: 1})]


def _key(name: object) -> Key:
    """Return a name of a file as the program has it."""
    try:
        key = tuple(name) if isinstance(name, Sequence) and not isinstance(name, str) else ()
        hash(key)
    except TypeError:
        return ()
    return key
