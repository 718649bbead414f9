"""All tensors and optimizers that exist before a capture, and the undoing of a recording's changes to them.

A recorded step runs on tensors without memory, but it holds the user's own ones: `p.data = x` gives a parameter the memory of such
a tensor, `p.grad = x` and `optimizer.state[p] = x` keep one. What Python objects hold is put back by `PythonState`. This is about
what tensors are inside, which no attribute shows, and about optimizer state. The garbage collector knows every tensor, so nothing
depends on how a step finds one. Of what the step cannot reach, another thread may be the owner: that is put back only where it is
fake now.
"""

from __future__ import annotations

import gc
import operator
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import _lru_cache_wrapper, cache
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.run.torch.capture.holders import HeldState, Holder
from pebbler.run.torch.capture.source_lines import is_library, package_of
from pebbler.run.torch.capture.tensor_watch import is_leaf, same_memory

__all__ = ["Surroundings", "forget"]

_MOST_HOLDERS = 8  # one inside the other, around a tensor that was left somewhere
_REAL = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


class _HeldTensor(NamedTuple):
    """A tensor and its earlier state; `memory` is another tensor of the same form in the same memory."""

    tensor: torch.Tensor
    memory: torch.Tensor
    grad: torch.Tensor | None
    requires_grad: bool
    hooks: dict[int, Any] | None
    later_hooks: dict[int, Any] | None


class Surroundings:
    """The tensors, optimizers and functions that existed before a capture.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> before = Surroundings(FakeTensorMode(allow_non_fake_inputs=True))
    >>> with before.fakes:
    ...     weight.data = torch.zeros(2)
    >>> weight.device, before.put_back([])
    (device(type='meta'), ['the memory of a tensor [2]'])
    >>> weight.tolist()
    [1.0, 1.0]
    """

    def __init__(self, fakes: FakeTensorMode) -> None:
        self.fakes, self._collections = fakes, _collections()
        with _unseen():
            _frozen.look()
            self._functions = _frozen.functions()
            objects = _frozen.others()
            for one in _objects(_OF_INTEREST):
                (self._functions if type(one) is types.FunctionType else objects).append(one)
            self._own_fakes = {id(fake): weakref.ref(fake) for fake in objects if isinstance(fake, FakeTensor)}
            self._tensors = [_noted(tensor) for tensor in objects if type(tensor) in _REAL and _is_plain(tensor)]
            self._modules = [(module, type(module)) for module in objects if isinstance(module, torch.nn.Module)]
            self._optimizers = [
                HeldState(optimizer)
                for optimizer in objects
                if isinstance(optimizer, Optimizer) and isinstance(getattr(optimizer, "state", None), dict)
            ]

    def functions(self) -> list[types.FunctionType]:
        """Return all functions, some of them twice: those of before, and young ones.

        There are a hundred thousand among a million objects, which are looked through only once.
        """
        return self._functions + _objects((types.FunctionType,), (0,) if self._made_is_young() else (None,))

    def put_back(self, reachable: Iterable[Any], stepped: Sequence[Optimizer] = ()) -> list[str]:
        """Restore everything; return the changes in words.

        Of what is `reachable` gradients are put back too, and the state of optimizers; that those in `stepped` change theirs is
        nothing to tell.
        """
        mine = {id(value) for value in reachable}
        with _unseen():
            found = [what for row in self._tensors for what in self._put_tensor_back(row, id(row.tensor) in mine)]
            for module, kind in self._modules:
                if type(module) is not kind and id(module) in mine:
                    found.append(f"the class of a {kind.__name__}")
                    module.__class__ = kind
            for held in self._optimizers:
                optimizer = held.optimizer
                if id(optimizer) in mine or self._holds_fakes(optimizer.state):
                    if not held.is_as_before() and not any(optimizer is known for known in stepped):
                        found.append(f"the state of a {type(optimizer).__name__} without its step()")
                    held.restore()
        return found

    def _put_tensor_back(self, row: _HeldTensor, mine: bool) -> Iterator[str]:
        tensor, memory = row.tensor, row.memory
        name = f"a tensor {list(memory.shape)}"
        if not same_memory(tensor, memory) and (mine or tensor.device.type == "meta"):
            tensor.data = memory
            yield f"the memory of {name}"
        if not is_leaf(tensor):
            return
        if tensor.grad is not row.grad and (mine or self._is_ours(tensor.grad)):
            tensor.grad = row.grad
        if not mine:
            return
        if tensor.requires_grad != row.requires_grad:
            tensor.requires_grad_(row.requires_grad)
            yield f"whether {name} requires gradients"
        if _differ(tensor._backward_hooks, row.hooks):
            tensor._backward_hooks = row.hooks and type(tensor._backward_hooks or {})(row.hooks)
            yield f"hooks of {name}"
        if _differ(tensor._post_accumulate_grad_hooks, row.later_hooks):
            now = tensor._post_accumulate_grad_hooks
            now.clear()
            now.update(row.later_hooks or {})
            yield f"hooks of {name}"

    def _is_ours(self, value: Any) -> bool:
        return isinstance(value, FakeTensor) and value.fake_mode is self.fakes

    def _holds_fakes(self, state: Any) -> bool:
        rows = [value for value in state.values() if isinstance(value, dict)]
        return any(self._is_ours(value) for row in rows for value in row.values())

    # Tensors without memory that are left somewhere -----------------------------------------------------------------------

    def stray(self) -> list[FakeTensor]:
        """Return the tensors of recordings that are still referenced; nothing can be restored afterwards."""
        # An error may hold this for long.
        self._tensors, self._modules, self._optimizers, self._functions = [], [], [], []
        with _unseen():
            young = self._made_is_young()  # and stays so for one collection
            found = self._fakes_made((0,) if young else (None,))
            for generation, looked_at in ((0, (0, 1) if young else (None,)), (2, (None,))):
                if found:  # most are parts of cycles that nobody holds
                    found.clear()
                    gc.collect(generation)
                    found = self._fakes_made(looked_at)
            if found and gc.get_freeze_count():  # what nobody holds may be frozen
                found.clear()
                with _thawed():
                    gc.collect()
                    found = self._fakes_made((None,))
            return found

    def _made_is_young(self) -> bool:
        """Whether nothing was collected since, so that all that was made is in the youngest generation."""
        return _collections() == self._collections

    def _fakes_made(self, generations: Sequence[int | None]) -> list[FakeTensor]:
        fakes = _objects((FakeTensor,), generations)
        own = self._own_fakes
        return [
            fake
            for fake in fakes
            if fake.fake_mode is self.fakes and (id(fake) not in own or own[id(fake)]() is not fake)
        ]


def forget(fakes: list[FakeTensor]) -> list[str]:
    """Take tensors out of whatever holds them; return what that was, in words.

    What was there before is not known, or it would have been put back. A list loses an item, an attribute is gone, a cache is
    empty.
    """
    found: dict[str, None] = {}
    inner: list[Any] = fakes
    seen = {id(fakes)}
    with _unseen(), _thawed():
        for _ in range(_MOST_HOLDERS):
            targets = {id(value) for value in inner}
            holders = [holder for holder in gc.get_referrers(*inner) if not _is_passing(holder, targets | seen)]
            seen |= {id(inner), id(holders)}
            # What cannot be changed is taken out of what holds it.
            inner = [holder for holder in holders if not _take_out(holder, targets, found)]
            seen |= {id(inner)}
            if not inner:
                break
    return list(found)


def _is_passing(holder: Any, known: set[int]) -> bool:
    return id(holder) in known or isinstance(holder, types.FrameType | torch.Tensor)


def _take_out(holder: Any, targets: set[int], found: dict[str, None]) -> bool:
    """Take values out of an object if that can be changed."""
    if isinstance(holder, _lru_cache_wrapper):
        holder.cache_clear()
        found[f"the cache of {getattr(holder, '__name__', 'a function')}"] = None
        return True
    if isinstance(holder, dict) and any(isinstance(outer, _lru_cache_wrapper) for outer in gc.get_referrers(holder)):
        return False  # the inside of a cache
    kind = next((kind for owners, kind in _CHANGED.items() if isinstance(holder, owners)), None)
    own = getattr(holder, "__dict__", None)
    if kind is None and not isinstance(own, dict):
        return False
    Holder("", own if kind is None else holder, kind or "dict").take_out(targets)
    found[f"a {type(holder).__name__}"] = None
    return True


_CHANGED: dict[Any, str] = {list | deque: "list", dict: "dict", set: "set", types.CellType: "cell"}


# Reading tensors without anybody noticing -----------------------------------------------------------------------------------


@contextmanager
def _unseen() -> Iterator[None]:
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def _kinds(kind: type) -> set[type]:
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def _objects(classes: Iterable[type], generations: Sequence[int | None] = (None,)) -> list[Any]:
    """Return the objects of some classes that are not frozen."""
    return [x for generation in generations for x in _of(classes, gc.get_objects(generation))]


def _of(classes: Iterable[type], objects: list[Any]) -> list[Any]:
    """Return the objects of some classes; there may be a million others, so they are looked through without a loop in Python."""
    kinds: set[type] = set().union(*map(_kinds, classes))
    return list(compress(objects, map(kinds.__contains__, map(type, objects))))


class _FreezeMark:
    """One is frozen with everything else, and one made right after: those that are not frozen say what was done since."""


class _FrozenObjects:
    """The objects of interest that a program has frozen, so that the collector looks at them no more (`gc.freeze`).

    `gc.get_objects` leaves them out. So they are looked for when something frozen is met first, and noted weakly: until others
    are frozen, there are only fewer.
    """

    def __init__(self) -> None:
        self._functions: list[weakref.ref[Any]] = []
        self._others: list[weakref.ref[Any]] = []
        self._marks: tuple[_FreezeMark, _FreezeMark] | None = None

    def look(self) -> None:
        """Look through everything frozen, unless that was done before and nothing was frozen or thawed since."""
        if self._marks is not None and _objects((_FreezeMark,)) == [self._marks[1]]:
            return
        self._functions, self._others, self._marks = [], [], None
        if gc.get_freeze_count():  # which counts them, and takes as long as looking at them
            frozen = _FreezeMark()
            # One after the other without a step of the interpreter between them, in which another thread could make objects.
            steps: tuple[Callable[[], Any], ...] = (gc.unfreeze, gc.get_objects, gc.freeze, _FreezeMark)
            _, objects, _, mark = map(operator.call, steps)
            self._marks = frozen, mark
            for one in _of(_OF_INTEREST, objects):
                if type(one) is not types.FunctionType:
                    self._others.append(weakref.ref(one))
                elif not _is_of_library(one.__code__.co_filename):
                    self._functions.append(weakref.ref(one))

    def functions(self) -> list[types.FunctionType]:
        """Return the functions that are still there, but for those of libraries: no step depends on what they hold."""
        return [function for known in self._functions if (function := known()) is not None]

    def others(self) -> list[Any]:
        """Return the tensors, modules and optimizers that are still there."""
        found = [one for known in self._others if (one := known()) is not None]
        for one in found:
            if isinstance(one, torch.Tensor):
                one._fix_weakref()  # it may live in C++ alone, which torch must know that it does no more
        return found


@cache
def _is_of_library(file: str) -> bool:
    """Whether code of a file is nothing that `ExecutedCode` notes; of generated code the file does not tell."""
    return not file.startswith("<") and is_library(package_of(file))


_OF_INTEREST = (torch.Tensor, torch.nn.Module, Optimizer, types.FunctionType)
_frozen = _FrozenObjects()


@contextmanager
def _thawed() -> Iterator[None]:
    """Have the collector know what is frozen meanwhile."""
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()


def _collections() -> int:
    return sum(row["collections"] for row in gc.get_stats())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a form and memory of its own; what `vmap` and its like made stands for another tensor."""
    return tensor.layout == torch.strided and not tensor.is_nested and not is_functorch_wrapped_tensor(tensor)


def _noted(tensor: torch.Tensor) -> _HeldTensor:
    hooks, later = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    return _HeldTensor(
        tensor, tensor.data, tensor.grad if is_leaf(tensor) else None, tensor.requires_grad, hooks and dict(hooks),
        later and dict(later),
    )  # fmt: skip


def _differ(now: Any, before: dict[int, Any] | None) -> bool:
    return dict(now or {}) != (before or {})
