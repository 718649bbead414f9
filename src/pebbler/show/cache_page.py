"""The page of a trace: the figures of `pebbler cache` and the miss curve, in one file without scripts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pebbler.errors import one_line
from pebbler.files import write_text
from pebbler.game.amounts import energy_text, number_text
from pebbler.game.machine import energy_unit
from pebbler.show.plots import draw_misses
from pebbler.show.style import base_style
from pebbler.version import VERSION

if TYPE_CHECKING:
    from pebbler.game.machine import Machine
    from pebbler.trace.cache_analysis import CacheAnalysis

__all__ = ["save_cache_page"]

_MOST_ROWS = 40


def save_cache_page(found: CacheAnalysis, path: str | Path, name: str, priced: Machine | None = None) -> None:
    """Write a page about the analysis of a trace; `priced` is the machine that its energy is for."""
    tiles = [
        ("Accesses", number_text(found.accesses)),
        ("Different lines", number_text(found.distinct)),
        ("Mean LRU distance", number_text(found.mean_distance)),
        ("First touches", f"{found.cold / found.accesses:.1%}"),
    ]
    if found.energy is not None and priced is not None:
        tiles.append((f"Energy on {priced.name}", energy_text(found.energy, energy_unit(priced.unit, priced))))
    sections = [
        f"<h1>{_text(name)}</h1>",
        '<dl class="tiles">'
        + "".join(f'<div class="tile"><dt>{_text(what)}</dt><dd>{_text(value)}</dd></div>' for what, value in tiles)
        + "</dl>",
        "<h2>Misses against cache size</h2>",
        f"<figure>{_curve(found)}</figure>",
        _table(["lines", "LRU misses", "LRU ratio", "OPT misses", "write-backs"], found.miss_rows),
    ]
    for what, most in found.largest_shares(_MOST_ROWS):
        rows = [[label, share.accesses, share.misses[found.middle]] for label, share in most]
        sections += [f"<h2>By {what}</h2>", _table([what, "accesses", f"misses at {found.middle:,} lines"], rows)]
    body = "\n".join(
        [*sections, f"<footer><p>Made by pebbler {VERSION}; complete in itself, it loads nothing.</p></footer>"]
    )
    write_text(
        path,
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(name)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<style>{base_style()} figure svg {{ background: #fff; border-radius: 8px; width: 34rem; }}</style></head>"
        f"<body>\n{body}\n</body></html>\n",
    )


def _curve(found: CacheAnalysis) -> str:
    """Return the miss curve as an SVG element."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "misses.svg")
        draw_misses(found, file, title="", size=(4.6, 3.2))  # letters of 10 pixels on a telephone
        text = file.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cell(value: Any) -> str:
        number = isinstance(value, int | float) or str(value)[:1].isdigit()
        text = number_text(value) if isinstance(value, int | float) else str(value)
        return f'<td class="n">{_text(text)}</td>' if number else f"<td>{_text(text)}</td>"

    head = "".join(f'<th scope="col">{_text(word)}</th>' for word in heads)
    lines = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _text(words: str) -> str:
    return escape(one_line(words))
