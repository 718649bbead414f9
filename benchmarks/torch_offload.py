"""What values on the host are predicted to gain for a model on a described device, at peaks from large to small.

Nothing is run and no GPU is needed: the joint graph is traced on the CPU and planned for the device, with and without its link.

    python -m benchmarks.torch_offload gpt
    python -m benchmarks.torch_offload llama --device a100 --host 4GiB
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config

from benchmarks.torch_model_steps import MODELS
from pebbler.game.byte_sizes import bytes_of
from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner
from pebbler.run.torch.backend.sent_values import host_room
from pebbler.run.torch.backend.step_memory import SavedChoice
from pebbler.run.torch.cost.costs import DEVICES

ROWS = 16


class Planned(Exception):
    """The end of a trace: the plans are known, nothing is compiled."""


class Predictor(SavedValuesPartitioner):
    """Plans the joint graph with and without the host, and compiles nothing."""

    def __init__(self, device: str, limit: int | None, seconds: float) -> None:
        super().__init__(DEVICES[device], seconds, lambda frontier: 0)
        self.limit = limit
        self.choices: list[list[SavedChoice]] = []

    def _saved(self, graph: torch.fx.Graph, info: Any, outputs: int, choose: Any) -> list[torch.fx.Node]:
        step = JointStep.read(graph, info, outputs, self.device)
        theirs = [[step.nodes.index(node) for node in choose(1.0)]]
        for room in (None, host_room(self.device, "time", self.limit, step)):
            self.choices.append(GraphFrontier.plan(step, theirs, "", self.time_limit, room).choices)
        raise Planned


def main(arguments: Sequence[str] | None = None) -> None:
    """Print peaks, and the milliseconds predicted for each without and with the host."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--device", choices=sorted(DEVICES), default="h200")
    parser.add_argument("--host", type=bytes_of, help="bytes of the host's memory that may be taken")
    parser.add_argument("--tiny", action="store_true", help="small sizes")
    parser.add_argument("--seconds", type=float, default=60.0, help="to plan, without and with the host each")
    told = parser.parse_args(arguments)
    training = MODELS[told.model]("cpu", told.tiny)
    seen = Predictor(told.device, told.host, told.seconds)
    compiler = aot_autograd(fw_compiler=lambda gm, _: gm, bw_compiler=lambda gm, _: gm, partition_fn=seen)
    with config.patch(enable_autograd_cache=False):
        try:
            training.loss(torch.compile(training.model, backend=compiler))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            if not isinstance(error.inner_exception, Planned):
                raise
    without, with_host = seen.choices
    print("peak GiB  ms without  ms with  host GiB")
    for base in without[:: max(1, len(without) // ROWS)] + without[-1:]:
        best = min((choice for choice in with_host if choice.peak <= base.peak), key=lambda choice: choice.cost)
        print(f"{base.peak / 2**30:8.3f}  {base.cost * 1e3:10.2f}  {best.cost * 1e3:7.2f}  {best.host / 2**30:8.3f}")
    print(f"least peak: {without[-1].peak / 2**30:.3f} GiB without, {with_host[-1].peak / 2**30:.3f} GiB with the host")


if __name__ == "__main__":
    main()
