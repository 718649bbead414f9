"""How long a sequence trains in a given memory: a Llama of 16 x 2048 with 128,256 words, AdamW, bf16, one row.

Eager, gradient checkpointing of every layer, torch.compile with its knob at 0.05, and pebbler's backend at its least, without and
with the host's memory: the longest sequence that each trains, and tokens per second on the way. What a step holds is measured at a
short length, and grows almost in proportion: so the next length is one that should just fit, until no longer one does or a step
takes too many seconds; then the longest that would fit is told as predicted. Every variant runs in a process of its own.
All take memory in segments that grow, so that what is free is in one piece.
`pebbler:full` has all memory as its budget: the fastest choice that fits, for the lengths that others reach. The Llama is one of
this folder: when that of transformers is compiled, it makes a mask of length x length and saves it for backward (5.23, torch 2.13).

    python -m benchmarks.longest_sequence --output longest.json
    python -m benchmarks.longest_sequence --variants eager,pebbler --lengths 32768,65536 --seconds 120
    python -m benchmarks.longest_sequence --variants pebbler:full --lengths 65536 --only
    python -m benchmarks.longest_sequence --small --variants eager,checkpoint     # on a CPU, within 256 MiB
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import pebbler.torch as pt
from benchmarks.child_rows import follow
from benchmarks.torch_model_steps import Training, llama_of
from pebbler.game.byte_sizes import bytes_of
from pebbler.run.torch.backend import step_budget
from pebbler.run.torch.backend.dynamo_backend import pebbler

VARIANTS = "eager,checkpoint,torch:0.05,pebbler,offload"
GIB = 2**30
FULL = 0.985  # of the memory: what the allocator and the driver keep for themselves is left
NEAR = 1.03  # a length that is longer by less than this is not looked for
SLACK = 120.0  # seconds for the length that is under way when time is over
SETTLED = 3  # steps until a compiled model stays as it is


@dataclass(frozen=True)
class Point:
    """One length that was tried: the most bytes held and the seconds of a step, None where memory was not enough.

    `setup` are the seconds of the steps before, in which models are compiled.
    """

    length: int
    peak: int | None
    seconds: float | None
    setup: float = 0.0


class LengthSearch:
    """Aims at the longest sequence by what shorter ones held.

    >>> search = LengthSearch(memory=1000, base=100, step_seconds=1e4, quantum=1)
    >>> search.aim()  # nothing is known yet
    >>> search.points.append(Point(100, 200, 1.0))
    >>> search.aim()  # a byte per token
    885
    >>> search.points.append(Point(885, None, None))
    >>> search.aim()
    814
    >>> search.points.append(Point(814, 930, 12.0))
    >>> search.aim() is None, search.longest.length, search.predicted()
    (True, 814, 867)
    """

    def __init__(self, memory: int, base: int, step_seconds: float, quantum: int) -> None:
        self.memory, self.base, self.step_seconds, self.quantum = memory, base, step_seconds, quantum
        self.points: list[Point] = []

    @property
    def measured(self) -> list[Point]:
        """The lengths that fit, in order."""
        return sorted((p for p in self.points if p.peak is not None), key=lambda p: p.length)

    @property
    def longest(self) -> Point | None:
        """The longest that fits."""
        return self.measured[-1] if self.measured else None

    def predicted(self) -> int | None:
        """Return the length at which the memory should just suffice."""
        known = self.measured
        if not known:
            return None
        low = (known[-2].length, known[-2].peak) if len(known) > 1 else (0, self.base)
        high = known[-1].length, known[-1].peak
        assert low[1] is not None
        assert high[1] is not None
        slope = (high[1] - low[1]) / (high[0] - low[0])
        return int(high[0] + (FULL * self.memory - high[1]) / slope) if slope > 0 else None

    def aim(self) -> int | None:
        """Return the length to try next, None if there is none that is worth it."""
        best, aim = self.longest, self.predicted()
        too_long = min((p.length for p in self.points if p.peak is None), default=None)
        if best is None:
            return None if too_long is None else self._whole(too_long // 2)
        if aim is None:
            return None
        if too_long is not None:
            aim = min(aim, int(0.92 * too_long))
        if best.seconds:  # attention takes time by the square
            aim = min(aim, int(best.length * (self.step_seconds / best.seconds) ** 0.5))
        aim = self._whole(aim)
        return aim if aim > NEAR * best.length and all(p.length != aim for p in self.points) else None

    def _whole(self, length: int) -> int:
        return length // self.quantum * self.quantum


class Bench:
    """Trains one variant at one length after the other."""

    def __init__(self, variant: str, options: argparse.Namespace) -> None:
        self.variant, self.options = variant, options
        self.device = "cuda:0" if torch.cuda.is_available() and not options.small else "cpu"
        self.memory = bytes_of(options.memory) if options.memory else _memory(self.device)
        torch.manual_seed(0)
        layers, width, words = (2, 64, 2048) if options.small else (16, 2048, 128256)
        plain = not options.transformers
        self.words, self.training = words, llama_of(self.device, layers, width, words, (1, 64), plain)
        if not plain:
            self.training.model.config.max_position_embeddings = 2**23
        if self.device != "cpu":
            torch.cuda.set_per_process_memory_fraction(min(1.0, self.memory / _memory(self.device)))
        self.training.step(self.training.model)  # makes the optimizer's state
        if variant == "checkpoint":
            self.training.model.gradient_checkpointing_enable()
            self.training.model.train()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for every length that is tried, and one that sums up."""
        began = time.monotonic()
        search = LengthSearch(self.memory, self._held(), self.options.step_seconds, 16 if self.options.small else 1024)
        lengths = [int(length) for length in self.options.lengths.split(",") if length]
        first = 128 if self.options.small else 16384
        for length in itertools.chain(lengths or [first], () if self.options.only else iter(search.aim, None)):
            search.points.append(self.point(length))
            yield {"variant": self.variant, **asdict(search.points[-1])}
            if time.monotonic() - began > self.options.seconds:
                break
        best = search.longest
        fits = search.aim() is None
        yield {
            "variant": self.variant, "longest": best and best.length, "ended": fits, "predicted": search.predicted(),
            "tokens_per_second": best and best.seconds and best.length / best.seconds,
        }  # fmt: skip

    def point(self, length: int) -> Point:
        """Train at one length; too long is what memory does not suffice for."""
        torch.manual_seed(1)
        ids = torch.randint(self.words, (1, length), device=self.device)
        training = Training(
            self.training.model,
            self.training.optimizer,
            lambda run: run(input_ids=ids, labels=ids).loss,
            self.training.clip,
        )
        began = time.perf_counter()
        try:
            run, steps = self._compiled(training)
            for _ in range(steps):
                training.step(run)
            setup = time.perf_counter() - began
            return replace(self._measured(length, lambda: training.step(run)), setup=setup)
        except (torch.OutOfMemoryError, pt.OverBudget) as error:
            print(f"{self.variant} at {length:,}: {str(error).splitlines()[0][:800]}", flush=True)
        except RuntimeError as error:
            if "out of memory" not in str(error).lower():
                raise
        finally:
            training.optimizer.zero_grad(set_to_none=True)
            gc.collect()
            if self.device != "cpu":
                torch.cuda.empty_cache()
        return Point(length, None, None)

    def _measured(self, length: int, step: Callable[[], Any]) -> Point:
        if self.device == "cpu":
            began = time.perf_counter()
            _, above = pt.measure_peak(step)
            peak, seconds = above + self._held(), time.perf_counter() - began
            return Point(length, peak, seconds) if peak <= self.memory else Point(length, None, None)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        return Point(length, torch.cuda.max_memory_allocated(), time.perf_counter() - began)

    def _held(self) -> int:
        self.training.optimizer.zero_grad(set_to_none=True)
        return self.training.resident_bytes if self.device == "cpu" else int(torch.cuda.memory_allocated())

    def _compiled(self, training: Training) -> tuple[Any, int]:
        """Return what runs in place of the model, and how many steps it takes until it stays as it is."""
        import torch._functorch.config as functorch

        kind, _, option = self.variant.partition(":")
        torch._dynamo.reset()
        step_budget._BUDGETS.clear()  # a step that ended without memory is not part of the next
        if kind in ("eager", "checkpoint"):
            return training.model, 0
        if kind == "torch":
            functorch.activation_memory_budget = float(option)
            return torch.compile(training.model, dynamic=False), 1
        budget = int(FULL * self.memory) if option == "full" else option or "least"
        options: dict[str, Any] = {"budget": budget, "time_limit": self.options.time_limit}
        if kind == "offload":
            options |= {"offload": True, "host_budget": self.options.host_budget}
        return torch.compile(training.model, backend=pebbler, options=options, dynamic=False), self.options.settled


def _memory(device: str) -> int:
    return 256 * 2**20 if device == "cpu" else int(torch.cuda.get_device_properties(device).total_memory)


def shown(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    if "failed" in row:
        return f"{row['variant']:12} failed: {row['failed']}"
    if "longest" in row:
        more = f"; {row['predicted']:,} predicted to fit" if row["predicted"] and not row["ended"] else ""
        speed = f" at {row['tokens_per_second']:,.0f} tokens/s" if row["tokens_per_second"] else ""
        return f"{row['variant']:12} longest {row['longest'] or 0:,} tokens{speed}{more}"
    if row["peak"] is None:
        return f"{row['variant']:12} {row['length']:>9,} tokens  too long"
    cells = f"{row['peak'] / GIB:7.2f} GiB  {row['seconds']:7.2f} s  {row['length'] / row['seconds']:9,.0f} tokens/s"
    return f"{row['variant']:12} {row['length']:>9,} tokens  {cells}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", default=VARIANTS, help=VARIANTS)
    parser.add_argument("--memory", help="bytes such as 139GiB; by default all of the GPU's, with --small 256 MiB")
    parser.add_argument("--host-budget", default="96GiB", help="of the host's memory, for offload")
    parser.add_argument("--lengths", default="", help="tokens to try first, one after the other")
    parser.add_argument("--only", action="store_true", help="try no other lengths than these")
    parser.add_argument("--transformers", action="store_true", help="its Llama, which makes a mask when it is compiled")
    parser.add_argument("--seconds", type=float, default=240.0, help="of one variant: no length is begun after that")
    parser.add_argument("--step-seconds", type=float, default=30.0, help="no length is tried that should take longer")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of one of pebbler's plans")
    parser.add_argument(
        "--settled", type=int, default=SETTLED, help="steps of pebbler's before the one that is measured"
    )
    parser.add_argument("--small", action="store_true", help="a small model on a CPU")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        try:
            for row in Bench(options.one, options).rows():
                print("ROW " + json.dumps(row), flush=True)
        except Exception as error:
            traceback.print_exc()
            failed = {"variant": options.one, "failed": f"{type(error).__name__}: {error}"[:300]}
            print("ROW " + json.dumps(failed), flush=True)
        return
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    rows: list[dict[str, Any]] = []
    for variant in options.variants.split(","):
        command = [sys.executable, "-m", "benchmarks.longest_sequence", "--one", variant, *sys.argv[1:]]
        follow(command, options.seconds + SLACK, rows, shown, options.output)


if __name__ == "__main__":
    main()
