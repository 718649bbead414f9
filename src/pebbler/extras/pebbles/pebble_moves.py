"""The moves of a plan of a pebble game, from its runs and what each of them loads."""

from __future__ import annotations

from pebbler.extras.pebbles.kernels.pebble_state import READS, WRITES
from pebbler.extras.pebbles.pebble_rules import PebbleRules
from pebbler.game.bit_sets import bit_set, members
from pebbler.game.moves import MoveList, Moves
from pebbler.solver.problem import Problem

__all__ = ["moves_of_runs"]


def moves_of_runs(problem: Problem, rules: PebbleRules, path: list[tuple[int, int]], at_end: int) -> Moves:
    """Return the moves of runs (an op, the set of values that it loads), with a set of values in the fast level at the end.

    A value that its next use does not load has stayed; one that is loaded, or must survive, was stored when it left. What is made
    where it is first read is not loaded there, whatever the path says.

    >>> from pebbler import machine, workloads
    >>> from pebbler.extras.pebbles.pebble_rules import pebble_rules
    >>> problem = Problem.of(workloads.chain(1), machine("red-blue"), start={"N0": "fast"})
    >>> rules = pebble_rules(problem)
    >>> list(moves_of_runs(problem, rules, [(0, 0), (1, 0), (2, 0)], 0))
    [Compute('c1'), Compute('b1'), Compute('b0'), Drop('N0', 'fast'), Drop('N1', 'fast')]
    """
    flow, table = problem.graph.dataflow, rules.game.ops
    # Backwards: which values stay in the fast level after each run, and which are in the slow one when they are next wanted.
    stay, below = at_end, rules.game.survive & ~at_end
    after = []
    first_read = _first_reads(rules, path)
    path = [(op, loads & ~made_at_read) for (op, loads), made_at_read in zip(path, first_read, strict=True)]
    for (op, loads), made_at_read in zip(reversed(path), reversed(first_read), strict=True):
        after.append((stay, below))
        reads, writes = int(table[op, READS]) & ~made_at_read, int(table[op, WRITES]) | made_at_read
        stay = (stay & ~writes) | reads & ~loads
        stay, below = stay & ~loads, (below & ~writes & ~reads) | loads
    after.append((stay, below))
    after.reverse()
    moves = MoveList()
    tensor = [int(flow.value_tensor[value]) for value in rules.values]
    slow = rules.slow

    def leave_fast(here: int, now: tuple[int, int]) -> None:
        nonlocal slow
        for i in members(here & ~now[0]):
            if now[1] >> i & 1 and not slow >> i & 1:
                moves.copy(tensor[i], 0, 1)
                slow |= 1 << i
            moves.drop(tensor[i], 0)

    for value in rules.weightless:
        moves.copy(int(flow.value_tensor[value]), 1, 0)
    leave_fast(rules.fast, after[0])

    def run(op: int, loads: int) -> None:
        inputs = [int(flow.value_tensor[value]) for value in rules.inputs[op]]
        for one in [*(tensor[i] for i in members(loads)), *inputs]:
            moves.copy(one, 1, 0)
        moves.compute(op, 0)
        for one in inputs:
            moves.drop(one, 0)

    for (op, loads), made_at_read, now in zip(path, first_read, after[1:], strict=True):
        for i in members(made_at_read):
            run(rules.sources[i], 0)
        run(rules.ops[op], loads)
        leave_fast(int(table[op, READS] | table[op, WRITES]), now)
    return moves.moves(problem.graph, problem.machine)


def _first_reads(rules: PebbleRules, path: list[tuple[int, int]]) -> list[int]:
    """Return, per run, the values that it reads first of all and that are made for it."""
    unread, found = bit_set(rules.sources), []
    for op, _ in path:
        found.append(unread & int(rules.game.ops[op, READS]))
        unread &= ~found[-1]
    return found
