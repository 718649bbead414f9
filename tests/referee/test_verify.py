"""The verifier of certificates: it proves what was stated, refuses what is malformed, and no mutant proves too much."""

from __future__ import annotations

import copy
import json
import random
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mutated_certificates import Certified, certified, cheapest, mutated, named_task, provable, random_certified
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee import certificates
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.table import rows_of
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import TileRange
from pebbler.referee.verify import NotProven, TaskVerifier, verify

NAMED = [
    ("mlp:n=4,hidden=8", "notes"),
    ("mlp:n=4,hidden=8", "notes-explicit"),
    ("mlp:n=3,hidden=5,batch=2", "notes"),
    ("attention:tokens=4,width=4,heads=1", "notes"),
    ("attention:tokens=4,width=4,heads=1", "notes-explicit"),
]


def pairs() -> Task:
    """Return parameters that are read, then updated, where half of them is near: certificates have all kinds of splits."""
    graph = Graph("pairs", unit="pebble").tensor("p", 24, "param", axes=[("i", 6), ("j", 4)])
    graph.tensor("t", 6, axes=[("i", 6)]).tensor("s", 1, axes=[])
    graph.op("read", ["p"], ["t"], once=True).op("sum", ["t"], ["s"]).op("update", ["p", "s", "t"], ["p"])
    levels = (Level("near", 1, 1, capacity=6), Level("middle", 3, 3, capacity=8), Level("far", 20, 20))
    machine = Machine("tight", "pebble", levels, "lru", "any")
    return Task(graph, machine, steady=True)


@pytest.fixture(scope="module")
def known() -> Certified:
    return certified(pairs(), 2_000)


@pytest.mark.parametrize(("workload", "machine"), NAMED)
@pytest.mark.parametrize("as_it_is", [False, True])
def test_a_certificate_proves_what_was_stated(workload, machine, as_it_is):
    one = certified(named_task(workload, machine), 300, as_it_is=as_it_is)
    assert one.certificate["covers"] == ("graph" if as_it_is else "forms")
    assert verify(one.task, one.certificate) == one.bound == one.certificate["bound"]


def test_splits_of_all_kinds_prove_more_than_none(known):
    words = json.dumps(known.certificate)
    assert '"axis"' in words
    assert '"near"' in words
    assert verify(known.task, known.certificate) == known.bound
    nothing = {"covers": "forms", "tree": {"moment": None, "weights": []}}
    assert 0 < verify(known.task, nothing) < known.bound


def test_what_is_claimed_is_not_believed(known):
    boast = {**known.certificate, "bound": 10**9}
    assert verify(known.task, boast) == known.bound


def leaf_of(tree: Any) -> dict[str, Any]:
    """Return a leaf of a tree that has weights."""
    if "weights" in tree:
        return tree if tree["weights"] else {}
    return next((found for below in tree.values() if isinstance(below, dict) and (found := leaf_of(below))), {})


def split_of(tree: Any, kind: str) -> dict[str, Any]:
    """Return the first split of a kind."""
    if kind in tree:
        return tree
    return next((found for below in tree.values() if isinstance(below, dict) and (found := split_of(below, kind))), {})


def at(place: str, tree: dict[str, Any]) -> Any:
    return {"leaf": leaf_of, "axis": lambda one: split_of(one, "axis"), "near": lambda one: split_of(one, "near")}[
        place
    ](tree)


MALFORMED: dict[str, tuple[str, Any, str]] = {
    "a tree that is none": ("", {"covers": "forms", "tree": [1]}, "expected a split or a leaf"),
    "no tree": ("", {"covers": "forms"}, "expected a split or a leaf"),
    "no covers": ("", {"tree": {}}, "covers None"),
    "covers of another type": ("", {"covers": ["forms"], "tree": {}}, "covers"),
    "covers something else": ("", {"covers": "tiles", "tree": {}}, "expected forms or graph"),
    "no certificate": ("", 5, "expected a certificate"),
    "weights are no list": ("leaf", {"weights": 7}, "no list of weights"),
    "weights are gone": ("leaf", {"weights": None}, "no list of weights"),
    "weights are words": ("leaf", {"weights": "visits"}, "not a row with its weight"),
    "a row is no list": ("leaf", {"weights": [5]}, "not a row with its weight"),
    "a row is empty": ("leaf", {"weights": [[]]}, "not a row with its weight"),
    "a row is unhashable": ("leaf", {"weights": [["visits", [1], "1"]]}, "not a row with its weight"),
    "a row is unknown": ("leaf", {"weights": [["no such row", 0, "1"]]}, "there is no row"),
    "a row of the leaf's own weight": ("leaf", {"weights": [["exists", 0, 0, "1"]]}, "there is no row"),
    "a weight is a number": ("leaf", {"weights": [["room between steps", 0, 1]]}, "not a row with its weight"),
    "a weight is negative": ("leaf", {"weights": [["room between steps", 0, "-1"]]}, "not a row with its weight"),
    "a weight is over nothing": ("leaf", {"weights": [["room between steps", 0, "1/0"]]}, "not a row with its weight"),
    "a weight has an exponent": ("leaf", {"weights": [["room between steps", 0, "1e999999999"]]}, "not a row"),
    "a weight is huge": ("leaf", {"weights": [["room between steps", 0, "9" * 5_000]]}, "not a row with its weight"),
    "a weight has other digits": (
        "leaf",
        {"weights": [["room between steps", 0, "\u0661"]]},
        "not a row with its weight",
    ),
    "a moment is no number": ("leaf", {"moment": "t", "weights": []}, "moment|number of a value"),
    "a moment is too large": ("leaf", {"moment": 10**30, "weights": []}, "moment|number of a value"),
    "a moment is true": ("leaf", {"moment": True, "weights": []}, "moment|number of a value"),
    "an axis is unknown": ("axis", {"axis": "x"}, "cannot be split"),
    "an axis is no word": ("axis", {"axis": ["i"]}, "cannot be split"),
    "a split has no place": ("axis", {"most": None}, "cannot be split"),
    "a split is outside": ("axis", {"most": 10**9}, "cannot be split"),
    "a split is at nothing": ("axis", {"most": 0}, "cannot be split"),
    "a split has half a tree": ("axis", {"low": None}, "expected a split or a leaf"),
    "a split has no other half": ("axis", {"high": 3}, "expected a split or a leaf"),
    "an assumption leaves a way out": ("near", {"neither": None}, "expected a split or a leaf"),
    "an assumption is about no level": ("near", {"near": "near"}, "nothing can be assumed"),
    "an assumption is about a level below all": ("near", {"near": -1}, "nothing can be assumed"),
    "an assumption is about the last level": ("near", {"near": 2}, "level that has no end"),
    "an assumption is about no moment": ("near", {"moment": None}, "nothing can be assumed"),
    "an assumption is about another moment": (
        "near",
        {"moment": 1},
        "a leaf is about the moment|nothing can be assumed",
    ),
}


@pytest.mark.parametrize("fault", MALFORMED)
def test_what_is_malformed_is_refused(fault, known):
    place, change, words = MALFORMED[fault]
    certificate: Any = copy.deepcopy(known.certificate)
    if place:
        at(place, certificate["tree"]).update(change)
    else:
        certificate = change
    with pytest.raises(NotProven, match=words):
        verify(known.task, certificate)


def test_a_weight_too_large_is_refused_where_it_is_charged(known):
    certificate = copy.deepcopy(known.certificate)
    for row in leaf_of(certificate["tree"])["weights"]:
        row[-1] = "1000000"
    with pytest.raises(NotProven, match=r"is charged .* and costs"):
        verify(known.task, certificate)


def test_a_split_inside_a_half_stays_there(known):
    """Halves of a split cannot be split again where the other half is."""
    leaf = {"moment": None, "weights": []}
    inner = {"axis": "i", "most": 5, "low": leaf, "high": leaf}
    right = {"covers": "forms", "tree": {"axis": "i", "most": 3, "low": leaf, "high": inner}}
    wrong = {"covers": "forms", "tree": {"axis": "i", "most": 3, "low": inner, "high": leaf}}
    assert verify(known.task, right) > 0
    with pytest.raises(NotProven, match="cannot be split at 5"):
        verify(known.task, wrong)
    with pytest.raises(NotProven, match="cannot be split"):
        verify(known.task, {**right, "covers": "graph"})


def test_a_moment_needs_someone_who_waits(known):
    with pytest.raises(NotProven, match="has no moment"):
        verify(known.task, {"covers": "forms", "tree": {"moment": 0, "weights": []}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"management": "recency"}, "recency"),
        ({"results": "over", "management": "explicit"}, "rules of their own"),
        (
            {
                "management": "explicit",
                "level": (*(Level(f"l{n}", n, n, capacity=9) for n in range(5)), Level("last", 9, 9)),
            },
            "more than 5 levels",
        ),
    ],
)
def test_nothing_is_proven_where_no_facts_are_known(change, words, known):
    task = replace(known.task, machine=msgspec.structs.replace(known.task.machine, **change))
    with pytest.raises(NotProven, match=words):
        verify(task, known.certificate)


def within(seconds: float, task: Task, certificate: object, words: str, limit: float = 60.0) -> None:
    began = time.process_time()  # other processes may take most of the clock's
    with pytest.raises(NotProven, match=words):
        verify(task, certificate, limit)
    assert time.process_time() - began < seconds


def test_a_hostile_certificate_takes_no_more_than_its_time(known):
    leaf = {"moment": None, "weights": []}
    graph = Graph("large", unit="pebble").tensor("p", 10**6, "param", axes=[("i", 1_000), ("j", 1_000)])
    graph.tensor("y", 1, "output", axes=[]).op("sum", ["p"], ["y"])
    task = Task(graph, known.task.machine, steady=True)
    columns: Any = leaf
    for most in range(999, 0, -1):
        columns = {"axis": "j", "most": 1_000 - most, "low": leaf, "high": columns}
    # Many leaves that share what is below them: a million in a few words of memory.
    rows: Any = columns
    for most in range(999, 0, -1):
        rows = {"axis": "i", "most": 1_000 - most, "low": columns, "high": rows}
    within(10, task, {"covers": "forms", "tree": rows}, "cannot be split|not verified to its end", limit=1.0)


def test_assumptions_are_not_made_twice(known):
    moment = split_of(known.certificate["tree"], "near")["moment"]
    tree: Any = {"moment": moment, "weights": []}
    for _ in range(20_000):
        tree = {"near": 0, "moment": moment, "first": tree, "second": tree, "neither": tree}
    within(2, known.task, {"covers": "forms", "tree": tree}, "nothing can be assumed about level 0")


def test_unknown_rows_are_refused_before_anything_is_added_up(known):
    weights = [["no such row", number, f"1/{10**19 + number}"] for number in range(100_000)]
    within(5, known.task, {"covers": "forms", "tree": {"moment": None, "weights": weights}}, "there is no row")


def test_weights_cannot_fill_the_memory_with_digits(known, monkeypatch):
    monkeypatch.setattr(certificates, "MOST_BITS", 500)
    rows = leaf_of(known.certificate["tree"])["weights"]
    weights = [[*row[:-1], f"1/{10**19 + number}"] for number, row in enumerate(rows)]
    certificate = copy.deepcopy(known.certificate)
    leaf_of(certificate["tree"])["weights"] = weights
    within(2, known.task, certificate, "too many different denominators")


# Mutants of certificates.


def surely(energy: float) -> float:
    """Return what no bound may be above: an energy, but for the rounding of what pieces of an op cost."""
    return energy * (1 + 1e-12)


def proven(verifier: TaskVerifier, certificate: object) -> float | None:
    """Return what a certificate proves, None if it is refused."""
    try:
        return verifier.verify(certificate, 20)
    except NotProven:
        return None


def attack(seed: int, mutants: int) -> Counter[str]:
    """Verify mutants of one certificate; return how many were accepted and refused."""
    rng, verifiers = random.Random(seed), dict[tuple[Machine, bool], TaskVerifier]()
    named = NAMED[seed % 40 // 8] if seed % 8 == 0 else None
    one = certified(named_task(*named), 100) if named else random_certified(rng)
    assert verify(one.task, one.certificate) == one.bound
    energy = surely(cheapest(rng, one.task, 12))
    as_it_is = surely(cheapest(rng, one.task, 6, forms=False))
    assert one.bound <= (energy if one.certificate["covers"] == "forms" else as_it_is)
    found: Counter[str] = Counter()
    for _ in range(mutants):
        mutant = mutated(rng, one)
        if mutant is None:
            continue
        kind, task, certificate = mutant
        if task.graph is one.task.graph:  # then rows are made once for all that has this machine
            verifier = verifiers.setdefault((task.machine, task.steady), TaskVerifier(task, 64))
        else:
            verifier = TaskVerifier(task)
        bound = proven(verifier, certificate)
        if rng.random() < 0.03:
            assert bound == proven(TaskVerifier(task), certificate), (
                f"seed {seed}: rows that were kept prove something else"
            )
        if bound is None:
            found[f"{kind} refused"] += 1
            continue
        found[f"{kind} accepted"] += 1
        where = f"seed {seed}: {kind} {json.dumps(certificate)[:2_000]}"
        if task is one.task:
            assert bound <= (energy if certificate["covers"] == "forms" else as_it_is), where
            if bound > one.bound:
                found["proves more"] += 1
                assert bound <= provable(task, certificate, 2 * bound) * (1 + 1e-6) + 1, where
        else:
            assert bound <= surely(cheapest(rng, task, 2, forms=certificate["covers"] == "forms")), where
    return found


@pytest.mark.parametrize("seed", range(16))
def test_no_mutant_proves_what_is_not_so(seed):
    found = attack(seed, 40)
    assert found["certificate refused"] > 0


def test_a_linear_program_in_which_the_simplex_method_goes_round_in_circles_is_given_up():
    """GLOP takes no end with 62 rows of this task, unless it leaves preprocessing out."""
    one = random_certified(random.Random(1076))
    assert verify(one.task, one.certificate) == one.bound


@pytest.mark.parametrize(("seed", "least"), [(1313, 185), (1137, 60), (1794, 18)])
def test_a_last_level_that_is_cheap_to_read_costs_no_bound(seed, least):
    """Levels up to a price of a read may have no end; 2**62 in a row about their room misled linear programs."""
    one = random_certified(random.Random(seed))
    task, tiles = one.task, TileRange.all_of(one.task.graph)
    assert min(task.read[:-1]) >= task.read[-1]
    leaf = Leaf(Family(task, tiles.open, tiles.cut), tiles)
    assert all(abs(factor) < 10**6 for row in rows_of(leaf) for factor in (*row.terms.values(), row.least))
    assert verify(task, one.certificate) == one.bound >= least


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(100))
def test_no_mutant_proves_what_is_not_so_in_a_hundred_thousand(chunk):
    """A thousand each: 100,000 together."""
    for seed in range(10):
        attack(1_000 + 10 * chunk + seed, 112)
