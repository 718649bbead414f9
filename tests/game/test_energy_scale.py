"""How energies compare: whole prices exactly, others up to rounding."""

from __future__ import annotations

import math
import random

import pytest

from pebbler import check, machine, solve, workloads
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.solver.assessment import assess
from pebbler.solver.chain import Chain, solve_general

WHOLE, QUARTERS, ROUNDED = EnergyScale(1.0), EnergyScale(0.25), EnergyScale(0.0)


def test_prices_and_costs_decide() -> None:
    def scale(read: float, cost: float) -> EnergyScale:
        graph = Graph("g", "byte").tensor("x", 1, "input").op("f", ["x"], cost=cost)
        return EnergyScale.of(graph, Machine("m", "byte", (Level("all", read, 3),)))

    assert [scale(1, 2), scale(1e13, 2.0), scale(0.5, 2), scale(1, 0.25)] == [WHOLE, WHOLE, EnergyScale(0.5), QUARTERS]
    assert [scale(0.1, 1), scale(1, 1 / 3), scale(1e-12, 0)] == [ROUNDED] * 3
    assert EnergyScale.of(workloads.mlp(), machine("notes")) == WHOLE


@pytest.mark.parametrize("energy", [1.0, 17.0, 1e10, 1e13, 2.0**47 + 1, 2.0**52 + 1, 2.0**53 - 2])
def test_whole_energies_differ_by_one_or_not_at_all(energy: float) -> None:
    assert WHOLE.proves(energy, energy)
    assert not WHOLE.proves(energy - 1, energy)
    assert WHOLE.is_less(energy - 1, energy)
    assert not WHOLE.is_less(energy, energy)
    assert WHOLE.differ(energy + 1, energy)
    assert energy - 1 < WHOLE.cutoff(energy) <= energy
    if energy < 1e14:  # larger ones may be rounded sums and look whole
        assert WHOLE.least(energy) == WHOLE.lowered(energy) == energy


def test_other_energies_are_rounded() -> None:
    one, other = sum([0.1] * 10_000), 0.1 * 10_000
    assert one != other
    assert ROUNDED.proves(one, other)
    assert ROUNDED.proves(other, one)
    assert not ROUNDED.differ(one, other)
    assert ROUNDED.is_less(one * (1 - 1e-8), one)
    assert not ROUNDED.proves(1e-13, 1.1e-13)  # however small
    assert all(scale.is_less(5.0, math.inf) and not scale.is_less(math.inf, 5.0) for scale in (WHOLE, ROUNDED))
    assert ROUNDED.proves(ROUNDED.lowered(0.3), 0.3)


def test_rounded_bounds_on_whole_energies_come_out_whole() -> None:
    rng = random.Random(0)
    for _ in range(2_000):
        true = rng.choice([1, 10, 10**6, 10**9, 10**12, 10**15]) * rng.randint(1, 9) + rng.randint(0, 5)
        for scale in (WHOLE, QUARTERS):
            energy = true * scale.quantum
            noisy = energy * (1 + rng.uniform(-1, 1) * 1e-13)
            least = scale.least(noisy)
            assert least % scale.quantum == 0
            assert least <= energy
            if true < 10**8:
                assert least == energy
            assert scale.is_less(energy - scale.quantum, energy)
            assert not scale.is_less(energy, noisy) or noisy - energy > 0.4 * scale.quantum
    assert WHOLE.least(math.inf) == math.inf


def test_a_plan_five_above_another_is_not_optimal() -> None:
    graph = Graph("g").tensor("x", 20_000_000, "input").tensor("y", 1, "output").tensor("z", 1).tensor("w", 1, "output")
    graph.op("f", ["x"], ["y"]).op("h", writes=["z"]).op("k", ["z"], ["w"])
    explicit = machine("notes-explicit")
    best, worse = (Plan(graph, explicit, [("compute", name) for name in names], {}, False) for names in ("fhk", "fhhk"))
    least, more = check(best).energy, check(worse).energy
    assert (least, more) == (12_800_000_020, 12_800_000_025)
    found = assess(Plan(graph, explicit, worse.moves, {}, False, more, more, "optimal"), seconds=10)
    assert found.status == "bounded"
    assert found.bound is not None
    assert found.bound <= least
    assert found.void
    assert solve(graph, explicit, steady=False, time_limit=2, threads=1, resume=worse).energy == least


@pytest.mark.parametrize("unit", [1e13, 1e-13])
def test_chains_of_odd_costs_are_not_called_optimal_for_rounding(unit: float) -> None:
    """With a second unit of fast memory less, some schedules differ by a millionth of a step."""
    forward = (0.0, 3 * unit, unit, 2 * unit)
    chain = Chain((1, 2, 1, 2), forward, (unit,) * 4, (4 * unit,) * 4, (4 * unit,) * 4, fast=4)
    plain = Chain((1, 2, 1, 2), (0, 3, 1, 2), (1,) * 4, (4,) * 4, (4,) * 4, fast=4)
    solved, expected = solve_general(chain), solve_general(plain)
    assert solved.energy == pytest.approx(expected.energy * unit, rel=1e-12)
    assert solved.bound == pytest.approx(expected.bound * unit, rel=1e-12)
    assert solved.status == expected.status
