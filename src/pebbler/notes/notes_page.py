"""One self-contained page about all experiments: published and recomputed figures, tables and plots. It loads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from html import escape

from pebbler.notes.experiment import Experiment, NoteFigure, Plot, Question, Value, show
from pebbler.notes.note_plots import inline_svg
from pebbler.show.style import base_style

__all__ = ["folded", "page"]

_STYLE = """
.notes th, .notes td { min-width: 4.5rem; }
.notes td.figure { min-width: 15rem; }
.notes td.words { min-width: 16rem; }
.notes figure { max-width: 34rem; overflow-x: auto; }
.notes figure svg { width: 100%; min-width: 21rem; height: auto; }
.notes figure.wide { max-width: 46rem; }
.notes figure.wide svg { min-width: 32rem; }
.notes figcaption { white-space: pre-line; }
"""

_SAVING = "How much energy can a plan save"
_FEW_ROWS = 12  # shorter tables are shown whole
_SURE = (
    "Published figures are compared with the note's own rounding, and, where the original program's full-precision output is "
    "known, digit for digit. Counts and minima over orders come from listing all of them. Cache figures come from a simulator, "
    "not from hardware: they are exact for the model that each table names, and say nothing about prefetching or "
    "associativity. Training runs in float64, summed in the notes' order."
)


def page(experiments: Sequence[Experiment]) -> str:
    """Return the page as HTML; every name and text in it is escaped.

    >>> page([]).startswith("<!doctype html>")
    True
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>The notes, reproduced</title>'
        f'<style>{base_style()}{_STYLE}</style></head><body class="notes">\n'
        f"<h1>The notes, reproduced, corrected and answered</h1>{_content(experiments)}\n</body></html>\n"
    )


def folded(experiments: Sequence[Experiment], sentence: str, own_page: str) -> str:
    """Return the same as a section for the end of another page that has our style: a sentence, a link, and the rest folded away.

    >>> folded([], "Five notes.", "notes.html")[-20:]
    '</details></section>'
    """
    return (
        f'<section class="notes" aria-labelledby="notes"><style>{_STYLE}</style><h2 id="notes">The notes behind it</h2>'
        f'<p>{escape(sentence)} <a href="{escape(own_page)}">The notes, reproduced</a> is the same on a page of its own.</p>'
        f"<details><summary>Every table and plot</summary>{_content(experiments)}"
        "</details></section>"
    )


def _content(experiments: Sequence[Experiment]) -> str:
    rows = [row for experiment in experiments for row in experiment.rows]
    matched, wrong = sum(row.match for row in rows), sum(row.wrong for row in rows)
    failed = sum(not row.ok for row in rows)
    corrected = sum(row.corrected is not None for row in rows)
    tiles = "".join(
        f'<div class="tile"><dt>{escape(label)}</dt><dd{mark}>{count}</dd><dd class="note">{escape(note)}</dd></div>'
        for label, count, note, mark in (
            ("Figures", len(rows), f"in {len(experiments)} experiment{'' if len(experiments) == 1 else 's'}", ""),
            ("Reproduced", matched, "digit for digit, or as the note rounds", ""),
            ("The note is wrong", wrong, f"{corrected} figures have a corrected value", ""),
            ("Fail to reproduce", failed, "though they should", ' class="bad"' if failed else ""),
        )
    )
    saving = next((q for e in experiments for q in e.questions if q.question.startswith(_SAVING)), None)
    headline = (
        "" if saving is None else f'<p class="sentence"><b>What the best plan saves:</b> {escape(saving.answer)}</p>'
    )
    links = "".join(f'<a href="#{escape(e.name)}">{escape(e.name)}</a>' for e in experiments)
    claims = _table(
        "What the notes claimed, and what is true",
        ["note", "claim", "truth", "how we know"],
        [(e.note, v.claim, v.truth, v.evidence) for e in experiments for v in e.verdicts],
    )
    sure = f"<h3>How sure are we?</h3><p>{escape(_SURE)}</p>"
    return (
        f'{headline}<dl class="tiles">{tiles}</dl><nav class="contents" aria-label="Experiments">{links}</nav>\n'
        f"{claims}{sure}{''.join(map(_section, experiments))}"
    )


def _section(experiment: Experiment) -> str:
    figures = "".join(map(partial(_figure, experiment.name), experiment.plots))
    return (
        f'\n<h2 id="{escape(experiment.name)}">{escape(experiment.name)} <small>(note {escape(experiment.note)})</small></h2>'
        f"<p>{escape(experiment.question)}</p>{figures}<h3>Figures</h3>{_rows(experiment.rows)}"
        f"<h3>Open questions</h3>{''.join(map(_question, experiment.questions))}"
    )


def _figure(prefix: str, plot: Plot) -> str:
    kind = ' class="wide"' if plot.kind == "heat" else ""
    return f"<figure{kind}>{inline_svg(plot, f'{prefix}-{plot.name}')}<figcaption>{escape(plot.title)}</figcaption></figure>"


def _rows(rows: Sequence[NoteFigure]) -> str:
    """Return the figures that the note printed or got wrong, and the remaining figures of its program in a closed section."""
    told = [row for row in rows if row.published is not None or row.corrected is not None or not row.ok]
    rest = [row for row in rows if row not in told]
    if len(rows) <= _FEW_ROWS or not rest:
        return _figures(rows)
    more = f"{len(rest)} further figures, which the note's program gives and the note does not print"
    return f"{_figures(told)}<details><summary>{more}</summary>{_figures(rest)}</details>"


def _figures(rows: Sequence[NoteFigure]) -> str:
    heads, lines = ["figure", "published", "measured", "corrected", "verdict"], []
    explained = any(row.why for row in rows)
    for row in rows:
        verdict = '<span class="good">reproduced</span>' if row.match else '<span class="bad">differs</span>'
        if row.wrong and not row.match:
            verdict = "note is wrong"
        shown = (show(row.published, row.decimals), _as_exact(row, row.measured), _as_exact(row, row.corrected))
        cells = "".join(f'<td class="n">{escape(text)}</td>' for text in shown)
        unit = f" <small>{escape(row.unit)}</small>" if row.unit else ""
        why = _words(row.why) if explained else ""
        lines.append(f'<tr><td class="figure">{escape(row.name)}{unit}</td>{cells}<td>{verdict}</td>{why}</tr>')
    head = "".join(f"<th>{name}</th>" for name in [*heads, *(["why"] if explained else [])])
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _as_exact(row: NoteFigure, value: Value) -> str:
    """Return a figure with no fewer decimals than the note printed: 0.965 beside 0.965, not 0.96."""
    plain = show(value)
    shown = len(plain.partition(".")[2])
    return plain if row.decimals is None or shown >= row.decimals else show(value, row.decimals)


def _words(text: str) -> str:
    """Return a cell of text, wide enough to be read where there are many words."""
    return f'<td class="words">{escape(text)}</td>' if len(text) > 40 else f"<td>{escape(text)}</td>"


def _question(question: Question) -> str:
    tables = "".join(_table(one.title, one.columns, one.rows) for one in question.tables)
    return f"<h4>{escape(question.question)}</h4><p>{escape(question.answer)}</p>{tables}"


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    def cell(value: Value) -> str:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return f'<td class="n">{escape(show(value))}</td>' if number else _words(show(value))

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
