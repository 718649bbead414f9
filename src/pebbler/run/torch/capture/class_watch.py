"""Detection of changed classes: replaced methods, and added attributes that hide others.

An object finds what it has not got itself in its class and the bases of that. So of every class that a step may ask, the bases in
their order, the functions and other descriptors, and the presence of names that the step asks for are held to what they were.
"""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch._C._dynamo.guards import dict_version

from pebbler.run.torch.capture.holders import ABSENT

__all__ = ["ClassWatch"]

_IMMUTABLE = 1 << 8  # flags of CPython: nobody can set an attribute of such a class
_HEAP = 1 << 9
_bases = operator.attrgetter("__mro__")


class ClassWatch:
    """Compares classes with what they were when it was made; `asked` says which plain attributes a step may ask for.

    >>> class Layer:
    ...     def forward(self): ...
    >>> watch = ClassWatch([Layer], lambda kind, name: name == "scale")
    >>> Layer.calls = 3
    >>> watch.change()
    >>> Layer.scale = 2.0
    >>> watch.change()
    ('Layer.scale', not there, 2.0)
    """

    def __init__(self, classes: Iterable[type], asked: Callable[[type, str], bool]) -> None:
        self._classes = list(dict.fromkeys(classes))
        self._mros: list[Any] = list(map(_bases, self._classes))
        self._asked = asked
        changeable = [
            b for kind in self._classes for b in kind.__mro__ if b.__flags__ & _HEAP and not b.__flags__ & _IMMUTABLE
        ]
        self._bases = list(dict.fromkeys(changeable))
        # A class shows a proxy of its dict; the dict itself is read much faster.
        self._dicts: list[dict[str, Any]] = [gc.get_referents(vars(base))[0] for base in self._bases]
        self._versions = list(map(dict_version, self._dicts))
        self._before = list(map(dict, self._dicts))

    def change(self) -> tuple[str, Any, Any] | None:
        """Return the first difference: its name, its value before and now; None if there is none."""
        if not all(map(operator.is_, map(_bases, self._classes), self._mros)):
            for kind, old in zip(self._classes, self._mros, strict=True):
                if kind.__mro__ is not old and kind.__mro__ != old:
                    return f"the bases of {kind.__qualname__}", _shown(old), _shown(kind.__mro__)
            self._mros = list(map(_bases, self._classes))
        versions = list(map(dict_version, self._dicts))
        if versions != self._versions:
            for base, before, now in zip(self._bases, self._before, self._dicts, strict=True):
                found = next(self._differences(base, before, now), None)
                if found is not None:
                    return found
            self._versions, self._before = versions, list(map(dict, self._dicts))
        return None

    def _differences(self, base: type, before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        for name in {**before, **now}:
            old, new = before.get(name, ABSENT), now.get(name, ABSENT)
            if old is not new and self._matters(base, name, old, new):
                yield f"{base.__qualname__}.{name}", old, new

    def _matters(self, base: type, name: str, old: Any, new: Any) -> bool:
        if old is not ABSENT and new is not ABSENT and not _is_code(old) and not _is_code(new):
            return False  # plain values that the step reads are watched with those of objects
        if name.startswith("__") and name.endswith("__"):
            return _is_code(old) or _is_code(new)
        return (old is not ABSENT and _is_code(old)) or self._asked(base, name)


def _is_code(value: Any) -> bool:
    """Whether a value in a class is a method, a property, a class or anything else that a lookup may run."""
    return callable(value) or hasattr(type(value), "__get__")


def _shown(bases: tuple[type, ...]) -> str:
    return ", ".join(base.__qualname__ for base in bases)
