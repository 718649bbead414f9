"""Which values stay in the fastest level and which come back: the integer program of all moments together."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from pebbler.referee.programs.remade_values import NOTHING_REMADE, RemadeValues
from pebbler.referee.programs.wanted_values import WantedValue
from pebbler.solver.cp_sat import new_solver

__all__ = ["TightMoment", "cheapest_stays"]

_SCALE = 1 << 40


@dataclass(frozen=True)
class TightMoment:
    """A time at which not everything that is alive has room: what is alive, in which gaps, and the room beside the op's own."""

    room: int
    alive: tuple[tuple[int, frozenset[int]], ...]  # stays by their place in the list, and the gaps they may be in
    remakings: tuple[int, ...] = ()  # those of the list that something must be said of here
    pair: int | None = None  # an update: the room is less only if its param and its change both stay until then


def cheapest_stays(
    found: list[WantedValue],
    when: list[TightMoment],
    seconds: float,
    effort: float,
    remade: RemadeValues = NOTHING_REMADE,
) -> float:
    """Return what plans pay at the least beyond compulsory traffic, as far as CP-SAT proves it within its deterministic time."""
    total = sum(stay.away + stay.back * (len(stay.wanted) + 1) for stay in found) + sum(remade.copies.values())
    if not when or total <= 0:
        return 0.0
    prices = [*(price for stay in found for price in (stay.away, stay.back)), *remade.copies.values()]
    whole = all(price % 1 == 0 for price in prices) and total < _SCALE
    scale = 1.0 if whole else _SCALE / total
    program = _StayProgram(found, remade, scale)
    for moment in when:
        program.add(moment)
    solver = new_solver(seconds, effort)
    solver.parameters.linearization_level = 2  # all of it: most of the bound comes from the linear relaxation
    if solver.solve(program.finished()) == cp_model.MODEL_INVALID:
        return 0.0
    return max(0.0, float(int(solver.best_objective_bound + 1e-6)) / scale)


class _StayProgram:
    """The program while moments are added: `docs/exact.md` names its variables and says why each constraint holds."""

    def __init__(self, found: list[WantedValue], remade: RemadeValues, scale: float) -> None:
        self.found, self.remade, self.scale = found, remade, scale
        self.model = cp_model.CpModel()
        self.ever = [self.model.new_bool_var("") for _ in found]
        self.gone: dict[tuple[int, frozenset[int]], cp_model.IntVar] = {}
        self.more: dict[int, cp_model.IntVar] = {}
        self.copied: dict[int, cp_model.IntVar] = {}

    def add(self, moment: TightMoment) -> None:
        """Demand that what is in the fastest level at a moment has room there."""
        spoken_of = {place for number in moment.remakings for place in self.remade.remakings[number].places}
        away = {
            place: self._now(place, gaps) if place in spoken_of else self._away(place, gaps)
            for place, gaps in moment.alive
        }
        held: list[cp_model.LinearExprT] = [self.found[place].size * (1 - one) for place, one in away.items()]
        kept = {part: self.model.new_bool_var("") for part in self._parts(moment)}
        held += [self.remade.parts[part].size * one for part, one in kept.items()]
        for number in moment.remakings:
            self._say(number, away, kept)
        room: cp_model.LinearExprT = moment.room
        if moment.pair is not None:
            update = self.remade.updates[moment.pair]
            everything = sum(self.found[place].size for place in away)
            not_both = self._copy(update.change) + self._away(update.place, frozenset({update.gap}))
            room = moment.room + max(0, everything - moment.room) * not_both
        self.model.add(sum(held) <= room)

    def finished(self) -> cp_model.CpModel:
        """Return the program with what it minimises; prices are rounded down."""
        costs = [int(stay.away * self.scale) * one for stay, one in zip(self.found, self.ever, strict=True)]
        for (place, gaps), one in self.gone.items():
            if len(gaps) == 1:
                costs.append(int(self.found[place].price(*gaps) * self.scale) * one)
        costs += [int(self.found[place].back * self.scale) * one for place, one in self.more.items()]
        costs += [int(self.remade.copies[value] * self.scale) * one for value, one in self.copied.items()]
        self.model.minimize(sum(costs))
        return self.model

    def _parts(self, moment: TightMoment) -> list[int]:
        return sorted({part for number in moment.remakings for part in self.remade.remakings[number].parts})

    def _say(self, number: int, away: dict[int, cp_model.IntVar], kept: dict[int, cp_model.IntVar]) -> None:
        """Demand that a lineage is there, or is copied in later, or that one of two params comes in once more."""
        remaking = self.remade.remakings[number]
        ways: list[cp_model.LinearExprT] = [kept[part] for part in remaking.parts]
        copied = {value for part in remaking.parts for value in self.remade.parts[part].values} | remaking.changes
        ways += [self._copy(value) for value in sorted(copied)]
        for place in remaking.places:
            ways += [self._comings(place), -away[place]] if place in away else [self._comings(place)]
        self.model.add(sum(ways) >= 1)

    def _away(self, place: int, gaps: frozenset[int]) -> cp_model.IntVar:
        """Return whether a value is away at a moment in one of these gaps."""
        key = (place, gaps)
        if key not in self.gone:
            one = self.gone[key] = self.model.new_bool_var("")
            if len(gaps) == 1:
                self.model.add_implication(one, self.ever[place])
            else:
                self.model.add_bool_or([one.negated(), *(self._away(place, frozenset({gap})) for gap in sorted(gaps))])
        return self.gone[key]

    def _now(self, place: int, gaps: frozenset[int]) -> cp_model.IntVar:
        """Return whether a value is away at this moment, which is in one of these gaps."""
        one = self.model.new_bool_var("")
        self.model.add_implication(one, self._away(place, gaps))
        return one

    def _comings(self, place: int) -> cp_model.LinearExprT:
        """Return how often a param comes in between the first op that wants it and the last; beyond one per gap, one is enough."""
        if place not in self.more:
            self.more[place] = self.model.new_bool_var("")
            self.model.add_implication(self.more[place], self.ever[place])
        gaps = range(len(self.found[place].wanted) - 1)
        return sum(self._away(place, frozenset({gap})) for gap in gaps) + self.more[place]

    def _copy(self, value: int) -> cp_model.IntVar:
        if value not in self.copied:
            self.copied[value] = self.model.new_bool_var("")
        return self.copied[value]
