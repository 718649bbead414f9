"""The choice, for all moments together, of values that stay in the fastest level and values that come back: the formula `stays`.

`docs/exact.md` names the variables and says why each row holds. A certificate names the moments, whether values that are made again
are looked at, and has a tree of weights (`pebbler.referee.programs.fact_program`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pebbler.game.energy_scale import EnergyScale
from pebbler.game.starts import PlayedGraph
from pebbler.referee.certificates import NotProven, in_time, short
from pebbler.referee.programs.compulsory_traffic import Amount, ValuePrices, compulsory_traffic
from pebbler.referee.programs.fact_program import FactProgram, Key, tree_bound
from pebbler.referee.programs.remade_values import NOTHING_REMADE, RemadeValues, remade_values
from pebbler.referee.programs.stay_moments import StayMoments, TightMoment
from pebbler.referee.programs.wanted_values import WantedValue, stays

__all__ = ["StayFacts", "StayProgram", "prove_stays"]

_MOST_OPS = 5_000  # sets of ops are whole numbers of so many bits
Terms = list[tuple[int, int]]


@dataclass(frozen=True)
class StayFacts:
    """Facts about a graph's values that should stay, with or without values that are recomputed."""

    base: Amount  # compulsory traffic
    found: list[WantedValue]
    remade: RemadeValues
    moments: StayMoments

    @classmethod
    def of(cls, task: PlayedGraph, *, remade: bool) -> StayFacts:
        """Return the facts about a graph on a machine."""
        flow, prices, capacity = task.graph.dataflow, ValuePrices.of(task), task.machine.level[0].capacity
        assert capacity is not None
        found = stays(task, prices)
        again = remade_values(flow, prices, found, capacity) if remade else NOTHING_REMADE
        return cls(compulsory_traffic(task, prices), found, again, StayMoments(flow, capacity, found, again))

    @staticmethod
    def known_of(task: PlayedGraph) -> bool:
        """Return whether anything is known: ops take their operands from the fastest of several levels."""
        machine = task.machine
        places = machine.management == "explicit" and machine.operands == "fastest" and len(machine.level) > 1
        return places and machine.level[0].capacity is not None and len(task.graph.ops) <= _MOST_OPS

    def program(self, moments: Iterable[tuple[Key, TightMoment]]) -> FactProgram:
        """Return the program of some moments."""
        builder = StayProgram(self.found, self.remade, FactProgram(self.base))
        for name, moment in moments:
            builder.add(name, moment)
        return builder.program


def prove_stays(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `stays` proves."""
    if not StayFacts.known_of(task):
        raise NotProven("what stays is known where ops take their operands from the fastest of several levels")
    listed = certificate.get("moments")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise NotProven("it has no list of moments")
    facts = StayFacts.of(task, remade=certificate.get("remade") is True)
    moments: dict[Key, TightMoment] = {}
    for number, name in enumerate(listed):
        in_time(ends, number, "moments")
        key = tuple(name) if isinstance(name, Sequence) and not isinstance(name, str) else ()
        moment = facts.moments.named(key)
        if moment is None:
            raise NotProven(f"there is no moment {short(name)}")
        moments[key] = moment
    quantum = Fraction(EnergyScale.of(task.graph, task.machine).quantum)
    return tree_bound(facts.program(moments.items()), certificate, quantum, ends)


class StayProgram:
    """The program while moments are added."""

    def __init__(self, found: list[WantedValue], remade: RemadeValues, program: FactProgram) -> None:
        self.found, self.remade, self.program = found, remade, program

    def add(self, name: Key, moment: TightMoment) -> None:
        """Require that the values in the fastest level at a moment fit there."""
        spoken_of = {place for number in moment.remakings for place in self.remade.remakings[number].places}
        away = {
            place: self._now(name, place, gaps) if place in spoken_of else self._away(place, gaps)
            for place, gaps in moment.alive
        }
        everything = sum(self.found[place].size for place in away)
        terms = [(one, self.found[place].size) for place, one in away.items()]
        parts = sorted({part for number in moment.remakings for part in self.remade.remakings[number].parts})
        kept = {part: self.program.variable(("kept", *name, part)) for part in parts}
        terms += [(one, -self.remade.parts[part].size) for part, one in kept.items()]
        for number in moment.remakings:
            self._say(name, number, away, kept)
        if moment.pair is not None:
            update = self.remade.updates[moment.pair]
            over = max(0, everything - moment.room)
            terms += [(self._copy(update.change), over), (self._away(update.place, frozenset({update.gap})), over)]
        self.program.row(("room", *name), terms, everything - moment.room)

    def _say(self, name: Key, number: int, away: dict[int, int], kept: dict[int, int]) -> None:
        """Require that a lineage is in fast memory, or copied in later, or that one of two params is loaded once more."""
        remaking = self.remade.remakings[number]
        terms: Terms = [(kept[part], 1) for part in remaking.parts]
        copied = {value for part in remaking.parts for value in self.remade.parts[part].values} | remaking.changes
        terms += [(self._copy(value), 1) for value in sorted(copied)]
        for place in remaking.places:
            terms += self._comings(place)
            terms += [(away[place], -1)] if place in away else []
        self.program.row(("lineage", *name, number), terms, 1)

    def _ever(self, place: int) -> int:
        """Return whether a value is ever away."""
        return self.program.variable(("ever", place), self.found[place].away)

    def _away(self, place: int, gaps: frozenset[int]) -> int:
        """Return whether a value is away at a moment in one of these gaps."""
        name = ("away", place, *sorted(gaps))
        if name not in self.program.numbers:
            one = self.program.variable(name, self.found[place].price(*gaps) if len(gaps) == 1 else 0)
            within = [self._ever(place)] if len(gaps) == 1 else [self._away(place, frozenset({gap})) for gap in gaps]
            self.program.row(name, [(one, -1), *((other, 1) for other in within)], 0)
        return self.program.numbers[name]

    def _now(self, name: Key, place: int, gaps: frozenset[int]) -> int:
        """Return whether a value is away at this moment, which is in one of these gaps."""
        own = ("now", *name, place)
        one = self.program.variable(own)
        self.program.row(own, [(one, -1), (self._away(place, gaps), 1)], 0)
        return one

    def _comings(self, place: int) -> Terms:
        """Return the entries of a param between its first and its last op; beyond one per gap, one variable suffices."""
        name = ("more", place)
        if name not in self.program.numbers:
            more = self.program.variable(name, self.found[place].back)
            self.program.row(name, [(more, -1), (self._ever(place), 1)], 0)
        gaps = range(len(self.found[place].wanted) - 1)
        return [*((self._away(place, frozenset({gap})), 1) for gap in gaps), (self.program.numbers[name], 1)]

    def _copy(self, value: int) -> int:
        return self.program.variable(("copied", value), self.remade.copies[value])
