"""A training step of one attention block. Its tensors have axes, so the step can be tiled and fused."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.workloads.arguments import require_whole

__all__ = ["attention"]

LEARNING = {"lr": 0.1, "wd": 0.01}
_EXTENTS = "tokens", "keys", "width", "heads", "depth", "out"


def attention(tokens: int = 64, width: int = 64, heads: int = 4) -> Graph:
    """One training step of an attention block: projections, softmax, output, squared error, backward and updates.

    Queries come from `x`, keys and values from `context`, a sequence of the same length: with the same tokens in both this is
    self-attention. The axes are tokens (of queries), keys, width, heads, depth (per head) and out.

    >>> attention(tokens=8, width=12, heads=3).tensor_named("scores").axes
    (('heads', 3), ('tokens', 8), ('keys', 8))
    """
    require_whole("attention", 1_000_000, tokens=tokens, width=width, heads=heads)
    if width % heads:
        raise InputError(f"workload attention: heads must divide width, got heads={heads} and width={width}")
    graph = Graph(f"attention:tokens={tokens},width={width},heads={heads}")
    extents = dict(zip(_EXTENTS, (tokens, tokens, width, heads, width // heads, width), strict=True))

    def tensor(name: str, axes: str, kind: str = "temp") -> None:
        shape = [(axis, extents[axis]) for axis in axes.split()]
        graph.tensor(name, math.prod(extent for _, extent in shape), kind, axes=shape)  # type: ignore[arg-type]

    def product(name: str, reads: Sequence[str], result: str, axes: str) -> None:
        tensor(result, axes)
        graph.op(name, reads, [result], meta={"kernel": "product"})

    weights = {"Wq": "heads depth width", "Wk": "heads depth width", "Wv": "heads depth width", "Wo": "out heads depth"}
    for name, axes in weights.items():
        tensor(name, axes, "param")
    tensor("x", "tokens width", "input")
    tensor("context", "keys width", "input")
    tensor("target", "tokens out", "input")
    scale = (width // heads) ** -0.5

    product("fwd_q", ["x", "Wq"], "q", "tokens heads depth")
    product("fwd_k", ["context", "Wk"], "k", "keys heads depth")
    product("fwd_v", ["context", "Wv"], "v", "keys heads depth")
    product("fwd_scores", ["q", "k"], "scores", "heads tokens keys")
    tensor("weight", "heads tokens keys")
    softmax = {"kernel": "softmax", "axis": "keys", "scale": scale}
    graph.op("fwd_softmax", ["scores"], ["weight"], whole=["keys"], meta=softmax)
    product("fwd_mix", ["weight", "v"], "mix", "tokens heads depth")
    product("fwd_out", ["mix", "Wo"], "y_hat", "tokens out")
    tensor("loss", "", "output")
    graph.op("fwd_loss", ["y_hat", "target"], ["loss"], meta={"kernel": "squared_error"})
    tensor("dy", "tokens out")
    slope = {"kernel": "squared_error_grad", "scale": 2 / tokens}
    graph.op("bwd_loss", ["y_hat", "target"], ["dy"], pointwise=True, meta=slope)

    product("bwd_dWo", ["dy", "mix"], "dWo", weights["Wo"])
    product("bwd_dmix", ["dy", "Wo"], "dmix", "tokens heads depth")
    product("bwd_dweight", ["dmix", "v"], "dweight", "heads tokens keys")
    product("bwd_dv", ["weight", "dmix"], "dv", "keys heads depth")
    tensor("dscores", "heads tokens keys")
    back = {"kernel": "softmax_grad", "axis": "keys", "scale": scale}
    graph.op("bwd_softmax", ["dweight", "weight"], ["dscores"], whole=["keys"], meta=back)
    product("bwd_dq", ["dscores", "k"], "dq", "tokens heads depth")
    product("bwd_dk", ["dscores", "q"], "dk", "keys heads depth")
    product("bwd_dWq", ["dq", "x"], "dWq", weights["Wq"])
    product("bwd_dWk", ["dk", "context"], "dWk", weights["Wk"])
    product("bwd_dWv", ["dv", "context"], "dWv", weights["Wv"])
    for name in weights:
        graph.op(f"upd_{name}", [name, f"d{name}"], [name], pointwise=True, meta={"kernel": "sgd", **LEARNING})
    return graph
