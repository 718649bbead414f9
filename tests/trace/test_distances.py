"""Reuse distances against a list that words move about in, whatever the chunks, spans and compactions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_cache as naive
from pebbler.errors import InputError
from pebbler.trace import distances as reuse
from pebbler.trace.distances import Packer, ReuseProfile, StackDistance, profile, reuse_distances

traces = st.integers(1, 40).flatmap(lambda m: st.lists(st.integers(0, m), max_size=200))


@settings(max_examples=150, deadline=None)
@given(traces, st.sampled_from([1, 10**6, 10**15]), st.lists(st.integers(1, 60), max_size=6))
def test_distances_are_depths_in_a_stack(words, spread, cuts):
    want = naive.distances(words)
    scattered = np.array(words, np.int64) * spread
    assert reuse_distances(scattered).tolist() == want
    # Few slots and small chunks make it compact, and switch from table to hash, in the middle of a trace.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reuse, "MIN_SLOTS", 64)
        patch.setattr(reuse, "CHUNK", 7)
        patch.setattr(reuse, "DIRECT_SPAN", 1)
        stack = StackDistance()
        pieces = np.split(scattered, np.cumsum(cuts)) if words else []
        got = [d for piece in pieces for d in stack.feed(piece).tolist()]
    assert got == want
    assert stack.profile().counts.tolist() == np.bincount(want, minlength=len(set(words)) + 1).tolist()


@pytest.mark.parametrize("words", [5_000, 150_000])
def test_distances_of_a_long_trace(words):
    # Known without a twin: a loop finds every word at depth m, and there and back at twice the way to the end. 150,000
    # words fill more than one block of the bitmap.
    there = np.arange(words)
    distances = reuse_distances(np.concatenate([there, there, there[::-1], there[:3]]))
    assert (distances[:words] == 0).all()
    assert (distances[words : 2 * words] == words).all()
    assert (distances[2 * words : 3 * words] == np.arange(1, words + 1)).all()
    assert distances[3 * words :].tolist() == [1, 2, 3]


def test_distances_of_a_random_trace_with_many_compactions(monkeypatch):
    words = np.random.default_rng(0).integers(0, 700, 6000)
    monkeypatch.setattr(reuse, "MIN_SLOTS", 64)
    assert reuse_distances(words).tolist() == naive.distances(words.tolist())


@settings(max_examples=60, deadline=None)
@given(traces.filter(len))
def test_one_histogram_answers_for_every_size(words):
    found = profile(words)
    sizes = list(range(1, 45))
    misses = found.misses(sizes)
    assert misses.tolist() == [naive.lru_misses(words, size) for size in sizes]
    assert (np.diff(misses) <= 0).all()  # inclusion: a larger LRU cache never misses more
    assert misses[-1] == found.cold == found.distinct == len(set(words))
    assert found.accesses == len(words)
    warm = [d for d in naive.distances(words) if d]
    assert found.mean_distance == pytest.approx(np.mean(warm) if warm else 0)
    assert found.dmd() == pytest.approx(sum(d**0.5 for d in warm))
    assert found.cdf()[-1] == pytest.approx(len(warm) / len(words))


def test_chunks_from_an_iterator_are_one_trace():
    words = np.random.default_rng(1).integers(0, 50, 1000)
    assert (profile(iter(np.array_split(words, 9))).counts == profile(words).counts).all()


def test_ids_survive_the_change_from_table_to_hash():
    packer = Packer()
    assert packer.ids(np.array([5, 9, 5])).tolist() == [0, 1, 0]
    assert packer.ids(np.array([2**62, 9, 1, 2**62])).tolist() == [2, 1, 3, 2]
    many = np.arange(10_000) * 2**40
    assert (packer.ids(many)[1:] == np.arange(5, 10_004)).all()
    assert packer.count == 10_004


def test_an_empty_trace_has_no_distances_but_no_profile_either():
    assert reuse_distances([]).tolist() == []
    with pytest.raises(InputError, match="the trace is empty"):
        profile([])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([1, 2, -3], "must not be negative, got -3 at index 2"),
        ([1.5], "must be whole numbers, got float64"),
        ([True], "must be whole numbers, got bool"),
        (["a"], "must be whole numbers"),
        ([[1, 2]], r"flat list of whole numbers, got shape \(1, 2\)"),
        (np.array([1, 2**63], np.uint64), r"below 2\^63, got 9223372036854775808 at index 1"),
    ],
)
def test_wrong_addresses_are_named(words, message):
    with pytest.raises(InputError, match=message):
        reuse_distances(words)


def test_wrong_sizes_are_named():
    found = ReuseProfile(np.array([1, 1]))
    with pytest.raises(InputError, match="must be at least 1, got 0 at index 1"):
        found.misses([4, 0])
    with pytest.raises(InputError, match="whole numbers, got float64"):
        found.misses([4.5])
    with pytest.raises(InputError, match="'free' or 'new'"):
        found.dmd(cold="dear")
