"""The Python objects that a step can reach, as they were at one moment: to see what changed, and to put it back.

From the roots (the step, functions that ran, globals that they name) every dict, list, set, closure cell, attribute and class
attribute is followed. What has no contents that Python shows (iterators, random generators) is compared by its state.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.executed_code import named_globals
from pebbler.run.torch.capture.holders import ABSENT, PLAIN, Holder, Token, kinds_of
from pebbler.run.torch.capture.source_lines import is_library, package_of

__all__ = ["Change", "PythonState", "same_value", "shown_value"]

_MOST_OBJECTS = 200_000


class Change(NamedTuple):
    """A change of an object, found by comparison."""

    name: str
    old: Any
    new: Any
    holder: Holder | None = None
    key: Any = None

    def __str__(self) -> str:
        return f"{self.name} was {shown_value(self.old)}, is {shown_value(self.new)}"


class PythonState:
    """Everything reachable from some roots: their holders, with contents as they are now.

    >>> counts = {"steps": 3}
    >>> state = PythonState([("counts", counts)])
    >>> counts["steps"] += 1
    >>> [str(change) for change in state.changes()]
    ["counts['steps'] was 3, is 4"]
    >>> state.restore()
    >>> counts
    {'steps': 3}
    """

    def __init__(
        self,
        roots: Iterable[tuple[str, Any]],
        namespaces: Iterable[tuple[str, dict[str, Any], str]] = (),
        read: Callable[[Holder, Any], bool] | None = None,
    ) -> None:
        """Follow everything; with `read`, only what it says of the contents of a holder, by key."""
        self.holders: list[Holder] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self.generators: list[torch.Generator] = []
        self._read = read
        self._seen: set[int] = set()
        self._named: set[tuple[int, str]] = set()
        self._pending: deque[tuple[str, Any]] = deque(roots)
        for named in namespaces:
            self._visit_global(*named)
        while self._pending:
            if len(self._seen) >= _MOST_OBJECTS:
                raise InputError(
                    f"the step can reach more than {_MOST_OBJECTS:,} Python objects, the next at {self._pending[0][0]}: more than "
                    "can be watched; keep data sets out of what it names, and pass it batches"
                )
            self._visit(*self._pending.popleft())

    def _keep(self, holder: Holder) -> None:
        if self._read is not None:
            holder.before = {key: value for key, value in holder.before.items() if self._read(holder, key)}
        self.holders.append(holder)
        for key, value in holder.before.items():
            if not isinstance(value, PLAIN):
                self._pending.append((holder.name(key), value))

    def _visit(self, path: str, value: Any) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            self.tensors.append((path, value))
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        for kind in kinds_of(value):
            self._keep(Holder(path, value, kind))
        if self._read is not None:
            return
        # What a function may do is not known yet: the globals that it names, and the methods of a class.
        if isinstance(value, types.FunctionType) and not is_library(package_of(value.__code__.co_filename)):
            for named in named_globals(value.__code__, value.__globals__):
                self._visit_global(*named)
        elif isinstance(value, type) and kinds_of(value):
            self._pending.extend((path, item) for item in vars(value).values() if isinstance(item, types.FunctionType))

    def _visit_global(self, path: str, namespace: dict[str, Any], name: str) -> None:
        if (id(namespace), name) not in self._named:
            self._named.add((id(namespace), name))
            self._keep(Holder(path, (namespace, name), "global"))

    def changes(self) -> list[Change]:
        """Return the differences from the state before."""
        found = []
        for holder in self.holders:
            now = holder.read()
            for key in [*holder.before, *(key for key in now if key not in holder.before)]:
                old, new = holder.before.get(key, ABSENT), now.get(key, ABSENT)
                if old is not new and not same_value(old, new):
                    found.append(Change(holder.name(key), old, new, holder, key))
            if holder.is_reordered(now):
                found.append(Change(f"the order of {holder.path}", tuple(holder.before), tuple(now)))
        return found

    def restore(self) -> None:
        """Put everything back as it was."""
        for holder in self.holders:
            holder.restore()


def same_value(old: Any, new: Any) -> bool:
    """Whether two objects are the same to a step that reads them: identical, or plain values that are equal (NaN too).

    >>> same_value(1, 1.0), same_value(float("nan"), float("nan")), same_value((1, "a"), (1, "a"))
    (False, True, True)
    """
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, float):
        return repr(old) == repr(new)  # NaN is NaN, and zero has a sign
    if isinstance(old, PLAIN):
        return bool(old == new)
    if isinstance(old, Token):
        return bool(old.text == new.text)
    if type(old) in (tuple, list) and len(old) == len(new):
        return all(map(same_value, old, new))
    if isinstance(old, np.ndarray):
        return bool(old.dtype == new.dtype and old.shape == new.shape and old.tobytes() == new.tobytes())
    if isinstance(old, types.MethodType):
        return old.__func__ is new.__func__ and old.__self__ is new.__self__
    return False


def shown_value(value: Any) -> str:
    """Return an object as a message shows it: short."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, PLAIN) or value is ABSENT:
        text = repr(value)
        return text if len(text) < 60 else text[:57] + "..."
    if isinstance(value, list | dict | set | tuple | deque):
        return f"{type(value).__name__} of {len(value)}"
    return "another state" if isinstance(value, Token) else f"a {type(value).__name__}"
