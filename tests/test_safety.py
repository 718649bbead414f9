"""What others put into files and folders, and what they may ask of sockets: docs/security.md, point by point."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pebbler as pb
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.plan import Plan
from pebbler.jobs.engine import open_engine
from pebbler.limits import limits
from pebbler.sweeps.curves_page import write_page
from pebbler.sweeps.result_folder import FORMAT, ResultFolder, _digest
from pebbler.sweeps.sweep_table import load_table, write_tables
from pebbler.trace.traces import Trace
from pebbler.workloads import chain, note_mlp
from test_fuzzed_files import LimitedProcess, complaint, torch_files

HOSTILE_NAMES = ("\x1b[2J\x1b]0;owned\x07", "two\nlines", "\x9b31mred", "right\u202eleft", "\x7f\b\b", "\u2028")
KEY = "ab" * 16


@pytest.fixture(scope="module")
def limited():
    process = LimitedProcess()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def _usual_limits():
    yield
    limits.reset()


def refused(cli, *arguments: object) -> str:
    """Run a command that must refuse, and return the one line that it says."""
    status, _, err = cli(*arguments)
    assert (status, err.startswith("error: "), err.count("\n")) == (2, True, 1), err
    return err


# Code ------------------------------------------------------------------------------------------------------------------------


def test_a_local_dask_cluster_has_no_sockets_and_a_folder_of_its_own(monkeypatch, tmp_path):
    psutil = pytest.importorskip("psutil")
    pytest.importorskip("distributed")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    here = psutil.Process()
    before = {connection.fd for connection in here.net_connections("inet")}
    engine = open_engine("dask", workers=2)
    try:
        assert engine.executor.submit(os.getpid).result(timeout=60) == os.getpid()
        assert engine.workers() == 2
        assert {connection.fd for connection in here.net_connections("inet")} <= before
        (folder,) = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        engine.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["evil.py:training", "evil:training", "os:getcwd"])
@pytest.mark.parametrize("more", [["--dry-run"], ["--dry-run", "--json"], []])
def test_a_spec_runs_no_python(cli, tmp_path, name, more):
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('owned').touch()\ndef training(): pass\n")
    (tmp_path / "s.toml").write_text(f'graphs = ["chain:length=3", "{name}"]\n')
    told = refused(cli, "sweep", "s.toml", "-o", "out", *more)
    assert f"s.toml: {name} is Python code" in told
    assert "--allow-code" in told
    with pytest.raises(InputError, match="allow_code=True"):
        pb.sweep.runs("s.toml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.py", "s.toml"]


def test_code_runs_where_it_is_asked_for(cli, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef training(): pass\n")
    (tmp_path / "s.toml").write_text('graphs = "mine.py:training"\n')
    assert "must return (step, args)" in refused(cli, "sweep", "s.toml", "--dry-run", "--allow-code")
    (tmp_path / "ran").unlink()
    assert "must return (step, args)" in refused(cli, "sweep", "mine.py:training", "--dry-run")
    assert (tmp_path / "ran").exists()


# Files -----------------------------------------------------------------------------------------------------------------------


def put_row(folder: Path, key: str, row: dict[str, object], **more: object) -> None:
    """Write a row as whoever can write into the folder can: with a digest that fits."""
    file = {"format": FORMAT, "key": key, "digest": _digest(key, row), "plan": None, "row": row} | more
    path = folder / "rows" / "ab" / f"{KEY}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(file))


GOOD_ROW = {
    "key": KEY,
    "run": "cd" * 16,
    "graph": "chain",
    "machine": "red-blue",
    "status": "optimal",
    "energy": 3,
    "pebbler": "1",
    "versions": "",
    "finished": "",
    "capacity": 3,
    "family": "ef" * 16,
    "capacities": "fast=3",
}


def test_keys_are_hashes_and_those_of_their_files(tmp_path):
    folder = ResultFolder(tmp_path / "sweep")
    put_row(folder.path, KEY, GOOD_ROW)
    assert [row["key"] for row in load_table(folder.path).rows] == [KEY]
    away = "ab/../../../../x"
    for key, row in (
        (KEY, GOOD_ROW | {"key": away}),
        (away, GOOD_ROW | {"key": away}),
        (KEY, GOOD_ROW | {"key": "cd" * 16}),
    ):
        put_row(folder.path, key, row)
        write_page(folder, reports=5)
        assert load_table(folder.path).rows == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep"]
    for use in (folder.row_path, folder.plan_path, folder.plan, folder.claim):
        with pytest.raises((InputError, ValueError)):
            use(away)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("graph", None),
        ("graph", 7),
        ("machine", ["m"]),
        ("capacity", "3"),
        ("capacity", 10**30),
        ("energy", "low"),
        ("energy", [1]),
        ("gap", {}),
        ("run", 5),
        ("run", None),
        ("status", "fine"),
        ("versions", 3),
        ("finished", None),
        ("energy_unit", 4),
        ("family", []),
        ("cut_off", "yes"),
        ("surprise", 1),
        ("graph_n", "x"),
        ("graph_n", 10**30),
        ("seed", 1.5),
        ("key", 3),
    ],
)
def test_a_row_of_other_columns_or_types_is_no_row(cli, tmp_path, column, value):
    folder = tmp_path / "sweep"
    put_row(folder, KEY, GOOD_ROW | {column: value})
    assert load_table(folder).rows == []
    assert len(write_tables(ResultFolder(folder))) >= 2
    assert cli("sweep", "chain:length=3", "--dry-run", "-o", folder)[0] == 0


def test_long_numbers_in_names_are_sorted(tmp_path):
    put_row(tmp_path, KEY, GOOD_ROW | {"graph": "chain:length=" + "9" * 6000})
    assert len(load_table(tmp_path).rows) == 1


def test_a_row_that_is_a_pipe_is_not_waited_for(tmp_path):
    put_row(tmp_path, KEY, GOOD_ROW)
    path = tmp_path / "rows" / "ab" / f"{KEY}.json"
    path.unlink()
    os.mkfifo(path)
    assert ResultFolder(tmp_path).done() == set()


def test_a_spec_reads_no_pipe_and_not_the_standard_input(cli, tmp_path):
    os.mkfifo(tmp_path / "g.json")
    os.mkfifo(tmp_path / "m.toml")
    for text in ('graphs = "g.json"', 'graphs = "*.json"', 'graphs = "-"', 'graphs = "chain"\nmachines = "m.toml"'):
        (tmp_path / "s.toml").write_text(text)
        assert "s.toml: " in refused(cli, "sweep", "s.toml", "--dry-run")


def test_claims_that_are_a_folder_or_a_link(cli, tmp_path):
    (tmp_path / "out" / "claims").mkdir(parents=True)
    assert "out/claims: cannot be written: Is a directory" in refused(
        cli, "sweep", "chain:length=3", "-o", "out", "--workers", "1"
    )
    (tmp_path / "out" / "claims").rmdir()
    (tmp_path / "out" / "claims").symlink_to(tmp_path / "elsewhere")
    assert "out/claims: cannot be written" in refused(cli, "sweep", "chain:length=3", "-o", "out", "--workers", "1")
    assert not (tmp_path / "elsewhere").exists()


def test_no_command_writes_over_what_it_reads(cli, tmp_path):
    Plan.in_order(chain(3), machine("red-blue"), start={"N0": "fast"}).save(tmp_path / "p.json")
    chain(3).save(tmp_path / "g.json")
    Plan.in_order(chain(3), machine("red-blue"), start={"N0": "fast"}).save(tmp_path / "p.html")
    (tmp_path / "link.json").symlink_to("p.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for arguments in (
        ["export", "p.json", "-o", "p.json"],
        ["export", "p.json", "--ir", "p.json"],
        ["export", "p.json", "-o", "link.json"],
        ["export", "p.json", "-o", "x.json", "--ir", "x.json"],
        ["report", "p.json", "p.html", "-o", "p.html"],
        ["graph", "g.json", "-o", "g.json"],
        ["solve", "g.json", "-o", "g.json"],
        ["play", "g.json", "-o", "g.json"],
    ):
        assert "name another file" in refused(cli, *arguments)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


FORMULAS = ("=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1")


def test_formulas_in_tables_are_text(cli, tmp_path):
    graph = Graph("g", unit="pebble").tensor("x", 1, "input")
    for name in FORMULAS:
        graph.tensor(name, 1).op(name, ["x"], [name], cost=1)
    Plan.in_order(graph, Machine("m", "pebble", (Level("=1", 1, 1),), operands="any")).save(tmp_path / "p.json")
    for table in ("moves", "tensors", "ops", "levels"):
        assert cli("export", "p.json", "-o", "t.csv", "--table", table)[0] == 0
        text = (tmp_path / "t.csv").read_bytes().decode()
        assert "'=" in text
        assert not re.search(r'(^|,)"?[=+@\t\r]', text, re.M)
        assert not re.search(r'(^|,)"?-[^0-9]', text, re.M)
    put_row(
        tmp_path, KEY, GOOD_ROW | {"graph": "=1+1", "machine": "@x", "error": "-1+1|x", "energy": -3, "graph_=n": 4}
    )
    text = load_table(tmp_path).to_csv().decode()
    assert "\n'=1+1," in text
    assert ",'@x," in text
    assert ",'-1+1|x," in text
    assert ",-3," in text


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_the_terminal_shows_names_and_does_not_obey_them(cli, tmp_path, name):
    graph = Graph(name, unit="float32").tensor(name, 4, "param").tensor("d", 4)
    graph.op(name, [name], ["d"], 1).op("upd", [name, "d"], [name], 1)
    graph.save(tmp_path / "g.json")
    on = Machine(name, "float32", (Level(name, 1, 1, 64), Level(f"{name}2", 2, 2)), operands="any", about=name)
    (tmp_path / "m.toml").write_text(
        f"name = {json.dumps(name)}\nunit = 'float32'\noperands = 'any'\nlevel = [{{name = {json.dumps(name)}, capacity = 64, "
        f"read = 1, write = 1}}, {{name = 'slow', read = 2, write = 2}}]\n"
    )
    Plan.in_order(graph, on, energy=1, bound=9, status="optimal", proof=name).save(tmp_path / "p.json")
    Plan(graph, on, [("compute", "upd")]).save(tmp_path / "illegal.json")
    addresses = np.arange(4)
    Trace(addresses, addresses > 1, addresses % 2, addresses % 2, (name, "x"), (name, "y")).save(tmp_path / "t.npz")
    (tmp_path / "p.ir").write_text(f"1,2\nmul {name}\n1\n")
    (tmp_path / "s.toml").write_text(f"graphs = [{json.dumps(name)}]\n")
    for arguments in (
        ["graph", "g.json", "--hazards"],
        ["solve", "g.json", "--machine", "m.toml", "--time-limit", "0"],
        ["check", "p.json"],
        ["check", "p.json", "--json"],
        ["check", "illegal.json"],
        ["report", "p.json", "illegal.json"],
        ["report", "p.json", "--json"],
        ["export", "p.json", "-o", "t.csv"],
        ["trace", "g.json", "-o", "t2.npz"],
        ["cache", "t.npz"],
        ["cache", "t.npz", "--json"],
        ["machines", "m.toml"],
        ["machines", "m.toml", "--json"],
        ["check", "p.ir"],
        ["sweep", "s.toml", "--dry-run"],
        ["sweep", "g.json", "--machine", "m.toml", "--dry-run"],
        ["sweep", "g.json", "--machine", "m.toml", "--dry-run", "--json"],
        ["solve", f"{name}.json"],
        ["graph", name],
        ["check", "p.json", "-o"],
        ["solve", "g.json", "--machine", f"{name}.toml"],
    ):
        _, out, err = cli(*arguments)
        assert all(c.isprintable() for c in (out + err).replace("\n", "")), (arguments, out, err)
        if "--json" in arguments:
            json.loads(out)


def test_failed_runs_of_a_sweep_are_told_escaped(cli, tmp_path):
    (run,) = pb.sweep.runs("chain:length=3")
    bad = {"graph": "\x1b[2J", "machine": "m\nn", "status": "failed", "error": "\x9bx", "energy_unit": "\x1b]"}
    ResultFolder(tmp_path / "o").put(run.key, GOOD_ROW | bad | {"key": run.key, "run": run.run}, None)
    status, out, err = cli("sweep", "chain:length=3", "-o", "o", "--reports", "0")
    assert status == 1
    assert r"failed: \x1b[2J on m\nn: \x9bx" in out
    assert all(c.isprintable() for c in (out + err).replace("\n", ""))


# Small files that would eat the machine --------------------------------------------------------------------------------------


def npz_bomb(path: Path, count: int) -> None:
    """Write a trace of so many accesses, all the same, compressed."""
    dtypes = {"address": "<i8", "write": "|b1", "tensor": "<i4", "op": "<i4"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for key, dtype in dtypes.items():
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(
                    member, {"descr": dtype, "fortran_order": False, "shape": (count,)}
                )
                for _ in range(count // 10**6):
                    member.write(bytes(10**6 * np.dtype(dtype).itemsize))
        for key in ("tensor_names", "op_names"):
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array(member, np.array(["x"]))


def says_shape(path: Path, shape: str, key: str = "address", descr: str = "<i8") -> None:
    """Write a trace, one of whose columns says another shape."""
    columns = Trace.of_addresses([1, 2, 1]).columns()._asdict()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in columns.items():
            if values is None:
                continue
            with archive.open(f"{name}.npy", "w") as member:
                if name != key:
                    np.lib.format.write_array(member, np.array(values))
                    continue
                header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
                member.write(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(170 * 10**6))


def many_sizes_program() -> str:
    """Return a program whose numbers of inputs and outputs fit many products, none of which it computes."""
    outputs, inputs = 5040, 61776  # 16 pairs of sizes
    body = "".join("mul 1,1,1\nsub 1,1,1\nadd 1,2\n" for _ in range(9_000))
    return f"{','.join(map(str, range(1, inputs + 1)))}\n{body}{','.join(['2'] * outputs)}\n"


def holes(path: Path, size: int, head: bytes = b"", tail: bytes = b"") -> None:
    """Write a file that says it is long and takes no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.seek(size)
        file.write(tail or b"\0")


def sparse_npy(path: Path) -> None:
    count = 6 * 10**8
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (count,)})
        file.truncate(file.tell() + 8 * count)


def spec_of(path: Path, text: str) -> None:
    path.write_text(text)


SMALL_FILES = {
    "npz-bomb": (lambda folder: npz_bomb(folder / "f.npz", 20 * 10**6), "cache f.npz", "--limit unpacked="),
    "npz-shape": (lambda folder: says_shape(folder / "f.npz", "(-1,)"), "cache f.npz", "expected one dimension"),
    "npz-names": (
        lambda folder: says_shape(folder / "f.npz", "(-1,)", "op_names", "<U1"),
        "cache f.npz",
        "expected one dimension",
    ),
    "npz-many-names": (
        lambda folder: says_shape(folder / "f.npz", "(40000000,)", "op_names", "<U1"),
        "cache f.npz",
        "--limit file=",
    ),
    "npz-header": (lambda folder: says_shape(folder / "f.npz", "(" * 9000), "cache f.npz", "is corrupt"),
    "npz-false-length": (lambda folder: says_shape(folder / "f.npz", f"({10**15},)"), "cache f.npz", "but address has"),
    "npy-holes": (lambda folder: sparse_npy(folder / "f.npy"), "cache f.npy", "--limit unpacked="),
    "npy-long-header": (
        lambda folder: holes(folder / "f.npy", 2**32, b"\x93NUMPY\2\0\xff\xff\xff\xff"),
        "cache f.npy",
        "a header of 4,294,967,295 bytes",
    ),
    "text-without-lines": (lambda folder: holes(folder / "f.txt", 5 * 2**30), "cache f.txt", "--limit line="),
    "json-holes": (lambda folder: holes(folder / "f.json", 5 * 2**30), "graph f.json", "--limit file="),
    "toml-key": (
        lambda folder: spec_of(folder / "f.toml", "a." * 500_000 + "a = 1\n"),
        "machines f.toml",
        "line 1: a key of more than 16",
    ),
    "toml-quoted-key": (
        lambda folder: spec_of(folder / "f.toml", "x = 1\n[ " + '"a" . ' * 100_000 + "a]\n"),
        "machines f.toml",
        "line 2: a key",
    ),
    "toml-inline-key": (
        lambda folder: spec_of(folder / "f.toml", "x = {y = 1, " + "a." * 400_000 + "a = 1}\n"),
        "machines f.toml",
        "a key of",
    ),
    "toml-depth": (
        lambda folder: spec_of(folder / "f.toml", "x = " + "[" * 200_000 + "]" * 200_000),
        "machines f.toml",
        "not valid TOML",
    ),
    "toml-digits": (
        lambda folder: spec_of(folder / "f.toml", f"line = {'9' * 5000}\n"),
        "machines f.toml",
        "not valid TOML",
    ),
    "program-sizes": (lambda folder: spec_of(folder / "f.ir", many_sizes_program()), "check f.ir", "wrong: f.ir: line"),
    "program-twice": (
        lambda folder: spec_of(folder / "f.ir", ",".join(map(str, range(1, 100_000))) + ",99999\n1\n"),
        "check f.ir",
        "99999 is there twice",
    ),
    "program-length": (
        lambda folder: spec_of(folder / "f.ir", "1,2\n" + "mul 1,1,1\n" * 2_000_000 + "1\n"),
        "check f.ir",
        "--limit program=",
    ),
    "sweep-runs": (
        lambda folder: spec_of(
            folder / "f.toml",
            'graphs = {workload = "mlp", n = "1..9000", hidden = "1..9000"}\nmachines = "notes-explicit"\nseed = [1, 2]\n'
            'capacity = {fastest = "1..1000"}\n',
        ),
        "sweep f.toml --dry-run",
        "this sweep has 162,000,000,000 runs; the limit is 1,000,000 (pebbler --limit runs=",
    ),
    "sweep-values": (
        lambda folder: spec_of(
            folder / "f.toml", 'graphs = "chain"\ncapacity = {fast = [' + '"1..9999",' * 50_000 + '"1..9999"]}\n'
        ),
        "sweep f.toml --dry-run --json",
        "--limit runs=",
    ),
    "sweep-many-values": (
        lambda folder: spec_of(
            folder / "f.toml",
            'graphs = "chain"\ncapacity = {fast = ['
            + ",".join(f'"{i}0000..{i}9999"' for i in range(1, 30_000))
            + "]}\n",
        ),
        "sweep f.toml --dry-run",
        "--limit runs=",
    ),
    "sweep-long-chain": (
        lambda folder: spec_of(folder / "f.toml", 'graphs = "chain:length=1000000"\n'),
        "sweep f.toml --dry-run",
        "--limit layers=",
    ),
    "sweep-long-chains": (
        lambda folder: spec_of(
            folder / "f.toml",
            'graphs = "chain:length=20000"\nseed = "0..9999"\n'.replace('"0..9999"', str(list(range(9999)))),
        ),
        "sweep f.toml --dry-run",
        "--limit graphs=",
    ),
    "sweep-all-files": (
        lambda folder: spec_of(folder / "f.toml", 'graphs = "../../../**/*.json"\n'),
        "sweep f.toml --dry-run",
        "stands for names",
    ),
}


@pytest.mark.parametrize("name", SMALL_FILES)
def test_small_files_take_little(name, limited, tmp_path):
    make, command, message = SMALL_FILES[name]
    make(tmp_path)
    words = ["cli", *command.split()]
    found = limited.ask(words, tmp_path)
    assert found["status"] == (1 if "wrong: " in message else 2), found
    assert message in str(found["err"])
    assert complaint([*words, f"./{command.split()[1]}"], found) is None


def test_limits_are_set_by_an_option(cli, tmp_path):
    (tmp_path / "t.csv").write_text("123\n" * 10)
    Trace.of_addresses(range(1000)).save(tmp_path / "t.npz")
    chain(9).save(tmp_path / "g.json")
    for limit, arguments in (
        ("file=1KB", ["graph", "g.json"]),
        ("line=3", ["cache", "t.csv"]),
        ("runs=4", ["sweep", "chain:length=1..5", "--dry-run"]),
        ("toml=10", ["machines", "m.toml"]),
        ("program=3", ["check", "p.ir"]),
    ):
        (tmp_path / "m.toml").write_text('name = "m"\nunit = "byte"\nlevel = [{name = "all", read = 1, write = 1}]\n')
        (tmp_path / "p.ir").write_text("1,2\nmul 1,2\n1\n")
        assert f"--limit {limit.partition('=')[0]}=... raises it" in refused(cli, "--limit", limit, *arguments)
        assert cli(*arguments)[0] == 0
    assert "no limit fil (did you mean file?)" in refused(cli, "--limit", "fil=3", "workloads")
    for wrong in ("file", "file=", "file=x", "file=10%", "file=1,2", "=3"):
        assert "--limit" in refused(cli, "--limit", wrong, "workloads") or "no limit" in refused(
            cli, "--limit", wrong, "workloads"
        )


def test_a_raised_limit_lets_a_compressed_trace_through(cli, tmp_path):
    npz_bomb(tmp_path / "t.npz", 2 * 10**6)
    assert cli("cache", "t.npz", "--json", "--no-opt")[0] == 0
    assert "its columns take 32 MiB" in refused(cli, "--limit", "unpacked=1MiB", "cache", "t.npz")
    assert cli("--limit", "unpacked=40MiB", "cache", "t.npz", "--json", "--no-opt")[0] == 0


# A message where a traceback was ----------------------------------------------------------------------------------------------


def test_prices_beyond_exact_doubles_have_a_page_or_are_refused(cli, tmp_path):
    for price in (2.0**53, 2.0**60, 1e25, 1e30):
        for least in (0.3, price / 2):  # with all prices whole, sums are exact or refused
            levels = (Level("fast", least, price, 30_000), Level("slow", price, price))
            for management in ("explicit", "lru"):
                on = Machine("m", "float32", levels, management=management, operands="any")  # type: ignore[arg-type]
                Plan.in_order(note_mlp(), on).save(tmp_path / "p.json")
                if least == 0.3:
                    assert cli("report", "p.json", "-o", "r.html")[0] == 0
                else:
                    assert "exact below 2**53" in refused(cli, "report", "p.json", "-o", "r.html")


@pytest.mark.parametrize("count", [2, 300, 3000])
def test_axes_beyond_all_sizes(cli, tmp_path, count):
    file = json.loads(chain(2).to_json())
    file["tensors"][0]["axes"] = [[f"a{i}", 2**48] for i in range(count)]
    (tmp_path / "g.json").write_text(json.dumps(file))
    assert "axes multiply to more than 281,474,976,710,656, but size is 1" in refused(cli, "graph", "g.json")


def test_lines_beyond_all_machines(cli, tmp_path):
    text = (
        'name = "m"\nunit = "float32"\nmanagement = "lru"\nline = {}\nlevel = [{{name = "l", capacity = 4, read = 1, '
    )
    text += 'write = 1}}, {{name = "s", read = 2, write = 2}}]\n'
    (tmp_path / "t.csv").write_text("1\n2\n")
    for line in (10**30, 2**63, 2**57):
        (tmp_path / "m.toml").write_text(text.format(line))
        for arguments in (
            ["machines", "m.toml"],
            ["cache", "t.csv", "--machine", "m.toml"],
            ["solve", "note-mlp", "--machine", "m.toml"],
        ):
            assert "m.toml" in refused(cli, *arguments)
    (tmp_path / "m.toml").write_text(text.format(2**56))
    assert cli("cache", "t.csv", "--machine", "m.toml")[0] == 0
    assert "exact below 2**53" in refused(cli, "solve", "note-mlp", "--machine", "m.toml", "--time-limit", "0")
    assert "line must be" in refused(cli, "cache", "t.csv", "--line", 10**30)


def test_names_that_stdout_has_no_letters_for(tmp_path):
    graph = Graph("é€😀", unit="pebble").tensor("ü", 1, "input").op("œ", ["ü"], [])
    graph.save(tmp_path / "né.json")
    Plan.in_order(graph, machine("red-blue"), start={"ü": "fast"}).save(tmp_path / "plan.json")
    program = (
        "import sys; from pebbler.cli import main\n"
        "for words in sys.argv[1].split(';'):\n"
        "    sys.argv = ['pebbler', *words.split()]\n"
        "    try:\n        main()\n"
        "    except SystemExit as error:\n        assert not error.code, (words, error.code)\n"
    )
    commands = (
        "graph né.json --hazards;graph né.json --json;check plan.json;check plan.json --json;solve né.json --time-limit 0;"
        "solve né.json --time-limit 0 --json;graph né.json -o -;export plan.json -o œ.csv --json;report plan.json -o ü.html;"
        "--help;solve --help"
    )
    for encoding in ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1"}):
        done = subprocess.run(
            [sys.executable, "-c", program, commands],
            cwd=tmp_path,
            env=os.environ | encoding,
            capture_output=True,
            timeout=120,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode(errors="replace")
        objects = [
            json.loads(line) for line in done.stdout.decode("latin-1").splitlines() if line.startswith('{"graph"')
        ]
        assert all(one.get("graph", "é€😀") == "é€😀" for one in objects)


def test_names_of_files_that_are_no_text(cli, tmp_path):
    name = os.fsdecode(b"pl\xffan\x1b")
    Plan.in_order(chain(2), machine("red-blue"), start={"N0": "fast"}).save(tmp_path / f"{name}.json")
    chain(2).save(tmp_path / f"g{name}.json")
    Trace.of_addresses([1, 2, 1]).save(tmp_path / f"{name}.npz")
    shown = r"pl\udcffan\x1b"
    for arguments in (
        ["check", f"{name}.json"],
        ["report", f"{name}.json", "-o", f"{name}.html"],
        ["report", f"{name}.json", "-o", f"{name}.html", "--json"],
        ["export", f"{name}.json", "-o", f"{name}.csv", "--json"],
        ["export", f"{name}.json", "-o", f"t{name}.json"],
        ["graph", f"g{name}.json", "-o", f"{name}.svg"],
        ["trace", f"{name}.json", "-o", f"t{name}.npz", "--json"],
        ["cache", f"{name}.npz"],
        ["cache", f"{name}.npz", "--plot", f"{name}.svg"],
        ["solve", f"g{name}.json", "-o", f"o{name}.json", "--report", f"o{name}.html"],
        ["sweep", f"g{name}.json", "--dry-run", "-o", name, "--json"],
        ["play", f"g{name}.json", "-o", f"play{name}.html"],
        ["sweep", "chain:length=3", "-o", name, "--workers", "1", "--reports", "1", "--json"],
    ):
        status, out, err = cli(*arguments)
        assert (status, "Traceback" in err) == (0, False), (arguments, err)
        assert all(c.isprintable() for c in (out + err).replace("\n", "")), (arguments, out, err)
    assert f"{shown}.json: cannot be read" in refused(cli, "check", f"no{name}.json")
    assert f"{shown}.toml: cannot be read" in refused(cli, "solve", "chain:length=3", "--machine", f"{name}.toml")


def test_names_are_words_and_no_formulas_of_a_plot(cli, tmp_path):
    Graph("$\\frac{x$", unit="pebble").tensor("x", 1, "input").op("f", ["x"], []).save(tmp_path / "g.json")
    assert cli("solve", "g.json", "--plot", "p.svg")[0] == 0
    assert "$\\frac{x$ on red-blue" in (tmp_path / "p.svg").read_text()


def test_a_link_to_itself_is_written_over(cli, tmp_path):
    for name in ("loop.json", "loop.html", "loop.npz"):
        (tmp_path / name).symlink_to(name)
    Plan.in_order(chain(2), machine("red-blue"), start={"N0": "fast"}).save(tmp_path / "p.json")
    assert "loop.json: cannot be read: Too many levels" in refused(cli, "check", "loop.json")
    assert "loop.json: cannot be read" in refused(cli, "solve", "loop.json")
    for arguments in (
        ["solve", "chain:length=3", "-o", "loop.json", "--report", "loop.html"],
        ["trace", "mlp:n=2,hidden=2", "-o", "loop.npz"],
    ):
        assert cli(*arguments)[0] == 0
    assert not any((tmp_path / name).is_symlink() for name in ("loop.json", "loop.html", "loop.npz"))
    (tmp_path / "dir").symlink_to("dir")
    assert "cannot be written" in refused(cli, "solve", "chain:length=3", "-o", "dir/p.json")
    assert "cannot be written" in refused(cli, "sweep", "chain:length=3", "-o", "dir", "--workers", "1")


@pytest.mark.parametrize(
    "launches",
    [
        [[0, 99]],
        [[-1, 0]],
        [[1, 0]],
        [[0]],
        [[]],
        [[0, 2]],
        [[0, 3]],
        [[0, 1], [1, 3]],
        [[0, 0]],
        [[0, 1], [0, 1]],
        [[0, 10**30]],
    ],
)
def test_launches_are_computes_of_the_plan(tmp_path, launches):
    pytest.importorskip("torch")
    from pebbler.run.torch.plan.torch_plan import TorchPlan

    file = json.loads(torch_files(tmp_path)[0])
    (tmp_path / "p.json").write_text(json.dumps(file))
    assert TorchPlan.load(tmp_path / "p.json").launches == ((0, 1),)
    file["meta"]["torch"]["launches"] = launches
    (tmp_path / "p.json").write_text(json.dumps(file))
    with pytest.raises(InputError, match=r"p\.json: meta\.torch"):
        TorchPlan.load(tmp_path / "p.json")
