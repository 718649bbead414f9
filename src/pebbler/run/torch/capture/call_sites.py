"""The origin of every call of a step: its module, the user's source line, and the part of the step.

Found while the step is recorded, from the frames above the call. A call of the backward pass has none of its own; it belongs to the
call of the forward pass whose autograd node it runs in.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, Literal, NamedTuple

import torch

from pebbler.run.torch.capture.source_lines import OURS, is_optimizers, user_file

__all__ = ["CallSite", "CallSites", "Part", "common_module"]

Part = Literal["forward", "backward", "optimizer"]

_MODULE_CALL = torch.nn.Module._call_impl.__code__


class CallSite(NamedTuple):
    """The origin of a call."""

    module: str  # its path in the model; "" outside of every module
    line: str  # file:line of the user's code; of a call of the backward pass, that of its forward call
    part: Part


class CallSites:
    """The places that calls of one recording come from."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # of modules, by identity
        self._roots: list[torch.nn.Module] = []  # keeps them all alive, too
        self._numbers: list[int] = []  # of autograd's nodes, rising
        self._forward: list[tuple[str, str]] = []  # module and line of the calls that they belong to

    def here(self) -> tuple[str, CallSite]:
        """Return the user's line that is running, and the site of the operator that is called there.

        The line is the innermost one outside torch and pebbler: in the backward pass, that of `backward()`.
        """
        line, module, optimizer = self._look(sys._getframe(1))
        node = torch._C._current_autograd_node()
        if node is not None:
            made_by = self._made_by(node._sequence_nr())
            return line, CallSite(module or made_by[0], made_by[1] or line, "backward")
        if optimizer:
            return line, CallSite("", line, "optimizer")
        number = torch.autograd._get_sequence_nr() - 1  # of the node that autograd has just made for this call
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._forward.append((module, line))
        return line, CallSite(module, line, "forward")

    def _made_by(self, number: int) -> tuple[str, str]:
        """Return module and line of the forward call of an autograd node; a view has none of its own, so the call before it."""
        if not self._numbers or number > self._numbers[-1] + 1_000_000:
            return "", ""  # gradients are added up by nodes that no call has made
        at = bisect_right(self._numbers, number)
        return self._forward[at - 1] if at else ("", "")

    def _look(self, start: FrameType) -> tuple[str, str, bool]:
        """Return the innermost line of the user's, the innermost module, and whether an optimizer is running."""
        frame: FrameType | None = start.f_back
        line, module, optimizer = "", None, False
        while frame is not None and not (line and module is not None):
            code = frame.f_code
            if code is _MODULE_CALL:
                if module is None:
                    module = self._name(frame)
            else:
                name = user_file(code.co_filename)
                if name is not None:
                    line = line or f"{name}:{frame.f_lineno}"
                elif is_optimizers(code.co_filename):
                    optimizer = True
                elif line and code.co_filename.startswith(OURS):
                    break  # the step's own frames end here
            frame = frame.f_back
        return line or "step", module or "", optimizer

    def _name(self, frame: FrameType) -> str:
        """Return the path of the module whose call a frame is."""
        module = frame.f_locals["self"]
        if id(module) not in self._names:
            outer: FrameType | None = frame
            while outer is not None:
                if outer.f_code is _MODULE_CALL:
                    root = outer.f_locals["self"]
                outer = outer.f_back
            self._add(root)
            self._names.setdefault(id(module), type(module).__name__)  # hidden from its parents
        return self._names[id(module)]

    def _add(self, root: torch.nn.Module) -> None:
        self._roots.append(root)
        first = len(self._roots) == 1
        for name, module in root.named_modules():
            path = _with_kind(root, name) if first else f"{type(root).__name__}.{name}"
            self._names.setdefault(id(module), path.rstrip(".") or type(root).__name__)

    def labels(
        self, storages: Iterable[Any], tensors: Sequence[torch.Tensor], optimizers: Sequence[torch.optim.Optimizer]
    ) -> dict[tuple[Any, ...], str]:
        """Return names for the tensors that a step finds, by place: the names of their models' parameters."""
        names: dict[int, str] = {}
        for number, root in enumerate(self._roots):
            prefix = f"{type(root).__name__}." if number else ""
            for name, tensor in (*root.named_parameters(), *root.named_buffers()):
                names.setdefault(id(tensor), prefix + name)
        found: dict[tuple[Any, ...], str] = {}
        for place in (storage.place for storage in storages if storage.place is not None):
            owner, ending = None, ""
            if place[0] in ("tensor", "grad"):
                owner, ending = tensors[place[1]], ".grad" if place[0] == "grad" else ""
            elif place[0] == "state":
                owner, ending = optimizers[place[1]].param_groups[place[2]]["params"][place[3]], f".{place[4]}"
            if id(owner) in names:
                found[place] = names[id(owner)] + ending
        return found


def _with_kind(root: torch.nn.Module, path: str) -> str:
    """Return the path of a module, its first step with a kind where it is a number and says nothing by itself.

    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ModuleDict({"act": torch.nn.GELU()}))
    >>> _with_kind(model, "0"), _with_kind(model, "1.act"), _with_kind(model[1], "act")
    ('Linear 0', 'ModuleDict 1.act', 'act')
    """
    number = path.partition(".")[0]
    return f"{type(root.get_submodule(number)).__name__} {path}" if number.isdigit() else path


def common_module(paths: Iterable[str]) -> str:
    """Return the innermost module that holds all of some modules.

    >>> common_module(["h.3.mlp.act", "h.3.mlp.c_proj"]), common_module(["h.1", "h.1"]), common_module(["a", "b"])
    ('h.3.mlp', 'h.1', '')
    """
    parts = [path.split(".") for path in paths]
    if not parts:
        return ""
    shared: list[Any] = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return ".".join(shared)
