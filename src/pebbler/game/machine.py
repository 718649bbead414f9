"""A machine as data: levels of memory with sizes and prices.

The built-in machines are TOML files in `pebbler/game/machines/`. Each file cites the source of its figures.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import convert_fields, is_file, read_toml
from pebbler.game.amounts import byte_count
from pebbler.game.measured_device import MeasuredDevice

__all__ = ["Level", "Machine", "builtin_machines", "energy_unit", "machine", "machine_text", "measured_device"]

UNIT_BYTES = {"byte": 1, "float32": 4}
# Sums of capacities are 64-bit integers, and no sum of prices may overflow a double.
_MOST_UNITS = 2**56
_MOST_PRICE = 1e30
Price = Annotated[float, msgspec.Meta(ge=0)]


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One memory: its capacity in units (None: unbounded), and the prices of reading and writing a unit."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    read: Price
    write: Price
    capacity: Annotated[int, msgspec.Meta(ge=1)] | None = None


_RULES = {
    "management": ("explicit", "lru", "recency"),
    "operands": ("fastest", "any"),
    "results": ("apart", "over"),
    "allocator": ("own", "reuse"),
    "prices": ("pJ", "ns"),
}


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Levels of memory, fastest first, and the rules under which they are used.

    >>> m = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 100, 100)))
    >>> m.management, m.operands, m.level[0].capacity
    ('explicit', 'fastest', 3)
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    unit: Annotated[str, msgspec.Meta(min_length=1)]
    level: tuple[Level, ...]
    management: Literal["explicit", "lru", "recency"] = "explicit"
    operands: Literal["fastest", "any"] = "fastest"
    results: Literal["apart", "over"] = (
        "apart"  # over: a result may take the room of operands that are dropped right after
    )
    allocator: Literal["own", "reuse"] = "reuse"
    line: Annotated[int, msgspec.Meta(ge=1, le=_MOST_UNITS)] = 1
    prices: Literal["pJ", "ns"] = "pJ"
    about: str = ""
    device: MeasuredDevice | None = None

    def __post_init__(self) -> None:
        place = f"machine {quoted(self.name)}"
        for rule, words in _RULES.items():
            if getattr(self, rule) not in words:
                raise InputError(
                    f"{place}: {rule} must be {' or '.join(words)}, got {quoted(str(getattr(self, rule)))}"
                )
        if not (isinstance(self.line, int) and 1 <= self.line <= _MOST_UNITS):
            raise InputError(f"{place}: line must be a whole number from 1 to {_MOST_UNITS:,}, got {self.line}")
        if not self.level:
            raise InputError(f"{place}: needs at least one level")
        if len(self.level) > 32:
            raise InputError(f"{place}: has {len(self.level)} levels; at most 32 are supported")
        names = [level.name for level in self.level]
        for i, level in enumerate(self.level):
            here = f"{place}: level[{i}] ({quoted(level.name)})"
            if level.name in names[:i]:
                raise InputError(f"{here}: the name is taken")
            for field, price in (("read", level.read), ("write", level.write)):
                if not 0 <= price <= _MOST_PRICE:
                    raise InputError(f"{here}: {field} must be a finite price from 0 to {_MOST_PRICE:g}, got {price}")
            room = level.capacity
            if room is not None and not (isinstance(room, int) and 1 <= room <= _MOST_UNITS):
                raise InputError(f"{here}: capacity must be a whole number from 1 to {_MOST_UNITS:,}, got {room}")
            last = i == len(self.level) - 1
            if level.capacity is None and not last:
                raise InputError(f"{here}: only the last level may be unbounded; give it a capacity")
            if level.capacity is not None and last and len(self.level) > 1:
                raise InputError(f"{here}: the last of several levels is unbounded; leave out its capacity")
        if self.results == "over" and (self.management != "explicit" or self.operands != "any"):
            raise InputError(f"{place}: results 'over' is for management 'explicit' and operands 'any'")
        if self.management != "explicit" and self.level[-1].capacity is not None:
            raise InputError(f"{place}: management {self.management!r} needs an unbounded last level")

    @property
    def names(self) -> list[str]:
        """The names of the levels, fastest first."""
        return [level.name for level in self.level]

    def level_index(self, name: str) -> int:
        """Return the position of a level (0 is the fastest), or say which levels there are."""
        for i, level in enumerate(self.level):
            if level.name == name:
                return i
        raise InputError(f"machine {quoted(self.name)} has no level {quoted(name)}{near_matches(name, self.names)}")

    def resized(self, level: int, capacity: int | None) -> Machine:
        """Return the same machine with another capacity of one level.

        >>> machine("red-blue").resized(0, 5).level[0].capacity
        5
        """
        levels = list(self.level)
        levels[level] = msgspec.structs.replace(levels[level], capacity=capacity)
        return msgspec.structs.replace(self, level=tuple(levels))

    def in_unit(self, unit: str) -> Machine:
        """Return the same machine with capacities, lines and prices per `unit`; only float32 and byte convert.

        >>> machine("notes").in_unit("byte").level[1].capacity
        65536
        """
        if unit == self.unit:
            return self
        if unit not in UNIT_BYTES or self.unit not in UNIT_BYTES:
            raise InputError(
                f"the graph is in {quoted(unit)}, machine {quoted(self.name)} in {quoted(self.unit)}: "
                "they must agree (only float32 and byte convert)"
            )
        return self._scaled(unit, UNIT_BYTES[unit])

    def amount_of(self, units: int, unit: str) -> int:
        """Return an amount in this machine's own unit, converted from another unit.

        >>> machine("cortex-m").amount_of(10, "float32"), machine("notes").amount_of(10, "byte")
        (40, 3)
        """
        self.in_unit(unit)  # refuses units that do not agree
        return units if unit == self.unit else -(-units * UNIT_BYTES[unit] // UNIT_BYTES[self.unit])

    def in_bytes(self, count: int) -> Machine:
        """Return the same machine with capacities, lines and prices per unit of so many bytes: elements of an array, say.

        >>> machine("laptop").in_bytes(8).line
        8
        """
        if self.unit not in UNIT_BYTES:
            raise InputError(
                f"machine {quoted(self.name)} counts {quoted(self.unit)}, not bytes; expected {count}-byte units"
            )
        if self.line * UNIT_BYTES[self.unit] % count and self.line > 1:
            raise InputError(f"units of {count} bytes do not fill the lines of machine {quoted(self.name)}")
        known = next((unit for unit, size in UNIT_BYTES.items() if size == count), f"{count} bytes")
        return self if known == self.unit else self._scaled(known, count)

    def _scaled(self, unit: str, size: int) -> Machine:
        old = UNIT_BYTES[self.unit]
        levels = tuple(
            msgspec.structs.replace(
                level,
                capacity=None if level.capacity is None else level.capacity * old // size,
                read=level.read * size / old,
                write=level.write * size / old,
            )
            for level in self.level
        )
        return msgspec.structs.replace(self, unit=unit, level=levels, line=max(1, self.line * old // size))


def energy_unit(unit: str, priced: Machine | None = None) -> str:
    """Return the unit of costs for graphs of this unit: plain units for pebbles, ns for machines that measure time, otherwise pJ.

    >>> energy_unit("byte"), energy_unit("pebble")
    ('pJ', 'units')
    """
    if unit not in UNIT_BYTES:
        return "units"
    return "pJ" if priced is None else priced.prices


def builtin_machines() -> list[str]:
    """Return the names of the built-in machines.

    >>> "red-blue" in builtin_machines()
    True
    """
    files = resources.files("pebbler.game.machines").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def machine_text(name: str) -> str:
    """Return the TOML text of a built-in machine, sources and all: a start for one's own."""
    if name not in builtin_machines():
        raise InputError(f"no built-in machine {quoted(name)}{near_matches(name, builtin_machines())}")
    return resources.files("pebbler.game.machines").joinpath(f"{name}.toml").read_text(encoding="utf-8")


def machine(name: str | Path | Machine) -> Machine:
    """Return a built-in machine by name, or the one in a TOML file.

    The part of a file about a measured device is left out: plans carry their machine with them and do not need it.

    >>> machine("red-blue").level[0].capacity
    11
    """
    if isinstance(name, Machine):
        return name
    return msgspec.structs.replace(_read_machine(name), device=None)


def measured_device(name: str | Path) -> MeasuredDevice:
    """Return the table `[device]` of a machine's file, which `pebbler calibrate` writes."""
    found = _read_machine(name).device
    if found is None:
        raise InputError(
            f"machine {quoted(name)} has no table [device]: `pebbler calibrate -o {quoted(name)}` writes one"
        )
    return found


def _machine_of(path: str | Path) -> Machine:
    """Return the machine in a TOML file, whose capacities may be amounts of memory, as "256KiB"."""
    found = read_toml(path, dict[str, Any])
    levels, unit = found.get("level"), found.get("unit")
    for i, level in enumerate(levels if isinstance(levels, list) else ()):
        if isinstance(level, dict) and isinstance(level.get("capacity"), str):
            place, words = f"{path}: level[{i}]: capacity", level["capacity"]
            count, size = byte_count(words), UNIT_BYTES.get(unit) if isinstance(unit, str) else None
            if count is None:
                raise InputError(
                    f"{place}: expected a number of units, or an amount such as 256KiB, got {quoted(words)}"
                )
            if size is None:
                raise InputError(f"{place}: {quoted(words)} is in bytes; a machine in {quoted(str(unit))} counts those")
            if count % size:
                raise InputError(f"{place}: {quoted(words)} is no whole number of {unit}")
            level["capacity"] = count // size
    return convert_fields(found, Machine, str(path))


def _read_machine(name: str | Path) -> Machine:
    text = str(name)
    if text in builtin_machines():
        with resources.as_file(resources.files("pebbler.game.machines").joinpath(f"{text}.toml")) as path:
            return _machine_of(path)
    if text.endswith(".toml") or is_file(text):
        return _machine_of(text)
    raise InputError(
        f"no built-in machine {quoted(text)}{near_matches(text, builtin_machines())}; a machine file must end in .toml"
    )
