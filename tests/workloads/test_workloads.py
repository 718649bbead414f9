"""The built-in workloads: names, sizes and specs."""

from __future__ import annotations

import pytest

from pebbler.errors import InputError
from pebbler.workloads import catalogue, chain, deep_mlp, get, load, mlp, note_mlp

NOTE_000 = """
fwd_linear1: W1,x,b1 -> h_pre; fwd_relu: h_pre -> h; fwd_linear2: W2,h,b2 -> y_hat; fwd_loss: y_hat,y -> loss;
bwd_loss: loss,y_hat,y -> dy; bwd_dW2: dy,h -> dW2; bwd_db2: dy -> db2; bwd_dh: W2,dy -> dh; bwd_relu: dh,h_pre -> dh_pre;
bwd_dW1: dh_pre,x -> dW1; bwd_db1: dh_pre -> db1; upd_W1: W1,dW1 -> W1_new; upd_b1: b1,db1 -> b1_new;
upd_W2: W2,dW2 -> W2_new; upd_b2: b2,db2 -> b2_new
"""


def test_note_mlp_is_the_graph_of_note_000():
    graph = note_mlp()
    written = [f"{op.name}: {','.join(op.reads)} -> {','.join(op.writes)}" for op in graph.ops]
    assert written == [line.strip() for line in NOTE_000.replace("\n", " ").split(";")]
    initial = [(t.name, t.size) for t in graph.tensors if t.kind in ("param", "input")]
    assert initial == [("W1", 20000), ("b1", 1000), ("W2", 1000), ("b2", 1), ("x", 20), ("y", 1)]
    for name in ("W1", "b1", "W2", "b2"):
        assert graph.tensor_named(f"{name}_new").overwrites == name
        assert graph.tensor_named(f"d{name}").size == graph.tensor_named(name).size
    assert graph.unit == "float32"


def test_chain_is_the_game_of_note_001():
    graph = chain(3)
    assert [op.name for op in graph.ops] == ["c1", "c2", "c3", "b3", "b2", "b1", "b0"]
    assert graph.op_named("b3").reads == ("N3",)
    assert set(graph.op_named("b1").reads) >= {"N1", "N2"}
    assert all(op.cost == 1 for op in graph.ops)
    assert {t.name: t.size for t in graph.tensors if t.name.startswith("N")} == {f"N{i}": 1 for i in range(4)}
    assert all(t.size == 0 for t in graph.tensors if t.name.startswith("g"))


@pytest.mark.parametrize(
    "graph", [mlp(), mlp(batch=32), deep_mlp(), deep_mlp(layers=1), deep_mlp(n=3, hidden=4, layers=2, batch=5)]
)
def test_networks_can_be_tiled_and_run(graph):
    updates = [op for op in graph.ops if op.name.startswith("upd_")]
    params = [tensor.name for tensor in graph.tensors if tensor.kind == "param"]
    assert sorted(op.writes[0] for op in updates) == sorted(params)
    assert all(op.writes[0] in op.reads for op in updates)
    assert all(tensor.axes is not None for tensor in graph.tensors)
    assert all("kernel" in op.meta for op in graph.ops)
    for op in graph.ops:
        if op.pointwise:
            axes = {graph.tensor_named(name).axes for name in op.writes}
            assert any(graph.tensor_named(name).axes in axes for name in op.reads)
    assert graph.updates_params
    assert get(graph.name) == graph


def test_sizes_of_a_deep_network():
    graph = deep_mlp(n=20, hidden=1000, layers=3, batch=2)
    sizes = {tensor.name: tensor.size for tensor in graph.tensors}
    assert (sizes["W1"], sizes["W2"], sizes["W3"], sizes["W4"]) == (20_000, 10**6, 10**6, 1000)
    assert (sizes["x"], sizes["h1"], sizes["y"]) == (40, 2000, 2)


def test_specs():
    assert get("mlp:n=3,hidden=4,batch=2") == mlp(n=3, hidden=4, batch=2)
    assert get("mlp:hidden=4, n=3") == mlp(n=3, hidden=4)
    assert get("mlp") == mlp()
    assert get("note-mlp") == note_mlp()
    assert {usage.partition(":")[0] for usage in catalogue()} == {
        "attention", "chain", "deep-mlp", "matmul", "mlp", "note-mlp",
    }  # fmt: skip
    for usage in catalogue():
        assert get(usage.partition("[")[0]).ops


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mpl", r"no built-in workload mpl \(did you mean mlp"),
        (
            "zzz",
            r"no built-in workload zzz \(known: attention, chain, deep-mlp, matmul, mlp, note-mlp\); and there is no file zzz",
        ),
        ("mlp:m=3", "'?m=3'? is no parameter; it is called as mlp:n=20,hidden=1000"),
        ("mlp:n", "n is no parameter"),
        ("mlp:n=3,n=4", "n is given twice"),
        ("mlp:n=three", "n must be a whole number, got three"),
        ("mlp:n=2.5", "n must be a whole number, got 2.5"),
        ("mlp:n=0", "n must be a whole number from 1 to"),
        ("mlp:n=-3", "n must be a whole number from 1 to"),
        ("chain:length=99999999999999999999", "length must be a whole number from 1 to"),
        ("chain:length=300001", "workload chain: length=300,001 is too long for a graph .*; the limit is 300,000 "),
        ("deep-mlp:layers=75001", "layers=75,001, each of which counts four times; the limit is 300,000 "),
        ("note-mlp:n=3", "is no parameter"),
        ("x" * 5000, "no built-in workload"),
        ("missing.json", "missing.json: cannot be read: No such file"),
    ],
)
def test_wrong_specs_are_refused(spec, message):
    with pytest.raises(InputError, match=message) as caught:
        load(spec)
    assert len(str(caught.value)) < 1000


def test_python_calls_are_checked_too():
    for wrong in (True, 2.0, "3"):
        with pytest.raises(InputError, match="whole number"):
            mlp(n=wrong)  # type: ignore[arg-type]


def test_load_takes_files(tmp_path):
    mlp(n=2, hidden=2).save(tmp_path / "g.json")
    assert load(tmp_path / "g.json") == mlp(n=2, hidden=2)
    (tmp_path / "g.json").rename(tmp_path / "no-suffix")
    assert load(tmp_path / "no-suffix") == mlp(n=2, hidden=2)
