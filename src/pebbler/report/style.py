"""The look that all of pebbler's pages share."""

from __future__ import annotations

from importlib import resources

__all__ = ["asset", "base_style"]


def asset(name: str) -> str:
    """Return the text of a file in `report/assets`."""
    return resources.files("pebbler.report").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


def base_style() -> str:
    """Return the style sheet for any page: type, tables, tiles and colours, light and dark.

    >>> "--level-0" in base_style()
    True
    """
    return asset("base.css")
