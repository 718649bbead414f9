"""Outputs besides the loss: their gradients are not computed with, and right where somebody wants them after all."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from pebbler.run.torch.backend.dynamo_backend import pebbler

pytestmark = [
    pytest.mark.usefixtures("graphs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class Words(nn.Module):
    """Returns its loss and its logits, as language models do."""

    def __init__(self, words=512, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.dropout = dropout
        self.table, self.middle, self.head = nn.Embedding(words, 8), nn.Linear(8, 8), nn.Linear(8, words)

    def forward(self, tokens, shift=None):
        x = self.middle(self.table(tokens)).tanh()
        if self.dropout:
            x = functional.dropout(x, self.dropout)
        logits = self.head(x)
        if self.dropout:
            logits = functional.dropout(logits, self.dropout)
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()), logits


def gradients(model, run, tokens, weigh):
    model.zero_grad()
    loss, logits = run(tokens)
    weigh(loss, logits).backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.slow
def test_zeros_for_logits_are_neither_made_nor_read(graphs):
    model, tokens = Words(), torch.arange(128).reshape(2, 64)
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})
    ours = gradients(model, run, tokens, lambda loss, _: loss)
    torch.testing.assert_close(ours, gradients(model, model, tokens, lambda loss, _: loss), rtol=1e-4, atol=1e-6)
    (planned,) = graphs
    assert [name for name in planned.frontier.names if name.startswith("tangents")] == ["tangents_1"]
    assert run(tokens)[1].requires_grad


def test_gradients_through_logits_are_right_when_they_come():
    model, tokens = Words(), torch.arange(128).reshape(2, 64)
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})

    def both(loss, logits):
        return loss + logits.square().mean()

    def other(_, logits):
        return logits.sin().mean()

    for turn, weigh in enumerate((lambda loss, _: loss, both, other, both)):
        if turn == 1:
            with pytest.warns(UserWarning, match="besides its loss"):
                ours = gradients(model, run, tokens, weigh)
        else:  # compiled again after the first time: nothing is computed twice
            ours = gradients(model, run, tokens, weigh)
        torch.testing.assert_close(ours, gradients(model, model, tokens, weigh), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_what_does_not_repeat_itself_gets_all_gradients_at_once():
    model, tokens = Words(dropout=0.5), torch.arange(128).reshape(2, 64)
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})
    loss, logits = run(tokens)
    (loss + 3 * logits.mean()).backward()  # a warning would be an error
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_changing_an_input_before_it_is_needed_again_is_an_error():
    model, tokens = Words(), torch.arange(128).reshape(2, 64)
    run = torch.compile(model, backend=pebbler, options={"budget": 10**8})
    _, logits = run(tokens)
    with torch.no_grad():
        model.middle.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        logits.sum().backward()


class Odd(nn.Module):
    """Returns its loss with other things: inputs, weights, views of the same logits, nested structures."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.first, self.second = kind, nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, x, y):
        hidden = self.first(x).tanh()
        logits = self.second(hidden)
        loss = functional.cross_entropy(logits.float(), y)
        others = {
            "input": lambda: [x], "weight": lambda: [self.first.weight, logits], "autocast": lambda: [logits],
            "views": lambda: [logits, logits.view(-1), logits[0]], "nested": lambda: [hidden, {"logits": logits, "count": 3}],
        }  # fmt: skip
        return loss, others[self.kind]()


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [leaf for part in inside for leaf in leaves(part)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:gradients came back:UserWarning")
@pytest.mark.parametrize("kind", ["input", "weight", "autocast", "views", "nested"])
def test_gradients_through_odd_outputs_are_right(kind):
    data, y = torch.randn(4, 8), torch.randint(16, (4,))
    found = []
    for compiled in (False, True):
        model = Odd(kind)
        run = torch.compile(model, backend=pebbler, options={"budget": 10**8}) if compiled else model
        for turn in range(3):
            model.zero_grad()
            x = data.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
                loss, others = run(x, y)
                if turn:
                    loss = loss + sum(other.float().sin().sum() for other in leaves(others))
            loss.backward()
            found.append([loss.detach(), x.grad, *(p.grad for p in model.parameters())])
    rough = {"rtol": 2e-2, "atol": 2e-2} if kind == "autocast" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found[:3], found[3:], **rough)
