"""The reads and writes of one training step of the notes, buffer by buffer.

Every trace is a script in the notes' own notation: `R` reads, `W` writes, and a name with a star stands for one buffer per
tile or per sample (`W1*` is W1_t0, W1_t1, ...). A step whose margin is at least 1 stops after the loss, since its gradient is zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from pebbler.errors import InputError, near_matches, quoted
from pebbler.trace.buffer_events import Events

__all__ = ["PARAMS", "VARIANTS", "batch_step", "play", "sizes_of", "step"]

PARAMS = ("W1", "b1", "W2", "b2")

_FORWARD_1 = "R x W1 b1; W h_pre; R h_pre; W h"
_FORWARD_2 = "R h W2 b2; W out"
_LOSS = "R out y"
_BACKWARD_2 = "W dout; R dout h; W dW2 db2; R W2 dout; W dh"
_BACKWARD_1 = "R dh h_pre; W dh_pre; R dh_pre x W1; W W1; R dh_pre b1; W b1"
_UPDATE_2 = "R dW2 W2; W W2; R db2 b2; W b2"

# What follows the forward pass, before and after the point where a satisfied sample stops.
VARIANTS = {
    "standard": (_LOSS, f"{_BACKWARD_2}; {_BACKWARD_1}; {_UPDATE_2}"),
    "fused": (_LOSS, f"{_BACKWARD_2}; {_UPDATE_2}; {_BACKWARD_1}"),
    "perlayer": ("", "R h W2 W2; W W2; R b2; W b2; R h_pre x W1; W W1; R b1; W b1"),
}


def sizes_of(n: int, hidden: int, batch: int = 1) -> dict[str, int]:
    """Return the floats of every buffer of the network, or of a tile of it with `hidden` units.

    >>> sizes_of(20, 1000)["W1"], sizes_of(20, 50)["acc_dW1"], sizes_of(20, 1000, batch=32)["h"]
    (20000, 1000, 32000)
    """
    return {
        **dict.fromkeys(("W1", "acc_dW1"), n * hidden),
        **dict.fromkeys(("b1", "W2", "dW2", "acc_db1", "acc_dW2"), hidden),
        **dict.fromkeys(("b2", "db2", "acc_db2"), 1),
        **dict.fromkeys(("h_pre", "h", "dh", "dh_pre"), hidden * batch),
        **dict.fromkeys(("y", "out", "dout"), batch),
        **dict.fromkeys(("x", "x_old"), n * batch),
    }


def play(events: Events, script: str, sizes: dict[str, int], suffix: str = "") -> None:
    """Append a script to the events; starred names take the suffix.

    >>> events = Events()
    >>> play(events, "W a b; R a", {"a": 100, "b": 50})
    >>> events.distances("a")
    [150]
    """
    for clause in filter(None, (part.strip() for part in script.split(";"))):
        action, *names = clause.split()
        if action not in ("R", "W"):
            raise InputError(f"script: {quoted(clause)} starts with neither R nor W")
        for name in names:
            base = name.removesuffix("*")
            if base not in sizes:
                raise InputError(f"script: no buffer is called {quoted(base)}{near_matches(base, sizes)}")
            touch = events.read if action == "R" else events.write
            touch(base + suffix if name.endswith("*") else base, sizes[base])


def step(events: Events, n: int, hidden: int, variant: str = "standard", *, fires: bool, fresh: bool = True) -> None:
    """Append one single-sample step; `fresh` writes the parameters first, as the notes do before every step.

    >>> events = Events()
    >>> step(events, 20, 500, "perlayer", fires=True)
    >>> events.reads, events.writes, events.total_floats
    (15, 13, 47566)
    """
    if variant not in VARIANTS:
        raise InputError(f"variant: no variant is called {quoted(variant)}{near_matches(variant, VARIANTS)}")
    sizes = sizes_of(n, hidden)
    loss, backward = VARIANTS[variant]
    play(events, f"{'W W1 b1 W2 b2;' if fresh else ''} W x y; {_FORWARD_1}; {_FORWARD_2}; {loss}", sizes)
    if fires:
        play(events, backward, sizes)


def batch_step(events: Events, n: int, hidden: int, fires: Sequence[bool], *, fresh: bool = True) -> None:
    """Append note 004's mini-batch step; `fires` says of each sample whether it makes a gradient.

    Samples run one after another, each with buffers of its own, and add to shared accumulators.

    >>> events = Events()
    >>> batch_step(events, 20, 1000, [True, False])
    >>> events.writes
    31
    """
    sizes = sizes_of(n, hidden)
    play(events, f"{'W W1 b1 W2 b2;' if fresh else ''} R W1 b1 W2 b2; W acc_dW1 acc_db1 acc_dW2 acc_db2", sizes)
    for s, firing in enumerate(fires):
        suffix = f"_{s}"
        play(events, "W x* y*; R x* W1 b1; W h_pre*; R h_pre*; W h*; R h* W2 b2; W out*; R out* y*", sizes, suffix)
        if firing:
            play(events, "W dout*; R dout* h*; W dW2* db2*; R W2 dout*; W dh*; R dh* h_pre*; W dh_pre*", sizes, suffix)
            play(events, "R dh_pre* x*; R acc_dW1; W acc_dW1; R acc_db1; W acc_db1", sizes, suffix)
            play(events, "R dW2* acc_dW2; W acc_dW2; R db2* acc_db2; W acc_db2", sizes, suffix)
    if any(fires):
        play(events, "; ".join(f"R acc_d{name} {name}; W {name}" for name in PARAMS), sizes)
