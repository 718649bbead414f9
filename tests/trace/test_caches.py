"""Caches against brute-force twins, the notes' figures and their own laws."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_cache as naive
from pebbler.errors import InputError
from pebbler.trace import caches as cache
from pebbler.trace.caches import WriteBacks, attribute, hierarchy, level_hits, opt_hits, opt_misses, set_associative
from pebbler.trace.distances import profile

traces = st.integers(1, 20).flatmap(lambda m: st.lists(st.integers(0, m), min_size=1, max_size=120))
marked = st.integers(1, 20).flatmap(
    lambda m: st.lists(st.tuples(st.integers(0, m), st.booleans()), min_size=1, max_size=150)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=25), st.integers(1, 5), st.booleans())
def test_opt_is_the_best_of_all_replacements(words, size, bypass):
    assert opt_misses(words, [size], bypass=bypass).tolist() == [naive.opt_misses(words, size, bypass)]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=9), st.integers(1, 3))
def test_no_choice_of_what_to_keep_lets_more_reads_hit(accesses, size):
    words, writes = [word for word, _ in accesses], [write for _, write in accesses]
    hits = opt_hits(words, writes, size)
    assert not (hits & np.array(writes)).any()
    assert int(hits.sum()) == naive.most_read_hits(words, writes, size)


@settings(max_examples=60, deadline=None)
@given(traces)
def test_opt_is_at_most_lru_and_falls_with_size(words):
    sizes = np.arange(1, 24)
    lru, opt, free = profile(words).misses(sizes), opt_misses(words, sizes), opt_misses(words, sizes, bypass=True)
    assert (free <= opt).all()
    assert (opt <= lru).all()
    assert (np.diff(opt) <= 0).all()
    assert opt[-1] == len(set(words))


def test_opt_of_a_long_trace_uses_every_floor_of_the_bitmap():
    # A loop over m words: OPT with C of them keeps C - 1 from round to round, so each later round misses m - C + 1 or one
    # fewer. Reuse 70,000 accesses apart crosses words of the third floor (2^18 accesses each).
    words, rounds, size = 70_000, 8, 30_000
    trace = np.tile(np.arange(words), rounds)
    # With bypass: keep the first C words for ever and miss the others in every round.
    assert opt_misses(trace, [size], bypass=True).tolist() == [words + (rounds - 1) * (words - size)]
    assert opt_misses(trace, [words]).tolist() == [words]


@settings(max_examples=150, deadline=None)
@given(
    marked,
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=3),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_levels_pass_on_what_they_miss_and_throw_out(accesses, levels, line, refresh, linked):
    words, writes = (list(column) for column in zip(*accesses, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "FEW_WAYS", 0 if linked else 32)
        patch.setattr(cache, "REQUESTS", 37)
        got = hierarchy(words, levels, line=line, writes=writes, writes_refresh=refresh)
    assert [dataclasses.asdict(level) for level in got] == naive.hierarchy(words, writes, levels, line, refresh)


@settings(max_examples=60, deadline=None)
@given(traces, st.integers(1, 8))
def test_one_set_of_all_ways_is_plain_lru(words, size):
    counts = set_associative(words, sets=1, ways=size)
    assert counts.misses == naive.lru_misses(words, size) == profile(words).misses([size])[0]
    assert counts.hits + counts.misses == len(words)


@settings(max_examples=100, deadline=None)
@given(marked)
def test_write_backs_of_every_size_at_once(accesses):
    words, writes = zip(*accesses, strict=True)
    sizes = list(range(1, 24))
    both = WriteBacks()
    half = len(words) // 2
    both.feed(words[:half], np.array(writes[:half], bool))
    both.feed(words[half:], np.array(writes[half:], bool))
    want = [naive.lru_write_backs(list(words), list(writes), size) for size in sizes]
    assert list(zip(both.evicted(sizes).tolist(), both.left(sizes).tolist(), strict=True)) == want


@settings(max_examples=60, deadline=None)
@given(traces, st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_level_hits_cut_the_stack(words, capacities):
    edges = np.cumsum(capacities)
    want = [0] * (len(capacities) + 1)
    for depth in naive.distances(words):
        want[int(np.searchsorted(edges, depth)) if depth else -1] += 1
    assert level_hits(profile(words), capacities).tolist() == want


def test_attribute_sums_by_owner():
    assert attribute(np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), 3).tolist() == [4.0, 3.0, 0.0]
    with pytest.raises(InputError, match="below 2, got 5 at index 1"):
        attribute([1.0, 2.0], [0, 5], 2)
    with pytest.raises(InputError, match="2 values and 1 owners"):
        attribute([1.0, 2.0], [0], 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: opt_misses([], [1]), "the trace is empty"),
        (lambda: opt_misses([1, -2], [1]), "must not be negative, got -2 at index 1"),
        (lambda: opt_misses([1.0], [1]), "must be whole numbers, got float64"),
        (lambda: opt_misses([1], [0]), "must be at least 1, got 0"),
        (lambda: opt_misses([1], [2.5]), "flat list of whole numbers"),
        (lambda: hierarchy([1], []), "at least one"),
        (lambda: hierarchy([1], [(1, 0)]), "level 0: sets and ways must be at least 1"),
        (lambda: hierarchy([1], [(1, 1)], line=0), "line must be at least 1"),
        (lambda: hierarchy([1, 2], [(1, 1)], writes=[True]), "expected 2, got bool of shape"),
        (lambda: hierarchy([1], [(1, 1)], writes=[1]), "one true or false per access"),
        (lambda: hierarchy([], [(1, 1)]), "the trace is empty"),
        (lambda: WriteBacks().feed([1], []), "expected 1"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
