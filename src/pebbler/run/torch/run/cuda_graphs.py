"""Recording a program on a GPU as CUDA graphs: what `program_replay` asks of a device, in torch's calls.

All recordings of a step take their memory from one pool, because only one of them runs at a time: what one leaves there the next
may overwrite. A program that leaves something behind has a pool of its own. A pool belongs to its graphs for as long as they live,
whole; so pools, and not what is in use in them, count against the budget.

Random ops draw from torch's own generator, which CUDA graphs advance as the ops would. An op that runs again draws from a copy of
it, which before every replay is set to where the generator was when the op first ran.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from pebbler.run.torch.capture.random_state import drawn_so_far

if TYPE_CHECKING:
    from pebbler.run.torch.run.program import Program

__all__ = ["CudaGraphs", "fine_blocks", "graphs_on"]

Pool = tuple[int, int]


def graphs_on(device: str) -> CudaGraphs | None:
    """Return the recorder of programs on a device, None if there is none.

    >>> graphs_on("cpu") is None
    True
    """
    return CudaGraphs(device) if device.startswith("cuda") else None


class CudaGraphs:
    """The recordings of one step on a device, and the memory that they share."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.stream: Any = None
        self._shared: Pool | None = None
        self._recorders: list[_CudaRecorder] = []

    def recorder(self, program: Program, budget: int | None) -> _CudaRecorder:
        """Return a recorder of a program; all memory held on the device must stay within the budget."""
        if self.stream is None:
            self.stream = torch.cuda.Stream(self.device)
        if program.binds:
            pool = torch.cuda.graph_pool_handle()
        else:
            pool = self._shared = self._shared or torch.cuda.graph_pool_handle()
        made = _CudaRecorder(self, program, pool, budget)
        self._recorders.append(made)
        return made

    def forget(self, recorder: _CudaRecorder) -> None:
        """Count a recorder no longer."""
        if recorder in self._recorders:
            self._recorders.remove(recorder)

    def release(self, pool: Pool) -> None:
        """Give up all recordings in a pool, and its memory."""
        torch.cuda.synchronize(self.device)
        for recorder in [known for known in self._recorders if known.pool == pool]:
            recorder.reset()
        if pool == self._shared:
            self._shared = None
        torch.cuda.empty_cache()

    @property
    def pool_bytes(self) -> int:
        """The bytes of all pools."""
        return sum(pool_bytes(pool) for pool in {recorder.pool for recorder in self._recorders})


def pool_bytes(pool: Pool) -> int:
    """Return the bytes that a pool has taken."""
    segments = torch.cuda.memory_snapshot()
    return sum(int(s["total_size"]) for s in segments if tuple(s["segment_pool_id"]) == tuple(pool))


class _CudaRecorder:
    """Records one program; see `program_replay.GraphRecorder`."""

    def __init__(self, graphs: CudaGraphs, program: Program, pool: Pool, budget: int | None) -> None:
        self.graphs, self.program, self.pool, self.budget = graphs, program, pool, budget
        self._pieces: list[Any] = []
        self._open: ExitStack | None = None
        self._graph: Any = None
        self._outside = 0
        self._generator = torch.cuda.default_generators[torch.device(graphs.device).index or 0]
        self._copies: dict[
            torch.fx.Node, tuple[Any, int]
        ] = {}  # by the node that sets the generator back: a copy, its offset
        self._own: Any = None  # the generator's own state, while a draw is repeated
        self._spare: Any = None  # a copy of it as it was before a piece
        self.valid = True

    def begin(self, redraws: Sequence[torch.fx.Node]) -> None:
        """Begin a piece."""
        if not self._pieces:
            gc.collect()  # what garbage holds would be missing
            torch.cuda.synchronize(self.graphs.device)
            torch._C._cuda_clearCublasWorkspaces()  # those of the recording come from its pool
            torch.cuda.empty_cache()
            self._outside = int(torch.cuda.memory_allocated(self.graphs.device))
        self._graph, self._spare = torch.cuda.CUDAGraph(), self._generator.clone_state()
        for node in redraws:
            saved = node.args[0]
            assert isinstance(saved, torch.fx.Node)
            self._copies[node] = self._generator.clone_state(), saved.meta["drawn"]
            if hasattr(self._graph, "register_generator_state"):  # later versions of torch do so by themselves
                self._graph.register_generator_state(self._copies[node][0])
        transfers = self.program.transfers
        with ExitStack() as stack:
            stream = self.graphs.stream
            stream.wait_stream(torch.cuda.current_stream(self.graphs.device))
            stack.enter_context(torch.cuda.stream(stream))
            stack.enter_context(fine_blocks(self.graphs.device))
            if transfers is not None:
                transfers.begin_recording()
                stack.callback(transfers.forget_recording)
            self._graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            stack.callback(self._graph.capture_end)
            self._open = stack.pop_all()

    def end(self) -> Callable[[], None]:
        """End the piece; return a function that replays it."""
        assert self._open is not None
        if self.program.transfers is not None:
            self.program.transfers.end_recording()
        stack, self._open = self._open, None
        stack.close()
        self._pieces.append(self._graph)
        return self._graph.replay  # type: ignore[no-any-return]

    def abandon(self) -> None:
        """Give up: no graph stays in this pool, and the generator is as it was."""
        if self._open is not None:
            with suppress(Exception):  # of a recording that is broken already
                self._open.close()
            self._open = None
            self._generator.graphsafe_set_state(
                self._spare
            )  # its own state may be taken for that of a recording for good
        self.graphs.release(self.pool)

    def finish(self) -> int:
        """Return the bytes by which the pools, and allocations outside of them, exceed the budget."""
        torch._C._cuda_clearCublasWorkspaces()
        taken = self._outside + self.graphs.pool_bytes
        return 0 if self.budget is None else max(0, taken - self.budget)

    def reset(self) -> None:
        """Let go of all pieces."""
        self.valid = False
        for piece in self._pieces:
            piece.reset()
        self._pieces, self._copies = [], {}
        self.graphs.forget(self)

    def save(self, node: torch.fx.Node) -> None:
        """Nothing: where the generator is here follows from where it is at the start."""

    def restore(self, node: torch.fx.Node, saved: torch.fx.Node) -> None:
        """Draw from the copy that is set to the saved state, or, after that, from the generator again."""
        if self._own is None:
            self._own = self._generator.graphsafe_get_state()
            self._generator.graphsafe_set_state(self._copies[node][0])
        else:
            self._generator.graphsafe_set_state(self._own)
            self._own = None

    def prepare(self) -> None:
        """Set the copies of the generator to where the generator will be when each op first runs."""
        if self._copies:
            state = self._generator.get_state()
            offset = drawn_so_far(state)
            for copy, drawn in self._copies.values():
                state[8:16] = torch.frombuffer(bytearray((offset + drawn).to_bytes(8, "little")), dtype=torch.uint8)
                copy.set_state(state)

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the same memory that does not keep it."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() == 0:
            return tensor
        same = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), tensor.device, storage.nbytes())
        new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return new.set_(same, tensor.storage_offset(), tensor.shape, tensor.stride())


# CUDA's caching allocator while a plan is recorded: blocks as large as what is asked for ---------------------------------
# By default it hands out a free block whole where less than 1 MiB of it would remain. How much that comes to depends on what was
# freed before, so it differs from step to step, and a plan that holds hundreds of values at once cannot count it. With segments
# that grow, blocks are cut to multiples of 512 bytes, which plans do count.

_within: list[str] = []  # whether blocks are cut to size already


@contextmanager
def fine_blocks(device: str) -> Iterator[None]:
    """Cut blocks to size; where the environment configures the allocator, it stays as it is.

    >>> with fine_blocks("cpu"):
    ...     pass
    """
    configured = any(os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    if configured or _within or not device.startswith("cuda"):
        yield
        return
    _set("expandable_segments:True")
    _within.append(device)
    try:
        yield
    finally:
        _within.clear()
        _set("expandable_segments:False")


def _set(settings: str) -> None:
    torch._C._accelerator_setAllocatorSettings(settings)
