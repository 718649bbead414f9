"""The front door: right answers whatever the problem, honest status, and something in hand at any time."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import pebbler as pb
from naive_game import NaiveGame, TooBig, random_game
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.solver import find_least_capacity, finish, new_search, solve_search
from pebbler.solver.case import Case
from pebbler.solver.methods import _offer_single_runs
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.program_order import program_order_energy


def solve_like_brute_force(seed: int, max_ops: int, limit: int) -> bool:
    game = random_game(random.Random(seed), max_ops)
    try:
        expected = NaiveGame(game.graph, game.machine, game.steady, game.start).solve(limit)
    except TooBig:
        return False
    try:
        plan = pb.solve(game.graph, game.machine, steady=game.steady, start=game.start, time_limit=60, threads=1)
    except Impossible as error:
        assert expected is None, f"seed {seed}: {error}"  # noqa: PT017
        return True
    assert plan.status == "optimal", f"seed {seed}"
    assert plan.energy == plan.bound == pytest.approx(expected, rel=1e-9, abs=1e-9), f"seed {seed}"
    verdict = NaiveGame(game.graph, game.machine, game.steady, dict(plan.start)).play(plan.moves.words())
    assert verdict.legal, f"seed {seed}: {verdict.why}"
    assert verdict.energy == pytest.approx(expected, rel=1e-9, abs=1e-9), f"seed {seed}"
    return True


def test_random_games_are_solved_as_by_brute_force() -> None:
    assert sum(solve_like_brute_force(seed, 5, 3_000) for seed in range(5_000, 5_080)) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_larger_random_games_are_solved_as_by_brute_force(part: int) -> None:
    assert (
        sum(solve_like_brute_force(seed, 8, 20_000) for seed in range(10_000 + 200 * part, 10_200 + 200 * part)) >= 120
    )


def test_the_notes_step_under_the_notes_rule_is_solved_to_the_known_optimum() -> None:
    plan = pb.solve("note-mlp", "notes-recency")
    assert (plan.energy, plan.bound, plan.status) == (10_764_315, 10_764_315, "optimal")


def test_chains_go_to_the_chain_solver() -> None:
    plan = pb.solve("chain:length=100", "red-blue", start={"N0": "fast"})
    assert (plan.energy, plan.status) == (336, "optimal")
    assert pb.check(plan).energy == 336


def test_the_general_solver_agrees_with_the_chain_solver() -> None:
    chain = pb.workloads.chain(6)
    disguised = pb.Graph("disguised", chain.unit, chain.tensors, chain.ops)
    # An op beside the chain that reads nothing of it: the chain solver must leave this graph alone.
    disguised.tensor("beside", 0, kind="output")
    disguised.op("aside", writes=["beside"], cost=1)
    red = Machine("red", "pebble", (Level("fast", 0, 0, capacity=4), Level("slow", 3, 3)))
    plain = pb.solve(chain, red, start={"N0": "fast"})
    general = pb.solve(disguised, red, start={"N0": "fast"})
    assert (plain.status, general.status) == ("optimal", "optimal")
    assert general.energy == plain.energy + 1


def test_a_bound_of_whole_tensors_is_never_claimed_for_a_tiled_plan() -> None:
    """The whole-tensor step is proven optimal within a second, and tiled plans cost less than that."""
    step, machine = pb.workloads.mlp(n=20, hidden=100), pb.machine("notes-explicit")
    whole = pb.solve(step, machine, tile="none", quick=True, time_limit=None)
    tiled = pb.solve(step, machine, quick=True, time_limit=None)
    assert whole.status == "optimal"
    assert tiled.source is not None
    assert tiled.energy < whole.bound
    assert tiled.bound <= tiled.energy
    assert pb.verify(tiled).largest_difference <= 1e-12


def test_no_time_still_gives_program_order() -> None:
    for machine in ("notes", "notes-recency", "notes-explicit"):
        problem = Problem.of(pb.workloads.mlp(), pb.machine(machine))
        plan = pb.solve("mlp", machine, time_limit=0)
        assert plan.energy == program_order_energy(Search(problem))
        assert plan.meta["cut_off"] is True


def test_the_same_call_gives_the_same_plan_whatever_the_threads() -> None:
    chain = pb.workloads.chain(9)
    disguised = pb.Graph("disguised", chain.unit, chain.tensors, chain.ops)
    disguised.tensor("beside", 0, kind="output")
    disguised.op("aside", writes=["beside"], cost=1)
    one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    plans = [pb.solve(disguised, one, time_limit=None, threads=threads) for threads in (1, 2)]
    assert plans[0].status == "optimal"
    assert plans[0].to_json() == plans[1].to_json()


def test_progress_only_gets_better() -> None:
    seen = []
    search = solve_search("mlp:n=4,hidden=30", "notes", time_limit=1, report=lambda s: seen.append((s.energy, s.bound)))
    assert len(seen) >= 2
    assert all(a[0] >= b[0] and a[1] <= b[1] for a, b in pairwise(seen))
    assert finish(search).energy == seen[-1][0]


def test_impossible_problems_say_what_is_missing() -> None:
    small = Machine("small", "float32", (Level("fast", 0, 0, capacity=16_384), Level("slow", 1, 1)))
    with pytest.raises(
        Impossible, match="upd_W1 needs 40,000 units at once; fast holds 16,384; the least that works is 40,000"
    ):
        pb.solve("note-mlp", small, tile="none")


def test_the_least_capacity_works_and_one_less_does_not() -> None:
    chain = pb.workloads.chain(5)

    def one(capacity: int) -> Machine:
        return Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))

    least = find_least_capacity(chain, one(50))
    assert (least.least, least.bound) == (3, 3)
    assert pb.solve(chain, one(3)).status == "optimal"
    with pytest.raises(Impossible):
        pb.solve(chain, one(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.solve("mlp", "notes", tile="some"), "auto or none"),
        (lambda: pb.solve("mlp", "notes", threads=0), "at least 1"),
        (lambda: pb.solve("mlp", "notes", time_limit=-1), ">= 0"),
        (lambda: pb.solve("mlp", "notes", time_limit=float("nan")), ">= 0"),
        (lambda: pb.solve("chain:length=3", "notes"), "they must agree"),
        (lambda: find_least_capacity(pb.workloads.mlp(), pb.machine("notes")), "caches"),
    ],
)
def test_wrong_calls_are_refused(call, message: str) -> None:
    with pytest.raises(pb.InputError, match=message):
        call()


def run_cli(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from pebbler.cli import main; main()", "solve", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"}, check=False, **more
    )


def test_the_command_prints_what_the_design_says_and_writes_a_plan_that_holds(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = run_cli("note-mlp", "--machine", "notes-recency", "--json", "-o", str(file))
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert {"energy", "bound", "gap", "status", "program_order_energy", "seconds", "moves"} <= found.keys()
    assert (found["energy"], found["gap"], found["program_order_energy"], found["moves"]) == (
        10_764_315,
        0,
        11_004_490,
        15,
    )
    assert pb.check(pb.Plan.load(file)).energy == 10_764_315


def test_the_command_says_no_with_status_1(tmp_path: Path) -> None:
    machine = tmp_path / "tiny.toml"
    machine.write_text('name = "tiny"\nunit = "pebble"\n[[level]]\nname = "fast"\ncapacity = 2\nread = 0\nwrite = 0\n')
    done = run_cli("chain:length=4", "--machine", str(machine), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["status"] == "impossible"
    assert "Traceback" not in done.stderr


SOLVING = """
import pebbler as pb
plan = pb.solve("deep-mlp:n=10,hidden=60,layers=4", "notes", time_limit=300, report=lambda s: print(s.energy, flush=True))
print("plan", pb.check(plan).legal, plan.meta)
"""


def test_ctrl_c_however_often_ends_the_library_call_with_the_best_plan_so_far() -> None:
    with subprocess.Popen([sys.executable, "-c", SOLVING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(3):
            process.send_signal(signal.SIGINT)
        *_, last = process.stdout
    assert (process.returncode, last) == (0, "plan True {'cut_off': True}\n")


def test_a_search_that_is_interrupted_has_no_time_left() -> None:
    search = new_search("chain:length=9", Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),)))
    search.interrupt()
    with pytest.raises(Impossible, match="no legal plan was found"):
        finish(search)
    assert search.part(10.0).remaining == 0


def test_bounds_of_a_graph_as_it_is_are_whole_where_its_energies_are() -> None:
    machine = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 5, 5)))
    problem = Problem.of(pb.workloads.chain(4), machine)
    assert problem.scale.exact
    assert not Problem.of(pb.workloads.chain(4), Machine("half", "pebble", (Level("all", 0.1, 0),))).scale.exact
    search = Search(problem)
    search.raise_bound(60.999999999939, "tiled")  # plans in tiles may cost anything
    assert search.bound == 60.999999999939
    search.as_it_is = True
    for given, rounded in ((60.999999999939, 61), (61.00000000001, 61), (61.2, 62), (62.0, 62)):
        search.bound = 0.0
        search.raise_bound(given, "whole tensors")
        assert search.bound == rounded


def test_a_cache_machine_of_one_level_is_solved():
    """A machine whose levels cannot be told apart has one: nothing is gained by an order, and the bound says so."""
    plan = pb.solve(
        "mlp:n=4,hidden=16", Machine("flat", "byte", (Level("memory", 2, 3),), management="lru"), time_limit=1
    )
    assert pb.check(plan).energy == plan.energy
    assert 0 < plan.bound <= plan.energy


def test_recomputation_that_does_not_pay_is_taken_out_on_caches() -> None:
    """Plans were above the energy of the same order with every op once."""
    step, caches = pb.workloads.mlp(n=4, hidden=12), pb.machine("notes")
    best = pb.solve(step, caches, time_limit=3, tile="none", quick=True)
    order = best.moves.order.tolist()
    again = next(op for op in order if step.ops[op].name == "fwd_relu")
    at = order.index(again) + 1
    search = new_search(step, caches, tile="none", time_limit=3)
    search.offer(Moves.computes(step, search.problem.machine, [*order[:at], again, *order[at:]]))
    assert search.energy > best.energy
    _offer_single_runs(search, Case(search.problem), lambda: 1.0)
    assert search.energy == best.energy
