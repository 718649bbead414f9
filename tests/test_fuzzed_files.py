"""Every reader on damaged and hostile files: an answer, or one clear line and status 2, below 2 GiB and 10 s of CPU."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pebbler as pb
from mutations import damaged, mutated_json, mutated_lines, mutated_toml, toml_text
from pebbler.extras.cells.cell_writer import cell_program
from pebbler.game.machine import Level, Machine, machine, machine_text
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.sweeps.result_folder import FORMAT, ResultFolder, _digest
from pebbler.trace.traces import Trace
from pebbler.workloads import chain, matmul, mlp, note_mlp

MIB = 2**20
MOST_MEMORY, MOST_SECONDS = 2048 * MIB, 10.0
_PATIENCE = 150.0  # seconds of the clock, on a machine that others use too
Mutation = Callable[[bytes, random.Random], bytes]


class LimitedProcess:
    """A process that runs command after command; one that takes too long or too much ends it, and a new one is started."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, words: Sequence[str], folder: Path) -> dict[str, object]:
        """Return the answer of `limited_commands` to a command; what ends the process is an answer too."""
        if self._process is None:
            program = [
                sys.executable,
                str(Path(__file__).with_name("limited_commands.py")),
                str(MOST_MEMORY // MIB + 512),
            ]
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        clock = threading.Timer(_PATIENCE, process.kill)
        clock.start()
        try:
            process.stdin.write(json.dumps([str(folder), *words]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            clock.cancel()
        if line:
            found: dict[str, object] = json.loads(line)
            return found
        self.close()
        return {
            "status": f"its process ended with {process.returncode}",
            "out": "",
            "err": "",
            "seconds": 0.0,
            "peak": 0,
        }

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def limited() -> Iterator[LimitedProcess]:
    process = LimitedProcess()
    yield process
    process.close()


def complaint(words: Sequence[str], found: dict[str, object]) -> str | None:
    """Return what is wrong with how a command ended; None where it answered, or refused in one line that names the file."""
    status, out, err = found["status"], str(found["out"]), str(found["err"])
    if status not in (0, 1, 2):
        return f"status {status}: {err[-1500:]}"
    if "Traceback" in err:
        return f"a traceback: {err[-1500:]}"
    if status == 2 and (not err.startswith("error: ") or err.rstrip("\n").count("\n") > 0):
        return f"not one line: {err[-500:]!r}"
    named = (
        any(Path(word).name in err for word in words if "/" in word) or "they must agree" in err
    )  # a file, or two that differ
    if status == 2 and words[0] == "cli" and not named:
        return f"the file is not named: {err[-500:]}"
    if status != 0 and not err and "--json" not in words:
        return "no message"
    if any(not c.isprintable() for text in (out, err) for c in text.replace("\n", "")):
        return f"control characters on the terminal: {(out + err)[-500:]!r}"
    if float(str(found["seconds"])) > MOST_SECONDS:
        return f"{found['seconds']} s"
    if int(str(found["peak"])) > MOST_MEMORY:
        return f"{int(str(found['peak'])) / MIB:.0f} MiB"
    return None


# Files that are right, and what reads them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """A kind of file: its ending, files of it, how they are changed, and the commands that read it (`FILE` is the file)."""

    suffix: str
    seeds: Callable[[Path], list[bytes]]
    mutations: Sequence[Mutation]
    commands: Sequence[str]
    quick: int = 16
    slow: int = 2000


def graph_files(_: Path) -> list[bytes]:
    return [graph.to_json() for graph in (note_mlp(), chain(4), tile(mlp(n=4, hidden=6), "hidden", 3), matmul(2, 2, 2))]


def plans() -> list[Plan]:
    on_grid = Plan.in_order(matmul(1, 1, 2), machine("grid"))
    tiled = tile(mlp(n=4, hidden=6), "hidden", 3)
    return [
        Plan.in_order(note_mlp(), machine("notes-recency"), energy=1, bound=5, status="optimal", proof="a word"),
        Plan.in_order(tiled, machine("notes"), source=mlp(n=4, hidden=6)),
        pb.solve("chain:length=4", machine("red-blue").resized(0, 3), time_limit=5),
        on_grid,
    ]


def plan_files(_: Path) -> list[bytes]:
    return [plan.to_json() for plan in plans()]


def program_files(_: Path) -> list[bytes]:
    solved = pb.solve("matmul:m=2,n=2,k=2", machine("grid"), time_limit=5, quick=True)
    return [cell_program(solved).text().encode(), b"1,2; mul 1,2; copy 5,1; 5"]


def machine_files(_: Path) -> list[bytes]:
    return [machine_text(name).encode() for name in ("red-blue", "notes", "grid")]


def device_files(_: Path) -> list[bytes]:
    device = {
        "name": "d",
        "kind": "cpu",
        "bandwidth": 1e10,
        "rates": {"float32": {"flops": 1e12, "joules_per_flop": 1e-12}},
        "launch": 1e-6,
        "link": 1e9,
        "idle_watts": [1.0, 2.0],
        "static_watts": 3.0,
        "joules_per_byte": 1e-10,
        "notes": ["x"],
        "row": [{"name": "p", "seconds": 1.0, "watts": 4.0}],
    }
    levels = [{"name": "all", "read": 1, "write": 1}]
    return [toml_text({"name": "m", "unit": "byte", "level": levels, "device": device}).encode()]


TRACE = Trace(
    np.array([0, 1, 2, 0, 1, 7, 2**40]),
    np.array([0, 1, 0, 1, 0, 0, 1], bool),
    np.array([0, 1, 0, 1, 0, 1, 1]),
    np.array([0, 0, 1, 1, 2, 2, 2]),
    ("W", "x"),
    ("f", "g", "h"),
)


def npz_files(folder: Path) -> list[bytes]:
    TRACE.save(folder / "seed.npz")
    packed = io.BytesIO()
    np.savez_compressed(packed, **{key: np.array(value) for key, value in TRACE.columns()._asdict().items()})
    return [(folder / "seed.npz").read_bytes(), packed.getvalue()]


def npy_files(_: Path) -> list[bytes]:
    file = io.BytesIO()
    np.save(file, TRACE.address)
    return [file.getvalue()]


def mutated_npz(data: bytes, rng: random.Random) -> bytes:
    """Return an archive whose members are changed one by one, and whose checksums are right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(sorted(members))
        members[name] = rng.choice((damaged, mutated_npy))(members[name], rng)
    if rng.random() < 0.1:
        members.pop(rng.choice(sorted(members)))
    if rng.random() < 0.1:
        members[rng.choice(("x.npy", "../x.npy", "\x1b.npy", "address"))] = b""
    file = io.BytesIO()
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(file, "w", rng.choice(kinds)) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def mutated_npy(data: bytes, rng: random.Random) -> bytes:
    """Return an array whose header says something else."""
    words = (
        "<i8",
        "|b1",
        "<i4",
        "<U3",
        "<U1000000",
        "|O",
        ">i8",
        "<f8",
        "<M8[s]",
        "[('a','<i8')]",
        "x",
        "|V0",
        "<u8",
        "|S0",
    )
    shapes = (
        "(7,)",
        "(-1,)",
        "(-8,)",
        "()",
        "(7,1)",
        "(10**12,)",
        f"({2**62},)",
        "(True,)",
        "('7',)",
        "(0,)",
        "7",
        "(8,)",
        "(6.0,)",
    )
    descr = rng.choice(words)
    said = descr if descr.startswith("[") else f"'{descr}'"
    header = (
        f"{{'descr': {said}, 'fortran_order': {rng.choice(('False', 'True', '0'))}, 'shape': {rng.choice(shapes)}, }}"
    )
    if rng.random() < 0.2:
        header = rng.choice(
            (
                "(" * 5000,
                "{" * 200,
                "{'descr'",
                "__import__('os').system('true')",
                "\xff",
                "L" * 9000,
                "[" * 200 + "]" * 200,
            )
        )
    raw = header.encode("latin1") + b"\n"
    version, length = rng.choice(((b"\1\0", "<H"), (b"\2\0", "<I"), (b"\3\0", "<I")))
    size = len(raw) if rng.random() < 0.8 else rng.choice((0, 60_000))
    return b"\x93NUMPY" + version + struct.pack(length, size) + raw + data[128:]


def csv_trace_files(_: Path) -> list[bytes]:
    return [b"address,write,tensor,op\n0,r,W,f\n1,w,x,f\n0x10,0,W,g\n", b"5\n6\n5\n", b"1,1\n2,0\n"]


def chain_files(_: Path) -> list[bytes]:
    rows = "\n".join(f"{i},{1 + i % 3},{i % 4},1.5,10,10" for i in range(8))
    return [f"node,size,forward,backward,store,load\n{rows}\n".encode(), b"size\n1\n2\n1\n"]


def spec_files(folder: Path) -> list[bytes]:
    chain(3).save(folder / "g.json")
    return [
        b'graphs = [{workload = "mlp", n = [10, 20], hidden = ["100..400x2"]}, "note-mlp", "chain:length=3|4", "g.json", '
        b'"*.json"]\n'
        b'machines = ["notes-explicit", "horowitz-45nm"]\ntime_limit = 10\nseed = [0, 1]\n[capacity]\nfastest = ["25%", "64KiB"]\n',
        b'graphs = "chain:length=2..9"\ntile = ["auto", "none"]\n[capacity]\nfast = "3..5"\n',
    ]


def row_files(folder: Path) -> list[bytes]:
    """Rows of a real sweep, for two of its runs; a third is done whatever becomes of these."""
    pb.sweep("chain:length=5", folder / "sweep", capacity={"fast": "3..5"}, time_limit=10, workers=1)
    paths = sorted((folder / "sweep" / "rows").rglob("*.json"))
    wanted = pb.sweep.runs("chain:length=5", capacity={"fast": "3"}, time_limit=10)[0].key
    return [path.read_bytes() for path in paths if path.stem != wanted]


def mutated_row(data: bytes, rng: random.Random) -> bytes:
    """Return a row file with another row in it and the digest that fits, as whoever can write there can make it."""
    file = json.loads(mutated_json(json.dumps(json.loads(data)["row"]).encode(), rng))
    whole = json.loads(data) | {"row": file}
    if not isinstance(file, dict):
        return json.dumps(whole).encode()
    key = file.get("key") if rng.random() < 0.3 else whole["key"]
    try:
        row = msgspec.json.decode(json.dumps(file))
        return json.dumps(whole | {"format": FORMAT, "key": key, "digest": _digest(str(key), row)}).encode()
    except (msgspec.DecodeError, UnicodeEncodeError, TypeError, OverflowError):
        return json.dumps(whole).encode()


def torch_files(_: Path) -> list[bytes]:
    graph = pb.Graph("step", unit="byte").tensor("W", 8, "param").tensor("x", 4, "input").tensor("h", 4).tensor("d", 8)
    graph.op("mm_0", ["W", "x"], ["h"], 3, meta={"part": "forward"}).op("mm_1", ["h", "x"], ["d"], 3).op(
        "add_2", ["W", "d"], ["W"], 1
    )
    on = Machine("cpu", "byte", (Level("memory", 0, 0, 64),), operands="any")
    moves = [("compute", "mm_0"), ("compute", "mm_1"), ("drop", "h", "memory"), ("compute", "add_2")]
    plan = Plan(graph, on, moves, energy=7, bound=7, meta={"cost_unit": "ns"})
    about = {
        "fingerprint": "ab-cd",
        "device": "cpu",
        "budget": 100,
        "headroom": 8,
        "objective": "time",
        "unplanned": 1e-8,
        "kernels": "compiled",
        "overlap": False,
        "launches": [[0, 1]],
        "launch_peak": 40,
        "first": [json.loads(plan.to_json())],
    }
    return [json.dumps(json.loads(plan.to_json()) | {"meta": {"cost_unit": "ns", "torch": about}}).encode()]


def cache_files(_: Path) -> list[bytes]:
    choices = [
        {"saved": [0, 1], "bytes": 40, "cost": 1.0, "peak": 100},
        {"saved": [1], "bytes": 20, "cost": 2.0, "peak": 60},
    ]
    frontier = {"key": "k", "names": ["a", "b", "c"], "choices": choices, "eager": 120, "inputs": 10, "padded": False}
    plan = {
        "format": "pebbler compiled graph 5",
        "key": "file",
        "padding": True,
        "spare": False,
        "level": 0,
        "peak": 90,
        "frontier": frontier,
    }
    return [json.dumps(plan).encode()]


BYTES_AND_JSON = (damaged, mutated_json, mutated_json, mutated_json)
BYTES_AND_TOML = (damaged, mutated_toml, mutated_toml, mutated_toml)
BYTES_AND_LINES = (damaged, mutated_lines)
SWEPT = "sweep chain:length=5 --capacity fast=3 --time-limit 10 --reports 0"
READERS = {
    "graph": Reader(
        ".json",
        graph_files,
        BYTES_AND_JSON,
        (
            "graph FILE",
            "graph FILE --hazards --json",
            "graph FILE -o OUT/g.svg",
            "graph FILE -o OUT/g.dot",
            "trace FILE -o OUT/t.npz",
            "solve FILE --time-limit 0",
            "solve FILE --time-limit 0.3",
            "solve FILE --machine notes-explicit --time-limit 0 --json",
        ),
    ),
    "plan": Reader(
        ".json",
        plan_files,
        BYTES_AND_JSON,
        (
            "check FILE",
            "check FILE --execute --json",
            "export FILE -o OUT/t.json",
            "export FILE -o OUT/t.csv --table tensors",
            "export FILE -o OUT/t.csv",
            "export FILE --ir OUT/p.ir",
            "trace FILE -o OUT/t.npz --json",
            "solve chain:length=4 --resume FILE --time-limit 0",
        ),
    ),
    "report": Reader(
        ".json",
        plan_files,
        BYTES_AND_JSON,
        ("report FILE -o OUT/r.html", "report FILE -o OUT/r.html --json"),
        slow=1000,
    ),
    "machine": Reader(
        ".toml",
        machine_files,
        BYTES_AND_TOML,
        (
            "machines FILE",
            "machines FILE --json",
            "solve chain:length=3 --machine FILE --time-limit 0",
            "solve note-mlp --machine FILE --time-limit 0",
            "cache OUT/t.csv --machine FILE",
            "sweep chain:length=3 --machine FILE --dry-run -o OUT/none",
        ),
    ),
    "trace-npz": Reader(
        ".npz", npz_files, (damaged, mutated_npz, mutated_npz), ("cache FILE", "cache FILE --json --no-opt")
    ),
    "trace-npy": Reader(
        ".npy", npy_files, (damaged, mutated_npy), ("cache FILE", "cache FILE --json --line 3 --machine notes")
    ),
    "trace-text": Reader(
        ".csv", csv_trace_files, BYTES_AND_LINES, ("cache FILE", "cache FILE --json --machine notes --steady")
    ),
    "program": Reader(
        ".ir", program_files, BYTES_AND_LINES, ("check FILE", "check FILE --json", "check FILE --size 2,2,2")
    ),
    "chain": Reader(
        ".csv", chain_files, BYTES_AND_LINES, ("chain --sizes FILE --red 9", "chain --costs FILE --red 9 --json")
    ),
    "spec": Reader(
        ".toml",
        spec_files,
        BYTES_AND_TOML,
        ("sweep FILE --dry-run -o OUT/none", "sweep FILE --dry-run --json -o OUT/none"),
    ),
    "row": Reader(
        ".json",
        row_files,
        (damaged, mutated_row, mutated_row, mutated_row),
        (f"{SWEPT} -o SWEEP", f"{SWEPT} -o SWEEP --json"),
    ),
    "torch-plan": Reader(
        ".json", torch_files, BYTES_AND_JSON, ("torch_plan", "cli report FILE -o OUT/r.html"), slow=1000
    ),
    "plan-cache": Reader(".json", cache_files, BYTES_AND_JSON, ("plan_cache",)),
    "device": Reader(".toml", device_files, BYTES_AND_TOML, ("device", "cli machines FILE")),
}


def attack(name: str, count: int, limited: LimitedProcess, folder: Path, seed: int = 0) -> list[str]:
    """Run commands on so many changed files; return what went wrong, each with the file that did it."""
    reader, out = READERS[name], folder / "out"
    out.mkdir()
    (out / "t.csv").write_text("1\n2\n1\n9\n")
    seeds = reader.seeds(folder)
    wrong: list[str] = []
    for case in range(count):
        rng = random.Random(f"{name} {seed} {case}")
        file = folder / f"file{reader.suffix}"
        data = rng.choice(seeds)
        changed = rng.choice(reader.mutations)(data, rng)
        file.write_bytes(changed)
        text = rng.choice(reader.commands)
        words = [
            word.replace("FILE", str(file)).replace("OUT", str(out)).replace("SWEEP", str(folder / "sweep"))
            for word in text.split()
        ]
        if name == "row":
            key = json.loads(data)["key"]
            file = ResultFolder(folder / "sweep").row_path(key)
            file.write_bytes(changed)
        if text in ("torch_plan", "plan_cache", "device"):
            words = [text, str(file)]
        elif words[0] != "cli":
            words = ["cli", *words]
        found = limited.ask(words, folder)
        if problem := complaint(words, found):
            kept = folder / f"case-{name}-{case}{reader.suffix}"
            kept.write_bytes(changed)
            wrong.append(f"{text} [{case}] {kept}: {problem}")
    assert not list(folder.parent.glob("x*"))
    return wrong


@pytest.mark.parametrize("name", READERS)
def test_changed_files_get_an_answer_or_one_clear_line(name, limited, tmp_path):
    assert attack(name, READERS[name].quick, limited, tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", READERS)
def test_thousands_of_changed_files(name, limited, tmp_path):
    assert attack(name, READERS[name].slow, limited, tmp_path, seed=1) == []
