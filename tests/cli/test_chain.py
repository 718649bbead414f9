"""The chain command: figures, files and refusals."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from pebbler import Level, Machine, check, solve, workloads
from pebbler.cli.chain import chain
from pebbler.errors import InputError
from pebbler.game.plan import Plan
from pebbler.solver import find_least_capacity

app = typer.Typer()
app.command()(chain)


def run(*words):
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def figures(*words):
    return json.loads(run(*words, "--json"))


def test_the_issues_command(tmp_path):
    found = figures("--length", "100", "--red", "11", "--io", "100", "-o", str(tmp_path / "plan.json"))
    wanted = {"energy": 336, "bound": 336, "status": "optimal", "loads": 0, "stores": 0, "computes": 235, "moves": 571}
    assert wanted.items() <= found.items()
    assert found["peak_red"] <= 11
    plan = Plan.load(tmp_path / "plan.json")
    assert check(plan).legal
    assert len(plan.moves) == found["moves"]
    assert figures("--length", "100", "--red", "102")["energy"] == 201


def test_tables_for_people():
    text = run("--length", "30", "--red", "4", "--compare", "--curve")
    for word in (
        "note 001's program",
        "binomial",
        "recomputes",
        "io from",
        "note 001's program breaks the rules at move ",
    ):
        assert word in text
    both = figures("--length", "30", "--red", "4", "--compare", "--curve")
    assert both["compare"][-1]["energy"] == both["energy"]
    assert both["curve"]["io"][-1]["transfers"] == 0


@pytest.mark.parametrize("length", [2, 3, 4])
def test_two_pebbles_are_the_least_here_and_for_solve(length):
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=2), Level("slow", 3, 3)))
    graph = workloads.chain(length)
    assert find_least_capacity(graph, two).least == 2
    graph.tensor("beside", 0, kind="output")
    graph.op("aside", writes=["beside"], cost=1)  # so that the chain solver leaves it alone
    general = solve(graph, two, start={"N0": "fast"}, time_limit=None)
    assert general.status == "optimal"
    assert figures("--length", str(length), "--red", "2", "--io", "3")["energy"] == general.energy - 1
    assert "binomial" not in run("--length", str(length), "--red", "2", "--compare", "--curve")


def test_adjoint():
    assert figures("--length", "100", "--red", "10", "--io", "inf", "--adjoint")["computes"] == 222


def test_general_chains_from_files(tmp_path):
    sizes, costs = tmp_path / "sizes.csv", tmp_path / "costs.csv"
    sizes.write_text("node,size\n0,1\n1,3\n2,1\n3,2\n")
    costs.write_text("forward,backward,store,load\n0,1,4,4\n5,1,4,4\n1,1,4,4\n1,1,4,4\n")
    found = figures("--sizes", str(sizes), "--costs", str(costs), "--red", "4")
    assert (found["energy"], found["status"]) == (27, "optimal")
    assert figures("--sizes", str(sizes), "--red", "4", "--length", "3")["status"] == "optimal"
    with pytest.raises(InputError, match="the files have 4"):
        run("--sizes", str(sizes), "--length", "7")
    with pytest.raises(InputError, match="The least for this chain is 4"):
        run("--sizes", str(sizes), "--red", "3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight\n1\n2\n", "no column weight is known"),
        ("forward\n1\n2\n", "expected a header with size"),
        ("size\n1\nlarge\n", "row 3: size must be a number"),
        ("size\n1\n-2\n", "row 3: size must be >= 0"),
        ("size\n1\n1.5\n", "whole number"),
        ("size,node\n1,0\n2,5\n", "node must number the rows"),
        ("size,forward\n1\n", "row 2 has 1 cells"),
        ("size,size\n1,1\n", "named twice"),
        ("size\n1\nnan\n", "row 3: size must be >= 0"),
        ("", "expected a header"),
        ("size\n1\n", "at least 2 nodes"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, message):
    path = tmp_path / "sizes.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        run("--sizes", str(path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--red", "2", "--io", "inf"], "The least is 3"),
        (["--red", "1"], "The least for this chain is 2"),
        (["--length", "0"], "length must be a whole number >= 1"),
        (["--io", "nan"], "io must be"),
        (["--compute", "-1"], "compute must be"),
        (["--adjoint", "--compare"], "leave out --adjoint"),
    ],
)
def test_wrong_numbers_are_refused(words, message):
    with pytest.raises(InputError, match=message):
        run(*words)


def test_forward_computes_are_not_taken_for_all_of_them():
    """235 in the table stood beside 336 on the page, which counts backward steps too."""
    text = run("--length", "100", "--red", "11")
    assert "forward computes" in text


def test_a_page_of_the_plan_is_written(tmp_path):
    page = tmp_path / "chain.html"
    run("--length", "8", "--red", "3", "--report", str(page))
    assert "chain:length=8" in page.read_text()
