"""Options that several commands share, and dataclasses as groups of options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = [
    "GraphName",
    "Json",
    "PlainCommand",
    "PlainGroup",
    "PlanFile",
    "PlanOutput",
    "complete_experiment",
    "complete_machine",
    "complete_workload",
    "grouped",
]


def complete_machine(incomplete: str) -> list[str]:
    """Return the built-in machines that begin so, for the shell."""
    from pebbler.game.machine import builtin_machines

    return [name for name in builtin_machines() if name.startswith(incomplete)]


def complete_workload(incomplete: str) -> list[str]:
    """Return the built-in workloads that begin so, for the shell."""
    from pebbler.workloads import catalogue

    names = [usage.partition(":")[0].partition("[")[0] for usage in catalogue()]
    return [name for name in names if name.startswith(incomplete)]


def complete_experiment(incomplete: str) -> list[str]:
    """Return the notes' experiments that begin so, for the shell."""
    from pebbler.notes import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
GraphName = Annotated[
    str,
    typer.Argument(
        help="A graph file (JSON) or a built-in workload.", show_default=False, autocompletion=complete_workload
    ),
]
PlanFile = Annotated[Path, typer.Argument(help="A plan file (JSON), or - for stdin.", show_default=False)]
PlanOutput = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the plan (JSON); -: to stdout.", show_default=False)
]


class _FlagsWithoutType:
    """Commands whose help shows no type beside a flag: it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, flags with nothing to show as their value."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False) and one.metavar is None:
                one.metavar = ""
        return found


class PlainCommand(_FlagsWithoutType, TyperCommand):
    """One command."""


class PlainGroup(_FlagsWithoutType, TyperGroup):
    """The program itself."""


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that typer understands from one that takes dataclasses: their fields become options of its own.

    A parameter whose type is a dataclass is a group of options; the command gets an instance with what the user chose.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    spread: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        spread += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]
    run.__signature__ = Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in spread])  # type: ignore[attr-defined]
    return run


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
