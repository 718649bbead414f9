"""Compiled kernels, kept on disk under a key made from their sources.

numba's own cache looks at the time stamp of one file, so it misses an edit in a kernel that another file calls, and it has
nowhere to write when the package and the home folder are read-only. Here the key of a kernel is a hash of its module's source
and of the sources of all modules of this package that it imports, so equal sources share compiled code wherever they are
installed, and any edit makes a new key.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from llvmlite.binding import parse_assembly
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.compiler import Flags
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral

__all__ = ["cache_folder", "compare_flags_quickly", "inner_kernel", "kernel", "separate_kernel", "source_key"]

_PACKAGE = __name__.partition(".")[0]
_FLAGS_OF_THE_KERNEL_ALONE = {"no_cpython_wrapper", "no_cfunc_wrapper", "inline", "release_gil"}
_IMPORT = re.compile(
    rf"^\s*(?:from\s+({_PACKAGE}[\w.]*)\s+import\s+(\([^)]*\)|[^\n#]*)|import\s+({_PACKAGE}[\w.]*))", re.M
)


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
    dispatcher = njit(**options)(function)
    dispatcher.__class__ = _InnerKernel if options["no_cpython_wrapper"] else _TypedKernel
    if _source_file(function.__module__) is None:
        return dispatcher  # not of this package: there is no source to make a key from
    dispatcher._cache = _KernelCache(function)
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
    """Return what a source imports from this package: modules, and names that may be modules."""
    found = []
    for match in _IMPORT.finditer(source):
        home, names, plain = match.groups()
        if plain:
            found.append(plain)
            continue
        found += [home, *(f"{home}.{item.split()[0]}" for item in names.strip("()").split(",") if item.strip())]
    return [name for name in found if name != _PACKAGE]


@cache
def cache_folder() -> Path:
    """Return the folder of compiled kernels: `NUMBA_CACHE_DIR`, the user's cache folder, or one in the temporary folder.

    Compiled code is loaded from there, so a folder that belongs to another user, or that others may write to, is passed over.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    homes = [Path(named)] if named else []
    if os.environ.get("XDG_CACHE_HOME"):
        homes.append(Path(os.environ["XDG_CACHE_HOME"]) / _PACKAGE)
    with suppress(RuntimeError):  # there may be no home folder
        homes.append(Path.home() / ".cache" / _PACKAGE)
    user = os.getuid() if hasattr(os, "getuid") else "user"
    homes.append(Path(tempfile.gettempdir()) / f"{_PACKAGE}-{user}")
    for home in homes:
        if _usable(home / "kernels"):
            return home / "kernels"
    return Path(tempfile.mkdtemp(prefix=f"{_PACKAGE}-")) / "kernels"


def _usable(folder: Path) -> bool:
    """Return whether a folder is there or can be made, is ours alone to write to, and can be written to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        about = folder.stat()
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or about.st_uid == os.getuid()
    return ours and not about.st_mode & stat.S_IWOTH


class _TypedKernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel that is compiled once for ints, not anew for every constant that some kernel calls it with."""

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


class _SourceLocator(_CacheLocator):  # type: ignore[misc]
    """Tells numba where a kernel's compiled code is kept, and when it is out of date."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._line = str(function.__code__.co_firstlineno)
        self._key = source_key(function.__module__)
        self._path = cache_folder() / f"{function.__module__}-{self._key}"

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return self._key

    def get_disambiguator(self) -> str:
        return self._line

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _SourceLocator:
        return cls(py_func)


class _KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_SourceLocator,)

    def reduce(self, result: Any) -> Any:
        """Return what is kept on disk: the separate kernels that this one calls, and itself."""
        called = _separate_results(result.library)
        return [(name, _state(one)) for name, one in called.items()], _state(result)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        called, own = payload
        for name, state in called:
            if name not in _SeparateKernel.loaded:
                _SeparateKernel.publish(self._load(target_context, state))
        result = self._load(target_context, own)
        # Whoever is compiled together with this kernel calls them too.
        result.library._linking_libraries += [_SeparateKernel.loaded[name].library for name, _ in called]
        return result

    def _load(self, target_context: Any, state: Any) -> Any:
        result = super().rebuild(target_context, state)
        result.library.state = state
        return result


def _state(result: Any) -> Any:
    """Return what is kept on disk of a compiled result: what it was loaded from, if it was."""
    return getattr(result.library, "state", None) or result._reduce()


class _KernelFiles(IndexDataCacheFile):  # type: ignore[misc]
    """Compiled code on disk; what cannot be read is as good as not there.

    That may be a damaged file, or one that names a record's class where it no longer is: the kernel's own sources do not tell.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            found: dict[Any, str] = super()._load_index()
        except Exception:
            return {}
        return found

    def _load_data(self, name: str) -> Any:
        try:
            return super()._load_data(name)
        except Exception as error:
            raise OSError(f"{name} cannot be read") from error  # numba takes this as a miss


class _KernelCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _KernelFiles(self._cache_path, self._impl.filename_base, locator.get_source_stamp())
