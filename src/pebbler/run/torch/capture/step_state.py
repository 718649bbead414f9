"""The state before and after a step, and runs of the step on fake tensors that leave this state unchanged.

The optimizers that a step uses announce themselves through torch's hooks around `Optimizer.step`, so nothing has to be declared.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_map

from pebbler.errors import InputError
from pebbler.run.torch.capture.call_recorder import CallRecorder
from pebbler.run.torch.capture.calls import Place, Record, Scalar, reference
from pebbler.run.torch.capture.executed_code import pause_watch, resume_watch
from pebbler.run.torch.capture.fake_results import FakeResults
from pebbler.run.torch.capture.forgotten_gradients import ForgottenGradient
from pebbler.run.torch.capture.gradient_scaling import recorded_scalers
from pebbler.run.torch.capture.holders import HeldState, Holder
from pebbler.run.torch.capture.item_reader import ItemReader
from pebbler.run.torch.capture.one_at_a_time import is_listening, replaced
from pebbler.run.torch.capture.python_state import Change, same_value, shown_value
from pebbler.run.torch.capture.random_state import recorded_generators
from pebbler.run.torch.capture.scalars import LateNumber, Scalars, largest, smallest
from pebbler.run.torch.capture.settings import fixed_settings, traced_groups
from pebbler.run.torch.capture.source_lines import line_of, package_of, user_line
from pebbler.run.torch.capture.step_arguments import fields_of, flatten_arguments
from pebbler.run.torch.capture.tensor_watch import is_leaf, same_memory

__all__ = ["NotSettled", "StepState", "is_data"]

_LAZY = (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)


class NotSettled(InputError):
    """A step did something that it may do only once, such as making a cache; planning can be tried again after one step."""


class StepState:
    """Everything that a step touches and that outlives it: arguments, parameters, optimizer state, gradients."""

    def __init__(
        self,
        step: Callable[..., Any],
        args: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        keep_grads: bool = False,
    ) -> None:
        self.step, self.args, self.keywords, self.keep_grads = step, tuple(args), dict(keywords or {}), keep_grads
        self.leaves, self.spec = flatten_arguments((self.args, self.keywords))
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, np.ndarray):
                raise InputError(
                    f"argument {i} is an array; pass a tensor (torch.from_numpy), so that the next one may differ"
                )
            if isinstance(leaf, torch.Tensor) and leaf.is_nested:
                raise InputError(f"argument {i} is a nested tensor; pass it padded (to_padded_tensor), with a mask")
        self.optimizers: list[Optimizer] = []
        self.tensors: list[torch.Tensor] = []  # whatever else the step refers to
        self.scalers: list[torch.amp.GradScaler] = []
        self.slots: list[tuple[Holder, Any]] = []  # where the step leaves a new tensor each time: a holder and a key
        self.generators: list[torch.Generator] = []  # that it draws from, besides torch's own
        self.hyper: list[list[dict[str, Any]]] = []
        modes = [leaf.fake_mode for leaf in self.leaves if isinstance(leaf, FakeTensor)]
        self.fakes = modes[0] if modes else FakeTensorMode(allow_non_fake_inputs=True)
        self.try_kernels = not modes  # fakes come from whoever plans what need not fit here
        self.results = FakeResults(self.fakes)
        # A parameter among the arguments is always the same one; other tensors are new in every step.
        self._args: dict[int, Place] = {}
        self.twins: dict[int, int] = {}  # arguments that are the same tensor as an earlier one
        for i, leaf in enumerate(self.leaves):
            if is_data(leaf):
                _, first = self._args.setdefault(id(leaf), ("arg", i))
                if first != i:
                    self.twins[i] = first
        self._owners: dict[int, list[torch.Tensor]] = {}  # storage -> tensors that Python shows
        self._tensor_index: dict[int, int] = {}  # where in `tensors` each is
        self._found: dict[int, Place] = {}  # optimizer state at the beginning of a recording
        self._grads: dict[int, Any] = {}
        self._states: list[HeldState] = []
        self._made: list[CallRecorder] = []
        self._there: dict[int, torch.Tensor] = {}  # tensors that had gradients at the beginning of a recording
        self._early: dict[Place, Any] = {}  # values of what the first recording has made
        self.drawn: dict[int, torch.Tensor] = {}  # states of the generators, by `_cdata`, when the next step begins

    # Places -----------------------------------------------------------------------------------------------------------

    def locate(self, tensor: torch.Tensor) -> Place:
        """Return the place where a tensor that exists before the step is found."""
        place = self._args.get(id(tensor)) or self._found.get(id(tensor))
        if place is not None:
            return place
        index = self._tensor_index.get(id(tensor))
        if index is not None and tensor.requires_grad:  # so no gradient
            return ("tensor", index)
        for i, other in enumerate(self.tensors):
            if other is tensor:
                return ("tensor", i)
            if other.grad is tensor:
                return ("grad", i)
        if not tensor.requires_grad:
            owner = next((o for row in self._owners.values() for o in row if is_leaf(o) and o.grad is tensor), None)
            if owner is not None:  # only the optimizer uses it, so the gradient is seen first
                return ("grad", self._append(owner))
        if isinstance(tensor, FakeTensor) and any(recorder.number_of(tensor) is not None for recorder in self._made):
            slots = (holder.name(key) for holder, key in self.slots if holder.read().get(key) is tensor)
            where = next(slots, "a place where pebbler does not look")
            raise NotSettled(
                f"{user_line()}: the step uses a tensor that an earlier step made and left in {where}; keep it in a buffer and "
                "change that in place, or run one step before planning if it is made only once"
            )
        if not isinstance(tensor, FakeTensor):
            # An alias such as `param.data` is another object each time; the tensor that Python shows stands for both.
            known = [*self._owners.get(tensor.untyped_storage()._cdata, []), *self.tensors]
            owner = next(
                (other for other in known if not isinstance(other, FakeTensor) and same_memory(other, tensor)), None
            )
            if owner is not None and owner is not tensor:
                return self.locate(owner)
        return ("tensor", self._append(tensor))

    def _append(self, tensor: torch.Tensor) -> int:
        number = len(self.tensors)
        self._tensor_index[id(tensor)] = number
        self.tensors.append(tensor)
        if is_leaf(tensor) and tensor.requires_grad:
            self._grads[number] = tensor.grad
            if tensor.grad is not None:
                self._there[number] = tensor
        return number

    def know_tensors(self, found: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Note the tensors that can be reached from the step."""
        for path, tensor in found:
            if isinstance(tensor, _LAZY):
                raise NotSettled(f"{path} has no shape yet (a lazy module); run the step once before planning")
            if tensor.layout == torch.strided and not isinstance(tensor, FakeTensor) and id(tensor) not in self._args:
                self._owners.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)

    def resolve(self, place: Place, leaves: Sequence[Any]) -> Any:
        """Return the object at a place, None if there is none; `leaves` are the arguments of the step, flat."""
        match place[0]:
            case "arg":
                return leaves[place[1]]
            case "tensor":
                return self.tensors[place[1]]
            case "grad":
                return self.tensors[place[1]].grad
            case "group":
                return self.optimizers[place[1]].param_groups[place[2]][place[3]]
            case "slot":
                holder, key = self.slots[place[1]]
                return holder.read().get(key)
        _, number, group, i, key = place
        optimizer = self.optimizers[number]
        return optimizer.state.get(optimizer.param_groups[group]["params"][i], {}).get(key)

    def _find(self, place: Place) -> Any:
        """Return the object that the step will find at a place; for objects made while recording, the value to be made."""
        value = self.resolve(place, self.leaves)
        if not isinstance(value, FakeTensor) or place[0] == "arg":
            return value
        if place not in self._early:
            maker = next((m for m in self._made if m.number_of(value) is not None), None)
            self._early[place] = None if maker is None else maker.answers.guess(maker.number_of(value) or 0)
        return self._early[place]

    def bind(self, place: Place, tensor: torch.Tensor) -> None:
        """Leave a tensor at a place."""
        if place[0] == "grad":
            self.tensors[place[1]].grad = tensor
            return
        if place[0] == "slot":
            self.slots[place[1]][0].put(self.slots[place[1]][1], tensor)
            return
        _, number, group, i, key = place
        optimizer = self.optimizers[number]
        optimizer.state[optimizer.param_groups[group]["params"][i]][key] = tensor

    def params(self, optimizer: Optimizer) -> list[tuple[int, int, torch.Tensor]]:
        """Return the parameters of an optimizer with their group and number in it."""
        groups = enumerate(optimizer.param_groups)
        return [(g, i, param) for g, group in groups for i, param in enumerate(group["params"])]

    def lasting_tensors(self) -> list[torch.Tensor]:
        """Return every tensor with memory that the step finds when it begins, gradients included."""
        states = [
            value for optimizer in self.optimizers for state in optimizer.state.values() for value in state.values()
        ]
        grads = [tensor.grad for tensor in self.tensors if is_leaf(tensor)]
        found = [value for value in (*self.leaves, *self.tensors, *grads, *states) if isinstance(value, torch.Tensor)]
        return [tensor for tensor in found if type(tensor) is not ForgottenGradient]

    # Recording --------------------------------------------------------------------------------------------------------

    def record(self, seed: int) -> tuple[Record, Scalars]:
        """Run the step once on fake tensors; the state it leaves is fake too, until `restore`."""
        scalars = Scalars(seed)
        recorder = CallRecorder(self.results, scalars, self.locate, self._find, self.drawn, self.try_kernels)
        for leaf in self.leaves:
            if is_data(leaf):
                recorder.seen.enter_apart(leaf)
        self._found = {}
        self._there = {i: t for i, t in enumerate(self.tensors) if is_leaf(t) and t.grad is not None}
        for number, optimizer in enumerate(self.optimizers):
            self._find_state(number, optimizer)
        numbers = self._state_numbers()
        listening = partial(is_listening, recorder)
        with (
            self._hooks(recorder),
            eager_answers(listening),
            recorded_generators(recorder, listening),
            recorded_scalers(self.scalers, recorder.only_if_zero, listening),
            _counted_batches(recorder),
            ItemReader(recorder),
            recorder,
        ):
            torch.clear_autocast_cache()  # of weights cast before, real ones or those of an earlier recording
            result = self.step(*self.args, **self.keywords)
        if recorder.refusal is not None:
            raise recorder.refusal  # the step has gone on all the same
        self._refuse_numbers(numbers)
        record = recorder.record
        self._made.append(recorder)

        def refer(value: Any) -> Any:
            if isinstance(value, LateNumber):
                return Scalar(value.expression)
            if not isinstance(value, torch.Tensor):
                return value
            number = recorder.number_of(value)
            if number is None and isinstance(value, FakeTensor):
                raise InputError("the step returns a tensor that an earlier step made")
            return value if number is None else reference(number)

        for leaf in tree_flatten(result)[0]:
            if fields_of(leaf) is not None:
                raise InputError(
                    f"{line_of(self.step)}: the step returns a {type(leaf).__name__} with tensors in it; return tensors, tuples, "
                    "lists or dicts"
                )
        record.result = tree_map(refer, result)
        record.guards = dict(scalars.guards)
        record.labels = recorder.sites.labels(record.storages, self.tensors, self.optimizers)
        recorder.answers.finish()
        self._bind(recorder)
        self.generators = [constant for constant in record.constants if isinstance(constant, torch.Generator)]
        return record, scalars

    def keeps(self, change: Change, record: Record) -> bool:
        """Whether what a recording changed is a tensor that it made and left in a place of Python's: plans leave one there too."""
        holder, key = change.holder, change.key
        if holder is None or not isinstance(change.new, FakeTensor) or not holder.takes(key):
            return False
        number = self._made[-1].number_of(change.new)
        if number is None:
            return False  # an earlier recording made it
        if change.new.requires_grad:
            raise InputError(
                f"{line_of(self.step)}: the step keeps {change.name} with what autograd remembers of it, which no plan does; keep "
                "it detached"
            )
        same = (
            i
            for i, (other, k) in enumerate(self.slots)
            if other.owner is holder.owner and other.kind == holder.kind and k == key
        )
        found = next(same, None)
        if found is None:
            found = len(self.slots)
            self.slots.append((holder.without_contents(), key))
        record.binds["slot", found] = number
        return True

    def _state_numbers(self) -> dict[tuple[int, int, int, str], Any]:
        """Return the entries of optimizers' state that are not tensors."""
        return {
            (number, g, i, key): value
            for number, optimizer in enumerate(self.optimizers)
            for g, i, param in self.params(optimizer)
            for key, value in optimizer.state.get(param, {}).items()
            if not isinstance(value, torch.Tensor) and value is not None
        }

    def _refuse_numbers(self, before: Mapping[Any, Any]) -> None:
        for where, value in self._state_numbers().items():
            if not same_value(before.get(where), value):
                number, key = where[0], where[-1]
                kind = type(self.optimizers[number]).__name__
                raise InputError(
                    f"{line_of(type(self.optimizers[number]).step)}: {kind} keeps {shown_value(value)} under {key!r} in its state "
                    "and changes it in every step; a plan can only follow tensors there"
                )

    def _bind(self, recorder: CallRecorder) -> None:
        record = recorder.record
        places: dict[Place, Any] = {}
        for number, optimizer in enumerate(self.optimizers):
            for g, i, param in self.params(optimizer):
                for key, value in optimizer.state.get(param, {}).items():
                    places["state", number, g, i, key] = value
        for i, tensor in enumerate(self.tensors):
            if is_leaf(tensor) and tensor.requires_grad:
                places["grad", i] = tensor.grad
        record.drops = [("grad", i) for i, tensor in sorted(self._there.items()) if tensor.grad is None]
        for place, value in places.items():
            if isinstance(value, torch.Tensor):
                number_ = recorder.number_of(value)
                if number_ is not None and record.storages[record.tensors[number_].storage].place != place:
                    record.binds[place] = number_

    def _find_state(self, number: int, optimizer: Optimizer) -> None:
        for g, i, param in self.params(optimizer):
            for key, value in optimizer.state.get(param, {}).items():
                if isinstance(value, torch.Tensor):
                    self._found[id(value)] = ("state", number, g, i, key)
        for g, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    self._found[id(value)] = ("group", number, g, key)

    @contextmanager
    def _hooks(self, recorder: CallRecorder) -> Any:
        traced: list[tuple[dict[str, Any], dict[str, Any]]] = []
        listening: list[ItemReader] = []
        replaced: list[tuple[dict[str, Any], str]] = []  # functions of Python that would look at numbers
        paused: list[Any] = []

        def before(optimizer: Optimizer, arguments: Any, keywords: Any) -> None:
            if not is_listening(recorder):
                return  # another thread trains meanwhile
            if not any(known is optimizer for known in self.optimizers):
                self.optimizers.append(optimizer)
                number = len(self.optimizers) - 1
                self._states.append(HeldState(optimizer))
                self._find_state(number, optimizer)
                self.hyper.append([fixed_settings(group) for group in optimizer.param_groups])
            number = next(i for i, known in enumerate(self.optimizers) if known is optimizer)
            for g, group in enumerate(optimizer.param_groups):
                if fixed_settings(group) != self.hyper[number][g]:
                    raise InputError("the step changes the optimizer's settings; do that between steps")
            # Any values do: the step runs on tensors without numbers.
            traced.extend(traced_groups(optimizer, recorder.scalars, number))
            if not torch._C._len_torch_function_stack():  # in a hook of the backward pass no mode is active
                listening.append(ItemReader(recorder))
                listening[-1].__enter__()
            namespace = getattr(inspect.unwrap(type(optimizer).step), "__globals__", {})
            for name, function in (("max", largest), ("min", smallest)):
                if name not in namespace:
                    namespace[name] = function
                    replaced.append((namespace, name))
            if runs_torch_alone(optimizer, arguments, keywords):
                paused.append(pause_watch())

        def after(optimizer: Optimizer, *_: Any) -> None:
            if is_listening(recorder):
                put_back()

        def put_back() -> None:
            while paused:
                resume_watch(paused.pop())
            for group, before in traced:
                group.update(before)
            for namespace, name in replaced:
                del namespace[name]
            if listening and torch._C._len_torch_function_stack():
                listening.pop().__exit__(None, None, None)
            traced.clear()
            replaced.clear()

        hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
        try:
            yield
        finally:
            listening.clear()  # an error in the backward pass has ended them
            put_back()
            for hook in hooks:
                hook.remove()

    def restore(self) -> None:
        """Put gradients and optimizer state back as they were before the first recording."""
        torch.clear_autocast_cache()
        for i, grad in self._grads.items():
            self.tensors[i].grad = grad
        for state in self._states:
            state.restore()

    def forget_recordings(self) -> None:
        """Let go of the tensors that the recordings made."""
        for recorder in self._made:
            recorder.seen.clear()
        self._made, self._found, self._early = [], {}, {}


@contextmanager
def _counted_batches(recorder: CallRecorder) -> Iterator[None]:
    """Let batch norms that average over all batches read how many there were as a traced number (`momentum=None`)."""
    namespace: dict[str, Any] = vars(torch.nn.modules.batchnorm)
    thread = threading.get_ident()

    def read(value: Any) -> Any:
        mine = isinstance(value, torch.Tensor) and threading.get_ident() == thread
        return recorder.item(value) if mine else float(value)

    namespace["float"] = read
    try:
        yield
    finally:
        del namespace["float"]


def is_data(leaf: Any) -> bool:
    """Whether an argument of a step is a tensor that may be another one in the next step."""
    return isinstance(leaf, torch.Tensor) and not leaf.requires_grad


# Letting models that ask whether they are being traced take the path that they take without a plan --------------------
# Recording runs on fake tensors, and libraries ask for that: transformers' `is_tracing` then avoids branches on values and fused
# attention. A plan must repeat the step as it runs by itself, so the answer is no; a branch on a value is refused where it happens.


_QUESTIONS = (("transformers.utils.import_utils", "is_fake_tensor"),)


@contextmanager
def eager_answers(listening: Callable[[], bool]) -> Iterator[None]:
    """Answer no wherever a library asks, while a step is recorded, whether a tensor is fake."""
    with ExitStack() as stack:
        for module_name, name in _QUESTIONS:
            module = sys.modules.get(module_name)
            if module is not None and hasattr(module, name):
                stack.enter_context(replaced(module, name, _no(getattr(module, name), listening)))
        yield


def _no(question: Callable[[Any], bool], listening: Callable[[], bool]) -> Callable[[Any], bool]:
    return lambda value: not listening() and question(value)


# Recognition of optimizers whose step runs only torch's own code, which need not be watched ---------------------------


def runs_torch_alone(optimizer: Optimizer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether `optimizer.step` calls nothing of the user's: its class is torch's, and there is no closure and no hook but ours.

    `arguments` and `keywords` are what a hook before the step gets, the optimizer itself first.

    >>> import torch
    >>> rule = torch.optim.SGD([torch.ones(2, requires_grad=True)])
    >>> runs_torch_alone(rule, (rule,), {}), runs_torch_alone(rule, (rule, lambda: 0.0), {})
    (True, False)
    """
    kind: Any = type(optimizer)
    if len(arguments) > 1 or keywords or not kind.__module__.startswith("torch.optim."):
        return False
    code = getattr(inspect.unwrap(kind.step), "__code__", None)
    if code is None or package_of(code.co_filename) != "torch":
        return False
    shared: Any = torch_optimizer
    if len(shared._global_optimizer_pre_hooks) > 1 or len(shared._global_optimizer_post_hooks) > 1:
        return False
    return not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
