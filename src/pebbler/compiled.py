"""Compiled kernels, kept on disk under a key made from their sources.

numba's own cache looks at the time stamp of one file, so it misses an edit in a kernel that another file calls, and it has
nowhere to write when the package and the home folder are read-only. Here the key of a kernel is a hash of its module's source
and of the sources of all modules of this package that it imports, this one included. So equal sources share compiled code wherever
they are installed, and any edit makes a new key: code that an older version kept is left aside.

**Names.** The code on disk comes from many processes, and all that a process loads shares one table of symbols, in which the first
of two equal names serves both. numba tells functions of one name and type apart by a number that every process counts from 1, so
`partition` inside of `np.sort` and another one inside of `np.argsort` were the same symbol. Two rules make a mix-up impossible:

- Every function that numba compiles gets a number of 127 random bits, drawn from the system each time, so forked processes
  draw different ones too. A hash of the function would be the same in every run, but what a function compiles to also depends on
  what it closes over, on what that closes over, and on what was inlined; a hash that misses one of these is the old fault again.
  Numbers name the act of compiling, which has one result. What was compiled before this module was imported has numbers that
  numba counted: a kernel that holds such a name works, and is not kept.
- In machine code only a kernel's own names can be seen from outside. Copies of what it calls are its own and local to it, so no
  other object can take their place, whatever its names are.

**Files.** Each result is a file by itself, named after its key and holding it. An index that several processes change at once
can end with the name of one result and the code of another.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite.binding import Linkage, parse_assembly
from numba import njit
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult, Flags
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.types.misc import unliteral

from pebbler.kernel_folder import cache_folder

__all__ = ["check_on_load", "compare_flags_quickly", "inner_kernel", "kernel", "separate_kernel", "source_key"]

_PACKAGE = __name__.partition(".")[0]
_FIRST_NUMBER = 1 << 127  # numba's own count never gets there
_NUMBER = re.compile(r"B\d+v(\d+)")  # the first of these in the name of a symbol
_FLAGS_OF_THE_KERNEL_ALONE = {"no_cpython_wrapper", "no_cfunc_wrapper", "inline", "release_gil"}
_IMPORT = re.compile(
    rf"^\s*(?:from\s+({_PACKAGE}[\w.]*)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+({_PACKAGE}[\w.]*))", re.M
)

FunctionIdentity._unique_ids = iter(lambda: int.from_bytes(os.urandom(16)) | _FIRST_NUMBER, None)


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function on first use, without Python objects, and keep the machine code on disk.

    Other threads run meanwhile, so that Ctrl-C is heard however long it takes. `options` are numba's.

    >>> @kernel
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    if function is None:
        return lambda function: kernel(function, **options)
    # A way in from Python is compiled only where it is used, and one from C nowhere: that is a third of the time.
    inner = function.__name__.startswith("_")
    # Whether references are counted (`_nrt`) would otherwise be what the first kernel says that calls it.
    options = {"nogil": True, "_nrt": True, "no_cpython_wrapper": inner, "no_cfunc_wrapper": True} | options
    dispatcher = njit(pipeline_class=_KernelCompiler, **options)(function)
    dispatcher.__class__ = _InnerKernel if options["no_cpython_wrapper"] else _TypedKernel
    if _source_file(function.__module__) is None:
        return dispatcher  # not of this package: there is no source to make a key from
    dispatcher._cache = _KernelCache(dispatcher)
    return dispatcher


def inner_kernel(function: Callable[..., Any] | None = None, *, forceinline: bool = True) -> Any:
    """Compile a kernel that other kernels call in their loops, and that makes no arrays.

    Then nobody has to count the references to the arrays that it is given, which numba does at every call and at every
    look into a record, and which would take longer than the work itself.
    """
    return kernel(function, _nrt=False, forceinline=forceinline, no_cpython_wrapper=True)


def separate_kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a large kernel that several kernels call, once for all of them.

    numba optimizes a kernel anew together with each kernel that calls it, which for a large one takes a second per caller and
    gains nothing. Here the callers only get its name, and its machine code is kept with theirs.
    """
    if function is None:
        return lambda function: separate_kernel(function, **options)
    dispatcher = kernel(function, no_cpython_wrapper=True, **options)
    dispatcher.__class__ = _SeparateKernel
    return dispatcher


def check_on_load(kernel: Any, check: Callable[[Any], None]) -> None:
    """Let `check` try the code of a kernel, as numba's result, before anybody calls it; it raises if the code is wrong.

    Code from disk that is wrong is set aside, and compiled anew; an error about new code goes to whoever called the kernel.
    """
    kernel.check = check


def compare_flags_quickly() -> None:
    """Let numba look up what it has compiled of NumPy by the flags that matter there, in a process that only compiles.

    It gathers and compares all flags for every call of a NumPy function in a kernel, which is a twentieth of the time, and compiles
    the function anew for kernels that differ only in how they are called themselves.
    """

    def mattering(flags: Flags) -> dict[str, Any]:
        return {name: value for name, value in flags._values.items() if name not in _FLAGS_OF_THE_KERNEL_ALONE}

    def same(flags: Flags, other: object) -> bool:
        return flags is other or (isinstance(other, Flags) and mattering(flags) == mattering(other))

    Flags.__eq__, Flags.__hash__ = same, lambda flags: 0


@cache
def source_key(module: str) -> str:
    """Return the hash of a module's source and of all modules of this package that it imports, directly or not.

    >>> source_key("pebbler.errors") == source_key("pebbler.files")
    False
    """
    sources: dict[str, bytes] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        file = _source_file(name)
        if name not in sources and file is not None:
            sources[name] = file.read_bytes()
            pending += _imported(sources[name].decode("utf-8"))
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    return digest.hexdigest()[:20]


def _source_file(module: str | None) -> Path | None:
    """Return the file of a module of this package; None for what is none."""
    if module is None or not module.startswith(f"{_PACKAGE}."):
        return None
    here = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return next((file for file in (here.with_suffix(".py"), here / "__init__.py") if file.is_file()), None)


def _imported(source: str) -> list[str]:
    """Return the imports of a source from this package: modules, and names that may be modules."""
    found = []
    for match in _IMPORT.finditer(source):
        home, names, plain = match.groups()
        if plain:
            found.append(plain)
            continue
        found += [home, *(f"{home}.{item.split()[0]}" for item in names.strip("()").split(",") if item.strip())]
    return [name for name in found if name != _PACKAGE]


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel's code, of which only its own names can be seen from outside."""

    number: int

    def _finalize_final_module(self) -> None:
        # The code is optimized, and not yet machine code. Whoever links it sees all names, and keeps one copy of each.
        shared, own = self._final_module.clone(), f"v{self.number}"
        for function in self._final_module.functions:
            if not function.is_declaration and own not in function.name:
                function.linkage = Linkage.internal
        super()._finalize_final_module()
        for function in shared.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        self._shared_module = shared


class _KernelCompiler(Compiler):  # type: ignore[misc]
    def _compile_bytecode(self) -> Any:
        state = self.state
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.number = state.func_id.unique_id
        state.library.enable_object_caching()
        return super()._compile_bytecode()


class _TypedKernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel that is compiled once for ints, not anew for every constant that some kernel calls it with."""

    check: Callable[[Any], None] | None = None

    def add_overload(self, result: Any) -> None:
        if self.check is not None and not hasattr(result.library, "state"):  # code from disk was checked there
            self.check(result)
        super().add_overload(result)

    def get_call_template(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return super().get_call_template(
            tuple(unliteral(kind) for kind in args), {name: unliteral(kind) for name, kind in kws.items()}
        )


class _InnerKernel(_TypedKernel):
    """A kernel for other kernels: it has no way in from Python, and numba would jump to address 0."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(f"{self.__name__} is called by kernels only; `{self.__name__}.py_func` runs in Python")


class _SeparateKernel(_InnerKernel):
    """A kernel whose callers are linked to its machine code instead of being compiled together with it."""

    loaded: ClassVar[dict[str, Any]] = {}  # what every symbol stands for that callers may be linked to, by its name

    def add_overload(self, result: Any) -> None:
        super().add_overload(result)
        self.publish(result)

    @classmethod
    def publish(cls, result: Any) -> None:
        """Let kernels be linked to a compiled result; what they link with it is an empty module, so that they find the symbol."""
        library = result.library
        library._shared_module = parse_assembly(str(library.codegen._create_empty_module(library.name)))
        library.separate = result
        cls.loaded.setdefault(result.fndesc.mangled_name, result)


def _separate_results(library: Any) -> dict[str, Any]:
    """Return the separate kernels that a library calls, directly or not, by the names of their symbols.

    Those that others call come before them: that is the order in which they can be loaded.
    """
    found: dict[str, Any] = {}
    for linked in library._linking_libraries:
        found |= _separate_results(linked)
        result = getattr(linked, "separate", None)
        if result is not None:
            found[result.fndesc.mangled_name] = result
    return found


def _state(result: Any) -> Any:
    """Return the state of a compiled result as it is kept on disk: the one that it was loaded from, if any."""
    return getattr(result.library, "state", None) or result._reduce()


def _can_be_kept(result: Any) -> bool:
    """Return whether a compiled result means the same in every process: no addresses, and no names that numba counted."""
    library = result.library
    if hasattr(library, "state"):
        return True
    module = library._final_module
    numbers = [_NUMBER.search(one.name) for symbols in (module.functions, module.global_variables) for one in symbols]
    counted = any(found is not None and int(found[1]) < _FIRST_NUMBER for found in numbers)
    return not counted and not library.has_dynamic_globals and not result.lifted


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """The code of one kernel on disk, a file for each signature; what cannot be read or written is as good as not there.

    A file may be damaged, or name a record's class where it no longer is: the kernel's own sources do not tell.
    """

    def __init__(self, dispatcher: _TypedKernel) -> None:
        # Not numba's own, which looks for a folder as soon as a module is imported.
        function = dispatcher.py_func
        self._dispatcher, self._py_func, self._name = dispatcher, function, repr(function)
        self._cache_path = f"{function.__module__}-{source_key(function.__module__)}"
        self._stem = f"{function.__module__}.{function.__qualname__}-{function.__code__.co_firstlineno}"
        self.enable()

    def _file(self, key: Any) -> str:
        return f"{self._stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:20]}.nbc"

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        python = sys.implementation.cache_tag, getattr(sys, "abiflags", "")
        return numba.__version__, python, super()._index_key(sig, codegen)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        key = self._index_key(sig, target_context.codegen())
        try:
            kept, called, own = pickle.loads(cache_folder().read(self._cache_path, self._file(key)))
        except Exception:
            return None
        if not self._enabled or kept != key:
            return None
        for name, state in called:
            if name not in _SeparateKernel.loaded:
                _SeparateKernel.publish(_load(target_context, state))
        result = _load(target_context, own)
        # Whoever is compiled together with this kernel calls them too.
        result.library._linking_libraries += [_SeparateKernel.loaded[name].library for name, _ in called]
        return result if self._is_right(result) else None

    def _is_right(self, result: Any) -> bool:
        """Return whether code from disk passes the kernel's check; if not, nothing on disk is believed any more."""
        if self._dispatcher.check is None:
            return True
        try:
            self._dispatcher.check(result)
        except Exception as error:
            aside = cache_folder().set_aside()
            text = f"compiled code in {str(aside)!r} is wrong, and is compiled anew: {error}"
            print(f"{_PACKAGE}: {text}", file=sys.stderr, flush=True)
            return False
        return True

    def _save_overload(self, sig: Any, result: Any) -> None:
        """Keep a result on disk, with the separate kernels that it calls."""
        called = _separate_results(result.library)
        if not self._enabled or not all(_can_be_kept(one) for one in (result, *called.values())):
            return
        key = self._index_key(sig, result.target_context.codegen())
        data = dumps((key, [(name, _state(one)) for name, one in called.items()], _state(result)))
        with suppress(OSError):  # a full disk, say: then it is compiled again
            cache_folder().write(self._cache_path, self._file(key), data)


def _load(target_context: Any, state: Any) -> Any:
    result = CompileResult._rebuild(target_context, *state)
    result.library.state = state
    return result
