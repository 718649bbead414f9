"""Objects that hold others: reading their contents, restoring them, and naming them in messages.

What shows no contents to Python (iterators, random generators, arrays and other buffers) is held to its state instead.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import functools
import itertools
import operator
import random
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np
import torch

from pebbler.run.torch.capture.source_lines import is_library, package_of

__all__ = ["ABSENT", "PLAIN", "HeldState", "Holder", "Token", "is_watched_state", "keys_of", "kinds_of", "slots_of"]

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.Size,
         torch.memory_format, range, types.EllipsisType)  # fmt: skip
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType, torch.Generator,
            torch.UntypedStorage, property, staticmethod, classmethod, functools.cached_property)  # fmt: skip
_BUFFERS = (np.ndarray, array.array, bytearray, memoryview, ctypes._SimpleCData, ctypes.Array, ctypes.Structure)
_VIEWS: tuple[type, ...] = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
# Their objects are about the process, not about a step; to follow them is to follow everything.
_NOT_FOLLOWED = ("logging", "threading", "_thread", "multiprocessing", "asyncio", "concurrent", "warnings", "re", "io", "_io",
                 "inspect", "importlib", "ast", "unittest", "typing", "socket", "ssl", "subprocess", "selectors", "tempfile",
                 "zipfile", "traceback", "linecache", "tokenize", "pdb", "bdb", "cmd", "code", "codecs", "site",
                 "sysconfig")  # fmt: skip
# Their optimizer state is looked at by itself; the others only say that a method was called.
_HIDDEN_IN_OPTIMIZERS = ("state", "_opt_called", "_step_count")


class _Absent:
    def __repr__(self) -> str:
        return "not there"


ABSENT = _Absent()


class Token:
    """The state of an object whose contents Python does not expose; equal if the text is equal."""

    def __init__(self, text: Any, raw: Any = None) -> None:
        self.text, self.raw = text, raw


class Holder:
    """An object that holds others, with its contents at the recording; `read` returns its contents now, by key."""

    __slots__ = ("before", "kind", "owner", "path")

    def __init__(self, path: str, owner: Any, kind: str) -> None:
        self.path, self.owner, self.kind = path, owner, kind
        self.before: dict[Any, Any] = self.read()

    def without_contents(self) -> Holder:
        """Return a holder of the same object that does not keep what that held: a recording leaves tensors of its own there."""
        other = object.__new__(Holder)
        other.path, other.owner, other.kind, other.before = self.path, self.owner, self.kind, {}
        return other

    def read(self) -> dict[Any, Any]:
        """Return its contents now."""
        return _READ[self.kind](self.owner)

    def is_as_before(self) -> bool:
        """Whether it holds the same objects, in the same order; states are compared by their text."""
        now, before = self.read(), self.before
        if self.kind == "state":
            return now.keys() == before.keys() and all(now[key].text == before[key].text for key in now)
        same = len(now) == len(before) and all(now.get(key, self) is value for key, value in before.items())
        return same and not self.is_reordered(now)

    def is_reordered(self, now: dict[Any, Any]) -> bool:
        """Whether it is a dict that has the same keys now in another order."""
        if self.kind != "dict" or len(now) != len(self.before) or all(map(operator.is_, now, self.before)):
            return False
        places = {key: i for i, key in enumerate(self.before)}
        found = [places.get(key) for key in now]
        return None not in found and found != list(range(len(found)))

    def restore(self) -> None:
        """Put its contents back."""
        if self.kind in _RESTORE and not self.is_as_before():
            _RESTORE[self.kind](self.owner, self.before)

    def take_out(self, targets: Container[int]) -> None:
        """Let go of contents whose ids, or those of their keys, are among the targets."""
        self.before = {
            key: value for key, value in self.read().items() if id(value) not in targets and id(key) not in targets
        }
        if self.kind == "cell":
            self.before = {"contents": None}
        self.restore()

    def takes(self, key: Any) -> bool:
        """Whether `put` can store under a key without making a list longer."""
        if self.kind == "list":
            return isinstance(self.owner, list) and key < len(self.owner)
        return self.kind in _PUT

    def put(self, key: Any, value: Any) -> None:
        """Store an object under a key."""
        _PUT[self.kind](self.owner, key, value)

    def name(self, key: Any) -> str:
        """Return a name for people of one of its contents."""
        if self.kind in ("attributes", "slots", "class", "local"):
            return f"{self.path}.{key}"
        if self.kind == "function":
            return str(key)
        if self.kind == "method":
            return "self" if key == "__self__" else self.path
        if self.kind in ("weak", "context"):
            return f"{self.path}()" if self.kind == "weak" else f"{self.path}.get()"
        return self.path if self.kind in ("cell", "state", "global", "type", "bound") else f"{self.path}[{key!r}]"


class HeldState:
    """The state of an optimizer as it is when this is made: a dict of dicts."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.state = optimizer, optimizer.state
        rows = [self.state, *(row for row in self.state.values() if type(row) is dict)]
        self._holders = [Holder("", row, "dict") for row in rows]

    def is_as_before(self) -> bool:
        """Whether the optimizer has the same state, and nothing in it is another object."""
        return self.optimizer.state is self.state and all(holder.is_as_before() for holder in self._holders)

    def restore(self) -> None:
        """Give the optimizer its state back."""
        for holder in self._holders:
            holder.restore()
        self.optimizer.state = self.state


def kinds_of(value: Any) -> list[str]:
    """Return the ways in which an object holds others."""
    if isinstance(value, torch.Tensor):  # attributes that people give to parameters
        return ["attributes"] if getattr(value, "__dict__", None) else []
    if isinstance(value, type):
        return ["class"] if _is_own(value) else []
    if isinstance(value, types.FunctionType):
        return ["function"] if not is_library(package_of(value.__code__.co_filename)) or value.__closure__ else []
    if isinstance(value, types.MethodType):
        return ["method"]
    if isinstance(value, types.CellType):
        return ["cell"]
    if isinstance(value, functools.partial):
        return ["partial"]
    if isinstance(value, types.BuiltinMethodType):  # `append` of a list
        return [] if value.__self__ is None or isinstance(value.__self__, types.ModuleType) else ["bound"]
    if isinstance(value, _BUFFERS):
        return ["state"]
    if isinstance(value, contextvars.ContextVar):
        return ["context"]
    if isinstance(value, weakref.ReferenceType | weakref.ProxyType | weakref.CallableProxyType):
        return ["weak"]
    if isinstance(value, _VIEWS):
        return ["view"]
    if isinstance(value, (random.Random, np.random.Generator, np.random.RandomState, types.GeneratorType)):
        return ["state"]
    if isinstance(value, _SKIPPED):
        return []
    kinds = []
    if isinstance(value, dict):
        kinds.append("dict")
    elif isinstance(value, list | tuple | deque):
        kinds.append("list")
    elif isinstance(value, set | frozenset):
        kinds.append("set")
    elif hasattr(type(value), "__next__"):
        kinds.append("state")
    module = type(value).__module__ or ""
    if isinstance(value, threading.local):
        return [*kinds, "local", "type"]  # every thread has other attributes
    if hasattr(value, "__dict__") and _is_followed(module, value):
        kinds.append("attributes")
        if module.split(".")[0] != "torch":
            kinds.append("type")
    if slots_of(value) and _is_followed(module, value):
        kinds.append("slots")
    return kinds


def _is_followed(module: str, value: Any) -> bool:
    top = module.split(".")[0]
    if module == "pebbler.run.torch.run.planned_step":
        return True  # the step inside
    if isinstance(value, threading.Thread):
        return False  # it runs by itself
    if top in ("torch", "pebbler"):
        return isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) or module.startswith(
            ("torch.amp", "torch.optim", "torch.cuda.amp", "torch.nn", "torch.utils.data")
        )
    return top not in _NOT_FOLLOWED and (top in sys.stdlib_module_names or not _is_stdlib(top))


@functools.cache
def _is_stdlib(top: str) -> bool:
    return top in sys.stdlib_module_names or is_library(top)


@functools.cache
def _is_own(value: Any) -> bool:
    """Whether a class may have attributes that a step counts in: the user's, or an installed package's."""
    top = (value.__module__ or "").split(".")[0]
    return top not in ("torch", "pebbler", "builtins") and (top == "__main__" or not _is_stdlib(top))


@functools.cache
def _slots(kind: Any) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def slots_of(value: Any) -> tuple[str, ...]:
    """Return the attributes that an object keeps in slots."""
    kind: Any = type(value)
    return _slots(kind)


def keys_of(value: Any) -> Iterator[Any]:
    """Return the keys of a dict in their order, whatever its class does with them."""
    return OrderedDict.__iter__(value) if isinstance(value, OrderedDict) else dict.__iter__(value)


def is_watched_state(value: Any) -> bool:
    """Whether an object without contents can be compared cheaply before every step: a buffer."""
    return isinstance(value, _BUFFERS)


def _token(value: Any) -> Token | None:
    """Return a token that changes if an iterator or a generator has moved on a step later."""
    if isinstance(value, np.ndarray):
        return Token(np.ndarray.tobytes(value) if value.dtype != object else repr(value))
    if isinstance(value, _BUFFERS):
        return Token(bytes(value))
    if isinstance(value, random.Random):
        state = value.getstate()
        return Token(state, state)
    if isinstance(value, np.random.Generator | np.random.RandomState):
        numbers = value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state(legacy=False)
        return Token(_frozen(numbers), numbers)
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None:
            return Token("finished")
        return Token((frame.f_lasti, repr({k: v for k, v in frame.f_locals.items() if isinstance(v, PLAIN)})))
    if isinstance(value, itertools.count):
        return Token(repr(value))
    try:
        return Token(value.__length_hint__())
    except (AttributeError, TypeError):
        pass
    try:
        return Token(repr(value.__reduce__())) if type(value).__module__ == "itertools" else None
    except TypeError:
        return None


def _frozen(state: Any) -> Any:
    """Return the state of a random generator, dicts with arrays in them, as something to compare."""
    if isinstance(state, dict):
        return tuple((key, _frozen(value)) for key, value in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else repr(state)


def _attributes(value: Any) -> dict[Any, Any]:
    if isinstance(value, torch.optim.Optimizer):
        return {key: item for key, item in vars(value).items() if key not in _HIDDEN_IN_OPTIMIZERS}
    if isinstance(value, torch.amp.GradScaler):
        return {key: item for key, item in vars(value).items() if key != "_per_optimizer_states"}
    return dict(vars(value))


def _referent(value: Any) -> Any:
    if isinstance(value, weakref.ReferenceType):
        return value()
    try:
        return value.__repr__.__self__
    except ReferenceError:
        return None


def _function(value: types.FunctionType) -> dict[Any, Any]:
    parts: dict[Any, Any] = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=False))
    code, defaults = value.__code__, value.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    parts.update({f"{value.__name__}({name}=)": item for name, item in zip(names, defaults, strict=True)})
    parts.update({f"{value.__name__}({name}=)": item for name, item in (value.__kwdefaults__ or {}).items()})
    parts.update({f"{value.__name__}.{name}": item for name, item in value.__dict__.items()})
    return parts


def _cell(value: types.CellType) -> dict[Any, Any]:
    try:
        return {"contents": value.cell_contents}
    except ValueError:
        return {}


def _class(value: type) -> dict[Any, Any]:
    hidden = (
        types.FunctionType,
        property,
        staticmethod,
        classmethod,
        types.MemberDescriptorType,
        types.GetSetDescriptorType,
    )
    return {
        k: v for base in reversed(value.__mro__) if _is_own(base) for k, v in vars(base).items()
        if not (k.startswith("__") or isinstance(v, hidden) or k in ("_abc_impl", "_abc_registry", "_abc_cache"))
    }  # fmt: skip


_READ: dict[str, Callable[[Any], dict[Any, Any]]] = {
    # Past the methods of a class: a lazy mapping would import all that it names.
    "dict": lambda value: (
        {key: dict.__getitem__(value, key) for key in OrderedDict.__iter__(value)}
        if isinstance(value, OrderedDict)
        else dict(dict.items(value))
    ),
    "list": lambda value: dict(enumerate(value)),
    "set": lambda value: dict.fromkeys(value),
    "attributes": lambda value: _attributes(value),
    "slots": lambda value: {name: getattr(value, name) for name in slots_of(value) if hasattr(value, name)},
    "type": lambda value: {"__class__": type(value)},
    "local": lambda value: dict(vars(value)),
    "context": lambda value: {"value": value.get(ABSENT)},
    "weak": lambda value: {"referent": _referent(value)},
    "view": lambda value: dict(value) if isinstance(value, types.MappingProxyType) else dict(enumerate(value)),
    "bound": lambda value: {"__self__": value.__self__},
    "class": _class,
    "cell": _cell,
    "method": lambda value: {"__self__": value.__self__, "__func__": value.__func__},
    "partial": lambda value: {"func": value.func, "args": value.args, "keywords": value.keywords},
    "function": _function,
    "state": lambda value: {} if (token := _token(value)) is None else {"state": token},
    "global": lambda value: {value[1]: value[0][value[1]]} if value[1] in value[0] else {},
}


def _put_in_cell(cell: types.CellType, key: Any, value: Any) -> None:
    cell.cell_contents = value


_PUT: dict[str, Callable[[Any, Any, Any], None]] = {
    "dict": operator.setitem,
    "list": operator.setitem,
    "attributes": lambda owner, key, value: vars(owner).__setitem__(key, value),
    "slots": setattr,
    "cell": _put_in_cell,
}


def _restore_dict(value: Any, before: dict[Any, Any]) -> None:
    kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict  # methods of its own may do anything
    for key in [key for key in keys_of(value) if key not in before]:
        kind.__delitem__(value, key)
    for key, item in before.items():
        kind.__setitem__(value, key, item)
    if not all(map(operator.is_, keys_of(value), before)):  # one after the other, for others may read it meanwhile
        for key, item in before.items():
            kind.__delitem__(value, key)
            kind.__setitem__(value, key, item)


def _restore_list(value: Any, before: dict[Any, Any]) -> None:
    if isinstance(value, list | deque):
        kind: Any = list if isinstance(value, list) else deque
        kind.clear(value)
        kind.extend(value, before.values())


def _restore_attributes(value: Any, before: dict[Any, Any]) -> None:
    for key in _attributes(value):
        if key not in before:
            del vars(value)[key]
    vars(value).update(before)


def _restore_set(value: Any, before: dict[Any, Any]) -> None:
    if isinstance(value, set):
        set.clear(value)
        set.update(value, before)


def _restore_each(value: Any, before: dict[Any, Any]) -> None:
    for key, item in before.items():
        if getattr(value, key, ABSENT) is not item:
            setattr(value, key, item)


def _restore_cell(value: Any, before: dict[Any, Any]) -> None:
    if before:
        value.cell_contents = before["contents"]


def _restore_global(value: Any, before: dict[Any, Any]) -> None:
    value[0].update(before)


def _restore_function(value: Any, before: dict[Any, Any]) -> None:
    own = {name: before[f"{value.__name__}.{name}"] for name in value.__dict__ if f"{value.__name__}.{name}" in before}
    value.__dict__.clear()
    value.__dict__.update(own)


def _restore_state(value: Any, before: dict[Any, Any]) -> None:
    raw: Any = before["state"].raw if before else None
    if isinstance(value, random.Random):
        value.setstate(raw)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = raw
    elif isinstance(value, np.random.RandomState):
        value.set_state(raw)
    elif isinstance(value, _BUFFERS):
        _restore_buffer(value, before["state"].text)


def _restore_buffer(value: Any, held: Any) -> None:
    """Put bytes back; a buffer that others look into cannot change its length, and has not."""
    if isinstance(value, np.ndarray | memoryview):
        if isinstance(held, bytes) and bytes(value) != held:
            seen = np.asarray(value)
            seen[...] = np.frombuffer(held, seen.dtype).reshape(seen.shape)
    elif bytes(value) == held:
        return
    elif isinstance(value, array.array):
        del value[:]
        value.frombytes(held)
    elif isinstance(value, bytearray):
        value[:] = held
    else:
        ctypes.memmove(ctypes.addressof(value), held, len(held))


def _restore_local(value: Any, before: dict[Any, Any]) -> None:
    vars(value).clear()
    vars(value).update(before)


def _restore_context(value: Any, before: dict[Any, Any]) -> None:
    if before["value"] is not ABSENT:
        value.set(before["value"])


_RESTORE: dict[str, Callable[[Any, dict[Any, Any]], None]] = {
    "dict": _restore_dict,
    "list": _restore_list,
    "set": _restore_set,
    "attributes": _restore_attributes,
    "slots": _restore_each,
    "class": _restore_each,
    "function": _restore_function,
    "cell": _restore_cell,
    "global": _restore_global,
    "state": _restore_state,
    "local": _restore_local,
    "context": _restore_context,
}
