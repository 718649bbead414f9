"""A chain as a value: what every node weighs and costs, and where such chains come from."""

from __future__ import annotations

import csv
import io as text_io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from pebbler.arrays import Floats
from pebbler.errors import InputError, blamed_on, near_matches, quoted
from pebbler.files import read_bytes
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.workloads.chains import chain_of

__all__ = ["Chain", "ChainParts", "chain_graph", "chain_machine", "chain_parts", "read_chain"]

_COLUMNS = ("size", "forward", "backward", "store", "load")
# Tables over all segments grow with the square of the length: longer ones are solved over some of their nodes.
GENERAL_LENGTH = 5000
MOST_LAYERS = 10_000_000  # of a chain whose nodes are alike: a few gigabytes, and minutes


@dataclass(frozen=True)
class Chain:
    """Nodes N_0 .. N_n, a forward step into each but the first, and the backward steps n .. 0.

    Backward(i) needs N_i and N_{i+1} in fast memory (Backward(n) only N_n), and `fast` units hold everything. With `adjoint`,
    as in revolve-style tools, there are the backward steps n-1 .. 0; each needs N_i only and does its own taped forward step
    (part of its cost); the state that a sweep carries has its own room, so `fast` counts checkpoints; entry n of `sizes`,
    `forward` and the others then stands for nothing. `start` says where N_0 is at first.

    >>> chain = Chain.uniform(3, red=3, io=10)
    >>> chain.length, chain.forward, chain.store
    (3, (0.0, 1.0, 1.0, 1.0), (10.0, 10.0, 10.0, 10.0))
    """

    sizes: tuple[int, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    store: tuple[float, ...]
    load: tuple[float, ...]
    fast: int
    adjoint: bool = False
    start: Literal["fast", "slow", "both"] = "fast"

    def __post_init__(self) -> None:
        nodes = len(self.sizes)
        if nodes < 2:
            raise InputError(
                f"a chain has at least 2 nodes (length 1), got {nodes}: with length 0 there is nothing to schedule"
            )
        for name in _COLUMNS[1:]:
            values = getattr(self, name)
            if len(values) != nodes:
                raise InputError(f"{name} must have one entry per node: {nodes}, as sizes has; got {len(values)}")
            for i, value in enumerate(values):
                if not value >= 0 or (math.isinf(value) and name in ("forward", "backward")):
                    limit = "" if name in ("store", "load") else " and finite"
                    raise InputError(f"{name}[{i}] must be >= 0{limit}, got {value}")
        for i, size in enumerate(self.sizes):
            if size != int(size) or size < 1:
                raise InputError(f"sizes[{i}] must be a whole number >= 1, got {size}")
        if self.start not in ("fast", "slow", "both"):
            raise InputError(f"start must be fast, slow or both, got {quoted(self.start)}")
        if self.adjoint and self.start != "fast":
            raise InputError("an adjoint chain starts with N_0 at hand: start must be fast")
        self._require_room()

    def _require_room(self) -> None:
        if self.fast != int(self.fast) or self.fast < (0 if self.adjoint else 1):
            raise InputError(f"fast memory must be a whole number of units, at least 1, got {self.fast}")
        if self.adjoint:
            return
        sizes = np.array(self.sizes)
        pairs = sizes[:-1] + sizes[1:]
        i = int(np.argmax(pairs))
        if pairs[i] > self.fast:
            raise InputError(
                f"Backward({i}) needs N_{i} and N_{i + 1} in fast memory together, {pairs[i]} units; it has {self.fast}. "
                f"The least for this chain is {pairs[i]}"
            )

    @classmethod
    def uniform(
        cls,
        length: int,
        red: int,
        compute: float = 1.0,
        io: float = 100.0,
        *,
        store: float | None = None,
        load: float | None = None,
        backward: float | None = None,
        adjoint: bool = False,
    ) -> Chain:
        """Return note 001's chain: nodes of one unit, every forward and backward step the same, every store and load too."""
        whole_number("length", length, 1)
        if length > MOST_LAYERS:
            raise InputError(f"length must be at most {MOST_LAYERS:,} layers, got {length:,}")
        whole_number("red", red, 0 if adjoint else 1)
        store, load = io if store is None else store, io if load is None else load
        backward = compute if backward is None else backward
        for name, value in (("compute", compute), ("store", store), ("load", load), ("backward", backward)):
            if not value >= 0 or (math.isinf(value) and name in ("compute", "backward")):
                shown = "io" if name in ("store", "load") and (io == value or math.isnan(io)) else name
                raise InputError(f"{shown} must be a cost >= 0, got {value}")
        nodes = length + 1
        return cls(
            (1,) * nodes,
            (0.0,) + (float(compute),) * length,
            (float(backward),) * nodes,
            (float(store),) * nodes,
            (float(load),) * nodes,
            red,
            adjoint,
        )

    @property
    def length(self) -> int:
        """The number of forward steps, n."""
        return len(self.sizes) - 1

    @property
    def last(self) -> int:
        """The first backward step to be done: n, or n - 1 in the adjoint convention."""
        return self.length - 1 if self.adjoint else self.length

    @property
    def backward_total(self) -> float:
        """The cost of the backward steps; every schedule pays it once."""
        return math.fsum(self.backward[: self.last + 1])

    @cached_property
    def scale(self) -> EnergyScale:
        """The scale at which the energies of its schedules are exact."""
        return EnergyScale.of_amounts([self.forward, self.backward, self.store, self.load])

    @cached_property
    def is_uniform(self) -> bool:
        """Whether every node is like every other, N_0's store aside (it may be in slow memory from the start).

        Not so where N_0 can come back from slow memory and no other node can get there.
        """
        n = self.length
        if n > 1 and math.isinf(self.store[1]) and math.isfinite(self.store_of_first + self.load[0]):
            return False
        return (
            len(set(self.sizes)) == 1
            and len(set(self.forward[1:])) == 1
            and len(set(self.store[1:n])) <= 1
            and (n == 1 or self.store_of_first <= self.store[1])
            and len(set(self.load[:n])) == 1
        )

    @property
    def store_of_first(self) -> float:
        """The cost of having N_0 in slow memory."""
        return self.store[0] if self.start == "fast" else 0.0

    def prefix(self) -> Floats:
        """Return the cost of computing each node from N_0, once each."""
        return np.concatenate([[0.0], np.cumsum(np.array(self.forward[1:]))])


def whole_number(name: str, value: float, least: int) -> None:
    """Refuse a count that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not math.isfinite(value) or value != int(value) or value < least:
        raise InputError(f"{name} must be a whole number >= {least}, got {value}")


def chain_graph(chain: Chain) -> Graph:
    """Return the graph of a chain: `c5` computes N5, `b5` is Backward(5).

    >>> [op.name for op in chain_graph(Chain.uniform(2, red=3)).ops]
    ['c1', 'c2', 'b2', 'b1', 'b0']
    """
    name, sizes = f"chain:length={chain.length}", chain.sizes[: chain.last + 1]
    return chain_of(name, sizes, chain.forward, chain.backward, adjoint=chain.adjoint)


@dataclass(frozen=True)
class ChainParts:
    """The parts of a chain in a graph: the numbers of tensors and ops, from N_0 up."""

    nodes: tuple[int, ...]
    forward: tuple[int, ...]  # the first is -1: nothing computes N_0
    backward: tuple[int, ...]


def chain_parts(chain: Chain) -> ChainParts:
    """Return the parts of a chain in its `chain_graph`.

    >>> chain_parts(Chain.uniform(2, red=3))
    ChainParts(nodes=(0, 1, 2), forward=(-1, 0, 1), backward=(4, 3, 2))
    """
    last = chain.last
    return ChainParts(tuple(range(last + 1)), tuple(range(-1, last)), tuple(range(2 * last, last - 1, -1)))


def chain_machine(chain: Chain, capacity: int) -> Machine:
    """Return the red-blue machine of a chain, where one exists: stores and loads must cost the same per unit everywhere.

    >>> chain_machine(Chain.uniform(2, red=3, io=5), 3).level[1].read
    5.0
    """
    prices = []
    for name, costs in (("store", chain.store), ("load", chain.load)):
        rates = {cost / size for cost, size in zip(costs[: chain.length], chain.sizes[: chain.length], strict=True)}
        if len(rates) != 1:
            raise InputError(
                f"a machine has one price per unit, but this chain's {name} costs are not in proportion to its sizes; "
                "so it has no plan file (leave out --output), but its schedule is there as moves()"
            )
        prices.append(rates.pop())
    write, read = prices
    fast = Level("fast", 0.0, 0.0, capacity=capacity)
    if math.isinf(read) or math.isinf(write):
        return Machine("red", "pebble", (fast,))
    return Machine("red-blue", "pebble", (fast, Level("slow", read, write)))


def read_chain(
    sizes: str | Path | None,
    costs: str | Path | None,
    fast: int,
    compute: float = 1.0,
    io: float = 100.0,
    *,
    adjoint: bool = False,
) -> Chain:
    """Return a general chain from CSV files with one row per node, N_0 first, and a header.

    `sizes` has the column size; `costs` has one or more of forward, backward, store, load. Either may have them all, and a
    column node that numbers the rows. What is missing is 1 unit, `compute` per step, and `io` per unit moved.
    """
    if sizes is None and costs is None:
        raise InputError("a general chain needs a file of sizes, a file of costs, or both")
    files = ", ".join(str(path) for path in (sizes, costs) if path is not None)
    columns: dict[str, list[float]] = {}
    for path, wanted in ((sizes, _COLUMNS[:1]), (costs, _COLUMNS[1:])):
        if path is not None:
            found = _read_columns(path, wanted)
            for name, values in found.items():
                columns.setdefault(name, values)
    counts = {name: len(values) for name, values in columns.items()}
    if len(set(counts.values())) != 1:
        raise InputError(
            f"the files disagree on the number of nodes: {', '.join(f'{k} has {v}' for k, v in counts.items())}"
        )
    nodes = next(iter(counts.values()))
    size = [_whole_size(value, i, sizes or costs) for i, value in enumerate(columns.get("size", [1.0] * nodes))]
    forward = columns.get("forward", [float(compute)] * nodes)
    moved = [io * units for units in size]
    with blamed_on(files):
        return Chain(
            tuple(size),
            (0.0, *forward[1:]),
            tuple(columns.get("backward", [float(compute)] * nodes)),
            tuple(columns.get("store", moved)),
            tuple(columns.get("load", moved)),
            fast,
            adjoint,
        )


def _whole_size(value: float, node: int, path: str | Path | None) -> int:
    if not (value >= 1 and value.is_integer()):
        raise InputError(f"{path}: the size of N_{node} must be a whole number >= 1, got {value:g}")
    return int(value)


def _read_columns(path: str | Path, wanted: Sequence[str]) -> dict[str, list[float]]:
    try:
        text = read_bytes(path).decode("utf-8-sig")
        rows = list(csv.reader(text_io.StringIO(text), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    header = [cell.strip() for cell in rows[0]] if rows else []
    known = ("node", *_COLUMNS)
    for name in header:
        if name not in known:
            raise InputError(f"{path}: no column {quoted(name)} is known{near_matches(name, known)}")
    if len(set(header)) != len(header):
        raise InputError(f"{path}: a column is named twice: {', '.join(header)}")
    if not set(header) & set(wanted):
        raise InputError(f"{path}: expected a header with {' or '.join(wanted)}, got {', '.join(header) or 'nothing'}")
    columns: dict[str, list[float]] = {name: [] for name in header}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise InputError(f"{path}: row {line} has {len(row)} cells, the header {len(header)}")
        for name, cell in zip(header, row, strict=True):
            try:
                value = float(cell)
            except ValueError:
                raise InputError(f"{path}: row {line}: {name} must be a number, got {quoted(cell)}") from None
            if not value >= 0:
                raise InputError(f"{path}: row {line}: {name} must be >= 0, got {quoted(cell)}")
            columns[name].append(value)
    if "node" in columns and columns.pop("node") != list(range(len(rows) - 1)):
        raise InputError(f"{path}: node must number the rows 0, 1, 2, ...: one row per node, N_0 first")
    return columns
