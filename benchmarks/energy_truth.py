"""Joules of training steps, predicted and measured: models x schedules, and the ratios between schedules of one model.

Every op of a step is measured by itself with the energy counter, a schedule's joules are predicted as their sum, and then the
schedule runs for some seconds with the counter on. Nothing is fitted to the rows of the table. Schedules are `eager`,
`exact:SHARE` and `compiled:SHARE` (plans with the step's own or with fused kernels, SHARE of the peak without a limit, or `none`),
`energy:SHARE` (a compiled plan for joules, which takes turns with that for time), and `torch.compile`, which is measured only.

    python -m benchmarks.energy_truth --output truth.json
    python -m benchmarks.energy_truth --models gpt,bert --schedules "eager,compiled:none;gpt=energy:0.5"
    python -m benchmarks.energy_truth --page docs/truth.md --plot docs/images/truth.svg --read truth.json

All models are captured, compiled and planned at once, a process each; then one after the other measures, all of them in the
first round of schedules before any in the second. Rows are written as they come, and what there was no time for is said to be
missing. Without a counter it stops and says so. `--simulated-watts 100 --small` tries everything out on a CPU; its rows say that
they are simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import pebbler.torch as pt
from benchmarks.energy_models import MODELS, make_model
from benchmarks.energy_truth_page import write_page
from benchmarks.energy_turns import SimulatedCounter, take_turns, work_in_turn
from benchmarks.gpu_state import GpuState, find_nvml
from pebbler.errors import InputError
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, PowerReading, Work, measure_power
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.cost.op_energy import meter_of

SCHEDULES = (
    "eager,compiled:none,compiled:0.5;resnet50=energy:0.5,gpt2=energy:0.5;torch.compile;exact:0.6;llama=energy:0.5"
)


class Truth:
    """One model: what pebbler learns of its step, and every schedule of it."""

    def __init__(self, name: str, device: str, meter: EnergyMeter, options: argparse.Namespace) -> None:
        self.name, self.device, self.meter, self.options = name, device, meter, options
        self.model, step, self.batch = make_model(name, device, small=options.small)
        model = self.model

        def plain(*batch: torch.Tensor) -> torch.Tensor:
            return step(model, *batch)

        def compiled(*batch: torch.Tensor) -> torch.Tensor:
            return step(fast, *batch)

        fast = torch.compile(model)
        self.plain, self.by_torch = plain, compiled
        self.captured: dict[bool, Any] = {}
        self.costs: dict[bool, Any] = {}
        self.peaks: dict[bool, int] = {}
        self.states: dict[bool, dict[str, float]] = {}
        self.nvml = find_nvml() if device != "cpu" else None

    def prepare(self, schedule: str) -> None:
        """Capture, compile and plan, or let torch compile, so that little of that is left for the turn; costs are not kept."""
        kind, _, share = schedule.partition(":")
        if kind == "torch.compile":
            for _ in range(3):
                self.by_torch(*self.batch)
        else:
            self.plan(kind in ("compiled", "energy"), share, "time", "described")

    def forget_costs(self) -> None:
        """Keep the kernels, not the figures that were measured beside others."""
        self.costs.clear()
        self.peaks.clear()

    def learn(self, compiled: bool, energy: str = "measured") -> None:
        """Capture the step, and measure its ops, if that has not been done."""
        if False not in self.captured:
            self.captured[False] = pt.capture(self.plain, *self.batch)
        if compiled not in self.captured:
            self.captured[compiled] = pt.fuse(self.captured[False])
        if compiled not in self.costs:
            with GpuState(self.nvml) as state:
                self.costs[compiled] = pt.profile(
                    self.captured[compiled], energy=energy, meter=self.meter, device=self.options.calibration,  # type: ignore[arg-type]
                    seconds=self.options.op_seconds, known=self.costs.get(not compiled),
                )  # fmt: skip
            self.states[compiled] = state.told

    def ops(self, compiled: bool, most: int = 40) -> list[dict[str, Any]]:
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
        # A plan for energy makes one for time first, in half of the time: that one is to be as good as the plan for time beside it.
        seconds = self.options.time_limit * (2 if objective == "energy" else 1)
        return pt.plan_captured(captured, costs, budget=budget, objective=objective, time_limit=seconds)  # type: ignore[arg-type]

    def run(self, schedule: str) -> dict[str, Any]:
        """Return the row of one schedule: predicted, then measured."""
        kind, _, share = schedule.partition(":")
        began = time.perf_counter()
        row: dict[str, Any] = {"model": self.name, "schedule": schedule}
        if kind == "torch.compile":
            return row | self._measured(self.by_torch)
        compiled = kind in ("compiled", "energy")
        plan = self.plan(compiled, "none" if kind == "eager" else share, "energy" if kind == "energy" else "time")
        row |= self._predicted(plan, compiled)
        step = self.plain if kind == "eager" else pt.compile(plan, self.plain, verify="never")
        rival = None
        if kind == "energy":
            other = self.plan(compiled, share, "time")
            rival = pt.compile(other, self.plain, verify="never")
            row["time_plan"] = self._predicted(other, compiled)
        row["setup_seconds"] = time.perf_counter() - began
        if rival is None:
            return row | self._measured(step)
        return row | self._alternating(step, rival, row["time_plan"])

    def _predicted(self, plan: Any, compiled: bool) -> dict[str, Any]:
        """Return what is known of a plan before it runs."""
        costs = self.costs[compiled]
        predicted = pt.predict_energy(plan, costs)
        energy = {} if costs.energy is None else {"op_energy": asdict(costs.energy)}
        return {
            "predicted_joules": predicted.joules, "predicted_seconds": predicted.seconds, "copy_joules": predicted.copy_joules,
            "gap_joules": predicted.gap_joules, "ops": len(plan.plan.graph.ops), "recomputed": plan.recomputed,
            "offloaded_bytes": plan.offloaded, "budget_bytes": plan.budget, "launches": len(plan.launches),
            "op_state": self.states.get(compiled, {}), **energy,
        }  # fmt: skip

    def _alternating(
        self, step: Callable[..., Any], rival: Callable[..., Any], time_plan: dict[str, Any]
    ) -> dict[str, Any]:
        """Measure the plan for energy and that for time in turns, so that what drifts is the same for both."""
        measured: dict[str, list[dict[str, Any]]] = {"energy": [], "time": []}
        for _ in range(2):
            measured["time"].append(self._measured(rival))
            measured["energy"].append(self._measured(step))
        mean = {
            who: {key: sum(one[key] for one in found) / len(found) for key in ("joules", "seconds", "watts")}
            for who, found in measured.items()
        }
        time_plan |= mean["time"] | {"windows": measured["time"]}
        return measured["energy"][0] | mean["energy"] | {"windows": measured["energy"]}

    def _measured(self, step: Callable[..., Any]) -> dict[str, Any]:
        work = self._work(lambda: step(*self.batch))
        if self.device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        with GpuState(self.nvml) as state:
            reading: PowerReading = measure_power(
                work, self.meter, seconds=self.options.seconds, most_seconds=1.5 * self.options.seconds, settle=0.5
            )
        peak = torch.cuda.max_memory_allocated() if self.device != "cpu" else None
        return {
            "joules": reading.joules, "seconds": reading.seconds, "watts": reading.watts, "standard_error": reading.error,
            "peak_bytes": peak, "step_state": state.told,
        }  # fmt: skip

    def _work(self, call: Callable[[], Any]) -> Work:
        if self.device == "cpu":
            return CallWork(call)
        for _ in range(2):  # optimizer state, plans of a first step
            call()
        return CudaWork([call], self.device, recorded=False)


def main() -> None:
    """Measure, or write the page of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument(
        "--schedules", default=SCHEDULES, help="comma-separated; MODEL=SCHEDULE for one model; ; between rounds"
    )
    for name, default, what in (
        ("seconds", 2.0, "of every schedule's window, at least"),
        ("op-seconds", 20.0, "for the ops of one model with one kind of kernels"),
        ("time-limit", 5.0, "of planning per budget"),
        ("preparation", 240.0, "that preparing may take before measuring begins"),
        ("limit", 3600.0, "after which no schedule is begun"),
    ):
        parser.add_argument(f"--{name}", type=float, default=default, metavar="SECONDS", help=what)
    parser.add_argument("--calibration", help="a file of pebbler calibrate, for the price of a byte over the link")
    parser.add_argument("--output", type=Path, help="write the rows as JSON")
    parser.add_argument("--small", action="store_true", help="tiny models")
    parser.add_argument("--simulated-watts", type=float, help="pretend that the device draws this: for trying out")
    parser.add_argument("--read", type=Path, nargs="*", help="measure nothing; read what --output wrote")
    parser.add_argument("--page", type=Path, help="write the tables between the page's marks")
    parser.add_argument("--plot", type=Path, help="draw predicted against measured joules")
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)  # a folder: this is one of the processes
    options = parser.parse_args()
    if options.read:
        write_page([json.loads(path.read_text()) for path in options.read], options.page, options.plot)
        return
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        counted = options.simulated_watts is None
        meter = meter_of(device) if counted else EnergyMeter([SimulatedCounter(options.simulated_watts)])
    except InputError as error:
        sys.exit(f"{error} (--simulated-watts 100 --small tries this out)")
    torch.set_float32_matmul_precision("high")
    if options.turn is not None:
        work_in_turn(lambda: Truth(options.models, device, meter, options), options)
        return
    name = torch.cuda.get_device_name() if device != "cpu" else "CPU"
    take_turns(options, {"device": name, "torch": str(torch.__version__), "simulated": not counted})


if __name__ == "__main__":
    main()
