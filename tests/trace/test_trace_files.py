"""Trace files: written whole, read strictly and in pieces."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pebbler.errors import InputError
from pebbler.trace.traces import UNNAMED, Trace


def small() -> Trace:
    return Trace(
        np.array([0, 1, 2, 3, 16, 16]),
        np.array([False, False, False, False, True, False]),
        np.array([0, 0, 0, 0, 1, 1]),
        np.array([0, 0, 0, 0, 0, 1]),
        ("W1", "h", "unused"),
        ("fwd", "bwd"),
    )


def arrays() -> dict[str, np.ndarray]:
    trace = small()
    keys = ("address", "write", "tensor", "op", "tensor_names", "op_names")
    return {key: np.array(column) for key, column in zip(keys, trace.columns()[:6], strict=True)}


def test_round_trip(tmp_path):
    small().save(tmp_path / "deep" / "t.npz")
    assert Trace.load(tmp_path / "deep" / "t.npz") == small()
    with np.load(tmp_path / "deep" / "t.npz", allow_pickle=False) as found:
        assert {key: str(found[key].dtype) for key in ("address", "write", "tensor", "op")} == {
            "address": "int64",
            "write": "bool",
            "tensor": "int32",
            "op": "int32",
        }
        assert found["tensor_names"].tolist() == ["W1", "h", "unused"]
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["t.npz"]


@pytest.mark.parametrize("unit", [None, 0, 1, 8])
def test_bytes_of_a_unit_are_kept_and_old_files_have_none(tmp_path, unit):
    trace = replace(small(), unit_bytes=unit)
    trace.save(tmp_path / "t.npz")
    assert Trace.load(tmp_path / "t.npz") == trace
    with np.load(tmp_path / "t.npz", allow_pickle=False) as found:
        assert ("unit_bytes" in found) == (unit is not None)


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    small().save(tmp_path / "a.npz")
    Trace.save_chunks(tmp_path / "b.npz", Trace.chunks(tmp_path / "a.npz", 2))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_of_numpy(tmp_path, save):
    save(tmp_path / "t.npz", **arrays())
    assert Trace.load(tmp_path / "t.npz") == small()


@given(st.lists(st.tuples(st.integers(0, 2**62), st.booleans(), st.integers(0, 2)), min_size=1), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_chunks_make_the_whole(tmp_path, accesses, size):
    address, write, index = (np.array(column) for column in zip(*accesses, strict=True))
    trace = Trace(address, write, index, index[::-1], ("a", "b", "c"), ("f", "g", "h"))
    trace.save(tmp_path / "t.npz")
    pieces = list(Trace.chunks(tmp_path / "t.npz", size))
    assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert Trace.joined(pieces) == trace


def test_a_long_file_takes_little_memory(tmp_path):
    piece = Trace.of_addresses(np.arange(100_000))
    Trace.save_chunks(tmp_path / "t.npz", (piece for _ in range(50)))
    tracemalloc.start()
    total = sum(int(chunk.address[0]) + len(chunk) for chunk in Trace.chunks(tmp_path / "t.npz", 100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 5_000_000
    assert peak < 20e6 < (tmp_path / "t.npz").stat().st_size


def npz(tmp_path, **changes):
    content = {key: value for key, value in (arrays() | changes).items() if value is not None}
    np.savez(tmp_path / "t.npz", **content)
    return tmp_path / "t.npz"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": None}, "has no op; a trace holds address, write"),
        ({"opp": np.zeros(1)}, r"unknown key opp \(did you mean op"),
        ({"address": np.zeros(6)}, "address: has dtype float64; expected int64"),
        ({"address": np.zeros(6, np.int32)}, "address: has dtype int32; expected int64"),
        ({"address": np.zeros((6, 1), np.int64)}, r"address: has shape \(6, 1\)"),
        ({"address": np.array([0, 1, 2, 3, -4, 5])}, r"address\[4\] is -4"),
        ({"write": np.zeros(5, bool)}, "write has 5 elements, but address has 6"),
        ({"write": np.zeros(6, np.uint8)}, "write: has dtype uint8; expected bool"),
        ({"tensor": np.array([0, 0, 0, 3, 0, 0], np.int32)}, r"tensor\[3\] is 3; tensor_names has 3 names"),
        ({"op": np.array([0, 0, 0, 0, 0, -1], np.int32)}, r"op\[5\] is -1"),
        ({"op_names": np.array([1, 2])}, "op_names: has dtype int64; expected <U"),
        ({"op_names": np.array(["f", "f"])}, "a second time"),
        ({"op_names": np.array(["f", ""])}, "non-empty string"),
        ({"unit_bytes": np.array([4, 8])}, "unit_bytes: has 2 elements; expected 1"),
        ({"unit_bytes": np.array([-4])}, "unit_bytes is -4"),
        ({"unit_bytes": np.array([4.0])}, "unit_bytes: has dtype float64; expected int64"),
        ({key: arrays()[key][:0] for key in ("address", "write", "tensor", "op")}, "an empty trace"),
    ],
)
def test_wrong_npz(tmp_path, changes, message):
    path = npz(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        Trace.load(path)
    assert str(caught.value).startswith(str(path))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a trace file was unpickled",))


@pytest.mark.parametrize("key", ["address", "tensor_names"])
def test_pickles_are_refused(tmp_path, key):
    path = npz(tmp_path, **{key: np.array([Bomb()] * 6, dtype=object)})
    with pytest.raises(InputError, match=f"{key}: holds pickled Python objects"):
        Trace.load(path)


def test_files_that_are_no_npz(tmp_path):
    path = tmp_path / "t.npz"
    for content in (b"", b"not a zip", pickle.dumps([1, 2])):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not an NPZ trace"):
            Trace.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        Trace.load(tmp_path / "missing.npz")
    with pytest.raises(InputError, match="cannot be read"):
        Trace.load(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_corrupt_npz_never_passes_unseen(tmp_path, save):
    buffer = io.BytesIO()
    save(buffer, **arrays())
    whole = buffer.getvalue()
    path = tmp_path / "t.npz"
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"t\.npz"):
            Trace.load(path)
    for at in range(0, len(whole), 11):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = Trace.load(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            assert found == small()  # zip has bytes, such as dates, that mean nothing here


def test_a_header_that_promises_too_much(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)})
    content = arrays()
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for key, column in content.items():
            member = io.BytesIO()
            np.save(member, column)
            archive.writestr(f"{key}.npy", header.getvalue() + b"\0" * 48 if key == "address" else member.getvalue())
    with pytest.raises(InputError, match="write has 6 elements, but address has 1125899906842624"):
        Trace.load(tmp_path / "t.npz")


# Plain address lists


def test_csv_with_and_without_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("5\n0x10\n\n7\n")
    assert Trace.load(path) == Trace.of_addresses([5, 16, 7])
    path.write_text("address,write,tensor,op\n5,1,W1,fwd\n6,r,x,fwd\n5,W,W1,bwd\n")
    trace = Trace.load(path)
    assert (trace.address.tolist(), trace.write.tolist()) == ([5, 6, 5], [True, False, True])
    assert (trace.tensor.tolist(), trace.tensor_names) == ([0, 1, 0], ("W1", "x"))
    assert (trace.op.tolist(), trace.op_names) == ([0, 0, 1], ("fwd", "bwd"))
    path.write_text("tensor, address\nW1, 5\n")
    assert Trace.load(path).tensor_names == ("W1",)
    assert Trace.load(path).op_names == (UNNAMED,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n-2\n", "line 2: address -2"),
        ("1\n2.0\n", r"line 2: address 2\.0"),
        ("1\n1e3\n", "line 2: address 1e3"),
        ("1\n1_000\n", "line 2: address 1_000"),
        ("address\n\n\nx\n", "line 4: address x"),
        ("addr\n1\n", "line 1: address addr"),
        ("0x\n", "line 1: address 0x"),
        (f"{2**63}\n", "line 1: address 9223372036854775808"),
        ("1,0\n2\n", "line 2: 1 columns; expected 2: address,write"),
        ("1,0,a,b,c\n", "line 1: 5 columns"),
        ("address,size\n", "line 1: column size"),
        ("address,address\n", "line 1: column address"),
        ("1,maybe\n", "line 1: write maybe"),
        ("", "an empty trace"),
        ("address\n", "an empty trace"),
    ],
)
def test_wrong_csv(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Trace.load(path)


def test_csv_that_is_no_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"1\n\xff\xfe\n")
    with pytest.raises(InputError, match="not a CSV file"):
        Trace.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        Trace.load(tmp_path / "missing.csv")


def test_npy(tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.array([3, 1, 3], dtype=np.uint16))
    assert Trace.load(path) == Trace.of_addresses([3, 1, 3])
    for wrong, message in (
        (np.array([1.0]), "dtype float64; expected integers"),
        (np.array([-1]), r"address\[0\] is -1"),
        (np.array([2**63], dtype=np.uint64), "beyond"),
        (np.array([None]), "pickled"),
    ):
        np.save(path, wrong)
        with pytest.raises(InputError, match=message):
            Trace.load(path)


def test_npy_with_a_damaged_header(tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.arange(4))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"}", b" ", 1))
    with pytest.raises(InputError, match=r"t\.npy: is corrupt"):
        Trace.load(path)
    for at in range(whole.index(b"\n")):
        path.write_bytes(whole[:at] + b"(" + whole[at + 1 :])
        with contextlib.suppress(InputError):
            assert Trace.load(path) == Trace.of_addresses(range(4))


def test_nothing_to_write_leaves_no_file(tmp_path):
    with pytest.raises(InputError, match="no accesses"):
        Trace.save_chunks(tmp_path / "t.npz", [])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        small().save(tmp_path / "file" / "t.npz")


def test_a_pipe_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "t.npz"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)  # so that nobody waits for the other end
    small().save(pipe)
    assert pipe.is_fifo()
    data = os.read(end, 2**16)
    os.close(end)
    with np.load(io.BytesIO(data)) as found:
        assert found["address"].tolist() == small().address.tolist()


def test_chunks_of_no_size(tmp_path):
    small().save(tmp_path / "t.npz")
    with pytest.raises(InputError, match="chunks of 0"):
        next(Trace.chunks(tmp_path / "t.npz", 0))
