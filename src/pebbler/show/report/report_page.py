"""The report page: data, scripts and styles in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

from pebbler.errors import one_line
from pebbler.show.report.page_data import ReportData, to_json
from pebbler.show.style import base_style

__all__ = ["page"]

MOST_FRAMED = 4_000_000  # characters; a notebook with more in one cell becomes slow
MOST_READABLE = 500_000  # bytes of data that stand in the page as they are
LIBRARIES = ("d3-7.9.2", "plot-0.6.17", "dagre-1.1.8")
# In the order in which they need one another; together they are one function's body.
SCRIPTS = (
    "dom",
    "download",
    "pen",
    "rules",
    "caches",
    "timeline",
    "lanes",
    "laneview",
    "orderview",
    "tilesview",
    "layout",
    "graphview",
    "stage",
    "schedule",
    "running",
    "planfile",
    "sources",
    "player",
    "lives",
    "holding",
    "stories",
    "stacks",
    "memoryplot",
    "memory",
    "distances",
    "distanceview",
    "charts",
    "landscape",
    "diff",
    "summary",
    "savings",
    "steptime",
    "stepsummary",
    "stepplot",
    "stepshares",
    "stepview",
    "optimum",
    "planroute",
    "handgame",
    "board",
    "handview",
    "playsection",
    "habits",
    "main",
)


def page(data: ReportData, appendix: str = "") -> str:
    """Return the page as HTML; `appendix` is HTML of ours that comes after the views.

    Data goes in as JSON in which no tag can end or begin, and the policy lets only the scripts written here run: by their hashes.

    >>> from pebbler import Plan, machine, workloads
    >>> from pebbler.show.report.page_data import gather
    >>> page(gather([Plan.in_order(workloads.chain(2), machine("red-blue"), start={"N0": "fast"})])).startswith("<!doctype html>")
    True
    """
    return filled_page(
        "page.html",
        title=data.title,
        styles=("report.css", "play.css"),
        libraries=LIBRARIES,
        scripts=SCRIPTS,
        data=_data_element(to_json(data)),
        version=data.version,
        appendix=appendix,
    )


def filled_page(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: str,
    version: str,
    libraries: Sequence[str] = (),
    appendix: str = "",
) -> str:
    """Return one of our pages as HTML: a template of `report/assets` with head, styles, scripts, licences and data filled in."""
    texts = [asset(f"vendor/{name}.min.js") for name in libraries]
    texts.append(one_function(scripts))
    words = {"title": escape(one_line(title)), "version": escape(version)}
    head = Template(asset("head.html")).substitute(
        words, policy=script_policy(texts), style=base_style() + "".join(map(asset, styles))
    )
    licences = "".join(
        f"<h4>{name.replace('-', ' ')}</h4><pre>{escape(asset(f'vendor/{name}.LICENSE'))}</pre>" for name in libraries
    )
    return Template(asset(template)).substitute(
        words,
        head=head,
        licences=licences,
        appendix=appendix,
        data=data,
        scripts="\n".join(f"<script>{text}</script>" for text in texts),
    )


def json_element(json: bytes) -> str:
    """Return data as an element that a page's scripts read as it stands."""
    return f'<script type="application/json" id="data">{embedded(json)}</script>'


def _data_element(json: bytes) -> str:
    """Return the data as an element: readable where it is short, otherwise packed, which the page undoes by itself."""
    if len(json) <= MOST_READABLE:
        return json_element(json)
    return f'<script type="application/zlib" id="data">{base64.b64encode(zlib.compress(json, 9)).decode()}</script>'


def framed(data: ReportData) -> str | None:
    """Return the page in a frame, as a notebook shows it; None where it is too long for one."""
    text = page(data)
    if len(text) > MOST_FRAMED:
        return None
    return f'<iframe srcdoc="{escape(text)}" style="width:100%;height:46rem;border:0" title="{escape(data.title)}"></iframe>'


def one_function(names: Sequence[str]) -> str:
    """Return some of our scripts as the body of one function, in the order given."""
    return "(() => {\n'use strict';\n" + "\n".join(asset(f"{name}.js") for name in names) + "\n})();"


def script_policy(scripts: Sequence[str]) -> str:
    """Return the policy under which a page's own scripts run, by their hashes, and nothing is loaded."""
    assert not any("</script" in script or "<!--" in script for script in scripts), "would end the element it is in"
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    # Plot writes style elements into its drawings, so styles cannot go by hash.
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def embedded(json: bytes) -> str:
    """Return JSON that can stand in a script element: whatever is in its strings, no markup is.

    >>> embedded(b'["</script>&"]')
    '["\\\\u003c/script\\\\u003e\\\\u0026"]'
    """
    text = json.decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """Return the text of a file in `report/assets`."""
    return resources.files("pebbler.show.report").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")
