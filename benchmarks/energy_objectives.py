"""Plans for energy beside plans for time at the same budget, by prediction: how far apart they are, on measured prices.

Models are captured at full size (no GPU is needed, nothing runs), their ops priced by bytes and flops on a device that was
calibrated, and planned within shares of the peak without a limit, values going to the host included. `wide` is the step in which
the two should differ most (docs/truth.md): products with K = 8,192.

    python -m benchmarks.energy_objectives
    python -m benchmarks.energy_objectives --models gpt2,wide --shares 0.5,0.2 --device machine.toml
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import pebbler.torch as pt
from benchmarks.energy_models import make_model
from pebbler.run.torch.cost.costs import Device, find_device
from pebbler.solver.problem import Impossible

WIDTH, DEEP = 64, 8192  # of `wide`: layers as they are captured, and as they are priced


def make_wide() -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return a step of twelve layers of one width and its batch."""
    layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(12)]
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.GELU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, (torch.zeros(65536, WIDTH, dtype=torch.bfloat16),)


def deeper(device: Device, times: float) -> Device:
    """Return a device on which a product takes the time and the joules of one that is so many times as deep."""
    dtypes = {name: (flops / times, joules * times) for name, (flops, joules) in device.dtypes.items()}
    return replace(
        device, flops=device.flops / times, joules_per_flop=device.joules_per_flop * times, dtypes=dtypes, launch=0.0
    )


def captured_and_priced(name: str, device: Device, small: bool) -> tuple[Any, Any]:
    """Return a captured step with fused ops, and its costs."""
    if name == "wide":
        wide, batch = make_wide()
        captured = pt.fuse(pt.capture(wide, *batch))
        return captured, pt.roofline(captured, deeper(device, DEEP / WIDTH))
    model, step, batch = make_model(name, "cpu", small=small)

    def plain(*batch: torch.Tensor) -> torch.Tensor:
        return step(model, *batch)

    captured = pt.fuse(pt.capture(plain, *batch))
    return captured, pt.roofline(captured, device)


def main() -> None:
    """Print both plans of every model and share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="wide,gpt,gpt2,llama", help="comma-separated")
    parser.add_argument("--shares", default="0.5,0.3,0.2", help="of the peak without a limit, comma-separated")
    parser.add_argument("--device", default="h200", help="a described device, or a file of pebbler calibrate")
    parser.add_argument(
        "--time-limit", type=float, default=12.0, help="seconds for each plan for time; twice for energy"
    )
    parser.add_argument("--small", action="store_true", help="tiny models")
    options = parser.parse_args()
    device = find_device(options.device)
    columns = [f"{word:>9s}" for word in ("J", "ms", "J, times", "ms, times", "again", "host GB")]
    print(f"{'model':9s} {'share':>5s} {'for':6s}", *columns)
    for name in options.models.split(","):
        began = time.perf_counter()
        captured, costs = captured_and_priced(name, device, options.small)
        free = pt.plan_captured(captured, costs, offload=True)
        least = pt.predict_energy(free, costs)
        taken = time.perf_counter() - began
        print(
            f"{name:9s} {'none':>5s} {'':6s} {least.joules:9.3f} {1e3 * least.seconds:9.2f}  set up in {taken:.0f} s",
            flush=True,
        )
        for share in options.shares.split(","):
            for objective, seconds in (("time", options.time_limit), ("energy", 2 * options.time_limit)):
                try:
                    plan = pt.plan_captured(
                        captured, costs, budget=int(float(share) * free.peak), objective=objective,  # type: ignore[arg-type]
                        offload=True, headroom=0, time_limit=seconds,
                    )  # fmt: skip
                except Impossible as error:
                    print(f"{name:9s} {share:>5s} {objective:6s} {error}"[:120], flush=True)
                    continue
                found = pt.predict_energy(plan, costs)
                times = f"{found.joules / least.joules:9.4f} {found.seconds / least.seconds:9.4f}"
                moved = f"{plan.recomputed:9d} {plan.offloaded / 1e9:9.3f}"
                figures = f"{found.joules:9.3f} {1e3 * found.seconds:9.2f} {times} {moved}"
                print(f"{name:9s} {share:>5s} {objective:6s} {figures}", flush=True)


if __name__ == "__main__":
    main()
