"""Graphs, plans, judgements and reports as notebooks show them: a few figures and a small picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from pebbler.errors import InputError, one_line
from pebbler.game.amounts import cost_word, energy_text, number_text
from pebbler.game.graph import Graph
from pebbler.game.moves import COMPUTE, COPY
from pebbler.game.plan import Plan
from pebbler.referee.judgement import Judgement, check
from pebbler.show.report.page_data import ReportData
from pebbler.show.report.report_page import framed
from pebbler.solver.assessment import contradictions

__all__ = ["html"]

COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#d55e00", "#8a6fb0", "#7a7f86")
WIDTH, HEIGHT = 420, 120
_MOST_DOTS = 1500
_LONGEST = 80  # characters of a name


def html(thing: object) -> str | None:
    """Return the HTML that a notebook shows for a graph, plan, judgement or report; None for other objects.

    >>> from pebbler import machine, workloads
    >>> "15 moves" in html(Plan.in_order(workloads.note_mlp(), machine("notes")))
    True
    """
    if isinstance(thing, Graph):
        return _graph(thing)
    if isinstance(thing, Plan):
        return _plan(thing)
    if isinstance(thing, Judgement):
        return _judgement(thing)
    return framed(thing) if isinstance(thing, ReportData) else None


def _graph(graph: Graph) -> str:
    kinds = {kind: [t.size for t in graph.tensors if t.kind == kind] for kind in ("input", "param", "temp", "output")}
    rows = [[kind, number_text(len(sizes)), number_text(sum(sizes))] for kind, sizes in kinds.items() if sizes]
    head = f"<b>{_name(graph.name)}</b>: {_count(len(graph.ops), 'op')}, {_count(len(graph.tensors), 'tensor')}"
    return _block(head, _table(["kind", "tensors", f"size ({graph.unit})"], rows), _graph_picture(graph))


def _plan(plan: Plan) -> str:
    steady = "one step of an endless loop" if plan.steady else "one step"
    head = f"<b>{_name(plan.graph.name)}</b> on <b>{_name(plan.machine.name)}</b>: "
    head += f"{_count(len(plan.moves), 'move')}, {steady}"
    try:
        judgement = check(plan)
    except InputError as error:
        return _block(head, f"<p>{_name(str(error), 400)}</p>")
    parts = [_verdict(judgement, plan.cost_word)]
    if judgement.legal:
        claims = [str(plan.status)] if plan.status is not None else []
        claims += [f"bound {energy_text(plan.bound, plan.energy_unit)}"] if plan.bound is not None else []
        void = list(contradictions(plan, judgement))
        said = (
            f"what it says of itself does not hold: {'; '.join(void)}" if void else f"said to be: {', '.join(claims)}"
        )
        parts += [f"<div>{_name(said, 400)}</div>"] if void or claims else []
        parts.append(_levels(judgement, plan.cost_word))
    more = "<code>pebbler.report(plan, 'plan.html')</code> has the player"
    return _block(head, *parts, _plan_picture(plan) if judgement.legal else "", f"<div style='opacity:.7'>{more}</div>")


def _judgement(judgement: Judgement) -> str:
    word = cost_word(judgement.unit)
    return _block(_verdict(judgement, word), _levels(judgement, word) if judgement.legal else "")


def _verdict(judgement: Judgement, word: str) -> str:
    if not judgement.legal:
        return f"<div><b style='color:#b00020'>illegal</b>: {_name(judgement.error or '', 400)}</div>"
    return f"<div><b>legal</b>: {energy_text(judgement.energy, judgement.unit)} {word} by the referee</div>"


def _levels(judgement: Judgement, word: str) -> str:
    most = max(judgement.levels.values(), default=0) or 1
    rows = []
    for i, (level, amount) in enumerate(judgement.levels.items()):
        colour, wide = COLOURS[min(i, len(COLOURS) - 1)], 120 * amount / most
        bar = f"<div style='background:{colour};height:.7em;width:{wide:.1f}px'></div>"
        peak = [number_text(judgement.peak[level])] if level in judgement.peak else []
        rows.append([_name(level), bar, energy_text(amount, judgement.unit), *peak])
    return _table(["level", "", word, *(["peak"] if judgement.peak else [])], rows, escaped=True)


# Pictures -----------------------------------------------------------------------------------------------------------------


def _plan_picture(plan: Plan) -> str:
    """Return the schedule at a glance: a dot for each move, along by when, down by the op's place in the program."""
    moves, ops = plan.moves, max(1, len(plan.graph.ops))
    count = len(moves.kind)
    every = max(1, count // _MOST_DOTS)
    dots: list[tuple[float, float, str]] = []
    ran = set[int]()
    for i in range(count):
        if moves.kind[i] != COMPUTE:
            if moves.kind[i] == COPY and i % every == 0:
                dots.append((_along(i, count), HEIGHT - 4, COLOURS[2]))
            continue
        op = int(moves.subject[i])
        again = op in ran
        ran.add(op)
        if i % every == 0:
            dots.append((_along(i, count), 6 + (HEIGHT - 18) * op / ops, COLOURS[3] if again else COLOURS[0]))
    words = "moves along, ops in program order down; orange: run again; yellow, below: copies"
    return _svg(words, dots) if dots else ""


def _graph_picture(graph: Graph) -> str:
    """Return the ops as dots, along by how many must run before."""
    depth: list[int] = []
    for before in graph.dataflow.before:
        depth.append(1 + max((depth[op] for op in before.tolist()), default=-1))
    if not depth or len(depth) > _MOST_DOTS:
        return ""
    rows: dict[int, int] = {}
    widest = max(Counter(depth).values())
    height = min(HEIGHT, 8 + 8 * widest)
    dots = []
    for at in depth:
        rows[at] = rows.get(at, -1) + 1
        dots.append((_along(at, max(depth) + 1), 4 + (height - 8) * rows[at] / widest, COLOURS[0]))
    return _svg("ops, along by what must run before them", dots, height)


def _along(place: int, count: int) -> float:
    return 4 + (WIDTH - 8) * place / max(1, count - 1)


def _svg(words: str, dots: Iterable[tuple[float, float, str]], height: int = HEIGHT) -> str:
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y, colour in dots)
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"><title>{escape(words)}</title>'
        f'{marks}</svg><div style="opacity:.7">{escape(words)}</div>'
    )


# Markup -------------------------------------------------------------------------------------------------------------------


def _block(*parts: str) -> str:
    return f"<div style='font-variant-numeric:tabular-nums'>{''.join(parts)}</div>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, escaped: bool = False) -> str:
    head = "".join(f"<th style='text-align:left'>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{cell if escaped else escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _name(text: str, most: int = _LONGEST) -> str:
    return escape(one_line(text if len(text) <= most else f"{text[: most - 1]}…"))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
