"""Simulated peaks against their twin, on random graphs; and what Inductor writes, on small graphs."""

from __future__ import annotations

import random
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from naive_saved_memory import NaiveStep
from pebbler.run.torch.backend.kernels.saved_memory import simulate_saved
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, STORED, VIEW, StepArrays


def random_step(draw, count):
    """Return arrays of a random joint graph: inputs first, then forward, then nodes that need a tangent."""
    given, tangents = draw.randint(1, 3), draw.randint(1, 2)
    kind = [GIVEN] * (given + tangents)
    inputs = [[] for _ in kind]
    tangent = [False] * given + [True] * tangents
    storage = list(range(len(kind)))
    for i in range(len(kind), count):
        kinds = [VIEW, CALL, STORED, INLINED, INLINED, INLINED]
        sources = draw.sample(range(max(0, i - 6), i), min(i, draw.randint(1, 3)))
        if i < count // 2:
            sources = [s for s in sources if not tangent[s]] or [0]
        kind.append(draw.choice(kinds))
        inputs.append(sources)
        tangent.append(any(tangent[s] for s in sources))
        storage.append(storage[sources[0]] if kind[-1] == VIEW else i)
    users = [[j for j in range(count) if i in inputs[j]] for i in range(count)]
    size = [0 if k == VIEW else draw.choice([0, 4, 4, 8, 8, 100]) for k in kind]

    def flat(rows):
        return np.cumsum([0, *map(len, rows)]), np.array([i for row in rows for i in row], np.int64)

    def some(share, allowed):
        return np.array([allowed(i) and draw.random() < share for i in range(count)])

    return StepArrays(
        *flat(inputs), *flat(users), np.array(kind, np.int16), np.array(storage), np.array(size),
        np.array([draw.random() for _ in kind]), np.array(tangent),
        np.array([k == GIVEN or draw.random() < 0.1 for k in kind]) & ~np.array(tangent),
        some(0.2, lambda i: not tangent[i] and kind[i] != GIVEN), some(0.4, lambda i: tangent[i] and kind[i] != GIVEN),
        0.25, 3.0,
    )  # fmt: skip


class Copies(NamedTuple):
    """Which values go to the host, what nodes and bytes take, and how many copies are under way at most."""

    sent: np.ndarray
    seconds: np.ndarray
    out: float
    into: float
    overlap: bool
    ahead: int


def random_copies(draw, arrays, chosen):
    """Return copies of saved values whose memory nobody else holds; whole seconds, so that the twin adds up to the same."""
    held = arrays.storage[chosen].tolist() + arrays.storage[arrays.forward_end | arrays.backward_end].tolist()
    alone = np.array(
        [bool(chosen[i]) and k not in (GIVEN, VIEW) and held.count(i) == 1 for i, k in enumerate(arrays.kind)]
    )
    sent = alone & np.array([draw.random() < 0.7 for _ in chosen])
    seconds = np.array([float(draw.randint(0, 9)) for _ in chosen])
    return Copies(
        sent, seconds, draw.choice([0.25, 1.0]), draw.choice([0.5, 1.0]), draw.random() < 0.8, draw.randint(1, 4)
    )


def check(seed, count):
    draw = random.Random(seed)
    arrays = random_step(draw, count)
    chosen = np.array([not t and draw.random() < 0.3 for t in arrays.tangent])
    for fusing, copies in product(
        (True, False), (random_copies(draw, arrays, chosen), random_copies(draw, arrays, chosen))
    ):
        saved = chosen.copy()
        peak, cost, legal, waiting, left, fetched = simulate_saved(arrays, saved, *copies, 1000, fusing)
        naive = NaiveStep(arrays).simulate({int(i) for i in np.flatnonzero(chosen)}, 1000, fusing, copies)
        moves = {int(i): (int(left[i]), int(fetched[i])) for i in np.flatnonzero(saved & copies.sent)}
        assert (set(np.flatnonzero(saved).tolist()), peak, legal, moves) == (naive[0], naive[1], naive[3], naive[5])
        assert (cost, waiting) == pytest.approx((naive[2], naive[4]))


@pytest.mark.parametrize("seed", range(150))
def test_the_kernel_is_its_twin(seed):
    check(seed, 6 + seed % 17)


def test_a_view_of_several_values_hides_no_reader():
    """Its level is not that of the value that it looks at; seeds on which the twins differed."""
    for seed in (1043, 1135, 1137, 1157, 1160, 1164, 1247, 1252, 1254, 1284):
        check(seed, 6 + seed % 30)


@pytest.mark.slow
def test_the_kernel_is_its_twin_on_thousands_of_graphs():
    for seed in range(1000, 6000):
        check(seed, 6 + seed % 30)
