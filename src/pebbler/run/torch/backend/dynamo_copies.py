"""Copies of Dynamo's graphs, for compiling one again: AOTAutograd must still see which inputs are parameters.

Where inputs came from is in attributes of the graph and its placeholders that `copy.deepcopy` leaves out. Without them parameters
count as parts of the batch, which may move between steps, and other values are saved. Private in torch: `_param_name_to_source`,
`_dynamo_source`.
"""

from __future__ import annotations

import copy

from torch import fx

__all__ = ["copy_graph"]


def copy_graph(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph, with what Dynamo says of its inputs.

    >>> gm = fx.symbolic_trace(lambda x: x + 1)
    >>> next(iter(gm.graph.nodes))._dynamo_source = "the batch"
    >>> next(iter(copy_graph(gm).graph.nodes))._dynamo_source
    'the batch'
    """
    made = copy.deepcopy(gm)
    if hasattr(gm, "_param_name_to_source"):
        made._param_name_to_source = gm._param_name_to_source
    inputs = (one.graph.find_nodes(op="placeholder") for one in (gm, made))
    for node, again in zip(*inputs, strict=True):
        if hasattr(node, "_dynamo_source"):
            again._dynamo_source = node._dynamo_source
    return made
