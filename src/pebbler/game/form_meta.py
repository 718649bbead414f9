"""The `meta` entries that tiling and fusion write and read. They are checked once, when a graph is loaded from a file.

A tensor or op that is a tile says under `tile` of what, and which part it covers.
`adds` names operands that are added to a sum only once. `accumulates` names results that an earlier tile has already begun.
A fused op lists its original ops (`parts`) and the axes of the temps between them (`inner`). An op that works on all tiles of
an axis at once has the untiled op under `gather`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pebbler.errors import InputError, one_line, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Op, Tensor

__all__ = ["TileMeta", "check_form_meta", "tile_of"]


class TileMeta(msgspec.Struct, frozen=True):
    """The tensor or op that something is a tile `of`, and which part of each axis (start, stop) it covers."""

    of: str
    at: dict[str, tuple[int, int]] = {}


def tile_of(piece: Tensor | Op) -> TileMeta | None:
    """Return the tile that a tensor or op is; None for a whole tensor or op.

    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> tile_of(tile(mlp(), "hidden", 500).op_named("fwd_relu[1]"))
    TileMeta(of='fwd_relu', at={'hidden': (500, 1000)})
    """
    if "tile" not in piece.meta:
        return None
    try:
        return msgspec.convert(piece.meta["tile"], TileMeta)
    except msgspec.ValidationError as error:
        what = "op" if hasattr(piece, "reads") else "tensor"
        raise InputError(f"{what} {quoted(piece.name)}: meta tile: {one_line(str(error))}") from None


class _PartFile(msgspec.Struct):
    """An op behind another: what of it is relied on."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    meta: dict[str, Any] = {}

    @property
    def touches(self) -> set[str]:
        return {*self.reads, *self.writes}


class _Gather(msgspec.Struct):
    axis: str
    cuts: list[int]
    op: _PartFile
    pieces: dict[str, list[str]]
    axes: dict[str, list[str]]


class _FormMeta(msgspec.Struct):
    adds: list[str] = []
    accumulates: list[str] = []
    inner: dict[str, list[str]] = {}
    parts: list[_PartFile] = []
    gather: _Gather | None = None


_KEYS = frozenset(_FormMeta.__struct_fields__)


def check_form_meta(op: Op) -> None:
    """Refuse an op whose `meta` says of tiles and fusions what cannot be: other types, or names that the op does not touch.

    >>> from pebbler.game.graph import Op
    >>> check_form_meta(Op("f", ("x",), ("y",), meta={"adds": ["x"], "mine": 3}))
    >>> check_form_meta(Op("f", ("x",), ("y",), meta={"adds": ["z"]}))
    Traceback (most recent call last):
    pebbler.errors.InputError: op f: meta adds: it does not touch z
    """
    _check(op.name, {*op.reads, *op.writes}, op.meta)


def _check(name: str, touched: set[str], meta: Mapping[str, Any]) -> None:
    if not _KEYS & meta.keys():
        return
    place = f"op {quoted(name)}: meta"
    try:
        found = msgspec.convert({key: meta[key] for key in _KEYS & meta.keys()}, _FormMeta)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: {one_line(str(error))}") from None
    _require(touched, found.adds, f"{place} adds")
    _require(touched, found.accumulates, f"{place} accumulates")
    for part in found.parts:
        _require(touched | found.inner.keys(), part.touches, f"{place} parts")
        _check(part.name, part.touches, part.meta)
    if "parts" in meta and ("inner" not in meta or not found.parts):
        raise InputError(
            f"{place} parts: expected the ops that it was made from, and the axes of what they pass on in `inner`"
        )
    if "gather" in meta:
        if found.gather is None:
            raise InputError(f"{place} gather: expected what stands behind the op")
        gather = found.gather
        _require(gather.axes.keys() & gather.pieces.keys(), gather.op.touches, f"{place} gather")
        _require(touched, (piece for pieces in gather.pieces.values() for piece in pieces), f"{place} gather")
        _check(gather.op.name, gather.op.touches, gather.op.meta)


def _require(known: Iterable[str], names: Iterable[str], place: str) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"{place}: it does not touch {quoted(name)}")
