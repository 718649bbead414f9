"""The search for the longest sequence: near to what fits, in few trials, and never one that would take too long."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")
pytest.importorskip("transformers")

import torch
from benchmarks.longest_sequence import FULL, LengthSearch, Point
from benchmarks.torch_model_steps import llama_of

from graph_rewrites import rewritten
from pebbler.run.torch.backend.chunked_loss import chunk_losses
from pebbler.run.torch.backend.mlp_tiles import tile_mlps

ROOT = Path(__file__).parents[1]


def searched(held, memory, base, seconds=lambda n: n / 1e4, step_seconds=1e9, first=100):
    search = LengthSearch(memory, base, step_seconds, quantum=1)
    length = first
    while length is not None:
        fits = held(length) <= memory
        search.points.append(Point(length, held(length) if fits else None, seconds(length) if fits else None))
        length = search.aim()
    return search


@pytest.mark.parametrize(
    "held",
    [
        lambda n: 500 + 3 * n,
        lambda n: 500 + 3 * n + (n // 64) * 20,  # in steps
        lambda n: 500 + n + int(60 * n**0.5),  # a part that grows more slowly
        lambda n: 500 + 2 * n + n * n // 10**5,  # and one that grows faster
    ],
)
def test_it_comes_near_in_a_few_trials(held):
    memory = 100_000
    search = searched(held, memory, base=500)
    true = max(n for n in range(1, memory) if held(n) <= FULL * memory)
    assert 0.9 * true <= search.longest.length <= true / FULL
    assert len(search.points) <= 6


def test_no_step_takes_too_long_and_what_would_fit_is_predicted():
    search = searched(lambda n: 500 + n, 100_000, 500, seconds=lambda n: (n / 1000) ** 2, step_seconds=9.0)
    assert 2900 <= search.longest.length <= 3000
    assert search.predicted() == pytest.approx(98_000, rel=0.01)


def test_a_first_length_that_is_too_long_is_halved():
    assert searched(lambda n: 500 + 2000 * n, 100_000, 500).longest.length == pytest.approx(49, abs=4)


@pytest.mark.slow
def test_checkpointing_trains_longer_sequences_than_eager(tmp_path):
    output = tmp_path / "longest.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.longest_sequence",
        "--small",
        "--memory",
        "48MiB",
        "--output",
        str(output),
    ]
    subprocess.run([*command, "--variants", "eager,checkpoint"], cwd=ROOT, check=True, timeout=600)
    rows = json.loads(output.read_text())
    longest = {row["variant"]: row["longest"] for row in rows if "longest" in row}
    assert longest["checkpoint"] > longest["eager"] > 128
    assert all(row["peak"] is None or row["peak"] <= 48 * 2**20 for row in rows if "peak" in row)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("parts", [1, 4])
def test_nothing_is_made_that_grows_with_the_square_of_the_length(parts):
    """Neither masks nor attention, in the model as it is and with a loss in chunks and MLPs in tiles."""
    length, words, graphs = 1024, 512, []
    training = llama_of("cpu", 2, 64, words, (1, length), plain=True)
    ids = torch.randint(words, (1, length))

    def rewrite(graph):
        return [*chunk_losses(graph, lambda loss: parts), *tile_mlps(graph, lambda mlp: parts)]

    run, said = rewritten(lambda ids: training.model(input_ids=ids, labels=ids).loss, rewrite, graphs)
    run(ids).backward()
    sizes = [n.meta["val"].numel() for g in graphs for n in g.nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    assert len(graphs) == 2
    assert len(said) == (3 if parts > 1 else 0)
    assert max(sizes) == length * words // parts < length**2


def test_the_plain_llama_computes_what_that_of_transformers_does():
    ours, theirs = (llama_of("cpu", 2, 64, 128, (1, 16), plain).model.float() for plain in (True, False))
    names = {
        "table.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head.weight": "lm_head.weight",
        "before": "input_layernorm", "between": "post_attention_layernorm", "query": "self_attn.q_proj",
        "key": "self_attn.k_proj", "value": "self_attn.v_proj", "merge": "self_attn.o_proj", "gate": "mlp.gate_proj",
        "up": "mlp.up_proj", "down": "mlp.down_proj",
    }  # fmt: skip
    known = theirs.state_dict()

    def source(name):
        if not name.startswith("layers."):
            return known[names[name]]
        _, layer, part, _ = name.split(".")
        return known[f"model.layers.{layer}.{names[part]}.weight"]

    ours.load_state_dict({name: source(name) for name in ours.state_dict()})
    for layer in (*[n for one in ours.layers for n in (one.before, one.between)], ours.norm):
        layer.eps = theirs.config.rms_norm_eps
    ids = torch.randint(128, (1, 16))
    found, expected = (model(input_ids=ids, labels=ids) for model in (ours, theirs))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.loss, expected.loss)
    ours.gradient_checkpointing_enable()
    torch.testing.assert_close(ours(input_ids=ids, labels=ids).loss, found.loss)
