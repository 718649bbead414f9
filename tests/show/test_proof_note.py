"""Proofs for readers: every method's words lead to a page that exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pebbler import Plan, machine, solve_chain
from pebbler.show.report.proof_note import proof_note
from pebbler.solver import solve
from pebbler.solver.assessment import assess

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("graph", "levels", "page"),
    [
        ("mlp:n=4,hidden=16", "notes", "bounds.md"),
        ("note-mlp", "notes-recency", "tiling.md"),
        ("chain:length=4", "red-blue", "chains.md"),
        ("note-mlp", "notes-explicit", "bounds.md"),
    ],
)
def test_what_solvers_prove_is_explained_on_the_page_of_its_method(graph: str, levels: str, page: str) -> None:
    plan = solve(graph, machine(levels), time_limit=3)
    found = proof_note(plan.proof)
    assert found is not None
    assert found.words[0].isupper()
    assert found.page == page, plan.proof
    assert (ROOT / "docs" / found.page).exists()


def test_other_words_lead_to_the_page_on_bounds_for_all_games() -> None:
    found = proof_note("smallest estimate among the game states still open")
    assert found is not None
    assert (found.page, found.words) == (
        "exact.md",
        "Derived from: smallest estimate among the game states still open.",
    )


def test_a_page_that_a_proof_names_itself_is_the_one_that_is_shown() -> None:
    found = proof_note(solve_chain(30, red=4).proof)
    assert found is not None
    assert found.page == "chains.md"
    assert "docs/" not in found.words


@pytest.mark.parametrize(
    ("graph", "levels", "page"),
    [
        ("mlp:n=4,hidden=16", "notes", "bounds.md"),
        ("note-mlp", "notes-recency", "bounds.md"),
        ("chain:length=4", "red-blue", "chains.md"),
    ],
)
def test_what_was_verified_again_leads_to_the_page_of_its_method(
    graph: str, levels: str, page: str, tmp_path: Path
) -> None:
    """A saved plan of a chain led to the page on small games."""
    solve(graph, machine(levels), time_limit=3).save(tmp_path / "plan.json")
    found = assess(Plan.load(tmp_path / "plan.json"))
    note = proof_note(found.proof, found.covers)
    assert note is not None
    assert note.words.startswith("It is verified")
    assert note.page == page


def test_every_page_that_a_proof_in_the_solver_names_is_known() -> None:
    named = set()
    for path in (ROOT / "src/pebbler/solver").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".md)"):
                named.add(node.value)
    assert named
    for proof in named:
        found = proof_note(proof)
        assert found is not None
        assert found.page in proof
