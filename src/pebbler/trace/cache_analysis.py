"""Analysis of a trace for several cache sizes at once: distances, LRU and OPT misses, write-backs and energy, by tensor and op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pebbler.arrays import Bools, Int32s, Ints
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.trace.caches import WriteBacks, opt_misses
from pebbler.trace.distances import Packer, ReuseProfile, check_sizes
from pebbler.trace.energy import LruEnergy, lru_energy
from pebbler.trace.kernels.set_associative import since_write
from pebbler.trace.trace_files import SEVERAL, NameTable
from pebbler.trace.traces import Trace

__all__ = ["CacheAnalysis", "Share", "analyse", "parse_sizes", "roles"]

# Belady's rule looks into the future, so its trace is held in memory, at some 20 bytes an access.
MOST_FOR_OPT = 200_000_000
LADDER = [4**k for k in range(1, 21)]


@dataclass(frozen=True)
class Share:
    """The share of one tensor or op in a trace: its accesses, and its LRU misses by cache size."""

    accesses: int
    misses: dict[int, int]


@dataclass(frozen=True)
class CacheAnalysis:
    """The figures of a trace in caches of several sizes. Sizes are in lines, distances are 1-based, energies in the machine's unit.

    `ard` is the notes' average reuse distance (accesses since the last write of the word), over reads of words that were written;
    `mean_distance` is the LRU stack distance over all accesses that are not first touches.
    """

    accesses: int
    distinct: int
    cold: int
    line: int
    mean_distance: float
    ard: float | None
    dmd: float
    lru: dict[int, int]
    opt: dict[int, int] | None
    opt_bypass: dict[int, int] | None
    write_backs: dict[int, int]
    tensors: dict[str, Share]
    ops: dict[str, Share]
    profile: ReuseProfile
    energy: float | None = None
    energy_levels: dict[str, float] | None = None

    def shares(self, owner_of: Mapping[str, str]) -> dict[str, Share]:
        """Return the tensors' shares added up by owner, such as `roles(graph)`: parameters, activations, gradients.

        >>> from pebbler.trace import trace_plan
        >>> from pebbler.workloads import mlp
        >>> graph = mlp(n=4, hidden=5)
        >>> {who: share.accesses for who, share in analyse(trace_plan(graph), [8]).shares(roles(graph)).items()}
        {'parameter': 98, 'input': 10, 'activation': 35, 'gradient': 91}
        """
        total: dict[str, Share] = {}
        for name, share in self.tensors.items():
            owner = owner_of.get(name, name)
            old = total.get(owner, Share(0, dict.fromkeys(share.misses, 0)))
            misses = {size: count + old.misses[size] for size, count in share.misses.items()}
            total[owner] = Share(old.accesses + share.accesses, misses)
        return total

    @property
    def miss_rows(self) -> list[list[Any]]:
        """The table of misses by cache size: LRU, as a share of all accesses, OPT, and write-backs."""
        opt: Mapping[int, Any] = dict.fromkeys(self.lru, "-") if self.opt is None else self.opt
        return [
            [size, count, f"{count / self.accesses:.2%}", opt[size], self.write_backs[size]]
            for size, count in self.lru.items()
        ]

    @property
    def middle(self) -> int:
        """The size in the middle."""
        return sorted(self.lru)[len(self.lru) // 2]

    def largest_shares(self, most: int) -> Iterator[tuple[str, list[tuple[str, Share]]]]:
        """Yield the tensors, then the ops, with most misses in the cache of middle size; nothing where there is only one."""
        for what, shares in (("tensor", self.tensors), ("op", self.ops)):
            if len(shares) > 1:
                yield what, sorted(shares.items(), key=lambda item: -item[1].misses[self.middle])[:most]

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as `pebbler cache --json` prints it."""
        left_out = {"profile"} if self.energy is not None else {"profile", "energy", "energy_levels"}
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}
        result: dict[str, Any] = msgspec.to_builtins(shown, str_keys=True)
        return result


def roles(graph: Graph) -> dict[str, str]:
    """Return the role of each tensor in training: parameter, input, gradient (from its `meta`), or activation.

    >>> from pebbler.workloads import mlp
    >>> [roles(mlp())[name] for name in ("W1", "x", "h", "dW1")]
    ['parameter', 'input', 'activation', 'gradient']
    """
    known = {"param": "parameter", "input": "input"}
    return {t.name: str(t.meta.get("role") or known.get(t.kind, "activation")) for t in graph.tensors}


def analyse(
    trace: str | Path | Trace | Iterable[Trace],
    sizes: Sequence[int] | None = None,
    *,
    line: int | None = None,
    opt: bool = True,
    machine: Machine | None = None,
    steady: bool = False,
) -> CacheAnalysis:
    """Return the figures of a trace in caches of the given sizes. The trace is a file, a `Trace`, or its pieces in order.

    Without `sizes`, powers of four up to the number of different lines are taken. `machine` prices the trace by the `lru` rule,
    as the referee prices the plan it came from; where the trace gives the bytes per address, the machine is converted to
    such units, otherwise addresses are in its unit. Lines are the machine's unless `line` is given, or of 1 unit.

    >>> found = analyse(Trace.of_addresses([7, 8, 8, 9, 7]), [1, 2])
    >>> found.lru, found.opt, found.mean_distance
    ({1: 4, 2: 4}, {1: 4, 2: 3}, 2.0)
    """
    pieces = iter(
        Trace.chunks(trace) if isinstance(trace, str | Path) else [trace] if isinstance(trace, Trace) else trace
    )
    first = next(pieces, None)
    if first is None:
        raise InputError("the trace is empty: there is nothing to analyse")
    machine = None if machine is None else _in_units_of(machine, first.unit_bytes)
    if line is None:
        line = 1 if machine is None else machine.line
    if not 1 <= line < 2**63:
        raise InputError(f"line must be a whole number of units from 1 to 2^63 - 1, got {line}")
    ladder = np.unique(check_sizes(LADDER if sizes is None else sizes))
    read = _Reader(line, ladder, keep=opt or machine is not None)
    for piece in chain([first], pieces):
        read.take(piece)
    profile = read.back.stack.profile()
    shown = ladder if sizes is not None else ladder[: int(np.searchsorted(ladder, profile.distinct)) + 1]
    wanted = shown.tolist()

    def by_size(counts: Ints) -> dict[int, int]:
        return dict(zip(wanted, counts.tolist(), strict=True))

    lines = np.concatenate(read.lines) if read.keep else None
    priced = None if machine is None else read.priced(lines, machine, steady=steady)
    return CacheAnalysis(
        accesses=profile.accesses,
        distinct=profile.distinct,
        cold=profile.cold,
        line=line,
        mean_distance=profile.mean_distance,
        ard=read.since_write / read.reads_of_written if read.reads_of_written else None,
        dmd=profile.dmd(),
        lru=by_size(profile.misses(wanted)),
        opt=by_size(opt_misses(lines, wanted)) if lines is not None and opt else None,
        opt_bypass=by_size(opt_misses(lines, wanted, bypass=True)) if lines is not None and opt else None,
        write_backs=by_size(read.back.evicted(wanted) + read.back.left(wanted)),
        tensors=read.tensors.shares(len(wanted)),
        ops=read.ops.shares(len(wanted)),
        profile=profile,
        energy=None if priced is None else priced.energy,
        energy_levels=None if priced is None or machine is None else _level_energies(priced, machine),
    )


def _in_units_of(machine: Machine, unit_bytes: int | None) -> Machine:
    """Return the machine in the unit of a trace; addresses that nobody says the bytes of count the machine's own."""
    if unit_bytes is None:
        return machine
    if unit_bytes == SEVERAL:
        raise InputError(
            f"the trace has elements of several sizes, so its addresses cannot be placed in the lines of {machine.name}; "
            "record arrays of one dtype, or leave the machine out"
        )
    return machine.in_bytes(unit_bytes)


def parse_sizes(text: str | None) -> list[int] | None:
    """Return cache sizes written as `64,16384,65536`; K, M and G stand for powers of 1024.

    >>> parse_sizes("64, 16K")
    [64, 16384]
    """
    if text is None:
        return None
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for word in (part.strip() for part in text.split(",")):
        factor = scale.get(word[-1:].upper(), 1)
        digits = word[:-1] if factor > 1 else word
        if not digits.isdecimal() or int(digits) == 0:
            raise InputError(f"cache sizes must be whole numbers of at least 1, as 64,16384,1M; got {word!r}")
        sizes.append(int(digits) * factor)
    return sizes


class _Reader:
    """One pass over a trace: what can be counted as it goes by, and the trace itself as far as it must be kept."""

    def __init__(self, line: int, ladder: Ints, *, keep: bool) -> None:
        self.line = line
        self.keep = keep  # until the trace is too long to be kept
        self.accesses = 0
        self.back = WriteBacks()
        self.tensors, self.ops = _Owners(ladder), _Owners(ladder)
        self.since_write, self.reads_of_written = 0, 0
        self.lines: list[Ints] = []
        self._writes: list[Bools] = []
        self._follows: list[Bools] = []
        self._before: Trace | None = None
        self._packer = Packer()
        self._written = np.zeros(0, np.int64)

    def take(self, piece: Trace) -> None:
        """Read the next piece of the trace."""
        lines = piece.address // self.line
        distance = self.back.feed(lines, piece.write)
        self.tensors.take(piece.tensor_names, piece.tensor, distance)
        self.ops.take(piece.op_names, piece.op, distance)
        ids = self._packer.ids(lines)
        more = np.full(self._packer.count - self._written.size, -1, np.int64)
        self._written = np.concatenate([self._written, more])
        total, count = since_write(ids, piece.write, self.accesses, self._written)
        self.since_write += total
        self.reads_of_written += count
        self.accesses += len(piece)
        self.keep = self.keep and self.accesses <= MOST_FOR_OPT
        if self.keep:
            self.lines.append(lines)
            self._writes.append(piece.write)
            self._follows.append(_follows(piece, self.line, self._before))
            self._before = piece

    def priced(self, lines: Ints | None, machine: Machine, *, steady: bool) -> LruEnergy:
        """Return the cost of the whole trace by the `lru` rule."""
        if lines is None:
            raise InputError(f"a trace of more than {MOST_FOR_OPT:,} accesses cannot be priced in memory")
        starts = np.flatnonzero(~np.concatenate(self._follows))
        return lru_energy(
            lines[starts],
            np.concatenate(self._writes)[starts],
            [level.capacity for level in machine.level],
            [level.read for level in machine.level],
            [level.write for level in machine.level],
            line=self.line,
            units=np.diff(np.append(starts, len(lines))),
            steady=steady,
        )


class _Owners:
    """Accesses of each owner by the smallest cache that would have held them."""

    def __init__(self, ladder: Ints) -> None:
        self.ladder = ladder
        self.names = NameTable()
        self.counts = np.zeros((0, len(ladder) + 1), np.int64)

    def take(self, names: tuple[str, ...], index: Int32s, distance: Ints) -> None:
        """Count a piece; its name table may differ from the piece before."""
        owner = self.names.remap(names, index)
        rung = np.where(distance == 0, len(self.ladder), np.searchsorted(self.ladder, distance))
        width = len(self.ladder) + 1
        found = np.bincount(owner * width + rung, minlength=len(self.counts) * width)
        counts = np.zeros((-(-len(found) // width), width), np.int64)
        counts.reshape(-1)[: len(found)] = found
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def shares(self, sizes: int) -> dict[str, Share]:
        """Return the share of every owner, for the first `sizes` rungs of the ladder."""
        result = {}
        for name, row in zip(self.names.table(), self.counts, strict=False):
            if row.any():
                held = np.cumsum(row)
                misses = {int(size): int(held[-1] - held[i]) for i, size in enumerate(self.ladder[:sizes])}
                result[name] = Share(int(held[-1]), misses)
        return result


def _follows(piece: Trace, line: int, before: Trace | None) -> Bools:
    """Return a mask of accesses that continue to the next unit of a line: they share one touch, priced at one level."""
    same = np.zeros(len(piece), np.bool_)
    if line == 1:
        return same
    same[1:] = np.diff(piece.address) == 1
    for column in (piece.write, piece.tensor, piece.op):
        same[1:] &= column[1:] == column[:-1]
    if before is not None:  # a chunk may end inside a line
        one, two = (
            (t.address[at] - at, t.write[at], t.tensor_names[t.tensor[at]], t.op_names[t.op[at]])
            for t, at in ((before, -1), (piece, 0))
        )
        same[0] = one == two
    same &= piece.address % line != 0
    return same


def _level_energies(priced: LruEnergy, machine: Machine) -> dict[str, float]:
    amounts = zip(machine.level, priced.read_units, priced.write_units, priced.write_back_units, strict=True)
    return {level.name: read * level.read + (write + back) * level.write for level, read, write, back in amounts}
