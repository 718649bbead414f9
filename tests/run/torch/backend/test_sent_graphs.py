"""Saved values on the host under `torch.compile`: numbers, peaks, host bytes; steps that are dropped, doubled or fail."""

from __future__ import annotations

import gc
from itertools import chain

import pytest
import torch
from torch import nn

import pebbler.torch as pt
from pebbler.run.torch.backend import dynamo_backend, step_budget
from pebbler.run.torch.backend.dynamo_backend import PlannedGraph, pebbler
from pebbler.run.torch.run.host_copies import HostBytes

pytestmark = [  # of torch's own modules
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
ROWS, WIDTH, DEPTH = 512, 32, 6
VALUE = ROWS * WIDTH * 4  # bytes of one layer's result


class Deep(nn.Module):
    """Linear layers and a normalization whose statistics are saved as well; fails on demand in the middle of backward."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*chain(*[(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(DEPTH)]))

    def forward(self, x):
        return self.layers(x).square().mean()


class Trained:
    """A compiled model with its graph, its budget and its eager twin."""

    def __init__(self, model, **options):
        torch._dynamo.reset()
        self.eager, self.model = model(), model()
        self.compiled = torch.compile(self.model, backend=pebbler, options=options)
        self.graph = None  # known after the first step

    @property
    def budget(self):
        return self.graph._budget

    @property
    def pool(self):
        return self.budget.host

    def gradients(self, forward, x):
        """Return the loss and the gradients of one step."""
        self.model.zero_grad()
        self.eager.zero_grad()
        loss = forward(x)
        loss.backward()
        model = self.eager if forward is self.eager else self.model
        return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

    def is_right(self, x):
        ours, theirs = self.gradients(self.compiled, x), self.gradients(self.eager, x)
        return all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture(scope="module")
def seen():
    """Return the graphs that are planned, in order."""
    graphs = []

    class Seen(PlannedGraph):
        def __init__(self, *args):
            super().__init__(*args)
            graphs.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamo_backend, "PlannedGraph", Seen)
        patch.setattr(step_budget, "_BUDGETS", {})
        yield graphs
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def sent(seen):
    """Return a model that holds as little as it can; tests that use it come first, since others make torch forget it."""
    return settled(Deep, seen, budget="least", offload=True)


def batch(seed=0):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def settled(model, seen, **options):
    """Return a model after its first steps; every one of them was right."""
    trained = Trained(model, **options)
    for seed in range(5):
        assert trained.is_right(batch(seed))
    trained.graph = seen[-1]
    gc.collect()
    return trained


def test_what_is_on_the_host_is_not_counted_as_held(sent):
    assert sent.pool.transfers.bytes > 0
    assert sent.budget.predicted == pytest.approx(sent.budget.held, rel=0.02)


def test_values_go_to_the_host_and_the_peak_falls_as_simulated(sent):
    choice, kept = sent.graph.frontier.choice, sent.graph.frontier.choices[0]
    assert len(choice.sent) >= DEPTH - 2
    assert sent.pool.transfers.bytes == choice.host >= (DEPTH - 2) * VALUE
    assert choice.peak <= kept.peak - (DEPTH - 3) * VALUE
    assert abs(sent.budget.peak - choice.peak) < VALUE
    # The same every step, and nothing is left on the host that is not free.
    host, most = sent.pool.transfers.bytes, sent.pool.transfers.most
    for seed in range(3):
        assert sent.is_right(batch(seed))
    assert (sent.pool.transfers.bytes, sent.pool.transfers.most) == (host, most) == (host, host)
    assert not sent.pool.copies
    assert not sent.pool.loading
    assert sent.pool.refused == 0


def test_steps_that_are_dropped_doubled_or_fail_leave_nothing_behind_and_mix_nothing_up(sent):
    trained = sent
    pool, choice = trained.pool, trained.graph.frontier.choice
    free = pool.transfers.bytes
    loss = trained.compiled(batch(1))
    assert len(pool.copies) == len(choice.sent)
    del loss  # no backward is called
    gc.collect()
    assert not pool.copies
    with torch.no_grad():
        assert torch.allclose(trained.compiled(batch(2)), trained.eager(batch(2)))
    assert not pool.copies
    assert pool.transfers.bytes == free
    # Two forward passes before the first backward, and then in the other order.
    trained.model.zero_grad()
    first, second = trained.compiled(batch(3)), trained.compiled(batch(4))
    assert len(pool.copies) == 2 * len(choice.sent)
    second.backward()
    first.backward()
    trained.eager.zero_grad()
    (trained.eager(batch(3)) + trained.eager(batch(4))).backward()
    pairs = zip(trained.model.parameters(), trained.eager.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-6) for a, b in pairs)
    assert pool.transfers.bytes == 2 * free
    # Somebody's hook fails before the graph's backward.
    x = batch(5).requires_grad_()
    loss = trained.compiled(x.detach())
    loss.register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    del loss
    gc.collect()
    assert not pool.copies
    loss = trained.compiled(batch(6))
    with pytest.raises(RuntimeError, match="retain_graph=False"):
        loss.backward(retain_graph=True)
    del loss
    gc.collect()
    assert not pool.copies
    assert trained.is_right(batch(7))


def test_a_backward_that_fails_in_the_middle_gives_its_buffers_back(sent, monkeypatch):
    count, fetch = [0], HostBytes.fetch

    def failing(self, raw):
        count[0] += 1
        if count[0] == 2:
            raise KeyboardInterrupt
        return fetch(self, raw)

    monkeypatch.setattr(HostBytes, "fetch", failing)
    with pytest.raises(KeyboardInterrupt):
        sent.compiled(batch()).backward()
    monkeypatch.undo()
    gc.collect()
    assert not sent.pool.copies
    assert sent.is_right(batch(1))


def test_the_host_budget_is_kept_and_the_budget_with_it(seen):
    trained = settled(Deep, seen, budget="least", host_budget=2 * VALUE + 5)
    assert 0 < trained.graph.frontier.choice.host <= 2 * VALUE
    assert trained.pool.transfers.most <= 2 * VALUE + 5
    more, x = [trained.compiled(batch(seed)) for seed in range(3)], batch(9)
    assert trained.pool.transfers.most <= 2 * VALUE + 5
    assert trained.pool.refused == 2 * trained.graph.frontier.choice.host
    trained.model.zero_grad()
    trained.eager.zero_grad()
    sum(more).backward()
    sum(trained.eager(batch(seed)) for seed in range(3)).backward()
    pairs = zip(trained.model.parameters(), trained.eager.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-6) for a, b in pairs)
    assert trained.is_right(x)


@pytest.mark.slow
def test_a_budget_that_only_the_host_keeps(seen, sent):
    least = settled(Deep, seen, budget="least").budget.peak
    with_host = sent.budget.peak
    assert with_host < least
    budget = (least + with_host) // 2
    with pytest.raises(pt.OverBudget, match="the least budget that is known to work is"):
        settled(Deep, seen, budget=budget)
    trained = settled(Deep, seen, budget=budget, offload=True)
    assert trained.budget.peak <= budget
    assert trained.pool.transfers.bytes > 0


class Broken(nn.Module):
    """Two graphs, with attention, normalization, dropout (of nothing, so that eager can be compared) and bfloat16 inside."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.0, batch_first=True)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.last = nn.Sequential(*chain(*[(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4)]))

    def forward(self, x):
        x = self.first(x.view(8, -1, WIDTH)).reshape(-1, WIDTH)
        torch._dynamo.graph_break()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.norm(x)).float().square().mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"offload": True}, {"host_budget": 3 * VALUE}, {"offload": True, "objective": "energy"}]
)
def test_graphs_of_one_step_share_the_hosts_memory(seen, options):
    before = len(seen)
    trained = Trained(Broken, budget="least", **options)
    for seed in range(4):
        ours = trained.gradients(trained.compiled, batch(seed))
        theirs = trained.gradients(trained.eager, batch(seed))
        assert all(torch.allclose(a, b, rtol=2e-2, atol=2e-4) for a, b in zip(ours, theirs, strict=True))
    graphs = [graph for graph in seen[before:] if graph.frontier is not None]
    assert len(graphs) == 2
    pool = graphs[0]._budget.host
    assert pool is graphs[1]._budget.host
    assert pool.transfers.most <= options.get("host_budget", 10**9)
    assert any(graph.frontier.choice.sent for graph in graphs)
    gc.collect()
    assert not pool.copies


@pytest.mark.slow
def test_batches_of_any_size_share_a_graph(seen):
    trained = Trained(Deep, budget="least", offload=True)
    for rows in (512, 300, 700, 512, 64):
        x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(rows))
        assert trained.is_right(x)
    assert seen[-1].frontier.choice.sent
    gc.collect()
    assert not seen[-1]._budget.host.copies


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_copies_keep_the_budget_and_the_numbers(seen):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(*chain(*[(nn.Linear(2048, 2048), nn.GELU()) for _ in range(12)])).to("cuda:0")
    x = torch.randn(16384, 2048, device="cuda:0")

    def losses(run, steps=8):
        found = []
        for _ in range(steps):
            model.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            found.append(loss.item())
        return found

    expected = losses(model)
    run = torch.compile(model, backend=pebbler, options={"budget": "least", "host_budget": "8GiB"})
    assert losses(run) == pytest.approx(expected, rel=1e-3)
    graph = seen[-1]
    pool, choice = graph._budget.host, graph.frontier.choice
    assert choice.sent
    assert 0 < pool.transfers.bytes <= 2**33
    torch.cuda.reset_peak_memory_stats()
    assert losses(run) == pytest.approx(expected, rel=1e-3)
    assert torch.cuda.max_memory_allocated() <= graph._budget.peak
    assert not pool.copies
