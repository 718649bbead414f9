"""Numpy arrays that record which of their elements are read and written.

A tracked array behaves like a numpy array and reports every access to its recorder:

- Basic indexing, transposes and reshapes that numpy makes views of touch nothing; using the view touches its elements.
- An operation (a ufunc, a reduction, a product, an assignment) reads its tracked operands in the order of the arguments, each
  element of an operand once and in address order, whatever its strides; then it writes its results, in address order.
- Fancy and boolean indexing gather and scatter: elements are touched in the order of the selection, repeats included.
- Results are tracked too, as fresh buffers that are written. A result of one element that numpy gives as a scalar, and
  operands that are plain arrays or numbers, count as registers: they are not recorded.

Functions whose accesses are not known exactly are refused.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike

from pebbler.arrays import Array
from pebbler.errors import InputError
from pebbler.trace.recording import Recorder, current_recorder
from pebbler.trace.tracking.tracked_buffer import Buffer, View, one_recorder, plain, views_in

__all__ = ["Tracked", "tracked"]


class Tracked(View, NDArrayOperatorsMixin):
    """An array, or a view of one, whose accesses are recorded; made by `tracked`."""

    __slots__ = ()

    @property
    def recorder(self) -> Recorder:
        """The recorder of accesses."""
        return self.buffer.recorder

    @property
    def name(self) -> str:
        """The buffer this array is, or is a view of."""
        return self.buffer.name

    @property
    def untracked(self) -> Array:
        """The numbers, to look at without recording anything; read-only."""
        view = self.held.view()
        view.flags.writeable = False
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the numpy array."""
        return self.held.shape

    @property
    def ndim(self) -> int:
        """As of the numpy array."""
        return self.held.ndim

    @property
    def size(self) -> int:
        """As of the numpy array."""
        return self.held.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of the numpy array."""
        return self.held.dtype

    @property
    def T(self) -> Tracked:
        """The transpose, a view."""
        return self.like(self.held.T)

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return f"tracked({self.held!r}, name={self.name!r})"

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        key = self.plain_index(key)
        if _is_basic(key):
            view, scalar = self._basic_view(key)
            if not scalar:
                return self.like(view)
            self.read_elements("getitem", self.buffer.in_address_order(view))
            return view[()]
        picked = self.held[key]
        self.read_elements("getitem", self.buffer.positions(self.held)[key].ravel())
        return self.result(picked, "getitem")

    def __setitem__(self, key: Any, value: Any) -> None:
        one_recorder([self, *views_in(value)])
        key = self.plain_index(key)
        if _is_basic(key):
            selected = self.buffer.in_address_order(self._basic_view(key)[0])
        else:
            selected = self.buffer.positions(self.held)[key].ravel()
        self.held[key] = plain(value)
        for source in views_in(value):
            source.read_elements("setitem")
        self.buffer.touch(selected, True, "setitem")

    def _basic_view(self, key: Any) -> tuple[Array, bool]:
        """Return the view that a basic index gives, and whether numpy would give a scalar instead."""
        parts = key if isinstance(key, tuple) else (key,)
        full = any(part is Ellipsis for part in parts)
        # With an ellipsis numpy gives a view even of one element, whose address can be asked for.
        view: Array = self.held[parts if full else (*parts, Ellipsis)]
        return view, view.ndim == 0 and not full

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tracked array becomes a plain one only as a copy")
        self.read_elements("asarray")
        return np.array(self.held, dtype=dtype, copy=True)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return self.item().__index__()  # type: ignore[no-any-return]

    def item(self, *index: int) -> Any:
        """Read one element as a Python number."""
        item = self.held.item(*index)
        if index:
            self.read_elements("item", self.buffer.positions(self.held).item(*index))
        else:
            self.read_elements("item")
        return item

    def tolist(self) -> Any:
        """Read everything into nested lists of Python numbers."""
        self.read_elements("tolist")
        return self.held.tolist()

    def copy(self) -> Tracked:
        """Read everything and write it to a fresh buffer."""
        return self.astype(self.dtype)

    def flatten(self) -> Tracked:
        """Read everything and write it to a fresh buffer of one dimension."""
        return self.copy().reshape(-1)

    def astype(self, dtype: DTypeLike) -> Tracked:
        """Read everything and write it to a fresh buffer of another type."""
        self.read_elements("astype")
        result: Tracked = self.result(np.array(self.held, dtype=dtype, order="C"), "astype")
        return result

    def fill(self, value: Any) -> None:
        """Write one value everywhere."""
        self[...] = value

    def reshape(self, *shape: Any) -> Tracked:
        """Return a view of another shape, or a copy where numpy makes one."""
        result: Tracked = operate(np.reshape, "reshape", (self, shape[0] if len(shape) == 1 else shape), {}, ())
        return result

    def transpose(self, *axes: Any) -> Tracked:
        """Return the view with its axes in another order."""
        return self.like(self.held.transpose(*axes))

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            raise AttributeError(f"tracked arrays have no {name}; np.asarray reads all of one into a plain array")
        return functools.partial(METHODS[name], self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        if method == "at":
            return scatter(ufunc, *inputs)
        if method not in ("__call__", "reduce", "accumulate", "outer"):
            raise InputError(f"np.{name}.{method} of tracked arrays is not recorded exactly; use np.asarray first")
        if method == "outer" and "where" in kwargs:
            raise InputError(f"np.{name}.outer of tracked arrays takes no mask")
        outputs = kwargs.pop("out", None) or ()
        elementwise = method in ("__call__", "outer")
        return operate(getattr(ufunc, method), name, inputs, kwargs, outputs, elementwise=elementwise)

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = func.__name__
        if func in SPECIAL:
            return SPECIAL[func](*args, **kwargs)
        if func in CREATING:
            made = func(*(plain(arg) for arg in args), **{"subok": False} | kwargs)
            return self.result(made, name, written=func is not np.empty_like)
        if func not in WHOLE and func not in VIEWS:
            raise InputError(f"np.{name} of tracked arrays is not recorded exactly; use np.asarray first")
        if any(isinstance(arg, View) for arg in args[OUT_POSITION.get(func, len(args)) :]):
            raise InputError(f"np.{name} of tracked arrays takes its output by name: out=...")
        if "where" in kwargs and func not in MASKED:
            raise InputError(f"np.{name} of tracked arrays takes no mask")
        kwargs = dict(kwargs)
        out = kwargs.pop("out", None)
        outputs = () if out is None else out if isinstance(out, tuple) else (out,)
        return operate(func, name, args, kwargs, outputs)


def tracked(array: ArrayLike, name: str | None = None, *, recorder: Recorder | None = None) -> Tracked:
    """Return a copy of an array that records its own reads and writes.

    They go to `recorder`, by default that of the `with record()` block around, or else a new one. The initial
    contents of an array were not written: the first read of an element is cold. `recorder.write(name, size)` says otherwise.

    >>> from pebbler.trace.recording import record
    >>> with record() as t:
    ...     a = tracked([[1.0, 2.0], [3.0, 4.0]], "a")
    ...     b = a[:, 1] * 10
    >>> trace = t.trace()
    >>> [(trace.tensor_names[i], trace.op_names[j]) for i, j in zip(trace.tensor, trace.op)][::2]
    [('a', 'multiply'), ('temp0', 'multiply')]
    >>> trace.address.tolist()
    [1, 3, 4, 5]
    """
    data = np.array(array, order="C", copy=True)
    if data.dtype.hasobject or data.dtype.names is not None:
        raise InputError(f"an array of dtype {data.dtype} cannot be tracked; expected plain numbers")
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"an array's name must be a non-empty string, not {name!r}")
    if recorder is None:
        around = current_recorder()
        recorder = Recorder() if around is None else around  # not `or`: a recorder without events is false
    return Tracked(data, Buffer(data, recorder, name, "array"))


def _is_basic(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (isinstance(part, (int, np.integer)) and not isinstance(part, bool))
        for part in parts
    )


# The parts of their operands that numpy functions touch, for tracked arrays -------------------------------------------
# Only functions with a certain answer are listed. Functions that depend on values (`searchsorted`), stop early, or touch a part
# chosen by their arguments are left out, or handled individually in `tracked_array`.


Functions = frozenset[Callable[..., Any]]


def _named(names: str) -> Functions:
    return frozenset(operator.attrgetter(name)(np) for name in names.split())


VIEWS = _named(
    "array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diagonal dsplit einsum expand_dims flip fliplr "
    "flipud hsplit matrix_transpose moveaxis ravel reshape rollaxis rot90 split squeeze swapaxes transpose vsplit"
)
"""Give views where numpy can; where it cannot, they read every element of every operand once and write the copy."""

WHOLE = _named(
    "all allclose amax amin any argmax argmin argsort array_equal average clip column_stack concatenate copy count_nonzero cross "
    "cumprod cumsum diff dot dstack hstack inner isclose kron max mean median min nonzero outer pad prod ptp repeat roll round "
    "sort stack std sum tensordot tile unique var vdot vstack linalg.det linalg.inv linalg.norm linalg.solve"
)
"""Read every element of every operand once, in the order of the arguments, then write the result."""

MASKED = _named("all amax amin any max mean min prod std sum var")
"""Read only the elements that a mask `where=` chooses."""

_OUT_THIRD = _named("all amax amin any argmax argmin concatenate dot max median min outer ptp round stack")
_OUT_FOURTH = _named("clip cumprod cumsum mean prod std sum var")
OUT_POSITION: dict[Callable[..., Any], int] = {**dict.fromkeys(_OUT_THIRD, 2), **dict.fromkeys(_OUT_FOURTH, 3)}
"""The position of `out` among the arguments of functions that also accept it by position."""

CREATING = _named("empty_like zeros_like ones_like full_like")
"""Look only at the shape and type of the first operand."""

METHODS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in _named(
        "all any argmax argmin argsort clip cumprod cumsum diagonal dot max mean min nonzero prod ravel repeat round squeeze std "
        "sum swapaxes take trace var"
    )
}
"""Methods of arrays that do what the function of the same name does."""


# Operations on tracked arrays: run on the plain arrays, then recorded as reads and writes -----------------------------


def operate(
    call: Callable[..., Any], op: str, inputs: Any, kwargs: dict[str, Any], outputs: Any, *, elementwise: bool = False
) -> Any:
    """Run an operation on the plain arrays; then record what it read and wrote, unless it only made views."""
    where = kwargs.get("where", True)
    operands = [*views_in(inputs), *views_in(tuple(kwargs[key] for key in kwargs if key != "where"))]
    first = one_recorder([*operands, *views_in((where, *outputs))])
    if outputs:
        kwargs = kwargs | {"out": tuple(map(plain, outputs)) if len(outputs) > 1 else plain(outputs[0])}
    found = call(*map(plain, inputs), **{key: plain(value) for key, value in kwargs.items()})
    several = isinstance(found, (tuple, list))
    results = found if several else (found,)
    if not outputs and not elementwise:
        views = [_as_view(result, operands) for result in results]
        if views and all(view is not None for view in views):
            return type(found)(views) if several else views[0]
    mask = None if where is True else np.asarray(plain(where), dtype=np.bool_)
    for array in views_in((where,)):
        array.read_elements(op)
    for operand in operands:
        # Broadcast against nothing, nothing is read.
        if not elementwise or any(np.size(result) for result in results):
            operand.read_elements(op, operand.buffer.in_address_order(operand.held, mask))
    written = mask if elementwise else None
    made = []
    for position, result in enumerate(results):
        output = outputs[position] if position < len(outputs) else None
        if isinstance(output, View):
            output.buffer.touch(output.buffer.in_address_order(output.held, written), True, op)
            made.append(output)
        else:
            made.append(first.result(result, op, mask=written) if output is None else result)
    return type(found)(made) if several else made[0]


def _as_view(result: Any, operands: list[View]) -> View | None:
    for operand in operands:
        if isinstance(result, np.ndarray) and np.may_share_memory(result, operand.buffer.data):
            return operand.like(result)
    return None


def scatter(ufunc: np.ufunc, array: Any, key: Any, *values: Any) -> None:
    """`ufunc.at`: reads the selected elements and the values, and writes the selected elements."""
    one_recorder([*views_in((array, key, *values))])
    selected = array.buffer.positions(array.held)[plain(key)].ravel() if isinstance(array, View) else range(0)
    ufunc.at(plain(array), plain(key), *map(plain, values))
    for part in views_in(key):
        part.read_elements(ufunc.__name__)
    if isinstance(array, View):
        array.read_elements(ufunc.__name__, selected)
    for value in views_in(values):
        value.read_elements(ufunc.__name__)
    if isinstance(array, View):
        array.buffer.touch(selected, True, ufunc.__name__)


def _where(condition: Any, *branches: Any) -> Any:
    """`np.where`: reads the condition, then of each branch only the elements that are chosen."""
    if not branches:
        return np.nonzero(condition)
    first = one_recorder([*views_in((condition, *branches))])
    result = np.where(plain(condition), *map(plain, branches))
    mask = np.asarray(plain(condition), dtype=np.bool_)
    for array in views_in((condition,)):
        array.read_elements("where")
    for branch, chosen in zip(branches, (mask, ~mask), strict=True):
        if isinstance(branch, View):
            branch.read_elements("where", branch.buffer.in_address_order(branch.held, chosen))
    return first.result(result, "where")


def _take(array: Any, indices: Any, axis: int | None = None, out: None = None, mode: Any = "raise") -> Any:
    """`np.take`: a gather, in the order of the indices."""
    if out is not None:
        raise InputError("np.take of tracked arrays has no out; assign the result instead")
    if not isinstance(array, View):
        return np.take(array, np.asarray(indices), axis, mode=mode)
    result = np.take(array.held, plain(indices), axis, mode=mode)
    key = array.plain_index(indices)
    array.read_elements("take", np.take(array.buffer.positions(array.held), key, axis, mode=mode).ravel())
    return array.result(result, "take")


def _trace(array: View, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`np.trace`: reads the diagonal only."""
    return np.sum(np.diagonal(array, offset, axis1, axis2), axis=-1)  # type: ignore[call-overload]


def _copyto(target: Any, source: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """`np.copyto`: an assignment, masked or not."""
    operate(np.positive, "copyto", (source,), {"casting": casting, "where": where}, (target,), elementwise=True)


SPECIAL: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: _where,
    np.take: _take,
    np.trace: _trace,
    np.copyto: _copyto,
    np.shape: lambda array: array.shape,
    np.ndim: lambda array: array.ndim,
    np.size: lambda array: array.size,
}
"""Functions that touch a part of their operands, or nothing."""
