"""Models under `torch.compile`: eager, its own activation_memory_budget, and pebbler at the same peaks and at the least.

Peak GiB of a whole training step, milliseconds, seconds of set-up, and the losses of the first steps. One process per model: they
trace, compile and train side by side, and all others stand still while one is timed (`quiet_turns`). Every variant begins with
empty caches of kernels, so set-up times can be compared. Rows are written as they come; what is missing says why.
`--tiny` runs small sizes, on a CPU if there is no GPU.

    python -m benchmarks.torch_models --output models.json
    python -m benchmarks.torch_models --models llama --variants torch:1,torch:0.3,torch:0.05,pebbler:0.5,pebbler:least
    python -m benchmarks.torch_models --show models.json
    python -m benchmarks.torch_models --show models.json --markdown
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
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
from benchmarks.quiet_turns import QuietTurns, Turn
from benchmarks.torch_model_steps import MODELS as FIRST
from benchmarks.torch_model_steps import SIX, Training
from benchmarks.torch_models_page import markdown, show, shown_row
from benchmarks.torch_more_models import MORE
from pebbler.files import write_text
from pebbler.run.torch.backend import step_budget
from pebbler.run.torch.backend.dynamo_backend import pebbler

MODELS = FIRST | MORE
VARIANTS = "eager,torch:1,torch:0.3,pebbler:@torch:0.3,pebbler:none,pebbler:least,torch:0.05,pebbler:@torch:0.05"
WARM_UP = 12  # steps: a budget is measured in the first ones, and graphs may be compiled again
CHUNKS = 3
SETTLING_SECONDS = 0.7  # of steps before those that are timed: clocks rise, and what others had launched ends


class Bench:
    """Measures the variants of one model in this process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.device = "cuda:0" if torch.cuda.is_available() else "cpu"
        self.turn = Turn(options.turns, name)
        self.peaks: dict[str, int] = {}

    def make(self) -> Training:
        """Return the model and its step, from the same seed every time."""
        torch.manual_seed(0)
        return MODELS[self.name](self.device, self.options.tiny)

    def compile(self, training: Training, variant: str) -> tuple[Any, int | None]:
        """Return what runs in place of the model, and the bytes that it promises to keep within."""
        import torch._functorch.config as functorch

        kind, _, option = variant.partition(":")
        model = training.model
        torch._dynamo.reset()
        functorch.activation_memory_budget = float(option) if kind == "torch" else 1.0
        if kind == "eager":
            return model, None
        if kind == "torch":
            return torch.compile(model), None
        promised = self.peaks[option[1:]] if option.startswith("@") else None
        budget = promised or (None if option == "none" else float(option) if option.startswith("0.") else option)
        options = {"budget": budget, "reserve": training.state_bytes}
        return torch.compile(model, backend=pebbler, options=options), promised

    def run(self, variant: str) -> dict[str, Any]:
        """Return the row of one variant."""
        from torch._inductor.utils import fresh_cache

        with fresh_cache():
            Peaks(self.device)  # the record of the variant before ends here
            training = self.make()
            step_budget._BUDGETS.clear()
            self.synchronize()
            began, stood = time.perf_counter(), self.turn.paused()
            run, budget = self.compile(training, variant)
            losses = [training.step(run) for _ in range(WARM_UP)]
            self.synchronize()
            setup = time.perf_counter() - began - (self.turn.paused() - stood)
            peaks = Peaks(self.device)
            for _ in range(self.options.losses - WARM_UP):
                losses.append(training.step(run))
                peaks.look()
            with self.turn.alone():
                milliseconds = self.time_steps(training, run, peaks)
                quiet = not self.turn.taken_away()
            peak = peaks.most if self.device != "cpu" else self.cpu_peak(training, run)
        self.peaks[variant] = peak
        return {
            "model": self.name, "variant": variant, "budget": budget, "peak": peak, "ms": milliseconds, "setup": setup,
            "trial_peak": peaks.before, "quiet": quiet, "losses": [round(loss.item(), 6) for loss in losses],
            **planned(),
        }  # fmt: skip

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def cpu_peak(self, training: Training, run: Any) -> int:
        """Return the bytes of one step on a CPU, which keeps no record of its own."""
        _, above = pt.measure_peak(lambda: training.step(run))
        return above + training.resident_bytes

    def time_steps(self, training: Training, run: Any, peaks: Peaks) -> float:
        """Return the best of a few medians of the milliseconds of a step."""
        until = time.perf_counter() + (0.0 if self.options.tiny else SETTLING_SECONDS)
        while time.perf_counter() < until:
            training.step(run)
            self.synchronize()
        medians = []
        for _ in range(CHUNKS):
            times = []
            for _ in range(max(1, self.options.steps // CHUNKS)):
                began = time.perf_counter()
                training.step(run)
                self.synchronize()
                times.append(time.perf_counter() - began)
                peaks.look()
            medians.append(1e3 * statistics.median(times))
        return min(medians)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Measure every variant; what fails or has no time left gets its reason."""
        for variant in self.options.variants.split(","):
            needs = variant.partition("@")[2]
            if time.time() > self.options.until:
                row = {"model": self.name, "variant": variant, "error": "no time left"}
            elif needs and needs not in self.peaks:
                row = {"model": self.name, "variant": variant, "error": f"there is no {needs} to compare with"}
            else:
                try:
                    row = self.run(variant)
                except Exception as error:  # one variant must not cost the others
                    traceback.print_exc()
                    row = {"model": self.name, "variant": variant, "error": f"{type(error).__name__}: {error}"[:300]}
            yield row
            gc.collect()
            if self.device != "cpu":
                torch.cuda.empty_cache()


def planned() -> dict[str, Any]:
    """Return what pebbler predicted of forward and backward, what they held in the last step that it measured, and compilations."""
    budgets = list(step_budget._BUDGETS.values())
    if not budgets:
        return {}
    known = budgets[-1]
    return {"predicted": known.predicted, "held": known.held, "compilations": known.compilations}


class Peaks:
    """The most that a CUDA device held, looked up after every step: a budget that is broken once is seen.

    The record is reset only here, when the steps have settled: pebbler reads it too, and may reset it when it measures again.
    """

    def __init__(self, device: str) -> None:
        self.cuda = device != "cpu"
        self.before = torch.cuda.max_memory_allocated() if self.cuda else None
        self.most = 0
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def look(self) -> None:
        """Note what the record says now."""
        if self.cuda:
            self.most = max(self.most, torch.cuda.max_memory_allocated())


def work(name: str, options: argparse.Namespace) -> None:
    """Measure one model, and write its rows as they come."""
    if options.verbose:
        logging.basicConfig(format=f"%(asctime)s {name} %(message)s")
        logging.getLogger("pebbler").setLevel(logging.INFO)
    rows: list[dict[str, Any]] = []
    for row in Bench(name, options).rows():
        rows.append(row)
        print(shown_row(row, rows), flush=True)
        write_text(options.output, json.dumps(rows) + "\n")


class Parts:
    """What the processes have written so far, and one file of it all."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        self.files = {name: folder / f"{name}.json" for name in options.models.split(",")}
        self._seen: tuple[float, ...] = ()
        self._device = _device()

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, model by model."""
        return [row for part in self.files.values() if part.exists() for row in json.loads(part.read_text())]

    def finished(self, ended: dict[str, int | None]) -> list[dict[str, Any]]:
        """Return all rows, with the reason for those that a process could not write: it died, or its time was over."""
        rows, known = self.rows(), {(row["model"], row["variant"]) for row in self.rows()}
        for name in self.files:
            status = ended.get(name)
            reason = f"its process ended with status {status}" if status else "no time left"
            for variant in self.options.variants.split(","):
                if (name, variant) not in known:
                    rows.append({"model": name, "variant": variant, "error": reason})
        return rows

    def write(self, rows: list[dict[str, Any]] | None = None) -> None:
        """Write one file of all rows, if there are new ones."""
        seen = tuple(part.stat().st_mtime for part in self.files.values() if part.exists())
        if self.options.output is not None and (rows is not None or seen != self._seen):
            self._seen = seen
            found = {"device": self._device, "torch": torch.__version__, "rows": rows or self.rows()}
            write_text(self.options.output, json.dumps(found) + "\n")


def compile_kernels(folder: Path) -> None:
    """Plan a tiny model once: pebbler's own kernels are then on disk, as they are after the first use on a machine."""
    tiny = ["--tiny", "--work", "gpt", "--variants", "pebbler:least", "--losses", str(WARM_UP), "--steps", "3"]
    command = [sys.executable, "-m", "benchmarks.torch_models", *tiny, "--output", str(folder / "kernels.json")]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # if it fails, so will the models, with a reason


def start_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one process per model, and return what they have written."""
    told = ["--until", str(options.until), "--variants", options.variants, "--steps", str(options.steps)]
    told += ["--losses", str(options.losses), *(["--tiny"] if options.tiny else [])]
    told += ["--verbose"] if options.verbose else []
    threads = str(max(2, (os.cpu_count() or 1) // options.jobs + 1))
    with tempfile.TemporaryDirectory() as name, QuietTurns(Path(name), options.jobs) as turns:
        if "pebbler" in options.variants:
            compile_kernels(Path(name))
        parts = Parts(Path(name), options)
        for model, part in parts.files.items():
            command = [sys.executable, "-u", "-m", "benchmarks.torch_models", "--work", model, "--output", str(part)]
            # Own folders: a process that stands still may hold a lock on a file of its cache.
            environment = {
                "TORCHINDUCTOR_COMPILE_THREADS": os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", threads),
                "TORCHINDUCTOR_CACHE_DIR": str(Path(name) / f"{model}.kernels"),
            }
            turns.add(model, [*command, "--turns", name, *told], environment)
        turns.serve(options.until, parts.write)
        ended = {model: process.poll() for model, process in turns.processes.items()}
        rows = parts.finished(ended)
        parts.write(rows)
        return rows


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(SIX), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--variants", default=VARIANTS)
    parser.add_argument("--steps", type=int, default=18, help="timed steps")
    parser.add_argument("--losses", type=int, default=50, help="steps whose losses are compared")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end then, with what there is")
    parser.add_argument("--jobs", type=int, default=min(6, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument(
        "--show", type=Path, metavar="JSON", help="measure nothing; print the tables of what was written"
    )
    parser.add_argument("--markdown", action="store_true", help="with --show: as in docs/compiled-models.md")
    parser.add_argument("--tiny", action="store_true", help="small sizes, on a CPU if there is no GPU")
    parser.add_argument("--verbose", action="store_true", help="say what is measured and planned again in first steps")
    for hidden, kind in (("--work", str), ("--turns", Path), ("--until", float)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show is not None:
        rows = json.loads(options.show.read_text())["rows"]
        print(markdown(rows) if options.markdown else show(rows))
        return
    if not torch.cuda.is_available() and not options.tiny:
        sys.exit("no CUDA device; --tiny runs small sizes on the CPU")
    torch.set_float32_matmul_precision("high")
    options.until = options.until or time.time() + options.seconds
    if options.work:
        work(options.work, options)
        return
    print(f"torch {torch.__version__} on {_device()}; peaks are of the whole step", flush=True)
    print(show(start_all(options)))


if __name__ == "__main__":
    main()
