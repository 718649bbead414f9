"""`pebbler check`: the referee's judgement of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import Json, PlanFile

if TYPE_CHECKING:
    from pebbler.game.plan import Plan
    from pebbler.referee.judgement import Judgement
    from pebbler.run.numbers import Comparison
    from pebbler.solver.assessment import Assessment

__all__ = ["check"]


def check(
    plan: PlanFile,
    execute: Annotated[
        bool, typer.Option("--execute", help="Also run the plan on numbers and compare with program order.")
    ] = False,
    ignore_war: Annotated[
        bool,
        typer.Option("--ignore-war", help="Let updates overwrite values that are still to be read, as the notes did."),
    ] = False,
    size: Annotated[
        str | None,
        typer.Option(help="For a program (.ir): the product's sizes m,n,k, if they are ambiguous.", show_default=False),
    ] = None,
    search: Annotated[
        float,
        typer.Option(
            help="Seconds to prove claims again by searching, where the file has no certificate.",
            show_default=False,
            min=0.0,
        ),
    ] = 0.0,
    json: Json = False,
) -> None:
    """Judge a plan: whether it is legal, its energy by level, and which of its claims hold.

    A file that ends in .ir is a program on numbered cells: it is run on random matrices, and priced if it computes their product.

    Nothing in the file is trusted: the referee finds the energy, and a bound is verified from its certificate, without searching.

    Exit status 0: legal; 1: illegal, or its results differ from program order; 2: not a plan.

    Example: pebbler check plan.json --execute
    """
    from pebbler.cli.output import emit_json, tell
    from pebbler.errors import InputError
    from pebbler.game.plan import Plan
    from pebbler.referee import judgement as referee
    from pebbler.run.numbers import verify
    from pebbler.solver.assessment import assess

    if plan.suffix.lower() == ".ir":
        from pebbler.cli.program import check_program

        check_program(plan, size, json)
        return
    if size is not None:
        raise InputError("--size is for programs: files that end in .ir")
    loaded = Plan.load("/dev/stdin" if str(plan) == "-" else plan)
    try:
        judgement = referee.check(loaded, ignore_war=ignore_war)
        comparison = verify(loaded) if execute and judgement.legal else None
        # Bounds are for legal plans: one that breaks a rule, allowed or not, may well be below them.
        assessment = None if ignore_war else assess(loaded, judgement, seconds=search)
    except InputError as error:
        raise InputError(f"{plan}: {error}") from None
    same = comparison is None or comparison.largest_difference <= 1e-12
    for wrong in () if assessment is None else assessment.void:
        tell(f"void: {wrong}")
    if json:
        result = judgement.to_dict() | ({} if assessment is None else assessment.to_dict())
        if comparison is not None:
            result["execute"] = comparison
        emit_json(result)
    elif not judgement.legal:
        tell(f"illegal: {judgement.error}")
    else:
        _print_costs(loaded, judgement)
        if assessment is not None:
            _print_claims(assessment)
        if comparison is not None:
            _print_comparison(comparison)
    raise typer.Exit(0 if judgement.legal and same else 1)


def _print_costs(plan: Plan, judgement: Judgement) -> None:
    from pebbler.cli.output import energy, number, table
    from pebbler.errors import quoted
    from pebbler.game.tile_meta import origin

    unit, word = plan.energy_unit, plan.cost_word
    steady = "steady" if plan.steady else "one step"
    rows = [
        [quoted(level), energy(amount, unit), number(judgement.peak.get(level)) if judgement.peak else "-"]
        for level, amount in judgement.levels.items()
        if amount or judgement.peak.get(level)  # others are not used
    ]
    title = f"legal: {energy(judgement.energy, unit)} in {len(plan.moves):,} moves ({steady})"
    table(title, ["level", word, f"peak ({quoted(plan.graph.unit)})"], rows)
    table("", ["moves", word], [[kind, energy(amount, unit)] for kind, amount in judgement.moves.items()])
    whole: dict[str, float] = {}  # tiles together
    for tensor, amount in zip(plan.graph.tensors, judgement.tensors.values(), strict=True):
        whole[origin(tensor)] = whole.get(origin(tensor), 0) + amount
    most = sorted(whole.items(), key=lambda item: -item[1])[:8]
    table("", ["most expensive tensors", word], [[quoted(name), energy(amount, unit)] for name, amount in most])


def _print_claims(assessment: Assessment) -> None:
    """Print what is proven, and what the file says beyond that."""
    from pebbler.cli.output import energy, say
    from pebbler.errors import quoted
    from pebbler.game.plan import SCOPES

    plan, unit = assessment.plan, assessment.plan.energy_unit
    scope, proof = SCOPES[assessment.covers], assessment.proof
    if assessment.status == "optimal":
        say(f"proven optimal for {scope}" + (f": {proof}" if proof else ""))
    elif assessment.bound is not None and assessment.gap is not None:
        bound = energy(assessment.bound, unit)
        say(f"proven for {scope}: at most {100 * assessment.gap:.1f} % above the bound of {bound} ({proof})")
    if assessment.best_as_it_is:
        say(f"proven optimal for the graph as it is: {assessment.best_as_it_is}")
    if "source" in assessment.unverified:
        name = quoted(plan.source.name) if plan.source is not None else ""
        say(
            f"claimed by the file, not verified: that its graph is a form of {name}; all of this is about the graph itself"
        )
    if "bound" in assessment.unverified:
        words = f" ({plan.proof})" if plan.proof else ""
        say(f"claimed by the file, not verified: a bound of {energy(plan.bound, unit)}{words}")
    if "status" in assessment.unverified:
        say("claimed by the file, not verified: that it is optimal")


def _print_comparison(comparison: Comparison) -> None:
    from pebbler.cli.output import say

    what = "params and outputs" if comparison.numbers else "fingerprints"
    verdict = "bit-identical to" if comparison.identical else f"{comparison.largest_difference:.2g} (relative) from"
    say(f"executed: {len(comparison.compared)} {what} {verdict} program order")
