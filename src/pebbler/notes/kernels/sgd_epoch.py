"""Compiled SGD on a two-layer ReLU network, with the training step given as a program of ops.

A program is an (m, 3) array of instructions: op code, first hidden unit, and the unit after the last. Instructions run in the
given order, in place, on buffers that keep the values of the previous sample. An order that breaks a hazard therefore trains on
wrong values, as it would on a real machine.

W1 is held transposed (inputs x hidden), so every inner loop runs over hidden units and vectorises without touching the
order in which a float is summed: over the inputs one by one, then the bias; over the hidden units one by one, then b2.
"""

from __future__ import annotations

import numpy as np

from pebbler.compiled import kernel

__all__ = ["B2", "LOSS", "OPS", "outputs", "train_epoch"]

# The position of a name is its op code.
OPS = (
    "fwd_linear1",
    "fwd_relu",
    "fwd_linear2",
    "fwd_loss",
    "bwd_loss",
    "bwd_dW2",
    "bwd_db2",
    "bwd_dh",
    "bwd_relu",
    "bwd_dW1",
    "bwd_db1",
    "upd_W1",
    "upd_b1",
    "upd_W2",
    "upd_b2",
)

_FIRST_UPDATE = OPS.index("upd_W1")
Y_HAT, LOSS, DY, DB2, B2 = range(5)


# Every inner loop runs from 0 over whole slices: numba cannot vectorise one whose index might be negative.


@kernel
def _linear1(x: np.ndarray, w1: np.ndarray, b1: np.ndarray, h_pre: np.ndarray, lo: int, hi: int) -> None:
    target, bias = h_pre[lo:hi], b1[lo:hi]
    target[:] = 0.0
    for i in range(x.size):
        _add_scaled(target, w1[i, lo:hi], x[i])
    _add_scaled(target, bias, 1.0)


@kernel
def _add_scaled(target: np.ndarray, source: np.ndarray, scale: float) -> None:
    for j in range(target.size):
        target[j] += source[j] * scale


@kernel
def _scale(target: np.ndarray, source: np.ndarray, scale: float) -> None:
    for j in range(target.size):
        target[j] = source[j] * scale


@kernel
def _gate(target: np.ndarray, source: np.ndarray, gate: np.ndarray) -> None:
    for j in range(target.size):
        target[j] = source[j] if gate[j] > 0.0 else 0.0


@kernel
def _descend(weights: np.ndarray, gradient: np.ndarray, lr: float, wd: float) -> None:
    for j in range(weights.size):
        weights[j] -= lr * (gradient[j] + wd * weights[j])


@kernel
def _linear2(h: np.ndarray, w2: np.ndarray, b2: float) -> float:
    total = 0.0
    for j in range(h.size):
        total += w2[j] * h[j]
    return total + b2


@kernel
def outputs(x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: float) -> np.ndarray:
    """Return the network's output for every row of `x`."""
    result = np.empty(len(x))
    h_pre, h = np.empty(b1.size), np.empty(b1.size)
    for s in range(len(x)):
        _linear1(x[s], w1, b1, h_pre, 0, h_pre.size)
        _gate(h, h_pre, h_pre)
        result[s] = _linear2(h, w2, b2)
    return result


@kernel
def train_epoch(
    x: np.ndarray,
    y: np.ndarray,
    program: np.ndarray,
    w1: np.ndarray,
    vectors: np.ndarray,
    dw1: np.ndarray,
    scalars: np.ndarray,
    lr: float,
    wd: float,
    always_update: bool,
) -> None:
    """TrainingRun the program once for every sample, in place.

    `vectors` holds b1, W2, h_pre, h, dW2, dh, dh_pre and db1 as rows; `scalars` holds y_hat, loss, dy, db2 and b2.
    """
    b1, w2, h_pre, h = vectors[0], vectors[1], vectors[2], vectors[3]
    dw2, dh, dh_pre, db1 = vectors[4], vectors[5], vectors[6], vectors[7]
    inputs = x.shape[1]
    for s in range(len(x)):
        for step in range(len(program)):
            code, lo, hi = program[step, 0], program[step, 1], program[step, 2]
            if code >= _FIRST_UPDATE and not always_update and scalars[LOSS] == 0.0:
                continue
            if code == 0:
                _linear1(x[s], w1, b1, h_pre, lo, hi)
            elif code == 1:
                _gate(h[lo:hi], h_pre[lo:hi], h_pre[lo:hi])
            elif code == 2:
                scalars[Y_HAT] = _linear2(h, w2, scalars[B2])
            elif code == 3:
                margin = scalars[Y_HAT] * y[s]
                scalars[LOSS] = 0.0 if margin >= 1.0 else 1.0 - margin
            elif code == 4:
                scalars[DY] = 0.0 if scalars[LOSS] == 0.0 else -y[s]
            elif code == 5:
                _scale(dw2[lo:hi], h[lo:hi], scalars[DY])
            elif code == 6:
                scalars[DB2] = scalars[DY]
            elif code == 7:
                _scale(dh[lo:hi], w2[lo:hi], scalars[DY])
            elif code == 8:
                _gate(dh_pre[lo:hi], dh[lo:hi], h_pre[lo:hi])
            elif code == 9:
                for i in range(inputs):
                    _scale(dw1[i, lo:hi], dh_pre[lo:hi], x[s, i])
            elif code == 10:
                db1[lo:hi] = dh_pre[lo:hi]
            elif code == 11:
                for i in range(inputs):
                    _descend(w1[i, lo:hi], dw1[i, lo:hi], lr, wd)
            elif code == 12:
                _descend(b1[lo:hi], db1[lo:hi], lr, wd)
            elif code == 13:
                _descend(w2[lo:hi], dw2[lo:hi], lr, wd)
            else:
                scalars[B2] -= lr * (scalars[DB2] + wd * scalars[B2])
