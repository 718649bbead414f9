"""Small explicit games solved exactly: A* over all game states, with proof.

Copies and drops are postponed until something needs them (`docs/exact.md` shows that no plan costs more for it), so only few of
the states of the game have to be looked at. Graphs of about a dozen ops are within reach.
"""

from __future__ import annotations

import numpy as np

from pebbler.game.bit_sets import bit_set, members
from pebbler.game.dataflow import NONE
from pebbler.game.moves import MoveList, Moves
from pebbler.solver.capacity import require_capacity
from pebbler.solver.exact.kernels import astar as kernel
from pebbler.solver.exact.kernels.astar_estimate import DESTROYS, PLACING, WRITES, ExactGame
from pebbler.solver.exact.kernels.astar_moves import COMPUTE, COPY, MOVE
from pebbler.solver.kernels.open_list import OpenList, least_open
from pebbler.solver.problem import Impossible, Problem, Search, Start

__all__ = ["fits_exact", "solve_exact"]

PROOF = "searched every game state"
_UNBOUNDED = 1 << 60
_SLICE = 20_000  # states between two looks at the clock


def fits_exact(problem: Problem) -> bool:
    """Return whether `solve_exact` can represent the game (it may still be too large to finish).

    >>> from pebbler import machine, workloads
    >>> fits_exact(Problem.of(workloads.note_mlp(), machine("notes-explicit")))
    True
    """
    flow, levels = problem.graph.dataflow, len(problem.machine.level)
    params = len(problem.looped_params)
    explicit = problem.machine.management == "explicit"
    return explicit and not problem.free_starts and flow.ops <= 30 and flow.values <= 62 and params * levels <= 62


def solve_exact(search: Search, max_states: int = 3_000_000) -> None:
    """Offer the cheapest plan and prove it, or raise the bound as far as time and `max_states` allow.

    Raises `Impossible` when no legal plan exists. Does nothing when the game does not fit (see `fits_exact`).

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.chain(6), machine("red-blue"), start={"N0": "fast"}))
    >>> solve_exact(search)
    >>> search.energy, search.bound, search.proof
    (13, 13, 'searched every game state, 14 states')
    """
    problem = search.problem
    if not fits_exact(problem):
        return
    require_capacity(problem)
    game = _encode(problem)
    pool = _pool(game, max(64, min(1 << 14, max_states)))
    first = _first_row(problem, game)
    while True:
        status = kernel.search(game, pool, first, _SLICE, _cutoff(search))
        if status == kernel.FOUND:
            break
        if status == kernel.EXHAUSTED:
            _conclude(search, pool)
            return
        full = status in (kernel.FULL, kernel.TOO_WIDE)
        if search.remaining <= 0 or (full and len(pool.spent) >= max_states):
            _give_up(search, pool)
            return
        if full:
            pool = _grow(game, pool, max_states)
    node = int(pool.counters[1])
    spent = float(pool.spent[node])
    moves, start = _retrace(problem, game, pool, node)
    search.offer(moves, start)
    if problem.scale.differ(spent, search.energy):
        raise AssertionError(f"the exact search counted {spent}, the referee {search.energy}")
    search.raise_bound(search.energy, f"{PROOF}, {int(pool.counters[0]):,} states")


def _cutoff(search: Search) -> float:
    """Only plans cheaper than the best so far are wanted."""
    return search.problem.scale.cutoff(search.energy)


def _conclude(search: Search, pool: kernel.Pool) -> None:
    if search.best is None:
        level = search.problem.machine.level[0]
        room = "" if level.capacity is None else f"; {level.name} holds {level.capacity:,} units"
        raise Impossible(f"no legal plan exists: every order, copy and recomputation was tried{room}")
    search.raise_bound(search.energy, f"{PROOF}, {int(pool.counters[0]):,} states")


def _give_up(search: Search, pool: kernel.Pool) -> None:
    search.cut_off = True
    least = search.problem.scale.lowered(least_open(pool.open, search.energy))
    search.raise_bound(min(least, search.energy), "smallest estimate among the game states still open")


# The problem as bit masks -------------------------------------------------------------------------------------------------


def _encode(problem: Problem) -> ExactGame:
    flow, machine = problem.graph.dataflow, problem.machine
    readers = [bit_set(row) for row in flow.value_readers]
    before, stale = [], []
    for op in range(flow.ops):
        wait = 0
        for value in flow.op_destroys.row(op).tolist():
            maker = int(flow.value_maker[value])
            wait |= readers[value] | (1 << maker if maker != NONE else 0)
        before.append(wait & ~(1 << op))
        stale.append(bit_set(d for d in flow.value_destroyer[flow.op_writes.row(op)].tolist() if d != NONE))
    reads, writes, destroys = (
        [bit_set(row) for row in rows] for rows in (flow.op_reads, flow.op_writes, flow.op_destroys)
    )
    read_price = [level.read for level in machine.level]
    params = problem.looped_params
    first, final = flow.start_value[params], flow.final_value[params]
    capacity = [_UNBOUNDED if level.capacity is None else level.capacity for level in machine.level]
    return ExactGame(
        size=flow.value_size.astype(np.int64),
        by_size=np.argsort(-flow.value_size, kind="stable").astype(np.int64),
        maker=flow.value_maker.astype(np.int64),
        survive=bit_set(np.flatnonzero(flow.value_must_survive)),
        cost=flow.op_cost.astype(np.float64),
        ops=np.array([reads, writes, destroys, before, stale, flow.op_can_rerun], np.int64).T.copy(),
        read_start=flow.op_reads.start.astype(np.int64),
        read_items=flow.op_reads.items.astype(np.int64),
        capacity=np.array(capacity, np.int64),
        read_price=np.array(read_price, np.float64),
        write_price=np.array([level.write for level in machine.level], np.float64),
        fastest=machine.operands == "fastest",
        over=machine.results == "over",
        lazy=read_price == sorted(read_price) and bool((flow.value_size[first] == flow.value_size[final]).all()),
        steady=problem.steady,
        params=np.array([first, final], np.int64),
    )


def _pool(game: ExactGame, nodes: int) -> kernel.Pool:
    table = 1 << (2 * nodes - 1).bit_length()
    return kernel.Pool(
        rows=np.empty((nodes, 2 + len(game.capacity)), np.int64),
        spent=np.empty(nodes, np.float64),
        links=np.empty((nodes, 3), np.int64),
        table=np.full(table, -1, np.int32),
        open=OpenList.room(2 * nodes),
        counters=np.zeros(kernel.COUNTERS, np.int64),
        moves=np.empty(max(1 << 12, nodes >> 4), np.int64),
        sets=np.empty(max(1 << 12, nodes >> 4), np.int64),
    )


def _grow(game: ExactGame, pool: kernel.Pool, max_states: int) -> kernel.Pool:
    """Return the same pool with room for more nodes."""
    grown = _pool(game, min(4 * len(pool.spent), max(max_states, 64)))
    nodes = int(pool.counters[0])
    for field in ("rows", "spent", "links"):
        getattr(grown, field)[:nodes] = getattr(pool, field)[:nodes]
    pool.open.copy_to(grown.open)
    grown.counters[:2] = pool.counters[:2]
    kernel.rehash(grown)
    return grown


def _first_row(problem: Problem, game: ExactGame) -> np.ndarray:
    """Return the state before the first move; the params of a steady step are placed by the search."""
    flow = problem.graph.dataflow
    row = np.zeros(2 + len(game.capacity), np.int64)
    placing = set(game.params[0].tolist())
    for tensor, levels in problem.start_choices().items():
        value = int(flow.start_value[tensor])
        if value not in placing:
            for level in levels or ():
                row[2 + level] |= 1 << value
    if placing:
        row[0] = PLACING << 32
    return row


# The way back -------------------------------------------------------------------------------------------------------------


def _retrace(problem: Problem, game: ExactGame, pool: kernel.Pool, goal: int) -> tuple[Moves, Start]:
    """Return the moves that lead to a node, and the start they belong to."""
    path = []
    node = goal
    while node >= 0:
        path.append(node)
        node = int(pool.links[node, 0])
    path.reverse()
    flow, names = problem.graph.dataflow, problem.machine.names
    tensor = flow.value_tensor.tolist()
    moves = MoveList()

    def drop(values: int, level: int) -> None:
        for value in members(values):
            moves.drop(tensor[value], level)

    held: list[int] = _first_row(problem, game)[2:].tolist()
    placed = int(pool.rows[goal, 1])
    for p, first in enumerate(game.params[0].tolist()):
        for level in range(len(names)):
            held[level] |= (placed >> (p * len(names) + level) & 1) << first
    for node in path:
        code, after = int(pool.links[node, 1]), pool.rows[node].tolist()
        kind, what, source, target = code & 7, code >> 3 & 255, code >> 11 & 63, code >> 17 & 63
        if after[0] >> 32 == PLACING:
            continue
        dropped = int(pool.links[node, 2])
        if not (game.over and kind == COMPUTE):
            drop(dropped, target)
            held[target] &= ~dropped
        if kind == COMPUTE:
            moves.compute(what, target)
            held = [values & ~int(game.ops[what, DESTROYS]) for values in held]
            held[target] |= int(game.ops[what, WRITES])
        elif kind in (COPY, MOVE):
            moves.copy(tensor[what], source, target)
            held[target] |= 1 << what
        # The source of a move, and what nothing can need any more (some of it from the start).
        for level, values in enumerate(held):
            drop(values & ~after[2 + level], level)
        held = after[2:]
    start: dict[str, str | list[str]] = {}
    end = pool.rows[goal].tolist()
    for p, (first, last) in enumerate(zip(*game.params.tolist(), strict=True)):
        levels = [level for level in range(len(names)) if end[1] >> (p * len(names) + level) & 1]
        start[flow.tensor_names[tensor[first]]] = (
            names[levels[0]] if len(levels) == 1 else [names[level] for level in levels]
        )
        for level in range(len(names)):
            if end[2 + level] >> last & 1 and level not in levels:
                moves.drop(tensor[last], level)
    return moves.moves(problem.graph, problem.machine), start if problem.steady else problem.start
