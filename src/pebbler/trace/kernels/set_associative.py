"""Set-associative LRU levels with write-back, write-backs of LRU at every size, and the time since a word was last written.

A level takes requests in order and produces requests for the next level: the missed line, then the dirty line evicted for it.
A hierarchy is therefore one call per level, each on the requests from the level above.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel

__all__ = ["EMPTY", "GONE", "LinkedSets", "dirty_reach", "few_ways", "many_ways", "since_write"]


# counts: [reads, writes, hits of reads, hits of writes, lines evicted, dirty ones among them]
READS, WRITES, READ_HITS, WRITE_HITS, EVICTED, WRITTEN_BACK = range(6)

EMPTY = -1  # no line, or the end of a list
GONE = -2  # a line that is not held


@kernel
def few_ways(lines, writes, refresh, tags, dirty, counts, out_lines, out_writes):  # type: ignore[no-untyped-def]
    """Run one level whose sets are short: `tags[set]` lists its lines, newest first. Return how many requests it passes on.

    `refresh`: a write that hits makes its line the newest, as a read does.
    """
    sets, ways = np.uint64(tags.shape[0]), tags.shape[1]
    mask = sets - np.uint64(1)
    two = sets & mask == np.uint64(0)
    passed = 0
    for i in range(lines.size):
        line = lines[i]
        write = writes[i]
        at = np.uint64(line) & mask if two else np.uint64(line) % sets
        counts[WRITES if write else READS] += 1
        place = 0
        while place < ways and tags[at, place] != line:
            place += 1
        state = write
        if place < ways:
            counts[WRITE_HITS if write else READ_HITS] += 1
            if write and not refresh:
                dirty[at, place] = True
                continue
            state = state or dirty[at, place]
        else:
            out_lines[passed] = line
            out_writes[passed] = False
            passed += 1
            place = ways - 1
            if tags[at, place] != EMPTY:
                counts[EVICTED] += 1
                if dirty[at, place]:
                    counts[WRITTEN_BACK] += 1
                    out_lines[passed] = tags[at, place]
                    out_writes[passed] = True
                    passed += 1
        while place > 0:
            tags[at, place] = tags[at, place - 1]
            dirty[at, place] = dirty[at, place - 1]
            place -= 1
        tags[at, 0] = line
        dirty[at, 0] = state
    return passed


class LinkedSets(NamedTuple):
    """Long sets as lists linked both ways, newest line first; lines have dense ids."""

    ends: Array  # per set: its newest and its oldest id
    used: Array  # per set: how many lines it holds
    links: Array  # per id: the newer and the older id; newer is GONE for one that is not held
    dirty: Array  # per id
    name: Array  # per id: its line


@kernel
def many_ways(lines, ids, writes, refresh, linked, ways, counts, out_lines, out_writes):  # type: ignore[no-untyped-def]
    """As `few_ways` for long sets, in constant time per request; `ids` are dense ids of `lines`."""
    ends, used, links, dirty, name = linked
    sets = np.uint64(used.size)
    passed = 0
    for i in range(lines.size):
        line = lines[i]
        write = writes[i]
        one = ids[i]
        at = np.uint64(line) % sets
        counts[WRITES if write else READS] += 1
        if links[one, 0] != GONE:
            counts[WRITE_HITS if write else READ_HITS] += 1
            dirty[one] = dirty[one] or write
            if ends[at, 0] == one or (write and not refresh):
                continue
            newer, older = links[one]
            links[newer, 1] = older
            if older == EMPTY:
                ends[at, 1] = newer
            else:
                links[older, 0] = newer
        else:
            out_lines[passed] = line
            out_writes[passed] = False
            passed += 1
            name[one] = line
            dirty[one] = write
            if used[at] < ways:
                used[at] += 1
            else:
                victim = ends[at, 1]
                counts[EVICTED] += 1
                if dirty[victim]:
                    counts[WRITTEN_BACK] += 1
                    out_lines[passed] = name[victim]
                    out_writes[passed] = True
                    passed += 1
                newer = links[victim, 0]
                links[victim, 0] = GONE
                ends[at, 1] = newer
                if newer == EMPTY:
                    ends[at, 0] = EMPTY
                else:
                    links[newer, 1] = EMPTY
        head = ends[at, 0]
        links[one, 0] = EMPTY
        links[one, 1] = head
        ends[at, 0] = one
        if head == EMPTY:
            ends[at, 1] = one
        else:
            links[head, 0] = one
    return passed


@kernel
def dirty_reach(ids, writes, distances, sunk, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[r]` the writes whose line sank to depth r, at the deepest, before it was written again.

    An LRU cache of C lines writes back exactly those with r > C. `sunk[id]` is the depth so far, -1 for a line that was never
    written, and is carried on.
    """
    for i in range(ids.size):
        at = np.uint64(ids[i])
        if sunk[at] >= 0:
            sunk[at] = max(sunk[at], distances[i])
            if writes[i]:
                counts[sunk[at]] += 1
        if writes[i]:
            sunk[at] = 0


@kernel
def since_write(ids: Array, writes: Array, begin: int, written: Array) -> tuple[int, int]:
    """Return the sum, in accesses, and the number of the distances of reads to the last write of their word.

    `written` keeps each word's last write, -1: none. Reads of words that were never written do not count.
    """
    total, count = 0, 0
    for i in range(ids.size):
        word = ids[i]
        if writes[i]:
            written[word] = begin + i
        elif written[word] >= 0:
            total += begin + i - written[word]
            count += 1
    return total, count
