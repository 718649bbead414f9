"""The clock-based figures of the notes, to the last digit they were computed with."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pebbler.errors import InputError
from pebbler.trace.buffer_events import NEVER_WRITTEN, Events, Traffic, buffer_lru

N_BITS = 20


def sizes_of(hidden: int) -> dict[str, int]:
    sizes = dict.fromkeys(("b1", "W2", "h_pre", "h", "dW2", "dh", "dh_pre", "acc_db1", "acc_dW2"), hidden)
    sizes |= dict.fromkeys(("b2", "y", "out", "dout", "db2", "acc_db2"), 1)
    return sizes | {"W1": N_BITS * hidden, "acc_dW1": N_BITS * hidden, "x": N_BITS}


class Script:
    """Writes a line such as "R x W1; W h" into events; "_s" marks a sample's own buffer."""

    def __init__(self, sizes: dict[str, int], sample: int = 0) -> None:
        self.events, self.sizes, self.sample = Events(), sizes, sample

    def __call__(self, line: str) -> None:
        for part in line.split(";"):
            kind, *names = part.split()
            for name in names:
                label = name.replace("_s", f"_{self.sample}")
                if kind == "W":
                    self.events.write(label, self.sizes[name.removesuffix("_s")])
                else:
                    self.events.read(label)


INITIAL = "W W1 b1 W2 b2 x y"
FORWARD = "R x W1 b1; W h_pre; R h_pre; W h; R h W2 b2; W out"
TO_DH = "W dout; R dout h; W dW2 db2; R W2 dout; W dh"
LAYER_1 = "R dh h_pre; W dh_pre; R dh_pre x W1; W W1; R dh_pre b1; W b1"
LAYER_2 = "R dW2 W2; W W2; R db2 b2; W b2"
STANDARD = ("R out y", TO_DH, LAYER_1, LAYER_2)
FUSED = ("R out y", TO_DH, LAYER_2, LAYER_1)
PERLAYER = ("R h W2 W2; W W2; R b2; W b2; R h_pre x W1; W W1; R b1; W b1",)


@pytest.mark.parametrize(
    ("backward", "ard", "counts", "floats", "w1", "w2", "dmc"),
    [
        (
            STANDARD,
            17976.402757373715,
            (24, 18),
            (51073, 26547),
            [11042, 28070],
            [13042, 14549, 39570],
            3348253.104460899,
        ),
        (
            FUSED,
            17740.877839303877,
            (24, 18),
            (51073, 26547),
            [11042, 29573],
            [13042, 14549, 16050],
            3314675.9732290013,
        ),
        (
            PERLAYER,
            17298.56596854372,
            (15, 13),
            (47566, 24542),
            [11042, 26566],
            [13042, 14044, 14544],
            3083639.095427301,
        ),
    ],
)
def test_step_with_a_gradient(backward, ard, counts, floats, w1, w2, dmc):
    script = Script(sizes_of(500))
    for line in (INITIAL, FORWARD, *backward):
        script(line)
    events = script.events
    assert events.weighted_ard() == ard
    assert (events.reads, events.writes) == counts
    assert (events.total_floats, events.floats_read) == floats
    assert (events.distances("W1"), events.distances("W2")) == (w1, w2)
    assert events.dmc() == dmc


# Note 000: the ops of the pebble game in three orders; an update writes the parameter itself.
OPS = {
    "fwd_linear1": "R W1 x b1; W h_pre",
    "fwd_relu": "R h_pre; W h",
    "fwd_linear2": "R W2 h b2; W y_hat",
    "fwd_loss": "R y_hat y; W loss",
    "bwd_loss": "R loss y_hat y; W dy",
    "bwd_dW2": "R dy h; W dW2",
    "bwd_db2": "R dy; W db2",
    "bwd_dh": "R W2 dy; W dh",
    "bwd_relu": "R dh h_pre; W dh_pre",
    "bwd_dW1": "R dh_pre x; W dW1",
    "bwd_db1": "R dh_pre; W db1",
    "upd_W1": "R W1 dW1; W W1",
    "upd_b1": "R b1 db1; W b1",
    "upd_W2": "R W2 dW2; W W2",
    "upd_b2": "R b2 db2; W b2",
}
FUSED_TAIL = "bwd_dW2 upd_W2 bwd_db2 upd_b2 bwd_dh bwd_relu bwd_dW1 upd_W1 bwd_db1 upd_b1"
PERLAYER_TAIL = "bwd_dW2 bwd_db2 upd_W2 upd_b2 bwd_dh bwd_relu bwd_dW1 bwd_db1 upd_W1 upd_b1"


@pytest.mark.parametrize(
    ("tail", "ard"),
    [
        (" ".join(list(OPS)[5:]), 45275.211759463076),
        (FUSED_TAIL, 42248.27115096353),
        (PERLAYER_TAIL, 43328.63468420413),
    ],
)
def test_orders_of_the_pebble_game(tail, ard):
    sizes = sizes_of(1000) | dict.fromkeys(("y_hat", "loss", "dy"), 1) | {"dW1": 20000, "db1": 1000}
    script = Script(sizes)
    script(INITIAL)
    for name in [*list(OPS)[:5], *tail.split()]:
        script(OPS[name])
    assert figures(script.events) == (ard, 144078, 30, 21)


# Note 004 needs to know which samples fire, so the tests run its small net.


def parity_data(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = random.Random(seed)
    secret = sorted(rng.sample(range(N_BITS), 3))
    x = np.array([[rng.choice([-1.0, 1.0]) for _ in range(N_BITS)] for _ in range(count)])
    return x, x[:, secret].prod(axis=1)


def fresh_net(seed: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    rng = random.Random(seed + 1)
    w1 = [[rng.gauss(0, (2 / N_BITS) ** 0.5) for _ in range(N_BITS)] for _ in range(hidden)]
    return np.array(w1), np.array([rng.gauss(0, (2 / hidden) ** 0.5) for _ in range(hidden)])


def fires(hidden: int, count: int, *, train: bool, seed: int = 42, lr: float = 0.1, wd: float = 0.01) -> list[bool]:
    x, y = parity_data(seed, count)
    w1, w2 = fresh_net(seed, hidden)
    b1, b2 = np.zeros(hidden), 0.0
    fired = []
    for sample, label in zip(x, y, strict=True):
        h_pre = w1 @ sample + b1
        h = np.maximum(h_pre, 0)
        fired.append(bool((w2 @ h + b2) * label < 1))
        if train and fired[-1]:
            dh_pre = -label * w2 * (h_pre > 0)
            w2 = w2 - lr * (-label * h + wd * w2)
            b2 = b2 - lr * (-label + wd * b2)
            w1 = w1 - lr * (np.outer(dh_pre, sample) + wd * w1)
            b1 = b1 - lr * (dh_pre + wd * b1)
    return fired


def single_steps(hidden: int, fired: list[bool], *, rewrite: bool = True) -> Events:
    script = Script(sizes_of(hidden))
    for step, fire in enumerate(fired):
        script(INITIAL if rewrite or step == 0 else "W x y")
        script(FORWARD)
        for line in STANDARD if fire else STANDARD[:1]:
            script(line)
    return script.events


def batch_step(hidden: int, fired: list[bool]) -> Events:
    script = Script(sizes_of(hidden))
    script("W W1 b1 W2 b2; R W1 b1 W2 b2; W acc_dW1 acc_db1 acc_dW2 acc_db2")
    for sample, fire in enumerate(fired):
        script.sample = sample
        script("W x_s y_s; R x_s W1 b1; W h_pre_s; R h_pre_s; W h_s; R h_s W2 b2; W out_s; R out_s y_s")
        if fire:
            script(
                "W dout_s; R dout_s h_s; W dW2_s db2_s; R W2 dout_s; W dh_s; R dh_s h_pre_s; W dh_pre_s; R dh_pre_s x_s"
            )
            script("R acc_dW1; W acc_dW1; R acc_db1; W acc_db1; R dW2_s acc_dW2; W acc_dW2; R db2_s acc_db2; W acc_db2")
    if any(fired):
        script("R acc_dW1 W1; W W1; R acc_db1 b1; W b1; R acc_dW2 W2; W W2; R acc_db2 b2; W b2")
    return script.events


def figures(events: Events) -> tuple[float, int, int, int]:
    return events.weighted_ard(), events.total_floats, events.reads, events.writes


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [(1000, (31499.64337904391, 2455931, 543, 441)), (200, (6323.43490668814, 492731, 543, 441))],
)
def test_32_single_steps(hidden, expected):
    fired = fires(hidden, 32, train=True)
    assert sum(fired) == 17
    assert figures(single_steps(hidden, fired)) == expected


def test_single_steps_that_keep_their_parameters():
    events = single_steps(1000, fires(1000, 32, train=True), rewrite=False)
    assert events.total_floats == 1773900
    assert sum(events.is_write() & (events.buffers() == events.names.index("W1"))) == 18


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (4, (107606.12884208982, 342240, 76, 50)),
        (8, (166923.45739341763, 605501, 154, 97)),
        (16, (302818.87365265796, 1025969, 282, 173)),
        (32, (547881.3046903154, 2132040, 608, 370)),
        (64, (1085939.054690498, 4026020, 1176, 710)),
    ],
)
def test_batches(batch, expected):
    assert figures(batch_step(1000, fires(1000, batch, train=False))) == expected


def test_batch_of_the_small_net():
    assert figures(batch_step(200, fires(200, 32, train=False))) == (102325.49366852669, 364278, 524, 316)


@pytest.mark.parametrize(
    ("hidden", "batch", "hits", "misses", "effective"),
    [
        (200, False, 543, 0, 0.0),
        (200, True, 384, 140, 112186.79918849612),
        (1000, False, 494, 49, 33847.63265306123),
        (1000, True, 420, 188, 612423.8296923338),
    ],
)
def test_cache_of_8192_floats(hidden, batch, hits, misses, effective):
    fired = fires(hidden, 32, train=not batch)
    events = batch_step(hidden, fired) if batch else single_steps(hidden, fired)
    cache = buffer_lru(events, 8192)
    assert (cache.hits, cache.misses, cache.effective_ard) == (hits, misses, effective)
    assert buffer_lru(events, 65536).misses == 0


def tiled_step(tile: int, *, fire: bool, steps: int = 1, reverse: bool = False, dh_tiled: bool = False) -> Events:
    """The steps of note 002 with 1000 hidden units; parameters are written once, before the first step."""
    script = Script(sizes_of(1000) | dict.fromkeys(("b1", "h_pre", "h", "dh_pre", "dh_t"), tile))
    script.sizes["W1"] = N_BITS * tile
    tiles = range(1000 // tile)

    def each(line: str, order: range) -> None:
        for script.sample in order:
            script(line)

    each("W W1_s b1_s", tiles)
    script("W W2 b2")
    for _ in range(steps):
        script("W x y")
        each("R x W1_s b1_s; W h_pre_s; R h_pre_s; W h_s", tiles)
        each("R h_s", tiles)
        script("R W2 b2; W out; R out y")
        if not fire:
            continue
        script("W dout; R dout")
        each("R h_s", tiles)
        script("W dW2 db2; R W2 dout")
        if dh_tiled:
            each("W dh_t_s", tiles)
        else:
            script("W dh")
        for script.sample in tiles[::-1] if reverse else tiles:
            # Untiled, dh is never written under this name: the note's quirk.
            script.events.read(f"dh_t_{script.sample}", tile)
            script("R h_pre_s; W dh_pre_s; R dh_pre_s x W1_s; W W1_s; R dh_pre_s b1_s; W b1_s")
        script(LAYER_2)
    return script.events


@pytest.mark.parametrize(
    ("tile", "forward_only", "fired", "floats", "counts"),
    [
        (50, 22131.75539892636, 40672.26057151514, 102833, (251, 151)),
        (100, 22026.96471511796, 40340.66181998588, 102433, (131, 81)),
        (250, 21754.77585848939, 39657.66986792417, 102193, (59, 39)),
        (500, 21314.201513954165, 38622.50972411542, 102113, (35, 25)),
    ],
)
def test_tiled_step(tile, forward_only, fired, floats, counts):
    assert tiled_step(tile, fire=False).weighted_ard() == forward_only
    events = tiled_step(tile, fire=True)
    assert (events.weighted_ard(), events.total_floats, (events.reads, events.writes)) == (fired, floats, counts)
    assert events.distances("dh_t_0") == [NEVER_WRITTEN]


def test_untiled_step():
    assert figures(single_steps(1000, [False])) == (20437.767431211756, 48046, 9, 9)
    assert figures(single_steps(1000, [True])) == (35919.798744509586, 102073, 24, 18)


def test_reversing_the_backward_tiles_cuts_misses():
    def missed(reverse: bool) -> int:
        events = tiled_step(20, fire=True, steps=4, reverse=reverse, dh_tiled=True)
        setup = 2 * 50 + 2
        step = (len(events) - setup) // 4
        return buffer_lru(events, 16384, since=setup + 3 * step).missed_floats

    assert (missed(True), missed(False)) == (23384, 46624)
    untiled = single_steps(1000, [True] * 4, rewrite=False)
    assert buffer_lru(untiled, 16384, since=3 * (len(untiled) - 4) // 4 + 4).missed_floats == 40000


# The vectorised analysis against the definition, event by event.

event_lists = st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"), st.integers(1, 9)), max_size=40)


def recorded(script: list[tuple[bool, str, int]]) -> Events:
    events = Events()
    for write, name, size in script:
        (events.write if write else events.read)(name, size)
    return events


@given(event_lists)
def test_distances_follow_the_clock(script):
    clock, stamps, expected = 0, {}, []
    for write, name, size in script:
        expected.append(clock - stamps[name] if name in stamps else NEVER_WRITTEN)
        if write:
            stamps[name] = clock
        clock += size
    events = recorded(script)
    assert events.all_distances().tolist() == expected
    assert events.total_floats == clock
    counted = [(s, d) for (write, _, s), d in zip(script, expected, strict=True) if not write and d != NEVER_WRITTEN]
    assert events.reads == len(counted)
    total = sum(s for s, _ in counted)
    assert events.weighted_ard() == (sum(s * d for s, d in counted) / total if total else 0)


@given(event_lists, st.integers(1, 30))
def test_buffer_lru_against_a_list(script, capacity):
    stack: list[tuple[str, int]] = []  # most recent first
    written: set[str] = set()
    hits, misses = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", 0)
    for write, name, size in script:
        held = dict(stack).get(name, 0)
        if not write and name in written:
            (hits if held else misses)[name] += 1
        written |= {name} if write else set()
        room = size if write else max(size, held)
        rest = [entry for entry in stack if entry[0] != name]
        stack = [(name, room), *rest] if room <= capacity else rest
        stack = [
            entry
            for entry, used in zip(stack, itertools.accumulate(s for _, s in stack), strict=True)
            if used <= capacity
        ]
    by_name = buffer_lru(recorded(script), capacity).by_name
    found = {name: (traffic.hits, traffic.misses) for name, traffic in by_name.items()}
    assert found == {name: (hits[name], misses[name]) for name in found}
    assert all(hits[name] + misses[name] == 0 for name in "abcd" if name not in found)


def test_traffic_of_the_parameters_is_one_call():
    events = Events()
    for name in ("W1", "b1", "x"):
        events.write(name, 10)
    for name in ("W1", "b1", "x", "x"):
        events.read(name)
    assert buffer_lru(events, 10).of(["W1", "b1"]) == Traffic(hits=0, misses=2, floats=20, missed_floats=20)
    assert buffer_lru(events, 10).of(["x"]) == Traffic(hits=1, misses=1, floats=20, missed_floats=10)


def test_no_events():
    assert figures(Events()) == (0.0, 0, 0, 0)
    assert Events().dmc() == 0
    assert buffer_lru(Events(), 1).by_name == {}


def test_sums_beyond_64_bits():
    events = Events()
    events.write("a", 2**40)
    events.read("a")
    assert events.weighted_ard() == 2**40


@pytest.mark.parametrize("size", [0, -3, 2.5, "7", None])
def test_wrong_sizes(size):
    with pytest.raises(InputError, match=r"write W1: size .* is not"):
        Events().write("W1", size)
    with pytest.raises(InputError, match=r"size .* is not"):
        buffer_lru(Events(), size)


def test_reading_what_was_never_written():
    events = Events()
    events.write("W1", 5)
    with pytest.raises(InputError, match=r"event 2: read of W_1, which was never written \(did you mean W1\?\)"):
        events.read("W_1")
    events.read("x", 4)
    with pytest.raises(InputError, match="never written"):
        events.read("x")
    assert (events.distances("x"), events.reads, events.total_floats) == ([NEVER_WRITTEN], 0, 9)
    with pytest.raises(InputError, match="no event names y"):
        events.distances("y")


def test_wrong_names_and_windows():
    with pytest.raises(InputError, match="non-empty string"):
        Events().write("", 1)
    with pytest.raises(InputError, match="since = 1"):
        buffer_lru(Events(), 1, since=1)
