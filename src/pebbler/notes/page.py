"""One self-contained page over all experiments: claims and truths, every table, every plot, no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from pebbler.notes.experiment import Experiment, Question, Row, Value, show
from pebbler.notes.plots import inline_svg

__all__ = ["page"]

_STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1b1b1b; --paper: #fff; --line: #d0d0d0; --soft: #f3f5f7; --good: #00694d; --bad: #a83c00;
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #15181b; --line: #3a3f44; --soft: #1f2428; --good: #4fd1a5; --bad: #ff9d5c; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 70rem; padding: 1rem;
  color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif;
}
h1, h2, h3 { line-height: 1.2; }
h2 { border-top: 1px solid var(--line); margin-top: 3rem; padding-top: 1rem; }
nav a { margin-right: 1rem; }
a { color: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--soft); }
td.n { text-align: right; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; max-width: 46rem; } figure svg { width: 100%; height: auto; }
details > summary { cursor: pointer; font-weight: 600; }
"""

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
    rows = [row for experiment in experiments for row in experiment.rows]
    matched, wrong = sum(row.match for row in rows), sum(row.wrong for row in rows)
    failed = sum(not row.ok for row in rows)
    summary = (
        f"{len(rows)} figures: {matched} reproduced, {wrong} where the note is wrong, "
        f"{sum(row.corrected is not None for row in rows)} with a corrected value"
        + (f", {failed} that should reproduce and do not." if failed else ".")
    )
    links = "".join(f'<a href="#{escape(e.name)}">{escape(e.name)}</a>' for e in experiments)
    claims = _table(
        "What the notes claimed, and what is true",
        ["note", "claim", "truth", "how we know"],
        [(e.note, v.claim, v.truth, v.evidence) for e in experiments for v in e.verdicts],
    )
    sure = f"<h3>How sure are we?</h3><p>{escape(_SURE)}</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>The notes, reproduced</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>The notes, reproduced, corrected and answered</h1>"
        f"<p>{escape(summary)}</p><nav>{links}</nav>\n{claims}{sure}{''.join(map(_section, experiments))}\n</body></html>\n"
    )


def _section(experiment: Experiment) -> str:
    figures = "".join(
        f"<figure>{inline_svg(plot, f'{experiment.name}-{plot.name}')}<figcaption>{escape(plot.title)}</figcaption></figure>"
        for plot in experiment.plots
    )
    return (
        f'\n<h2 id="{escape(experiment.name)}">{escape(experiment.name)} <small>(note {escape(experiment.note)})</small></h2>'
        f"<p>{escape(experiment.question)}</p>{figures}<h3>Figures</h3>{_rows(experiment.rows)}"
        f"<h3>Open questions</h3>{''.join(map(_question, experiment.questions))}"
    )


def _rows(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        verdict = '<span class="good">reproduced</span>' if row.match else '<span class="bad">differs</span>'
        if row.wrong and not row.match:
            verdict = "note is wrong"
        cells = "".join(
            f'<td class="n">{escape(text)}</td>'
            for text in (show(row.published, row.decimals), show(row.measured), show(row.corrected))
        )
        unit = f" <small>{escape(row.unit)}</small>" if row.unit else ""
        lines.append(f"<tr><td>{escape(row.name)}{unit}</td>{cells}<td>{verdict}</td><td>{escape(row.why)}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in ("figure", "published", "measured", "corrected", "", "why"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _question(question: Question) -> str:
    tables = "".join(_table(one.title, one.columns, one.rows) for one in question.tables)
    return f"<h4>{escape(question.question)}</h4><p>{escape(question.answer)}</p>{tables}"


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    def cell(value: Value) -> str:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return f'<td class="n">{escape(show(value))}</td>' if number else f"<td>{escape(show(value))}</td>"

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
