"""Names that people know a graph's nodes by: the module that a node comes from and its operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["module_of", "operator_name"]


def module_of(node: fx.Node) -> str:
    """Return the path of the innermost module that a node comes from; of a node of backward, that of its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    entries = [entry for entry in stack.values() if isinstance(entry, tuple) and len(entry) == 2]
    kinds = {_plain(str(path)): getattr(kind, "__name__", str(kind).rpartition(".")[2]) for path, kind in entries}
    path = next(reversed(kinds), "")
    first = path.partition(".")[0]
    return f"{kinds[first]} {path}" if first.isdigit() and first in kinds else path


def _plain(path: str) -> str:
    """Return a module's path as people write it.

    >>> _plain("L['self'].h.3"), _plain("L['self']._modules['0']"), _plain("L['model'].blocks[2].fc")
    ('h.3', '0', 'blocks.2.fc')
    """
    names = path.replace("_modules", "").replace("[", ".").translate({ord(c): None for c in "]'\""}).split(".")
    return ".".join(name for name in names[2:] if name and name != "_orig_mod") if names[0] in ("L", "G") else path


def operator_name(node: fx.Node) -> str:
    """Return the operator that a node calls, such as `mm`."""
    target: Any = node.target
    return str(target._schema.name.partition("::")[2]) if isinstance(target, torch._ops.OpOverload) else node.name
