"""Groups of options: what typer sees, and what the command gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from pebbler.cli.options import grouped


@dataclass(frozen=True)
class Sizes:
    """A group."""

    rows: Annotated[int, typer.Option(help="How many rows.")]
    columns: Annotated[int, typer.Option("--columns", "-c", help="How many columns.")] = 3


@pytest.fixture
def run():
    app, seen = typer.Typer(), []

    @app.command()
    @grouped
    def draw(name: Annotated[str, typer.Argument()], sizes: Sizes, json: bool = False) -> None:
        """Draw something."""
        seen.append((name, sizes, json))

    def invoke(*words: str):
        result = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
        return result, seen

    return invoke


def test_a_group_arrives_as_one_value(run):
    result, seen = run("page", "--rows", "2", "-c", "5", "--json")
    assert result.exit_code == 0, result.output
    assert seen == [("page", Sizes(2, 5), True)]


def test_defaults_and_help_are_those_of_the_fields(run):
    _, seen = run("page", "--rows", "2")
    assert seen == [("page", Sizes(2), False)]
    result, _ = run("--help")
    assert "How many columns." in result.output
    assert "Draw something." in result.output


def test_a_field_without_default_is_required_and_types_are_checked(run):
    assert run("page")[0].exit_code == 2
    assert run("page", "--rows", "many")[0].exit_code == 2
