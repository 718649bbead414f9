"""Which Python code a step runs, and what that code can reach by name: functions, globals, names of attributes.

What a step depends on besides its arguments comes in through closures, defaults, globals and attributes. The code that ran says
which: its functions are found again by their code objects, and its instructions name the globals and attributes that it reads.
"""

from __future__ import annotations

import dis
import functools
import gc
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress, repeat
from operator import is_
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import torch

__all__ = ["ExecutedCode", "is_library", "named_globals", "package_of", "pause_watch", "resume_watch"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_SITE = tuple({sysconfig.get_paths()[key] + os.sep for key in ("purelib", "platlib")})
_STDLIB = tuple({sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "platstdlib")})
# Their Python code keeps no state that a step could depend on.
_OTHERS = ("numpy", "scipy", "pandas", "pyarrow", "pytest", "_pytest", "pluggy", "hypothesis", "coverage", "debugpy")
_FEW = 64  # from about a hundred pieces of code on, a list of all objects is made sooner
_COMPUTED = {"vars", "__dict__", "__getattribute__"}  # attributes read under names that the code does not show


def package_of(file: str) -> str:
    """Return whose code a file is: "torch", "stdlib", the name of an installed package, or "" for the user's own.

    >>> package_of(torch.nn.__file__), package_of(os.__file__), package_of("train.py")
    ('torch', 'stdlib', '')
    """
    if file.startswith(_TORCH) or file.startswith(_OURS):
        return "torch"
    for folder in _SITE:
        if file.startswith(folder):
            return file[len(folder) :].split(os.sep)[0].removesuffix(".py")
    return "stdlib" if file.startswith(_STDLIB) or file.startswith("<") else ""


def is_library(package: str) -> bool:
    """Whether nothing that a step depends on is looked for in the globals of this package."""
    return package in ("torch", "stdlib", *_OTHERS)


class ExecutedCode:
    """The code that ran while it was watched."""

    def __init__(self) -> None:
        # By identity: code is slow to hash, and the same text may have run with other globals.
        self.codes: dict[int, tuple[CodeType, dict[str, Any]]] = {}  # with the globals it ran with
        self._libraries: dict[int, CodeType] = {}
        self._packages: dict[str, str] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note every function of the user's and of installed packages that is called inside."""
        before = sys.getprofile()
        sys.setprofile(self._hook(before))
        try:
            yield
        finally:
            if before is None or callable(before):
                sys.setprofile(before)
            else:  # cProfile, which Python cannot set again
                before.enable()

    def _hook(self, before: Callable[..., Any] | None) -> Callable[[FrameType, str, Any], None]:
        codes, libraries = self.codes, self._libraries

        def note(frame: FrameType, event: str, arg: Any) -> None:
            if event == "call":
                code = frame.f_code
                key = id(code)
                if key not in libraries and key not in codes:
                    if is_library(self.package(code)):
                        libraries[key] = code
                    else:
                        codes[key] = (code, frame.f_globals)

        def note_both(frame: FrameType, event: str, arg: Any) -> None:
            note(frame, event, arg)
            before(frame, event, arg)  # type: ignore[misc]

        if callable(before):  # a profiler of the user's in Python; others pause meanwhile
            return note_both
        _pausable.add(note)
        return note

    def package(self, code: CodeType) -> str:
        """Return whose code it is."""
        file = code.co_filename
        if file not in self._packages:
            self._packages[file] = package_of(file)
        return self._packages[file]

    def functions(self) -> list[FunctionType]:
        """Return the functions that were called, and others made from the same code."""
        # There may be a million objects or more, so they are looked through without a loop in Python. Who holds some code the
        # collector knows faster than a list of all of them is made, unless there is much code that it compares each with.
        codes = [code for code, _ in self.codes.values()]
        objects = gc.get_referrers(*codes) if len(codes) <= _FEW else gc.get_objects()
        functions = compress(objects, map(is_, map(type, objects), repeat(FunctionType)))
        return [function for function in functions if id(function.__code__) in self.codes]

    def globals(self) -> list[tuple[str, dict[str, Any], str]]:
        """Return the globals that the code names: where, and under which name; modules' attributes where those are named too."""
        found: dict[tuple[int, str], tuple[str, dict[str, Any], str]] = {}
        for code, namespace in self.codes.values():
            for path, holder, name in named_globals(code, namespace):
                found[id(holder), name] = (path, holder, name)
        return list(found.values())

    def line_that_stores(self, name: str) -> str | None:
        """Return where the user's code sets what a person calls by this name: a variable, a global or an attribute."""
        last = name.split("[")[0].split(".")[-1]
        for code, _ in self.codes.values():
            if self.package(code) == "":
                for instruction in dis.get_instructions(code):
                    if instruction.opname.startswith("STORE") and instruction.argval == last and instruction.positions:
                        return f"{os.path.basename(code.co_filename)}:{instruction.positions.lineno}"
        return None

    def attribute_names(self) -> dict[str, set[str] | None]:
        """Return, by package, the names of attributes and keys that its code reads; None: any name."""
        names: dict[str, set[str] | None] = {}
        for code, _ in self.codes.values():
            package = self.package(code)
            _, attributes, computed = _names(code)
            known = names.setdefault(package, set())
            if known is None:
                continue
            known |= attributes
            if computed and package == "":
                names[package] = None
        return names


# Newer versions of Python instrument all code anew whenever a profiler comes or goes.
_MAY_PAUSE = sys.version_info < (3, 12)
_pausable: WeakSet[Callable[..., None]] = WeakSet()


def pause_watch() -> Callable[..., None] | None:
    """Stop watching while code of ours runs that calls none of the step's; return what `resume_watch` takes."""
    hook: Any = sys.getprofile() if _MAY_PAUSE else None
    if hook is None or type(hook) is not FunctionType or hook not in _pausable:
        return None
    sys.setprofile(None)
    return hook


def resume_watch(hook: Callable[..., None] | None) -> None:
    """Watch again, if `pause_watch` stopped it."""
    if hook is not None:
        sys.setprofile(hook)


def named_globals(code: CodeType, namespace: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the globals that code names, each with where it is found: of modules those attributes that the code names too."""
    reads, attributes, _ = _names(code)
    found: list[tuple[str, dict[str, Any], str]] = []
    for name in sorted(reads & namespace.keys()):
        value = namespace[name]
        if not isinstance(value, ModuleType):
            found.append((name, namespace, name))
        elif not is_library(package_of(getattr(value, "__file__", None) or "<builtin>")):
            inner = vars(value)
            found += [(f"{name}.{key}", inner, key) for key in sorted(attributes & inner.keys())]
    return found


@functools.cache
def _names(code: CodeType) -> tuple[set[str], set[str], bool]:
    """Return the globals that code reads, the attributes and texts in it, and whether it reads attributes by computed names."""
    reads: set[str] = set()
    attributes: set[str] = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            reads.add(str(instruction.argval))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "LOAD_SUPER_ATTR"):
            attributes.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more_reads, more_attributes, _ = _names(inner)
            reads |= more_reads
            attributes |= more_attributes
    # A name put together at run time: getattr with text that is not there as a constant cannot be told from other uses.
    computed = bool(_COMPUTED & (reads | attributes)) or ("getattr" in reads and _formats(code))
    return reads, attributes, computed


def _formats(code: CodeType) -> bool:
    return any(instruction.opname.startswith("FORMAT") for instruction in dis.get_instructions(code))
