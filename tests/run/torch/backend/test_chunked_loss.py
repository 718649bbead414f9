"""Losses in chunks: the same numbers for every shape and option, less memory, and nothing touched that is not surely one."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

import pebbler.torch as pt
from graph_rewrites import gradients, rewritten
from pebbler.run.torch.backend import step_budget
from pebbler.run.torch.backend.chunked_loss import ChunkedLoss, chunk_losses, cut_off_losses
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.graph_forms import GraphForms

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


def four(graph):
    return chunk_losses(graph, lambda loss: 4)


def batch(rows=(3, 7), width=5, classes=11, dtype=torch.float32, bias=True):
    torch.manual_seed(0)
    x = torch.randn(*rows, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(classes, width, dtype=dtype, requires_grad=True)
    target = torch.randint(classes, rows)
    return x, weight, torch.randn(classes, dtype=dtype, requires_grad=True) if bias else None, target


def flat(x, weight, bias, target, **options):
    logits = functional.linear(x, weight, bias)
    return functional.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1), **options)


def shifted(x, weight, bias, target):
    logits = functional.linear(x, weight, bias)[..., :-1, :].contiguous().float()
    return functional.cross_entropy(logits.view(-1, logits.size(-1)), target[..., 1:].reshape(-1))


def padded(x, weight, bias, target):  # as in transformers
    logits = functional.linear(x[:, slice(0, None), :], weight, bias).float()
    target = functional.pad(target, (0, 1), value=-100)[..., 1:].contiguous()
    return (
        functional.cross_entropy(
            logits.view(-1, weight.shape[0]), target.view(-1).to(logits.device), ignore_index=-100, reduction="sum"
        )
        / target.numel()
    )


def capped(x, weight, bias, target):  # as in Gemma
    logits = torch.tanh(functional.linear(x, weight, bias) / 3.0) * 3.0
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def check(function, inputs, rtol=1e-5, atol=1e-6):
    wanted = gradients(function, inputs)
    compiled, said = rewritten(function, four)
    torch.testing.assert_close(gradients(compiled, inputs), wanted, rtol=rtol, atol=atol, equal_nan=True)
    return said


@pytest.mark.parametrize(
    "function", [padded, *(pytest.param(f, marks=pytest.mark.slow) for f in (flat, shifted, capped))]
)
def test_ways_to_write_it_that_people_have(function):
    assert len(check(function, batch())) == 1


OPTIONS = [{}, {"reduction": "sum"}, {"label_smoothing": 0.1}, {"ignore_index": 3, "label_smoothing": 0.2}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "options"), list(itertools.product([(2, 1), (1, 9), (3, 7), (4, 8), (2, 33)], OPTIONS))
)
def test_many_shapes_and_options(rows, options):
    for bias in (False, True):
        assert len(check(lambda *a: flat(*a, **options), batch(rows, bias=bias))) == 1


def test_ignored_targets_even_all_of_them():
    x, weight, bias, target = batch()
    target[0] = -100
    assert check(flat, (x, weight, bias, target))
    assert check(flat, (x, weight, bias, torch.full_like(target, -100)))  # the loss is NaN, the gradients are zeros


@pytest.mark.slow
def test_tied_weights_and_frozen_ones():
    x, weight, _, target = batch()
    tokens = torch.randint(11, (3, 7))

    def tied(weight, x):
        return flat(functional.embedding(tokens, weight) + x, weight, None, target)

    assert check(tied, (weight, x))
    assert check(flat, (x, weight.detach(), None, target))
    assert check(flat, (x.detach(), weight, None, target))


@pytest.mark.slow
def test_without_gradients_there_is_the_loss():
    inputs = batch()
    compiled, said = rewritten(flat, four)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), flat(*inputs))
    assert said


@pytest.mark.slow
def test_low_precision_is_as_near_to_the_truth_as_without_chunks():
    inputs = batch((8, 64), 32, 50, torch.bfloat16)
    exact = gradients(
        flat, [x if x is None or x.dtype == torch.int64 else x.double().detach().requires_grad_() for x in inputs]
    )
    ordinary = gradients(flat, inputs)
    compiled, said = rewritten(flat, four)
    found = gradients(compiled, inputs)
    assert said
    for ours, theirs, truth in zip(found, ordinary, exact, strict=True):
        assert (ours - truth).norm() <= 1.5 * (theirs - truth).norm() + 1e-3 * truth.norm()


@pytest.mark.slow
def test_autocast():
    def cast(*inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return flat(*inputs)

    assert len(check(cast, batch((4, 16)), rtol=2e-2, atol=2e-3)) == 1


def outputs_too(x, weight, bias, target):
    logits = functional.linear(x, weight, bias)
    return functional.cross_entropy(logits.view(-1, 11), target.view(-1)) + logits.square().mean()


def changed_between(x, weight, bias, target):
    moving = bias * 1
    logits = functional.linear(x, weight, moving)
    moving.mul_(0)
    return functional.cross_entropy(logits.view(-1, 11), target.view(-1))


@pytest.mark.parametrize(
    "function",
    [
        outputs_too,
        changed_between,
        lambda *a: flat(*a, reduction="none").sum(),
        lambda x, w, b, t: functional.cross_entropy(
            functional.linear(x, w, b).view(-1, 11), t.view(-1), torch.arange(11.0)
        ),
        lambda x, w, b, t: functional.cross_entropy(functional.linear(x, w, b).transpose(1, 2), t),
        lambda x, w, b, t: functional.cross_entropy(
            functional.linear(x, w, b).transpose(0, 1).reshape(-1, 11), t.view(-1)
        ),
        lambda x, w, b, t: functional.cross_entropy(functional.linear(x, w, b).softmax(-1).view(-1, 11), t.view(-1)),
        lambda x, w, b, t: functional.cross_entropy(functional.linear(x, w, b).view(-1, 11), torch.ones(21, 11) / 11),
    ],
)
def test_what_is_not_surely_such_a_loss_stays(function):
    said = []

    def backend(gm, inputs):
        said.extend(four(gm.graph))
        return gm.forward

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(function, backend=backend)(*batch()), function(*batch()))
    assert said == []


@pytest.mark.slow
def test_logits_that_are_only_looked_at_may_stay():
    def looked(x, weight, bias, target):
        logits = functional.linear(x, weight, bias)
        return functional.cross_entropy(logits.view(-1, 11), target.view(-1)) + 0 * logits.detach().sum()

    assert len(check(looked, batch())) == 1


def test_the_number_of_chunks_follows_the_room():
    loss = ChunkedLoss(None, (), None, rows=4096, classes=1000, bytes=4096 * 1000 * 8, beside=10**5)
    assert loss.chunks_within(10**9) == 1
    assert loss.chunks_within(10**7) == 4
    assert loss.chunks_within(0) == 32  # of 128 rows
    assert ChunkedLoss(None, (), None, 200, 10**6, 10**9, 0).chunks_within(0) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_a_budget_that_the_logits_do_not_fit_into_is_kept_by_chunks(bias, monkeypatch):
    """With Inductor's kernels: what the logits and their gradients take is 16.8 MB, and nothing is computed twice."""
    torch._dynamo.reset()
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch.manual_seed(0)
    head = nn.Linear(32, 2048, bias=bias)
    x, target = torch.randn(1024, 32, requires_grad=True), torch.randint(2048, (1024,))

    def loss(x, target):
        return functional.cross_entropy(head(x), target)

    wanted = gradients(lambda x: loss(x, target), [x])
    compiled = torch.compile(loss, backend=pebbler, options={"budget": "5MB"})
    for _ in range(2):
        torch.testing.assert_close(gradients(lambda x: compiled(x, target), [x]), wanted, rtol=1e-4, atol=1e-6)
        (budget,) = step_budget._BUDGETS.values()
        assert budget.peak <= 4_000_000
    head.zero_grad()
    assert pt.measure_peak(lambda: compiled(x, target).backward())[1] < 4_000_000


@pytest.mark.parametrize("trained", [(True, True, True), (True, False, False), (False, True, False)])
def test_a_chunk_begins_when_all_of_the_one_before_has_ended(trained):
    """By operands alone: whoever orders or fuses the graph, in forward or again in backward, holds one chunk's logits."""
    *given, target = batch(rows=(12,))
    given = [value.detach().requires_grad_(need) for value, need in zip(given, trained, strict=True)]
    compiled, _ = rewritten(flat, four, graphs := [])
    gradients(compiled, [*given, target])
    before = {}
    for node in graphs[0].nodes:
        before[node] = {node}.union(*(before[source] for source in node.all_input_nodes))
    products = [node for node in before if node.target in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)]
    logits = [place for place, node in enumerate(products) if node.meta["val"].shape == (3, 11)]
    assert len(logits) == 4 < len(products)
    for place in logits:
        assert before[products[place]] >= set(products[:place])


def test_a_few_chunks_come_before_many():
    torch._dynamo.reset()
    said = []

    def look(graph):
        forms = GraphForms(1_400_000)  # 262,144 bytes of logits and their gradients: one part in five of that
        for level in forms.levels(graph):
            forms.level = level
            copied = copy.deepcopy(graph.owning_module)
            forms.write(copied)
            said.append((level, *forms.done))
        return []

    torch.compile(flat, backend=lambda gm, _: look(gm.graph) or gm)(*batch(rows=(2, 256), classes=64))
    assert [(level, done.rpartition(" in ")[2]) for level, done in said] == [(1, "2 chunks"), (2, "4 chunks")]


def broken(x, weight, bias, target):
    logits = functional.linear(x, weight, bias)
    torch._dynamo.graph_break()
    return functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())


@pytest.mark.slow
def test_logits_that_come_from_another_graph_are_told(monkeypatch, caplog):
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch._dynamo.reset()
    inputs = batch(rows=(2, 256), classes=64)
    run = torch.compile(broken, backend=pebbler, options={"budget": 10**6})
    with caplog.at_level("WARNING", logger="pebbler"):
        run(*inputs).backward()
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("pebbler")]
    assert "512 rows of 64, come from another graph" in said
    assert cut_off_losses(fx.symbolic_trace(broken_nothing).graph, 0) == []


@pytest.mark.slow
def test_logits_whose_strides_change_from_call_to_call(monkeypatch):
    """As where another graph pads them: Dynamo knows their sizes, and symbols for their strides."""
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch._dynamo.reset()
    target = torch.randint(64, (512,))
    run = torch.compile(functional.cross_entropy, backend=pebbler, options={"budget": "least"})
    for width in (64, 80, 96):
        logits = torch.randn(512, width)[:, :64].requires_grad_()
        loss = run(logits, target)
        loss.backward()
        torch.testing.assert_close(loss, functional.cross_entropy(logits, target))


def broken_nothing(x, target):  # without shapes nothing is sure
    return functional.cross_entropy(x, target)


def test_small_logits_of_another_graph_are_not_worth_a_word(monkeypatch, caplog):
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch._dynamo.reset()
    inputs = batch(rows=(2, 256), classes=64)
    with caplog.at_level("WARNING", logger="pebbler"):
        torch.compile(broken, backend=pebbler, options={"budget": 10**9})(*inputs).backward()
    assert not [record for record in caplog.records if record.name.startswith("pebbler")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gpt2_in_one_graph_holds_less(monkeypatch):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=8192, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    ids, peaks = torch.randint(8192, (4, 256)), []
    for whole in (False, True):
        monkeypatch.setattr(step_budget, "_BUDGETS", {})
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).train()
        if whole:
            model.loss_function = model.loss_function
        run = torch.compile(model, backend=pebbler, options={"budget": "least"})

        def step(run=run):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = run(input_ids=ids, labels=ids).loss
            loss.backward()

        for _ in range(7):
            model.zero_grad()
            step()
        peaks.append(pt.measure_peak(step)[1])
    assert peaks[1] < 0.7 * peaks[0]
