"""A runnable phase: an FX graph, and what to pass to it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_flatten

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Place
from pebbler.run.torch.capture.random_state import drawn_so_far, restore_generator, save_generator
from pebbler.run.torch.run.host_copies import Transfers
from pebbler.run.torch.run.program_replay import ProgramReplay

__all__ = ["Program"]

_LISTED = 8  # places named in a message


class _Verifier(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program node by node and holds every new tensor against the recording: views depend on its strides.

    For whoever replays the program, it notes in each node's `meta` whether it has to do with the host (`host`), what tensor it
    makes (`form`), and how much had been drawn where the generator's state was saved (`drawn`).
    """

    def __init__(self, module: torch.fx.GraphModule, device: str) -> None:
        super().__init__(module)
        self.at = -1  # number of the node that runs
        self.device = device
        self.drawn = drawn_so_far(save_generator(device)) if device.startswith("cuda") else 0

    def run_node(self, n: torch.fx.Node) -> Any:
        self.at += 1
        result = super().run_node(n)
        self._note(n, result)
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

    def _note(self, n: torch.fx.Node, result: Any) -> None:
        leaves = tree_flatten(([self.env[operand] for operand in n.all_input_nodes], result))[0]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        reads = bool(tensors) and isinstance(result, int | float | complex)
        on_host = any(str(tensor.device) != self.device for tensor in tensors)
        n.meta["host"] = (reads or on_host) and n.target not in (save_generator, restore_generator)
        made = isinstance(result, torch.Tensor)
        n.meta["form"] = (tuple(result.shape), result.stride(), result.dtype, result.device) if made else None
        if n.target is save_generator and self.device.startswith("cuda"):
            n.meta["drawn"] = drawn_so_far(result) - self.drawn


class Program:
    """A runnable phase: a GraphModule, and what to pass to it.

    The inputs are the tensors found at `places`, then the constants, then the learning rates named in `rates`; the outputs are the
    step's result (flat), then what goes to the places of `binds`. `transfers` holds what its copies to the host need.
    With `replay` it is recorded, once it has run, and replayed.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        places: list[Place],
        rates: list[str],
        binds: list[Place],
        device: str,
        transfers: Transfers | None = None,
    ) -> None:
        self.module, self.places, self.rates, self.binds, self.transfers = module, places, rates, binds, transfers
        self.device = device
        self.replay: ProgramReplay | None = None
        self.has_run = False

    def __call__(self, *inputs: Any) -> Any:
        """Run the program; the first time, check what the kernels return. An error says what had been changed by then."""
        transfers = () if self.transfers is None else (self.transfers,)
        interpreter: Any = None
        try:
            if not self.has_run:
                interpreter = _Verifier(self.module, self.device)
                outputs = interpreter.run(*transfers, *inputs)
            elif self.replay is not None and (interpreter := self.replay.ready(inputs)) is not None:
                outputs = interpreter.play(*inputs)
            else:
                # Not by calling the module: its own handler prints the error, and forgets where in the program it was.
                outputs = self.module.forward(*transfers, *inputs)
        except BaseException as error:
            if self.transfers is not None:
                self.transfers.synchronize()
            at = interpreter.at if interpreter is not None else self._position(error.__traceback__)
            error.add_note(self._changed_before(at))
            raise
        self.has_run = True
        return outputs

    def is_here(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the device where the program computes."""
        return str(tensor.device) == self.device

    def _position(self, trace: TracebackType | None) -> int | None:
        """Return the number of the node that an error comes from, None if that is unknown."""
        code = self.module.forward.__func__.__code__
        while trace is not None:
            if trace.tb_frame.f_code is code:
                position: int | None = self.module._lineno_map.get(trace.tb_lineno - self.module._prologue_start)
                return position
            trace = trace.tb_next
        return None

    def _changed_before(self, position: int | None) -> str:
        """Return in words what the nodes before one have changed of what outlives the step."""
        nodes = list(self.module.graph.nodes)
        count = len({place for node in nodes for place in node.meta.get("changes", ())})
        done = nodes if position is None else nodes[: position + 1]
        places = list(dict.fromkeys(place for node in done for place in node.meta.get("changes", ())))
        if not places:
            return "pebbler: the planned step had not changed any of its parameters, buffers or state when it failed"
        names = ", ".join(".".join(map(str, place)) for place in places[:_LISTED])
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        return (
            f"pebbler: when the planned step failed, up to {len(places)} of the {count} tensors that it changes had been changed: "
            f"{names}{more}; load a checkpoint before training goes on"
        )
