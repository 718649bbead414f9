"""Models with dropout that return loss and logits: chunks work, and gradients through the logits are right when they come."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from pebbler.run.torch.backend import partitioner
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.spare_gradients import LastLayers, drops_values

pytestmark = [
    pytest.mark.usefixtures("graphs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class Dropped(nn.Module):
    """Returns its loss and its logits, and drops values on the way; `kind` says what happens to the logits."""

    def __init__(self, kind="plain", words=512):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.table, self.middle, self.head = nn.Embedding(words, 8), nn.Linear(8, 8), nn.Linear(8, words)

    def forward(self, tokens):
        x = functional.dropout(self.middle(self.table(tokens)).tanh(), 0.5)
        if self.kind == "own autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.head(x)
        else:
            logits = self.head(x)
        others = {
            "scaled": lambda: logits.float()[:, 1:] * 0.5,
            "dropped": lambda: functional.dropout(logits, 0.5),
            "hidden": lambda: (logits, x),
            "changed": lambda: logits.add_(1.0),
            "both": lambda: (logits, functional.linear(x, self.table.weight)),
        }
        other = others.get(self.kind, lambda: logits)()
        return functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()), other


def step(model, run, tokens, through):
    model.zero_grad()
    torch.manual_seed(1)  # the same masks: Inductor draws them from the same seeds in the same order
    loss, others = run(tokens)
    others = others if isinstance(others, tuple) else (others,)
    (loss + (sum(other.float().sin().mean() for other in others) if through else 0.0)).backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def compared(kind, budget=10**8):
    """Yield turn by turn what pebbler and torch.compile compute, and the warnings."""
    tokens = torch.arange(128).reshape(2, 64)
    model, ours = Dropped(kind), Dropped(kind)
    runs = torch.compile(model), torch.compile(ours, backend=pebbler, options={"budget": budget})
    for turn in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = step(ours, runs[1], tokens, through=turn > 0)
        yield step(model, runs[0], tokens, through=turn > 0), found, [str(x.message) for x in said]


@pytest.mark.slow
def test_gradients_through_logits_come_by_way_of_the_last_layer(graphs):
    for turn, (expected, found, said) in enumerate(compared("plain")):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        twice = [text for text in said if "last layer of this step was computed twice" in text]
        assert len(twice) == (turn == 1)  # then they are expected
        if not turn:
            (planned,) = graphs
            assert isinstance(planned._spare, LastLayers)
            operand = planned._spare.without().graph.output_node().args[0][2]
            assert operand.meta["example_value"].shape == (2, 64, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scaled", "dropped", "hidden", "changed", "both", "own autocast"])
def test_gradients_through_odd_outputs_are_right(kind, graphs):
    rough = {"rtol": 2e-2, "atol": 2e-2} if kind == "own autocast" else {"rtol": 1e-4, "atol": 1e-6}
    for expected, found, _ in compared(kind):
        torch.testing.assert_close(found, expected, **rough)
        if kind in ("dropped", "changed", "own autocast"):
            assert graphs[0]._spare is None  # what cannot be repeated alone gets all gradients at once


@pytest.mark.slow
def test_an_output_without_a_last_layer_is_expected_to_get_a_gradient_and_the_logits_are_not(graphs):
    """As of T5, which returns its encoder's last state too: backward got zeros as large as the logits."""
    tokens = torch.arange(128).reshape(2, 64)
    model = Dropped("hidden")
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})
    step(model, run, tokens, False)
    (planned,) = graphs
    assert planned._spare.places == [1]
    assert isinstance(planned._spare, LastLayers)


def test_a_graph_that_drops_values_is_traced_once(graphs, monkeypatch):
    """It was traced for nothing: that it cannot be repeated was found after that."""
    monkeypatch.setattr(partitioner, "refuse_unrepeatable", pytest.fail)
    torch.compile(Dropped(), backend=pebbler, options={"budget": 10**8})(torch.arange(128).reshape(2, 64))
    assert isinstance(graphs[0]._spare, LastLayers)


@pytest.mark.parametrize(
    ("function", "drops"),
    [
        (lambda x: functional.dropout(x, 0.5), True),
        (lambda x: functional.dropout(x, p=0.1, training=True), True),
        (functional.dropout, True),
        (lambda x: functional.dropout(x, 0.5, False), False),
        (lambda x: functional.dropout(x, 0.0), False),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, None, 0.1), True),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1), True),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True), False),
        (torch.sin, False),
    ],
)
def test_what_surely_drops_values(function, drops):
    found = []
    torch._dynamo.reset()
    torch.compile(function, backend=lambda gm, _: (found.append(drops_values(gm.graph)), gm.forward)[1])(
        torch.ones(2, 2, 2, 2)
    )
    assert found == [drops]


@pytest.mark.slow
def test_losses_behind_dropout_are_computed_in_chunks(graphs):
    tokens = torch.arange(512).reshape(2, 256)
    model, ours = Dropped(words=1024), Dropped(words=1024)
    run, theirs = torch.compile(ours, backend=pebbler, options={"budget": "least"}), torch.compile(model)
    for _ in range(2):
        found, expected = step(ours, run, tokens, False), step(model, theirs, tokens, False)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert any("chunks" in line for planned in graphs for line in planned.forms.done)


def test_weights_changed_before_they_are_needed_again_are_an_error():
    model, tokens = Dropped(), torch.arange(128).reshape(2, 64)
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})
    _, logits = run(tokens)
    with torch.no_grad():
        model.head.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        logits.sum().backward()
