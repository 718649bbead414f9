"""No plan costs less than a bound that is stated for it, however its graph is cut, fused, ordered and run again."""

from __future__ import annotations

import random

import pytest
from attacks import cheapest_order, random_levels, random_tilable, transforms

from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver import solve
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import tiled_bound

QUICK, SLOW = range(300), range(1000, 6000)


def attack_caches(seed: int, tries: int) -> None:
    rng = random.Random(seed)
    graph = random_tilable(rng)
    machine, steady = random_levels(rng, graph, "lru"), rng.random() < 0.5
    bound = tiled_bound(Problem.of(graph, machine, steady=steady))
    for form in transforms(rng, graph, 6):
        plan = cheapest_order(rng, form, machine, graph, steady=steady, tries=tries)
        energy = check(plan).energy
        assert energy >= bound.energy, f"seed {seed}: {energy} is below {bound} in {len(form.ops)} ops"


def attack_explicit(seed: int, seconds: float) -> None:
    rng = random.Random(seed)
    graph = random_tilable(rng, most_ops=5, most_extent=12)
    machine, steady = random_levels(rng, graph, "explicit"), rng.random() < 0.5
    bound = tiled_bound(Problem.of(graph, machine, steady=steady))
    for form in transforms(rng, graph, 3):
        try:
            plan = solve(form, machine, steady=steady, tile="none", time_limit=seconds)
        except Exception as error:
            if type(error).__name__ != "Impossible":
                raise
            continue
        energy = check(plan).energy
        assert energy >= bound.energy, f"seed {seed}: {energy} is below {bound} in {len(form.ops)} ops"
        assert plan.bound is not None and energy >= plan.bound


if __name__ == "__main__":
    import sys

    kind, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    broken = 0
    for seed in range(first, last):
        try:
            attack_caches(seed, 60) if kind == "lru" else attack_explicit(seed, 0.3)
        except AssertionError as error:
            broken += 1
            print(error)
    print(last - first, "cases,", broken, "broken")
