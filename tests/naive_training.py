"""Brute-force twins of the training kernels: plain Python, one float at a time; mini-batches in numpy."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np


def draw(n: int, k: int, hidden: int, seed: int, samples: int) -> tuple[list, list, dict]:
    """Return inputs, labels and untrained parameters as lists, drawn as the notes say."""
    rng = random.Random(seed)
    secret = sorted(rng.sample(range(n), k))
    xs = [[rng.choice([-1.0, 1.0]) for _ in range(n)] for _ in range(samples)]
    ys = [math.prod(x[i] for i in secret) for x in xs]
    rng = random.Random(seed + 1)
    w1 = [[rng.gauss(0, math.sqrt(2 / n)) for _ in range(n)] for _ in range(hidden)]
    w2 = [rng.gauss(0, math.sqrt(2 / hidden)) for _ in range(hidden)]
    return xs, ys, {"W1": w1, "b1": [0.0] * hidden, "W2": w2, "b2": 0.0}


def left_to_right(terms: Iterable[float]) -> float:
    """Return the sum in order; `sum` compensates from Python 3.12 on."""
    total = 0.0
    for term in terms:
        total += term
    return total


def output(p: dict, x: list[float]) -> float:
    h = [
        max(left_to_right(w * v for w, v in zip(row, x, strict=True)) + b, 0.0)
        for row, b in zip(p["W1"], p["b1"], strict=True)
    ]
    return left_to_right(w * v for w, v in zip(p["W2"], h, strict=True)) + p["b2"]


def epoch(p: dict, state: dict, xs: list, ys: list, order: Iterable, lr: float, wd: float, always_update: bool) -> None:
    """Run the ops (name, units) of every sample in the given order, on a state that is never cleared."""
    for x, y in zip(xs, ys, strict=True):
        for op, units in order:
            if op.startswith("upd") and not always_update and state["loss"] == 0:
                continue
            run(op, units, p, state, x, y, lr, wd)


def run(op: str, units: range, p: dict, s: dict, x: list[float], y: float, lr: float, wd: float) -> None:
    if op == "fwd_linear2":
        s["y_hat"] = left_to_right(w * h for w, h in zip(p["W2"], s["h"], strict=True)) + p["b2"]
    elif op == "fwd_loss":
        s["loss"] = 0.0 if s["y_hat"] * y >= 1 else 1 - s["y_hat"] * y
    elif op == "bwd_loss":
        s["dy"] = 0.0 if s["loss"] == 0 else -y
    elif op == "bwd_db2":
        s["db2"] = s["dy"]
    elif op == "upd_b2":
        p["b2"] -= lr * (s["db2"] + wd * p["b2"])
    else:
        for j in units:
            if op == "fwd_linear1":
                s["h_pre"][j] = left_to_right(w * v for w, v in zip(p["W1"][j], x, strict=True)) + p["b1"][j]
            elif op == "fwd_relu":
                s["h"][j] = s["h_pre"][j] if s["h_pre"][j] > 0 else 0.0
            elif op == "bwd_dW2":
                s["dW2"][j] = s["dy"] * s["h"][j]
            elif op == "bwd_dh":
                s["dh"][j] = p["W2"][j] * s["dy"]
            elif op == "bwd_relu":
                s["dh_pre"][j] = s["dh"][j] if s["h_pre"][j] > 0 else 0.0
            elif op == "bwd_dW1":
                s["dW1"][j] = [s["dh_pre"][j] * v for v in x]
            elif op == "bwd_db1":
                s["db1"][j] = s["dh_pre"][j]
            elif op == "upd_W1":
                p["W1"][j] = [w - lr * (g + wd * w) for w, g in zip(p["W1"][j], s["dW1"][j], strict=True)]
            elif op == "upd_b1":
                p["b1"][j] -= lr * (s["db1"][j] + wd * p["b1"][j])
            elif op == "upd_W2":
                p["W2"][j] -= lr * (s["dW2"][j] + wd * p["W2"][j])
            else:
                raise KeyError(op)


def fresh_state(n: int, hidden: int) -> dict:
    state: dict = dict.fromkeys(("y_hat", "loss", "dy", "db2"), 0.0)
    state |= {name: [0.0] * hidden for name in ("h_pre", "h", "dW2", "dh", "dh_pre", "db1")}
    return state | {"dW1": [[0.0] * n for _ in range(hidden)]}


def batch_step(p: dict[str, np.ndarray], xs: np.ndarray, ys: np.ndarray, lr: float, wd: float) -> dict[str, np.ndarray]:
    """Return the parameters after one step on a batch: whole matrices, gradients averaged, everything updated."""
    pre = xs @ p["W1"].T + p["b1"]
    h = np.maximum(pre, 0)
    dy = np.where((h @ p["W2"] + p["b2"]) * ys < 1, -ys / len(ys), 0.0)
    dpre = np.outer(dy, p["W2"]) * (pre > 0)
    gradients = {"W1": dpre.T @ xs, "b1": dpre.sum(0), "W2": h.T @ dy, "b2": dy.sum()}
    return {name: value - lr * (gradients[name] + wd * value) for name, value in p.items()}
