"""What must not change between steps: Python values, tensors and settings that the recorded step depended on.

A plan repeats what was recorded. So whatever the step could read is looked at before every run, as far as Python shows it: values
in closures, globals, attributes, lists and dicts that its code names, what its tensors look like, and torch's own settings.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.executed_code import ExecutedCode, package_of
from pebbler.run.torch.capture.holders import Holder
from pebbler.run.torch.capture.python_state import Change, PythonState, same_value, shown_value
from pebbler.run.torch.capture.source_lines import line_of
from pebbler.run.torch.capture.step_state import StepState
from pebbler.run.torch.capture.tensor_watch import TensorWatch

__all__ = ["Guards"]

_MODULE_KEYS = frozenset(vars(torch.nn.Module()))
_OPTIMIZER_KEYS = frozenset(("defaults", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
_ABSENT = object()
_GONE = (LookupError, ValueError, AttributeError)  # what reading raises where something is not there any more


class _Watch(NamedTuple):
    """Values read anew at every call, and what they were; `alike` compares two of them quickly."""

    read: Callable[[], Iterable[Any]]
    expected: list[Any]
    name: Callable[[int], str]
    alike: Callable[[Any, Any], bool] = operator.is_
    each: Callable[[], Iterable[Any]] | None = None  # as `read`, with what is gone marked as such

    def now(self) -> list[Any]:
        """Return the values now, as far as they can be read."""
        try:
            return list((self.each or self.read)())
        except _GONE:
            return []


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
        self._tensors = TensorWatch(state.tensors, names)

    def check(self) -> list[int]:
        """Raise `InputError` for the first thing that is not as it was; return where the tensors of the state are in memory."""
        for watch in self._watches:
            try:
                if all(map(watch.alike, watch.read(), watch.expected)):
                    continue
            except _GONE:
                pass
            self._explain(watch)
        change = self._tensors.change()
        if change is not None:
            raise InputError(self._message(*change))
        return self._tensors.storages

    def _message(self, what: str, change: str = "") -> str:
        return f"{self._where}: {what} changed since the step was captured{change}; plan and compile it again"

    def _explain(self, watch: _Watch) -> None:
        now = watch.now()
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

    array_owners = [owner for owner, _ in arrays]
    cell_owners = [cell for cell, _, _ in cells]
    return [
        *_length_watches(sized),
        _items_watch([item for item in items if type(item[0]) is dict]),
        keyed([item for item in items if type(item[0]) is not dict], _raw_item),  # which may make what is not there
        keyed(listed, operator.getitem),
        keyed(attributes, lambda owner, key: getattr(owner, key, _ABSENT)),
        _Watch(lambda: map(contents, cell_owners), [value for _, value, _ in cells], lambda i: cells[i][2].path),
        _Watch(
            lambda: (array.tobytes() for array in array_owners), [array.tobytes() for array in array_owners],
            lambda i: f"the array {arrays[i][1].path}", operator.eq,
        ),
    ]  # fmt: skip


def _length_watches(sized: list[tuple[Any, Holder]]) -> list[_Watch]:
    """Return watches of how many things lists, sets and dicts hold; most are the hooks of modules, and hold nothing."""
    empty = [(owner, holder) for owner, holder in sized if not len(owner)]
    filled = [(owner, holder) for owner, holder in sized if len(owner)]
    owners, sizes = [owner for owner, _ in filled], [len(owner) for owner, _ in filled]
    empties = [owner for owner, _ in empty]
    return [
        # One question for all of them; which one it is is asked afterwards.
        _Watch(
            lambda: [int(any(map(len, empties)))], [0] * len(empties), lambda i: f"the length of {empty[i][1].path}",
            operator.eq, each=lambda: map(len, empties),
        ),
        _Watch(lambda: map(len, owners), sizes, lambda i: f"the length of {filled[i][1].path}", operator.eq),
    ]  # fmt: skip


def _items_watch(items: list[tuple[Any, Any, Any, Holder]]) -> _Watch:
    """Return a watch of values in plain dicts, all those of one dict read at once."""
    rows: dict[int, list[tuple[Any, Any, Any, Holder]]] = {}
    for item in items:
        rows.setdefault(id(item[0]), []).append(item)
    ordered = [item for row in rows.values() for item in row]
    owners = [row[0][0] for row in rows.values()]
    getters = [_getter([key for _, key, _, _ in row]) for row in rows.values()]
    return _Watch(
        lambda: chain.from_iterable(map(operator.call, getters, owners)),
        [value for _, _, value, _ in ordered],
        lambda i: ordered[i][3].name(ordered[i][1]),
        each=lambda: (owner.get(key, _ABSENT) for owner, key, _, _ in ordered),
    )


def _raw_item(owner: dict[Any, Any], key: Any) -> Any:
    return dict.get(owner, key, _ABSENT)


def _getter(keys: list[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the values of some keys out of a dict."""
    get = operator.itemgetter(*keys)
    return get if len(keys) > 1 else lambda owner: (get(owner),)
