"""What setting up a PyTorch plan costs, part by part, in milliseconds of CPU per op; and what is checked before every call.

Three steps with AdamW: a GPT-2 of 12 layers, a ResNet-50, a multi-layer perceptron. "Capture" has three parts: recording on fake
tensors, looking at Python state and making guards, comparing recordings and building graphs. "Measure" runs every kind of op,
"plan" is program order, "compile" writes the program, "first call" compares it with the step and runs both. The last columns
are one later call, and what is checked in it before it runs.

    python -m benchmarks.torch_setup
    python -m benchmarks.torch_setup gpt2 --rounds 3

To compare with another state of this repository, run the same file with that one on the path: PYTHONPATH=OTHER/src.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pebbler.torch as pt

# What of `pebbler.run.torch.capture` belongs to which part; what is not there is left out.
PARTS = {
    "record": ("step_state:StepState.record",),
    "python": ("python_state:PythonState.__init__", "python_state:PythonState.changes", "python_state:PythonState.restore",
               "executed_code:ExecutedCode.functions", "executed_code:ExecutedCode.globals", "guards:Guards.__init__"),
    "graph": ("recordings:_compared", "captured:build_phase"),
}  # fmt: skip
CALLS = 200


# Kept where capture does not look: it would refuse a step that counts.
clock: Any = logging.makeLogRecord({})


def watched(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its CPU time counted for a part; inside of another one it belongs to that."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if clock.inside:
            return function(*args, **kwargs)
        clock.inside, began = True, time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            clock.inside = False
            clock.seconds[part] += time.process_time() - began

    return timed


def watch_parts() -> None:
    """Count the time of everything in `PARTS`."""
    clock.inside = False
    for part, names in PARTS.items():
        for name in names:
            module, path = name.split(":")
            owner: Any = importlib.import_module(f"pebbler.run.torch.capture.{module}")
            *outer, last = path.split(".")
            for key in outer:
                owner = getattr(owner, key)
            if hasattr(owner, last):
                setattr(owner, last, watched(part, getattr(owner, last)))


class Block(nn.Module):
    """A bottleneck of ResNet-50."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        same = stride == 1 and channels == out
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the body and the skip connection."""
        return nn.functional.relu(self.body(x) + self.skip(x), inplace=True)


def resnet() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a ResNet-50 with an eighth of its channels, and a batch."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 8
    for width, count, stride in ((8, 3, 1), (16, 4, 2), (32, 6, 2), (64, 3, 2)):
        for i in range(count):
            layers.append(Block(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return model, torch.randn(2, 3, 32, 32), torch.randint(10, (2,))


def mlp() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a perceptron of 12 layers, and a batch."""
    layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(64, 10)), torch.randn(256, 64), torch.randint(10, (256,))


def gpt2() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a GPT-2 of 12 narrow layers with dropout, and a batch."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=12, n_embd=48, n_head=4, vocab_size=128, n_positions=64, use_cache=False,
                        bos_token_id=1, eos_token_id=2, loss_type="ForCausalLM")  # fmt: skip
    ids = torch.randint(128, (2, 32))
    return GPT2LMHeadModel(config), ids, ids.clone()


MODELS = {"gpt2": gpt2, "resnet": resnet, "mlp": mlp}


def make_step(name: str) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return a training step, and its batch."""
    torch.manual_seed(0)
    model, x, y = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x, labels=y).loss if name == "gpt2" else nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, (x, y)


def measure(name: str) -> dict[str, float]:
    """Return CPU seconds of every part, how many ops there are, and the seconds of a call and of its checks."""
    step, batch = make_step(name)
    clock.seconds = dict.fromkeys(PARTS, 0.0)
    times = [time.process_time()]

    def lap() -> float:
        times.append(time.process_time())
        return times[-1] - times[-2]

    captured = pt.capture(step, *batch)
    row = {"capture": lap(), **clock.seconds}
    costs = pt.profile(captured, repeats=1)
    row["measure"] = lap()
    plan = pt.plan_captured(captured, costs)
    row["plan"] = lap()
    fast = pt.compile(plan, step)
    row["compile"] = lap()
    fast(*batch)
    row["first call"] = lap()
    fast(*batch)
    lap()
    runner: Any = fast._runner
    for _ in range(20):
        fast(*batch)
    row["call"] = _median(lambda: fast(*batch), 20)
    row["check"] = _median(lambda: runner.check(batch, {}))
    row["guards"] = _median(captured.guards.check)
    row["ops"] = float(sum(len(phase.graph.ops) for phase in captured.phases))
    return row


def _median(run: Callable[[], Any], count: int = CALLS) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


SETUP = ("capture", *PARTS, "measure", "plan", "compile", "first call")


def main() -> None:
    """Print a row for every model, the best of some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=2, help="of which the least counts, column by column")
    options = parser.parse_args()
    torch.set_num_threads(1)
    watch_parts()
    print("milliseconds of CPU per op of all phases; then one call, its checks and its guards")
    print(
        f"{'model':<8} {'ops':>6} "
        + " ".join(f"{part:>10}" for part in SETUP)
        + f" {'call':>9} {'checks':>9} {'guards':>9}"
    )
    for name in options.models:
        rows = [measure(name) for _ in range(options.rounds)]
        best = {key: min(row[key] for row in rows) for key in rows[0]}
        parts = " ".join(f"{1e3 * best[part] / best['ops']:>10.3f}" for part in SETUP)
        print(
            f"{name:<8} {best['ops']:>6.0f} {parts} {1e3 * best['call']:>6.2f} ms "
            f"{1e6 * best['check']:>6.0f} us {1e6 * best['guards']:>6.0f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
