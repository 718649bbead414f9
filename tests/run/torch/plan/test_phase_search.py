"""Refusals name a budget, and that budget works whenever it is asked for: with any time limit, seed, costs and objective."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

import pebbler.torch as pt
from pebbler.game.byte_sizes import bytes_of
from pebbler.game.graph import Graph
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import Link
from pebbler.run.torch.plan import phase_search
from pebbler.run.torch.plan.host_link import MEMORY
from pebbler.run.torch.plan.phase_search import least_units, solve_phases
from pebbler.solver.problem import Impossible

_LIMITS = (0.0, 0.1, 0.5)


def named(error):
    """Return the budgets that a refusal says work, in bytes: the rounded figure and the exact one."""
    said = re.search(r"\. ([\d.,]+ (?:GiB|MiB|bytes)) works", str(error))
    assert said is not None, error
    exact = re.findall(r"known to work is ([\d,]+) bytes$", str(error))
    assert len(exact) == (" and less cannot" not in str(error))
    return [bytes_of(figure.replace(",", "").removesuffix("bytes")) for figure in (said[1], *exact)]


def random_phase(rng, ops):
    """Return a step of random ops: a chain with a way back, what one reads of the others at random, some that run once."""
    graph = Graph("random", unit="byte")
    graph.tensor("w", int(rng.integers(1, 50)), kind="param")
    names = ["w"]
    for i in range(ops):
        last = i == ops - 1
        graph.tensor(f"t{i}", int(rng.integers(0, 1000)), kind="output" if last or rng.random() < 0.05 else "temp")
        near = names[-3:] if i < ops // 2 else [names[-1], names[max(0, ops - 1 - i)]]
        reads = sorted({*rng.choice(near, rng.integers(1, 3)).tolist(), *([names[-1]] if last else [])})
        graph.op(f"op{i}", reads, [f"t{i}"], cost=int(rng.integers(1, 100)), once=bool(rng.random() < 0.1))
        names.append(f"t{i}")
    return graph


def refusal(graphs, budget, headroom, seconds, link=None):
    with pytest.raises(Impossible) as refused:
        solve_phases(graphs, budget - headroom, headroom, seconds, 0, link)
    return refused.value


def kept(graphs, budget, headroom, seconds, seed=0, link=None):
    plans = solve_phases(graphs, budget - headroom, headroom, seconds, seed, link)
    judged = [check(plan) for plan in plans]
    return all(j.legal and j.peak[MEMORY] <= budget - headroom for j in judged)


def refused_budgets(rng, graphs, headroom, limits, link):
    """Yield what refusals of random budgets name; budgets between the bound and the least that was found may have a plan."""
    lower, upper = least_units(graphs, 0.1, offload=link is not None)
    for budget in (rng.integers(1, lower), rng.integers(lower, upper + 1) - 1):
        try:
            solve_phases(graphs, int(budget), headroom, float(rng.choice(limits)), 0, link)
        except Impossible as error:
            yield from named(error)
        else:
            assert budget >= lower
    yield upper + headroom


def ask_for_what_is_named(rng, ops, limits):
    graphs = [random_phase(rng, ops) for _ in range(rng.integers(1, 4))]
    headroom = int(rng.integers(0, 500))
    for link in (None, Link(1.0, 1.0, overlap=True)):
        for least in refused_budgets(rng, graphs, headroom, limits, link):
            assert all(kept(graphs, least, headroom, limit, 3, link) for limit in limits)
            other = [phase_search._of_equal_costs(graph) for graph in graphs]  # as if costs were measured again
            assert kept(other, least, headroom, limits[0], link=link)


def test_what_a_refusal_names_works_whatever_the_time_limit():
    rng = np.random.default_rng(0)
    for _ in range(3):
        ask_for_what_is_named(rng, int(rng.integers(4, 20)), (0.0, 0.1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_what_a_hundred_refusals_name_works(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        ask_for_what_is_named(rng, int(rng.integers(3, 40)), _LIMITS)


def test_planning_ends_when_it_is_told_to():
    """Both would take the time limit: no bound reaches the cost of such plans."""
    graph = random_phase(np.random.default_rng(2), 60)
    _, least = least_units([graph], 0.2)
    for link in (None, Link(50.0, 50.0, overlap=True)):
        asked = []

        def stop(asked=asked):
            asked.append(None)
            return len(asked) > 20

        (plan,) = solve_phases([graph], least, 0, 1000.0, 0, link, stop=stop)
        judged = check(plan)
        assert judged.legal
        assert judged.peak[MEMORY] <= least
        assert plan.meta["cut_off"]


def test_for_phases_that_run_once_any_plan_will_do():
    graph = random_phase(np.random.default_rng(2), 60)
    _, least = least_units([graph], 0.2)
    for link in (None, Link(50.0, 50.0, overlap=True)):
        stop = iter([False] * 100_000)
        first, _ = solve_phases([graph, small_phase()], least, 0, 1000.0, 0, link, stop=lambda stop=stop: next(stop))
        assert check(first).peak[MEMORY] <= least
        assert "cut_off" not in first.meta or link is not None


def small_phase():
    graph = Graph("small", unit="byte")
    _ = graph.tensor("a", 4), graph.tensor("b", 4, kind="output")
    return graph.op("make", [], ["a"], cost=1).op("use", ["a"], ["b"], cost=1)


def test_what_is_named_is_enough_for_every_phase():
    """The first phase is refused, and a later one needs more."""
    small, large = (random_phase(np.random.default_rng(seed), 12) for seed in (0, 1))
    needs = sorted(((least_units([g], 1.0)[1], g) for g in (small, large)), key=lambda pair: pair[0])
    assert needs[0][0] < needs[1][0]
    least, exact = named(refusal([needs[0][1], needs[1][1]], 10, 0, 1.0))
    assert least == exact == needs[1][0]
    assert kept([small, large], least, 0, 0.0)


def test_a_budget_below_the_headroom_is_refused_with_what_works():
    graph = random_phase(np.random.default_rng(0), 8)
    least, exact = named(refusal([graph], 100, 400, 0.1))
    assert least == exact
    assert kept([graph], least, 400, 0.0)
    (least,) = named(refusal([graph], 100, 400, 0.1, Link(1.0, 1.0, overlap=True)))
    assert kept([graph], least, 400, 0.0, link=Link(1.0, 1.0, overlap=True))


@pytest.mark.slow
def test_the_least_budget_of_a_step_works_before_and_after_there_is_optimizer_state():
    torch.manual_seed(0)
    layers = (layer for _ in range(2) for layer in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1)))
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    rule = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        rule.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        rule.step()
        return loss

    batch = torch.randn(32, 32), torch.randint(4, (32,))
    with pytest.raises(Impossible) as refused:
        pt.step(step, budget=25_000, device="cpu", time_limit=0.1)(*batch)
    least, *_ = named(refused.value)
    planned = pt.step(step, budget=least, device="cpu", time_limit=0.2)
    assert all(torch.isfinite(planned(*batch)) for _ in range(3))


def random_step(rng):
    """Return a training step of a random small model, and a batch."""
    torch.manual_seed(int(rng.integers(1000)))
    width, rows = int(rng.choice([8, 16, 32])), int(rng.choice([4, 32, 128]))
    makers = (lambda: nn.Linear(width, width), nn.GELU, nn.Tanh, lambda: nn.Dropout(0.1), lambda: nn.LayerNorm(width))
    layers = [makers[i]() for i in rng.integers(len(makers), size=rng.integers(1, 8))]
    model = nn.Sequential(nn.Linear(width, width), *layers)
    makes = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
    rule = makes[rng.integers(len(makes))](model.parameters(), lr=0.01)

    def step(x):
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    return step, torch.randn(rows, width)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_what_refusals_of_random_steps_name_works(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        step, x = random_step(rng)
        captured = pt.capture(step, x)
        costs = pt.roofline(captured, "cpu")
        for offload, objective in ((False, "time"), (True, "time"), (False, "energy"), (True, "energy")):
            how = {"offload": offload, "objective": objective}
            lower, least = pt.least_budget(captured, costs, offload=offload, time_limit=float(rng.choice(_LIMITS)))
            budget = int(rng.integers(1, lower))
            with pytest.raises(Impossible) as refused:
                pt.plan_captured(captured, costs, budget=budget, time_limit=float(rng.choice(_LIMITS)), **how)
            for works in (least, *named(refused.value)):
                for limit in _LIMITS:
                    plan = pt.plan_captured(captured, costs, budget=works, time_limit=limit, seed=7, **how)
                    assert plan.peak <= works
                    assert all(judgement.legal for judgement in plan.judge())
