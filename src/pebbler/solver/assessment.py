"""What can be said of a plan without believing it: the referee's energy, bounds proven again, and what is only claimed.

A plan's energy, bound and status are words in a file, and moves may have been changed since they were written. The referee
finds the energy anew. Bounds come from methods that are quick enough to run again; a claim that none of them reaches is neither
confirmed nor refuted, and one that contradicts the referee is void.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pebbler.errors import PebblerError
from pebbler.files import int_if_whole
from pebbler.game.amounts import energy_text
from pebbler.game.plan import Plan, Status
from pebbler.game.tile_meta import origin
from pebbler.referee.judgement import Judgement, check
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.transform_space import form_of

__all__ = ["Assessment", "assess", "contradictions", "remember_proof"]

SECONDS = 10.0  # after which no further method is begun
_STATES = 400_000  # of a small game, about a second
_MOST_OPS = 600  # for methods whose work grows with the square of the graph
_MOST_CHAIN_OPS = 5_000
_CLOSE = 1e-9  # sums of prices may be added up in another order


_proven: dict[int, weakref.ref[Plan]] = {}  # plans whose bound a search of this program has proven, by identity


def remember_proof(plan: Plan) -> None:
    """Remember that the bound of this very plan was proven here, so that a page about it need not prove it again."""
    key = id(plan)
    _proven[key] = weakref.ref(plan, lambda _: _proven.pop(key, None))


@dataclass(frozen=True)
class Assessment:
    """A plan as the referee and the bounds see it, beside what it says of itself.

    `bound`, `proof` and `status` are proven here and now; of an illegal plan there are none. `unverified` names the claims
    (`bound`, `status`) that nothing here confirms or refutes, `void` says which ones are wrong and why.
    """

    plan: Plan
    judgement: Judgement
    bound: float | None
    proof: str
    status: Status | None
    unverified: tuple[str, ...]
    void: tuple[str, ...]

    @property
    def gap(self) -> float | None:
        """How far the energy may be above the optimum by the bound proven here, as a fraction; None without one."""
        if self.bound is None or self.bound <= 0:
            return None
        return max(0.0, self.judgement.energy / self.bound - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return what is proven and what is claimed, as `pebbler check --json` prints it beside the judgement."""
        plan = self.plan
        claimed = {"energy": plan.energy, "bound": plan.bound, "status": plan.status, "proof": plan.proof or None}
        return {
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "proof": self.proof or None,
            "claimed": {name: value for name, value in claimed.items() if value is not None},
            "unverified": list(self.unverified),
            "void": list(self.void),
        }


def assess(plan: Plan, judgement: Judgement | None = None) -> Assessment:
    """Return what holds of a plan, whatever it says of itself; `judgement` saves asking the referee again.

    >>> from pebbler import solve_chain
    >>> plan = solve_chain(20, red=4)
    >>> assess(plan).status
    'optimal'
    >>> boast = replace(plan, bound=1000)
    >>> assess(boast).void
    ('the bound of 1,000 units is above the energy of this very plan, 95 units',)
    """
    judgement = judgement or check(plan)
    void = list(contradictions(plan, judgement))
    if not judgement.legal:
        return Assessment(plan, judgement, None, "", None, (), tuple(void))
    bound, proof, cheaper = 0.0, "", None
    if plan.bound is not None and id(plan) in _proven:
        bound, proof = plan.bound, plan.proof
    elif plan.bound is not None or plan.status is not None:  # where nothing is claimed, nothing has to be proven
        bound, proof, cheaper = _prove(plan, judgement.energy)
    unit = plan.energy_unit
    if cheaper is not None and plan.status == "optimal":
        void.append(f"the status optimal is wrong: a plan of {energy_text(cheaper, unit)} exists")
    if cheaper is not None and plan.bound is not None and plan.bound > cheaper * (1 + _CLOSE):
        void.append(f"the bound is wrong: a plan of {energy_text(cheaper, unit)} exists")
    proven = judgement.energy <= bound * (1 + _CLOSE) or judgement.energy == 0
    status: Status = "optimal" if proven else "bounded" if bound > 0 else "heuristic"
    unverified = []
    if not void and plan.bound is not None and plan.bound > bound * (1 + _CLOSE) and not proven:
        unverified.append("bound")
    if not void and plan.status == "optimal" and not proven:
        unverified.append("status")
    shown = judgement.energy if proven else bound
    return Assessment(
        plan,
        judgement,
        int_if_whole(shown) if proven or bound > 0 else None,
        proof,
        status,
        tuple(unverified),
        tuple(void),
    )


def contradictions(plan: Plan, judgement: Judgement) -> Iterator[str]:
    """Yield what a plan says of itself that cannot be so."""
    unit, energy = plan.energy_unit, judgement.energy
    found = energy_text(energy, unit)
    if not judgement.legal:
        if plan.energy is not None or plan.status is not None:
            yield "the plan is illegal: it has no energy and no status"
        return
    if plan.energy is not None and abs(plan.energy - energy) > _CLOSE * abs(energy):
        yield f"the {plan.cost_word} of {energy_text(plan.energy, unit)} is not what the referee finds, {found}"
    if plan.bound is not None and plan.bound > energy * (1 + _CLOSE):
        yield f"the bound of {energy_text(plan.bound, unit)} is above the {plan.cost_word} of this very plan, {found}"
    elif plan.status == "optimal" and plan.bound is not None and plan.bound < energy * (1 - _CLOSE):
        yield f"the status optimal needs a bound of {found}; the plan claims {energy_text(plan.bound, unit)}"


def _prove(plan: Plan, energy: float) -> tuple[float, str, float | None]:
    """Return the best bound that quick methods prove, its proof, and the energy of a cheaper plan if one turned up."""
    problem = Problem.of(plan.graph, plan.machine, steady=plan.steady, start=plan.start)
    search = Search(problem, SECONDS)
    search.offer_plan(plan)
    for method in (_solve_as_chain, _bound_tilings, _bound_orders, _bound_explicit, _search_states):
        try:
            method(search, plan)
        except PebblerError:
            continue  # a method that cannot take this graph proves nothing about it
        if search.refuted:  # a fault of ours, and the search has said so: nothing is proven
            return 0.0, "", None
        claimed = search.energy if plan.bound is None or plan.status == "optimal" else plan.bound
        if search.done or search.bound >= claimed * (1 - _CLOSE) or search.remaining == 0:
            break
    cheaper = search.energy if search.energy < energy * (1 - _CLOSE) else None
    return search.bound, search.proof if search.bound > 0 else "", cheaper


def _bound_tilings(search: Search, plan: Plan) -> None:
    """Bound every tiling of the source, if the plan's graph is one of them, else of the plan's own graph."""
    from pebbler.solver.tiling.tiling_bound import tiled_bound

    problem = search.problem
    if plan.source is not None and form_of(plan.graph, plan.source):
        problem = replace(problem, graph=plan.source, start=_start_of_source(plan))
    if len(problem.graph.ops) <= _MOST_OPS and problem.plain:
        found = tiled_bound(problem, seconds_left=lambda: search.remaining - 0.5 * SECONDS)
        search.raise_bound(found.energy, found.proof)


def _start_of_source(plan: Plan) -> dict[str, Any]:
    """Return where the source's tensors start: where all their tiles do; those that are apart start where they would by default."""
    levels: dict[str, list[Any]] = {}
    for tensor in plan.graph.tensors:
        levels.setdefault(origin(tensor), []).append(plan.start.get(tensor.name))
    alike = {name: found[0] for name, found in levels.items() if all(one == found[0] for one in found)}
    return {name: where for name, where in alike.items() if where is not None}


def _bound_orders(search: Search, plan: Plan) -> None:
    """Bound all orders of the graph on a cache; search them where they are few."""
    from pebbler.solver.tiling import solve_orders

    if plan.machine.management != "explicit" and len(plan.graph.ops) <= _MOST_OPS:
        solve_orders(search)


def _bound_explicit(search: Search, plan: Plan) -> None:
    """Bound the traffic of an explicit machine."""
    from pebbler.solver.bounds.many_moments import bounds_in_stages

    if plan.machine.management == "explicit" and len(plan.graph.ops) <= _MOST_OPS:
        for stage in bounds_in_stages(search.problem, lambda: search.remaining):
            for found in stage:
                search.raise_bound(found.value, found.proof)
            if search.done:
                return


def _solve_as_chain(search: Search, plan: Plan) -> None:
    """Solve a chain again."""
    from pebbler.solver.chain import solve_chain_problem

    if len(plan.graph.ops) <= _MOST_CHAIN_OPS:
        solve_chain_problem(search)


def _search_states(search: Search, plan: Plan) -> None:
    """Search all states of a small game again."""
    from pebbler.solver.exact import solve_exact

    if plan.status == "optimal" or plan.bound is not None:
        solve_exact(search, _STATES)
