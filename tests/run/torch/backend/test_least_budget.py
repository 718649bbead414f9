"""The least budget: never above what torch's own knob reaches, and what a refusal names."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn
from torch._functorch import config, partitioners

import pebbler.torch as pt
import torch_models
from pebbler.run.torch.backend import dynamo_backend, graph_frontier
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner
from pebbler.run.torch.backend.scheduled_step import copied, schedule_step
from quick_cases import quick_only

pytestmark = [
    pytest.mark.usefixtures("graphs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

SETTINGS = [tenth / 10 for tenth in range(11)]


def layers(make, shape):
    """Return a loss of some layers on one batch."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*make()), torch.randn(shape)
    return lambda: model(x).square().mean()


def trained(name, **more):
    training = getattr(torch_models, name)(**more)
    return lambda: training.loss(training.model, *training.batches[0])


LOSSES = {
    "mlp": lambda: trained("mlp"),
    "normed": lambda: trained("normed"),
    "resnet": lambda: trained("resnet"),
    "lstm": lambda: trained("lstm"),
    "gpt2": lambda: trained("gpt2"),
    "gelus": lambda: layers(lambda: [m for _ in range(6) for m in (nn.Linear(64, 64), nn.GELU())], (512, 64)),
    "encoder": lambda: layers(
        lambda: [nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True) for _ in range(3)], (4, 64, 32)
    ),
    "convolutions": lambda: layers(
        lambda: [m for i in range(4) for m in (nn.Conv2d(16 if i else 3, 16, 3), nn.BatchNorm2d(16), nn.GELU())],
        (4, 3, 32, 32),
    ),
}


class Seen(BaseException):
    """Ends a compilation before any kernel is made; torch takes other exceptions for its own."""


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_only(["mlp"], LOSSES))
def test_the_least_is_at_most_what_the_knob_reaches_at_any_setting(name, monkeypatch):
    partition, knob, graphs, least = SavedValuesPartitioner.__call__, {}, set(), []

    def look(self, gm, joint_inputs, **kwargs):
        static = kwargs.get("static_lifetime_input_indices") or ()
        as_it_is = self.refuses.__self__.forms.level == 0
        for setting in SETTINGS if as_it_is and not knob else []:
            with config.patch(activation_memory_budget=setting):
                both = partitioners.min_cut_rematerialization_partition(copied(gm), joint_inputs, **kwargs)
            step, _ = schedule_step(*both, kwargs["num_fwd_outputs"], self.device, static=static)
            knob[setting] = step.peak
            graphs.add(str(both[1].graph))
        partition(self, gm, joint_inputs, **kwargs)
        least.append(self.frontier.peak())
        raise Seen

    monkeypatch.setattr(SavedValuesPartitioner, "__call__", look)
    with pytest.raises(Seen):
        torch.compile(LOSSES[name](), backend=pebbler, options={"budget": "least"})()
    assert len(knob) == len(SETTINGS)
    assert len(graphs) > 1  # or the attack is none
    assert least[-1] <= min(knob.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_none_of_sixteen_schedules_of_every_form_holds_less_than_the_few_that_are_made(name, monkeypatch):
    partition = SavedValuesPartitioner.__call__

    def look(self, gm, joint_inputs, **kwargs):
        partition(self, gm, joint_inputs, **kwargs)
        least.append(self.frontier.peak())
        raise Seen

    monkeypatch.setattr(SavedValuesPartitioner, "__call__", look)
    least = []
    for _ in range(2):
        torch._dynamo.reset()
        with pytest.raises(Seen):
            torch.compile(LOSSES[name](), backend=pebbler, options={"budget": "least"})()
        monkeypatch.setattr(graph_frontier, "_LEAST_TRIES", 16)
        monkeypatch.setattr(graph_frontier, "_doubt", lambda frontier, own: 0.99)
        monkeypatch.setattr(dynamo_backend.PlannedGraph, "_held_by_other_forms", lambda self: math.inf)
    few, many = least
    assert few <= 1.02 * many


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelus", "normed"])
def test_the_least_of_a_refusal_is_the_least_that_is_asked_for(name):
    def held(budget):
        torch._dynamo.reset()
        loss = torch.compile(LOSSES[name](), backend=pebbler, options={"budget": budget})
        for _ in range(6):
            loss().backward()
        return dynamo_backend.shared_budget("cpu", BackendOptions.read({"budget": budget})).held

    least = held("least")
    with pytest.raises(pt.OverBudget) as refused:
        held(least // 2)
    named = int(re.search(r"known to work is ([\d,]+)", str(refused.value))[1].replace(",", ""))
    assert named == pytest.approx(least, rel=0.01)
    assert held(named) <= named
