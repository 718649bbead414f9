"""The red-blue pebble game by hand: `play(path)` writes one page that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan

if TYPE_CHECKING:
    from pebbler.show.play.hand_levels import PlayData

__all__ = ["play"]


def play(
    path: str | Path,
    subject: Graph | Plan | str | Path | None = None,
    *,
    red: int | None = None,
    io: float | None = None,
    machine: Machine | str | Path | None = None,
    time_limit: float = 20.0,
) -> PlayData:
    """Write a page on which a pebble game is played by hand, and return what is on it.

    Without a subject the page has levels, from three nodes to note 001's chain. A subject is a graph (or a file, or a built-in
    workload) or a plan; `red` are the units of fast memory, `io` the price of a load or a store per unit, or a `machine` says
    both. Every game's optimum is solved for first, in at most `time_limit` seconds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = play(Path(folder, "play.html"), "chain:length=5", red=3)
    >>> [(level.title, level.optimum) for level in made.levels]
    [('chain:length=5', 19)]
    """
    from pebbler.files import write_text
    from pebbler.show.play.hand_levels import builtin_levels, own_level, page

    if Path(path).suffix.lower() not in (".html", ".htm", ""):
        raise InputError(f"{path}: a game is a page, and is written as .html")
    if subject is None and any(given is not None for given in (red, io, machine)):
        raise InputError("the number of red pebbles, prices and machines are for a graph of your own: name one")
    made = (
        builtin_levels(time_limit)
        if subject is None
        else own_level(subject, red=red, io=io, machine=machine, time_limit=time_limit)
    )
    write_text(path, page(made))
    return made
