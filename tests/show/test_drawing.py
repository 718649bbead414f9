"""Graphs as DOT, SVG and networkx."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import networkx
import pytest
from hypothesis import given, settings

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.show.drawing import save_graph, to_dot, to_networkx, to_svg
from pebbler.workloads import chain, mlp, note_mlp
from strategies import graphs

SVG = "{http://www.w3.org/2000/svg}"
NASTY = ('"', "back\\slash", "two\nlines", "<script>alert(1)</script>", "名前", "\u0000\u001b[31m", "'&amp;")


def nasty() -> Graph:
    graph = Graph("<script>\n\u0000")
    for i, name in enumerate(NASTY):
        graph.tensor(name, 1, kind="input" if i == 0 else "temp")
    for i in range(1, len(NASTY)):
        graph.op(NASTY[i], reads=[NASTY[i - 1]], writes=[NASTY[i]])
    return graph


@given(graphs())
@settings(max_examples=50)
def test_networkx_has_an_edge_per_hazard(graph):
    drawn = to_networkx(graph)
    assert list(drawn.nodes) == [op.name for op in graph.ops]
    hazards = graph.dataflow.hazards()
    assert sorted((a, b, data["why"]) for a, b, data in drawn.edges(data=True)) == sorted(
        (h.before, h.after, h.why()) for h in hazards
    )
    assert networkx.is_directed_acyclic_graph(drawn)


def test_networkx_counts_the_orders_of_note_000():
    count = sum(1 for _ in networkx.all_topological_sorts(networkx.DiGraph(to_networkx(note_mlp()))))
    assert count == 7290


def test_dot_of_note_000():
    text = to_dot(note_mlp())
    assert text.startswith('digraph "note-mlp" {')
    assert '"bwd_dh" -> "upd_W2" [label="W2", color="#d55e00", style=dashed];' in text
    assert text.count(" -> ") == len(note_mlp().dataflow.hazards())


def test_names_cannot_break_out_of_dot():
    lines = to_dot(nasty()).splitlines()
    assert len(lines) == 3 + 6 + 5 + 1  # head, ops, edges, closing
    for line in lines[3:-1]:
        bare = line.replace("\\\\", "").replace('\\"', "")
        assert bare.count('"') % 2 == 0
        assert line.endswith("];")


def test_svg_is_xml_whatever_the_names_are():
    text = to_svg(nasty())
    assert "<script>" not in text
    root = ET.fromstring(text)
    labels = [node.text for node in root.iter(f"{SVG}text")]
    assert "名前" in labels
    assert "<script>alert(1)</script"[:23] in "".join(label or "" for label in labels)


@given(graphs())
@settings(max_examples=50)
def test_svg_draws_every_op_and_hazard(graph):
    root = ET.fromstring(to_svg(graph))
    assert len(root.findall(f"{SVG}g")) == len(graph.ops)
    assert len(root.findall(f"{SVG}path")) == len(graph.dataflow.hazards())


def test_a_drawing_of_too_much_is_refused():
    with pytest.raises(InputError, match=r"too many for a readable drawing .* try \.dot"):
        to_svg(chain(2000))


@pytest.mark.parametrize("suffix", ["json", "dot", "svg"])
def test_the_suffix_says_what_is_written(tmp_path, suffix):
    path = tmp_path / f"new folder/graph.{suffix}"
    save_graph(note_mlp(), path)
    assert path.read_text()[0] in "{d<"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"a graph is written as \.json, \.dot or \.svg"):
        save_graph(note_mlp(), tmp_path / "graph.png")
    assert list(tmp_path.iterdir()) == []


def test_edges_of_a_drawing_pass_beside_boxes():
    """An edge over several rows used to run behind the boxes between, so that nobody saw where it went."""
    graph = mlp(n=2, hidden=3)
    root = ET.fromstring(to_svg(graph))
    boxes = [
        [float(box.get(key)) for key in ("x", "y", "width", "height")]
        for box in root.iter(f"{SVG}rect")
        if box.get("rx")
    ]
    assert len(boxes) == len(graph.ops)
    inner = 0
    for path in root.iter(f"{SVG}path"):
        points = [part.split(",") for part in path.get("d").replace("M", "").replace("C", "").split() if "," in part]
        for x, y in [tuple(map(float, point)) for point in points[3:-1:3]]:  # where a curve passes a row
            inner += 1
            assert not any(left < x < left + width and top < y < top + height for left, top, width, height in boxes)
    assert inner > 0
    assert {"RAW", "WAR", "WAW"} <= {text.text for text in root.iter(f"{SVG}text")}  # a legend with lines
