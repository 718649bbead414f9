"""Built-in workloads: graphs with numpy kernels, by name or by call.

A workload's spec is its name and parameters, as the commands take it: `mlp:n=20,hidden=1000,batch=32`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path

from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import STANDARD_STREAM, is_file, read_bytes
from pebbler.game.graph import Graph
from pebbler.game.plan import FORMAT as PLAN_FORMAT
from pebbler.game.plan import Plan
from pebbler.workloads.attention import attention
from pebbler.workloads.chains import chain
from pebbler.workloads.element_products import matmul
from pebbler.workloads.mlp import deep_mlp, mlp, note_mlp

__all__ = ["attention", "catalogue", "chain", "deep_mlp", "get", "load", "load_subject", "matmul", "mlp", "note_mlp"]

_MAKERS: dict[str, Callable[..., Graph]] = {
    "attention": attention,
    "chain": chain,
    "deep-mlp": deep_mlp,
    "matmul": matmul,
    "mlp": mlp,
    "note-mlp": note_mlp,
}


def catalogue() -> dict[str, str]:
    """Return the built-in workloads: how each is called, and what it is.

    >>> catalogue()["chain:length=100"]
    'A chain of `length` layers, forward and backward: the pebble game of note 001.'
    """
    return {_usage(name): (inspect.getdoc(maker) or "").split("\n")[0] for name, maker in _MAKERS.items()}


def get(spec: str) -> Graph:
    """Return a built-in workload from its spec.

    >>> len(get("chain:length=5").ops)
    11
    """
    name, _, rest = spec.partition(":")
    if name not in _MAKERS:
        raise InputError(f"no built-in workload {quoted(name)}{near_matches(name, _MAKERS)}")
    known = inspect.signature(_MAKERS[name]).parameters
    arguments = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in known:
            raise InputError(f"workload {quoted(spec)}: {quoted(part)} is no parameter; it is called as {_usage(name)}")
        if key in arguments:
            raise InputError(f"workload {quoted(spec)}: {key} is given twice")
        try:
            arguments[key] = int(value)
        except ValueError:
            raise InputError(f"workload {quoted(spec)}: {key} must be a whole number, got {quoted(value)}") from None
    return _MAKERS[name](**arguments)


def load(name: str | Path) -> Graph:
    """Return the graph in a JSON file, or a built-in workload by its spec.

    >>> load("note-mlp").name
    'note-mlp'
    """
    text = str(name)
    if is_file(text) or text.endswith(".json") or text == STANDARD_STREAM:
        return Graph.load(text)
    try:
        return get(text)
    except InputError as error:
        if text.partition(":")[0] in _MAKERS:
            raise
        found = f"{quoted(text)} is a folder" if os.path.isdir(text) else f"there is no file {quoted(text)}"
        raise InputError(f"{error}; and {found}") from None


def load_subject(name: str | Path) -> Plan | Graph:
    """Return the plan or graph in a JSON file, told apart by its format, or a built-in workload by its spec.

    >>> load_subject("chain:length=3")
    Graph('chain:length=3', unit='pebble', 8 tensors, 7 ops)
    """
    if is_file(name) and PLAN_FORMAT.encode() in read_bytes(name)[:200]:
        return Plan.load(name)
    return load(name)


def _usage(name: str) -> str:
    usage = name
    for i, (key, parameter) in enumerate(inspect.signature(_MAKERS[name]).parameters.items()):
        comma = "," if i else ":"
        usage += f"[{comma}{key}=B]" if parameter.default is None else f"{comma}{key}={parameter.default}"
    return usage
