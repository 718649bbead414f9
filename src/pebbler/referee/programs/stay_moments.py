"""Moments, by name, at which not all values that are wanted later fit into the fastest level.

A moment is the end of the plan, `("end",)`; right after the first run of an op, `("op", op)`; the same with values that are made
again, `("remade", op)`; or when a param and its change are both there, `("pair", number of the update)`. `docs/exact.md` says what
holds at each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pebbler.game.dataflow import Dataflow
from pebbler.referee.programs.fact_program import Key
from pebbler.referee.programs.remade_values import ParamUpdate, RemadeValues, op_room
from pebbler.referee.programs.wanted_values import WantedValue

__all__ = ["StayMoments", "TightMoment"]


@dataclass(frozen=True)
class TightMoment:
    """A moment at which not all live values have room: these values with their gaps, and the room beside the op's own values."""

    room: int
    alive: tuple[tuple[int, frozenset[int]], ...]  # stays by their place in the list, and the gaps they may be in
    remakings: tuple[int, ...] = ()  # those of the list that something must be said of here
    pair: int | None = None  # an update: the room is less only if its param and its change both stay until then


class StayMoments:
    """Values alive at each moment, for one list of stays."""

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
        """Return the room that values take."""
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

    def names(self) -> Iterator[Key]:
        """Yield the names of all moments."""
        yield ("end",)
        for op in range(self.flow.ops):
            yield ("op", op)
            if self.remade.remakings:
                yield ("remade", op)
        yield from (("pair", number) for number in range(len(self.remade.updates)))

    def named(self, name: Key) -> TightMoment | None:
        """Return the moment of a name; None where there is none."""
        flow = self.flow
        if name == ("end",):
            return self.of((1 << flow.ops) - 1, 0, set())
        if len(name) != 2 or type(name[1]) is not int or name[1] < 0:
            return None
        kind, number = name
        if kind == "pair" and number < len(self.remade.updates):
            return self.pair(number, self.remade.updates[number])
        if kind not in ("op", "remade") or number >= flow.ops:
            return None
        ran, waiting, inside = flow.ancestors[number] | 1 << number, flow.descendants[number], op_room(flow, number)
        if kind == "op":
            return self.of(ran, waiting, inside)
        remakings = self.remakings(ran, waiting, inside)
        return self.of(ran, waiting, inside, remakings) if remakings else None

    def is_tight(self, moment: TightMoment) -> bool:
        """Return whether not everything has room then."""
        alive = sum(self.found[place].size for place, _ in moment.alive)
        parts = {part for number in moment.remakings for part in self.remade.remakings[number].parts}
        return alive + sum(self.remade.parts[part].size for part in parts) > moment.room
