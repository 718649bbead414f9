"""Sparse-parity data and network parameters, drawn exactly as the notes draw them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import msgspec
import numpy as np

from pebbler.errors import InputError, quoted

__all__ = ["Config", "Data", "Params", "draw_data", "draw_params", "tile_bounds"]

# 10^8 weights take 0.8 GB, and the gradient as much again: far beyond any of the notes, and about what a laptop holds.
MAX_FLOATS = 10**8


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a training run. The defaults are note 000's.

    Training stops after `max_epochs`, or after the first epoch whose test accuracy reaches `stop`. A sample whose margin is at
    least 1 makes no update, unless `always_update` says that weight decay applies even then.

    >>> Config(hidden=500, seed=43).hidden
    500
    >>> Config(n=3, k=5)
    Traceback (most recent call last):
        ...
    pebbler.errors.InputError: k: 5 of 3 bits cannot be secret; expected k <= n
    """

    n: int = 20
    k: int = 3
    hidden: int = 1000
    lr: float = 0.1
    wd: float = 0.01
    seed: int = 42
    n_train: int = 500
    n_test: int = 200
    max_epochs: int = 30
    stop: float = 1.0
    always_update: bool = False

    def __post_init__(self) -> None:
        for field in ("n", "k", "hidden", "n_train", "n_test", "max_epochs"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{field}: expected a whole number of at least 1, got {quoted(value)}")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise InputError(f"seed: expected a whole number, got {quoted(self.seed)}")
        for field, low, high in (("lr", 0.0, math.inf), ("wd", 0.0, math.inf), ("stop", 0.0, 1.0)):
            value = getattr(self, field)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or not low <= value <= high:
                wanted = (
                    f"a number between {low:g} and {high:g}" if high < math.inf else "a finite number of at least 0"
                )
                raise InputError(f"{field}: expected {wanted}, got {quoted(value)}")
        if self.lr == 0:
            raise InputError("lr: expected a number above 0; a learning rate of 0 never trains")
        if not isinstance(self.always_update, bool):
            raise InputError(f"always_update: expected true or false, got {quoted(self.always_update)}")
        if self.k > self.n:
            raise InputError(f"k: {self.k} of {self.n} bits cannot be secret; expected k <= n")
        for field, floats in (("hidden", self.n * self.hidden), ("n_train", self.n * (self.n_train + self.n_test))):
            if floats > MAX_FLOATS:
                raise InputError(f"{field}: makes {floats} floats; expected at most {MAX_FLOATS}")


@dataclass(frozen=True, eq=False)
class Data:
    """Samples in rows of -1.0 and 1.0, their labels, and the bits whose product is the label."""

    secret: tuple[int, ...]
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True, eq=False)
class Params:
    """The parameters of the network: W1 (hidden x n), b1, W2 and b2."""

    W1: np.ndarray
    b1: np.ndarray
    W2: np.ndarray
    b2: float


def tile_bounds(hidden: int, tile: int) -> list[tuple[int, int]]:
    """Return the first hidden unit of every tile and the one past its last; the last tile may be smaller."""
    if not 1 <= tile <= hidden:
        raise InputError(f"tile: expected 1 to hidden = {hidden} units, got {tile}")
    return [(low, min(low + tile, hidden)) for low in range(0, hidden, tile)]


def draw_data(config: Config) -> Data:
    """Return the train and test samples of a config, train first, from Python's own generator.

    >>> [draw_data(Config(seed=seed)).secret for seed in (42, 43, 44)]
    [(0, 3, 8), (1, 4, 9), (13, 16, 17)]
    """
    rng = random.Random(config.seed)
    secret = tuple(sorted(rng.sample(range(config.n), config.k)))
    total = config.n_train + config.n_test
    bits = [rng.choice([-1.0, 1.0]) for _ in range(total * config.n)]
    x = np.array(bits).reshape(total, config.n)
    y = np.prod(x[:, secret], axis=1)
    cut = config.n_train
    return Data(secret, x[:cut], y[:cut], x[cut:], y[cut:])


def draw_params(config: Config) -> Params:
    """Return the untrained parameters of a config: Gaussian weights row by row, biases 0.

    >>> params = draw_params(Config(n=2, k=1, hidden=3))
    >>> params.W1.shape, params.b1.tolist(), params.b2
    ((3, 2), [0.0, 0.0, 0.0], 0.0)
    """
    rng = random.Random(config.seed + 1)
    spread1, spread2 = math.sqrt(2 / config.n), math.sqrt(2 / config.hidden)
    w1 = np.array([rng.gauss(0, spread1) for _ in range(config.hidden * config.n)])
    w2 = np.array([rng.gauss(0, spread2) for _ in range(config.hidden)])
    return Params(w1.reshape(config.hidden, config.n), np.zeros(config.hidden), w2, 0.0)
