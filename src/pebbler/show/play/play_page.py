"""The page of `pebbler play`: games, scripts and styles in one file that needs no network."""

from __future__ import annotations

from pebbler.show.play.hand_levels import PlayData, to_json
from pebbler.show.report.report_page import filled_page, json_element

__all__ = ["page"]

# In the order in which they need one another; together they are one function's body.
SCRIPTS = ("dom", "rules", "timeline", "planfile", "optimum", "planroute", "handgame", "board", "handview", "playpage")


def page(data: PlayData) -> str:
    """Return the page as HTML.

    >>> from pebbler.show.play.hand_levels import own_level
    >>> page(own_level("chain:length=2")).startswith("<!doctype html>")
    True
    """
    return filled_page(
        "play.html",
        title=data.title,
        styles=("report.css", "play.css"),
        scripts=SCRIPTS,
        data=json_element(to_json(data)),
        version=data.version,
    )
