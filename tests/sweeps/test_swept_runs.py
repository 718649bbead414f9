"""What a spec lists, in which order, and which keys it gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine, machine
from pebbler.solver.recompute.recompute_problem import program_order_peak
from pebbler.sweeps.sweep import sweep
from pebbler.sweeps.sweep_spec import read_spec
from pebbler.workloads import chain, get, note_mlp


def test_a_file_and_a_call_say_the_same(tmp_path):
    get("chain:length=3").save(tmp_path / "own.json")
    (tmp_path / "own.toml").write_text(
        'name="own"\nunit="pebble"\n[[level]]\nname="fast"\nread=0\nwrite=0\ncapacity=9\n'
    )
    (tmp_path / "sweep.toml").write_text("""
graphs = [{workload = "chain", length = [4, "5..6"]}, "own.json"]
machines = ["red-blue", "own.toml"]
time_limit = [1, 2]
seed = [0, 7]

[capacity]
fast = ["3..5", "100%"]
""")
    from_file = sweep.runs(tmp_path / "sweep.toml")
    called = sweep.runs(
        graphs=["chain:length=4|5|6", get("chain:length=3")],
        machines=["red-blue", str(tmp_path / "own.toml")],
        time_limit=[1, 2], seed=[0, 7], capacity={"fast": "3,4,5,100%"},
    )  # fmt: skip
    assert [run.key for run in from_file] == [run.key for run in called]
    assert len(from_file) == len({run.key for run in from_file})
    sizes = {(run.columns["graph"], run.columns["capacity"]) for run in from_file}
    assert ("chain:length=6", program_order_peak(chain(6))) in sizes
    # The peaks of two are in the range as well: the same run is listed once.
    assert len(from_file) == 2 * 4 * (3 + 4 + 4 + 3)


def test_keys_follow_from_content_alone():
    def key(graph="chain:length=4", **more):
        (run,) = sweep.runs(graph, **more)
        return run.key

    assert key() == key(chain(4)) == key(machines=[machine("red-blue")])
    others = [
        key("chain:length=5"), key(seed=1), key(tile="none"), key(time_limit=3), key(quick=True), key(steady=True),
        key(capacity={"fast": 5}), key(machines=Machine("red-blue", "pebble", (Level("fast", 0, 0, 11), Level("slow", 9, 9)))),
    ]  # fmt: skip
    assert len({key(), *others}) == len(others) + 1


def test_capacities_are_in_units_of_the_graph():
    runs = sweep.runs("note-mlp", machines=["notes-explicit"], capacity={"fastest": ["64KiB", "50%", 1000]})
    peak = program_order_peak(note_mlp())
    assert [run.columns["capacity"] for run in runs] == [16384, -(-peak // 2), 1000]
    assert [run.columns["share"] for run in runs] == [None, 0.5, None]
    levels = machine("notes-explicit").names
    two = sweep.runs("note-mlp", machines=["notes-explicit"], capacity={levels[0]: "10..20+10", levels[1]: "100,200"})
    assert [run.columns["capacities"].split()[:2] for run in two] == [
        [f"{levels[0]}={a}", f"{levels[1]}={b}"] for a in (10, 20) for b in (100, 200)
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a sweep needs graphs"),
        ({"graphs": []}, "no runs"),
        ({"graphs": "chian"}, r"graphs\[0\]: no built-in workload chian \(did you mean chain"),
        ({"graphs": ["chain", 3]}, r"graphs\[1\]: expected a file"),
        ({"graphs": {"work": "mlp"}}, "expected a file"),
        ({"graphs": {"workload": "mlp", "m": 3}}, "is no parameter"),
        ({"graphs": "mlp:n=x"}, "n: expected"),
        ({"graphs": "mlp:n=1,n=2"}, "given twice"),
        ({"graphs": "missing.json"}, "missing.json: cannot be read"),
        ({"graphs": "none*.json"}, "there are no such files"),
        ({"graphs": "chain", "machines": "notes"}, "they must agree"),
        ({"graphs": "chain", "machines": [3]}, "expected names or TOML files"),
        ({"graphs": "chain", "machine": "notes"}, "a sweep has no machine .did you mean machines"),
        ({"graphs": "chain", "capacity": {"L7": 3}}, "has no level L7"),
        ({"graphs": "chain", "capacity": {"fast": 3, "fastest": 4}}, "given twice"),
        ({"graphs": "chain", "capacity": {"fast": "64KiB"}}, "no bytes"),
        ({"graphs": "chain", "capacity": {"slow": 3}}, "the last of several levels is unbounded"),
        ({"graphs": "chain", "budget": "3MiB"}, "is no PyTorch step"),
        ({"graphs": "chain", "time_limit": -1}, "time_limit must be"),
        ({"graphs": "chain", "time_limit": "soon"}, "options"),
        ({"graphs": "chain", "tile": "some"}, "options"),
        ({"graphs": "chain", "seed": [0, 2**40]}, "seed must be"),
        (
            {"graphs": "chain:length=1..9000", "seed": list(range(200))},
            "this sweep has 1,800,000 runs; the limit is 1,000,000",
        ),
    ],
)
def test_what_is_wrong_is_named(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        sweep.runs(**arguments)


def test_a_spec_file_stands_alone(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text('graphs = "chain"\n')
    assert read_spec(path, {})[0].graphs == "chain"
    with pytest.raises(InputError, match="leave out seed"):
        read_spec(path, {"seed": 1})
    path.write_text('graphs = "chain"\nmachin = 3\n')
    with pytest.raises(InputError, match=r"s.toml: .*machin"):
        read_spec(path, {})
    path.write_text("graphs = [")
    with pytest.raises(InputError, match="not valid TOML"):
        read_spec(path, {})
    with pytest.raises(InputError, match="cannot be read"):
        read_spec(Path(tmp_path / "none.toml"), {})
