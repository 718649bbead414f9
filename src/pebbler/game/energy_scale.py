"""Comparison of energies: exact where all prices are whole numbers, up to rounding otherwise. No other module compares energies.

An energy is a sum of prices and op costs, in doubles. Where all of these are whole (or whole quarters: prices per float32 taken
per byte), every such sum below 2**53 quanta is exact, whatever the order of its terms. Otherwise a sum of n terms may be off by
n / 2**53 of itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine

__all__ = ["EnergyScale", "Status"]

Status = Literal["optimal", "bounded", "heuristic"]

_QUANTA = (1.0, 0.5, 0.25)
_MOST_QUANTA = 2**53  # above, doubles leave whole numbers out
_FINE_QUANTA = 2**48  # below, doubles show what is not whole, even after some roundings
_ROUNDING = 1e-12  # sums of ten thousand terms; a claim forgives no more
_SURELY = 1e-9  # sums of ten million terms; an accusation forgives so much


@dataclass(frozen=True)
class EnergyScale:
    """The precision of energies of a graph's plans on a machine: multiples of `quantum`, or rounded sums (`quantum` 0).

    >>> whole, rounded = EnergyScale(1.0), EnergyScale(0.0)
    >>> whole.proves(10**13 - 1, 10**13), rounded.proves(10**13 - 1, 10**13)
    (False, True)
    """

    quantum: float

    @classmethod
    def of(cls, graph: Graph, machine: Machine) -> EnergyScale:
        """Return the scale of a graph's plans on a machine.

        >>> from pebbler import machine, workloads
        >>> [EnergyScale.of(step, machine("notes")).quantum for step in (workloads.mlp(), Graph("in bytes", "byte"))]
        [1.0, 0.25]
        """
        prices = [price for level in machine.in_unit(graph.unit).level for price in (level.read, level.write)]
        return cls.of_amounts(np.append(graph.dataflow.op_cost, prices))

    @classmethod
    def of_amounts(cls, amounts: npt.ArrayLike) -> EnergyScale:
        """Return the scale of sums of these amounts; those that are infinite are never paid.

        >>> EnergyScale.of_amounts([1, 0.5, math.inf]), EnergyScale.of_amounts([0.1])
        (EnergyScale(quantum=0.5), EnergyScale(quantum=0.0))
        """
        every = np.asarray(amounts, np.float64)
        paid = every[every < math.inf]
        return cls(next((quantum for quantum in _QUANTA if not (paid % quantum).any()), 0.0))

    @property
    def exact(self) -> bool:
        """Whether energies are sums without rounding."""
        return self.quantum > 0

    @property
    def rounding(self) -> float:
        """The part of a sum that may be rounding."""
        return 0.0 if self.exact else _ROUNDING

    def proves(self, bound: float, energy: float) -> bool:
        """Return whether a lower bound proves that no plan costs less than `energy`."""
        return energy <= bound * (1 + 2 * self.rounding)  # the bound may have been lowered by as much as it is short of

    def status(self, bound: float | None, energy: float) -> Status:
        """Return the status of a plan by its energy and a lower bound; no other module decides it.

        >>> [EnergyScale(1.0).status(bound, 10) for bound in (10, 9, 0, None)]
        ['optimal', 'bounded', 'heuristic', 'heuristic']
        """
        bound = bound or 0.0
        return "optimal" if self.proves(bound, energy) else "bounded" if bound > 0 else "heuristic"

    def is_less(self, energy: float, other: float) -> bool:
        """Return whether an energy is less than another for sure, and not by rounding.

        >>> EnergyScale(1.0).is_less(10**13 - 1, 10**13), EnergyScale(0.0).is_less(10**13 - 1, 10**13)
        (True, False)
        """
        slack = _SURELY * abs(other) if math.isfinite(other) else 0.0
        return other - energy > (min(slack, 0.5 * self.quantum) if self.exact else slack)

    def differ(self, energy: float, other: float) -> bool:
        """Return whether two energies differ for sure, and not by rounding."""
        return self.is_less(energy, other) or self.is_less(other, energy)

    def cutoff(self, energy: float) -> float:
        """Return the energy at which a search for plans cheaper than this may stop: what costs so much is not cheaper.

        Estimates of exact energies may be rounded, so the cutoff lies between two energies.

        >>> EnergyScale(1.0).cutoff(18), EnergyScale(0.25).cutoff(18), EnergyScale(0.0).cutoff(math.inf)
        (17.5, 17.875, inf)
        """
        if not self.exact:
            return energy * (1 - _ROUNDING)
        return energy - 0.5 * self.quantum if energy < _FINE_QUANTA * self.quantum else energy

    def lowered(self, bound: float) -> float:
        """Return a sum that is a lower bound, less what rounding may have added to it.

        >>> EnergyScale(1.0).lowered(17.0), EnergyScale(0.0).lowered(0.1 + 0.2) < 0.3
        (17.0, True)
        """
        return bound if self._shown_exact(bound) else bound * (1 - _ROUNDING)

    def least(self, bound: float) -> float:
        """Return the least energy that a plan can have if none is below a bound, itself perhaps a rounded sum.

        >>> EnergyScale(1.0).least(17.2), EnergyScale(1.0).least(17.0000000001), EnergyScale(0.25).least(17.2)
        (18.0, 17.0, 17.25)
        """
        if not self.exact or not math.isfinite(bound) or self._shown_exact(bound):
            return bound
        above = math.ceil((bound - _SURELY * (abs(bound) + 1)) / self.quantum)
        return max(above, math.floor(self.lowered(bound) / self.quantum)) * self.quantum

    def _shown_exact(self, bound: float) -> bool:
        """Whether a sum must be without rounding, since it could show that and is a multiple of the quantum."""
        return self.exact and bound % self.quantum == 0 and bound < _FINE_QUANTA * self.quantum

    def require_exact(self, energy: float) -> None:
        """Refuse an energy that whole prices add up to and that is too large for a double to hold exactly.

        >>> EnergyScale(1.0).require_exact(2**53)
        Traceback (most recent call last):
        pebbler.errors.InputError: the plan costs 9.0e+15 or more: sums of whole prices are exact below 2**53; state prices ...
        """
        if energy >= _MOST_QUANTA * self.quantum > 0:
            what = "whole prices" if self.quantum == 1 else f"multiples of {self.quantum}"
            raise InputError(
                f"the plan costs {energy:.1e} or more: sums of {what} are exact below 2**{round(math.log2(2**53 * self.quantum))}; "
                "state prices and costs in a larger unit"
            )
