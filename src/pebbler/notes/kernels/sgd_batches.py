"""Compiled mini-batch SGD on a two-layer ReLU network, looked at from time to time on test samples.

W1 is held transposed (inputs x hidden), so every inner loop runs over hidden units. A batch is added up sample by sample in the
order of the data; samples that make no gradient add nothing, and every step updates every parameter, weight decay included.
"""

from __future__ import annotations

import numpy as np

from pebbler.compiled import kernel
from pebbler.notes.kernels.sgd_epoch import _add_scaled, _descend, _gate, _linear1, _linear2, _scale, outputs

__all__ = ["train_batches"]


@kernel
def train_batches(
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    w1: np.ndarray,
    vectors: np.ndarray,
    rates: np.ndarray,
    batch: int,
    stride: int,
    right: np.ndarray,
) -> int:
    """Train in place, cyclically through the samples, and return how many looks at the test samples were taken.

    `vectors` holds b1 and W2 as rows, `rates` the learning rate, the weight decay and b2. After every `stride` samples, a multiple
    of `batch`, `right` gets how many test samples have the right sign; it ends when all have, when the parameters have overflowed,
    or when `right` is full.
    """
    b1, w2 = vectors[0], vectors[1]
    inputs, hidden = w1.shape
    dw1, db1, dw2 = np.empty_like(w1), np.empty(hidden), np.empty(hidden)
    h_pre, h, dh = np.empty(hidden), np.empty(hidden), np.empty(hidden)
    lr, wd = rates[0], rates[1]
    at = 0
    for look in range(right.size):
        for _ in range(stride // batch):
            dw1[:], db1[:], dw2[:], db2 = 0.0, 0.0, 0.0, 0.0
            for _ in range(batch):
                _linear1(x[at], w1, b1, h_pre, 0, hidden)
                _gate(h, h_pre, h_pre)
                if _linear2(h, w2, rates[2]) * y[at] < 1.0:
                    dy = -y[at] / batch
                    _add_scaled(dw2, h, dy)
                    _scale(dh, w2, dy)
                    _gate(dh, dh, h_pre)
                    _add_scaled(db1, dh, 1.0)
                    for i in range(inputs):
                        _add_scaled(dw1[i], dh, x[at, i])
                    db2 += dy
                at = (at + 1) % len(x)
            for i in range(inputs):
                _descend(w1[i], dw1[i], lr, wd)
            _descend(b1, db1, lr, wd)
            _descend(w2, dw2, lr, wd)
            rates[2] -= lr * (db2 + wd * rates[2])
        margins = outputs(x_test, w1, b1, w2, rates[2]) * y_test
        right[look] = np.count_nonzero(margins > 0.0)
        if right[look] == y_test.size or np.isnan(margins).any():  # what is no number stays so
            return look + 1
    return right.size
