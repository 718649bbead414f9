"""Joules of training steps, predicted and measured: models x schedules, and the ratios between schedules of one model.

Every op of a step is measured by itself with the energy counter, a schedule's joules are predicted as their sum, and then the
schedule runs for some seconds with the counter on. Nothing is fitted to the rows of the table. Schedules are `eager`,
`exact:SHARE` and `compiled:SHARE` (plans with the step's own or with fused kernels, SHARE of the peak without a limit, or `none`),
`energy:SHARE` (a compiled plan for joules), and `torch.compile[:SHARE]`, which is measured only.

    python -m benchmarks.energy_truth --output truth.json --calibrate machine.toml
    python -m benchmarks.energy_truth --models gpt,bert --schedules eager,compiled:none,compiled:0.5
    python -m benchmarks.energy_truth --page docs/truth.md --plot docs/images/truth.svg --read truth.json

Without a counter it stops and says so. `--simulated-watts 100 --small` tries everything out on a CPU; its rows say that they
are simulated.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import pebbler.torch as pt
from benchmarks.energy_models import MODELS, make_model
from benchmarks.energy_truth_page import summarize, write_page
from pebbler.errors import InputError
from pebbler.files import write_text
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, PowerReading, Work, measure_power
from pebbler.run.calibrate import calibrate, save_machine
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.cost.op_energy import meter_of

SCHEDULES = "eager,exact:none,exact:0.6,compiled:none,compiled:0.6,compiled:0.4,energy:0.4,torch.compile"
NAMES = {False: "exact", True: "compiled"}


class SimulatedCounter:
    """A counter that adds `watts` all the time: to try this out where there is none."""

    def __init__(self, watts: float) -> None:
        self.watts, self.name = watts, f"simulated {watts:g} W"

    def read(self) -> float:
        """Return joules in steps of 5 ms."""
        return self.watts * 0.005 * int(time.perf_counter() / 0.005)


class Truth:
    """One model: what pebbler learns of its step, and every schedule of it."""

    def __init__(self, name: str, device: str, meter: EnergyMeter, options: argparse.Namespace) -> None:
        self.name, self.device, self.meter, self.options = name, device, meter, options
        self.model, self.step, self.batch = make_model(name, device, small=options.small)
        self.captured: dict[bool, Any] = {}
        self.costs: dict[bool, Any] = {}
        self.peaks: dict[bool, int] = {}

    def plain(self, *batch: torch.Tensor) -> torch.Tensor:
        """Run the step as it is."""
        return self.step(self.model, *batch)

    def learn(self, compiled: bool, energy: str = "measured") -> None:
        """Capture the step, and measure its ops, if that has not been done."""
        if False not in self.captured:
            model, step = self.model, self.step

            def plain(*batch: torch.Tensor) -> torch.Tensor:
                return step(model, *batch)

            self.function = plain
            self.captured[False] = pt.capture(plain, *self.batch)
        if compiled not in self.captured:
            self.captured[compiled] = pt.fuse(self.captured[False])
        if compiled not in self.costs:
            self.costs[compiled] = pt.profile(
                self.captured[compiled], energy=energy, meter=self.meter, device=self.options.calibration,  # type: ignore[arg-type]
                seconds=self.options.op_seconds,
            )  # fmt: skip

    def ops(self, compiled: bool, most: int = 25) -> list[dict[str, Any]]:
        """Return the kinds of ops that take most joules of a step, as costs see them."""
        found: dict[str, dict[str, Any]] = {}
        for group, cost in zip(self.captured[compiled].phases[-1].groups, self.costs[compiled][-1], strict=True):
            kind = found.setdefault(
                f"{group.name} {cost.seconds:.3g}", {"op": group.name, "count": 0, "seconds": 0.0, "joules": 0.0}
            )
            kind["count"] += 1
            kind["seconds"] += cost.seconds
            kind["joules"] += cost.joules
        return sorted(found.values(), key=lambda kind: -kind["joules"])[:most]

    def plan(self, compiled: bool, share: str, objective: str, energy: str = "measured") -> Any:
        """Return a plan within a share of the peak without a limit."""
        self.learn(compiled, energy)
        captured, costs = self.captured[compiled], self.costs[compiled]
        if compiled not in self.peaks:
            self.peaks[compiled] = pt.plan_captured(captured, costs, time_limit=0.0).peak
        budget = None if share in ("", "none") else int(float(share) * self.peaks[compiled])
        return pt.plan_captured(
            captured, costs, budget=budget, objective=objective, time_limit=self.options.time_limit  # type: ignore[arg-type]
        )  # fmt: skip

    def run(self, schedule: str) -> dict[str, Any]:
        """Return the row of one schedule: predicted, then measured."""
        kind, _, share = schedule.partition(":")
        row: dict[str, Any] = {"model": self.name, "schedule": schedule}
        began = time.perf_counter()
        if kind == "torch.compile":
            step = self._torch_compiled(share)
        else:
            compiled = kind in ("compiled", "energy")
            plan = self.plan(compiled, "none" if kind == "eager" else share, "energy" if kind == "energy" else "time")
            costs = self.costs[compiled]
            predicted = pt.predict_energy(plan, costs)
            row |= {
                "predicted_joules": predicted.joules, "predicted_seconds": predicted.seconds, "copy_joules": predicted.copy_joules,
                "ops": len(plan.plan.graph.ops), "recomputed": plan.recomputed, "offloaded_bytes": plan.offloaded,
                "budget_bytes": plan.budget, "launches": len(plan.launches),
            }  # fmt: skip
            if costs.energy is not None:
                row |= {"op_energy": asdict(costs.energy)}
            step = self.plain if kind == "eager" else pt.compile(plan, self.function, verify="never")
        row["setup_seconds"] = time.perf_counter() - began
        return row | self._measured(step)

    def _torch_compiled(self, share: str) -> Callable[..., Any]:
        import torch._functorch.config as functorch

        torch._dynamo.reset()
        functorch.activation_memory_budget = float(share) if share else 1.0
        return functools.partial(self.step, torch.compile(self.model))

    def _measured(self, step: Callable[..., Any]) -> dict[str, Any]:
        work = self._work(lambda: step(*self.batch))
        if self.device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        reading: PowerReading = measure_power(
            work, self.meter, seconds=self.options.seconds, most_seconds=1.5 * self.options.seconds, settle=0.5
        )
        peak = torch.cuda.max_memory_allocated() if self.device != "cpu" else None
        return {
            "joules": reading.joules, "seconds": reading.seconds, "watts": reading.watts, "standard_error": reading.error,
            "peak_bytes": peak,
        }  # fmt: skip

    def _work(self, call: Callable[[], Any]) -> Work:
        if self.device == "cpu":
            return CallWork(call)
        for _ in range(2):  # optimizer state, plans of a first step
            call()
        return CudaWork([call], self.device, recorded=False)


def take_turns(options: argparse.Namespace) -> None:
    """Prepare all models at once, each in a process of its own, then let one after the other measure; merge what they write.

    Capturing and compiling take minutes of CPU time and can go side by side; nothing may run beside a measurement.
    """
    ends, models = time.perf_counter() + options.limit, options.models.split(",")
    if options.output is not None:
        options.output.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [
            "--time-limit",
            str(options.time_limit),
            "--seconds",
            str(options.seconds),
            "--op-seconds",
            str(options.op_seconds),
        ]
        workers = {
            model: subprocess.Popen(
                [sys.executable, "-m", "benchmarks.energy_truth", "--models", model, "--turn", name, *words]
                + ["--schedules", options.schedules, "--output", str(folder / f"{model}.json")]
                + (["--small"] if options.small else [])
                + (["--simulated-watts", str(options.simulated_watts)] if options.simulated_watts else [])
            )
            for model in models
        }
        began = time.perf_counter()
        while time.perf_counter() - began < options.preparation and any(
            worker.poll() is None and not (folder / f"{model}.ready").exists() for model, worker in workers.items()
        ):
            time.sleep(0.5)
        print(f"prepared in {time.perf_counter() - began:.0f} s", flush=True)
        if options.calibrate is not None:
            save_machine(calibrate(seconds=0.35), options.calibrate)
            options.calibration = str(options.calibrate)
            print(f"calibrated after {time.perf_counter() - began:.0f} s", flush=True)
        try:
            for model, worker in workers.items():
                (folder / f"{model}.go").write_text(options.calibration or "")
                while worker.poll() is None and time.perf_counter() < ends:
                    time.sleep(0.1)
                merge(options.output, folder / f"{model}.json")
        finally:
            for worker in workers.values():
                worker.kill()


def merge(output: Path | None, part: Path) -> None:
    """Add what one model's process wrote to what the others wrote."""
    if output is None or not part.is_file():
        return
    found = json.loads(part.read_text())
    if output.is_file():
        known = json.loads(output.read_text())
        known["rows"] += found["rows"]
        known["ops"] |= found["ops"]
        found = known
    write_text(output, json.dumps(found, indent=1) + "\n")


def wait_for_turn(truth: Truth, options: argparse.Namespace, schedules: list[str]) -> None:
    """Capture, compile and plan once, say so, and wait until it is this model's turn."""
    for schedule in schedules:
        kind, _, share = schedule.partition(":")
        if kind != "torch.compile":
            try:
                truth.plan(kind in ("compiled", "energy"), share, "energy" if kind == "energy" else "time", "described")
            except Exception as error:
                print(f"{truth.name} {schedule}: {error}", flush=True)
    truth.costs.clear()  # measured beside others: the kernels stay, the figures do not
    truth.peaks.clear()
    gc.collect()
    if truth.device != "cpu":
        torch.cuda.empty_cache()
    folder = Path(options.turn)
    (folder / f"{truth.name}.ready").touch()
    while not (folder / f"{truth.name}.go").exists():
        time.sleep(0.1)
    time.sleep(0.2)
    options.calibration = (folder / f"{truth.name}.go").read_text() or None


def show(row: dict[str, Any]) -> None:
    """Print one row at once."""
    if "error" in row:
        print(f"{row['model']:9s} {row['schedule']:18s} {row['error']}", flush=True)
        return
    told = [f"{row['model']:9s} {row['schedule']:18s}"]
    for key, factor in (
        ("predicted_joules", 1),
        ("joules", 1),
        ("predicted_seconds", 1e3),
        ("seconds", 1e3),
        ("watts", 1),
    ):
        told.append(f"{factor * row[key]:9.2f}" if row.get(key) is not None else f"{'-':>9s}")
    if row.get("predicted_joules") and row.get("joules"):
        told.append(f"{row['predicted_joules'] / row['joules'] - 1:+7.1%}")
    print(" ".join(told), f"set up {row['setup_seconds']:.0f} s", flush=True)
    print(json.dumps(row, default=str), flush=True)  # so that the log alone is enough


def schedules_of(model: str, text: str) -> list[str]:
    """Return the schedules of a model: those named alone, and those named for it (`gpt=energy:0.5`).

    >>> schedules_of("gpt", "eager,gpt=energy:0.5,vit=energy:0.5")
    ['eager', 'energy:0.5']
    """
    words = (word.rpartition("=") for word in text.split(","))
    return [schedule for owner, _, schedule in words if owner in ("", model)]


def measure_models(options: argparse.Namespace, device: str, meter: EnergyMeter) -> None:
    """Measure model after model, and write what there is after every row."""
    ends = time.perf_counter() + options.limit
    name = torch.cuda.get_device_name() if device != "cpu" else "CPU"
    known: dict[str, Any] = {
        "device": name, "torch": str(torch.__version__), "simulated": options.simulated_watts is not None, "rows": [], "ops": {},
    }  # fmt: skip
    columns = " ".join(f"{word:>9s}" for word in ("pred. J", "J", "pred. ms", "ms", "W"))
    if options.turn is None:
        print(f"{'model':9s} {'schedule':18s} {columns} {'error':>7s}", flush=True)
    for model in options.models.split(","):
        schedules = schedules_of(model, options.schedules)
        truth = Truth(model, device, meter, options)
        if options.turn is not None:
            wait_for_turn(truth, options, schedules)
        for schedule in schedules:
            if time.perf_counter() > ends:
                print(f"{model} {schedule}: no time was left", flush=True)
                continue
            try:
                row = truth.run(schedule)
            except Exception as error:  # one schedule must not cost the others
                traceback.print_exc()
                row = {"model": model, "schedule": schedule, "error": f"{type(error).__name__}: {error}"[:500]}
            show(row)
            known["rows"].append(row)
            known["ops"] |= {f"{model} {word}": truth.ops(key) for key, word in NAMES.items() if key in truth.costs}
            if options.output is not None:
                write_text(options.output, json.dumps(known, indent=1, default=str) + "\n")
        del truth
        gc.collect()
        if device != "cpu":
            torch.cuda.empty_cache()
    print(summarize(known["rows"]), flush=True)


def main() -> None:
    """Measure, or write the page of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--schedules", default=SCHEDULES, help="comma-separated")
    parser.add_argument("--seconds", type=float, default=2.0, help="of every schedule's window, at least")
    parser.add_argument(
        "--op-seconds", type=float, default=30.0, help="for the ops of one model with one kind of kernels"
    )
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of planning per budget")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no schedule is begun")
    parser.add_argument("--calibration", help="a file of pebbler calibrate, for ops too small for the counter")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument(
        "--calibrate", type=Path, help="calibrate before measuring, and write the machine here; implies --turns"
    )
    parser.add_argument(
        "--turns", action="store_true", help="prepare all models at once, then measure one after the other"
    )
    parser.add_argument("--preparation", type=float, default=240.0, help="seconds that preparing may take")
    parser.add_argument("--turn", help=argparse.SUPPRESS)  # a folder: this is one of the processes that take turns
    parser.add_argument("--small", action="store_true", help="tiny models")
    parser.add_argument("--simulated-watts", type=float, help="pretend that the device draws this: for trying out")
    parser.add_argument("--read", type=Path, nargs="*", help="measure nothing; read what --output wrote")
    parser.add_argument("--page", type=Path, help="write the tables between the page's marks")
    parser.add_argument("--plot", type=Path, help="draw predicted against measured joules")
    options = parser.parse_args()
    if options.read:
        known = [json.loads(path.read_text()) for path in options.read]
        write_page(known, options.page, options.plot)
        return
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    if options.simulated_watts is not None:
        meter = EnergyMeter([SimulatedCounter(options.simulated_watts)])
    else:
        try:
            meter = meter_of(device)
        except InputError as error:
            sys.exit(f"{error} (--simulated-watts 100 --small tries this out)")
    torch.set_float32_matmul_precision("high")
    if options.turns or options.calibrate is not None:
        take_turns(options)
    else:
        measure_models(options, device, meter)


if __name__ == "__main__":
    main()
