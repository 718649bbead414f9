"""A graph in other formats: DOT, SVG and networkx."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pebbler.errors import InputError, one_line
from pebbler.files import write_text
from pebbler.game.graph import Graph

if TYPE_CHECKING:
    import networkx

__all__ = ["save_graph", "to_dot", "to_networkx", "to_svg"]

STYLES = {"RAW": ("#4c4c4c", ""), "WAR": ("#d55e00", "6 3"), "WAW": ("#0072b2", "2 3")}
_MOST_DRAWN = 2_000


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """Return the ops as a networkx graph with one edge per hazard.

    >>> from pebbler.workloads import chain
    >>> to_networkx(chain(1)).number_of_nodes()
    3
    """
    import networkx

    result = networkx.MultiDiGraph(name=graph.name, unit=graph.unit)
    for op in graph.ops:
        result.add_node(op.name, reads=op.reads, writes=op.writes, cost=op.cost, once=op.once)
    for hazard in graph.dataflow.hazards():
        result.add_edge(
            hazard.before,
            hazard.after,
            kind=hazard.kind,
            tensor=hazard.tensor,
            version=hazard.version,
            why=hazard.why(),
        )
    return result


def to_dot(graph: Graph) -> str:
    """Return the ops and hazards in Graphviz's language.

    >>> from pebbler.workloads import chain
    >>> print(to_dot(chain(1)).splitlines()[3])
      "c1" [label="c1"];
    """
    lines = [f"digraph {_dot(graph.name)} {{", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif"];']
    lines += [f"  {_dot(op.name)} [label={_dot(op.name)}];" for op in graph.ops]
    for hazard in graph.dataflow.hazards():
        color, dash = STYLES[hazard.kind]
        style = f", style={'dashed' if hazard.kind == 'WAR' else 'dotted'}" if dash else ""
        ends = f"{_dot(hazard.before)} -> {_dot(hazard.after)}"
        lines.append(f'  {ends} [label={_dot(hazard.tensor)}, color="{color}"{style}];')
    return "\n".join([*lines, "}", ""])


def to_svg(graph: Graph) -> str:
    """Return a drawing of the ops: one row per depth, data edges plain, WAR dashed, WAW dotted, names escaped.

    >>> from pebbler.workloads import chain
    >>> to_svg(chain(3)).startswith("<svg")
    True
    """
    if len(graph.ops) > _MOST_DRAWN:
        raise InputError(
            f"{len(graph.ops):,} ops are too many for a readable drawing (at most {_MOST_DRAWN:,}); try .dot"
        )
    rows = _rows(graph)
    width_of = {op.name: max(70, 8 * min(len(op.name), 24) + 18) for op in graph.ops}
    gap, row_height, height = 26, 78, 30
    row_width = [sum(width_of[name] for name in row) + gap * (len(row) - 1) for row in rows]
    canvas = max([*row_width, 320]) + 2 * gap
    place: dict[str, tuple[float, float]] = {}
    for depth, row in enumerate(rows):
        x = (canvas - row_width[depth]) / 2
        for name in row:
            place[name] = (x + width_of[name] / 2, gap + 20 + depth * row_height)
            x += width_of[name] + gap
    depth_of = {name: depth for depth, row in enumerate(rows) for name in row}
    total = gap * 2 + 40 + len(rows) * row_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {canvas:.0f} {total:.0f}" width="{canvas:.0f}" '
        f'height="{total:.0f}" font-family="sans-serif" font-size="13">',
        f"<title>{_xml(graph.name)}</title>",
        '<rect width="100%" height="100%" fill="white"/><defs>',
    ]
    for kind, (color, _) in STYLES.items():
        parts.append(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{color}"/></marker>'
        )
    parts.append("</defs>")
    for hazard in graph.dataflow.hazards():
        (x1, y1), (x2, y2) = place[hazard.before], place[hazard.after]
        color, dash = STYLES[hazard.kind]
        top, bottom = y1 + height / 2, y2 - height / 2
        between = range(depth_of[hazard.before] + 1, depth_of[hazard.after])
        path = _path([(x1, top), *_around(rows, between, place, width_of, (x1, y1), (x2, y2)), (x2, bottom)])
        parts.append(
            f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.3" stroke-dasharray="{dash}" '
            f'marker-end="url(#{hazard.kind})"><title>{_xml(hazard.why())}</title></path>'
        )
    for op in graph.ops:
        x, y = place[op.name]
        width = width_of[op.name]
        label = op.name if len(op.name) <= 24 else op.name[:23] + "…"
        tip = f"{op.name}: reads {', '.join(op.reads) or 'nothing'}; writes {', '.join(op.writes) or 'nothing'}"
        parts.append(
            f'<g><title>{_xml(tip)}</title><rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width}" '
            f'height="{height}" rx="5" fill="#eef3f8" stroke="#5b7c99"/>'
            f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{_xml(label)}</text></g>'
        )
    for i, (kind, (color, dash)) in enumerate(STYLES.items()):
        x, y = gap + 100 * i, total - 16
        parts.append(
            f'<line x1="{x}" x2="{x + 34}" y1="{y:.0f}" y2="{y:.0f}" stroke="{color}" stroke-width="1.3" stroke-dasharray="{dash}" '
            f'marker-end="url(#{kind})"/><text x="{x + 42}" y="{y + 4:.0f}" fill="#4c4c4c">{kind}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


Point = tuple[float, float]


def _around(
    rows: list[list[str]], between: range, place: dict[str, Point], width_of: dict[str, int], start: Point, end: Point
) -> list[Point]:
    """Return points through which an edge passes the rows between its ends: gaps beside boxes, near the straight line."""
    points = []
    for depth in between:
        y = place[rows[depth][0]][1]
        straight = start[0] + (end[0] - start[0]) * (y - start[1]) / (end[1] - start[1])
        sides = [place[name][0] + side * (width_of[name] / 2 + 13) for name in rows[depth] for side in (-1, 1)]
        free = all(abs(place[name][0] - straight) >= width_of[name] / 2 + 6 for name in rows[depth])
        points.append((straight if free else min(sides, key=lambda x: abs(x - straight)), y))
    return points


def _path(points: list[Point]) -> str:
    """Return a curve through points from top to bottom, upright at each of them."""
    words = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (y2 - y1) / 2
        words.append(f"C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}")
    return " ".join(words)


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write the graph in the form that the file name asks for: .json, .dot or .svg."""
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        graph.save(path)
    elif suffix == ".dot":
        write_text(path, to_dot(graph))
    elif suffix == ".svg":
        write_text(path, to_svg(graph))
    else:
        raise InputError(f"{path}: a graph is written as .json, .dot or .svg")


def _rows(graph: Graph) -> list[list[str]]:
    """Return the ops by depth: an op is one row below the lowest op that it must follow."""
    depth: list[int] = []
    for before in graph.dataflow.before:
        depth.append(1 + max((depth[op] for op in before.tolist()), default=-1))
    rows: list[list[str]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for op, row in zip(graph.ops, depth, strict=True):
        rows[row].append(op.name)
    return rows


def _xml(text: str) -> str:
    """Return a text as it may stand in XML, which has no way to write control characters."""
    return escape(one_line(text))


def _dot(name: str) -> str:
    text = one_line(name.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text}"'
