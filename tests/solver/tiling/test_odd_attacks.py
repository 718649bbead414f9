"""No plan of an odd graph costs less than a bound that is stated for it; see `odd_graphs` for what is odd about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from odd_graphs import odd_form, odd_graph, odd_machine, phased_graph, phased_machine
from pebbler.extras.reruns.rerun_search import rerun_bound
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee.programs.order_floors import order_bound
from pebbler.solver.bounds import bounds
from pebbler.solver.bounds.many_moments import all_moments
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.large_caches import cache_bounds
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.tiling_bound import tiled_bound
from pebbler.solver.tiling.transform_space import TransformSpace
from rerun_plans import Attacked, cheapest_found

Kind = tuple[Callable[[random.Random], Graph], Callable[[random.Random, Graph], Machine]]
KINDS: list[Kind] = [(odd_graph, odd_machine), (phased_graph, phased_machine)]
EXACT = 1 - 1e-12  # pieces of an op cost fractions of it, and the referee adds doubles
LARGEST = 120  # ops of a form


def attack(seed: int, kind: Kind, *, forms: int, tries: int) -> None:
    rng = random.Random(seed)
    graph = kind[0](rng)
    machine, steady = kind[1](rng, graph), rng.random() < 0.6
    problem, space = Problem.of(graph, machine, steady=steady), TransformSpace(graph)
    stated = tiled_bound(problem, 600)
    for number in range(forms):
        form, sizes = odd_form(rng, space) if number else (graph, {})
        if form is None or len(form.ops) > LARGEST:
            continue
        energy = cheapest_found(rng, Attacked(form, machine, steady, graph if number else None), tries)
        of_sizes = tiled_bound(problem, sizes=sizes)
        for value, proof in [
            (stated.energy, stated.proof),
            (of_sizes.energy, of_sizes.proof),
            *own_bounds(form, problem),
        ]:
            assert energy >= EXACT * value, f"seed {seed}: {energy} is below {value} ({proof}), tiles {sizes}"


def own_bounds(form: Graph, problem: Problem) -> Iterator[tuple[float, str]]:
    """Yield what is stated for one form."""
    own = Problem.of(form, problem.machine, steady=problem.steady)
    if problem.machine.management == "lru":
        yield order_bound(own.task), "cheapest last touches"
        found = cache_bounds(own, lambda: 1.0)
    else:
        found = [*bounds(own), *all_moments(own, 1.0), *large_bounds(own, lambda: 1.0)]
    for bound in found:
        yield bound.value, bound.proof


def attack_ranks(seed: int) -> None:
    """The same by recency ranks, where whole tensors are priced."""
    rng = random.Random(seed)
    graph = odd_graph(rng)
    machine = Machine("ranks", graph.unit, odd_machine(rng, graph).level, "recency", "any")
    problem = Problem.of(graph, machine, steady=False)
    energy = cheapest_found(rng, Attacked(graph, machine, False, None), 100)
    floors = [bound.value for bound in cache_bounds(problem, lambda: 1.0)]
    for value in (rerun_bound(problem, 1e15, most=100_000), order_bound(problem.task), *floors):
        assert energy >= EXACT * value, f"seed {seed}: {energy} is below {value}"


@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_of_an_odd_graph_is_below_a_bound(kind):
    for seed in range(6):
        attack(seed, kind, forms=3, tries=20)


def test_no_plan_of_an_odd_graph_is_below_a_bound_of_ranks():
    for seed in range(10):
        attack_ranks(seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", range(10, 160))
def test_no_plan_of_an_odd_graph_is_below_a_bound_in_thousands_of_cases(kind, chunk):
    for seed in range(chunk * 10, (chunk + 1) * 10):
        attack(seed, kind, forms=5, tries=60)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10, 60))
def test_no_plan_of_an_odd_graph_is_below_a_bound_of_ranks_in_many_cases(chunk):
    for seed in range(chunk * 10, (chunk + 1) * 10):
        attack_ranks(seed)
