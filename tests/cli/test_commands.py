"""The commands check, graph, machines and workloads: answers, exit status, and one line for every wrong input."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pebbler.files import write_bytes, write_json
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.plan import Plan
from pebbler.game.transform import fuse_all, tile
from pebbler.notes import note_order
from pebbler.referee.judgement import check
from pebbler.solver.chain import solve_chain
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Impossible, Problem
from pebbler.workloads import chain, mlp, note_mlp


def wrong(cli, *arguments: object) -> str:
    """Run a command on wrong input and return the one or two lines it says."""
    status, out, err = cli(*arguments)
    assert status == 2, err
    assert out == ""
    assert "Traceback" not in err
    assert 1 <= len(err.rstrip("\n").split("\n")) <= 2
    assert len(err) < 3000
    assert err.startswith("error: ")
    return err


def note_plan(folder: Path, name: str, on: str = "notes-recency") -> Path:
    path = folder / f"{name}.json"
    Plan.in_order(note_mlp(), machine(on), note_order(name)).save(path)
    return path


# Answers --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "energy", "levels"),
    [
        ("standard", 11_004_490, {"register": 50, "L1": 300_040, "L2": 10_704_400, "HBM": 0}),
        ("optimal", 10_764_315, {"register": 55, "L1": 360_060, "L2": 10_404_200, "HBM": 0}),
    ],
)
def test_check_of_the_notes_legal_orders(cli, tmp_path, name, energy, levels):
    status, out, _ = cli("check", note_plan(tmp_path, name), "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["legal"] is True
    assert (answer["energy"], answer["levels"]) == (energy, levels)
    assert "error" not in answer
    assert "move" not in answer
    status, out, _ = cli("check", note_plan(tmp_path, name))
    assert status == 0
    assert f"{energy / 1e6:.3f} µJ" in out


@pytest.mark.parametrize(("name", "place"), [("fused", 7), ("perlayer", 8)])
def test_check_of_the_notes_broken_orders(cli, tmp_path, name, place):
    path = note_plan(tmp_path, name)
    status, out, _ = cli("check", path, "--json")
    answer = json.loads(out)
    assert (status, answer["legal"], answer["move"]) == (1, False, place)
    assert answer["error"] == f"move {place}: upd_W2 overwrites W2 (version 0) before bwd_dh reads it"
    status, out, err = cli("check", path)
    assert (status, out) == (1, "")
    assert f"illegal: {answer['error']}" in err
    status, out, _ = cli("check", path, "--json", "--ignore-war")
    answer = json.loads(out)
    assert (status, answer["energy"]) == (0, 10_844_330)
    assert answer["levels"] == {"register": 50, "L1": 340_080, "L2": 10_504_200, "HBM": 0}


def test_check_execute(cli, tmp_path):
    status, out, _ = cli("check", note_plan(tmp_path, "optimal"), "--execute")
    assert status == 0
    assert "bit-identical to program order" in out
    status, out, _ = cli("check", note_plan(tmp_path, "optimal"), "--execute", "--json")
    assert json.loads(out)["execute"]["identical"] is True
    status, out, _ = cli("check", note_plan(tmp_path, "fused"), "--execute", "--ignore-war", "--json")
    assert status == 1  # priced as the note did, but it computes something else
    assert json.loads(out)["execute"]["identical"] is False
    Plan.in_order(chain(3), machine("red-blue"), start={"N0": "fast"}).save(tmp_path / "chain.json")
    status, out, _ = cli("check", tmp_path / "chain.json", "--execute")
    assert (status, "fingerprints" in out) == (0, True)


def test_check_says_when_the_file_claims_another_energy(cli, tmp_path):
    Plan.in_order(chain(3), machine("red-blue"), start={"N0": "fast"}, energy=5).save(tmp_path / "p.json")
    status, out, err = cli("check", tmp_path / "p.json", "--json")
    assert (status, json.loads(out)["energy"]) == (0, 7)
    assert "void: the energy of 5 units is not what the referee finds, 7 units" in err


def test_graph_counts_the_orders_of_note_000(cli):
    status, out, _ = cli("graph", "note-mlp", "--json")
    answer = json.loads(out)
    assert status == 0
    assert (answer["legal_orders"], answer["orders_without_war"]) == (7290, 7560)
    assert answer["hazard_counts"]["WAR"] == 5
    status, out, _ = cli("graph", "note-mlp", "--hazards")
    assert "7,290" in out
    assert "upd_W2 must follow bwd_dh: bwd_dh reads W2 version 0, which upd_W2 overwrites" in out
    status, out, _ = cli("graph", "note-mlp", "--hazards", "--json")
    assert len(json.loads(out)["hazards"]) == sum(json.loads(out)["hazard_counts"].values())


@pytest.mark.parametrize("suffix", ["json", "dot", "svg"])
def test_graph_writes_other_forms(cli, tmp_path, suffix):
    status, _, err = cli("graph", "mlp:n=3,hidden=4", "-o", f"g.{suffix}")
    assert (status, (tmp_path / f"g.{suffix}").stat().st_size > 500) == (0, True)
    assert f"wrote g.{suffix}" in err
    if suffix == "json":
        assert cli("graph", "g.json", "--json")[1] == cli("graph", "mlp:n=3,hidden=4", "--json")[1]


def test_counts_of_any_size_are_printed(cli, tmp_path):
    from pebbler.game.graph import Graph

    graph = Graph("many")
    graph.tensor("a", 1, kind="input")
    for i in range(1500):
        graph.op(f"r{i}", reads=["a"])
    graph.save(tmp_path / "many.json")
    status, out, _ = cli("graph", "many.json")
    assert status == 0
    assert "4.81 x 10^4114" in out
    assert cli("graph", "many.json", "--json")[0] == 0


def test_machines(cli, tmp_path):
    status, out, _ = cli("machines", "--json")
    assert status == 0
    assert json.loads(out)["machines"]["red-blue"]["level"][0]["capacity"] == 11
    status, text, _ = cli("machines", "red-blue")
    (tmp_path / "mine.toml").write_text(text)
    assert cli("machines", "mine.toml", "--json")[1] == cli("machines", "red-blue", "--json")[1]
    status, out, _ = cli("machines", "mine.toml")
    assert (status, "unbounded" in out) == (0, True)


def test_workloads(cli):
    status, out, _ = cli("workloads", "--json")
    assert status == 0
    assert "note-mlp" in json.loads(out)["workloads"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "--help"],
        ["graph", "--help"],
        ["machines", "--help"],
        ["workloads", "--help"],
        ["check", "standard.json"],
        ["check", "standard.json", "--execute"],
        ["check", "explicit.json"],
        ["graph", "note-mlp"],
        ["graph", "deep-mlp:n=20,hidden=1000,layers=20,batch=16"],
        ["graph", "chain:length=1000"],
        ["machines"],
        ["machines", "mine.toml"],
        ["workloads"],
    ],
)
def test_everything_fits_80_columns(cli, tmp_path, arguments):
    note_plan(tmp_path, "standard")
    roomy = Machine(
        "a machine with a long name", "float32", (Level("x" * 30, 1e9, 0.123456789, 10**9), Level("y", 1, 1))
    )
    moves = [("copy", name, "y", "x" * 30) for name in ("W1", "b1", "W2", "b2", "x", "y")]
    moves += [("compute", name) for name in note_order("standard")]
    Plan(note_mlp(), roomy, moves, steady=False).save(tmp_path / "explicit.json")
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\nunit = "byte"\n[[level]]\nname = "the one and only level"\nread = 1\nwrite = 1e20\n'
    )
    status, out, err = cli(*arguments)
    assert status == 0
    assert out
    assert max(len(line) for line in (out + err).splitlines()) <= 80


@pytest.mark.parametrize(
    "arguments", [["check", "standard.json"], ["graph", "note-mlp", "-o", "g.svg"], ["machines"], ["workloads"]]
)
def test_json_is_one_object_alone_on_stdout(cli, tmp_path, arguments):
    note_plan(tmp_path, "standard")
    status, out, _ = cli(*arguments, "--json")
    assert status == 0
    assert out.count("\n") == 1
    assert isinstance(json.loads(out), dict)


def test_help_is_quick_to_import():
    program = (
        "import sys; sys.argv = ['pebbler', '--help']\n"
        "from pebbler.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'numba', 'numpy', 'matplotlib', 'ortools', 'networkx'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "check" in done.stdout
    assert done.stderr.strip() == "[]"


# Wrong input ----------------------------------------------------------------------------------------------------------------

GRAPH = json.loads(mlp(n=2, hidden=2).to_json())


def graph_with(**more) -> bytes:
    return json.dumps(GRAPH | more).encode()


def tensor_with(**more) -> bytes:
    return graph_with(tensors=[GRAPH["tensors"][0] | more, *GRAPH["tensors"][1:]])


def op_with(**more) -> bytes:
    return graph_with(ops=[GRAPH["ops"][0] | more, *GRAPH["ops"][1:]])


WRONG_GRAPHS = {
    "empty": (b"", "empty; expected JSON"),
    "truncated": (graph_with()[:-40], "truncated: the JSON ends in the middle"),
    "truncated-and-wrong": (tensor_with(kind="weight")[:-40], "truncated: the JSON ends in the middle"),
    "garbage": (bytes(range(256)) * 4, "binary data; expected JSON"),
    "not-utf-8": (b'{"format": "\xff\xfe"}', "JSON|UTF-8|Invalid"),
    "a-list": (b"[1, 2]", "expected an object, got a list"),
    "another-format": (graph_with(format="onnx"), "format: onnx is not one of pebbler-graph-1"),
    "unknown-field": (graph_with(colour="red"), "unknown field `colour`"),
    "unknown-field-of-an-op": (op_with(read=["x"]), "ops[0]: Object contains unknown field `read`"),
    "field-with-a-newline": (op_with(**{"two\nlines\x1b[31m": 1}), "unknown field `two\\nlines\\x1b[31m`"),
    "size-of-the-wrong-type": (tensor_with(size="four"), "tensors[0].size: expected a whole number, got text"),
    "negative-size": (tensor_with(size=-4), "tensors[0].size: expected a whole number >= 0"),
    "broken-size": (tensor_with(size=2.5), "tensors[0].size: expected a whole number, got a number"),
    "huge-size": (tensor_with(size=10**30), "tensors[0].size: "),
    "unknown-kind": (tensor_with(kind="weight"), "tensors[0].kind: weight is not one of input, output, param, temp"),
    "wrong-axes": (tensor_with(axes=[["n", 3]]), "tensors[0] (W1): axes multiply to 3, but size is 4"),
    "duplicate-tensor": (tensor_with(name="b1"), "tensors[1] (b1): the name is taken by tensors[0]"),
    "duplicate-op": (op_with(name="fwd_relu"), "ops[1] (fwd_relu): the name is taken by ops[0]"),
    "undeclared": (op_with(reads=["W9"]), "ops[0] (fwd_linear1): reads W9, which no tensor declares (known: W1, W2"),
    "read-before-write": (op_with(reads=["dh"]), "ops[0] (fwd_linear1): reads dh before any op writes it"),
    "cycle": (tensor_with(overwrites="W1"), "tensors[0] (W1): overwrites itself"),
    "infinite-cost": (
        op_with().replace(b'"name": "fwd_linear1"', b'"cost": 1e999, "name": "fwd_linear1"'),
        "ops[0].cost: ",
    ),
    "nan-cost": (op_with(cost=float("nan")), "not valid JSON"),
    "half-a-surrogate": (op_with(name="\ud800"), "JSON"),
    "deep": (graph_with().replace(b'"meta": {', b'"meta": {"a": ' + b"[" * 200_000, 1), "not valid JSON"),
}


@pytest.mark.parametrize("what", WRONG_GRAPHS)
def test_wrong_graph_files(cli, tmp_path, what):
    data, message = WRONG_GRAPHS[what]
    (tmp_path / "g.json").write_bytes(data)
    said = wrong(cli, "graph", "g.json")
    assert "g.json" in said
    assert any(part in said for part in message.split("|"))


def plan_with(**more) -> bytes:
    plan = Plan.in_order(chain(1), machine("red-blue"), start={"N0": "fast"})
    return json.dumps(json.loads(plan.to_json()) | more).encode()


RED_BLUE = json.loads(plan_with())["machine"]
WRONG_PLANS = {
    "truncated": (plan_with()[:-30], "truncated: the JSON ends in the middle"),
    "a-graph": (graph_with(), "p.json"),
    "wrong-graph": (plan_with(graph=json.loads(op_with(reads=["W9"]))), "graph: ops[0] (fwd_linear1): reads W9"),
    "unit-mismatch": (plan_with(graph=GRAPH), "the graph is in float32, machine red-blue in pebble"),
    "capacity-0": (
        plan_with(machine=RED_BLUE | {"level": [RED_BLUE["level"][0] | {"capacity": 0}, RED_BLUE["level"][1]]}),
        "machine.level[0].capacity: expected a whole number >= 1",
    ),
    "no-levels": (plan_with(machine=RED_BLUE | {"level": []}), "needs at least one level"),
    "unknown-op": (plan_with(moves=[["compute", "c9"]]), "moves[0]: graph chain:length=1 has no op c9"),
    "unknown-tensor": (plan_with(moves=[["drop", "Q", "fast"]]), "moves[0]: graph chain:length=1 has no tensor Q"),
    "unknown-level": (plan_with(moves=[["compute", "c1", "L9"]]), "moves[0]: machine red-blue has no level L9"),
    "short-move": (
        plan_with(moves=[["compute", "c1"], ["copy", "N0"]]),
        'moves[1]: expected ["copy", tensor, from, to]',
    ),
    "empty-move": (plan_with(moves=[[]]), "moves[0]: expected one of"),
    "move-of-numbers": (plan_with(moves=[["compute", 1]]), "moves[0][1]: expected text, got a whole number"),
    "move-of-a-string": (plan_with(moves=["compute"]), "moves[0]: expected a list, got text"),
    "start-of-a-temp": (plan_with(start={"N1": "fast"}), "start: N1 is of kind temp"),
    "start-nowhere": (plan_with(start={"N0": []}), "start: N0 must be in at least one level"),
    "start-unknown-level": (plan_with(start={"N0": "moon"}), "start: machine red-blue has no level moon"),
    "start-on-the-wrong-thing": (plan_with(start=["N0"]), "start: expected an object, got a list"),
    "unknown-status": (plan_with(status="best"), "status: best is not one of bounded, heuristic, optimal"),
}


@pytest.mark.parametrize("what", WRONG_PLANS)
def test_wrong_plan_files(cli, tmp_path, what):
    data, message = WRONG_PLANS[what]
    (tmp_path / "p.json").write_bytes(data)
    said = wrong(cli, "check", "p.json")
    assert "p.json" in said
    assert message in said


ODD = (None, -1, 0, 2**64, 1e308, "", "x", [], {}, [None], True, 0.5, float("nan"), {"a": 1}, ["compute"])


def places(data: object, at: tuple = ()) -> list[tuple]:
    """Return the ways to every part of a JSON value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, part in items for place in places(part, (*at, key)))]


def damaged(text: str, rng: random.Random) -> bytes:
    """Return a file with something in it taken out, put elsewhere, cut off or written over."""
    if rng.random() < 0.2:
        return text.encode()[: rng.randrange(len(text))]
    if rng.random() < 0.1:
        noise = bytearray(text.encode())
        for _ in range(rng.choice((1, 3, 20))):
            noise[rng.randrange(len(noise))] = rng.randrange(256)
        return bytes(noise)
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        *way, last = rng.choice(places(data)[1:])
        inside = data
        for key in way:
            inside = inside[key]
        change = rng.choice(("write", "write", "remove", "double"))
        if change == "remove":
            del inside[last]
        elif change == "double" and isinstance(inside, list):
            inside.insert(last, inside[last])
        else:
            inside[last] = rng.choice(ODD)
    return json.dumps(data).encode()


@pytest.mark.parametrize("cases", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_damaged_plans_are_judged_or_refused(cli, tmp_path, cases):
    rng = random.Random(cases)
    plans = [
        note_plan(tmp_path, "standard"),
        note_plan(tmp_path, "optimal", "notes"),
        *(tmp_path / name for name in ("chain.json", "fused-away.json", "explicit.json")),
    ]
    solve_chain(6, red=3).save(plans[2])
    Plan.in_order(tile(fuse_all(mlp(n=2, hidden=4), ["dW1", "dh"]), "hidden", 2), machine("notes")).save(plans[3])
    program_order_plan(Problem.of(mlp(n=2, hidden=4), machine("notes-explicit"))).save(plans[4])
    texts, plan = [path.read_text() for path in plans], tmp_path / "plan.json"
    seen = Counter()
    for case in range(cases):
        plan.write_bytes(damaged(rng.choice(texts), rng))
        command = rng.choice((["check"], ["check", "--json"], ["check", "--execute"], ["report"]))
        output = ["-o", "page.html"] if command == ["report"] else []
        status, _, err = cli(*command, plan, *output)
        assert status in (0, 1, 2), (case, err)
        assert "Traceback" not in err, (case, err)
        assert status != 2 or err.startswith("error: "), (case, err)
        seen[status] += 1
    assert len(seen) >= 2


def test_no_file_is_written_over_another_or_over_what_is_read(cli, tmp_path):
    note_mlp().save(tmp_path / "graph.json")
    before = (tmp_path / "graph.json").read_bytes()
    given = ["solve", "graph.json", "--machine", "notes-recency"]
    assert "graph.json is what is read" in wrong(cli, *given, "-o", tmp_path / "graph.json")
    assert "page.html is written already" in wrong(cli, *given, "-o", "page.html", "--report", "./page.html")
    (tmp_path / "sizes.csv").write_text("size\n1\n1\n1\n")
    assert "sizes.csv is what is read" in wrong(cli, "chain", "--sizes", "sizes.csv", "-o", "sizes.csv")
    assert (tmp_path / "graph.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.json", "sizes.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["machines"],
        ["machines", "--json"],
        pytest.param(["chain", "--length", "9", "--red", "3"], marks=pytest.mark.slow),
    ],
)
def test_an_answer_that_cannot_be_printed_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pebbler", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "error: the answer could not be printed: No space left on device\n")


def test_a_wrong_time_limit_is_quoted_as_it_was_given(cli):
    assert "got -1" in wrong(cli, "solve", "note-mlp", "--time-limit", "-1", "--report", "page.html")
    assert "got nan" in wrong(cli, "solve", "note-mlp", "--time-limit", "nan")


def test_what_tiling_reads_of_meta_is_checked(cli, tmp_path):
    data = json.loads(note_plan(tmp_path, "standard").read_text())
    part = {"name": "f", "reads": ["x"], "meta": {"kernel": "linear"}}
    for meta in (
        {"parts": 0.5}, {"parts": [[]]}, {"gather": None}, {"gather": []}, {"parts": [{"meta": []}]}, {"adds": ["nothing"]},
        {"adds": 3}, {"accumulates": [1]}, {"inner": []}, {"parts": [part]}, {"parts": [part | {"reads": ["z"]}], "inner": {}},
        {"parts": [], "inner": {}},
    ):  # fmt: skip
        data["graph"]["ops"][0]["meta"] = meta
        (tmp_path / "plan.json").write_text(json.dumps(data))
        assert "plan.json: graph: op fwd_linear1: meta" in wrong(cli, "check", "plan.json", "--execute"), meta
    data["graph"]["ops"][0]["meta"] = {"kernel": "linear", "parts": [part], "inner": {}, "mine": [{}]}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert "its kernel does not fit its tensors" in cli("check", "plan.json", "--execute")[2]


@pytest.mark.parametrize("price", ["nan", "inf", "-inf", "-1"])
def test_wrong_prices(cli, tmp_path, price):
    (tmp_path / "m.toml").write_text(f'name = "m"\nunit = "byte"\n[[level]]\nname = "all"\nread = {price}\nwrite = 1\n')
    assert "m.toml" in wrong(cli, "machines", "m.toml")


def test_files_that_are_none(cli, tmp_path):
    (tmp_path / "folder.json").mkdir()
    assert "folder.json: cannot be read: Is a directory" in wrong(cli, "graph", "folder.json")
    assert "folder.json: cannot be read" in wrong(cli, "check", "folder.json")
    assert "missing.json: cannot be read: No such file" in wrong(cli, "check", "missing.json")
    assert "cannot be read" in wrong(cli, "check", "x" * 2000)
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(200 * 10**6)  # sparse: no disk is used
    assert "big.json: is too large; the limit is 128 MiB (pebbler --limit file=... raises it)" in wrong(
        cli, "graph", "big.json"
    )
    assert "big.json: is too large" in wrong(cli, "check", "big.json")


def test_an_endless_file_is_refused():
    from pebbler.errors import InputError
    from pebbler.files import read_bytes

    with pytest.raises(InputError, match="is too large"):
        read_bytes("/dev/zero", "toml")


def test_unknown_names_list_the_near_ones(cli):
    assert "did you mean mlp" in wrong(cli, "graph", "mpl")
    assert "known: attention, chain, deep-mlp, matmul, mlp, note-mlp" in wrong(cli, "graph", "zzz")
    assert "did you mean" in wrong(cli, "machines", "note")
    assert "known: " in wrong(cli, "machines", "zzz")
    assert "n must be a whole number from 1" in wrong(cli, "graph", "mlp:n=0")


def test_outputs_that_cannot_be_written(cli, tmp_path):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.json").mkdir()
    for target in ("file/g.json", "folder.json", "/proc/nowhere/g.json", "n" * 300 + ".json"):
        assert f"{target}: cannot be written" in wrong(cli, "graph", "note-mlp", "-o", target)
    assert "g.png: a graph is written as .json, .dot or .svg" in wrong(cli, "graph", "note-mlp", "-o", "g.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.json"]
    assert list((tmp_path / "folder.json").iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["solve", "chain:length=3", "-o", "TARGET"],
        ["solve", "chain:length=3", "--report", "TARGET.html"],
        ["solve", "chain:length=3", "--plot", "TARGET.svg"],
        ["chain", "--length", "3", "-o", "TARGET"],
        ["chain", "--length", "3", "--plot", "TARGET.svg"],
        ["trace", "mlp", "-o", "TARGET.npz"],
        ["cache", "trace.npz", "--plot", "TARGET.svg"],
        ["export", "plan.json", "-o", "TARGET.csv"],
        ["reproduce", "ard", "--out", "TARGET"],
        ["torch", "steps:small", "-o", "TARGET"],
    ],
)
def test_outputs_are_tried_before_the_work(cli, tmp_path, monkeypatch, command):
    """The work would fail, or take long; the message is about the path, and nothing is left behind."""
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for suffix in (".html", ".svg", ".npz", ".csv"):
        (tmp_path / f"folder{suffix}").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    for place in ("file/x", *(["folder"] if "--out" not in command else [])):
        said = wrong(cli, *(word.replace("TARGET", place) for word in command))
        assert f"{command[-1].replace('TARGET', place)}" in said
        assert "cannot be written" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_formats_are_tried_before_the_work(cli):
    for command in (["solve", "nothing", "--plot"], ["chain", "--red", "0", "--plot"], ["cache", "none.npz", "--plot"]):
        assert "x.bmp: a plot is written as .png, .svg or .pdf" in wrong(cli, *command, "x.bmp")
    assert "x.pdf: a page is written as .html or .htm" in wrong(cli, "solve", "nothing", "--report", "x.pdf")


def test_an_answer_is_printed_even_if_its_file_cannot_be_written(cli, tmp_path, monkeypatch):
    rename = os.replace

    def fail(aside: str, path: str | Path) -> None:
        if Path(path).name == "plan.json":
            raise OSError(28, "No space left on device")
        rename(aside, path)  # compiled kernels are kept as ever

    monkeypatch.setattr(os, "replace", fail)
    for command in (["solve", "chain:length=3"], ["chain", "--length", "3"]):
        status, out, err = cli(*command, "-o", "plan.json")
        assert (status, err) == (2, "error: plan.json: cannot be written: No space left on device\n")
        assert "7" in out
    assert list(tmp_path.iterdir()) == []


def run_program(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pebbler", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command", [["chain", "--length", "3"], pytest.param(["solve", "chain:length=3"], marks=pytest.mark.slow)]
)
def test_plans_go_through_pipes(command):
    """`python -m pebbler` too."""
    written = run_program(*command, "-o", "-")
    assert written.returncode == 0
    assert "energy" in written.stderr  # the tables make room for the plan
    answer = run_program("check", "-", "--json", given=written.stdout)
    assert json.loads(answer.stdout)["legal"] is True


@pytest.mark.slow
def test_graphs_go_through_pipes():
    graph = run_program("graph", "note-mlp", "-o", "-").stdout
    assert json.loads(run_program("graph", "-", "--json", given=graph).stdout)["ops"] == 15


def test_a_plan_and_an_answer_do_not_go_to_one_place(cli):
    status, _, err = cli("chain", "-o", "-", "--json")
    assert (status, "leave one of them out" in err) == (2, True)


def test_every_file_written_is_named(cli, tmp_path):
    status, _, err = cli("chain", "--length", "6", "--red", "3", "-o", "p.json", "--plot", "c.svg")
    assert (status, err) == (0, "wrote c.svg\nwrote p.json\n")
    cli("trace", "mlp:n=2,hidden=4", "-o", "t.npz")
    status, _, err = cli("cache", "t.npz", "--plot", "m.svg")
    assert (status, err) == (0, "wrote m.svg\n")
    status, _, err = cli("reproduce", "ard", "--out", "notes")
    named = err.replace("wrote", "").replace(",", " ").split()
    assert sorted(named) == sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "notes").rglob("*.*"))


@pytest.mark.parametrize("command", [[], ["solve"], ["check"], ["chain"], ["torch"], ["reproduce"]])
def test_flags_show_no_type(cli, command):
    assert "bool" not in cli(*command, "--help")[1].lower()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("solve ml", "mlp"),
        ("solve mlp --machine red", "red-blue"),
        ("machines notes-r", "notes-recency"),
        ("reproduce ar", "ard"),
        ("trace at", "attention"),
    ],
)
def test_the_shell_completes_names(words, offered):
    line = f"pebbler {words}"
    shell = {"_PEBBLER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run([sys.executable, "-m", "pebbler"], capture_output=True, text=True, env=os.environ | shell)
    assert done.stdout.split() == [offered]


def test_a_copy_on_a_cache_is_an_illegal_plan_not_a_wrong_file(cli, tmp_path):
    plan = Plan(note_mlp(), machine("notes"), [("compute", "fwd_linear1"), ("copy", "W1", "HBM", "L1")])
    plan.save(tmp_path / "p.json")
    status, out, _ = cli("check", "p.json", "--json")
    answer = json.loads(out)
    assert (status, answer["move"]) == (1, 2)
    assert answer["error"] == "move 2: a copy, but under management 'lru' moves are computes only"


NASTY = (
    '"quotes"',
    "two\nlines",
    "<script>alert(1)</script>",
    "名前と形",
    "\u0000\u001b[31mred",
    "[bold]markup[/bold]",
)


def test_names_of_any_letters(cli, tmp_path):
    from pebbler.game.graph import Graph

    graph = Graph(NASTY[1], unit="pebble")
    graph.tensor("x", 1, kind="input")
    for name in NASTY:
        graph.tensor(name, 1, kind="output")
        graph.op(name, reads=["x"], writes=[name])
    graph.save(tmp_path / "g.json")
    roomy = Machine(NASTY[4], "pebble", (Level(NASTY[5], 1, 1, 100), Level(NASTY[1], 2, 2)), operands="any")
    Plan.in_order(graph, roomy).save(tmp_path / "p.json")
    status, out, _ = cli("graph", "g.json", "--hazards")
    assert status == 0
    status, out, _ = cli("check", "p.json")
    assert status == 0
    assert "\x1b" not in out
    assert "名前と形" in out
    assert "'two\\nlines'" in out
    status, out, _ = cli("check", "p.json", "--json")
    assert set(json.loads(out)["ops"]) == set(NASTY)
    Plan.in_order(graph, roomy, NASTY[:1]).save(tmp_path / "short.json")
    status, _, err = cli("check", "short.json")
    assert (status, err) == (1, "illegal: end: 'two\\nlines' has not run\n")


# The documentation ------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_documentation_are_right(cli, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    for kind, command in (("json graph", "graph"), ("toml machine", "machines"), ("json plan", "check")):
        example = text.split(f"```{kind}\n")[1].split("```")[0]
        path = tmp_path / f"example.{kind.split()[0]}"
        path.write_text(example)
        status, out, err = cli(command, path)
        assert (status, err) == (0, "")
        assert out


# Files are whole or not there ---------------------------------------------------------------------------------------------------


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    from pebbler.errors import InputError

    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(InputError, match=r"plan\.json: cannot be written: No space left on device"):
            write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(InputError, match="cannot be written as JSON"):
        write_json(path, {"a": object()})
    assert path.read_text() == "old"
    write_bytes(path, b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_file_of_another_kind_is_named_with_the_command_that_takes_it(cli, tmp_path):
    graph = chain(3)
    graph.save(tmp_path / "graph.json")
    Plan.in_order(graph, machine("red-blue"), start={"N0": "fast"}).save(tmp_path / "plan.json")
    status, out, err = cli("check", tmp_path / "graph.json")
    assert (status, out) == (2, "")
    assert "this file is a graph (pebbler-graph-1), not a plan; pebbler solve, graph and trace take it" in err
    status, out, err = cli("solve", tmp_path / "plan.json")
    assert (status, out) == (2, "")
    assert "this file is a plan (pebbler-plan-1), not a graph; pebbler check, report, export and trace take it" in err


def test_check_says_what_is_proven_and_what_is_only_claimed(cli, tmp_path):
    honest = solve_chain(12, red=4)
    honest.save(tmp_path / "honest.json")
    status, out, err = cli("check", tmp_path / "honest.json")
    assert (status, err) == (0, "")
    assert "proven optimal for the graph as it is: verified by filling the chain's tables again" in out
    replace(honest, bound=honest.energy + 1).save(tmp_path / "boast.json")
    status, out, err = cli("check", tmp_path / "boast.json", "--json")
    answer = json.loads(out)
    assert (status, answer["status"], answer["bound"], answer["verified"]) == (0, "optimal", honest.energy, True)
    assert answer["claimed"]["bound"] == honest.energy + 1
    assert "is above the energy of this very plan" in answer["void"][0]
    assert answer["void"][0] in err
    wide = Plan.in_order(tile(mlp(n=20, hidden=1000), "hidden", 100), machine("notes"), status="optimal")
    energy = check(wide).energy
    replace(wide, energy=energy, bound=energy).save(tmp_path / "wide.json")
    status, out, err = cli("check", tmp_path / "wide.json")
    assert "claimed by the file, not verified: a bound of" in out
    assert "claimed by the file, not verified: that it is optimal" in out
    assert "proven optimal" not in out


def test_an_illegal_plan_has_no_energy(cli, tmp_path):
    status, out, _ = cli("check", note_plan(tmp_path, "fused"), "--json")
    answer = json.loads(out)
    assert (status, answer["legal"], answer["energy"], answer["levels"]) == (1, False, None, {})
    status, out, _ = cli("report", tmp_path / "fused.json", "-o", tmp_path / "r.html", "--json")
    assert json.loads(out)["plans"][0]["energy"] is None


def test_a_report_is_a_page_and_nothing_else(cli, tmp_path):
    status, _, err = cli("report", tmp_path / "there-is-no-such-plan.json", "-o", tmp_path / "x.pdf")
    assert status == 2
    assert "x.pdf: a report is a page, and is written as .html" in err


def test_a_terminal_without_micro_gets_u(monkeypatch):
    from pebbler.cli import output

    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output.say(output.energy(10_764_315, "pJ"))
    output.table("in µJ", ["energy"], [["1 µJ"]])
    stream.flush()
    text = stream.buffer.getvalue().decode()
    assert "10.764 uJ" in text
    assert "in uJ" in text


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ("--time-limit 30", 30),
        ("--time-limit 30 --report page.html", 27),
        ("--time-limit 30 --plot steps.png", 29),
        ("--time-limit 30 --report page.html --plot steps.png", 26),
        ("--time-limit 30 --compare", 15),
        ("--time-limit 30 --compare --report page.html", 13.5),
        ("--time-limit 2 --report page.html", 1),
        ("--time-limit 0 --report page.html", 0),
    ],
)
def test_the_time_limit_is_for_pages_and_plots_too(cli, monkeypatch, options, seconds):
    given = []

    def stop(*_: object, time_limit: float, **__: object) -> None:
        given.append(time_limit)
        raise Impossible("enough")

    monkeypatch.setattr("pebbler.solver.new_search", stop)
    assert cli("solve", "note-mlp", *options.split())[0] == 1
    assert given == [seconds]


def test_the_least_memory_is_over_tilings_in_the_machines_unit_with_a_plan(cli, tmp_path):
    plan = tmp_path / "plan.json"
    options = ("--machine", "cortex-m", "--least-capacity", "--time-limit", "2")
    status, out, _ = cli("solve", "mlp:n=3,hidden=4", *options, "-o", plan)
    assert status == 0
    assert "found: a plan with 16 bytes of SRAM" in out
    assert "whether less works is open" not in out
    assert "proven for every tiling and fusion: none works with less than 16 bytes" in out
    saved = Plan.load(plan)
    assert saved.machine.level[0].capacity == 4
    assert check(saved).legal
    status, out, _ = cli("solve", "mlp:n=3,hidden=4", *options, "--tile", "none", "--json")
    answer = json.loads(out)
    assert (answer["least"], answer["bound"], answer["unit"], answer["covers"]) == (96, 96, "byte", "graph")
    status, _, err = cli("solve", "mlp:n=3,hidden=4", *options, "--compare")
    assert status == 2
    assert "--least-capacity goes without --compare" in err


def test_the_least_memory_is_over_tilings_without_time_too(cli):
    """A short limit ended in the graph as it is, which needs 160,000 bytes, although a tiling takes a hundredth of a second."""
    options = ("--machine", "cortex-m", "--least-capacity", "--time-limit", "0")
    status, out, _ = cli("solve", "mlp:n=20,hidden=1000", *options)
    assert status == 0
    assert "found: a plan with 20,000 bytes (19.53 KiB) of SRAM, of mlp:n=20,hidden=1000 tiled" in out
    assert "whether less works is open; more time may find such a plan (--time-limit)" in out


def test_solve_and_check_say_which_plans_their_claims_are_for(cli, tmp_path):
    plan = tmp_path / "plan.json"
    for tiles, covers, scope in (("auto", "forms", "every tiling and fusion"), ("none", "graph", "the graph as it is")):
        options = ("--machine", "cortex-m", "--time-limit", "5", "--tile", tiles, "-o", plan)
        assert scope in cli("solve", "mlp:n=4,hidden=64", *options)[1]
        assert json.loads(plan.read_bytes())["proof"]["covers"] == covers
        assert f"proven optimal for {scope}: " in cli("check", plan)[1]


def test_no_number_or_name_is_cut_in_two_on_80_columns(monkeypatch, capsys):
    """`[,ba` and `tch=B]` stood on two lines, and five lines of names after `graph`."""
    from pebbler.cli.output import table

    monkeypatch.setenv("COLUMNS", "80")
    table(
        "", ["name", "size", "words"], [["deep-mlp:n=20,hidden=1000,layers=8[,batch=B]", "1,234,567,890", "long " * 20]]
    )
    printed = capsys.readouterr().out
    assert "deep-mlp:n=20,hidden=1000,layers=8[,batch=B]" in printed
    assert "1,234,567,890" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_help_breaks_lines_where_the_terminal_ends(monkeypatch, capsys):
    """`Ctrl-C, and the best` stood alone on half a line: docstrings brought their own line ends."""
    from pebbler.cli import main

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["pebbler", "solve", "--help"])
    with pytest.raises(SystemExit):
        main()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    at = next(i for i, line in enumerate(lines) if "Exit status 0" in line)
    assert len(lines[at]) > 60
    assert len(lines[at + 1]) > 60


def test_prices_too_large_for_exact_sums_are_refused_with_the_file_that_states_them(cli, tmp_path):
    costs, dear = tmp_path / "costs.csv", tmp_path / "dear.toml"
    costs.write_text("node,forward,backward,store,load\n0,0,1e30,10,10\n1,1,1.5,10,10\n")
    assert f"{costs}: the plan costs 1.0e+30 or more" in wrong(cli, "chain", "--costs", costs, "--red", 3)
    levels = (
        '[{name = "fast", capacity = 11, read = 0, write = 0}, {name = "slow", read = 1, write = 4611686018427387904}]'
    )
    dear.write_text(
        f'name = "dear"\nunit = "pebble"\nmanagement = "explicit"\noperands = "fastest"\nlevel = {levels}\n'
    )
    said = wrong(cli, "solve", "chain:length=20", "--machine", dear, "--time-limit", 0)
    assert f"chain:length=20 on {dear}: the plan costs " in said
