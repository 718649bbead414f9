"""What is proven of small problems is so: attacks by brute force, and faults put in on purpose that they find."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from optimum_attacks import (
    ATTACKS,
    attack_cache_orders,
    attack_chains,
    attack_joined,
    attack_odd_prices,
    attack_paging,
    attack_pebbles,
    attack_recomputation,
    attack_results_over,
    attack_sweep,
    attack_tight_games,
)
from pebbler.extras.pebbles.joined_ops import JoinedOps, join_ops
from pebbler.extras.pebbles.kernels.pebble_state import PebbleGame
from pebbler.extras.pebbles.pebble_symmetries import _Residual
from pebbler.game.machine import Machine
from pebbler.solver.large_caches import _Floor
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.milestone_relaxation import Relaxation, StageModel

Attack = Callable[[int], bool]


@pytest.mark.parametrize(
    ("attack", "cases", "compared"),
    [
        (attack_recomputation, 60, 20),
        (attack_paging, 60, 20),
        (attack_cache_orders, 60, 30),
        (attack_chains, 150, 100),
        (attack_pebbles, 80, 40),
        (attack_sweep, 150, 60),
        (attack_tight_games, 20, 12),
        (attack_joined, 50, 25),
        (attack_results_over, 80, 60),
        (attack_odd_prices, 80, 50),
    ],
)
def test_the_optimum_lies_between_bounds_and_plans(attack: Attack, cases: int, compared: int) -> None:
    assert sum(attack(seed) for seed in range(cases)) >= compared


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("part", range(10))
def test_the_optimum_lies_between_bounds_and_plans_in_thousands_of_cases(attack: Attack, part: int) -> None:
    assert sum(attack(seed) for seed in range(1_000 + 100 * part, 1_100 + 100 * part)) >= 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "ops", "states", "games"),  # tight games have more states: of 8 ops brute force ends none within 6,000
    [
        (attack_pebbles, 8, 6_000, 100),
        (attack_sweep, 8, 6_000, 100),
        (attack_tight_games, 7, 20_000, 30),
        (attack_joined, 8, 6_000, 100),
    ],
)
@pytest.mark.parametrize("part", range(10))
def test_larger_pebble_games(
    attack: Callable[[int, int, int], bool], ops: int, states: int, games: int, part: int
) -> None:
    assert sum(attack(seed, ops, states) for seed in range(100 * part, 100 * part + games)) >= 0.3 * games


# Faults on purpose --------------------------------------------------------------------------------------------------------


def smaller_memory(patch: pytest.MonkeyPatch) -> None:
    """The relaxation takes it that there is a unit less than there is."""
    made = Relaxation.__init__

    def init(self: Relaxation, *arguments: object) -> None:
        made(self, *arguments)  # type: ignore[arg-type]
        self.capacity -= 1

    patch.setattr(Relaxation, "__init__", init)


def everything_lies_through(patch: pytest.MonkeyPatch) -> None:
    """The relaxation takes it that what a stage makes was there before it."""
    patch.setattr(StageModel, "_made", lambda self, stage, value: 0)


def never_recompute(patch: pytest.MonkeyPatch) -> None:
    """Paging claims its bounds where recomputing pays."""
    patch.setattr("pebbler.referee.programs.pages.reruns_never_pay", lambda task: True)


def every_order_is_forced(patch: pytest.MonkeyPatch) -> None:
    """Paging claims its bounds where recomputing pays and the order is free."""
    never_recompute(patch)
    patch.setattr("pebbler.referee.programs.pages.order_is_forced", lambda graph: True)


def higher_floor(patch: pytest.MonkeyPatch) -> None:
    """What every plan pays on a cache is stated a twentieth too high."""
    total, runs = _Floor.total, _Floor.runs
    patch.setattr(_Floor, "total", lambda self: 1.05 * total(self))
    patch.setattr(_Floor, "runs", lambda self: 1.05 * runs(self))


def all_come_back_twice(patch: pytest.MonkeyPatch) -> None:
    """Nodes of a chain that do not stay are taken to come back twice."""
    module = sys.modules["pebbler.solver.chain.general"]
    come_back = module.come_back
    patch.setattr(module, "come_back", lambda chain: 2 * come_back(chain))


def every_recurrence_is_proven(patch: pytest.MonkeyPatch) -> None:
    """Chains of uneven nodes are taken to be solved exactly by their recurrence."""
    module = sys.modules["pebbler.solver.chain"]
    patch.setattr(module, "is_exact", lambda chain: True)


def no_second_runs(patch: pytest.MonkeyPatch) -> None:
    """The pebble game leaves out second runs that pay."""
    module = sys.modules["pebbler.extras.pebbles.pebble_rules"]
    patch.setattr(module, "_prices_of_running_again", lambda problem, *_: np.full(len(problem.graph.ops), np.inf))


def heavy_tails(patch: pytest.MonkeyPatch) -> None:
    """The pebble game's estimate counts one more after every op."""
    module = sys.modules["pebbler.extras.pebbles.pebble_rules"]
    tails = module._tails
    patch.setattr(module, "_tails", lambda *arguments: 1.0 + tails(*arguments))


def endless_tails(patch: pytest.MonkeyPatch) -> None:
    """The pebble game's estimate finds everything too dear as long as something is to be read."""
    module = sys.modules["pebbler.extras.pebbles.pebble_rules"]
    patch.setattr(module, "_tails", lambda table, *_: np.full(len(table), 1e6))


def nothing_at_hand(patch: pytest.MonkeyPatch) -> None:
    """The sweep overlooks what lies in the fast level at the start."""
    module = sys.modules["pebbler.extras.pebbles.pebble_sweep"]
    first = module._first_layer
    patch.setattr(module, "_first_layer", lambda rules, positions: first(replace(rules, fast=0), positions))


def too_much_behind(patch: pytest.MonkeyPatch) -> None:
    """What follows an op that leaves no room is priced one too high."""
    module = sys.modules["pebbler.extras.pebbles.pebble_moments"]
    least = module._least_after
    patch.setattr(module, "_least_after", lambda *arguments: 1.0 + least(*arguments))


def all_are_alike(patch: pytest.MonkeyPatch) -> None:
    """Ops and values change places whatever comes of it."""
    patch.setattr(_Residual, "allows", lambda self, swap: True)
    patch.setattr(_Residual, "_kind", lambda self, node: int(node[0]))


def first_loads_of_results(patch: pytest.MonkeyPatch) -> None:
    """Values that are made where they are first read are loaded there as well."""
    made = sys.modules["pebbler.extras.pebbles.pebble_rules"]._game

    def game(*arguments: object) -> PebbleGame:
        played: PebbleGame = made(*arguments)
        return played._replace(
            given=played.given | played.made_at_read, fetched=played.fetched | played.made_at_read, made_at_read=0
        )

    patch.setattr("pebbler.extras.pebbles.pebble_rules._game", game)


def a_pebble_less(patch: pytest.MonkeyPatch) -> None:
    """The game with joined ops has less room than the game as it is."""

    def joined(problem: Problem) -> JoinedOps | None:
        found = join_ops(problem)
        if found is None:
            return None
        fast, slow = problem.machine.level
        tight = Machine(
            "tight", problem.machine.unit, (msgspec.structs.replace(fast, capacity=(fast.capacity or 0) - 1), slow)
        )
        return replace(found, problem=replace(found.problem, machine=tight))

    patch.setattr("pebbler.extras.pebbles.pebble_sweep.join_ops", joined)


@pytest.mark.parametrize(
    ("attack", "fault", "first"),  # and a seed that is not far before one that shows it
    [
        (attack_recomputation, smaller_memory, 0),
        (attack_recomputation, everything_lies_through, 0),
        (attack_paging, never_recompute, 60),
        (attack_paging, every_order_is_forced, 0),
        (attack_cache_orders, higher_floor, 0),
        (attack_chains, all_come_back_twice, 0),
        (attack_chains, every_recurrence_is_proven, 0),
        (attack_pebbles, no_second_runs, 120),
        (attack_pebbles, heavy_tails, 0),
        (attack_sweep, endless_tails, 0),
        (attack_sweep, nothing_at_hand, 0),
        (attack_tight_games, too_much_behind, 148),
        (attack_tight_games, all_are_alike, 8),
        (attack_joined, first_loads_of_results, 294),
        (attack_joined, a_pebble_less, 86),
    ],
)
@pytest.mark.filterwarnings("ignore:a fault in pebbler")
def test_a_fault_on_purpose_is_found(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, fault: Callable[[pytest.MonkeyPatch], None], first: int
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        sum(attack(seed) for seed in range(first, first + 400))
