"""Six models under `torch.compile`: eager, its own activation_memory_budget, and pebbler at the same peaks and at the least.

Peak GiB of a whole training step, milliseconds, seconds of set-up, and the losses of the first steps. One process per model, all at
once; what is timed holds a lock, so that only one uses the device then. Rows are written as they come; when the time given is
nearly over, what is missing is said to be missing. `--tiny` runs small sizes, on a CPU if there is no GPU.

    python -m benchmarks.torch_models --output models.json
    python -m benchmarks.torch_models --models llama --variants torch:1,torch:0.3,torch:0.05,pebbler:0.5,pebbler:least
    python -m benchmarks.torch_models --show models.json
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import pebbler.torch as pt
from benchmarks.torch_model_steps import MODELS, Training
from pebbler.run.torch.backend.dynamo_backend import pebbler

VARIANTS = (
    "eager,torch:1,torch:0.3,pebbler:least,pebbler:@torch:0.3,torch:0.05,pebbler:none,pebbler:@torch:0.05,"
    "torch:0.5,pebbler:@torch:0.5"
)
WARM_UP = 12  # steps: a budget is measured in the first ones, and graphs may be compiled again
CHUNKS = 3


class Bench:
    """Measures the variants of one model in this process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.device = "cuda:0" if torch.cuda.is_available() else "cpu"
        self.peaks: dict[str, int] = {}
        self.longest = 0.0

    def make(self) -> Training:
        """Return the model and its step, from the same seed every time."""
        torch.manual_seed(0)
        return MODELS[self.name](self.device, self.options.tiny)

    def compile(self, training: Training, variant: str) -> Any:
        """Return what runs in place of the model."""
        import torch._functorch.config as functorch

        kind, _, option = variant.partition(":")
        model = training.model
        torch._dynamo.reset()
        functorch.activation_memory_budget = float(option) if kind == "torch" else 1.0
        if kind == "eager":
            return model
        if kind == "torch":
            return torch.compile(model)
        if option.startswith("@"):
            option = str(self.peaks[option[1:]])
        budget = None if option == "none" else float(option) if option.startswith("0.") else option
        return torch.compile(model, backend=pebbler, options={"budget": budget, "reserve": training.state_bytes})

    def run(self, variant: str) -> dict[str, Any]:
        """Return the row of one variant."""
        began = time.perf_counter()
        training = self.make()
        run = self.compile(training, variant)
        losses = [training.step(run)]
        self.synchronize()
        setup = time.perf_counter() - began
        losses += [training.step(run) for _ in range(WARM_UP - 1)]
        with device_lock(self.options.lock):
            losses += [training.step(run) for _ in range(self.options.losses - len(losses))]
            peak, milliseconds = self.measure(training, run)
        self.peaks[variant] = peak
        return {
            "model": self.name, "variant": variant, "peak": peak, "ms": milliseconds, "setup": setup,
            "total_setup": time.perf_counter() - began, "losses": [round(loss.item(), 6) for loss in losses],
        }  # fmt: skip

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def measure(self, training: Training, run: Any) -> tuple[int, float]:
        """Return the peak in bytes, and the best of a few medians of the time of a step."""
        steps = self.options.steps
        if self.device == "cpu":
            _, above = pt.measure_peak(lambda: training.step(run))
            peak = above + training.resident_bytes
        else:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        medians = []
        for _ in range(CHUNKS):
            times = []
            for _ in range(max(1, steps // CHUNKS)):
                began = time.perf_counter()
                training.step(run)
                self.synchronize()
                times.append(time.perf_counter() - began)
            medians.append(1e3 * statistics.median(times))
        if self.device != "cpu":
            peak = torch.cuda.max_memory_allocated()
        return peak, min(medians)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measure every variant; what fails or has no time left gets its reason."""
        for variant in self.options.variants.split(","):
            began = time.time()
            needs = variant.partition("@")[2]
            if began + self.longest > self.options.until:
                row = {"model": self.name, "variant": variant, "error": "no time left"}
            elif needs and needs not in self.peaks:
                row = {"model": self.name, "variant": variant, "error": f"there is no {needs} to compare with"}
            else:
                try:
                    row = self.run(variant)
                except Exception as error:  # one variant must not cost the others
                    traceback.print_exc()
                    row = {"model": self.name, "variant": variant, "error": f"{type(error).__name__}: {error}"[:300]}
                self.longest = max(self.longest, time.time() - began)
            yield row
            gc.collect()
            if self.device != "cpu":
                torch.cuda.empty_cache()


@contextlib.contextmanager
def device_lock(path: Path) -> Iterator[None]:
    """Have the device for oneself among the processes that know this file."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def show(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table, with how far losses went from eager's."""
    eager = {row["model"]: row["losses"] for row in rows if row["variant"] == "eager" and "losses" in row}
    lines = [f"{'model':10s} {'variant':22s} {'peak GiB':>9s} {'ms':>9s} {'set-up s':>9s} {'loss - eager':>13s}"]
    for row in sorted(rows, key=lambda row: list(MODELS).index(row["model"])):
        start = f"{row['model']:10s} {row['variant']:22s}"
        if "error" in row:
            lines.append(f"{start} {row['error']}")
            continue
        apart = max((abs(a - b) for a, b in zip(row["losses"], eager.get(row["model"], []), strict=False)), default=0.0)
        figures = f"{row['peak'] / 2**30:9.3f} {row['ms']:9.2f} {row['total_setup']:9.1f} {apart:13.2e}"
        lines.append(f"{start} {figures}")
    return "\n".join(lines)


def work(name: str, options: argparse.Namespace) -> None:
    """Measure one model, and write its rows as they come."""
    rows = []
    for row in Bench(name, options).rows():
        rows.append(row)
        print(show(rows).splitlines()[-1], flush=True)
        aside = options.output.with_suffix(".tmp")
        aside.write_text(json.dumps(rows) + "\n")
        aside.rename(options.output)


def start_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one process per model, and return what they have written."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "device.lock"
        parts = {name: Path(folder) / f"{name}.json" for name in options.models.split(",")}
        common = [sys.argv[0], "--lock", str(lock), "--until", str(options.until), "--variants", options.variants]
        common += ["--steps", str(options.steps), "--losses", str(options.losses)]
        running = []
        for name, part in parts.items():
            own = ["-m", "benchmarks.torch_models", *common[1:], "--work", name, "--output", str(part)]
            running.append(subprocess.Popen([sys.executable, "-u", *own, *(["--tiny"] if options.tiny else [])]))
            if len(running) >= options.jobs:
                running.pop(0).wait()
        rows: list[dict[str, Any]] = []
        while True:
            alive = [process for process in running if process.poll() is None]
            rows = [row for part in parts.values() if part.exists() for row in json.loads(part.read_text())]
            if options.output is not None:
                options.output.write_text(
                    json.dumps({"device": _device(), "torch": torch.__version__, "rows": rows}) + "\n"
                )
            if not alive:
                return rows
            time.sleep(0.5)


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--steps", type=int, default=18, help="timed steps")
    parser.add_argument("--losses", type=int, default=50, help="steps whose losses are compared")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing that would end later")
    parser.add_argument("--jobs", type=int, default=min(6, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument(
        "--show", type=Path, metavar="JSON", help="measure nothing; print the table of what was written"
    )
    parser.add_argument("--tiny", action="store_true", help="small sizes, on a CPU if there is no GPU")
    for hidden, kind in (("--work", str), ("--lock", Path), ("--until", float)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show is not None:
        print(show(json.loads(options.show.read_text())["rows"]))
        return
    if not torch.cuda.is_available() and not options.tiny:
        sys.exit("no CUDA device; --tiny runs small sizes on the CPU")
    torch.set_float32_matmul_precision("high")
    options.until = options.until or time.time() + options.seconds
    if options.work:
        work(options.work, options)
        return
    print(f"torch {torch.__version__} on {_device()}; peaks are of the whole step")
    print(show(start_all(options)))


if __name__ == "__main__":
    main()
