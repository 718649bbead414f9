"""Puzzles of `pebbler play`: the built-in puzzles and the user's own games, each with its optimum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.machine import machine as get_machine
from pebbler.game.moves import MoveList
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.show.play.level_graphs import HandGame, level_games, red_blue
from pebbler.show.report.page_data import GraphData
from pebbler.show.report.report_page import filled_page, json_element
from pebbler.solver import solve
from pebbler.solver.capacity import op_requirement
from pebbler.solver.chain.recognise import as_chain
from pebbler.solver.problem import Problem, Start
from pebbler.workloads import load_subject

__all__ = ["HandLevel", "PlayData", "builtin_levels", "level_of", "own_level", "page"]

MOST_VALUES = 400  # a board with more is a wall
IO = 100.0


@dataclass(frozen=True)
class MovesData:
    """Moves as flat lists, as `Moves` numbers them."""

    kind: list[int]
    subject: list[int]
    level: list[int]
    to: list[int]


@dataclass(frozen=True)
class HandLevel:
    """One game: a graph, its memory, and the least that it costs."""

    name: str  # in links
    title: str
    about: str
    graph: GraphData
    machine: Machine
    capacity: list[int]
    steady: bool
    start: list[int]  # per value: the levels that hold it at the start, as bits
    optimum: float | None  # proven; None where the solver ran out of time
    plan: MovesData | None  # costs the optimum


@dataclass(frozen=True)
class PlayData:
    """Everything on the page."""

    title: str
    version: str
    levels: list[HandLevel]


def builtin_levels(time_limit: float = 20.0) -> PlayData:
    """Return the levels from three nodes to note 001's chain.

    >>> [level.title for level in builtin_levels().levels][:2]
    ['A sum', 'A line']
    """
    return _play_data("The pebble game", [_solved(game, time_limit) for game in level_games()])


def own_level(
    subject: Graph | Plan | str | Path,
    *,
    red: int | None = None,
    io: float | None = None,
    machine: Machine | str | Path | None = None,
    time_limit: float = 20.0,
) -> PlayData:
    """Return a graph or plan of one's own as a game.

    >>> own_level("chain:length=3", red=3, io=5).levels[0].optimum
    8
    """
    found = load_subject(subject) if isinstance(subject, str | Path) else subject
    graph = found.graph if isinstance(found, Plan) else found
    if machine is not None and (red is not None or io is not None):
        raise InputError(
            "a machine says how many red pebbles there are and what a load costs: give it, or --red and --io"
        )
    if machine is not None:
        chosen = get_machine(machine)
    elif isinstance(found, Plan) and red is None and io is None:
        chosen = found.machine
    else:
        chosen = _red_blue(graph, red, io)
    chosen = chosen.in_unit(graph.unit)
    _require_red_blue(graph, chosen)
    if isinstance(found, Plan):
        start: Start = {name: where for name, where in found.start.items() if machine is None}
    else:
        start = _chain_start(graph, chosen)
    about = f"{_room(chosen)}; a load costs {_load(chosen):g} per unit."
    game = HandGame("own", graph.name or "graph", about, graph, chosen, start)
    return _play_data(f"{graph.name}: the pebble game", [_solved(game, time_limit)])


def _play_data(title: str, levels: list[HandLevel]) -> PlayData:
    from pebbler.version import VERSION

    return PlayData(title, VERSION, levels)


def _room(machine: Machine) -> str:
    """Return the capacity of the fast level, in words."""
    count = machine.level[0].capacity
    if machine.unit == "pebble":
        return f"{count:,} red pebble{'' if count == 1 else 's'}"
    return f"Fast memory holds {count:,} {machine.unit}"


def _load(machine: Machine) -> float:
    return machine.level[1].read + machine.level[0].write


def _red_blue(graph: Graph, red: int | None, io: float | None) -> Machine:
    """Return the machine with so many red pebbles; without a number, the fewest with which the game can be played."""
    price = IO if io is None else io
    if not 0 <= price < float("inf"):
        raise InputError(f"the price of a load or store must be a number from 0 up, got {price}")
    if red is not None and red < 1:
        raise InputError(f"a game needs at least one red pebble, got {red}")
    if red is None:
        least = op_requirement(Problem.of(graph, red_blue(1, price, graph.unit), steady=False))
        red = max(1, least.units if least is not None else 1)
    return red_blue(red, price, graph.unit)


def _require_red_blue(graph: Graph, machine: Machine) -> None:
    if machine.management != "explicit" or machine.operands != "fastest" or len(machine.level) != 2:
        raise InputError(
            f"machine {quoted(machine.name)} is no red-blue game: it takes two levels, management explicit and operands fastest"
        )
    values = graph.dataflow.values
    if not graph.ops:
        raise InputError(f"graph {quoted(graph.name)} has no ops: there is nothing to play")
    if values > MOST_VALUES:
        raise InputError(f"graph {quoted(graph.name)} has {values:,} values; a board has room for {MOST_VALUES}")


def _chain_start(graph: Graph, machine: Machine) -> Start:
    """Return the start: a chain's first node has a red pebble, as in note 001; everything else that is given a blue one."""
    found = as_chain(graph, machine)
    return {} if found is None else {graph.tensor_names[found[1].nodes[0]]: machine.names[0]}


def _solved(game: HandGame, time_limit: float) -> HandLevel:
    """Return a game with its optimum, where that is proven in time."""
    plan = solve(game.graph, game.machine, steady=False, start=game.start, tile="none", time_limit=time_limit)
    return level_of(game, plan if plan.status == "optimal" else None)


def level_of(game: HandGame, optimal: Plan | None = None) -> HandLevel:
    """Return a game as the page holds it, with a plan that is proven optimal, or without.

    >>> from pebbler.show.play.level_graphs import level_games
    >>> level_of(level_games()[0]).start
    [2, 2, 0]
    """
    graph, machine = game.graph, game.machine
    plan = optimal or Plan(graph, machine, MoveList().moves(graph, machine), start=game.start, steady=False)
    start = [0] * graph.dataflow.values
    for value, level in plan.replay().start:
        start[value] |= 1 << level
    moves = plan.moves
    lists = MovesData(moves.kind.tolist(), moves.subject.tolist(), moves.level.tolist(), moves.to.tolist())
    return HandLevel(
        name=game.name,
        title=game.title,
        about=game.about,
        graph=GraphData.of(graph, plan.energy_unit),
        machine=machine,
        capacity=pricing.capacities(machine).tolist(),
        steady=False,
        start=start,
        optimum=None if optimal is None else optimal.energy,
        plan=None if optimal is None else lists,
    )


# In the order in which they need one another; together they are one function's body.
SCRIPTS = ("dom", "rules", "timeline", "planfile", "optimum", "planroute", "handgame", "board", "handview", "playpage")


def page(data: PlayData) -> str:
    """Return the page as HTML.

    >>> page(own_level("chain:length=2")).startswith("<!doctype html>")
    True
    """
    return filled_page(
        "play.html",
        title=data.title,
        styles=("report.css", "play.css"),
        scripts=SCRIPTS,
        data=json_element(msgspec.json.encode(data)),
        version=data.version,
    )
