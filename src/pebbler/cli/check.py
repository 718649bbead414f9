"""`pebbler check`: the referee."""

from __future__ import annotations

from typing import Annotated

import typer

from pebbler.cli.options import Json, PlanFile

__all__ = ["check"]


def check(
    plan: PlanFile,
    execute: Annotated[
        bool, typer.Option("--execute", help="Also run the plan on numbers and compare with program order.")
    ] = False,
    ignore_war: Annotated[
        bool, typer.Option("--ignore-war", help="Let updates overwrite what is still to be read, as the notes did.")
    ] = False,
    json: Json = False,
) -> None:
    """Say whether a plan is legal, what it costs and where.

    Exit status 0: legal; 1: illegal, or its results differ from program order; 2: not a plan.

    Example: pebbler check plan.json --execute
    """
    from pebbler.cli.output import emit_json, energy, number, table, tell
    from pebbler.errors import InputError, quoted
    from pebbler.game.plan import Plan
    from pebbler.referee import judgement as referee
    from pebbler.run.numbers import verify

    loaded = Plan.load(plan)
    try:
        judgement = referee.check(loaded, ignore_war=ignore_war)
        comparison = verify(loaded) if execute and judgement.legal else None
    except InputError as error:
        raise InputError(f"{plan}: {error}") from None
    unit = loaded.energy_unit
    if (
        judgement.legal
        and loaded.energy is not None
        and abs(loaded.energy - judgement.energy) > 1e-9 * abs(judgement.energy)
    ):
        tell(f"note: the file says {energy(loaded.energy, unit)}; the referee finds {energy(judgement.energy, unit)}")
    same = comparison is None or comparison.largest_difference <= 1e-12
    if json:
        result = judgement.to_dict()
        if comparison is not None:
            result["execute"] = comparison
        emit_json(result)
    elif not judgement.legal:
        tell(f"illegal: {judgement.error}")
    else:
        steady = "steady" if loaded.steady else "one step"
        rows = [
            [quoted(level), energy(amount, unit), number(judgement.peak.get(level)) if judgement.peak else "-"]
            for level, amount in judgement.levels.items()
        ]
        title = f"legal: {energy(judgement.energy, unit)} in {len(loaded.moves):,} moves ({steady})"
        table(title, ["level", "energy", f"peak ({quoted(loaded.graph.unit)})"], rows)
        table("", ["moves", "energy"], [[kind, energy(amount, unit)] for kind, amount in judgement.moves.items()])
        dearest = sorted(judgement.tensors.items(), key=lambda item: -item[1])[:8]
        table("", ["dearest tensors", "energy"], [[quoted(name), energy(amount, unit)] for name, amount in dearest])
        if comparison is not None:
            what = "params and outputs" if comparison.numbers else "fingerprints"
            verdict = (
                "bit-identical to" if comparison.identical else f"{comparison.largest_difference:.2g} (relative) from"
            )
            tell(f"executed: {len(comparison.compared)} {what} {verdict} program order")
    raise typer.Exit(0 if judgement.legal and same else 1)
