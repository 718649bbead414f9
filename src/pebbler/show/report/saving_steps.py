"""Schedules between program order and a plan, each with one more freedom, priced by the referee. They show why the plan is cheaper.

There is no search here. Every schedule follows from the plan by removing one freedom: recomputation, sweep directions, tiles,
fusions, order. A step therefore shows the gain of this plan from a freedom, given the freedoms before it. It does not show the
gain of the best plan with that freedom (`pebbler solve --compare` searches for that). A step may be a loss that a later step
recovers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import msgspec

from pebbler.errors import PebblerError
from pebbler.game.graph import Graph, Op
from pebbler.game.plan import Plan
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.game.tile_meta import TileMeta, origin, tile_numbers, tile_of
from pebbler.referee.judgement import Judgement, check
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem
from pebbler.solver.program_order import program_order_words
from pebbler.solver.tiling.transform_space import Transform, TransformSpace, form_of, transform_of

__all__ = ["SavingStep", "cut_words", "form_words", "saving_steps", "sources_by_origin"]


_MOST_NAMES = 6  # in a list of tensors or axes


@dataclass(frozen=True)
class SavingStep:
    """A schedule on the way from program order to a plan: what it has more than the one before, and what it costs."""

    name: str
    words: str
    energy: float | None  # None: it does not fit that way
    levels: list[float]


def saving_steps(plan: Plan, baseline: Plan | None, judgement: Judgement | None = None) -> list[SavingStep]:
    """Return the schedules from program order (`baseline`) to a plan; none if either is illegal or program order does not fit.

    `judgement` saves asking the referee about the plan again.

    >>> from pebbler import machine, workloads
    >>> step = workloads.note_mlp()
    >>> order = [op.name for op in step.ops]
    >>> order.insert(9, order.pop(order.index("upd_W2")))
    >>> caches = machine("notes-recency")
    >>> found = saving_steps(Plan.in_order(step, caches, order), Plan.in_order(step, caches))
    >>> [(one.name, one.energy) for one in found]
    [('program order', 11004490), ('order', 10844490)]
    """
    judgement = judgement or check(plan)
    if baseline is None or not judgement.legal:
        return []
    runtime = program_order_words(plan.machine)
    first_words = "The ops in the order of the program"
    first_words += f"; {runtime}." if runtime else "."
    first = _priced("program order", first_words, baseline)
    if first.energy is None:
        return []
    source = baseline.graph
    if plan.graph != source and not form_of(plan.graph, source):
        whole = "All freedoms at once: this form of the graph cannot be undone one freedom at a time."
        return [first, _step("the plan", whole, judgement)]
    steps = list(_Undone(plan, source).schedules())
    between = [_priced(name, words, schedule()) for name, words, schedule in steps[:-1]]
    return _telling([first, *between, _step(*steps[-1][:2], judgement)])


def _telling(steps: list[SavingStep]) -> list[SavingStep]:
    """Return the steps without those, between the first and the last, that change nothing."""
    kept = [steps[0]]
    kept += [step for before, step in pairwise(steps[:-1]) if step.levels != before.levels or step.energy is None]
    return [*kept, *steps[1:][-1:]]


def sources_by_origin(graph: Graph) -> dict[str, list[str]]:
    """Return, for whatever the ops of a graph are tiles of, the source ops that it is or was fused from.

    >>> from pebbler.game.transform import fuse, tile
    >>> from pebbler.workloads import mlp
    >>> sources_by_origin(tile(fuse(mlp(), "dW1"), "hidden", 500))["bwd_dW1+upd_W1"]
    ['bwd_dW1', 'upd_W1']
    """
    found: dict[str, list[str]] = {}
    for op in graph.ops:
        name = origin(op)
        if name not in found:
            found[name] = _source_ops(op)
    return found


def _source_ops(op: Op) -> list[str]:
    """Return the source ops that an op is a tile of or was fused from."""
    try:
        parts = msgspec.convert(op.meta.get("parts", []), list[_Part])
    except msgspec.ValidationError:  # somebody else's meta: it tells us nothing
        parts = []
    # Every cut after the fusion has put a number behind the parts' names as well.
    cut = tile_of(op)
    number = re.compile(rf"(\[\d+\]){{{0 if cut is None else len(cut.at)}}}$")
    found = [part.meta.tile.of if part.meta.tile is not None else number.sub("", part.name) for part in parts]
    return list(dict.fromkeys(found)) or [origin(op)]


class _PartMeta(msgspec.Struct):
    tile: TileMeta | None = None


class _Part(msgspec.Struct):
    """The entries that `fuse` writes about an op that became part of another, as far as needed here."""

    name: str
    meta: _PartMeta = msgspec.field(default_factory=_PartMeta)


def _priced(name: str, words: str, plan: Plan | None) -> SavingStep:
    return _step(name, words, None if plan is None else check(plan))


def _step(name: str, words: str, judgement: Judgement | None) -> SavingStep:
    if judgement is None or not judgement.legal:
        return SavingStep(name, words, None, [])
    return SavingStep(name, words, judgement.energy, list(judgement.levels.values()))


class _Undone:
    """A plan with its freedoms taken away one by one."""

    def __init__(self, plan: Plan, source: Graph) -> None:
        self.plan, self.source = plan, source
        self.explicit = plan.machine.management == "explicit"
        self.transform = transform_of(plan.graph, source) if plan.graph != source else Transform()
        self.space = TransformSpace(source)
        order = plan.moves.order.tolist()
        self.first_runs = list(dict.fromkeys(order))
        self.reruns = len(order) - len(self.first_runs)
        # When the plan first runs a piece of each source op: what orders whole ops are made from.
        self.place: dict[str, int] = {}
        sources, origins = sources_by_origin(plan.graph), [origin(op) for op in plan.graph.ops]
        for at, op in enumerate(order):
            for name in sources[origins[op]]:
                self.place.setdefault(name, at)

    def schedules(self) -> Iterator[tuple[str, str, Callable[[], Plan | None]]]:
        """Yield each freedom, in words, and the schedule that has it and those before; the last one is the plan's own."""
        transform, placed = self.transform, self.explicit and len(self.plan.moves) > 0
        yield (
            "order",
            "Whole ops, in the order in which the plan first runs a piece of each."
            + (" Values are moved on demand, and the least recently used are evicted." if self.explicit else ""),
            partial(self._whole, ()),
        )
        if transform.fused:
            words = f"{_listed(transform.fused)} are never stored: maker and reader run as one."
            yield "fusion", words, partial(self._whole, transform.fused)
        if transform.sizes:
            lengths = {axis: length for tensor in self.source.tensors for axis, length in tensor.axes or ()}
            cut = cut_words(transform.sizes, lengths)
            yield "tiling", f"{cut}; every sweep runs from the first tile to the last.", self._forward
            words = "Tiles in the plan's own order: a sweep begins with what the one before it left in fast memory."
            yield "reversed sweeps" if self._goes_back() else "order of the tiles", words, self._first_runs
        if placed:
            again = f", and {self.reruns:,} ops recomputed" if self.reruns else ""
            yield (
                "placement" + (" and recomputation" if again else ""),
                f"What is kept, copied and dropped{again}.",
                lambda: self.plan,
            )
        elif self.reruns:
            yield (
                "recomputation",
                f"{self.reruns:,} ops recomputed, whose results are not kept.",
                lambda: self.plan,
            )

    def _whole(self, fused: Sequence[str]) -> Plan | None:
        """Return whole ops, some temps fused away, as near to the plan's order as their hazards allow."""
        graph = self.space.transformed(Transform(fused=tuple(fused)))
        if graph is None:
            return None
        last, sources = len(self.plan.moves), sources_by_origin(graph)
        places = [min(self.place.get(name, last) for name in sources[origin(op)]) for op in graph.ops]
        return self._run(graph, schedule_by_key(ReadyList.of(graph.dataflow), key=places.__getitem__))

    def _forward(self) -> Plan | None:
        """Return the plan's tiles in sweeps that all go from first to last."""
        graph: Graph | None = self.plan.graph
        if self.transform.reverse:  # its sums go backwards, so it is cut anew
            graph = self.space.transformed(Transform(self.transform.sizes, self.transform.fused))
        if graph is None:
            return None
        tiles = [tuple(at.values()) for at in tile_numbers(graph)]
        return self._run(graph, schedule_by_key(ReadyList.of(graph.dataflow), key=tiles.__getitem__))

    def _goes_back(self) -> bool:
        """Whether the tiles of some op are mostly visited from last to first."""
        numbers = tile_numbers(self.plan.graph)
        visits: dict[str, list[tuple[int, ...]]] = {}
        for op in self.first_runs:
            visits.setdefault(origin(self.plan.graph.ops[op]), []).append(tuple(numbers[op].values()))
        back = [sum(b < a for a, b in pairwise(tiles)) for tiles in visits.values()]
        return any(2 * down > len(tiles) for down, tiles in zip(back, visits.values(), strict=True))

    def _first_runs(self) -> Plan | None:
        """Return the plan's ops in its order, each once."""
        return self._run(self.plan.graph, self.first_runs)

    def _run(self, graph: Graph, order: Sequence[int]) -> Plan | None:
        plan = self.plan
        names = [graph.op_names[op] for op in order]
        if not self.explicit:
            return Plan.in_order(graph, plan.machine, names, steady=plan.steady)
        known = {tensor.name for tensor in graph.tensors}
        start = {} if plan.steady else {name: where for name, where in plan.start.items() if name in known}
        try:
            problem = Problem.of(graph, plan.machine, steady=plan.steady, start=start)
            return demand_plan(problem, order, "least recent")
        except PebblerError:
            return None


def form_words(graph: Graph, source: Graph | None) -> str:
    """Return a description of how a graph was made from its source: temps fused away, axes cut into tiles.

    >>> from pebbler.game.transform import fuse, tile
    >>> from pebbler.workloads import mlp
    >>> form_words(tile(fuse(mlp(), "dW1"), "hidden", 500), mlp())
    'dW1 fused; hidden in tiles of 500'
    >>> form_words(mlp(), None)
    'mlp:n=20,hidden=1000'
    """
    if source is None or not form_of(graph, source):
        return graph.name
    transform = transform_of(graph, source)
    lengths = {axis: length for tensor in source.tensors for axis, length in tensor.axes or ()}
    parts = [f"{_listed(transform.fused)} fused"] if transform.fused else []
    parts += [cut_words(transform.sizes, lengths)] if transform.sizes else []
    return "; ".join(parts) or graph.name


def cut_words(sizes: Sequence[tuple[str, int]], lengths: Mapping[str, int]) -> str:
    """Return tile sizes in words: axes that are cut alike together, and the last tile where it is a smaller one.

    >>> cut_words([("a", 125), ("b", 125), ("out", 63)], {"a": 1000, "b": 1000, "out": 64})
    'a and b in tiles of 125; out in tiles of 63, the last of 1'
    """
    alike: dict[tuple[int, int], list[str]] = {}
    for axis, size in sizes:
        alike.setdefault((size, lengths.get(axis, size) % size), []).append(axis)
    return "; ".join(
        f"{_listed(axes)} in tiles of {size:,}" + (f", the last of {rest:,}" if rest else "")
        for (size, rest), axes in alike.items()
    )


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
