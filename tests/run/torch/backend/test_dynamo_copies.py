"""Copies of Dynamo's graphs: torch must know their parameters, or it saves other values for them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._inductor.compile_fx import compile_fx
from torch._inductor.custom_graph_pass import CustomPartitionerFn

from pebbler.run.torch.backend.dynamo_copies import copy_graph
from pebbler.run.torch.backend.spare_gradients import SpareGradients, expects_nothing

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


class Asked(Exception):
    """The end of a compilation, at the partitioner."""


class StaticInputs(CustomPartitionerFn):
    """Notes which inputs stay where they are from step to step, and compiles nothing."""

    def __init__(self):
        self.places = None

    def __call__(self, gm, joint_inputs, **options):
        self.places = options["static_lifetime_input_indices"]
        raise Asked

    def uuid(self):
        return None


def static_inputs(gm, inputs):
    noted = StaticInputs()
    with pytest.raises(Asked):
        compile_fx(gm, inputs, config_patches={"custom_partitioner_fn": noted})
    return noted.places


def test_copies_have_the_parameters_of_their_graph():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3, bias=False))
    found = {}

    def forward(x):
        logits = model(x)
        return logits.square().mean(), logits

    def backend(gm, inputs):
        spare = SpareGradients(copy_graph(gm), expects_nothing(gm), lambda: None)
        assert spare.places == [1]
        # The graph that Dynamo has made is compiled last: Inductor changes it.
        for kind, graph in (
            ("bare copy", copy.deepcopy(gm)), ("copy", copy_graph(gm)), ("copy of a copy", copy_graph(copy_graph(gm))),
            ("without logits", spare.without()), ("own", gm),
        ):  # fmt: skip
            found[kind] = static_inputs(graph, inputs)
        return gm.forward

    torch.compile(forward, backend=backend)(torch.randn(8, 4))
    own = found.pop("own")
    assert len(own) == len(list(model.parameters())) + len(list(model.buffers()))
    assert found.pop("bare copy") == []  # once this is no longer so, `copy_graph` is not needed
    assert found == {"copy": own, "copy of a copy": own, "without logits": own}
