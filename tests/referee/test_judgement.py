"""The referee: one small plan per rule, note 000's orders, note 001's strategy, and what must add up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from pebbler.errors import IllegalPlan, InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.moves import Drop
from pebbler.game.plan import Move, Plan
from pebbler.notes import note_order
from pebbler.referee.judgement import check, require_legal
from pebbler.workloads import chain, mlp, note_mlp
from strategies import generators, random_cache_machine, random_graph, random_machine, random_order, random_plan


def two(capacity: int = 10, operands: str = "any") -> Machine:
    return Machine("two", "pebble", (Level("fast", 1, 2, capacity), Level("slow", 10, 20)), operands=operands)  # type: ignore[arg-type]


def step() -> Graph:
    """x -> h -> g, then W is updated in place; h can be computed again, as long as W is the old one."""
    graph = Graph("step", unit="pebble")
    graph.tensor("W", 3, kind="param")
    graph.tensor("x", 2, kind="input")
    graph.tensor("h", 4)
    graph.tensor("g", 3)
    graph.op("fwd", reads=["W", "x"], writes=["h"], cost=7)
    graph.op("bwd", reads=["h", "x"], writes=["g"])
    graph.op("upd", reads=["W", "g"], writes=["W"])
    return graph


FWD, BWD, UPD = ("compute", "fwd"), ("compute", "bwd"), ("compute", "upd")


def judge(moves: list[Move], *, on: Machine | None = None, graph: Graph | None = None, steady: bool = False, **start):
    return check(Plan(graph or step(), on or two(), moves, start, steady))


# What things cost ---------------------------------------------------------------------------------------------------------


def test_operands_any_pays_every_read_where_it_is_and_every_write_where_it_goes():
    result = judge([FWD, BWD, UPD])
    assert result.legal
    # fwd: 7 + W, x from slow 50 + h to fast 8; bwd: h 4 + x 20 + g 6; upd: W 30 + g 3 + W to fast 6.
    assert result.step_energy.tolist() == [65, 30, 39]
    assert result.energy == 134
    assert result.ops == {"fwd": 65, "bwd": 30, "upd": 39}
    assert result.levels == {"fast": 7 + 8 + 4 + 6 + 3 + 6, "slow": 50 + 20 + 30}
    assert result.tensors == {"W": 30 + 30 + 6, "x": 20 + 20, "h": 7 + 8 + 4, "g": 6 + 3}
    assert result.moves == {"compute": 134, "copy": 0, "drop": 0}
    assert result.peak == {"fast": 10, "slow": 5}


def test_reads_come_from_the_fastest_level_that_has_a_copy():
    assert judge([("copy", "x", "slow", "fast"), FWD]).step_energy.tolist() == [2 * (10 + 2), 7 + 30 + 2 + 8]


def test_a_compute_may_put_its_results_in_any_level():
    result = judge([("compute", "fwd", "slow")])
    assert result.step_energy.tolist() == [7 + 50 + 80]
    assert result.peak == {"fast": 0, "slow": 9}


def test_operands_fastest_pays_the_cost_alone():
    loads = [("copy", "W", "slow", "fast"), ("copy", "x", "slow", "fast")]
    result = judge([*loads, FWD], on=two(operands="fastest"))
    assert result.step_energy.tolist() == [36, 24, 7]
    assert result.levels == {"fast": 6 + 4 + 7, "slow": 30 + 20}


def test_an_op_that_reads_a_tensor_twice_pays_twice():
    graph = Graph("square", unit="pebble")
    graph.tensor("x", 2, kind="input")
    graph.tensor("y", 1, kind="output")
    graph.op("square", reads=["x", "x"], writes=["y"])
    assert judge([("compute", "square")], graph=graph).energy == 2 * 20 + 2


def test_a_copy_to_where_it_is_already_is_paid_and_takes_no_more_room():
    result = judge([("copy", "x", "slow", "fast"), ("copy", "x", "slow", "fast")])
    assert result.step_energy.tolist() == [24, 24]
    assert result.peak["fast"] == 2


def test_units_are_converted():
    graph = Graph("floats", unit="float32")
    graph.tensor("x", 16, kind="input")
    graph.tensor("y", 1, kind="output")
    graph.op("f", reads=["x"], writes=["y"])
    in_bytes = Machine("bytes", "byte", (Level("fast", 1, 1, 64), Level("slow", 10, 10)), operands="any")
    moves = [("copy", "x", "slow", "fast"), ("compute", "f", "slow")]
    result = judge(moves, graph=graph, on=in_bytes)
    assert (result.legal, result.energy) == (True, 64 * 11 + 64 + 40)
    assert result.peak == {"fast": 16, "slow": 17}


# One plan per rule --------------------------------------------------------------------------------------------------------

X_FAST, W_FAST = ("copy", "x", "slow", "fast"), ("copy", "W", "slow", "fast")


@pytest.mark.parametrize(
    ("moves", "error"),
    [
        ([BWD], "move 1: bwd reads h (version 0), which fwd has not made yet"),
        ([FWD, ("drop", "h", "fast"), BWD], "move 3: bwd reads h (version 0), which is in no level any more"),
        ([UPD], "move 1: upd reads g (version 0), which bwd has not made yet"),
        ([("copy", "h", "fast", "slow")], "move 1: h is not in fast"),
        ([("copy", "x", "fast", "slow")], "move 1: x is not in fast"),
        ([("drop", "x", "fast")], "move 1: x is not in fast"),
        ([("copy", "x", "slow", "slow")], "move 1: copies x from slow to the same level"),
        ([FWD, BWD, UPD, UPD], "move 4: upd has run and cannot run again: it updates in place"),
        ([("drop", "x", "slow")], "move 1: x (version 0) is lost, which fwd still needs and nothing can recompute"),
        (
            [FWD, ("drop", "W", "slow")],
            "move 2: W (version 0) is lost, which upd still needs and nothing can recompute",
        ),
        (
            [FWD, ("drop", "h", "fast"), ("drop", "x", "slow")],
            "move 3: x (version 0) is lost, which bwd still needs and nothing can recompute",
        ),
        ([X_FAST, W_FAST, FWD, BWD], "move 4: fast would hold 12 units; its capacity is 10"),
        ([FWD, BWD], "end: upd has not run"),
        ([], "end: fwd has not run"),
        (
            [FWD, BWD, UPD, ("drop", "W", "fast")],
            "move 4: W (version 1) is lost, which the end still needs and nothing can recompute",
        ),
    ],
)
def test_the_first_illegal_move_and_why(moves, error):
    result = judge(moves)
    assert not result.legal
    assert result.error == error
    assert result.move == (int(error.split()[1][:-1]) if error.startswith("move") else None)
    with pytest.raises(IllegalPlan):
        require_legal(Plan(step(), two(), moves, steady=False))


def test_an_update_may_not_make_an_absent_value_unrecoverable():
    graph = step()
    graph.tensor("late", 1, kind="output")
    # In program order h is read again after the update; dropping it is fine, updating before it is back is not.
    graph.op("again", reads=["h"], writes=["late"])
    lost = judge([FWD, BWD, ("drop", "h", "fast"), UPD], graph=graph)
    assert lost.error == (
        "move 4: W (version 0) is lost, and with it h (version 0), which again still needs and nothing can recompute"
    )
    kept = judge([FWD, BWD, ("drop", "h", "fast"), FWD, UPD, ("compute", "again", "slow")], graph=graph)
    assert kept.legal


def test_what_an_overwritten_twin_takes_with_it():
    graph = Graph("twins", unit="pebble")
    graph.tensor("x", 1, kind="input")
    graph.tensor("p", 1)
    graph.tensor("q", 1)
    graph.op("split", reads=["x"], writes=["p", "q"])
    graph.op("upd", reads=["p"], writes=["p"])
    graph.op("use", reads=["q"])
    # Splitting again would write over the updated p, so q cannot come back.
    assert judge([("compute", "split"), ("drop", "q", "fast"), ("compute", "upd")], graph=graph).error == (
        "move 3: p (version 0) is lost, and with it q (version 0), which use still needs and nothing can recompute"
    )


def test_what_a_lost_ancestor_takes_with_it():
    graph = Graph("line", unit="pebble")
    graph.tensor("x", 1, kind="input")
    for name in "abc":
        graph.tensor(name, 1, kind="output" if name == "c" else "temp")
    for reads, writes in ("xa", "ab", "bc"):
        graph.op(f"make_{writes}", reads=[reads], writes=[writes])
    made = [("compute", "make_a"), ("compute", "make_b")]
    last = ("compute", "make_c")
    gone = [("drop", "x", "slow"), ("drop", "a", "fast")]
    assert judge([*made, *gone, last], graph=graph).legal
    assert judge([*made, *gone, ("drop", "b", "fast"), last], graph=graph).error == (
        "move 5: b (version 0) is lost, which make_c still needs and nothing can recompute"
    )
    again = [("drop", "a", "fast"), ("drop", "b", "fast"), *made, last]
    assert judge([*made, *again], graph=graph).legal


def test_recomputing_costs_again_and_makes_no_new_version():
    result = judge([FWD, ("drop", "h", "fast"), FWD, BWD, UPD])
    assert result.legal
    assert result.ops["fwd"] == 130
    assert result.peak["fast"] == 10


def test_what_cannot_be_computed_again():
    graph = Graph("again", unit="pebble")
    graph.tensor("x", 1, kind="input")
    graph.tensor("noise", 1)
    graph.tensor("t", 1)
    graph.op("draw", reads=["x"], writes=["noise"], once=True)
    graph.op("first", reads=["x"], writes=["t"])
    graph.op("second", reads=["noise"], writes=["t"])
    draw, first, second = ("compute", "draw"), ("compute", "first"), ("compute", "second")
    assert judge([draw, draw], graph=graph).error == "move 2: draw has run and cannot run again: it is marked once"
    assert judge([draw, ("drop", "noise", "fast")], graph=graph).error == (
        "move 2: noise (version 0) is lost, which second still needs and nothing can recompute"
    )
    assert judge([draw, first, first, second], graph=graph).legal
    assert judge([draw, first, second, first], graph=graph).error == (
        "move 4: running first again would bring back t (version 0), which second has overwritten"
    )
    assert judge([draw, second], graph=graph).error == (
        "move 2: second overwrites t (version 0) before first writes it"
    )
    assert judge([draw, first, second, ("drop", "noise", "fast")], graph=graph).legal


def test_operands_fastest_wants_everything_there():
    fast = two(operands="fastest")
    assert judge([FWD], on=fast).error == "move 1: fwd reads W (version 0), which is not in the fastest level (fast)"
    assert judge([X_FAST, W_FAST, ("compute", "fwd", "slow")], on=fast).error == (
        "move 3: results of fwd must go to the fastest level (fast), not to slow"
    )


def test_an_update_takes_over_the_room_of_its_old_version_and_destroys_every_copy():
    tight = two(capacity=7)
    moves = [W_FAST, ("compute", "fwd", "slow"), ("compute", "bwd", "slow"), ("copy", "g", "slow", "fast"), UPD]
    result = judge(moves, on=tight)
    assert result.legal
    assert result.peak["fast"] == 6
    assert judge([*moves, ("drop", "W", "slow")], on=tight).error == "move 6: W is not in slow"


def test_capacity_is_judged_after_the_move():
    exact, short = two(capacity=4), two(capacity=3)
    assert judge([FWD], on=exact).error == "end: bwd has not run"
    assert judge([FWD], on=short).error == "move 1: fast would hold 4 units; its capacity is 3"


def test_what_starts_in_one_bounded_level_takes_room_there():
    def arena(capacity: int) -> Machine:
        return Machine("one", "pebble", (Level("all", 0, 0, capacity),), operands="any")

    assert judge([FWD, BWD, UPD], on=arena(12)).legal
    assert judge([FWD, BWD, UPD], on=arena(11)).error == "move 2: all would hold 12 units; its capacity is 11"
    assert judge([FWD, BWD, UPD], on=arena(4)).error == "start: all would hold 5 units; its capacity is 4"


def test_overwriting_tensors_share_their_storage():
    graph = note_mlp()
    order = [("compute", name) for name in note_order("standard")]
    result = check(Plan(graph, machine("notes-explicit"), [*order, ("copy", "W2", "HBM", "L1")], steady=False))
    assert result.error.startswith("move 1:")  # nothing fits the registers
    roomy = Machine("roomy", "float32", (Level("fast", 1, 1, 10**6), Level("slow", 9, 9)), operands="any")
    assert check(Plan(graph, roomy, order, steady=False)).legal
    late = check(Plan(graph, roomy, [*order, ("copy", "W2", "slow", "fast")], steady=False))
    assert late.error == "move 16: W2 is not in slow"


# Steady -------------------------------------------------------------------------------------------------------------------


def test_a_steady_plan_leaves_params_where_they_started():
    moves = [FWD, BWD, UPD]
    assert judge(moves, steady=False).legal
    assert judge(moves, steady=True).error == (
        "end: a steady plan must leave W (version 1) in slow, where its param started, not in fast"
    )
    back = [*moves, ("copy", "W", "fast", "slow")]
    assert "not in fast and slow" in judge(back, steady=True).error
    assert judge([*back, ("drop", "W", "fast")], steady=True).legal
    assert judge(back, steady=True, W=["fast", "slow"]).legal


def test_the_start_of_a_steady_plan_is_the_plans_choice_for_params_only():
    moves = [FWD, ("drop", "h", "fast"), ("compute", "fwd", "slow"), ("compute", "bwd", "slow"), UPD]
    assert judge(moves, steady=True, W="fast").legal
    assert judge(moves, steady=True, W="fast", x="slow").legal
    assert judge(moves, steady=True, W="fast", x="fast").error == (
        "start: in a steady plan input x arrives in slow, and only there"
    )


def test_a_functional_update_is_where_its_param_will_start():
    graph = Graph("functional", unit="pebble")
    graph.tensor("W", 1, kind="param")
    graph.tensor("W_new", 1, kind="output", overwrites="W")
    graph.op("upd", reads=["W"], writes=["W_new"])
    assert judge([("compute", "upd")], graph=graph, steady=True, W="fast").legal
    assert "must leave W_new (version 0) in slow" in judge([("compute", "upd")], graph=graph, steady=True).error


# Caches: the order alone ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["notes", "notes-recency"])
def test_copies_and_drops_have_no_place_on_a_cache(name):
    graph = note_mlp()
    order = [("compute", op) for op in note_order("standard")]
    for i, other in (
        (3, ("copy", "W1", "HBM", "L2")),
        (0, ("drop", "x", "HBM")),
        (15, ("copy", "x", "HBM", "register")),
    ):
        result = check(Plan(graph, machine(name), [*order[:i], other, *order[i:]]))
        management = machine(name).management
        assert result.error == (
            f"move {i + 1}: a {other[0]}, but under management {management!r} moves are computes only"
        )
        assert (result.move, result.energy) == (i + 1, 0)


def test_on_a_cache_too_the_first_illegal_move_is_named():
    moves = [("compute", "fwd_relu"), ("copy", "x", "HBM", "L1")]
    assert check(Plan(note_mlp(), machine("notes"), moves)).error == (
        "move 1: fwd_relu reads h_pre (version 0), which fwd_linear1 has not made yet"
    )


def test_notes_orders():
    graph, recency = note_mlp(), machine("notes-recency")
    expected = {"standard": 11_004_490, "optimal": 10_764_315, "fused": 10_844_330, "perlayer": 10_844_330}
    for name, energy in expected.items():
        plan = Plan.in_order(graph, recency, note_order(name))
        assert check(plan, ignore_war=True).energy == energy
        judgement = check(plan)
        if name in ("standard", "optimal"):
            assert (judgement.legal, judgement.energy) == (True, energy)
        else:
            place = note_order(name).index("upd_W2") + 1
            assert judgement.error == f"move {place}: upd_W2 overwrites W2 (version 0) before bwd_dh reads it"


# Note 001 -----------------------------------------------------------------------------------------------------------------


def strategy_of_note_001() -> Iterator[Move]:
    """The program printed in note 001, move by move."""
    red, blue = {0}, set()
    checkpoints = list(range(0, 101, 10))
    for i in range(1, 101):
        yield "compute", f"c{i}"
        red.add(i)
        if len(red) > 11:
            to_delete = i - 11
            if to_delete not in checkpoints:
                yield "drop", f"N{to_delete}", "fast"
                red.remove(to_delete)
        if i in checkpoints:
            yield "copy", f"N{i}", "fast", "slow"
            blue.add(i)
    for i in range(100, -1, -1):
        if i not in red:
            for cp in reversed(checkpoints):
                if cp <= i and cp in blue:
                    yield "copy", f"N{cp}", "slow", "fast"
                    red.add(cp)
                    for j in range(cp + 1, i + 1):
                        yield "compute", f"c{j}"
                        red.add(j)
                    break
        if i < 100 and i + 1 not in red:
            yield "compute", f"c{i + 1}"
            red.add(i + 1)
        yield "compute", f"b{i}"


def test_note_001_breaks_its_own_limit_at_its_twelfth_move():
    moves = list(strategy_of_note_001())
    assert len(moves) == 381
    plan = Plan(chain(100), machine("red-blue"), moves, start={"N0": "fast"})
    judgement = check(plan)
    assert (judgement.legal, judgement.move) == (False, 12)
    assert judgement.error == "move 12: fast would hold 12 units; its capacity is 11"
    assert moves[11] == ("compute", "c11")


def test_note_001_is_wrong_even_without_a_limit():
    roomy = Machine("roomy", "pebble", (Level("fast", 0, 0, 200), Level("slow", 100, 100)))
    moves = list(strategy_of_note_001())
    # By its own count it spends 2,082, but below its lowest checkpoint it forgets to compute N9 again.
    assert sum({"compute": 1, "copy": 100, "drop": 0}[move[0]] for move in moves) == 2082
    judgement = check(Plan(chain(100), roomy, moves, start={"N0": "fast"}))
    assert judgement.error == "move 363: b9 reads N9 (version 0), which is in no level any more"


def test_a_chain_with_room_for_everything_costs_its_computes():
    roomy = Machine("roomy", "pebble", (Level("fast", 0, 0, 102), Level("slow", 100, 100)))
    assert check(Plan.in_order(chain(100), roomy, start={"N0": "fast"})).energy == 201


# What must add up -----------------------------------------------------------------------------------------------------------


def total(amounts) -> float:
    return sum(amounts.values())


@given(generators)
@settings(max_examples=400)
def test_every_breakdown_adds_up(rng):
    graph = random_graph(rng)
    if rng.random() < 0.5:
        plan = random_plan(rng, graph, random_machine(rng, graph, whole=rng.random() < 0.5))
        if plan is None:
            return
        moves = list(plan.moves)
        if rng.random() < 0.3:  # an illegal plan's books add up as well
            moves.insert(rng.randint(0, len(moves)), ("compute", rng.choice(graph.ops).name))
        plan = Plan(graph, plan.machine, moves, steady=False)
    else:
        management = rng.choice(["lru", "recency"])
        order = [graph.ops[op].name for op in random_order(rng, graph)]
        plan = Plan.in_order(graph, random_cache_machine(rng, management), order, steady=rng.random() < 0.5)
    result = check(plan)
    for amounts in (result.levels, result.tensors, result.moves):
        assert total(amounts) == pytest.approx(result.energy, rel=1e-12)
    assert total(result.ops) + result.moves["copy"] == pytest.approx(result.energy, rel=1e-12)
    assert result.step_energy.sum() == pytest.approx(result.energy, rel=1e-12)
    assert result.moves["drop"] == 0
    if result.legal:
        assert len(result.step_energy) == len(plan.moves)
    if plan.machine.management == "explicit":
        for level in plan.machine.level:
            assert result.peak[level.name] <= (level.capacity or np.inf) or result.error.startswith("start")


@given(generators)
@settings(max_examples=400)
def test_drops_are_free_and_keeping_everything_never_costs_more(rng):
    """Where operands are in the fastest level no read depends on a drop; elsewhere an extra copy can only be nearer."""
    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph, monotone=True), extra=12)
    if plan is None:
        return
    kept = [move for move in plan.moves if not isinstance(move, Drop)]
    before, after = check(plan), check(Plan(graph, plan.machine, kept, steady=False))
    if not after.legal:
        assert "would hold" in after.error  # what was not dropped takes room, and that is the only harm
    elif plan.machine.operands == "fastest":
        assert after.energy == before.energy
    else:
        assert after.energy <= before.energy


@given(generators)
@settings(max_examples=300)
def test_a_tighter_capacity_never_makes_an_illegal_plan_legal(rng):
    graph = random_graph(rng)
    roomy = random_machine(rng, graph)
    plan = random_plan(rng, graph, roomy)
    moves = list(plan.moves) if plan else [("compute", op.name) for op in graph.ops]
    if moves and rng.random() < 0.5:
        moves.pop(rng.randrange(len(moves)))
    levels = tuple(
        Level(one.name, one.read, one.write, None if one.capacity is None else rng.randint(1, one.capacity))
        for one in roomy.level
    )
    tight = Machine("tight", "pebble", levels, operands=roomy.operands)
    before, after = (check(Plan(graph, one, moves, steady=False)) for one in (roomy, tight))
    assert before.legal or not after.legal
    if after.legal:
        assert after.to_dict() == before.to_dict()
    elif before.move is not None:
        assert after.move is None or after.move <= before.move


@given(generators)
@settings(max_examples=200)
def test_a_legal_plan_stays_legal_and_as_dear_with_more_room(rng):
    graph = random_graph(rng)
    plan = random_plan(rng, graph, random_machine(rng, graph))
    if plan is None:
        return
    levels = tuple(
        Level(one.name, one.read, one.write, None if one.capacity is None else one.capacity + rng.randint(0, 5))
        for one in plan.machine.level
    )
    roomy = Machine("roomy", "pebble", levels, operands=plan.machine.operands)
    assert check(Plan(graph, roomy, plan.moves, steady=False)).energy == check(plan).energy


def test_large_energies_stay_numbers():
    graph = Graph("dear", unit="pebble")
    graph.tensor("x", 2**48, kind="input")
    graph.op("f", reads=["x"], cost=1e30)
    dear = Machine("dear", "pebble", (Level("fast", 0.1, 0, 2**56), Level("slow", 1e30, 1e30)), operands="any")
    result = check(Plan(graph, dear, [("compute", "f")]))
    assert result.energy == 2**48 * 1e30 + 1e30


@pytest.mark.parametrize(("price", "exact"), [(2**53 - 1, True), (2**53, False), (2**53 + 1, False), (1e30, False)])
def test_whole_prices_add_up_exactly_or_are_refused(price: float, exact: bool):
    graph = Graph("dear", unit="pebble").tensor("x", 1, kind="input").op("f", reads=["x"])
    plan = Plan(graph, Machine("dear", "pebble", (Level("slow", price, 1),), operands="any"), [("compute", "f")])
    if exact:
        assert check(plan).energy == price
    else:
        with pytest.raises(InputError, match="or more: sums of whole prices are exact below 2"):
            check(plan)


def test_an_empty_game_is_legal():
    assert check(Plan(Graph("nothing", unit="pebble"), two(), [])).legal


def test_ignore_war_lets_the_old_version_live_on():
    broken = Plan.in_order(mlp(n=3, hidden=4), machine("notes"), None)
    order = [op.name for op in broken.graph.ops]
    order.remove("upd_W2")
    order.insert(order.index("bwd_dh"), "upd_W2")
    plan = Plan.in_order(broken.graph, machine("notes-recency"), order)
    assert not check(plan).legal
    assert check(plan, ignore_war=True).legal


def test_check_takes_a_path(tmp_path):
    plan = Plan.in_order(note_mlp(), machine("notes"))
    plan.save(tmp_path / "plan.json")
    assert check(tmp_path / "plan.json").energy == check(str(tmp_path / "plan.json")).energy == check(plan).energy
