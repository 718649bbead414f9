"""Our training loop against a straightforward pure-Python one: same config, same numbers, one run.

python -m benchmarks.training_speed
"""

from __future__ import annotations

import json
import platform
import statistics
import time

import msgspec
import numpy as np

from pebbler.notes import Config, draw_data, draw_params, train

CONFIG = Config(hidden=1000, n_train=100, n_test=50, max_epochs=1)
REPEATS = 5
EPOCHS = 11


def plain_epoch(config: Config) -> tuple[list[list[float]], list[float], list[float], float]:
    """Return the parameters after one epoch of single-sample SGD, written as one would in plain Python."""
    data, start = draw_data(config), draw_params(config)
    w1, b1, w2, b2 = start.W1.tolist(), start.b1.tolist(), start.W2.tolist(), start.b2
    lr, wd = config.lr, config.wd
    for x, y in zip(data.x_train.tolist(), data.y_train.tolist(), strict=True):
        h_pre = []
        for row, bias in zip(w1, b1, strict=True):
            total = 0.0
            for weight, bit in zip(row, x, strict=True):
                total += weight * bit
            h_pre.append(total + bias)
        h = [max(value, 0.0) for value in h_pre]
        total = 0.0
        for weight, value in zip(w2, h, strict=True):
            total += weight * value
        if (total + b2) * y >= 1:
            continue
        dy = -y
        dh_pre = [weight * dy if value > 0 else 0.0 for weight, value in zip(w2, h_pre, strict=True)]
        w2 = [weight - lr * (dy * value + wd * weight) for weight, value in zip(w2, h, strict=True)]
        b2 -= lr * (dy + wd * b2)
        for j, grad in enumerate(dh_pre):
            w1[j] = [weight - lr * (grad * bit + wd * weight) for weight, bit in zip(w1[j], x, strict=True)]
        b1 = [bias - lr * (grad + wd * bias) for bias, grad in zip(b1, dh_pre, strict=True)]
    return w1, b1, w2, b2


def timed_epoch(config: Config) -> float:
    """Return the seconds of one epoch of our loop: many less one, so that drawing does not count (testing still does)."""
    seconds = []
    for epochs in (1, EPOCHS):
        began = time.perf_counter()
        run = train(msgspec.structs.replace(config, max_epochs=epochs))
        seconds.append(time.perf_counter() - began)
        if run.epochs != epochs:
            raise SystemExit(
                f"training stopped after {run.epochs} of {epochs} epochs; the time per epoch would be wrong"
            )
    return (seconds[1] - seconds[0]) / (EPOCHS - 1)


def main() -> None:
    """Time both loops and print the ratio."""
    ours = train(CONFIG).params  # also compiles
    began = time.perf_counter()
    w1, b1, w2, b2 = plain_epoch(CONFIG)
    plain = time.perf_counter() - began
    same = np.array_equal(ours.W1, w1) and np.array_equal(ours.b1, b1) and np.array_equal(ours.W2, w2) and ours.b2 == b2
    seconds = statistics.median(timed_epoch(CONFIG) for _ in range(REPEATS))
    result = {
        "config": msgspec.to_builtins(CONFIG),
        "python": platform.python_version(),
        "plain_seconds": round(plain, 4),
        "pebbler_seconds": round(seconds, 6),
        "ratio": round(plain / seconds, 1),
        "same_parameters_bit_for_bit": bool(same),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
