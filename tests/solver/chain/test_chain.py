"""The chain solver against brute force, known figures, the referee and its own counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_chain import naive_energy, play
from pebbler import check
from pebbler.errors import InputError
from pebbler.solver.chain import Chain, solve_chain, solve_general, solve_uniform
from pebbler.solver.chain.chain_moves import stream, tally
from pebbler.solver.chain.general import is_exact, select_nodes

general = sys.modules["pebbler.solver.chain.general"]  # `pebbler.solver` is also the name of the function


def verify(solved):
    """Hold a solution's figures together: rules, energy, counts, bound."""
    moves = list(solved.moves())
    assert play(solved.chain, moves) == pytest.approx(solved.energy, rel=1e-12)
    kinds = [kind for kind, _ in moves]
    assert (solved.computes, solved.loads, solved.stores) == tuple(map(kinds.count, ("compute", "load", "store")))
    assert solved.count == len(moves)
    assert solved.bound <= solved.energy
    assert (solved.status == "optimal") == (solved.bound == solved.energy)


@pytest.mark.parametrize("red", [3, 4, 5])
@pytest.mark.parametrize("length", range(1, 8))
def test_uniform_chains_equal_brute_force(length, red):
    for io in (1, 2, 3, 5, 10, 100, math.inf):
        solved = solve_uniform(length, red, io=io)
        assert solved.energy == naive_energy(Chain.uniform(length, red, io=io))
        assert solved.status == "optimal"
        verify(solved)


@pytest.mark.slow
@pytest.mark.parametrize("red", [3, 4, 5])
@pytest.mark.parametrize("length", [8, 9])
def test_longer_uniform_chains_equal_brute_force(length, red):
    for io in (1, 2, 3, 5, 10, 100):
        solved = solve_uniform(length, red, io=io)
        assert solved.energy == naive_energy(Chain.uniform(length, red, io=io))
        assert solved.status == "optimal"


@pytest.mark.parametrize(
    ("compute", "store", "load"), [(3, 2, 2), (5, 4, 4), (10, 1, 1), (1, 0, 0), (0, 3, 3), (4, 1, 5), (2, 7, 1)]
)
@pytest.mark.parametrize("red", [2, 3, 4])
def test_cheap_slow_memory_equals_brute_force(compute, store, load, red):
    for length in range(1, 7):
        chain = Chain.uniform(length, red, compute, store=store, load=load)
        solved = solve_general(chain)
        assert solved.energy == naive_energy(chain)
        assert solved.status == "optimal"
        verify(solved)


@pytest.mark.parametrize(("compute", "io"), [(3, 2), (10, 9), (20, 11), (1, 1), (5, 1)])
def test_uniform_chains_are_proven_where_loads_are_cheaper_than_steps(compute, io):
    for length, red in itertools.product((12, 25, 60), (3, 4, 6)):
        solved = solve_uniform(length, red, compute, io)
        assert solved.status == "optimal"
        verify(solved)


def test_issue_figures():
    assert [solve_uniform(9, 3, io=io).energy for io in (1, 2, 3, 5, 10)] == [29, 35, 39, 45, 53]
    assert [solve_uniform(9, 4, io=io).energy for io in (1, 2, 3, 5, 10)] == [26, 28, 29, 29, 29]


def test_figures_of_note_001():
    reds = (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 102)
    energies = [solve_uniform(100, red, io=math.inf).energy for red in reds]
    assert energies == [5149, 1019, 627, 490, 423, 388, 357, 347, 336, 324, 311, 297, 287, 201]
    solved = solve_uniform(100, 11)
    assert (solved.energy, solved.status, solved.loads, solved.stores) == (336, "optimal", 0, 0)
    assert solve_uniform(100, 3).energy < 5149
    assert solve_uniform(100, 4).energy < 1019


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(3, 12), st.integers(1, 40), st.integers(0, 6))
def test_uniform_schedules_are_legal_and_counted(length, red, io, compute):
    solved = solve_uniform(length, red, compute, io)
    verify(solved)
    judgement = check(solved.plan())
    assert judgement.legal, judgement.error
    assert judgement.energy == solved.energy
    assert judgement.peak["fast"] == solved.peak_red <= red


@st.composite
def general_chains(draw, longest=6, adjoint=None):
    n = draw(st.integers(1, longest))
    is_adjoint = draw(st.booleans() if adjoint is None else st.just(adjoint))

    def numbers(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=n + 1, max_size=n + 1)))

    sizes = numbers(1, draw(st.sampled_from([1, 2, 4])))
    least = 0 if is_adjoint else max(a + b for a, b in itertools.pairwise(sizes))
    fast = least + draw(st.integers(0, 6))
    start = "fast" if is_adjoint else draw(st.sampled_from(["fast", "slow", "both"]))
    high = draw(st.sampled_from([2, 9, 30]))
    prices = numbers(0, high), numbers(0, high)
    if draw(st.booleans()):
        prices = tuple((row[0],) * (n + 1) for row in prices)
    return Chain(sizes, (0, *numbers(0, 9)[1:]), numbers(0, 3), *prices, fast, is_adjoint, start)


@settings(max_examples=200, deadline=None)
@given(general_chains())
def test_general_chains_equal_brute_force(chain):
    solved = solve_general(chain)
    assert solved.energy == naive_energy(chain)
    assert solved.status == "optimal"
    verify(solved)


@settings(max_examples=60, deadline=None)
@given(general_chains(longest=5, adjoint=False))
def test_general_chains_without_slow_memory_equal_brute_force(chain):
    never = (math.inf,) * len(chain.sizes)
    chain = Chain(chain.sizes, chain.forward, chain.backward, never, never, chain.fast)
    least = naive_energy(chain)
    if math.isinf(least):
        with pytest.raises(InputError, match="no schedule"):
            solve_general(chain)
    else:
        assert solve_general(chain).energy == least


def random_chain(n, rng, largest, fast, adjoint=False, io=40):
    sizes = tuple(rng.integers(1, largest, n + 1, endpoint=True).tolist())
    forward = (0, *rng.integers(1, 20, n).tolist())
    moved = tuple(io * size for size in sizes)
    return Chain(sizes, forward, (1,) * (n + 1), moved, moved, fast, adjoint)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("largest", [1, 5])
def test_longer_general_chains_are_legal_and_bounded(largest, adjoint):
    rng = np.random.default_rng(7)
    for n in (15, 40, 90):
        solved = solve_general(random_chain(n, rng, largest, 12, adjoint))
        verify(solved)
        if largest == 1:
            assert solved.status == "optimal"
        judgement = check(solved.plan())
        assert judgement.legal, judgement.error
        assert judgement.energy == pytest.approx(solved.energy)


@pytest.mark.parametrize("adjoint", [False, True])
@settings(max_examples=30, deadline=None)
@given(st.integers(3, 24), st.integers(2, 26), st.integers(1, 24), st.integers(0, 2**32))
def test_chosen_nodes_give_legal_schedules_and_all_of_them_the_best(adjoint, n, count, band, seed):
    rng = np.random.default_rng(seed)
    chain = random_chain(n, rng, 4, 16, adjoint, io=int(rng.integers(1, 30)))
    sizes, memory, _ = general.grains(chain)
    best, _ = general._solve_all(chain, sizes, memory, True)
    nodes = select_nodes(sizes, count)
    apart = int(np.diff(nodes).max())
    energy, splits = general._solve_chosen(chain, sizes, memory, nodes, max(band, apart))
    assert energy >= best - 1e-9
    if not math.isinf(energy):
        assert play(chain, list(stream(chain, splits))) == pytest.approx(energy + chain.backward_total)
    # All nodes chosen; or all segments short, and no stored base that would have to be a chosen node.
    assert general._solve_chosen(chain, sizes, memory, np.arange(n + 1), n)[0] == pytest.approx(best)
    never = (math.inf,) * (n + 1)
    kept = dataclasses.replace(chain, store=never, load=never)
    best, _ = general._solve_all(kept, sizes, memory, True)
    assert general._solve_chosen(kept, sizes, memory, nodes, n)[0] == pytest.approx(best)


@pytest.mark.slow
def test_long_chains_of_uneven_nodes_use_their_memory():
    """In grains so coarse that all of them fit, the nodes of this chain would all count as large as the largest."""
    n, fast = 1500, 40
    chain = random_chain(n, np.random.default_rng(1), 4, fast, io=math.inf)
    energy, splits = general.general_recurrence(chain)
    moves = list(stream(chain, splits))
    assert play(chain, moves) == energy + chain.backward_total
    assert tally(chain, moves).peak > 36
    large, _ = general_recurrence_of_size(chain, fast // 4)
    assert energy < 0.7 * large


def general_recurrence_of_size(chain, red):
    """The same chain with nodes of one size."""
    one = (1,) * len(chain.sizes)
    return general.general_recurrence(Chain(one, chain.forward, chain.backward, chain.store, chain.load, red))


def test_coarse_grains_still_fit():
    rng = np.random.default_rng(3)
    n = 60
    sizes = tuple(rng.integers(50_000, 900_000, n + 1).tolist())
    moved = tuple(float(size) for size in sizes)
    chain = Chain(sizes, (0, *(5.0,) * n), (5.0,) * (n + 1), moved, moved, 3_000_000)
    solved = solve_general(chain)
    verify(solved)
    assert solved.status == "bounded"


def test_adjoint_convention_matches_revolve():
    assert [solve_uniform(100, snaps, io=math.inf, adjoint=True).computes for snaps in (9, 10, 11)] == [234, 222, 209]
    assert solve_uniform(5000, 10, adjoint=True).energy == 26344
    assert solve_uniform(100, 1, adjoint=True).energy == 1725
    assert solve_uniform(100, 3, 10, 5, backward=1, adjoint=True).energy == 2050


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 50), st.integers(0, 8), st.integers(0, 30))
def test_adjoint_schedules_are_legal_and_counted(length, snaps, io):
    verify(solve_uniform(length, snaps, 1, io, adjoint=True))


def test_a_long_chain_streams():
    solved = solve_uniform(100_000, 11)
    assert solved.status == "optimal"
    assert list(itertools.islice(solved.moves(), 3)) == [("store", 0), ("compute", 1), ("drop", 0)]
    assert sum(1 for _ in solved.moves()) == solved.count


@pytest.mark.parametrize(("length", "red", "io"), [(100, 11, 100), (40, 3, 2), (60, 5, math.inf)])
def test_the_front_door_returns_a_plan_that_holds(length, red, io):
    plan, solved = solve_chain(length, red, io=io), solve_uniform(length, red, io=io)
    judgement = check(plan)
    assert judgement.legal, judgement.error
    assert (plan.energy, plan.bound, plan.status, plan.proof) == (
        judgement.energy,
        solved.bound,
        solved.status,
        solved.proof,
    )
    assert plan.meta == {name: getattr(solved, name) for name in ("computes", "loads", "stores", "peak_red")}
    assert len(plan.moves) == solved.count


def test_a_schedule_of_too_many_moves_is_no_plan(monkeypatch):
    monkeypatch.setattr(sys.modules["pebbler.solver.chain"], "LONGEST_PLAN", 570)
    with pytest.raises(InputError, match=r"the schedule has 571 moves, .* solve_uniform of pebbler.solver.chain"):
        solve_chain(100, 11)


def test_many_pebbles_stay_within_memory(monkeypatch):
    monkeypatch.setattr(sys.modules["pebbler.solver.chain.uniform"], "CELLS", 300 * 30)
    solved = solve_uniform(300, 120)
    verify(solved)
    assert (solved.energy, solved.status) == (300 + 181 + 301, "optimal")


def test_energy_scales_with_the_prices():
    assert solve_uniform(50, 4, 0.25, 2.5).energy == solve_uniform(50, 4, 1, 10).energy / 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 100, "red": 2, "io": math.inf}, "The least is 3"),
        ({"length": 0, "red": 3}, "length must be a whole number >= 1"),
        ({"length": 5, "red": 3, "compute": -1}, "compute must be"),
        ({"length": 5, "red": 3, "io": math.nan}, "io must be"),
        ({"length": 5, "red": 3, "compute": math.inf}, "compute must be"),
        ({"length": 5, "red": math.nan}, "red must be"),
        ({"length": 5, "red": 0}, "red must be"),
        ({"length": 5, "red": math.inf}, "red must be"),
        ({"length": 10**11, "red": 3}, "length must be at most 10,000,000 layers, got 100,000,000,000"),
    ],
)
def test_bad_numbers_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        solve_uniform(**arguments)


def test_nodes_larger_than_fast_memory_are_refused():
    with pytest.raises(InputError, match=r"Backward\(1\) needs N_1 and N_2 .* The least for this chain is 9"):
        Chain((1, 4, 5), (0, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), fast=8)


def test_a_chain_without_one_price_has_no_machine():
    chain = Chain((1, 1, 1), (0, 1, 1), (1, 1, 1), (5, 6, 7), (5, 5, 5), fast=2)
    with pytest.raises(InputError, match="one price per unit"):
        solve_general(chain).plan()


@pytest.mark.parametrize("adjoint", [False, True])
@settings(max_examples=150)
@given(data=st.data())
def test_nothing_is_claimed_that_is_not_so(monkeypatch, adjoint, data):
    """Without the search of small chains, bounds hold and what is called optimal is optimal."""
    module = sys.modules["pebbler.solver.chain.general"]
    monkeypatch.setattr(module, "SEARCHED", 0)
    monkeypatch.setattr(module, "SEARCHED_ADJOINT", 0)
    chain = data.draw(general_chains(longest=6, adjoint=adjoint))
    least = naive_energy(chain)
    solved = solve_general(chain)
    verify(solved)
    assert solved.bound <= least <= solved.energy
    if solved.status == "optimal":
        assert solved.energy == least
    if is_exact(chain):
        assert solved.status == "optimal"


@pytest.mark.parametrize("red", [2, 3, 4])
@settings(max_examples=150)
@given(length=st.integers(1, 7), compute=st.integers(0, 9), store=st.integers(0, 20), load=st.integers(0, 20))
def test_uniform_chains_at_any_prices(monkeypatch, length, red, compute, store, load):
    monkeypatch.setattr(sys.modules["pebbler.solver.chain.general"], "SEARCHED", 0)
    chain = Chain.uniform(length, red, compute, store=store, load=load)
    solved = solve_general(chain)
    least = naive_energy(chain)
    assert solved.bound <= least <= solved.energy
    if store == load or solved.status == "optimal":
        assert (solved.energy, solved.status) == (least, "optimal")


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (1, 2, 1, 1, 1)])
@pytest.mark.parametrize("start", ["slow", "both"])
@pytest.mark.parametrize("forward", [1, 5])
def test_the_first_node_may_come_back_where_no_other_can(monkeypatch, sizes, start, forward):
    """It starts in slow memory, and nothing can be stored: 0.1.0 overlooked that it can be loaded again."""
    monkeypatch.setattr(general, "SEARCHED", 0)
    for fast in (3, 4):
        chain = Chain(sizes, (0, *(forward,) * 4), (1,) * 5, (math.inf,) * 5, (2,) * 5, fast, start=start)
        least, solved = naive_energy(chain), solve_general(chain)
        assert solved.bound <= least <= solved.energy
        assert solved.status != "optimal" or solved.energy == least
