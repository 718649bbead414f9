"""Many architectures, one after the other on a CPU: same bits, budget kept, set-up time per op, time against eager, least budget.

Every step is planned half-way between the least budget found and what eager holds, runs three steps in lockstep with eager (all
that the model and the optimizer hold is compared bit for bit), and its peak is measured by torch's allocator. A model that pebbler
refuses gets its reason as its row. Models come from whichever of transformers, torchvision, timm, diffusers and peft are
installed; their names follow the command.

    python benchmarks/torch_zoo.py --output zoo.json
    python benchmarks/torch_zoo.py Llama resnet50
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pebbler.torch as pt
from benchmarks.torch_zoo_models import Entry, entries
from pebbler.errors import PebblerError

STEPS = 3


class Training:
    """A model with AdamW, and the step that people write."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.optimizer = (
            model,
            torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3),
        )

    def step(self, **batch: Any) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(**batch)["loss"]
        loss.backward()
        self.optimizer.step()
        return loss

    def tensors(self) -> list[torch.Tensor]:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return [
            *self.model.parameters(),
            *self.model.buffers(),
            *(value for value in state if isinstance(value, torch.Tensor)),
        ]

    def resident(self, batch: dict[str, Any]) -> int:
        tensors = [*self.tensors(), *(value for value in batch.values() if isinstance(value, torch.Tensor))]
        return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def measure(entry: Entry, time_limit: float) -> dict[str, Any]:
    """Return the row of one model."""
    torch.manual_seed(0)
    model, batch = entry.make()
    model.train()
    eager, planned = Training(model), Training(copy.deepcopy(model))
    names, leaves = list(batch), list(batch.values())

    def step(*leaves: Any) -> torch.Tensor:
        return planned.step(**dict(zip(names, leaves, strict=True)))

    began = time.perf_counter()
    captured = pt.capture(step, *leaves)
    capture = time.perf_counter() - began
    ops = len(captured.graph.ops)
    costs = pt.profile(captured, repeats=1)
    free = pt.plan_captured(captured, costs).peak
    lower, least = pt.least_budget(captured, costs, time_limit=time_limit)
    budget = (free + least) // 2
    plan = pt.plan_captured(captured, costs, budget=budget, time_limit=time_limit)
    fast = pt.compile(plan, step)
    same = True
    for number in range(STEPS):
        torch.manual_seed(number)
        expected = eager.step(**batch)
        torch.manual_seed(number)
        got = fast(*leaves)
        same &= torch.equal(got, expected)
        same &= all(torch.equal(a, b) for a, b in zip(planned.tensors(), eager.tensors(), strict=True))
    resident = planned.resident(batch)
    _, above = pt.measure_peak(fast, *leaves)
    eager_resident = eager.resident(batch)
    for parameter in eager.model.parameters():
        parameter.grad = None
    _, eager_above = pt.measure_peak(lambda: eager.step(**batch))
    return {
        "model": entry.name, "ops": ops, "capture_ms_per_op": 1e3 * capture / ops, "same_bits": bool(same),
        "budget": budget, "peak": above + resident, "kept": above + resident <= budget, "eager_peak": eager_above + eager_resident,
        "least": least, "least_lower": lower, "time_ratio": _ratio(lambda: fast(*leaves), lambda: eager.step(**batch)),
    }  # fmt: skip


def _ratio(ours: Any, theirs: Any, pairs: int = 5) -> float:
    """Return the median ratio of times measured in turn."""
    ratios = []
    for _ in range(pairs):
        times = []
        for run in (ours, theirs):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def main() -> None:
    """Measure every model whose name contains one of the given words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of model names; all without any")
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds of one search")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    print(f"{'model':<46} {'ops':>6} {'ms/op':>6} {'bits':>5} {'kept':>5} {'peak':>6} {'least':>6} {'time':>6}")
    for entry in entries():
        if options.names and not any(name.lower() in entry.name.lower() for name in options.names):
            continue
        try:
            row = measure(entry, options.time_limit)
            eager = row["eager_peak"]
            print(
                f"{entry.name:<46} {row['ops']:>6} {row['capture_ms_per_op']:>6.1f} {row['same_bits']!s:>5} {row['kept']!s:>5} "
                f"{row['peak'] / eager:>6.2f} {row['least'] / eager:>6.2f} {row['time_ratio']:>6.2f}", flush=True,
            )  # fmt: skip
        except PebblerError as error:
            row = {"model": entry.name, "refused": f"{type(error).__name__}: {error}"}
            print(f"{entry.name:<46} {row['refused'][:200]}", flush=True)
        except Exception as error:
            row = {"model": entry.name, "failed": f"{type(error).__name__}: {error}"}
            print(f"{entry.name:<46} FAILED {row['failed'][:300]}", flush=True)
        rows.append(row)
    print("peak, least: of eager's peak; time: of eager's; bits and budget after several steps")
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
