"""Mini-batch SGD on sparse parity until the test samples are right: the training behind energy to accuracy.

Network, loss, data, initial parameters and weight decay are the notes'. A step takes the next `batch` training samples in the order
of the data, over and over, averages their gradients over the whole batch and updates every parameter, as the graph
`mlp:batch=...` does it. The test samples are looked at after every `LOOK` samples, whatever the batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import numpy as np

from pebbler.errors import InputError
from pebbler.notes.kernels.sgd_batches import train_batches
from pebbler.notes.parity import Config, draw_data, draw_params
from pebbler.sweeps.solve_task import TaskResult

__all__ = ["GOALS", "LOOK", "TrainTask", "accuracy_curve", "samples_to_goals", "train_task"]

LOOK = 128
GOALS = (0.9, 1.0)


def accuracy_curve(config: Config, batch: int, looks: int) -> list[float]:
    """Return the test accuracy after every `LOOK` samples, until all test samples are right or `looks` are over.

    >>> accuracy_curve(Config(n=10, k=2, hidden=64, lr=0.4), batch=8, looks=9)
    [0.67, 0.825, 1.0]
    """
    if batch < 1 or LOOK % batch:
        raise InputError(f"batch: expected a divisor of {LOOK}, got {batch}")
    data, start = draw_data(config), draw_params(config)
    right = np.zeros(looks, np.int64)
    w1, vectors = np.ascontiguousarray(start.W1.T), np.stack([start.b1, start.W2])
    taken = train_batches(
        data.x_train, data.y_train, data.x_test, data.y_test, w1, vectors,
        np.array([config.lr, config.wd, start.b2]), batch, LOOK, right,
    )  # fmt: skip
    return [int(count) / config.n_test for count in right[:taken]]


def samples_to_goals(accuracies: Sequence[float], goals: Sequence[float] = GOALS) -> list[int | None]:
    """Return after how many samples each accuracy was first reached; None where it was not.

    >>> samples_to_goals([0.5, 0.95, 0.85])
    [256, None]
    """
    return [next((LOOK * (i + 1) for i, accuracy in enumerate(accuracies) if accuracy >= goal), None) for goal in goals]


class TrainTask(msgspec.Struct, frozen=True):
    """Training runs that differ in their seeds only."""

    hidden: int
    batch: int
    lr: float
    seeds: tuple[int, ...]
    looks: int


def train_task(payload: bytes) -> bytes:
    """Return, as a sweep's result, the samples to each of `GOALS` by seed."""
    task, began = msgspec.msgpack.decode(payload, type=TrainTask), time.monotonic()
    found = [
        samples_to_goals(accuracy_curve(Config(hidden=task.hidden, lr=task.lr, seed=seed), task.batch, task.looks))
        for seed in task.seeds
    ]
    figures = {"status": "done", "samples": list(zip(*found, strict=True)), "seconds": time.monotonic() - began}
    return msgspec.msgpack.encode(TaskResult(figures))
