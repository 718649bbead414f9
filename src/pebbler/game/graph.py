"""A training step as a graph: tensors, and ops in program order.

Program order defines the meaning of a graph. Versions and hazards are derived from it (`pebbler.game.dataflow`), never declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import validation_words, write_bytes
from pebbler.game.dataflow import Dataflow
from pebbler.game.file_kinds import read_kind
from pebbler.game.form_meta import check_form_meta, tile_of
from pebbler.game.rich_repr import RichRepr
from pebbler.game.versions import derive

__all__ = ["FORMAT", "Graph", "GraphFile", "Kind", "Op", "Tensor"]

FORMAT: Literal["pebbler-graph-1"] = "pebbler-graph-1"
T = TypeVar("T")
Kind = Literal["input", "param", "temp", "output"]
Name = Annotated[str, msgspec.Meta(min_length=1)]
# Sums of sizes are kept in 64-bit integers and energies in doubles; this leaves room for both.
_MOST_SIZE = 2**48
Size = Annotated[int, msgspec.Meta(ge=0, le=_MOST_SIZE)]

# Larger than any real cost or price, and small enough that no sum of them overflows.
MOST_COST = 1e30


def _temp() -> Kind:
    return "temp"


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A named buffer of `size` units."""

    name: Name
    size: Size
    kind: Kind = msgspec.field(default_factory=_temp)  # written into files, default or not
    axes: tuple[tuple[Name, Annotated[int, msgspec.Meta(ge=1, le=_MOST_SIZE)]], ...] | None = None
    overwrites: Name | None = None
    start: Literal["free"] | None = None  # the plan chooses where it is at the start
    meta: dict[str, Any] = {}


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An operation: reads tensors, writes tensors, has a compute cost."""

    name: Name
    reads: tuple[Name, ...] = ()
    writes: tuple[Name, ...] = ()
    cost: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    once: bool = False
    whole: tuple[Name, ...] = ()
    pointwise: bool = False
    meta: dict[str, Any] = {}


class GraphFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON form of a graph."""

    format: Literal["pebbler-graph-1"]
    name: str
    unit: Name
    tensors: list[Tensor]
    ops: list[Op]
    meta: dict[str, Any] = {}


class Graph(RichRepr):
    """Tensors and ops in program order.

    Built step by step, read as a value: `tensors` and `ops` are tuples, and everything derived from them is derived again when
    more is added.

    >>> g = Graph("sgd", unit="float32")
    >>> g = g.tensor("W", 20, kind="param").tensor("x", 20, kind="input").tensor("dW", 20)
    >>> g = g.op("grad", reads=["W", "x"], writes=["dW"]).op("upd", reads=["W", "dW"], writes=["W"])
    >>> [hazard.kind for hazard in g.dataflow.hazards()]
    ['WAR', 'RAW']
    """

    def __init__(
        self,
        name: str,
        unit: str = "float32",
        tensors: Iterable[Tensor] = (),
        ops: Iterable[Op] = (),
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.unit = unit
        self.meta: dict[str, Any] = dict(meta or {})
        self._tensors: list[Tensor] = []
        self._ops: list[Op] = []
        self._tensor_index: dict[str, int] = {}
        self._op_index: dict[str, int] = {}
        for tensor in tensors:
            self._add_tensor(tensor)
        for op in ops:
            self._add_op(op)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, unit={self.unit!r}, {len(self.tensors)} tensors, {len(self.ops)} ops)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.to_file() == other.to_file()

    __hash__ = None  # type: ignore[assignment]

    # Building ---------------------------------------------------------------------------------------------------------

    def tensor(
        self,
        name: str,
        size: int,
        kind: Kind = "temp",
        *,
        axes: Sequence[tuple[str, int]] | None = None,
        overwrites: str | None = None,
        start: Literal["free"] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Self:
        """Declare a tensor and return the graph; `size` is in the graph's unit.

        An input or param with `start="free"` begins wherever the plan says, at no price; others begin in the slowest level.
        """
        fields = {"name": name, "size": size, "kind": kind, "axes": axes, "overwrites": overwrites, "start": start}
        self._add_tensor(_convert(fields | {"meta": meta or {}}, Tensor, "tensor"))
        return self

    def op(
        self,
        name: str,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        cost: float = 0.0,
        *,
        once: bool = False,
        whole: Sequence[str] = (),
        pointwise: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> Self:
        """Append an op to the program and return the graph."""
        for field, names in (("reads", reads), ("writes", writes)):
            if isinstance(names, str):
                raise InputError(f"op {quoted(name)}: {field} must be a list of tensor names, got the string {names!r}")
        fields = {"name": name, "reads": reads, "writes": writes, "cost": cost, "once": once}
        self._add_op(_convert(fields | {"whole": whole, "pointwise": pointwise, "meta": meta or {}}, Op, "op"))
        return self

    def _add_tensor(self, tensor: Tensor) -> None:
        wrong = None
        if tensor.name in self._tensor_index:
            wrong = f"the name is taken by tensors[{self._tensor_index[tensor.name]}]"
        elif not tensor.name.isascii() and _has_surrogate(tensor.name):
            wrong = "the name is not valid Unicode"
        elif tensor.start is not None and tensor.kind not in ("input", "param"):
            wrong = f"only inputs and params exist at the start, so a {tensor.kind} has no start"
        elif tensor.axes is not None:
            product = _product(extent for _, extent in tensor.axes)
            if product != tensor.size:
                told = f"{product:,}" if product <= _MOST_SIZE else f"more than {_MOST_SIZE:,}"
                wrong = f"axes multiply to {told}, but size is {tensor.size:,}"
            elif len({axis for axis, _ in tensor.axes}) != len(tensor.axes):
                wrong = "an axis is named twice"
        if wrong is not None:
            raise InputError(f"tensors[{len(self._tensors)}] ({quoted(tensor.name)}): {wrong}")
        self._tensor_index[tensor.name] = len(self._tensors)
        self._tensors.append(tensor)
        self._forget()

    def _add_op(self, op: Op) -> None:
        wrong = None
        known = self._tensor_index
        if op.name in self._op_index:
            wrong = f"the name is taken by ops[{self._op_index[op.name]}]"
        elif not op.name.isascii() and _has_surrogate(op.name):
            wrong = "the name is not valid Unicode"
        elif not 0 <= op.cost <= MOST_COST:
            wrong = f"cost must be a number from 0 to {MOST_COST:g}, got {op.cost}"
        elif not op.reads and not op.writes:
            wrong = "reads and writes nothing"
        elif len(op.writes) > 1 and len(set(op.writes)) != len(op.writes):
            wrong = "writes the same tensor twice"
        else:
            for verb, names in (("reads", op.reads), ("writes", op.writes)):
                for name in names:
                    if name not in known and wrong is None:
                        wrong = f"{verb} {quoted(name)}, which no tensor declares{near_matches(name, known)}"
        if wrong is not None:
            raise InputError(f"ops[{len(self._ops)}] ({quoted(op.name)}): {wrong}")
        self._op_index[op.name] = len(self._ops)
        self._ops.append(op)
        self._forget()

    def _forget(self) -> None:
        for derived in ("tensors", "ops", "tensor_names", "op_names", "dataflow"):
            self.__dict__.pop(derived, None)

    # Looking ----------------------------------------------------------------------------------------------------------

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, in the order in which they were declared."""
        return tuple(self._tensors)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in program order."""
        return tuple(self._ops)

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order in which they were declared."""
        return tuple(self._tensor_index)

    @cached_property
    def op_names(self) -> tuple[str, ...]:
        """The names of the ops, in program order."""
        return tuple(self._op_index)

    @property
    def tensor_numbers(self) -> Mapping[str, int]:
        """The position of every tensor, by name."""
        return MappingProxyType(self._tensor_index)

    @property
    def op_numbers(self) -> Mapping[str, int]:
        """The position of every op in program order, by name."""
        return MappingProxyType(self._op_index)

    @cached_property
    def dataflow(self) -> Dataflow:
        """Versions and hazards, derived from program order; refuses a program that reads what is not there."""
        return derive(self.tensors, self.ops)

    def tensor_index(self, name: str) -> int:
        """Return the position of a tensor, or say which names are near."""
        return self._index(name, self._tensor_index, "tensor")

    def op_index(self, name: str) -> int:
        """Return the position of an op in program order, or say which names are near."""
        return self._index(name, self._op_index, "op")

    def _index(self, name: str, known: Mapping[str, int], what: str) -> int:
        if name not in known:
            raise InputError(f"graph {quoted(self.name)} has no {what} {quoted(name)}{near_matches(name, known)}")
        return known[name]

    def tensor_named(self, name: str) -> Tensor:
        """Return a tensor by name."""
        return self.tensors[self.tensor_index(name)]

    def op_named(self, name: str) -> Op:
        """Return an op by name."""
        return self.ops[self.op_index(name)]

    @property
    def updates_params(self) -> bool:
        """Whether some op overwrites a param, so that a step can be repeated for ever (the steady default)."""
        flow = self.dataflow
        return any(
            self.tensors[flow.value_tensor[value]].kind == "param" and flow.value_version[value] == 0
            for value in flow.destroyed_values()
        )

    # Files ------------------------------------------------------------------------------------------------------------

    def to_file(self) -> GraphFile:
        """Return the JSON form, for embedding in other files."""
        return GraphFile(FORMAT, self.name, self.unit, list(self.tensors), list(self.ops), self.meta)

    @classmethod
    def from_file(cls, file: GraphFile) -> Graph:
        """Return the graph of a JSON form, fully checked."""
        graph = cls(file.name, file.unit, file.tensors, file.ops, file.meta)
        _ = graph.dataflow
        for tensor in file.tensors:
            tile_of(tensor)
        for op in file.ops:
            tile_of(op)
            check_form_meta(op)
        return graph

    @classmethod
    def from_networkx(cls, digraph: Any, name: str = "networkx", unit: str = "pebble") -> Graph:
        """Return a `networkx.DiGraph` as a graph: every node is a value, and an op computes it from its predecessors.

        Nodes without predecessors are inputs, those without successors outputs, unless their attribute `kind` says otherwise;
        the attributes `size` and `cost` are 1 where a node has none. Program order is a topological order of the nodes.

        >>> import networkx
        >>> graph = Graph.from_networkx(networkx.DiGraph([("x", "h"), ("h", "y"), ("x", "y")]))
        >>> [(op.name, op.reads) for op in graph.ops]
        [('op_h', ('x',)), ('op_y', ('h', 'x'))]
        """
        from pebbler.game.networkx_graphs import fill_from

        graph = cls(name, unit=unit)
        fill_from(digraph, graph)
        return graph

    def to_json(self) -> bytes:
        """Return the graph as JSON text."""
        return msgspec.json.encode(self.to_file())

    def save(self, path: str | Path) -> None:
        """Write the graph as JSON, whole or not at all."""
        write_bytes(path, msgspec.json.format(self.to_json(), indent=1) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """Return the graph in a JSON file; a wrong file is refused with the place and what was expected."""
        file = read_kind(path, GraphFile, FORMAT)
        try:
            return cls.from_file(file)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _product(extents: Iterable[int]) -> int:
    """Return a product, or what of it is beyond any size: the rest could have any number of digits."""
    product = 1
    for extent in extents:
        product *= extent
        if product > _MOST_SIZE:
            break
    return product


def _has_surrogate(name: str) -> bool:
    """Return whether a name holds half a surrogate pair, which no UTF-8 file can."""
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _convert(fields: dict[str, Any], type_: type[T], what: str) -> T:
    try:
        return msgspec.convert(fields, type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{what} {quoted(fields['name'])}: {validation_words(error, type_)}") from None
