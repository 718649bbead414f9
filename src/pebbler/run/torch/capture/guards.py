"""What must not change between steps: Python values, tensors and settings that the recorded step depended on.

A plan repeats what was recorded. So whatever the step could read is looked at before every run, as far as Python shows it: values
in closures, globals, attributes, lists and dicts that its code names, what its tensors look like, and torch's own settings.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.executed_code import ExecutedCode, package_of
from pebbler.run.torch.capture.holders import Holder
from pebbler.run.torch.capture.python_state import Change, PythonState, same_value, shown_value
from pebbler.run.torch.capture.source_lines import line_of
from pebbler.run.torch.capture.step_state import StepState

__all__ = ["Guards"]

_MODULE_KEYS = frozenset(vars(torch.nn.Module()))
_OPTIMIZER_KEYS = frozenset(("defaults", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
_ABSENT = object()


class _Watch(NamedTuple):
    """Values read anew at every call, and what they were; `alike` compares two of them quickly."""

    read: Callable[[], Iterable[Any]]
    expected: list[Any]
    name: Callable[[int], str]
    alike: Callable[[Any, Any], bool] = operator.is_


class Guards:
    """Checks that a step still depends on what it depended on when it was recorded."""

    def __init__(
        self, state: StepState, code: ExecutedCode, roots: list[tuple[str, Any]], settled: Sequence[Change] = ()
    ) -> None:
        """Look at everything that `code` may have read; each of `settled` may be as it was or as it is after a step."""
        self._settled = {change.name: change for change in settled}
        self._where = line_of(state.step)
        reads = _ReadContents(code)
        self.python = PythonState(roots, code.globals(), reads)
        self._watches = [*_python_watches(self.python.holders), *_optimizer_watches(state), _settings_watch()]
        paths = {id(tensor): path for path, tensor in self.python.tensors}
        names = [paths.get(id(tensor), f"tensor {i}") for i, tensor in enumerate(state.tensors)]
        self._tensors, self._names = state.tensors, names
        self._looks = [_look(tensor) for tensor in state.tensors]
        self._sharing = _sharing(state.tensors)

    def check(self) -> None:
        """Raise `InputError` for the first thing that is not as it was."""
        for watch in self._watches:
            try:
                if all(map(watch.alike, watch.read(), watch.expected)):
                    continue
            except (IndexError, ValueError, AttributeError):
                pass  # something is gone
            self._explain(watch)
        if list(map(_look, self._tensors)) != self._looks:
            self._explain_tensors()
        if _sharing(self._tensors) != self._sharing:
            raise InputError(self._message("which parameters and buffers share memory"))

    def _message(self, what: str, change: str = "") -> str:
        return f"{self._where}: {what} changed since the step was captured{change}; plan and compile it again"

    def _explain(self, watch: _Watch) -> None:
        try:
            now = list(watch.read())
        except (IndexError, ValueError, AttributeError):
            now = []
        for i, old in enumerate(watch.expected):
            new = now[i] if i < len(now) else _ABSENT
            if watch.alike(new, old):
                continue
            settled = self._settled.get(watch.name(i))
            if settled is not None and (same_value(settled.old, new) or same_value(settled.new, new)):
                watch.expected[i] = new
            elif not same_value(old, new):
                change = f" ({shown_value(old)}, now {'gone' if new is _ABSENT else shown_value(new)})"
                raise InputError(self._message(watch.name(i), change))
            else:
                watch.expected[i] = new

    def _explain_tensors(self) -> None:
        for name, tensor, old in zip(self._names, self._tensors, self._looks, strict=True):
            new = _look(tensor)
            for what, before, after in zip(_LOOKS, old, new, strict=True):
                if before != after:
                    raise InputError(self._message(f"{what} of {name}", f" ({before}, now {after})"))


# Tensors ----------------------------------------------------------------------------------------------------------------

_LOOKS = ("shape", "strides", "dtype", "device", "requires_grad", "hooks", "hooks after accumulating")


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    hooks = tensor._backward_hooks
    after = tensor._post_accumulate_grad_hooks
    return (
        tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, hooks and tuple(hooks),
        after and tuple(after),
    )  # fmt: skip


def _sharing(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return for every tensor the first one that is in the same memory."""
    first: dict[int, int] = {}
    return [first.setdefault(tensor.untyped_storage()._cdata, i) for i, tensor in enumerate(tensors)]


# Torch's settings -------------------------------------------------------------------------------------------------------


def _settings_watch() -> _Watch:
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    readers: dict[str, Callable[[], Any]] = {
        "grad mode (whether gradients are enabled)": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "the default dtype": torch.get_default_dtype,
        "the default device": torch.get_default_device,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "the precision of matrix products": torch.get_float32_matmul_precision,
        "torch.backends.cudnn": lambda: (torch._C._get_cudnn_enabled(), torch._C._get_cudnn_allow_tf32(),
                                         torch._C._get_cudnn_deterministic(), torch._C._get_cudnn_benchmark()),
        "the choice of attention kernels": lambda: (torch._C._get_flash_sdp_enabled(), torch._C._get_math_sdp_enabled(),
                                                    torch._C._get_mem_efficient_sdp_enabled()),
        "torch's modes (TorchDispatchMode, TorchFunctionMode)": lambda: (
            torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "autocast": lambda: tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds),
    }  # fmt: skip
    getters, names = list(readers.values()), list(readers)
    return _Watch(
        lambda: [get() for get in getters],
        [get() for get in getters],
        names.__getitem__,
        lambda old, new: bool(old == new),
    )


def _optimizer_watches(state: StepState) -> list[_Watch]:
    """Return watches of which parameters the optimizers have; a loaded state brings other groups with the same ones."""
    optimizers = state.optimizers

    def counts() -> list[int]:
        return [len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups] + [
            len(optimizers)
        ]

    def params() -> list[Any]:
        return [param for optimizer in optimizers for group in optimizer.param_groups for param in group["params"]]

    return [
        _Watch(lambda: [counts()], [counts()], lambda i: "params of an optimizer's param_groups", operator.eq),
        _Watch(params, params(), lambda i: "params of an optimizer's param_groups"),
    ]


# Python -----------------------------------------------------------------------------------------------------------------


class _ReadContents:
    """Which contents of a holder the recorded code may have read."""

    def __init__(self, code: ExecutedCode) -> None:
        self.names = code.attribute_names()

    def __call__(self, holder: Holder, key: Any) -> bool:
        if holder.kind == "state":
            return isinstance(holder.owner, np.ndarray)  # an iterator that the step moves has been refused
        if holder.kind not in ("attributes", "slots", "class"):
            return True
        owner = holder.owner
        kind = owner if isinstance(owner, type) else type(owner)
        if isinstance(owner, torch.nn.Module) and key in _MODULE_KEYS:
            return True
        if isinstance(owner, torch.optim.Optimizer) and key == "param_groups":
            return False  # a loaded state brings new ones: the runner compares the settings in them
        if isinstance(owner, torch.optim.Optimizer) and key in _OPTIMIZER_KEYS:
            return True
        package = _package(kind)
        if package == "torch":
            return isinstance(owner, (torch.nn.Module, torch.optim.Optimizer)) or key in (self.names.get("") or ())
        for side in {package, ""}:
            names = self.names.get(side, set())
            if names is None or key in names:
                return True
        return False


def _package(kind: type) -> str:
    module = kind.__module__ or ""
    if module.split(".")[0] == "torch":
        return "torch"
    return package_of(getattr(sys.modules.get(module), "__file__", None) or "")


def _python_watches(holders: Iterable[Holder]) -> list[_Watch]:
    items: list[tuple[Any, Any, Any, Holder]] = []  # dict, key, value
    listed: list[tuple[Any, int, Any, Holder]] = []
    attributes: list[tuple[Any, str, Any, Holder]] = []
    cells: list[tuple[Any, Any, Holder]] = []
    sized: list[tuple[Any, Holder]] = []
    arrays: list[tuple[Any, Holder]] = []
    for holder in holders:
        owner, before = holder.owner, holder.before
        match holder.kind:
            case "dict":
                items += [(owner, key, value, holder) for key, value in before.items()]
                if len(owner) == len(before):
                    sized.append((owner, holder))
            case "attributes":
                items += [(vars(owner), key, value, holder) for key, value in before.items()]
            case "function":
                items += [(owner.__dict__, key, value, holder) for key, value in owner.__dict__.items()]
            case "global":
                items += [(owner[0], key, value, holder) for key, value in before.items()]
            case "list" if not isinstance(owner, tuple):
                listed += [(owner, key, value, holder) for key, value in before.items()]
                sized.append((owner, holder))
            case "set" if isinstance(owner, set):
                sized.append((owner, holder))
            case "slots" | "class":
                attributes += [(owner, key, value, holder) for key, value in before.items()]
            case "cell":
                cells += [(owner, value, holder) for value in before.values()]
            case "state" if isinstance(owner, np.ndarray):
                arrays.append((owner, holder))
    contents = operator.attrgetter("cell_contents")

    def keyed(rows: list[tuple[Any, Any, Any, Holder]], get: Callable[[Any, Any], Any]) -> _Watch:
        owners, keys, values = ([row[i] for row in rows] for i in range(3))
        return _Watch(lambda: map(get, owners, keys), values, lambda i: rows[i][3].name(rows[i][1]))

    sizes = [len(owner) for owner, _ in sized]
    sized_owners, array_owners = [owner for owner, _ in sized], [owner for owner, _ in arrays]
    cell_owners = [cell for cell, _, _ in cells]
    return [
        _Watch(lambda: map(len, sized_owners), sizes, lambda i: f"the length of {sized[i][1].path}", operator.eq),
        keyed(items, dict.get),
        keyed(listed, operator.getitem),
        keyed(attributes, lambda owner, key: getattr(owner, key, _ABSENT)),
        _Watch(lambda: map(contents, cell_owners), [value for _, value, _ in cells], lambda i: cells[i][2].path),
        _Watch(
            lambda: (array.tobytes() for array in array_owners), [array.tobytes() for array in array_owners],
            lambda i: f"the array {arrays[i][1].path}", operator.eq,
        ),
    ]  # fmt: skip
