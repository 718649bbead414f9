"""Ops launched together compute the same bits and hold no more than the plan's peak."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.game.moves import Compute, Drop  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402
from pebbler.run.torch.cost.costs import Cost, Costs  # noqa: E402
from pebbler.run.torch.plan.host_link import MEMORY  # noqa: E402
from pebbler.run.torch.plan.launch_fusion import early_drops, held_between, launch_group  # noqa: E402
from pebbler.run.torch.run.runner import Runner  # noqa: E402


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_what_is_held_between_moves_adds_up_to_the_referees_peak(share):
    training = models.normed(depth=2)
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "h200")
    _, least = pt.least_budget(captured, costs, time_limit=0.3)
    most = pt.plan_captured(captured, costs, offload=False).peak
    budget = int(share * most + (1 - share) * least)
    plan = pt.plan_captured(captured, costs, budget=budget, offload=False, time_limit=0.3)
    sizes = {tensor.name: tensor.size for tensor in plan.plan.graph.tensors}
    writes = {op.name: op.writes for op in plan.plan.graph.ops}
    held = held_between(plan.plan, MEMORY)
    made = [sum(sizes[n] for n in writes[m.op]) if isinstance(m, Compute) else 0 for m in plan.plan.moves]
    peak = check(plan.plan).peak[MEMORY]
    assert max(held) <= peak <= max(a + b for a, b in zip(held, made, strict=False))
    # Dropping as early as possible is as legal, and holds no more.
    tidy = check(replace(plan.plan, moves=early_drops(plan.plan)))
    assert tidy.legal
    assert tidy.peak[MEMORY] <= peak
    assert tidy.energy == plan.plan.energy
    # A launch holds what there was, and its results.
    moves = plan.plan.moves
    assert plan.launches
    for launch in plan.launches:
        group = launch_group(captured.phases[-1], moves, launch)
        results = sum(sizes[captured.phases[-1].storage_names[s]] for s in group.makes)
        assert held[launch[0]] + results <= budget - plan.headroom
        assert all(
            isinstance(move, Drop) for i, move in enumerate(moves[launch[0] : launch[-1]], launch[0]) if i not in launch
        )


@pytest.mark.parametrize("name", ["normed", pytest.param("gpt2", marks=pytest.mark.slow)])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_any_choice_of_launches_computes_the_same_bits(name, data):
    if name == "gpt2" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    training, captured, base, least, most, losses = known_training(name)
    chosen: dict[str, Cost] = {}
    pays = data.draw(st.randoms(use_true_random=False))

    def price(phase, group):
        key = " ".join(phase.record.describe(call) for call in group.calls)
        return chosen.setdefault(key, Cost(0.0 if pays.random() < 0.6 else 1e3, 0.0, 0))

    budget = data.draw(st.none() | st.integers(least, most))
    costs = Costs(base, base.link, price)
    plan = pt.plan_captured(captured, costs, budget=budget, offload=False, time_limit=0.2)
    step = Runner(captured, [phase.moves for phase in plan.phases], launches=plan.launches)
    training.reset()
    assert [step(*batch).item() for batch in training.batches] == losses


@functools.cache
def known_training(name):
    """Return a training, its fused step, costs, least and greatest budget, and eager's losses."""
    training = getattr(models, name)()
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    training.reset()
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "h200")
    _, least = pt.least_budget(captured, costs, offload=False, time_limit=0.3)
    return training, captured, costs, least, pt.plan_captured(captured, costs, offload=False).peak, losses
