"""Planned steps on a GPU, call by call and replayed: times against eager, torch.compile and the prediction, bits, memory held.

Every model runs in a process of its own with a time limit; rows are written as they come, and what fails leaves its traceback. With
`held` a row tells what a replay keeps: all that is allocated outside of its pools, and the pools whole. `--joules` measures ops and
steps with the energy counter, too, launches and idle gaps included where a step is not replayed.

    python -m benchmarks.torch_replay --models convnext,gpt2 --output replay.json
    python -m benchmarks.torch_replay --models vit --variants exact,compiled --shares none,0.6 --joules
    python -m benchmarks.torch_replay --tiny --models gpt2      # on a CPU: nothing is replayed there
    python -m benchmarks.torch_replay --tiny --models gpt2 --simulated-watts 100
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import pebbler.torch as pt
from benchmarks.child_rows import follow
from benchmarks.energy_turns import SimulatedCounter
from benchmarks.torch_model_steps import MODELS as FIRST
from benchmarks.torch_more_models import MORE
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, Work, measure_power
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.cost.op_energy import meter_of
from pebbler.run.torch.plan.planner import default_headroom
from pebbler.run.torch.run import cuda_graphs
from pebbler.solver.problem import Impossible

MODELS = FIRST | MORE
STEPS = 10  # timed together
ROUNDS = 3
LOSSES = 6
GIB = 2**30


class Bench:
    """Measures the schedules of one model in this process."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.device = "cuda:0" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        training = self.training = MODELS[name](self.device, options.tiny)
        self.step: Callable[[], torch.Tensor] = lambda: training.step(training.model)
        self.state: Any = None
        self.meter: EnergyMeter | None = None
        if options.simulated_watts is not None:
            self.meter = EnergyMeter([SimulatedCounter(options.simulated_watts)])
        elif options.joules:
            self.meter = meter_of(self.device)
        if options.any_memory:
            recorder = cuda_graphs.CudaGraphs.recorder
            cuda_graphs.CudaGraphs.recorder = lambda graphs, program, budget: recorder(graphs, program, None)  # type: ignore
        if options.plain_pools:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:False"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all schedules."""
        eager = self.measured(self.step, "eager")
        yield eager
        if "torch" in self.options.variants:
            compiled = torch.compile(self.training.model)
            yield self.measured(lambda: self.training.step(compiled), "torch.compile")
            torch._dynamo.reset()
        for kernels in ("exact", "compiled"):
            if kernels in self.options.variants:
                yield from self.planned(kernels, eager["peak"])

    def planned(self, kernels: str, whole: int) -> Iterator[dict[str, Any]]:
        """Yield a plan call by call and replayed, without a limit and at shares of what eager holds."""
        began = time.perf_counter()
        captured = pt.capture(self.step)
        captured = pt.fuse(captured) if kernels == "compiled" else captured
        costs = pt.profile(captured, **self.counted())
        profiled = time.perf_counter() - began
        for share in self.options.shares.split(","):
            budget: Any = None if share == "none" else int(float(share) * whole) or f"{100 * float(share):.0f}%"
            what = f"{kernels} {share}"
            try:
                slow, fast, about = self.made(captured, costs, budget)
                predicted = {r: pt.predict_energy(slow.plan, costs, replayed=r) for r in (False, True)}
                about |= {"launching_ms": 1e3 * predicted[False].launching, "profile_s": profiled}
                self.keep()
                losses = self.losses(slow)
                yield self.measured(slow, f"{what} planned") | about | self.told(predicted[False])
                self.put_back()
                repeats = self.losses(slow) == losses  # kernels that add up in no fixed order do not
                self.put_back()
                ours = self.losses(fast)
                row = (
                    self.measured(fast, f"{what} replayed")
                    | about
                    | self.told(predicted[fast.replayed.startswith("replayed")])
                )
                row |= {"replayed": fast.replayed, "same": ours == losses, "repeats": repeats, "losses": [losses, ours]}
                yield row | {"held": self.held(fast)}
                del slow, fast
            except Exception as error:
                traceback.print_exc()
                yield {"model": self.name, "what": what, "failed": f"{type(error).__name__}: {error}"[:500]}

    def counted(self) -> dict[str, Any]:
        """Return what has ops measured with the energy counter, if steps are."""
        if self.meter is None:
            return {}
        return {"energy": "measured", "meter": self.meter, "seconds": self.options.op_seconds}

    def told(self, predicted: pt.StepEnergy) -> dict[str, Any]:
        """Return what a row says of a prediction."""
        joules = {"predicted_joules": predicted.joules} if self.meter is not None else {}
        return {"predicted_ms": 1e3 * predicted.seconds} | joules

    def joules(self, step: Callable[[], Any]) -> float | None:
        """Return the joules of a step by the counter, idle power included."""
        if self.meter is None:
            return None
        work: Work = CallWork(step) if self.device == "cpu" else CudaWork([step], self.device, recorded=False)
        seconds = self.options.joule_seconds
        return measure_power(work, self.meter, seconds=seconds, most_seconds=1.5 * seconds, settle=0.2).joules

    def made(self, captured: Any, costs: Any, budget: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Return a plan as a step, call by call and recorded; with more headroom where it held too much, as `pt.step` does."""
        began, more = time.perf_counter(), 0
        for _ in range(4):
            headroom = default_headroom(captured, costs) + more
            plan = pt.plan_captured(
                captured, costs, budget=budget, headroom=headroom, time_limit=self.options.time_limit
            )
            slow, fast = (pt.compile(plan, self.step, verify="first", replay=replay) for replay in (False, "auto"))
            try:
                slow()
                fast()
                fast()  # is recorded
            except pt.OverBudget as error:
                more += error.excess * 5 // 4
                continue
            if not fast.excess or self.options.any_memory:
                break
            more += fast.excess * 5 // 4
        about = {
            "budget": plan.budget, "plan_peak": plan.peak, "headroom": plan.headroom, "more_headroom": more,
            "plan_s": time.perf_counter() - began,
        }  # fmt: skip
        return slow, fast, about

    def held(self, fast: Any) -> int | None:
        """Return what is held while a step is replayed: what is allocated, and the whole of its pools."""
        if self.device == "cpu" or fast._graphs is None:
            return None
        return int(torch.cuda.memory_allocated()) + fast._graphs.pool_bytes

    def losses(self, step: Callable[[], torch.Tensor]) -> list[float]:
        return [loss.item() for loss in [step() for _ in range(LOSSES)]]

    def keep(self) -> None:
        """Keep the state of the training, on the host."""
        training = self.training
        model = {name: value.detach().cpu().clone() for name, value in training.model.state_dict().items()}
        rule = [copy.deepcopy(_on_host(values)) for values in training.optimizer.state.values()]
        drawn = torch.cuda.get_rng_state() if self.device != "cpu" else torch.get_rng_state()
        self.state = model, rule, drawn

    def put_back(self) -> None:
        """Go back to what was kept, in the same memory."""
        model, rule, drawn = self.state
        self.training.model.load_state_dict(model)
        with torch.no_grad():
            for values, kept in zip(self.training.optimizer.state.values(), rule, strict=True):
                for key, value in kept.items():
                    if isinstance(value, torch.Tensor):
                        values[key].copy_(value)
        if self.device != "cpu":
            torch.cuda.set_rng_state(drawn)
        else:
            torch.set_rng_state(drawn)

    def synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()

    def measured(self, step: Callable[[], Any], what: str) -> dict[str, Any]:
        """Return the row of a step: milliseconds in a loop that does not wait for each, and the peak by the allocator."""
        began = time.perf_counter()
        for _ in range(2 if self.options.tiny else 6):
            step()
        self.synchronize()
        setup = time.perf_counter() - began
        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(1 if self.options.tiny else STEPS):
                step()
            self.synchronize()
            times.append((time.perf_counter() - began) / (1 if self.options.tiny else STEPS))
        peak = torch.cuda.max_memory_allocated() if self.device != "cpu" else 0
        row = {"model": self.name, "what": what, "ms": 1e3 * min(times), "peak": peak, "setup_s": setup}
        return row if self.meter is None else row | {"joules": self.joules(step)}


def _on_host(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in values.items()}


def shown(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    if "failed" in row:
        return f"{row['model']:10} {row.get('what', ''):24} failed: {row['failed']}"
    cells = [f"{row['model']:10} {row['what']:24} {row['ms']:8.2f} ms  peak {row['peak'] / GIB:6.2f} GiB"]
    if row.get("predicted_ms"):
        cells.append(f"predicted {row['predicted_ms']:7.2f} ms, planned peak {row['plan_peak'] / GIB:.2f}")
    if row.get("joules"):
        told = f", predicted {row['predicted_joules']:.2f}" if row.get("predicted_joules") else ""
        cells.append(f"{row['joules']:.2f} J{told}")
    if row.get("budget"):
        cells.append(f"budget {row['budget'] / GIB:.2f}")
    if row.get("held"):
        cells.append(f"holds {row['held'] / GIB:.2f}")
    if "replayed" in row:
        bits = "same losses" if row["same"] else "other losses" + ("" if row["repeats"] else ", as call by call")
        cells.append(f"{row['replayed'] or 'not replayed'}, {bits}")
    return "  ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="convnext,gpt2,masked", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--variants", default="torch,exact,compiled", help="of torch, exact, compiled")
    parser.add_argument(
        "--shares", default="none,1.0,0.6", help="budgets as shares of what eager holds; none: no limit"
    )
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of one plan")
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="of one model; what is not measured then is left out"
    )
    parser.add_argument("--any-memory", action="store_true", help="replay also where that takes more than the budget")
    parser.add_argument(
        "--plain-pools", action="store_true", help="leave the allocator's settings alone while recording"
    )
    parser.add_argument("--joules", action="store_true", help="measure the energy of ops and steps")
    parser.add_argument(
        "--op-seconds", type=float, default=15.0, help="for the ops of one model with one kind of kernels"
    )
    parser.add_argument("--joule-seconds", type=float, default=2.0, help="of a step's window, at least")
    parser.add_argument("--simulated-watts", type=float, help="pretend that the device draws this: for trying out")
    parser.add_argument("--tiny", action="store_true", help="small sizes")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for row in Bench(options.one, options).rows():
            print("ROW " + json.dumps(row), flush=True)
        return
    rows: list[dict[str, Any]] = []
    _compile_kernels()  # not in the time of a model
    for name in options.models.split(","):
        command = [sys.executable, "-m", "benchmarks.torch_replay", "--one", name, *_passed(options)]
        if status := follow(command, options.seconds, rows, shown, options.output):
            print(f"{name}: ended with status {status}", flush=True)


def _compile_kernels() -> None:
    """Plan something small, so that all that planning compiles is compiled and on disk."""
    layers = torch.nn.Sequential(*(part for _ in range(12) for part in (torch.nn.Linear(64, 64), torch.nn.GELU())))

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = layers(x).square().mean()
        loss.backward()
        layers.zero_grad()
        return loss

    began = time.perf_counter()
    captured = pt.capture(step, torch.ones(2048, 64))
    costs = pt.roofline(captured, "h200")
    for offload in (False, True):
        with suppress(Impossible):
            pt.plan_captured(captured, costs, budget="80%", offload=offload, headroom="4KiB", time_limit=1.0)
    print(f"kernels of the planner: {time.perf_counter() - began:.0f} s", flush=True)


def _passed(options: argparse.Namespace) -> list[str]:
    passed = ["--variants", options.variants, "--shares", options.shares, "--time-limit", str(options.time_limit)]
    passed += ["--op-seconds", str(options.op_seconds), "--joule-seconds", str(options.joule_seconds)]
    passed += ["--simulated-watts", str(options.simulated_watts)] if options.simulated_watts is not None else []
    flags = [name for name in ("tiny", "any_memory", "plain_pools", "joules") if getattr(options, name)]
    return [*passed, *(f"--{name.replace('_', '-')}" for name in flags)]


if __name__ == "__main__":
    main()
