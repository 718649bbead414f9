"""One epoch of the fully tiled loop on numbers, for comparison with ordinary training.

Each tile of hidden units applies the update of the last sample and then runs the forward pass of the next sample. The epoch is
plain numpy, independent of the compiled trainer, so that the two can be compared bit for bit.
"""

from __future__ import annotations

import msgspec
import numpy as np

from pebbler.errors import InputError
from pebbler.notes.parity import Config, Params, draw_data, draw_params, tile_bounds
from pebbler.notes.sgd import train

__all__ = ["pipelined_epoch", "same_as_plain"]


def pipelined_epoch(config: Config, tile: int) -> Params:
    """Return the parameters after one epoch of the fully tiled loop."""
    spans = [slice(*bounds) for bounds in tile_bounds(config.hidden, tile)]
    if config.always_update:
        raise InputError("always_update: the pipelined loop makes no update for a sample of margin 1 or more")
    data, start = draw_data(config), draw_params(config)
    w1, b1, w2, b2 = np.ascontiguousarray(start.W1.T), start.b1, start.W2, start.b2
    h_pre, h = np.zeros(config.hidden), np.zeros(config.hidden)
    lr, wd = config.lr, config.wd
    dy = 0.0
    for s in range(config.n_train + 1):
        x_old, x = data.x_train[s - 1], data.x_train[s % config.n_train]
        if dy:
            b2 -= lr * (dy + wd * b2)
        for t in spans:
            if dy:
                dh_pre = np.where(h_pre[t] > 0, w2[t] * dy, 0.0)
                w2[t] -= lr * (h[t] * dy + wd * w2[t])
                w1[:, t] -= lr * (dh_pre[None, :] * x_old[:, None] + wd * w1[:, t])
                b1[t] -= lr * (dh_pre + wd * b1[t])
            # Sums run input by input and unit by unit, as in the trainer: a cumulative sum never regroups its terms.
            h_pre[t] = np.cumsum(w1[:, t] * x[:, None], axis=0)[-1] + b1[t]
            h[t] = np.maximum(h_pre[t], 0.0)
        if s < config.n_train:
            y = data.y_train[s]
            dy = 0.0 if (np.cumsum(w2 * h)[-1] + b2) * y >= 1 else -y
    return Params(np.ascontiguousarray(w1.T), b1, w2, float(b2))


def same_as_plain(config: Config, tile: int) -> bool:
    """Return whether the fully tiled loop ends one epoch with exactly the parameters of ordinary training.

    >>> same_as_plain(Config(hidden=40, n_train=50), tile=10)
    True
    """
    plain = train(msgspec.structs.replace(config, max_epochs=1)).params
    tiled = pipelined_epoch(config, tile)
    return all(np.array_equal(getattr(plain, name), getattr(tiled, name)) for name in ("W1", "b1", "W2", "b2"))
