"""Side effects of a step outside its tensors. They are stopped before they happen, because a plan would not repeat them.

Python tells a profiler of every call before it is made, of built-in functions too. Files, terminals, clocks, queues, sockets,
threads and log records are reached through few of those, so a table names them, by module or by class. Lists, dicts and the like
are changed through methods as well: what one held is kept before the first call that changes it, so that a container which nobody
looks into (the inside of a queue, of a log handler) is put back and refused too. Attributes, globals and closures are for
`PythonState`.
"""

from __future__ import annotations

import array
import datetime
import gc
import logging
import multiprocessing.queues
import os
import queue
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.holders import Holder, kinds_of
from pebbler.run.torch.capture.source_lines import OURS

__all__ = ["SideEffects", "Stopped"]


class Stopped(BaseException):
    """Ends a recording; no `except Exception` of the step's may go on after it."""

    def __init__(self, refusal: InputError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class _Effect(NamedTuple):
    """The effect of some functions, in words after "the step"; `but` are the names of others without effect."""

    words: str
    names: Container[str] | None = None  # None: all
    but: Container[str] = ()
    # Whose calls count: "all", "ours" (the user's code), or "others" (all but torch's own).
    whose: str = "others"

    def covers(self, name: str) -> bool:
        return name not in self.but if self.names is None else name in self.names


_FILES = "reads or writes a file, a stream or a folder"
_PURE_OS = {"fspath", "getpid", "getppid", "cpu_count", "sched_getaffinity", "getcwd", "get_terminal_size", "strerror", "_exit",
            "WIFEXITED", "fstat", "register_at_fork"}  # fmt: skip
_PURE_IO = {"isatty", "fileno", "readable", "writable", "seekable", "tell", "getvalue", "text_encoding", "getbuffer"}
_TIME = _Effect("reads the clock, or waits (time.{name})", but={"struct_time"})
# Of builtin functions, by the module that they are in.
_MODULES: dict[str, tuple[_Effect, ...]] = {
    "builtins": (
        _Effect("prints", {"print"}, whose="all"),
        _Effect("asks at the terminal", {"input", "breakpoint"}, whose="all"),
        _Effect(_FILES, {"open"}),
    ),
    "io": (_Effect(_FILES, {"open", "open_code"}),),
    "_io": (_Effect(_FILES, {"open", "open_code"}),),
    "posix": (_Effect("asks the operating system for something (os.{name})", but=_PURE_OS),),
    "nt": (_Effect("asks the operating system for something (os.{name})", but=_PURE_OS),),
    "time": (_TIME,),
    "_thread": (_Effect("starts a thread", {"start_new_thread", "start_new", "start_joinable_thread"}),),
    "_posixsubprocess": (_Effect("starts a process"),),
    "_socket": (_Effect("talks to the network"),),
    "_warnings": (_Effect("warns", {"warn", "warn_explicit"}, whose="ours"),),
    "atexit": (_Effect("asks for something at the end of the program"),),
    "_signal": (_Effect("sets or sends a signal"),),
    "torch._C": (_Effect("exchanges two tensors (swap_tensors)", {"_swap_tensor_impl"}, whose="all"),),
}
_CLOCKS = {"now", "today", "utcnow"}
_STORAGE = {"copy_", "fill_", "resize_", "_set_from_file", "_set_cdata", "_write_file"}
_GENERATOR = {"manual_seed", "seed", "set_state", "graphsafe_set_state", "get_state", "initial_seed", "set_offset"}
# Of methods, by the module and the name of the class, or by the module alone.
_CLASSES: dict[str, tuple[_Effect, ...]] = {
    "_io": (_Effect(_FILES, but=_PURE_IO),),
    "_queue": (_Effect("puts something into a queue, or takes it out", but={"qsize", "empty"}),),
    "_socket": (_Effect("talks to the network"),),
    "mmap": (_Effect(_FILES),),
    "_sqlite3": (_Effect("talks to a database"),),
    "sqlite3": (_Effect("talks to a database"),),
    "torch.storage.UntypedStorage": (
        _Effect("writes into the memory of a tensor past torch (UntypedStorage.{name})", _STORAGE, whose="all"),
    ),
    "torch._C.Generator": (
        _Effect(
            "draws from, seeds or sets a random generator where that cannot be recorded (for torch's own use torch.manual_seed, "
            "torch.get_rng_state and torch.set_rng_state; seed others outside)", _GENERATOR, whose="all",
        ),
    ),
}  # fmt: skip
# Of functions in Python, by their code.
_FUNCTIONS: dict[types.CodeType, _Effect] = {
    logging.Logger.handle.__code__: _Effect("logs", whose="all"),
    queue.Queue.put.__code__: _Effect("puts something into a queue", whose="all"),
    queue.Queue.get.__code__: _Effect("takes something out of a queue", whose="all"),
    multiprocessing.queues.Queue.put.__code__: _Effect("puts something into a queue", whose="all"),
    multiprocessing.queues.Queue.get.__code__: _Effect("takes something out of a queue", whose="all"),
    threading.Thread.start.__code__: _Effect("starts a thread", whose="all"),
    torch.save.__code__: _Effect("saves to a file", whose="all"),
    torch.load.__code__: _Effect("loads from a file", whose="all"),
}
_CHANGING = frozenset(
    ("append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear", "update",
     "setdefault", "add", "discard", "sort", "reverse", "rotate", "move_to_end", "difference_update", "intersection_update",
     "symmetric_difference_update", "__setitem__", "__delitem__", "__iadd__")
)  # fmt: skip
_CONTAINERS = (list, dict, set, deque, bytearray, array.array)
_LOGGING, _WARNINGS = logging.__file__, sys.modules["warnings"].__file__ or ""


class SideEffects:
    """Watches the calls of one recording. `package` returns whose code it is ("" for the user's own)."""

    def __init__(self, package: Callable[[types.CodeType], str], first: bool = True) -> None:
        self.package, self.first = package, first
        self.refusal: InputError | None = None
        self._kinds: dict[type, tuple[_Effect, ...] | None] = {}
        self._changed: dict[int, Holder] = {}  # containers, by id; their path is the line that changes them
        self.functions = _FUNCTIONS

    def entered(self, frame: types.FrameType) -> None:
        """Look at a call of a function in Python that the table names."""
        effect = self.functions[frame.f_code]
        caller = frame.f_back
        if caller is None or (effect.words == "logs" and self._may_log(frame)):
            return
        self._stop(effect, caller, frame.f_code.co_name)

    def called(self, frame: types.FrameType, function: Any) -> None:
        """Look at a call of a built-in function or method before it is made."""
        owner = function.__self__
        kind = type(owner)
        if kind is types.ModuleType:
            effects = _MODULES.get(owner.__name__)
        elif kind is type:
            effects = _CLOCK if function.__name__ in _CLOCKS and issubclass(owner, datetime.date) else None
        elif kind in self._kinds:
            effects = self._kinds[kind]
        else:
            effects = self._kinds[kind] = self._effects_of(kind)
        if not effects:
            return
        name = function.__name__
        if effects is _CONTAINER:
            if name in _CHANGING and id(owner) not in self._changed:
                self._keep(frame, owner)
            return
        for effect in effects:
            if effect.covers(name):
                self._stop(effect, frame, name)

    def _effects_of(self, kind: type) -> tuple[_Effect, ...] | None:
        if issubclass(kind, _CONTAINERS):
            return _CONTAINER
        names = [(base.__module__, f"{base.__module__}.{base.__qualname__}") for base in kind.__mro__]
        return next((_CLASSES[key] for pair in names for key in pair if key in _CLASSES), None)

    # Whose doing it is ----------------------------------------------------------------------------------------------------

    def _callers(self, frame: types.FrameType | None) -> Iterator[tuple[str, types.FrameType]]:
        while frame is not None:
            yield self.package(frame.f_code), frame
            frame = frame.f_back

    def _stop(self, effect: _Effect, frame: types.FrameType, name: str) -> None:
        """End the recording, unless those who call may do that."""
        for package, caller in self._callers(frame):
            file = caller.f_code.co_filename
            if file.startswith((OURS, "<frozen importlib")):
                return  # the recorder itself; modules are imported once
            if package == "stdlib":
                if file in (_LOGGING, _WARNINGS) and effect.whose != "all":
                    return  # how a record or a warning that was let through is shown
            elif package == "torch":
                if effect.whose != "all":
                    return
            elif (package != "" and effect.whose == "ours") or (effect is _TIME and caller is not frame):
                return  # libraries may warn, and the standard library may wait
            else:
                break
        words = effect.words.format(name=name)
        self.refusal = self.refusal or InputError(
            f"{self._line(frame)}: the step {words}, which a plan would not do; do that outside of the step, with what it returns"
        )
        raise Stopped(self.refusal)

    def _may_log(self, frame: types.FrameType) -> bool:
        """Whether a record is a library's, without tensors, and made for the first time: libraries say some things once."""
        owner = next((package for package, _ in self._callers(frame.f_back) if package != "stdlib"), "")
        if owner == "torch":
            return True
        record = frame.f_locals.get("record")
        parts = [getattr(record, "msg", None), *(getattr(record, "args", None) or ())]
        plain = not any(isinstance(part, torch.Tensor) or "FakeTensor" in str(part) for part in parts)
        return owner != "" and self.first and plain

    def _line(self, frame: types.FrameType | None) -> str:
        rows = [(package, caller) for package, caller in self._callers(frame) if package not in ("stdlib", "torch")]
        if not rows:
            return "step"
        _, caller = next((row for row in rows if row[0] == ""), rows[0])
        return f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"

    # Containers that are changed through their methods ------------------------------------------------------------------------

    def _keep(self, frame: types.FrameType, owner: Any) -> None:
        code = frame.f_code
        if self.package(code) == "torch" or code in _FORGETTING:
            return
        line = self._line(frame)
        if self.package(code):  # a library's own container: who reads the message looks for it there
            line += f" (in {os.path.basename(code.co_filename)}:{frame.f_lineno}, {code.co_qualname})"
        self._changed[id(owner)] = Holder(line, owner, kinds_of(owner)[0])

    def put_back(self, known: Container[int]) -> None:
        """Put back what containers held that were there before, and note a refusal where that differs; those with `known` ids are
        looked at by others.
        """
        young = set(map(id, gc.get_objects(0))) if self._changed else set()
        for key, holder in self._changed.items():
            alone = sys.getrefcount(holder.owner) <= _OURS_ALONE
            if key in known or key in young or alone or holder.is_as_before():
                continue
            holder.restore()
            count = len(holder.owner if holder.kind == "state" else holder.before)
            self.refusal = self.refusal or InputError(
                f"{holder.path}: the step changes a {type(holder.owner).__name__} of {count} that was there before, which a plan "
                "would not do; do that outside of the step"
            )
        self._changed.clear()


# What weak containers do when something that they know dies; while anybody goes through one, they note it in a list.
_WEAK: tuple[Any, ...] = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
_FORGETTING = {kind._commit_removals.__code__ for kind in _WEAK} | {
    code for kind in _WEAK for code in kind.__init__.__code__.co_consts if isinstance(code, types.CodeType)
}
_CONTAINER = (_Effect("changes a container"),)
_CLOCK = (_Effect("reads the clock ({name})"),)
_OURS_ALONE = 2  # references to an object that only `put_back` knows: in its holder, as an argument
