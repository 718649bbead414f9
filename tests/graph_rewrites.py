"""Compile a function with its graphs rewritten, with torch's own kernels in place of Inductor's."""

from __future__ import annotations

import torch
from torch._functorch._aot_autograd.utils import make_boxed_func

__all__ = ["gradients", "rewritten"]


def rewritten(function, rewrite, graphs=None):
    """Return a compiled function, and the list that gets what `rewrite` says of each graph; `graphs` gets forward and backward."""
    said = []
    kept = [] if graphs is None else graphs

    def backend(gm, inputs):
        from torch._inductor.compile_fx import compile_fx  # warns when it is imported

        said.extend(rewrite(gm.graph))
        gm.graph.lint()
        gm.recompile()
        return compile_fx(gm, inputs, inner_compile=keep)

    def keep(gm, *_, **__):
        kept.append(gm.graph)
        return make_boxed_func(gm.forward)

    torch._dynamo.reset()
    return torch.compile(function, backend=backend), said


def gradients(function, inputs, scale=3.0):
    """Return a function's result and the gradients of all inputs that want one."""
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    value = function(*inputs)
    return [value.detach(), *torch.autograd.grad((value * scale).sum(), wanted)]
