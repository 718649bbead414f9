"""LRU stack distances with a compacted bitmap of last touches.

Every id that was ever touched holds one bit, at the *slot* of its last touch; slots are handed out in order of time. The
distance of a touch is then the number of set bits from the id's slot on. Three things make this faster than the
usual Fenwick tree over all of time (Bennett & Kruskal 1975; Almasi et al. 2002):

- 64 slots share one machine word, counted by one popcount instruction;
- above the words lie two floors of *prefix* counts, so that a query adds four numbers and a removal subtracts one from the
  neighbours that follow, in vector registers. A new slot is always the last one: it needs no update at all, because a
  node's prefix count is written when its first slot is handed out;
- when the slots run out, the live ones are renumbered from 0, so the tree stays as small as the set of distinct ids.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from pebbler.compiled import kernel

__all__ = [
    "BLOCK",
    "EMPTY",
    "GROUP",
    "LIVE",
    "NEXT",
    "WORD",
    "compact",
    "feed",
    "histogram",
    "pack",
    "pack_direct",
    "popcount",
    "rehash",
    "select",
]

# Slots per node, as powers of two: 64 in a word, 64 words in a group, 32 groups in a block. The fan-outs are what one round
# of the vectorised loops in `feed` handles: four registers of int16 or int32.
WORD, GROUP, BLOCK = 6, 12, 17

# state: [next free slot, set bits]
NEXT, LIVE = 0, 1

EMPTY = -1

_ONE = np.uint64(1)
_SIX = np.uint64(WORD)
_TWELVE = np.uint64(GROUP)
_SEVENTEEN = np.uint64(BLOCK)
_IN_WORD = np.uint64(63)
_IN_GROUP = np.uint64(63)
_IN_BLOCK = np.uint64(31)


@intrinsic
def popcount(typingctx, word):  # type: ignore[no-untyped-def]
    """Number of set bits of a uint64."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@kernel
def feed(ids, start, out, table, owner, bits, groups, blocks, top, state):  # type: ignore[no-untyped-def]
    """Write the distances of `ids[start:]` to `out`; return where it stopped for want of slots.

    `table[id]` is the slot of an id's last touch, `owner` its inverse. Indices are unsigned (numba then tests for no
    negative ones), and no helper takes an array (numba would count its references on every call).
    """
    slots = np.uint64(owner.size)
    free = np.uint64(state[NEXT])
    live = state[LIVE]
    i = np.uint64(start)
    n = np.uint64(ids.size)
    while i < n and free < slots:
        at = np.uint64(ids[i])
        found = table[at]
        slot = np.uint64(found)
        if found == EMPTY:
            out[i] = 0
        elif slot + _ONE == free:
            out[i] = 1
            i += _ONE
            continue
        else:
            word, group, block = slot >> _SIX, slot >> _TWELVE, slot >> _SEVENTEEN
            bit = _ONE << (slot & _IN_WORD)
            rank = np.int64(popcount(bits[word] & (bit - _ONE))) + np.int64(groups[group, word & _IN_GROUP])
            rank += np.int64(blocks[block, group & _IN_BLOCK]) + np.int64(top[block])
            out[i] = live - rank
            bits[word] &= ~bit
            # A comparison instead of a variable start, and a trip count that is no constant (numba would unroll the loop
            # into scalar subtractions): this compiles to a few vector instructions. Nodes after the newest slot's hold
            # no counts yet, so what this does to them is of no account.
            place = np.int16(word & _IN_GROUP)
            for j in range(groups.shape[1]):
                groups[group, j] -= np.int16(np.int16(j) > place)
            here = np.int32(group & _IN_BLOCK)
            for j in range(blocks.shape[1]):
                blocks[block, j] -= np.int32(np.int32(j) > here)
            for j in range(block + _ONE, ((free - _ONE) >> _SEVENTEEN) + _ONE):
                top[j] -= np.int32(1)
            live -= 1
        word = free >> _SIX
        if free & _IN_WORD == np.uint64(0):
            group, block = free >> _TWELVE, free >> _SEVENTEEN
            if word & np.uint64((1 << (BLOCK - WORD)) - 1) == np.uint64(0):
                top[block] = live
            rest = live - np.int64(top[block])
            if word & _IN_GROUP == np.uint64(0):
                blocks[block, group & _IN_BLOCK] = rest
            groups[group, word & _IN_GROUP] = rest - np.int64(blocks[block, group & _IN_BLOCK])
            bits[word] = np.uint64(0)
        bits[word] |= _ONE << (free & _IN_WORD)
        table[at] = free
        owner[free] = at
        live += 1
        free += _ONE
        i += _ONE
    state[NEXT] = free
    state[LIVE] = live
    return np.int64(i)


@kernel
def compact(table, old_owner, old_bits, owner, bits, groups, blocks, top, state):  # type: ignore[no-untyped-def]
    """Renumber the live slots from 0 in order of time, into the same or larger arrays."""
    used = state[NEXT]
    live = 0
    for word in range((used + 63) >> WORD):
        rest = old_bits[word]
        while rest != np.uint64(0):
            low = popcount((rest & (~rest + _ONE)) - _ONE)
            rest &= rest - _ONE
            at = old_owner[(np.uint64(word) << _SIX) + low]
            table[at] = live
            owner[live] = at
            live += 1
    for word in range((live + 63) >> WORD):
        slot = word << WORD
        bits[word] = ~np.uint64(0)
        top[slot >> BLOCK] = (slot >> BLOCK) << BLOCK
        blocks[slot >> BLOCK, (slot >> GROUP) & 31] = ((slot >> GROUP) & 31) << GROUP
        groups[slot >> GROUP, word & 63] = (word & 63) << WORD
    if live & 63:
        bits[live >> WORD] = (_ONE << np.uint64(live & 63)) - _ONE
    state[NEXT] = live
    state[LIVE] = live


@kernel
def pack_direct(words, ids, table, count):  # type: ignore[no-untyped-def]
    """Write the dense ids (0, 1, ... by first appearance) of `words`, all below `table.size`; return the number of ids."""
    for i in range(words.size):
        at = np.uint64(words[i])
        if table[at] == EMPTY:
            table[at] = count
            count += 1
        ids[i] = table[at]
    return count


@kernel
def pack(words, start, shift, ids, table, count):  # type: ignore[no-untyped-def]
    """As `pack_direct` for words from anywhere, from `start` on; stop when the table is half full.

    `table` holds (word, id) pairs, open addressing. Return where it stopped and the number of ids.
    """
    room = table.shape[0] // 2
    mask = np.uint64(table.shape[0] - 1)
    i = np.uint64(start)
    n = np.uint64(words.size)
    while i < n:
        word = words[i]
        # Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio spread both runs and strides.
        at = (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> shift
        while table[at, 0] != word and table[at, 0] != EMPTY:
            at = (at + _ONE) & mask
        if table[at, 0] == EMPTY:
            if count == room:
                break
            table[at, 0] = word
            table[at, 1] = count
            count += 1
        ids[i] = table[at, 1]
        i += _ONE
    return np.int64(i), count


@kernel
def rehash(old, table, shift):  # type: ignore[no-untyped-def]
    """Move every (word, id) pair of `old` into a larger table."""
    mask = np.uint64(table.shape[0] - 1)
    for i in range(old.shape[0]):
        word = old[i, 0]
        if word != EMPTY:
            at = (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> shift
            while table[at, 0] != EMPTY:
                at = (at + _ONE) & mask
            table[at, 0] = word
            table[at, 1] = old[i, 1]


@kernel
def histogram(distances, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[d]` the number of accesses at distance d."""
    for d in distances:
        counts[np.uint64(d)] += 1


@kernel
def select(words, salt, limit, groups, out, group):  # type: ignore[no-untyped-def]
    """Copy the accesses to words whose hash is below `limit`, with a group from other bits of it; return how many.

    The hash is the finalizer of splitmix64 (Steele et al. 2014), so that whole words are in or out, evenly spread.
    """
    count = 0
    for i in range(words.size):
        mixed = np.uint64(words[i]) ^ salt
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        if mixed >> np.uint64(32) < limit:
            out[count] = words[i]
            group[count] = (mixed & np.uint64(0xFFFFFFFF)) % groups
            count += 1
    return count
