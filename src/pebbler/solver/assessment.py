"""Verification of a plan from a file: the referee's energy, bounds that are proven again, and claims that are not verified.

A plan's energy, bound and status are words in a file, and moves may have been changed since they were written. The referee finds
the energy anew, and the verifier proves the bound from the plan's certificate. A claim without a certificate is neither confirmed
nor refuted, unless it is asked for: then methods that are quick enough run again. A claim that contradicts the referee is void.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pebbler.errors import PebblerError
from pebbler.files import int_if_whole
from pebbler.game.amounts import energy_text
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.plan import Covers, Plan, Status
from pebbler.game.sums import Sums
from pebbler.referee.certificates import other_version
from pebbler.referee.judgement import Judgement, check
from pebbler.referee.verify import NotProven, verify
from pebbler.solver.case import Case, has_forms
from pebbler.solver.methods import METHODS
from pebbler.solver.plan_forms import form_in, own_problem, source_problem
from pebbler.solver.problem import Search

__all__ = ["Assessment", "assess", "contradictions", "remember_proof", "with_meta"]

SECONDS = 60.0  # that a certificate may take to be verified

_proven: dict[int, weakref.ref[Plan]] = {}  # plans whose bound a search of this program has proven, by identity


def remember_proof(plan: Plan) -> None:
    """Remember that the bound of this plan object was proven in this process, so that a page need not prove it again."""
    key = id(plan)
    _proven[key] = weakref.ref(plan, lambda _: _proven.pop(key, None))


def with_meta(plan: Plan, more: Mapping[str, Any]) -> Plan:
    """Return the plan with more entries in its `meta`. A bound that was proven in this process stays proven.

    >>> from pebbler import solve_chain
    >>> with_meta(solve_chain(20, red=4), {"note": 1}).meta["note"]
    1
    """
    made = replace(plan, meta={**plan.meta, **more})
    if id(plan) in _proven:
        remember_proof(made)
    return made


@dataclass(frozen=True)
class Assessment:
    """The verified figures of a plan beside its own claims.

    `bound`, `proof` and `status` are proven here and now; of an illegal plan there are none. `verified` says that the certificate
    proves this bound. They are for what the plan's claims `covers`: every form of its source, or of its graph where it says so;
    the graph as it is where it says nothing. `best_as_it_is` is a proof that no plan of its graph as it is costs less, where
    other forms count as well. `unverified` names the claims (`bound`, `status`, `source`) that nothing here confirms or refutes,
    `void` says which ones are wrong and why. Where `source` is unverified, everything is about the plan's own graph.
    """

    plan: Plan
    judgement: Judgement
    bound: float | None
    proof: str
    status: Status | None
    unverified: tuple[str, ...]
    void: tuple[str, ...]
    covers: Covers = "graph"
    best_as_it_is: str = ""
    verified: bool = False

    @property
    def gap(self) -> float | None:
        """The largest distance of the energy from the optimum by the bound proven here, as a fraction; None without a bound."""
        if self.bound is None or self.bound <= 0:
            return None
        return max(0.0, self.judgement.energy / self.bound - 1)

    def to_dict(self) -> dict[str, Any]:
        """Return the proven and the claimed figures, as `pebbler check --json` prints them beside the judgement."""
        plan = self.plan
        claimed = {"energy": plan.energy, "bound": plan.bound, "status": plan.status, "proof": plan.proof or None}
        return {
            "bound": self.bound,
            "gap": self.gap,
            "status": self.status,
            "proof": self.proof or None,
            "verified": self.verified,
            "covers": self.covers,
            "best_as_it_is": self.best_as_it_is or None,
            "claimed": {name: value for name, value in claimed.items() if value is not None},
            "unverified": list(self.unverified),
            "void": list(self.void),
        }


def assess(plan: Plan, judgement: Judgement | None = None, *, seconds: float = 0.0) -> Assessment:
    """Return the facts that hold of a plan, whatever it claims; `judgement` saves asking the referee again.

    The plan's certificate is verified. Only with `seconds` are bounds searched for beyond that, for about so long.

    >>> from dataclasses import replace
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
    covers = _covered(plan)
    unit, scale = plan.energy_unit, EnergyScale.of(plan.graph, plan.machine)
    bound, proof, cheaper, alone, verified = 0.0, "", None, "", False
    if plan.bound is not None and id(plan) in _proven:
        bound, proof = plan.bound, plan.proof
    else:
        if plan.certificate is not None and (covers == "graph" or plan.certificate.get("covers") in ("forms", "sums")):
            try:
                bound, proof = _verified(plan, covers)
                verified = True
            except NotProven as error:
                other = other_version(plan.certificate)
                void.append(f"the certificate proves nothing: {error}" + (f" ({other})" if other else ""))
        claims = plan.bound is not None or plan.status is not None  # where nothing is claimed, nothing has to be proven
        if seconds and claims and (plan.bound is None or scale.is_less(bound, plan.bound)):
            found, words, cheaper, alone = _prove(plan, judgement.energy, covers, seconds)
            if found > bound:
                bound, proof, verified = found, words, False
    if cheaper is not None and plan.status == "optimal":
        void.append(f"the status optimal is wrong: a plan of {_told_apart(cheaper, judgement.energy, unit)} exists")
    if cheaper is not None and plan.bound is not None and scale.is_less(cheaper, plan.bound):
        void.append(f"the bound is wrong: a plan of {_told_apart(cheaper, plan.bound, unit)} exists")
    status = scale.status(bound, judgement.energy)
    proven = status == "optimal"
    unverified = []
    if plan.source is not None and form_in(plan.graph, plan.source) is None:
        unverified.append("source")
    if not void and plan.bound is not None and scale.is_less(bound, plan.bound) and not proven:
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
        covers,
        "" if proven else alone,
        verified,
    )


def _verified(plan: Plan, covers: Covers) -> tuple[float, str]:
    """Return the bound that the plan's certificate proves for what its claims cover, and in words how."""
    assert plan.certificate is not None
    formula = plan.certificate.get("formula")
    source = source_problem(plan) if plan.certificate.get("covers") in ("forms", "sums") else None
    sums = source is not None and Sums.of(source.graph) is not None
    if source is not None and sums and plan.certificate.get("covers") == "sums":
        words = "verified from its certificate, for any order of the terms of sums"
        return verify(source.task, plan.certificate, SECONDS), words
    if formula is not None and covers == "forms":  # whatever the certificate says that it covers
        raise NotProven("a formula is for the graph as it is, and the claims are for every tiling and fusion")
    if formula == "chain":
        return _table_bound(plan), "verified by filling the chain's tables again"
    if plan.source is not None and Sums.of(plan.source) is not None:
        raise NotProven("it knows nothing of sums whose terms come in another order")
    return verify((source or own_problem(plan)).task, plan.certificate, SECONDS), "verified from its certificate"


def _table_bound(plan: Plan) -> float:
    """Return the bound that the tables of a chain give when they are filled again."""
    from pebbler.solver.chain import solve_chain_problem

    search = Search(own_problem(plan), SECONDS)
    solve_chain_problem(search)
    if search.certificate is None:
        raise NotProven("its graph is no chain that tables are known for")
    return float(search.certificate["bound"])


def contradictions(plan: Plan, judgement: Judgement) -> Iterator[str]:
    """Yield claims of a plan that cannot be true."""
    unit, energy, scale = plan.energy_unit, judgement.energy, EnergyScale.of(plan.graph, plan.machine)
    if not judgement.legal:
        if plan.energy is not None or plan.status is not None:
            yield "the plan is illegal: it has no energy and no status"
        return
    if plan.energy is not None and scale.differ(plan.energy, energy):
        said = _told_apart(plan.energy, energy, unit)
        yield f"the {plan.cost_word} of {said} is not what the referee finds, {_told_apart(energy, plan.energy, unit)}"
    if plan.bound is not None and scale.is_less(energy, plan.bound):
        said, found = _told_apart(plan.bound, energy, unit), _told_apart(energy, plan.bound, unit)
        yield f"the bound of {said} is above the {plan.cost_word} of this very plan, {found}"
    elif plan.status == "optimal" and plan.bound is not None and scale.is_less(plan.bound, energy):
        said, found = _told_apart(plan.bound, energy, unit), _told_apart(energy, plan.bound, unit)
        yield f"the status optimal needs a bound of {found}; the plan claims {said}"


def _told_apart(energy: float, other: float, unit: str) -> str:
    """Return an energy as text with enough digits to differ from another energy.

    >>> _told_apart(12_800_000_020, 12_800_000_025, "pJ"), _told_apart(5, 12_800_000_025, "pJ")
    ('12,800,000,020 pJ', '5 pJ')
    """
    text = energy_text(energy, unit)
    return text if text != energy_text(other, unit) else f"{int_if_whole(energy):,} {unit}"


def _covered(plan: Plan) -> Covers:
    """Return the scope of the plan's claims: every form if it has a source or says so, and the graph has other forms."""
    if source_problem(plan) is not None:
        return "forms"
    asked = plan.covers == "forms" and plan.source is None
    return "forms" if asked and has_forms(own_problem(plan)) else "graph"


def _prove(plan: Plan, energy: float, covers: Covers, seconds: float) -> tuple[float, str, float | None, str]:
    """Return the best bound that quick methods prove, its proof, the energy of a cheaper plan if one turned up, and a proof that
    the plan is the best of its graph as it is, where the bound is for every form.
    """
    whole = Search(own_problem(plan), seconds)  # what is proven for the graph as it is
    whole.as_it_is = True
    forms = whole.part(seconds, problem=source_problem(plan) or own_problem(plan))  # what is proven for every form
    for search in (whole, forms):
        search.offer_plan(plan)
    asked = forms if covers == "forms" else whole
    for method in METHODS:
        if method.again is None or (method.forms == "plans" and asked is whole):
            continue
        search = forms if method.forms else whole
        try:
            method.again(search, Case(search.problem, whole=search is whole), lambda search=search: search.remaining)  # type: ignore[misc]
        except PebblerError:
            continue  # a method that cannot take this graph proves nothing about it
        whole.raise_bound(forms.bound, forms.proof)
        if whole.refuted or forms.refuted:  # a fault of ours, and the search has said so: nothing is proven
            return 0.0, "", None, ""
        claimed = asked.energy if plan.bound is None or plan.status == "optimal" else plan.bound
        if asked.done or not asked.scale.is_less(asked.bound, claimed) or asked.remaining == 0:
            break
    least = min(whole.energy, forms.energy)
    alone = whole.proof if whole.done and whole.energy >= energy else ""
    return (
        asked.bound,
        asked.proof if asked.bound > 0 else "",
        least if asked.scale.is_less(least, energy) else None,
        alone if covers == "forms" else "",
    )
