"""`pebbler machines`: the list of built-in machines."""

from __future__ import annotations

from typing import Annotated

import typer

from pebbler.cli.options import Json, complete_machine

__all__ = ["machines"]


def machines(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this machine's file.", show_default=False, autocompletion=complete_machine),
    ] = None,
    json: Json = False,
) -> None:
    """List the built-in machines, or show one as TOML: a start for your own.

    Example: pebbler machines notes > mine.toml
    """
    from pebbler.cli.output import emit_json, table
    from pebbler.errors import quoted
    from pebbler.game.machine import builtin_machines, machine, machine_text

    if name is not None:
        # A file of one's own shows as well, so that it can be checked.
        if name in builtin_machines() and not json:
            typer.echo(machine_text(name), nl=False)
            return
        shown = machine(name)
        if json:
            emit_json(shown)
        else:
            rows = [[quoted(level.name), level.capacity, level.read, level.write] for level in shown.level]
            title = f"{quoted(shown.name)}: {shown.management}, operands {shown.operands}, per {quoted(shown.unit)}"
            table(
                title,
                ["level", "capacity", "read", "write"],
                [[*row[:1], row[1] or "unbounded", *row[2:]] for row in rows],
            )
        return
    known = [machine(one) for one in builtin_machines()]
    if json:
        emit_json({"machines": {one.name: one for one in known}})
    else:
        table(
            "",
            ["machine", "unit", "management", "what it is"],
            [[m.name, m.unit, m.management, m.about] for m in known],
        )
