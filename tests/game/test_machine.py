"""Machines: the built-in ones, files, units."""

from __future__ import annotations

import pytest

from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine, builtin_machines, energy_unit, machine, machine_text

TWO = """
name = "two"
unit = "pebble"
[[level]]
name = "fast"
capacity = 3
read = 0
write = 0
[[level]]
name = "slow"
read = 100
write = 100
"""


@pytest.mark.parametrize("name", builtin_machines())
def test_every_builtin_machine_loads_and_cites_its_figures(name):
    shown = machine(name)
    assert shown.name == name
    assert shown.about
    text = machine_text(name)
    assert text.startswith("#")
    assert any(word in text for word in ("ISSCC", "data sheet", "Measured", "note 00", "puzzle", "metric"))


def test_the_machines_of_the_notes():
    for name, management in (("notes", "lru"), ("notes-recency", "recency"), ("notes-explicit", "explicit")):
        notes = machine(name)
        assert (notes.management, notes.operands, notes.unit, notes.line) == (management, "any", "float32", 1)
        assert [(level.name, level.capacity, level.read, level.write) for level in notes.level] == [
            ("register", 64, 5, 5),
            ("L1", 16384, 20, 20),
            ("L2", 65536, 100, 100),
            ("HBM", None, 640, 640),
        ]
    game = machine("red-blue")
    assert (game.management, game.operands, game.unit) == ("explicit", "fastest", "pebble")
    assert [(level.capacity, level.read, level.write) for level in game.level] == [(11, 0, 0), (None, 100, 100)]


def test_a_machine_file(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    two = machine(path)
    assert two == Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 100, 100)))
    assert two.operands == "fastest"
    assert machine(two) is two


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("capacity = 3", "capacity = 0", r"level\[0\].capacity: expected a whole number >= 1"),
        ("capacity = 3", "capacity = -3", "expected a whole number >= 1"),
        ("capacity = 3", "capacity = 2.5", "expected a whole number"),
        ("capacity = 3", 'capacity = "3"', "3 is in bytes; a machine in pebble counts those"),
        ("capacity = 3", f"capacity = {2**60}", "capacity must be a whole number from 1 to"),
        ("capacity = 3", "", "only the last level may be unbounded"),
        ("read = 100", "read = nan", "read: expected a number >= 0"),
        ("read = 100", "read = inf", "read must be a finite price"),
        ("read = 100", "read = -1", "read: expected a number >= 0"),
        ("read = 100", "read = 1e300", "read must be a finite price"),
        ("read = 100", "read = 100\ncapacity = 5", "the last of several levels is unbounded"),
        ('"slow"', '"fast"', r"level\[1\] \(fast\): the name is taken"),
        ('unit = "pebble"', "", "missing required field `unit`"),
        ('unit = "pebble"', 'unit = "pebble"\ncolour = 1', "unknown field `colour`"),
        (
            'unit = "pebble"',
            'unit = "pebble"\nmanagement = "lfu"',
            "management: lfu is not one of explicit, lru, recency",
        ),
        ('unit = "pebble"', 'unit = "pebble"\nline = 0', "expected a whole number >= 1"),
        ('name = "two"', 'name = "two', "not valid TOML"),
    ],
)
def test_wrong_machine_files_are_refused_with_the_place(tmp_path, old, new, message):
    path = tmp_path / "wrong.toml"
    assert old in TWO
    path.write_text(TWO.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        machine(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_machines_made_in_python_are_checked_too():
    slow = Level("slow", 1, 1)
    for level in (
        Level("fast", -1, 0, capacity=1),
        Level("fast", 0, float("nan"), capacity=1),
        Level("fast", 0, 0, capacity=0),
        Level("fast", 0, 0, capacity=1.5),  # type: ignore[arg-type]
        Level("fast", 0, 0),
    ):
        with pytest.raises(InputError, match=r"machine m: level\[0\] \(fast\)"):
            Machine("m", "pebble", (level, slow))
    with pytest.raises(InputError, match="at least one level"):
        Machine("m", "pebble", ())
    with pytest.raises(InputError, match="at most 32"):
        Machine("m", "pebble", (*(Level(f"L{i}", 0, 0, capacity=1) for i in range(40)), slow))
    with pytest.raises(InputError, match="needs an unbounded last level"):
        Machine("m", "pebble", (Level("only", 0, 0, capacity=1),), management="lru")


def test_unknown_machines_get_the_near_matches():
    with pytest.raises(InputError, match=r"no built-in machine note \(did you mean .*notes"):
        machine("note")
    with pytest.raises(InputError, match=r"known: .*red-blue"):
        machine("qqqq")
    with pytest.raises(InputError, match="no built-in machine"):
        machine("x" * 5000)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        machine("missing.toml")


def test_float32_and_byte_convert_and_nothing_else_does():
    notes = machine("notes-explicit")
    in_bytes = notes.in_unit("byte")
    assert [level.capacity for level in in_bytes.level] == [256, 65536, 262144, None]
    assert [level.read for level in in_bytes.level] == [1.25, 5, 25, 160]
    assert in_bytes.in_unit("float32") == notes
    assert notes.in_unit("float32") is notes
    laptop = machine("laptop")
    assert laptop.in_unit("float32").line == laptop.line // 4
    with pytest.raises(InputError, match="the graph is in pebble, machine notes-explicit in float32"):
        notes.in_unit("pebble")
    with pytest.raises(InputError, match="the graph is in float32, machine red-blue in pebble"):
        machine("red-blue").in_unit("float32")
    with pytest.raises(InputError, match="capacity must be a whole number from 1"):
        Machine("tiny", "byte", (Level("a", 0, 0, capacity=3), Level("b", 0, 0))).in_unit("float32")


def test_what_energies_are_counted_in():
    assert [energy_unit(unit) for unit in ("float32", "byte", "pebble")] == ["pJ", "pJ", "units"]
