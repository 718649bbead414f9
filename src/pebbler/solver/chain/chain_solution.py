"""The solution of a chain: its energy, bound and proof, and its moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pebbler.errors import InputError
from pebbler.files import int_if_whole
from pebbler.game.plan import Plan, Status
from pebbler.solver.chain.chain_model import Chain, chain_graph, chain_machine, chain_parts
from pebbler.solver.chain.chain_moves import ChainMove, Recorded, Splits, plan_moves, stream

__all__ = ["SEARCHED", "ChainSolution", "chain_plan"]

SEARCHED = "search of every position"


@dataclass(frozen=True)
class ChainSolution:
    """A schedule of a chain. `count` is the number of moves, -1 where they are too many to be counted.

    `peak_red` is the most fast memory in use, in units (checkpoints only, in the adjoint convention).
    """

    chain: Chain
    energy: float
    bound: float
    status: Status
    proof: str
    computes: int
    loads: int
    stores: int
    peak_red: int
    count: int
    splits: Splits | Recorded = field(repr=False)

    @property
    def gap(self) -> float:
        """The largest distance of the energy from the optimum, as a fraction of the bound."""
        return 0.0 if self.energy <= self.bound else self.energy / self.bound - 1 if self.bound else float("inf")

    def moves(self) -> Iterator[ChainMove]:
        """Yield the moves, one at a time: ("compute", 5), ("store", 5), ("load", 5), ("drop", 5), ("backward", 5).

        >>> from pebbler.solver.chain import solve_uniform
        >>> list(solve_uniform(1, red=2).moves())
        [('compute', 1), ('backward', 1), ('backward', 0), ('drop', 1)]
        """
        return stream(self.chain, self.splits)

    def plan(self) -> Plan:
        """Return the schedule as a plan that the referee can check.

        An adjoint schedule gets a machine with room for its checkpoints and for the two states of a running sweep; in the
        referee's game that room could be used better, so such a plan claims no more than a bound.

        >>> from pebbler import check
        >>> from pebbler.solver.chain import solve_uniform
        >>> judgement = check(solve_uniform(100, red=11).plan())
        >>> judgement.legal, judgement.energy, judgement.peak["fast"]
        (True, 336, 11)
        """
        chain = self.chain
        capacity, bound, status, proof = chain.fast, self.bound, self.status, self.proof
        if chain.adjoint:
            most = max(a + b for a, b in zip(chain.sizes, (*chain.sizes[1:-1], 0), strict=False))
            capacity += most
            bound = sum(chain.forward[1 : chain.length]) + chain.backward_total
            status = chain.scale.status(bound, self.energy)
            proof = "every op runs once"
        plan = chain_plan(chain, self.moves(), capacity)
        return replace(
            plan,
            energy=int_if_whole(self.energy),
            bound=int_if_whole(bound),
            status=status,
            proof=proof,
            covers="graph",
            certificate=None if chain.adjoint else self.certificate,
        )

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The proof of the bound, for `pebbler.solver.assessment`, which fills the tables again; None if it was searched for."""
        if self.proof == SEARCHED:
            return None
        return {"bound": int_if_whole(self.bound), "covers": "graph", "formula": "chain"}


def chain_plan(chain: Chain, moves: Iterable[ChainMove], capacity: int | None = None) -> Plan:
    """Return moves of a chain as a plan that the referee can check, legal or not; a store needs a slow memory.

    >>> [*chain_plan(Chain.uniform(1, red=2), [("compute", 1), ("drop", 1)]).moves]
    [Compute('c1'), Drop('N1', 'fast')]
    """
    played = list(_with_room_for_sweeps(moves) if chain.adjoint else moves)
    graph, machine = chain_graph(chain), chain_machine(chain, chain.fast if capacity is None else capacity)
    slow = len(machine.level) - 1
    for i, (kind, _) in enumerate(played if slow == 0 else ()):
        if kind in ("store", "load"):
            known = ", ".join(machine.names)
            raise InputError(f"moves[{i}]: machine {machine.name} has no level slow (known: {known})")
    start = {"fast": "fast", "slow": "slow", "both": ["fast", "slow"]}[chain.start]
    return Plan(
        graph, machine, plan_moves(chain_parts(chain), played, slow).moves(graph, machine), {"N0": start}, False
    )


def _with_room_for_sweeps(moves: Iterable[ChainMove]) -> Iterator[ChainMove]:
    """Play the running state as one more pebble: it is put down by each step and taken up when the next one leaves it."""
    running, kept = 0, set[int]()
    for kind, node in moves:
        if kind == "snap":
            kept.add(node)
        elif kind == "drop":
            kept.discard(node)
            if node != running:
                yield "drop", node
        elif kind == "restore" or kind == "load" or kind == "compute":
            if kind == "load" and running not in kept:
                yield "drop", running
            if kind != "restore":
                yield kind, node
            if kind != "load" and running != node and running not in kept:
                yield "drop", running
            running = node
        else:
            yield kind, node
