"""Recordings of programs without a GPU: calls of operators are kept, not done, and done again on the same memory in every replay.

As with CUDA graphs, nothing happens while a recording is made, what a recording makes has no meaning before a replay, and a replay
reads and writes the memory that was there then, whatever has become of the tensors since.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from pebbler.run.torch.capture.operators import values_written
from pebbler.run.torch.run.verification import UndoLog


def storage_of(x):
    return x.untyped_storage()._cdata


def bare(tensor):
    """Return a tensor on the same memory of which autograd knows nothing."""
    new = torch.empty(0, dtype=tensor.dtype)
    return new.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


class Kernels(TorchDispatchMode):
    """Notes every call; refuses what the device cannot record."""

    def __init__(self, refused):
        super().__init__()
        self.calls, self.refused, self.log = [], refused, UndoLog()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(func).startswith(self.refused):
            raise RuntimeError("operation not permitted when stream is capturing")
        for tensor in values_written(func, args, kwargs):
            self.log.keep(tensor)
        result = func(*args, **kwargs)
        there = {storage_of(x) for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)}
        made = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor) and storage_of(x) not in there]
        self.log._made |= {storage_of(x) for x in made}
        args, kwargs = tree_map_only(torch.Tensor, bare, (args, kwargs))
        self.calls.append((func, args, kwargs, [bare(x) for x in made]))
        return result


class Piece:
    def __init__(self, calls):
        self.calls = calls
        for entry in calls:
            for made in entry[3] if isinstance(entry, tuple) else ():
                made.untyped_storage().fill_(255)  # nothing has been computed yet

    def replay(self):
        for entry in self.calls:
            if not isinstance(entry, tuple):
                entry()
                continue
            func, args, kwargs, made = entry
            before = {storage_of(x) for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)}
            again = [x for x in tree_flatten(func(*args, **kwargs))[0] if isinstance(x, torch.Tensor)]
            again = [x for x in again if storage_of(x) not in before]
            for old, new in zip(made, again, strict=True):
                old.untyped_storage().copy_(new.untyped_storage())


class Recorder:
    def __init__(self, graphs, program, budget):
        self.graphs, self.program, self.budget, self.valid = graphs, program, budget, True
        self.states, self.mode, self.pieces = {}, None, []

    def begin(self, redraws):
        self.redraws = list(redraws)
        self.drawn = torch.get_rng_state()
        self.mode = Kernels(self.graphs.refused)
        self.mode.__enter__()

    def end(self):
        self.mode.__exit__(None, None, None)
        piece, self.mode.calls = Piece(self.mode.calls), []
        self.mode.log.undo()
        torch.set_rng_state(self.drawn)
        self.mode = None
        self.pieces.append(piece)
        return piece.replay

    def abandon(self):
        if self.mode is not None:
            self.end()
        self.reset()
        self.graphs.abandoned += 1

    def reset(self):
        self.valid = False

    def finish(self):
        return self.graphs.over

    def save(self, node):
        def kernel():
            self.states[node] = torch.get_rng_state()

        kernel()
        self.mode.calls.append(kernel)

    def restore(self, node, saved):
        def kernel():
            torch.set_rng_state(self.states[saved])

        kernel()
        self.mode.calls.append(kernel)

    def prepare(self):
        self.graphs.prepared += 1

    def alias(self, tensor):
        return bare(tensor)


class SimulatedGraphs:
    """Stands in for `CudaGraphs`.

    `over` is by how many bytes recordings break the budget, `refused` how the names of operators begin that cannot be recorded.
    """

    def __init__(self, device="cpu"):
        self.recorders, self.over, self.refused = [], 0, ("nothing",)
        self.abandoned = self.prepared = 0

    def recorder(self, program, budget):
        self.recorders.append(Recorder(self, program, budget))
        return self.recorders[-1]
