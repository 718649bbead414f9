"""The page of `pebbler play`: games, scripts and styles in one file that needs no network."""

from __future__ import annotations

from html import escape
from string import Template

from pebbler.errors import one_line
from pebbler.show.play.hand_levels import PlayData, to_json
from pebbler.show.report.report_page import asset, embedded, one_function, script_policy
from pebbler.show.style import base_style

__all__ = ["page"]

# In the order in which they need one another; together they are one function's body.
SCRIPTS = ("dom", "rules", "timeline", "planfile", "optimum", "planroute", "handgame", "board", "handview", "playpage")


def page(data: PlayData) -> str:
    """Return the page as HTML.

    >>> from pebbler.show.play.hand_levels import own_level
    >>> page(own_level("chain:length=2")).startswith("<!doctype html>")
    True
    """
    script = one_function(SCRIPTS)
    return Template(asset("play.html")).substitute(
        policy=script_policy([script]),
        version=escape(data.version),
        title=escape(one_line(data.title)),
        style=base_style() + asset("report.css") + asset("play.css"),
        data=embedded(to_json(data)),
        script=f"<script>{script}</script>",
    )
