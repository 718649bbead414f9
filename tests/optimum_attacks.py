"""Attacks on what is proven of small problems: the optimum by brute force lies between every stated bound and every plan.

Each takes a seed, and returns whether there was anything to compare: brute force may take too long, and not every problem gets
a claim.
"""

from __future__ import annotations

import itertools
import math
import random
from unittest import mock

import msgspec

from naive_chain import naive_energy
from naive_game import NaiveGame, RandomGame, TooBig, random_game
from one_level_games import optimum, small_game
from pebble_games import passing_game, pebble_game, tight_game
from pebbler.extras.pebbles.joined_ops import join_ops
from pebbler.extras.pebbles.pebble_moments import with_fillings, with_tightest_moments
from pebbler.extras.pebbles.pebble_rules import pebble_rules
from pebbler.extras.pebbles.pebble_search import solve_pebbles
from pebbler.extras.pebbles.pebble_sweep import fits_sweep, solve_joined, solve_sweep
from pebbler.extras.pebbles.pebble_symmetries import with_symmetries
from pebbler.extras.reruns.rerun_search import rerun_bound
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.orders import iterate_orders
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.referee.programs.order_floors import order_bound
from pebbler.solver.bounds import bounds
from pebbler.solver.case import Case
from pebbler.solver.chain import Chain, solve_general
from pebbler.solver.chain.general import general_bound
from pebbler.solver.large_caches import cache_bounds
from pebbler.solver.methods import run
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.paging.paging_solver import PagingSolver
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute import solve_recompute
from pebbler.solver.recompute.least_capacity import least_capacity
from pebbler.solver.recompute.milestone_relaxation import Relaxation
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from strategies import random_cache_machine, random_graph

CLOSE = 1e-9  # sums of prices in another order


def _problem(game: RandomGame) -> Problem:
    return Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)


def _between(search: Search, best: float, seed: int) -> None:
    """The optimum is no lower than the bound, and no higher than the plan."""
    assert search.bound <= best * (1 + CLOSE), f"seed {seed}: {search.bound} is above {best} ({search.proof})"
    assert search.energy >= best * (1 - CLOSE), f"seed {seed}: {search.energy} is below {best}"
    if search.done:
        assert search.energy <= best * (1 + CLOSE), f"seed {seed}: {search.energy} is called optimal, {best} is"


def attack_recomputation(seed: int) -> bool:
    """Relaxations over random milestones, with and without a limit, and the solver that trusts them."""
    rng = random.Random(seed)
    game = small_game(seed, max_ops=6)
    try:
        best = optimum(game)
    except TooBig:
        return False
    problem = _problem(game)
    relaxation = Relaxation(RecomputeProblem.of(problem))
    milestones: list[int] = []
    for op in rng.sample(range(len(game.graph.ops)), min(3, len(game.graph.ops))):
        milestones = relaxation.chained(milestones, op) or milestones
        answer = relaxation.solve(milestones)
        if best is None:
            continue
        assert not answer.impossible, f"seed {seed}: milestones {milestones} are called impossible"
        assert answer.bound <= best * (1 + CLOSE), f"seed {seed}: {answer.bound} is above {best}"
        limit = best + rng.choice([0.25, 1.0, 7.0])
        assert not relaxation.solve(milestones, cheaper_than=limit).none_cheaper, f"seed {seed}"
    if rng.random() < 0.2:
        search = Search(problem, time_limit=0.1)
        try:
            solve_recompute(search)
        except Impossible:
            assert best is None, f"seed {seed}: {best} is called impossible"
            return True
        if best is None:
            assert search.best is None, f"seed {seed}: brute force finds no plan"
        else:
            _between(search, best, seed)
    return best is not None


def attack_paging(seed: int) -> bool:
    """What paging proves where the order is forced and recomputing does not pay; whether any bound was claimed."""
    rng = random.Random(seed)
    game = _forced_game(rng) if rng.random() < 0.8 else random_game(rng, 5, max_levels=2)
    if len(game.machine.level) < 2:
        return False
    try:
        best = NaiveGame(game.graph, game.machine, game.steady, game.start).solve(8_000)
    except (TooBig, ValueError):
        return False
    search = Search(_problem(game), time_limit=5.0)
    try:
        solver = PagingSolver(search)
        solver.prepare()
        solver.page_start_orders()
        if solver.best is not None:
            solver.refine()
    except Impossible:
        assert best is None, f"seed {seed}: {best} is called impossible"
        return True
    if best is None:
        assert search.best is None, f"seed {seed}: brute force finds no plan"
        return True
    if search.best is not None:
        _between(search, best, seed)
    return search.bound > 0


def attack_results_over(seed: int) -> bool:
    """Results over what is dropped right after: every bound, every plan, what is impossible, and the least room of one level."""
    rng = random.Random(seed)
    rising, alone = rng.random() < 0.8, rng.random() < 0.3
    game = random_game(
        rng, 4, max_levels=1 if alone else 3, max_start=2, operands="any", monotone=rising, results="over"
    )
    naive = NaiveGame(game.graph, game.machine, game.steady, game.start)
    try:
        best = naive.solve(4_000) if rising else naive.solve_plain(4_000)
    except TooBig:
        return False
    problem = _problem(game)
    plan = program_order_plan(problem)
    if best is None:
        assert plan is None, f"seed {seed}: brute force finds no plan"
    elif plan is not None:
        assert check(plan).energy >= best * (1 - CLOSE), f"seed {seed}"
    for bound in bounds(problem) if best is not None else ():
        assert bound.value <= best * (1 + CLOSE), f"seed {seed}: {bound} is above {best}"
    search, quick = Search(problem, 5.0), Search(problem, 5.0)  # the second without the exact search
    search.case, quick.case = Case(problem, "none"), Case(problem, "none")
    try:
        run(search)
        assert search.done, f"seed {seed}"
        _between(search, best or 0.0, seed)
        with mock.patch("pebbler.solver.exact.fits_exact", return_value=False):
            run(quick)
        if quick.best is not None:
            _between(quick, best or 0.0, seed)
    except Impossible:
        assert best is None, f"seed {seed}: {best} is called impossible"
    if len(game.machine.level) == 1:
        least = least_capacity(problem, 1.0)
        assert check(least.plan).legal, f"seed {seed}"
        for capacity in range(1, least.upper + 1):
            smaller = NaiveGame(game.graph, game.machine.resized(0, capacity), game.steady).solve(50_000)
            assert smaller is None or capacity >= least.lower, f"seed {seed}: {least.lower} is above {capacity}"
            assert smaller is not None or capacity < least.upper, f"seed {seed}: {least.upper} do not work"
    return True


def attack_odd_prices(seed: int) -> bool:
    """Whole prices of about 1e13 that differ by one, and prices of about 1e-13: what is called optimal is, to the last unit."""
    rng = random.Random(seed)
    tiny, most = seed % 3 == 0, rng.choice([10**12, 10**13])

    def price(amount: float) -> float:
        if tiny:
            return float(amount) * 1e-13
        return int(amount and most + rng.randint(-3, 3)) if rng.random() < 0.8 else int(amount)

    def priced(graph: Graph) -> Graph:
        ops = [msgspec.structs.replace(op, cost=price(op.cost)) for op in graph.ops]
        return Graph(graph.name, graph.unit, graph.tensors, ops)

    def levels(machine: Machine) -> list[Level]:
        found = [msgspec.structs.replace(one, read=price(one.read), write=price(one.write)) for one in machine.level]
        reads = sorted(one.read for one in found)  # brute force needs them to rise
        return [msgspec.structs.replace(one, read=read) for one, read in zip(found, reads, strict=True)]

    if seed % 2:
        graph = priced(random_graph(rng, 4))
        cache = random_cache_machine(rng, rng.choice(["lru", "recency"]))
        machine, start, steady = msgspec.structs.replace(cache, level=tuple(levels(cache))), {}, rng.random() < 0.5
        best = _best_order(rng, graph, machine, steady) if len(graph.ops) <= 5 else None
    else:
        game = random_game(rng, 4, max_levels=3, max_start=2, operands=rng.choice(["fastest", "any"]))
        graph, start, steady = priced(game.graph), game.start, game.steady
        machine = msgspec.structs.replace(game.machine, level=tuple(levels(game.machine)))
        try:
            best = NaiveGame(graph, machine, steady, start).solve(4_000)
        except TooBig:
            return False
    search = Search(Problem.of(graph, machine, steady=steady, start=start), 5.0)
    search.case = Case(search.problem, "none")
    try:
        run(search)
    except Impossible:
        assert best is None, f"seed {seed}: {best} is called impossible"
        return True
    if best is None:
        return False
    slack = CLOSE * best if tiny else 0.0
    assert search.bound <= best + slack, f"seed {seed}: {search.bound} is above {best} ({search.proof})"
    if not seed % 2:
        assert search.energy >= best - slack, f"seed {seed}: {search.energy} is below {best}"
    if search.done:
        assert search.energy <= best + slack, f"seed {seed}: {search.energy} is called optimal, {best} is"
    return True


def _best_order(rng: random.Random, graph: Graph, machine: Machine, steady: bool) -> float:
    """Return the least energy of all orders on a cache, and of some with one op run once more."""
    names, best = [op.name for op in graph.ops], math.inf
    for order in iterate_orders(graph):
        run = [names[i] for i in order]
        longer = [[*run[:at], again, *run[at:]] for again in names for at in range(len(run) + 1)]
        for sequence in (run, *rng.sample(longer, min(8, len(longer)))):
            judgement = check(Plan.in_order(graph, machine, sequence, steady=steady))
            if judgement.legal:
                best = min(best, judgement.energy)
    return best


def _forced_game(rng: random.Random) -> RandomGame:
    """Return a line of ops, each of which reads the result before it and some earlier ones, with costs about what copies cost."""
    graph = Graph("line", unit="pebble")
    names = []
    for number in range(rng.randint(0, 2)):
        names.append(f"in{number}")
        graph.tensor(names[-1], rng.randint(1, 3), kind=rng.choice(["input", "param"]))
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(3, 5))]
    few = rng.random() < 0.3  # ops that cost less than copies
    read, write = rng.choice([1, 2, 5]), rng.choice([0, 1, 3])
    fast = (rng.choice([0, 1]), rng.choice([0, 1]))
    for number, size in enumerate(sizes):
        earlier = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 2])))
        last = [f"v{number - 1}"] if number else []
        graph.tensor(f"v{number}", size, kind=rng.choice(["temp", "temp", "output"]))
        copies = size * (2 * max(read, fast[0]) + write + fast[1])
        cost = rng.choice([1, copies - 1, copies]) if few else copies + rng.choice([0, 0, 2])
        reads = list(dict.fromkeys([*last, *earlier]))
        graph.op(f"op{number}", reads, [f"v{number}"], cost, once=rng.random() < 0.1)
        names.append(f"v{number}")
    most = max(
        sum(graph.tensor_named(name).size for name in {*op.reads, *op.writes}) for op in graph.ops
    )  # what one op needs
    levels = (Level("fast", *fast, capacity=most + rng.randint(0, 3)), Level("slow", max(read, fast[0]), write))
    operands = rng.choice(["fastest", "any"])
    return RandomGame(graph, Machine("two", "pebble", levels, operands=operands), False)


def attack_cache_orders(seed: int) -> bool:
    """Bounds on caches against every order of a small graph, and every order with one op run once more."""
    rng = random.Random(seed)
    graph = random_graph(rng, 4)
    machine = random_cache_machine(rng, rng.choice(["lru", "lru", "recency"]))
    steady = rng.random() < 0.5
    problem = Problem.of(graph, machine, steady=steady)
    stated = [order_bound(problem.task), *(bound.value for bound in cache_bounds(problem, lambda: 1.0))]
    if machine.management == "recency":
        stated.append(rerun_bound(problem, math.inf))
    if len(graph.ops) > 5:
        return False
    best = _best_order(rng, graph, machine, steady)
    assert max(stated) <= best * (1 + CLOSE), f"seed {seed}: {stated} is above {best}"
    return True


def attack_chains(seed: int) -> bool:
    """General chains: the bound, the schedule, and what is called optimal."""
    rng = random.Random(seed)
    adjoint = rng.random() < 0.3
    n = rng.randint(1, 4 if adjoint else 6)
    sizes = tuple(rng.randint(1, rng.choice([1, 2, 4])) for _ in range(n + 1))
    least = 0 if adjoint else max(a + b for a, b in itertools.pairwise(sizes))
    high = rng.choice([2, 9, 30])

    def prices() -> tuple[float, ...]:
        one = rng.choice([None, None, rng.randint(0, high), math.inf])
        return tuple(float(rng.randint(0, high)) if one is None else float(one) for _ in range(n + 1))

    forward = (0.0, *(float(rng.choice([0, 1, 1, 2, 9, 2.5])) for _ in range(n)))
    start = "fast" if adjoint else rng.choice(["fast", "fast", "slow", "both"])
    chain = Chain(sizes, forward, (1.0,) * (n + 1), prices(), prices(), least + rng.randint(0, 5), adjoint, start)
    best = naive_energy(chain)
    if math.isinf(best):
        return False
    bound = general_bound(chain, best - chain.backward_total)[0] + chain.backward_total
    assert bound <= best * (1 + CLOSE), f"seed {seed}: {bound} is above {best}"
    solved = solve_general(chain)
    assert solved.bound <= best * (1 + CLOSE), f"seed {seed}: {solved.bound} is above {best}"
    assert solved.energy >= best * (1 - CLOSE), f"seed {seed}: {solved.energy} is below {best}"
    if solved.status == "optimal":
        assert solved.energy <= best * (1 + CLOSE), f"seed {seed}: {solved.energy} is called optimal, {best} is"
    return True


def _least(game: RandomGame, limit: int, seed: int) -> float | None:
    """Return the optimum of a game with room for every op and to store everything, None where there are too many states."""
    try:
        best = NaiveGame(game.graph, game.machine, False, game.start).solve(limit)
    except TooBig:
        return None
    assert best is not None, f"seed {seed}: every op fits, and there is room to store everything"
    return best


def _searches(problem: Problem) -> tuple[Search, Search]:
    """Return searches of a graph as it is, without a plan and with program order's."""
    alone, towards = Search(problem), Search(problem)
    alone.as_it_is = towards.as_it_is = True
    towards.offer_plan(program_order_plan(problem))
    return alone, towards


def attack_pebbles(seed: int, most_ops: int = 5, limit: int = 2_000) -> bool:
    """Pebble games of two levels, searched to the end and cut off early."""
    game = pebble_game(random.Random(seed), most_ops)
    problem = _problem(game)
    best = _least(game, limit, seed)
    if best is None:
        return False
    whole, few = Search(problem), Search(problem)
    whole.as_it_is = few.as_it_is = True
    solve_pebbles(whole)
    if whole.best is None:  # not one of these games
        return False
    _between(whole, best, seed)
    assert whole.done, f"seed {seed}"
    solve_pebbles(few, 64)
    assert few.bound <= best * (1 + CLOSE), f"seed {seed}: {few.bound} is above {best}, cut off early"
    return True


def attack_sweep(seed: int, most_ops: int = 5, limit: int = 2_000) -> bool:
    """Pebble games in which nothing pays to run twice, layer by layer: from nothing, towards a dear plan, and with little space."""
    game = pebble_game(random.Random(seed), most_ops, dear_runs=seed % 4 > 0)
    problem = _problem(game)
    if not fits_sweep(problem):
        return False
    best = _least(game, limit, seed)
    if best is None:
        return False
    whole, towards, few = Search(problem), Search(problem), Search(problem)
    whole.as_it_is = towards.as_it_is = few.as_it_is = True
    solve_sweep(whole)
    _between(whole, best, seed)
    assert whole.done, f"seed {seed}"
    for search, positions in ((towards, 1 << 16), (few, 8)):
        search.offer_plan(program_order_plan(problem))
        solve_sweep(search, positions)
        _between(search, best, seed)
    assert towards.done, f"seed {seed}"
    return True


def attack_tight_games(seed: int, most_ops: int = 6, limit: int = 3_000) -> bool:
    """Games of blocks that are alike between ops that leave no room: whether such ops, or such blocks, were made use of."""
    game = tight_game(random.Random(seed), most_ops)
    problem = _problem(game)
    rules = pebble_rules(problem)
    assert rules is not None, f"seed {seed}"
    best = _least(game, limit, seed)
    if best is None:
        return False
    for search in _searches(problem):
        solve_pebbles(search)
        _between(search, best, seed)
        assert search.done, f"seed {seed}"
    alike = len(with_symmetries(rules.game, lambda: 1.0).fixed)
    priced = with_fillings(with_tightest_moments(rules, lambda: 1.0), math.inf, 1_000, lambda: math.inf)
    return alike > 0 or bool(priced.game.least_after.any())


def attack_joined(seed: int, most_ops: int = 6, limit: int = 3_000) -> bool:
    """Games in which ops that pass a value on are joined with the one before, and those that read an input with the one after."""
    game = passing_game(random.Random(seed), most_ops)
    problem = _problem(game)
    if join_ops(problem) is None and not fits_sweep(problem):
        return False
    best = _least(game, limit, seed)
    if best is None:
        return False
    alone, towards = _searches(problem)
    for one in (alone, towards):
        solve_joined(one, 1.0)
        _between(one, best, seed)
        if fits_sweep(problem):
            solve_sweep(one)
            _between(one, best, seed)
            assert one.done, f"seed {seed}"
    return alone.best is not None


ATTACKS = [
    attack_recomputation, attack_paging, attack_cache_orders, attack_chains, attack_pebbles, attack_sweep,
    attack_tight_games, attack_joined, attack_results_over, attack_odd_prices,
]  # fmt: skip
