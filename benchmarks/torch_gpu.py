"""Peak memory against time per step on a GPU: eager, checkpointing, torch.compile with a memory budget, and pebbler.

A GPT-style training step (16 blocks of width 1024, sequence 1024, batch 16, vocabulary 32,000, bf16, fused AdamW). Every variant
runs in this process, one after the other, and prints its row as soon as it is measured. `--smoke` runs a tiny size on a CPU.

    python benchmarks/torch_gpu.py --output gpu.json --plot gpu.svg
    python benchmarks/torch_gpu.py --variants eager,exact:8GiB,compiled:least --time-limit 60
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import pebbler.torch as pt
from pebbler.game.byte_sizes import bytes_of


@dataclass(frozen=True)
class Size:
    """How large the model and its batch are."""

    width: int = 1024
    depth: int = 16
    heads: int = 16
    length: int = 1024
    words: int = 32000
    batch: int = 16


SMALL = Size(width=32, depth=3, heads=2, length=16, words=64, batch=4)
PEERS = "eager,checkpoint," + ",".join(f"torch.compile:{share}" for share in (1, 0.7, 0.5, 0.3, 0.15, 0.05))
OURS = "exact:none,exact:8.17GiB,exact:least," + ",".join(
    f"compiled:{budget}" for budget in ("none", "8.56GiB", "8.17GiB", "7.24GiB", "6GiB", "5GiB", "4GiB", "least")
)
DEFAULT = f"{PEERS},{OURS}"


class Block(nn.Module):
    """Attention and a feed-forward layer, both on the residual stream."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.project, self.merge = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.widen, self.narrow = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.project(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norm_feed(x))))


class Language(nn.Module):
    """Embeddings, blocks, and a head with its loss."""

    def __init__(self, size: Size, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.words = nn.Embedding(size.words, size.width)
        self.places = nn.Parameter(torch.zeros(size.length, size.width))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.depth))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def make(size: Size, device: str, *, checkpointed: bool = False, wrap: Any = None) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return a fresh model, its step and a batch, all from the same seed."""
    torch.manual_seed(0)
    model = Language(size, checkpointed).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = wrap(model) if wrap is not None else model
    shape = (size.batch, size.length)
    batch = tuple(torch.randint(size.words, shape, device=device) for _ in range(2))

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, batch


def measure(step: Any, batch: Any, device: str, steps: int, warm_up: int) -> dict[str, float]:
    """Return the peak in bytes, the median time of a step, and the last loss."""
    for _ in range(warm_up):
        step(*batch)
    if not device.startswith("cuda"):
        _, above = pt.measure_peak(step, *batch)
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            loss = step(*batch)
            times.append(time.perf_counter() - began)
        return {"peak": above, "ms": 1e3 * statistics.median(times), "loss": loss.item()}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        loss = step(*batch)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return {"peak": torch.cuda.max_memory_allocated(), "ms": statistics.median(times), "loss": loss.item()}


class Bench:
    """Runs variants; what pebbler learns about the step (capture, costs) is shared by its variants."""

    def __init__(self, size: Size, device: str, steps: int, time_limit: float) -> None:
        self.size, self.device, self.steps, self.time_limit = size, device, steps, time_limit
        self.costs: dict[bool, Any] = {}
        self.kernels = pt.Kernels()

    def run(self, variant: str) -> dict[str, Any]:
        """Return the figures of one variant."""
        kind, _, option = variant.partition(":")
        began = time.perf_counter()
        about: dict[str, Any] = {}
        if kind in ("eager", "checkpoint"):
            model, step, batch = make(self.size, self.device, checkpointed=kind == "checkpoint")
        elif kind == "torch.compile":
            import torch._functorch.config as functorch

            torch._dynamo.reset()
            functorch.activation_memory_budget = float(option) if option else 1.0
            model, step, batch = make(self.size, self.device, wrap=torch.compile)
        elif kind in ("exact", "compiled"):
            model, plain, batch = make(self.size, self.device)
            step, about = self.plan(plain, batch, option, compiled=kind == "compiled")
        else:
            raise SystemExit(
                f"unknown variant {variant}: eager, checkpoint, torch.compile[:share], exact:BUDGET or compiled:BUDGET "
                "(BUDGET: bytes, none or least)"
            )
        figures = measure(step, batch, self.device, self.steps, 4)
        figures |= {
            "setup": time.perf_counter() - began,
            "weights": float(sum(p.detach().double().sum() for p in model.parameters())),
        }
        return {"variant": variant, **figures, **about}

    def plan(self, step: Any, batch: Any, option: str, compiled: bool) -> tuple[Any, dict[str, Any]]:
        """Return the planned step, and what the plan says of itself."""
        captured = pt.capture(step, *batch)
        if compiled:
            captured = pt.fuse(captured, self.kernels)
        if compiled not in self.costs:
            self.costs[compiled] = pt.profile(captured)
        costs = self.costs[compiled]
        if option == "least":
            _, least = pt.least_budget(captured, costs, time_limit=self.time_limit)
            option = str(least)
        budget = None if option in ("", "none") else bytes_of(option)
        plan = pt.plan_captured(captured, costs, budget=budget, time_limit=self.time_limit)
        about = {
            "budget": budget, "promised": plan.peak, "predicted_ms": plan.cost * 1e3, "unplanned_ms": plan.unplanned * 1e3,
            "recomputed": plan.recomputed, "status": plan.plan.status, "gap": plan.plan.gap,
        }  # fmt: skip
        return pt.compile(plan, step), about


def show(row: dict[str, Any]) -> None:
    """Print one row of the table at once."""
    if "error" in row:
        print(f"{row['variant']:22s} {row['error']}", flush=True)
        return
    promised = f"{row['promised'] / 2**30:7.3f}" if "promised" in row else "      -"
    print(
        f"{row['variant']:22s} {row['peak'] / 2**30:8.3f} {promised} {row['ms']:10.2f} {row['setup']:8.1f} {row['loss']:8.4f} "
        f"{row['weights']:.6f}",
        flush=True,
    )


def plot(rows: list[dict[str, Any]], path: Path, device: str) -> None:
    """Draw peak against time per step, a line for each way to save memory."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = {
        "eager": "eager",
        "checkpoint": "checkpoint per block",
        "torch.compile": "torch.compile, activation_memory_budget",
        "exact": "pebbler, exact",
        "compiled": "pebbler, compiled",
    }
    figure, axes = pyplot.subplots(figsize=(7.5, 4.5), layout="constrained")
    for marker, (kind, label) in zip("sD^ov", ways.items(), strict=True):
        points = sorted((r["peak"] / 2**30, r["ms"]) for r in rows if r["variant"].split(":")[0] == kind and "ms" in r)
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, label=label)
    axes.set(xlabel="peak memory, GiB", ylabel="ms per step", title=f"One training step on an {device}")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path)


def main() -> None:
    """Run the variants and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=DEFAULT, help="comma-separated; see DEFAULT")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of planning per budget")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument("--plot", type=Path, help="draw the rows as a picture (SVG or PNG)")
    parser.add_argument("--redraw", type=Path, metavar="JSON", help="measure nothing; draw what --output wrote before")
    parser.add_argument("--smoke", action="store_true", help="a tiny size, on a CPU if there is no GPU")
    options = parser.parse_args()
    if options.redraw is not None:
        known = json.loads(options.redraw.read_text())
        plot(known["rows"], options.plot or options.redraw.with_suffix(".svg"), known["device"])
        return
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.smoke:
        sys.exit("no CUDA device; --smoke runs a tiny size on the CPU")
    torch.set_float32_matmul_precision("high")
    variants = (
        "eager,checkpoint,exact:none,exact:least" if options.smoke and options.variants == DEFAULT else options.variants
    )
    bench = Bench(
        SMALL if options.smoke else Size(), device, options.steps, 2.0 if options.smoke else options.time_limit
    )
    name = torch.cuda.get_device_name() if device != "cpu" else "CPU"
    print(f"torch {torch.__version__} on {name}; peak and promise in GiB (on a CPU: above what is resident)")
    print(
        f"{'variant':22s} {'peak':>8s} {'promise':>7s} {'ms/step':>10s} {'set-up s':>8s} {'loss':>8s} sum of weights",
        flush=True,
    )
    rows = []
    for variant in variants.split(","):
        try:
            row = bench.run(variant)
        except Exception as error:  # one variant must not cost the others
            traceback.print_exc()
            row = {"variant": variant, "error": f"{type(error).__name__}: {error}"}
        show(row)
        rows.append(row)
        if options.output is not None:
            options.output.write_text(
                json.dumps({"device": name, "torch": torch.__version__, "rows": rows}, indent=1) + "\n"
            )
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()
    if options.plot is not None:
        plot(rows, options.plot, name)


if __name__ == "__main__":
    main()
