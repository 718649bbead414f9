"""Plans of whole steps with and without the host's memory."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

import pebbler.torch as pt  # noqa: E402
from pebbler.game.moves import Copy  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402


def copies(plan):
    return [move for phase in plan.phases for move in phase.moves if isinstance(move, Copy)]


@pytest.mark.parametrize("objective", ["time", "energy"])
@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_never_dearer_than_without_the_host(deep, device, objective):
    _, captured, least = deep
    costs = pt.roofline(captured, device)
    free = pt.plan_captured(captured, costs, objective=objective)
    for share in (0.8, 0.3):
        options = {"budget": int(least + share * (free.peak - least)), "objective": objective, "time_limit": 0.3}
        plain, away = (pt.plan_captured(captured, costs, offload=offload, **options) for offload in (False, True))
        assert free.cost <= away.cost <= plain.cost
        assert not copies(plain)
        assert away.bound <= away.cost
        assert (away.status == "optimal") == (away.cost == pytest.approx(free.cost, rel=1e-12))


def test_copies_that_nothing_waits_for_cost_no_time_and_all_their_energy(deep):
    _, captured, least = deep
    costs = pt.roofline(captured, "h200")
    budget = int(1.5 * least)
    plan = pt.plan_captured(captured, costs, budget=budget, time_limit=1)
    assert plan.offloaded > 0
    assert plan.status == "optimal"
    assert plan.cost == pytest.approx(plan.unplanned)
    assert plan.plan.energy == check(plan.plan).energy > plan.cost * 1e9
    assert plan.plan.status == "bounded"
    # A link that takes no energy is used, one that takes a lot is not.
    used = []
    for joules in (0.0, 1e-3):
        costs.link = pt.Link(1 / 50e9, 1 / 50e9, overlap=True, joules_per_byte=joules)
        used.append(pt.plan_captured(captured, costs, budget=budget, objective="energy", time_limit=1))
    assert used[0].offloaded > 0 == used[0].recomputed
    assert used[1].offloaded == 0 < used[1].recomputed
    assert used[0].cost == used[0].plan.energy / 1e12


def test_where_offload_is_the_default(deep):
    _, captured, least = deep
    for device, expected in (("h200", True), ("cpu", False)):
        plan = pt.plan_captured(captured, pt.roofline(captured, device), budget=int(1.5 * least), time_limit=0.5)
        assert bool(copies(plan)) == expected
    assert pt.least_budget(captured, pt.roofline(captured, "h200"))[1] == least


def test_the_same_call_gives_the_same_plan(deep):
    _, captured, least = deep
    costs = pt.roofline(captured, "cpu")
    plans = [pt.plan_captured(captured, costs, budget=int(1.6 * least), offload=True, time_limit=30) for _ in range(2)]
    assert plans[0] == plans[1]
    assert copies(plans[0])
    assert "cut_off" not in plans[0].plan.meta


def test_a_step_that_does_nothing_or_needs_nothing_away_has_a_plan():
    for step in (lambda x: x, lambda x: x * 2):
        plan = pt.plan(step, [torch.ones(8)], budget="1MB", device="h200")
        assert (plan.status if plan.plan.graph.ops else "optimal", plan.offloaded) == ("optimal", 0)
        assert len(plan.plan.machine.level) == 1


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.project, self.merge = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.widen, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            self.project(self.norms[0](x)).view(batch, length, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(torch.nn.functional.gelu(self.widen(self.norms[1](x))))


def test_a_model_without_memory_is_planned_and_left_as_it_was():
    """People who ask whether a model will fit make it without memory, in a mode of their own."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = torch.nn.Sequential(Block(64), Block(64))
        rule = torch.optim.AdamW(model.parameters(), foreach=True)

        def step(x):
            rule.zero_grad()
            loss = model(x).square().mean() * torch.tensor(2.0)
            loss.backward()
            rule.step()
            return loss

        captured = pt.capture(step, torch.empty(2, 16, 64))
    assert all(type(p.data) is FakeTensor and not [n for n in vars(p) if "pebbler" in n] for p in model.parameters())
    costs = pt.roofline(captured, "h200")
    free, (_, least) = pt.plan_captured(captured, costs), pt.least_budget(captured, costs, time_limit=0.3)
    plan = pt.plan_captured(captured, costs, budget=(least + free.peak) // 2, time_limit=0.3)
    assert plan.peak <= (least + free.peak) // 2 < free.peak


@pytest.mark.slow
def test_two_thousand_ops_are_planned_within_a_minute(capsys):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = torch.nn.Sequential(*(Block(1024) for _ in range(36)))
        rule = torch.optim.AdamW(model.parameters(), foreach=True)

        def step(x):
            rule.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            rule.step()
            return loss

        began = time.monotonic()
        captured = pt.capture(step, torch.empty(16, 1024, 1024))
    captured_in = time.monotonic() - began
    costs = pt.roofline(captured, "h200")
    free, (_, least) = pt.plan_captured(captured, costs), pt.least_budget(captured, costs)
    began = time.monotonic()
    plan = pt.plan_captured(captured, costs, budget=(least + free.peak) // 2, time_limit=20)
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(
            f"\n{len(plan.plan.graph.ops):,} ops captured in {captured_in:.1f} s, planned in {seconds:.1f} s: "
            f"{plan.offloaded / 2**30:.2f} GiB to the host, {plan.recomputed} runs again, {plan.cost / free.cost:.4f} of the time"
        )
    assert len(plan.plan.graph.ops) >= 2000
    assert plan.offloaded > 0
    assert all(judgement.legal for judgement in plan.judge())
    assert seconds < 60
