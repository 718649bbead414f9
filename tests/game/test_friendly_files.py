"""Files as people write them: amounts of memory, words that are nearly right, a file that was cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from pebbler import Graph, InputError, machine

LEVELS = """name = "mine"
unit = "{unit}"
management = "{management}"
[[level]]
name = "near"
capacity = {capacity}
read = 1
write = 1
[[level]]
name = "far"
read = 9
write = 9
"""


def written(folder: Path, unit: str = "byte", management: str = "lru", capacity: str = "64") -> Path:
    path = folder / "mine.toml"
    path.write_text(LEVELS.format(unit=unit, management=management, capacity=capacity))
    return path


@pytest.mark.parametrize(
    ("unit", "capacity", "units"),
    [("byte", '"256KB"', 256_000), ("byte", '"256 KiB"', 262_144), ("float32", '"256KiB"', 65_536), ("byte", "64", 64)],
)
def test_capacities_may_be_amounts_of_memory(tmp_path: Path, unit: str, capacity: str, units: int) -> None:
    assert machine(written(tmp_path, unit, capacity=capacity)).level[0].capacity == units


@pytest.mark.parametrize(
    ("unit", "capacity", "words"),
    [
        ("byte", '"12XB"', r"level\[0\]: capacity: expected a number of units, or an amount such as 256KiB, got 12XB"),
        ("float32", '"6B"', "6B is no whole number of float32"),
        ("pebble", '"6KB"', "6KB is in bytes; a machine in pebble counts those"),
    ],
)
def test_other_capacities_are_refused(tmp_path: Path, unit: str, capacity: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        machine(written(tmp_path, unit, capacity=capacity))


def test_words_that_are_none_are_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="management: cache is not one of explicit, lru, recency"):
        machine(written(tmp_path, management="cache"))
    with pytest.raises(InputError, match="kind: parameter is not one of input, output, param, temp"):
        Graph("g").tensor("a", 1, kind="parameter")  # type: ignore[arg-type]


def test_a_file_that_was_cut_off_is_called_truncated(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    Graph("g").tensor("a", 1).save(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match="truncated: the JSON ends in the middle"):
        Graph.load(path)


def test_temps_need_no_kind(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(
        '{"format": "pebbler-graph-1", "name": "g", "unit": "byte", "tensors": [{"name": "a", "size": 1}], "ops": []}'
    )
    graph = Graph.load(path)
    assert graph.tensors[0].kind == "temp"
    graph.save(path)
    assert '"kind": "temp"' in path.read_text()  # which older versions need
