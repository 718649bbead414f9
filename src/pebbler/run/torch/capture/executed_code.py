"""The Python code that a step runs, and the names that it can reach: functions, globals, attributes.

What a step depends on besides its arguments comes in through closures, defaults, globals and attributes. The code that ran says
which: its functions are found again by their code objects, and its instructions name the globals and attributes that it reads.
Names that are put together at run time are noted while the code runs.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from operator import attrgetter
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakSet

import torch

from pebbler.run.torch.capture.side_effects import SideEffects
from pebbler.run.torch.capture.source_lines import TORCH, is_library, package_of

__all__ = ["ExecutedCode", "NamedValue", "named_globals", "pause_watch", "resume_watch"]

# What a closure may hold another one of after a call.
_CHANGING = (bool, int, float, complex, str, bytes, tuple, torch.Tensor)
_COMPUTED = {"vars", "__dict__", "__getattribute__"}  # attributes read under names that the code does not show
_ASKING = ("getattr", "hasattr")
_CALLS_ATTRIBUTES = sys.version_info >= (3, 12)  # LOAD_ATTR then says whether it loads something to call


class NamedValue(NamedTuple):
    """The meaning of a name: the namespace that was asked, the name in it, and a name for people."""

    path: str
    namespace: dict[str, Any]
    name: str


class ExecutedCode:
    """The code that ran while it was watched."""

    def __init__(self) -> None:
        # By identity: code is slow to hash, and the same text may have run with other globals.
        self.codes: dict[int, tuple[CodeType, dict[str, Any]]] = {}  # with the globals it ran with
        self._libraries: dict[int, tuple[CodeType, dict[str, Any]]] = {}
        self._doors: dict[int, tuple[CodeType, dict[str, Any]]] = {}  # of libraries, called by other code than theirs
        self._closures: dict[int, set[tuple[int, ...]]] = {}  # ids of what closures held when they were called
        self._packages: dict[str, str] = {}
        self._generated: dict[int, str] = {}  # whose code is that has no file
        self._asked: set[str] = set()  # names of attributes that were asked for with getattr and hasattr

    @contextmanager
    def watch(self, effects: SideEffects) -> Iterator[None]:
        """Note every function of the user's and of installed packages that is called inside, and let `effects` see all calls."""
        before = sys.getprofile()
        sys.setprofile(self._hook(before, effects))
        try:
            yield
        finally:
            if before is None or callable(before):
                sys.setprofile(before)
            else:  # cProfile, which Python cannot set again
                before.enable()

    def _hook(self, before: Callable[..., Any] | None, effects: SideEffects) -> Callable[[FrameType, str, Any], None]:
        codes, libraries, doors, called = self.codes, self._libraries, self._doors, effects.called
        closures = self._closures

        def note(frame: FrameType, event: str, arg: Any) -> None:
            if event == "c_call":
                called(frame, arg)
            elif event == "call":
                code = frame.f_code
                key = id(code)
                if key in watched:
                    effects.entered(frame)
                if code.co_freevars and key not in libraries:
                    found = frame.f_locals
                    closures.setdefault(key, set()).add(tuple([id(found.get(name)) for name in code.co_freevars]))
                if key in codes:
                    return
                if key not in libraries:
                    if code.co_filename.startswith("<"):  # methods of a data class belong to whoever wrote the class
                        self._generated[key] = package_of(frame.f_globals.get("__file__") or code.co_filename)
                    if not is_library(self.package(code)):
                        codes[key] = (code, frame.f_globals)
                        return
                    libraries[key] = (code, frame.f_globals)
                if key not in doors and id(getattr(frame.f_back, "f_code", None)) in codes:
                    doors[key] = (code, frame.f_globals)

        watched = set(map(id, effects.functions))

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
        if id(code) in self._generated:
            return self._generated[id(code)]
        if file not in self._packages:
            self._packages[file] = package_of(file)
        return self._packages[file]

    def functions(self, known: Sequence[FunctionType]) -> list[FunctionType]:
        """Return the functions among all known ones that were called, and others made from the same code; each once."""
        called = map(self.codes.__contains__, map(id, map(attrgetter("__code__"), known)))
        return list({id(function): function for function in compress(known, called)}.values())

    def has_run(self, function: FunctionType) -> bool:
        """Whether a function was called, and not another one made from the same code; values in its closure may have changed."""
        held = [_contents(cell) for cell in function.__closure__ or ()]
        now = [None if value is None or isinstance(value, _CHANGING) else id(value) for value in held]
        return not held or any(
            all(a is None or a == b for a, b in zip(now, row, strict=True))
            for row in self._closures.get(id(function.__code__), ())
        )

    def globals(self) -> list[NamedValue]:
        """Return the globals that the code names; modules' attributes where those are named too.

        Of libraries, the functions that the code calls are looked at too: `os.getenv` reads `os.environ`.
        """
        found: dict[tuple[int, str], NamedValue] = {}
        doors = [door for door in self._doors.values() if self.package(door[0]) == "stdlib"]
        own = [value for code, namespace in self.codes.values() for value in named_globals(code, namespace)]
        asked = [value for code, namespace in doors for value in named_globals(code, namespace)]
        for value in (*own, *(value for value in asked if _holds_settings(value.namespace[value.name]))):
            found.setdefault((id(value.namespace), value.name), value)
        return list(found.values())

    def missing_globals(self) -> list[NamedValue]:
        """Return names that the code asked its globals for, and its modules, and that were not there."""
        found: dict[tuple[int, str], NamedValue] = {}
        for code, namespace in self.codes.values():
            reads, attributes, _ = _names(code)
            missing = [NamedValue(name, namespace, name) for name in sorted(reads - namespace.keys())]
            for name in sorted(reads & namespace.keys()):
                inner = _own_namespace(namespace[name])
                missing += (
                    [NamedValue(f"{name}.{key}", inner, key) for key in sorted(attributes - inner.keys())]
                    if inner
                    else []
                )
            for value in missing:
                found.setdefault((id(value.namespace), value.name), value)
        return list(found.values())

    def library_functions(self) -> list[NamedValue]:
        """Return the functions, classes and modules of libraries under the names by which the code reaches them.

        Of torch's own code that ran, what it calls is looked at too: whoever replaces one of those changes the step.
        """
        found: dict[tuple[int, str], NamedValue] = {}
        torch_code = [ran for ran in self._libraries.values() if _runs_in_steps(ran[0].co_filename)]
        for code, namespace in (*self.codes.values(), *torch_code):
            for value in _library_values(code, namespace):
                found.setdefault((id(value.namespace), value.name), value)
        return list(found.values())

    def method_names(self, kind: type) -> frozenset[str]:
        """Return the names that the methods of a class and of its bases read, as far as they ran."""
        names: set[str] = set()
        for base in kind.__mro__:
            for value in vars(base).values():
                code = getattr(value, "__code__", None)
                if code is not None and (id(code) in self._libraries or id(code) in self.codes):
                    names |= _names(code)[1]
        return frozenset(names)

    @contextmanager
    def note_names(self) -> Iterator[None]:
        """Note the names of attributes that code which has run before asks for with `getattr` and `hasattr` inside."""
        asked = self._asked
        replaced: list[tuple[dict[str, Any], str]] = []

        def noting(function: Callable[..., Any]) -> Callable[..., Any]:
            def ask(*args: Any) -> Any:
                if len(args) > 1 and type(args[1]) is str:
                    asked.add(args[1])
                return function(*args)

            return ask

        functions = {name: noting(getattr(builtins, name)) for name in _ASKING}
        for code, namespace in list(self.codes.values()):
            for name in _names(code)[0] & functions.keys() - namespace.keys():
                namespace[name] = functions[name]
                replaced.append((namespace, name))
        try:
            yield
        finally:
            for namespace, name in replaced:
                namespace.pop(name, None)

    def line_that_stores(self, name: str) -> str | None:
        """Return the place where the user's code sets this name: a variable, a global or an attribute."""
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
            known |= attributes | self._asked
            if computed and package == "":
                names[package] = None
        return names

    def called_names(self) -> frozenset[str]:
        """Return the names of attributes that the code does nothing with but call them: `step` of an optimizer."""
        called: set[str] = set()
        read: set[str] = set(self._asked)
        for code, _ in self.codes.values():
            ours, others = _uses(code)
            called |= ours
            read |= others
        return frozenset(called - read)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


# Newer versions of Python instrument all code anew whenever a profiler comes or goes.
_MAY_PAUSE = sys.version_info < (3, 12)
_pausable: WeakSet[Callable[..., None]] = WeakSet()


def pause_watch() -> Callable[..., None] | None:
    """Stop watching while our own code runs that calls none of the step's; return the argument of `resume_watch`."""
    hook: Any = sys.getprofile() if _MAY_PAUSE else None
    if hook is None or type(hook) is not FunctionType or hook not in _pausable:
        return None
    sys.setprofile(None)
    return hook


def resume_watch(hook: Callable[..., None] | None) -> None:
    """Watch again, if `pause_watch` stopped it."""
    if hook is not None:
        sys.setprofile(hook)


def named_globals(code: CodeType, namespace: dict[str, Any]) -> list[NamedValue]:
    """Return the globals that code names, each with where it is found: of modules those attributes that the code names too."""
    reads, attributes, _ = _names(code)
    found: list[NamedValue] = []
    for name in sorted(reads & namespace.keys()):
        value = namespace[name]
        if not isinstance(value, ModuleType):
            found.append(NamedValue(name, namespace, name))
            continue
        inner = vars(value)
        own = not is_library(package_of(getattr(value, "__file__", None) or "<builtin>"))
        for key in sorted(attributes & inner.keys()):
            if own or _holds_settings(inner[key]):
                found.append(NamedValue(f"{name}.{key}", inner, key))
    for module in sorted(_imports(code) & sys.modules.keys()):
        own_values = _own_namespace(sys.modules[module]) or {}
        found += [NamedValue(f"{module}.{key}", own_values, key) for key in sorted(attributes & own_values.keys())]
    return found


def _holds_settings(value: Any) -> bool:
    """Whether a value of a library is one that a step may depend on and others set: `os.environ`, `math.pi`."""
    return value is os.environ or isinstance(value, bool | int | float | str)


def _own_namespace(value: Any) -> dict[str, Any] | None:
    """Return the namespace of a module of the user's or of an installed package, None for anything else."""
    if not isinstance(value, ModuleType) or is_library(package_of(getattr(value, "__file__", None) or "<builtin>")):
        return None
    return vars(value)


def _library_values(code: CodeType, namespace: dict[str, Any]) -> Iterator[NamedValue]:
    """Yield what code calls of libraries: globals of its own, builtins, and attributes of modules, of modules in them too."""
    reads, attributes, _ = _names(code)
    whole = vars(builtins)
    pending: list[tuple[str, dict[str, Any]]] = []
    for name in sorted(reads):
        owner = namespace if name in namespace else whole
        value = owner.get(name)
        if isinstance(value, ModuleType):
            pending.append((name, vars(value)))
        if value is not None and (callable(value) or isinstance(value, ModuleType)):
            yield NamedValue(name, owner, name)
    seen: set[int] = set()
    while pending:
        path, inner = pending.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        for key in sorted(attributes & inner.keys()):
            value = inner[key]
            if isinstance(value, ModuleType):
                pending.append((f"{path}.{key}", vars(value)))
            if callable(value) or isinstance(value, ModuleType):
                yield NamedValue(f"{path}.{key}", inner, key)


@functools.cache
def _runs_in_steps(file: str) -> bool:
    """Whether code of torch runs in ordinary steps too, not only while one is recorded on fake tensors."""
    if not file.startswith(TORCH):
        return False
    first = file[len(TORCH) :].split(os.sep)[0]
    return first.endswith(".py") or not (first.startswith("_") or first in ("fx", "utils", "jit", "export"))


@functools.cache
def _imports(code: CodeType) -> set[str]:
    return {str(i.argval) for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}


@functools.cache
def _uses(code: CodeType) -> tuple[set[str], set[str]]:
    """Return the attributes that code calls, and those that it does something else with, or names in a text."""
    called: set[str] = set()
    read = {c for c in code.co_consts if isinstance(c, str)}
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_METHOD" or (
            instruction.opname == "LOAD_ATTR" and _CALLS_ATTRIBUTES and (instruction.arg or 0) & 1
        ):
            called.add(str(instruction.argval))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
            read.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more_called, more_read = _uses(inner)
            called |= more_called
            read |= more_read
    return called, read


@functools.cache
def _names(code: CodeType) -> tuple[set[str], set[str], bool]:
    """Return the globals that code reads, the attributes and texts in it, and whether it reads attributes by computed names."""
    reads: set[str] = set()
    texts: set[str] = {c for c in code.co_consts if isinstance(c, str) and c.isidentifier()}
    attributes: set[str] = set(texts)
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            reads.add(str(instruction.argval))
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
            attributes.add(str(instruction.argval))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more_reads, more_attributes, _ = _names(inner)
            reads |= more_reads
            attributes |= more_attributes
    if "globals" in reads:
        reads |= texts
    return reads, attributes, bool(_COMPUTED & (reads | attributes))
