"""A runnable phase: an FX graph, and what to pass to it."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Place
from pebbler.run.torch.run.host_copies import Transfers

__all__ = ["Program"]


class _Verifier(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program node by node and holds every new tensor against the recording: views depend on its strides."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        info = n.meta.get("made")
        if n.op == "call_function" and not n.users:
            result = None  # the interpreter would keep it to the end
        if info is None or not isinstance(result, torch.Tensor) or 0 in info.shape:
            return result
        steps = [(size, step) for size, step in zip(result.shape, result.stride(), strict=True) if size > 1]
        known = [(size, step) for size, step in zip(info.shape, info.stride, strict=True) if size > 1]
        if (tuple(result.shape), steps, result.dtype) != (info.shape, known, info.dtype):
            raise InputError(
                f"{n.target} made a {result.dtype} tensor of shape {tuple(result.shape)}, strides {result.stride()}; its shape "
                f"function said {info.dtype}, {info.shape}, {info.stride}, so the captured views would be wrong"
            )
        return result


class Program:
    """A runnable phase: a GraphModule, and what to pass to it.

    The inputs are the tensors found at `places`, then the constants, then the learning rates named in `rates`; the outputs are the
    step's result (flat), then what goes to the places of `binds`. `transfers` holds what its copies to the host need.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        places: list[Place],
        rates: list[str],
        binds: list[Place],
        transfers: Transfers | None = None,
    ) -> None:
        self.module, self.places, self.rates, self.binds, self.transfers = module, places, rates, binds, transfers
        self._verified = False

    def __call__(self, *inputs: Any) -> Any:
        """Run the program; the first time, check what the kernels return."""
        if self.transfers is None:
            return self._run(*inputs)
        try:
            return self._run(self.transfers, *inputs)
        except BaseException:
            self.transfers.synchronize()
            raise

    def _run(self, *inputs: Any) -> Any:
        if self._verified:
            return self.module(*inputs)
        outputs = _Verifier(self.module).run(*inputs)
        self._verified = True
        return outputs
