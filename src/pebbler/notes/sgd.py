"""Single-sample SGD on sparse parity, run through any order of the training step's ops.

Each hidden unit sums its inputs one by one and then adds its bias, the output sums the hidden units one by one and then adds
b2. This order reproduces the published accuracies; some other orders do, too (docs/notes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.errors import InputError, near_matches, quoted
from pebbler.notes.kernels import sgd_epoch as kernel
from pebbler.notes.parity import Config, Data, Params, draw_data, draw_params, tile_bounds

__all__ = ["ORDERS", "Instruction", "TrainingRun", "firing", "margins", "order_named", "tiled_order", "train"]

Instruction = str | tuple[str, int, int]

_FORWARD = kernel.OPS[:5]
_SCALAR_OPS = ("fwd_linear2", "fwd_loss", "bwd_loss", "bwd_db2", "upd_b2")


def _order(rest: str) -> tuple[str, ...]:
    return (*_FORWARD, *rest.split())


# Note 003's variants: the same maths in another order. Note 000's orders are in `pebbler.notes.reference_orders`.
ORDERS: Mapping[str, tuple[str, ...]] = {
    "standard": kernel.OPS,
    "fused": _order("bwd_dW2 bwd_db2 bwd_dh upd_W2 upd_b2 bwd_relu bwd_dW1 upd_W1 bwd_db1 upd_b1"),
    "perlayer": _order("bwd_dh bwd_dW2 upd_W2 bwd_db2 upd_b2 bwd_relu bwd_dW1 upd_W1 bwd_db1 upd_b1"),
}


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A finished training run: test accuracy after every epoch, and the parameters it ended with."""

    config: Config
    test_accuracy: tuple[float, ...]
    params: Params

    @property
    def epochs(self) -> int:
        """The number of epochs run."""
        return len(self.test_accuracy)

    @property
    def best(self) -> float:
        """The best test accuracy of any epoch."""
        return max(self.test_accuracy)


def order_named(name: str) -> tuple[str, ...]:
    """Return one of note 003's orders of the 15 ops.

    >>> order_named("fused")[-2:]
    ('bwd_db1', 'upd_b1')
    """
    if name not in ORDERS:
        raise InputError(f"order: no order is called {quoted(name)}{near_matches(name, ORDERS)}")
    return ORDERS[name]


def tiled_order(hidden: int, tile: int) -> tuple[Instruction, ...]:
    """Return note 002's step: layer 1 forward and backward by tiles of hidden units, layer 2 whole.

    >>> tiled_order(hidden=4, tile=2)[:2]
    (('fwd_linear1', 0, 2), ('fwd_relu', 0, 2))
    """
    spans = tile_bounds(hidden, tile)
    forward = [(op, *span) for span in spans for op in ("fwd_linear1", "fwd_relu")]
    middle = ("fwd_linear2", "fwd_loss", "bwd_loss", "bwd_dW2", "bwd_db2", "bwd_dh")
    backward = [(op, *span) for span in spans for op in ("bwd_relu", "bwd_dW1", "upd_W1", "bwd_db1", "upd_b1")]
    return (*forward, *middle, *backward, "upd_W2", "upd_b2")


def _program(order: Iterable[Instruction], hidden: int) -> np.ndarray:
    """Return the order as the kernel's instructions; every op must cover every hidden unit exactly once."""
    rows: list[tuple[int, int, int]] = []
    covered: dict[str, list[tuple[int, int]]] = {op: [] for op in kernel.OPS}
    for instruction in order:
        op, lo, hi = (instruction, 0, hidden) if isinstance(instruction, str) else instruction
        if op not in covered:
            raise InputError(f"order: no op is called {quoted(op)}{near_matches(str(op), kernel.OPS)}")
        if not 0 <= lo < hi <= hidden or (op in _SCALAR_OPS and (lo, hi) != (0, hidden)):
            raise InputError(f"order: {op} cannot run on hidden units {lo} to {hi} of {hidden}")
        covered[op].append((lo, hi))
        rows.append((kernel.OPS.index(op), lo, hi))
    for op, spans in covered.items():
        ends = [0, *(hi for _, hi in sorted(spans))]
        if [lo for lo, _ in sorted(spans)] != ends[:-1] or ends[-1] != hidden:
            raise InputError(f"order: {op} must run exactly once on each of the {hidden} hidden units")
    return np.array(rows, dtype=np.int64)


def margins(params: Params, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return output times label of every sample; positive is right, 1 and above makes no gradient.

    >>> config = Config()
    >>> data = draw_data(config)
    >>> round(float(margins(draw_params(config), data.x_train, data.y_train)[0]), 3)
    1.347
    """
    outputs = kernel.outputs(x, np.ascontiguousarray(params.W1.T), params.b1, params.W2, params.b2)
    return np.asarray(outputs * y)


def train(config: Config, order: str | Sequence[Instruction] = "standard", data: Data | None = None) -> TrainingRun:
    """Train on sparse parity by running the ops of every step in the given order, in place.

    The order is a name of `ORDERS` or a sequence of op names, each optionally with a range of hidden units. It is executed as
    given, legal or not: an order that updates W2 before the backward pass reads it trains on the wrong W2.

    >>> run = train(Config(n=6, k=2, hidden=16, n_train=40, n_test=40, max_epochs=20))
    >>> run.epochs, run.best
    (4, 1.0)
    """
    data = draw_data(config) if data is None else data
    state = _State(config, order)
    accuracy: list[float] = []
    for _ in range(config.max_epochs):
        state.step(data.x_train, data.y_train)
        right = margins(state.params(), data.x_test, data.y_test) > 0
        accuracy.append(float(np.count_nonzero(right) / len(right)))
        if accuracy[-1] >= config.stop:
            break
    return TrainingRun(config, tuple(accuracy), state.params())


def firing(config: Config, count: int) -> list[bool]:
    """Return those of the first `count` samples that make a gradient when the untrained network learns from one after the other.

    >>> sum(firing(Config(), 32))
    17
    """
    if not 0 <= count <= config.n_train:
        raise InputError(f"count: expected 0 to n_train = {config.n_train} samples, got {count}")
    data, state = draw_data(config), _State(config, "standard")
    fires = []
    for s in range(count):
        state.step(data.x_train[s : s + 1], data.y_train[s : s + 1])
        fires.append(bool(state.scalars[kernel.LOSS] != 0.0))
    return fires


class _State:
    """Parameters and buffers of a run in the kernel's layout."""

    def __init__(self, config: Config, order: str | Sequence[Instruction]) -> None:
        self.config = config
        self.program = _program(order_named(order) if isinstance(order, str) else order, config.hidden)
        start = draw_params(config)
        self.w1 = np.ascontiguousarray(start.W1.T)
        self.dw1 = np.zeros_like(self.w1)
        self.vectors = np.zeros((8, config.hidden))
        self.vectors[1] = start.W2
        self.scalars = np.zeros(5)

    def step(self, x: np.ndarray, y: np.ndarray) -> None:
        c = self.config
        kernel.train_epoch(
            x, y, self.program, self.w1, self.vectors, self.dw1, self.scalars, c.lr, c.wd, c.always_update
        )

    def params(self) -> Params:
        b2 = float(self.scalars[kernel.B2])
        return Params(np.ascontiguousarray(self.w1.T), self.vectors[0].copy(), self.vectors[1].copy(), b2)
