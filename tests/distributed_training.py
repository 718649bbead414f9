"""Checks of the backend in two processes that talk by gloo; `test_distributed.py` starts them and reads what they found.

    python distributed_training.py RANK FOLDER CHECK...

Inductor's kernels are replaced by torch's own (`eager_kernels`): what is split, saved and sent is the same, and no C++ is compiled.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import torch
import torch._inductor.compile_fx as inductor
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import pebbler.torch as pt
from pebbler.run.torch.backend import dynamo_backend, graph_frontier, partitioner, step_budget
from pebbler.run.torch.backend.step_memory import StepMemory

WIDTH, DEPTH, ROWS, STEPS = 32, 3, 256, 4


class Block(nn.Module):
    """A layer whose backward wants several of its values."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.exp(torch.tanh(self.up(x))) - 1).sin()


class Blocks(nn.Module):
    def __init__(self, wrap=lambda block: block, depth=DEPTH):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(wrap(Block()) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Checkpointed(Blocks):
    """Blocks that are checkpointed by the user in forward."""

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def train(forward, parameters, steps=STEPS):
    """Return the losses of a few steps, each rank on batches of its own."""
    rule = torch.optim.SGD(list(parameters), lr=0.1)
    losses = []
    for turn in range(steps):
        torch.manual_seed(100 * turn + dist.get_rank())
        rule.zero_grad()
        loss = forward(torch.randn(ROWS, WIDTH)).square().mean()
        loss.backward()
        rule.step()
        losses.append(loss.item())
    return losses


def whole(model):
    """Return all numbers of a model in one list, sharded ones put together."""
    tensors = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([p.detach().flatten() for p in tensors])


class Seen:
    """The graphs that were planned, and how often each operator is in the backward graphs and forward graphs that were compiled."""

    def __init__(self):
        self.planned, self.compiled = [], []

    def kernels(self, gm, inputs, **more):
        self.compiled.append(gm)
        return inductor_boxed(gm)

    def clear(self):
        torch._dynamo.reset()
        step_budget._BUDGETS.clear()
        self.planned.clear()
        self.compiled.clear()

    def report(self):
        budgets = list(step_budget._BUDGETS.values())
        return {
            "graphs": len(self.planned),
            "places": [graph.frontier.place for graph in self.planned if graph.frontier],
            "peaks": [budget.peak for budget in budgets],
            "limits": [budget.options.budget for budget in budgets],
        }


def inductor_boxed(gm):
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(gm.forward)


SEEN = Seen()


def eager_kernels():
    """Let torch run what Inductor would compile, and note every planned graph."""
    inductor.compile_fx_inner = SEEN.kernels
    made = dynamo_backend.PlannedGraph.__init__

    def noted(self, *args):
        made(self, *args)
        SEEN.planned.append(self)

    dynamo_backend.PlannedGraph.__init__ = noted


def compiled(module, budget):
    return torch.compile(module, backend=dynamo_backend.pebbler, options={"budget": budget})


@contextmanager
def chosen(start):
    """Let graphs start with one of their choices."""
    settle, seen = partitioner.settle_place, set()

    def begin(frontier, room, schedule):
        if id(frontier) in seen:
            settle(frontier, room, schedule)
            return
        seen.add(id(frontier))
        frontier.place, frontier.room = (frontier.least if start < 0 else start), 10**15

    with ExitStack() as stack:
        if start is not None:
            stack.enter_context(mock.patch.object(partitioner, "settle_place", begin))
        yield


def compare(build, wrap, budget, start=None):
    """Train a model as torch does and within a budget; return how far apart they are, and what was planned.

    Graphs start with the choice at place `start`, 0 as if the simulation saw nothing, where it is given.
    """
    model = build()
    wanted, numbers = train(wrap(model, lambda m: m), model.parameters()), whole(model)
    SEEN.clear()
    model = build()
    with chosen(start):
        found = train(wrap(model, lambda m: compiled(m, budget)), model.parameters())
    return {
        "loss": max(abs(a - b) for a, b in zip(found, wanted, strict=True)),
        "numbers": (whole(model) - numbers).abs().max().item(),
        "sum": whole(model).double().sum().item(),
        **SEEN.report(),
    }


def data_parallel(outside):
    """DDP around a compiled model, or compiled with DDP; the ranks have budgets of their own."""

    def wrap(model, compiled_or_not):
        if outside:
            return compiled_or_not(DistributedDataParallel(model, bucket_cap_mb=0.04))
        return DistributedDataParallel(compiled_or_not(model), bucket_cap_mb=0.04)

    return compare(Blocks, wrap, budget=(2_500_000, 950_000)[dist.get_rank()], start=0)


def sharded(each):
    """FSDP2 over blocks; the whole model compiled, or every block."""

    def wrap(model, compiled_or_not):
        mesh = init_device_mesh("cpu", (2,))
        if each:
            model.blocks = nn.ModuleList(compiled_or_not(block) for block in model.blocks)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model if each else compiled_or_not(model)

    return compare(Blocks, wrap, budget=1_000_000)


def split_layers():
    """Tensor parallel layers: the graph has collectives, and the tightest choice wants to run much again."""
    mesh = init_device_mesh("cpu", (2,))

    def wrap(model, compiled_or_not):
        for block in model.blocks:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return compiled_or_not(model)

    steps = []

    def noted(step):
        steps.append(step)
        return StepMemory(step)

    with mock.patch.object(graph_frontier, "StepMemory", noted):
        found = compare(Blocks, wrap, budget=10**8, start=-1)
    step = steps[0]
    early = [i for i, node in enumerate(step.nodes) if node.name.startswith("all_reduce") and not step.tangent[i]]
    found["may_run_again"] = sum(not step.fixed[i] for i in early)
    found["nothing_saved_is_legal"] = StepMemory(step).simulate(()).legal
    names = [
        node.name for gm in SEEN.compiled[-2:] for node in gm.graph.nodes
    ]  # forward and backward, after schedules of them
    found["collectives"] = sum(name.startswith("all_reduce") for name in names)
    found["computed_again"] = sum(name.startswith("tanh") for name in names) - DEPTH
    return found


def checkpointed(kind):
    """Checkpoints of the user's own, inside the compiled model and around compiled blocks."""
    build = {"inside": Checkpointed, "wrapper": lambda: Blocks(checkpoint_wrapper), "around": Blocks, "old": Blocks}[
        kind
    ]

    def wrap(model, compiled_or_not):
        if kind in ("inside", "wrapper"):
            return DistributedDataParallel(compiled_or_not(model))
        blocks = [compiled_or_not(block) for block in model.blocks]

        def forward(x):
            x.requires_grad_()
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=kind == "old")
            return x

        return forward

    return compare(build, wrap, budget=1_000_000)


def refused():
    """A rank whose budget cannot be kept says so itself."""
    SEEN.clear()
    model = Blocks(depth=2)
    forward = compiled(model, 10**8 if dist.get_rank() else 200_000)
    try:
        train(forward, model.parameters())
    except pt.OverBudget as error:
        return {"says": str(error)}
    return {"says": ""}


def in_backward(kind):
    """Optimizer steps during backward: right under FSDP2, refused under DDP, whose averages come later."""

    def run(inside):
        model = Blocks()
        sharded_or_not = partial(fully_shard, mesh=init_device_mesh("cpu", (2,)))
        wrapped = (DistributedDataParallel if kind == "ddp" else sharded_or_not)(model)
        rule = torch.optim.AdamW(model.parameters(), lr=0.01)
        if inside:
            pt.step_in_backward(rule)
        for turn in range(STEPS):
            torch.manual_seed(100 * turn + dist.get_rank())
            wrapped(torch.randn(ROWS, WIDTH)).square().mean().backward()
            rule.step()
            rule.zero_grad()
        return whole(model)

    try:
        return {"same": torch.equal(run(False), run(True)), "says": ""}
    except pt.GradientGone as error:
        return {"says": str(error)}


CHECKS = {
    "fsdp_in_backward": partial(in_backward, "fsdp"),
    "ddp_in_backward": partial(in_backward, "ddp"),
    "ddp_outside": partial(data_parallel, outside=True),
    "ddp_inside": partial(data_parallel, outside=False),
    "fsdp_whole": partial(sharded, each=False),
    "fsdp_each": partial(sharded, each=True),
    "tensor_parallel": split_layers,
    "checkpoint_inside": partial(checkpointed, "inside"),
    "checkpoint_wrapper": partial(checkpointed, "wrapper"),
    "checkpoint_around": partial(checkpointed, "around"),
    "checkpoint_old": partial(checkpointed, "old"),
    "refused": refused,
}


def main(rank, folder, *names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=int(rank), world_size=2)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1000  # so that small models have several buckets
    eager_kernels()
    for name in names:
        found = CHECKS[name]()
        Path(folder, f"{name}.{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
