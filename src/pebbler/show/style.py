"""The style sheet shared by all of pebbler's pages."""

from __future__ import annotations

from importlib import resources

__all__ = ["base_style"]


def base_style() -> str:
    """Return the style sheet for any page: type, tables, tiles and colours, light and dark.

    >>> "--kind-param" in base_style()
    True
    """
    return resources.files("pebbler.show").joinpath("style.css").read_text(encoding="utf-8")
