"""Belady's optimum (OPT): misses of the best possible replacement, from next-use times.

Words in the cache have distinct times of next use. A bitmap over time holds one bit for each of these times: a hit clears the
bit of its own time, and the victim is the highest set bit. Three summary bitmaps above it mark the non-empty words of the
bitmap below, so the search for the highest bit reads one word per bitmap. Words without a next use are equally good victims
and are only counted.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from pebbler.compiled import kernel

__all__ = ["misses", "next_uses"]

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)
_ZERO = np.uint64(0)


@intrinsic
def _highest(typingctx, word):  # type: ignore[no-untyped-def]
    """Index of the highest set bit of a uint64 that is not 0."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        zeros = builder.ctlz(args[0], context.get_constant(types.boolean, True))
        return builder.sub(context.get_constant(types.uint64, 63), zeros)

    return types.uint64(types.uint64), codegen


@kernel
def next_uses(ids, start, soonest, out):  # type: ignore[no-untyped-def]
    """Write the time of the next access to the same id, for the accesses `start`, `start + 1`, ... whose ids are given.

    `soonest[id]` is the id's first access after these and is carried on: call with the last piece of the trace first.
    """
    n = ids.size
    for behind in range(n):
        i = np.uint64(n - 1 - behind)
        at = np.uint64(ids[i])
        out[i] = soonest[at]
        soonest[at] = start + i


@kernel
def misses(uses, size, bypass, hit):  # type: ignore[no-untyped-def]
    """Misses of OPT with room for `size` words; with `bypass` a missed word need not be kept.

    An access hits exactly when its own time is marked as a next use. `hit` is filled with which do, unless it is empty.
    """
    n = uses.size
    detail = hit.size > 0
    bits = np.zeros((n >> 6) + 1, np.uint64)
    floor1 = np.zeros((n >> 12) + 1, np.uint64)
    floor2 = np.zeros((n >> 18) + 1, np.uint64)
    floor3 = np.zeros((n >> 24) + 1, np.uint64)
    never = np.uint64(n)
    top = np.int64(0)  # no word of floor3 above this one is set
    held = 0  # words with a next use
    dead = 0  # words without
    missed = 0
    for i in range(n):
        now = np.uint64(i)
        use = np.uint64(uses[now])
        word = now >> _SIX
        bit = _ONE << (now & _LOW)
        if bits[word] & bit:
            bits[word] ^= bit
            held -= 1
            if detail:
                hit[now] = True
            if bits[word] == _ZERO:
                up = word >> _SIX
                floor1[up] &= ~(_ONE << (word & _LOW))
                if floor1[up] == _ZERO:
                    over = up >> _SIX
                    floor2[over] &= ~(_ONE << (up & _LOW))
                    if floor2[over] == _ZERO:
                        floor3[over >> _SIX] &= ~(_ONE << (over & _LOW))
        else:
            missed += 1
            if held + dead == size:
                if dead > 0:
                    dead -= 1
                else:
                    while floor3[top] == _ZERO:
                        top -= 1
                    over = (np.uint64(top) << _SIX) | _highest(floor3[top])
                    up = (over << _SIX) | _highest(floor2[over])
                    word = (up << _SIX) | _highest(floor1[up])
                    low = _highest(bits[word])
                    if bypass and use > ((word << _SIX) | low):
                        continue
                    bits[word] ^= _ONE << low
                    held -= 1
                    if bits[word] == _ZERO:
                        floor1[up] &= ~(_ONE << (word & _LOW))
                        if floor1[up] == _ZERO:
                            floor2[over] &= ~(_ONE << (up & _LOW))
                            if floor2[over] == _ZERO:
                                floor3[over >> _SIX] &= ~(_ONE << (over & _LOW))
        if use == never:
            dead += 1
        else:
            held += 1
            word = use >> _SIX
            bits[word] |= _ONE << (use & _LOW)
            up = word >> _SIX
            floor1[up] |= _ONE << (word & _LOW)
            over = up >> _SIX
            floor2[over] |= _ONE << (up & _LOW)
            floor3[over >> _SIX] |= _ONE << (over & _LOW)
            top = max(top, np.int64(over >> _SIX))
    return missed
