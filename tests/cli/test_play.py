"""`pebbler play`: what it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pebbler.game.graph import Graph
from pebbler.workloads import chain

Cli = Callable[..., tuple[int, str, str]]


def test_the_levels_go_from_three_nodes_to_note_001(cli: Cli, tmp_path: Path) -> None:
    status, out, _ = cli("play", "--json")
    answer = json.loads(out)
    assert (status, answer["file"]) == (0, "play.html")
    levels = answer["levels"]
    assert (levels[0]["title"], levels[0]["optimum"]) == ("A sum", 21)
    assert (levels[-1]["title"], levels[-1]["red"], levels[-1]["optimum"]) == ("Note 001's chain", 11, 336)
    assert all(level["optimum"] is not None for level in levels)
    text = (tmp_path / "play.html").read_text(encoding="utf-8")
    assert len(text) < 400_000
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_a_graph_of_ones_own_gets_the_fewest_pebbles_unless_told(cli: Cli, tmp_path: Path) -> None:
    chain(3).save(tmp_path / "mine.json")
    status, out, _ = cli("play", "mine.json", "--json", "-o", "mine.html")
    assert (status, json.loads(out)["levels"][0]["red"]) == (0, 2)
    status, out, _ = cli("play", "mine.json", "--red", "4", "--io", "0.5", "--json", "-o", "mine.html")
    assert json.loads(out)["levels"][0] == {"name": "own", "title": "chain:length=3", "red": 4, "optimum": 7}
    status, _, err = cli("play", "note-mlp", "-o", "mlp.html")  # no pebbles: its units are float32
    assert (status, (tmp_path / "mlp.html").exists()) == (0, True)
    assert "open mlp.html" in err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["chain:length=3", "--red", "1"], 1, "needs 2 units at once"),
        (["chain:length=3", "--red", "0"], 2, "at least one red pebble, got 0"),
        (["chain:length=3", "--io", "-1"], 2, "must be a number from 0 up, got -1"),
        (["chain:length=3", "--io", "nan"], 2, "must be a number from 0 up"),
        (["chain:length=3", "--machine", "notes"], 2, "they must agree"),
        (["mlp:n=2,hidden=3", "--machine", "notes"], 2, "is no red-blue game"),
        (["chain:length=3", "--machine", "red-blue", "--red", "3"], 2, "give it, or --red and --io"),
        (["--red", "3"], 2, "for a graph of your own"),
        (["chain:length=300"], 2, "602 values; a board has room for 400"),
        (["nothing.json"], 2, "nothing.json"),
        (["chain:length=3", "-o", "game.txt"], 2, "is written as .html"),
        (["chain:length=3", "--io", "1e999"], 2, "must be a number from 0 up, got inf"),
    ],
)
def test_wrong_input_is_one_line(cli: Cli, words: list[str], status: int, says: str) -> None:
    found, out, err = cli("play", *words)
    assert (found, out) == (status, "")
    assert says in err
    assert "Traceback" not in err


def test_a_page_is_not_written_over_the_graph(cli: Cli, tmp_path: Path) -> None:
    chain(2).save(tmp_path / "game.html")
    status, _, err = cli("play", "game.html", "-o", "game.html")
    assert (status, "is what is read" in err) == (2, True)


def test_a_graph_without_ops_is_refused(cli: Cli, tmp_path: Path) -> None:
    Graph("empty", unit="pebble").save(tmp_path / "empty.json")
    status, _, err = cli("play", "empty.json")
    assert (status, "there is nothing to play" in err) == (2, True)
