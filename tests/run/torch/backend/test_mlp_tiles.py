"""MLPs in tiles: the same numbers, less memory, and nothing touched that is not surely one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from graph_rewrites import gradients, rewritten
from pebbler.run.torch.backend import dynamo_backend, graph_forms, step_budget
from pebbler.run.torch.backend.mlp_tiles import TiledMLP, tile_mlps

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")]


def four(graph):
    return tile_mlps(graph, lambda mlp: 4)


def weights(count=3, width=6, wide=10):
    torch.manual_seed(0)
    shapes = [(wide, width)] * (count - 1) + [(width, wide)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def gated(x, gate, up, down):
    return x + functional.linear(functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down)


def simple(x, up, down):
    return functional.linear(torch.tanh(functional.linear(x, up)).to(x.dtype) * 0.5, down)


def flattened(x, up, down):  # as transformers' Conv1D
    bias = torch.zeros(up.shape[0], dtype=x.dtype)
    wide = torch.addmm(bias, x.view(-1, x.size(-1)), up.T).view(*x.shape[:-1], up.shape[0])
    return functional.linear(functional.gelu(wide, approximate="tanh"), down)


def biased(x, up, down, first, second):
    return x + functional.linear(functional.gelu(functional.linear(x, up, first)), down, bias=second)


def conv1d(x, up, down, first, second):  # as transformers' Conv1D, whose biases are trained
    wide = torch.addmm(first, x.view(-1, x.size(-1)), up.T).view(*x.shape[:-1], up.shape[0])
    narrow = torch.addmm(second, functional.gelu(wide, approximate="tanh").view(-1, up.shape[0]), down.T)
    return x * narrow.view(x.shape)


def computed(x, up, down, first, second):
    """Biases that are values of the graph, and the same one in two places."""
    first = first * x.sum()
    return functional.linear(
        functional.linear(x, up, first).tanh() * functional.linear(x, up, first), down, second + second
    )


def biases(wide=10, width=6, trained=(True, True)):
    torch.manual_seed(1)
    shapes = zip((wide, width), trained, strict=True)
    return [torch.randn(n, dtype=torch.float64, requires_grad=needs) for n, needs in shapes]


def check(function, count, rows=(3, 7), more=()):
    inputs = [torch.randn(*rows, 6, dtype=torch.float64, requires_grad=True), *weights(count), *more]
    wanted = gradients(function, inputs)
    compiled, said = rewritten(function, four)
    torch.testing.assert_close(gradients(compiled, inputs), wanted, rtol=1e-10, atol=1e-10)
    return said


def test_gated_mlps_of_any_number_of_rows():
    assert check(gated, 3) == ["linear_2: an MLP of 21 rows in 4 tiles"]
    assert len(check(gated, 3, rows=(2,))) == 1  # fewer rows than tiles


def test_biases_get_their_gradients_tile_by_tile():
    assert check(biased, 2, more=biases()) == ["linear_1: an MLP of 21 rows in 4 tiles"]


@pytest.mark.slow
@pytest.mark.parametrize("function", [biased, conv1d, computed])
@pytest.mark.parametrize("trained", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("rows", [(5,), (3, 7), (2, 3, 4)])
def test_many_biases(function, trained, rows):
    assert check(function, 2, rows, biases(trained=trained))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "count"), [(simple, 2), (flattened, 2), (lambda *a: gated(gated(*a[:4]), *a[1:4]), 3)]
)
@pytest.mark.parametrize("rows", [(5,), (3, 7), (2, 3, 4)])
def test_many_shapes(function, count, rows):
    assert check(function, count, rows)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_autocast(bias):
    def cast(*inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (biased if bias else gated)(*inputs).float()

    given = (torch.randn(64, 6), *(weights(2) + biases() if bias else weights()))
    inputs = [x.float().detach().requires_grad_() for x in given]
    wanted = gradients(cast, inputs)
    compiled, said = rewritten(cast, four)
    found = gradients(compiled, inputs)
    assert said
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def bias_of_rows(x, up, down):
    """Adds another value to every row."""
    return torch.addmm(x.detach()[:, :1].expand(-1, 6) * 2, torch.tanh(functional.linear(x, up)), down.T)


def bias_of_one(x, up, down):
    return torch.addmm(x.sum(0)[:1], torch.tanh(functional.linear(x, up)), down.T)


def reads_inside(x, up, down):
    wide = torch.tanh(functional.linear(x, up))
    return functional.linear(wide, down) + wide.sum()


def mixes_rows(x, up, down):
    return functional.linear(functional.linear(x, up).softmax(0), down)


def two_sources(x, up, down):
    return functional.linear(functional.linear(x, up) * functional.linear(x + 1, up), down)


def random_inside(x, up, down):
    return functional.linear(functional.dropout(functional.linear(x, up), 0.0), down)


def changes_rows(x, up, down):
    x = x * 1
    wide = functional.linear(x.detach(), up)
    x.mul_(2)
    return functional.linear(torch.tanh(wide), down) + x


@pytest.mark.parametrize(
    "function",
    [bias_of_rows, bias_of_one, reads_inside, mixes_rows, two_sources, random_inside, changes_rows],
    ids=lambda f: f.__name__,
)
def test_what_is_not_surely_an_mlp_stays(function):
    said = []

    def backend(gm, inputs):
        said.extend(four(gm.graph))
        return gm.forward

    torch._dynamo.reset()
    inputs = [torch.randn(8, 6, dtype=torch.float64, requires_grad=True), *weights(2)]
    torch.testing.assert_close(torch.compile(function, backend=backend)(*inputs), function(*inputs))
    assert said == []


def test_the_number_of_tiles_follows_the_room():
    mlp = TiledMLP(None, (), rows=4096, bytes=10**7)
    assert [mlp.tiles_within(room) for room in (10**7, 10**7 - 1, 10**6, 0)] == [1, 2, 4, 4]
    assert TiledMLP(None, (), rows=200, bytes=10**7).tiles_within(0) == 1


class Gated(nn.Module):
    def __init__(self, width, wide, bias):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate, self.up = (nn.Linear(width, wide, bias=bias) for _ in range(2))
        self.down = nn.Linear(wide, width, bias=bias)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
def test_the_least_that_can_be_held_falls_by_half(bias, monkeypatch):
    """With Inductor's kernels, measured: as little as is known without tiles, then with them."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Gated(32, 256, bias), Gated(32, 256, bias)), torch.randn(2048, 32)
    model(x).square().mean().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    held, found = [], graph_forms.find_mlps
    for mlps in (lambda graph: [], found):
        torch._dynamo.reset()
        monkeypatch.setattr(step_budget, "_BUDGETS", {})
        monkeypatch.setattr(graph_forms, "find_mlps", mlps)
        compiled = torch.compile(
            lambda x: model(x).square().mean(), backend=dynamo_backend.pebbler, options={"budget": "least"}
        )
        for _ in range(3):
            model.zero_grad()
            compiled(x).backward()
        (budget,) = step_budget._BUDGETS.values()
        held.append(budget.peak)
    assert held[1] < 0.6 * held[0]
    torch.testing.assert_close([p.grad for p in model.parameters()], wanted, rtol=1e-4, atol=1e-7)
