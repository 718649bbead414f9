"""Verifying a planned step where it runs: the original step and the plan start from the same state, and results are compared.

The step runs first, as the user wrote it, so what it does besides tensors happens once. All that it changes is noted, kept and
taken back; then the plan runs. Only if both agree does what the plan left stay; otherwise all is as before, and `PlanDiffers` says
what differs. Exact kernels must give the same bits, unless the step does not repeat its own. Compiled kernels round otherwise:
their plan is first run call by call, which must give the same bits, and then compiled, which must come near.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from pebbler.errors import PebblerError
from pebbler.game.byte_sizes import shown_bytes
from pebbler.run.torch.capture.calls import Place
from pebbler.run.torch.capture.holders import HeldState
from pebbler.run.torch.capture.operators import values_written
from pebbler.run.torch.capture.python_state import PythonState, same_value
from pebbler.run.torch.capture.random_state import random_state, set_random_state
from pebbler.run.torch.capture.recordings import python_roots
from pebbler.run.torch.capture.step_arguments import flatten_arguments
from pebbler.run.torch.capture.step_state import StepState
from pebbler.run.torch.capture.tensor_watch import is_leaf
from pebbler.run.torch.cost.peak_memory import measure_peak
from pebbler.run.torch.run.program_replay import ProgramReplay
from pebbler.run.torch.run.runner import Runner

__all__ = [
    "DoesNotFit",
    "NotCompared",
    "OverBudget",
    "PlanDiffers",
    "PlanOutdated",
    "UndoLog",
    "proven_call",
    "verified_call",
]

# How far compiled kernels may be from the step's own, of the size of what a step changes, over all tensors of a kind. An optimizer
# that divides by the size of a gradient turns rounding into steps of full size, so half precision says little.
_NEAR = {torch.float64: 1e-3, torch.float32: 5e-2}
_NEAR_HALF = 1.0
_ATTEMPTS = 3  # at a comparison that other threads may disturb
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class PlanDiffers(PebblerError):
    """A planned step differs from the step itself, or holds more than its budget; nothing was changed."""


class OverBudget(PlanDiffers):
    """A planned step holds more than its budget, by `excess` bytes; nothing was changed."""

    def __init__(self, message: str, excess: int = 0) -> None:
        super().__init__(message)
        self.excess = excess


class PlanOutdated(PlanDiffers):
    """A planned step that agreed with the step does not any more; this call changed nothing, earlier ones may have been wrong."""


class NotCompared(PebblerError):
    """There is nothing to compare a plan with; nothing was changed."""


class DoesNotFit(NotCompared):
    """The step itself does not fit into memory."""


def verified_call(
    runner: Runner, exact: Runner | None, budget: int | None, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Any:
    """Run a step and its plan from the same state and return the plan's result; raise `PlanDiffers` if they disagree.

    `exact` runs the same plan call by call where `runner` has compiled kernels; the peak of `runner` is held against `budget`.
    Raises `NotCompared` where the step itself does not fit, or other threads draw from its generator all the time.
    """
    runner.check(args, keywords)  # what can be refused is, before anything runs
    runner.forget_gradients()
    repeats = True
    for more in reversed(range(_ATTEMPTS)):
        verification = _Verification(runner, exact, budget, args, keywords)
        try:
            return verification.result()
        except OverBudget:
            raise
        except PlanDiffers as error:
            repeats &= verification.repeats
            if not verification.others_may_draw or (not more and repeats):
                raise
            if not more:
                raise NotCompared("other threads draw from torch's generator while the step is compared") from error
    raise AssertionError  # the last attempt raises or returns


def proven_call(runner: Runner, replay: ProgramReplay, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    """Run a planned step call by call and replayed, from the same state; a replay that does not leave the same is given up."""
    runner.check(args, keywords)
    runner.forget_gradients()
    return _Verification(runner, None, None, args, keywords).replayed(replay)


@dataclass
class _Outcome:
    """The state after a run, as copies: tensors by place, and everything else that can be compared."""

    tensors: dict[Place, torch.Tensor]
    others: dict[Place, Any]


class _Verification:
    def __init__(
        self,
        runner: Runner,
        exact: Runner | None,
        budget: int | None,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
    ) -> None:
        self.runner, self.exact, self.budget, self.args, self.keywords = runner, exact, budget, args, keywords
        self.state, self.device = runner.state, runner.captured.device
        self.leaves = flatten_arguments((args, dict(keywords)))[0]
        self.phase = runner.phase()
        # Threads share the default generators: others may draw from them in the middle of a run.
        self.others_may_draw = threading.active_count() > 1
        self.repeats = True  # whether the step itself does the same again, as far as that is known
        calls = [call for group in self.phase.groups for call in group.calls]
        changed = {s for call in calls for s in (*call.mutates, *call.statistics)}
        places = [self.phase.record.storages[s].place for s in sorted(changed)]
        self.changes = [place for place in places if place is not None]
        self.start = self._outcome(())
        self.known = [self.state.resolve(place, self.leaves) for place in self.changes]  # the step may let go of some
        self.before = _StepBindings(self.state, self.device)
        self.log = UndoLog()
        self.python = PythonState(python_roots(self.state))
        self.returned: Any = None

    def result(self) -> Any:
        """Return the plan's result."""
        try:
            with self.log:
                self.returned = self.state.step(*self.args, **self.keywords)
            eager = self._outcome(self.returned)
            if self.device.startswith("cuda"):
                torch._C._cuda_clearCublasWorkspaces()  # those of the thread that ran the step's backward pass
        except torch.OutOfMemoryError as error:
            self._put_back()
            raise DoesNotFit("the step itself does not fit into memory") from error
        except BaseException:
            self._put_back()
            raise
        try:
            self._compare(eager)
        except BaseException:
            self._put_back()
            raise
        return self.returned

    def _compare(self, eager: _Outcome) -> None:
        if self.log.collectives:
            raise PlanDiffers(f"the step talks to other processes ({self.log.collectives[0]}), which no plan repeats")
        self._require_known_changes()
        if self.exact is not None:
            self._undo()
            self._require_same(eager, self._run(partial(self.exact, *self.args, **self.keywords)))
        self._undo()
        planned = self._run_in_budget()
        if self.exact is None:
            self._require_same(eager, planned)
        else:
            self._require_near(eager, planned)

    def replayed(self, replay: ProgramReplay) -> Any:
        """Return the result of a planned step, after its replay has been compared with it."""
        for tensor in self.known:
            if tensor is not None:
                self.log.keep(tensor)
        try:
            planned = self._run_plan()
            replay.proven = True
            self._undo()
            replayed = self._run_plan()
            difference = _difference(planned, replayed)
            if difference is not None and replay.why_not is None:
                replay.proven = False
                self._undo()
                again = _difference(planned, self._run_plan())
                replay.proven = True
                if again is None or not self._is_near(planned, replayed):
                    replay.refuse(f"it did not do the same ({difference})")
        except BaseException:
            self._undo()
            raise
        return self.returned

    def _is_near(self, planned: _Outcome, replayed: _Outcome) -> bool:
        """Whether a replay drew as much and came near: all that can be asked where kernels do not repeat their own bits."""
        whole = [place for place, value in planned.tensors.items() if not value.is_floating_point()]
        try:
            self._require_near(planned, replayed)
        except PlanDiffers:
            return False
        return all(_same_bits(planned.tensors[place], replayed.tensors[place]) for place in whole)

    def _run_plan(self) -> _Outcome:
        return self._run(partial(self.runner, *self.args, **self.keywords))

    # Running ----------------------------------------------------------------------------------------------------------

    def _run(self, function: Callable[[], Any]) -> _Outcome:
        self.returned = function()
        return self._outcome(self.returned)

    def _run_in_budget(self) -> _Outcome:
        if self.budget is None or torch.autograd._profiler_enabled():
            return self._run_plan()
        held = 0
        for _ in range(2):  # the first run of a program goes through an interpreter, which may hold a little more
            self.returned = None
            self._undo()
            there = self._bytes_there()
            self.returned, above = measure_peak(partial(self.runner, *self.args, **self.keywords), device=self.device)
            held = there + above
            if held <= self.budget:
                return self._outcome(self.returned)
        raise OverBudget(
            f"the planned step held {shown_bytes(held)}, more than the budget of {shown_bytes(self.budget)}; plan with costs "
            f"that are measured here, or with a headroom that is larger by {shown_bytes(held - self.budget)}",
            held - self.budget,
        )

    def _bytes_there(self) -> int:
        """Return the bytes that count before the step: on CUDA all allocated bytes, on a CPU the step's own tensors."""
        if self.device.startswith("cuda"):
            return int(torch.cuda.memory_allocated(self.device))
        storages = self.phase.record.storages
        return sum(s.bytes for s in storages if s.place is not None and s.device == self.device)

    def _put_back(self) -> None:
        """Undo all changes of the step, including those besides tensors."""
        self._undo()
        self.python.restore()

    def _undo(self) -> None:
        self.log.undo()
        self.before.restore()
        self.runner.running = False

    def _outcome(self, returned: Any) -> _Outcome:
        found: dict[Place, Any] = {place: self.state.resolve(place, self.leaves) for place in self.changes}
        found |= {place: self.state.resolve(place, self.leaves) for place in self.phase.binds}
        found |= dict(self._optimizer_state())
        found |= {("result", i): value for i, value in enumerate(tree_flatten(returned)[0])}
        if not self.others_may_draw or any(group.random for group in self.phase.groups):
            found |= {("random", i): value for i, value in enumerate(random_state(self.device))}
        tensors = {place: value for place, value in found.items() if isinstance(value, torch.Tensor)}
        others = {place: value for place, value in found.items() if place not in tensors and value is not None}
        return _Outcome({place: _host_copy(value) for place, value in tensors.items()}, others)

    def _optimizer_state(self) -> Iterator[tuple[Place, Any]]:
        for number, optimizer in enumerate(self.state.optimizers):
            for group, i, param in self.state.params(optimizer):
                for key, value in optimizer.state.get(param, {}).items():
                    yield ("state", number, group, i, key), value

    # Comparing --------------------------------------------------------------------------------------------------------

    def _require_known_changes(self) -> None:
        """Refuse if the step has changed a tensor that the plan leaves alone; keep all that the plan will change."""
        known = [*self.known, *(self.state.resolve(place, self.leaves) for place in self.changes)]
        memory = {tensor.untyped_storage().data_ptr() for tensor in known if tensor is not None}
        for tensor, kept in self.log.changed.values():
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in memory and not _same_bits(_bytes(storage.cpu()), _bytes(kept)):
                what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
                raise PlanDiffers(f"the step changes a tensor {what} that it did not change when it was captured")
        for tensor in known:
            if tensor is not None:
                self.log.keep(tensor)

    def _require_same(self, eager: _Outcome, planned: _Outcome) -> None:
        difference = _difference(eager, planned)
        if difference is None:
            return
        self._undo()
        again = self._run(partial(self.state.step, *self.args, **self.keywords))
        if _difference(eager, again) is None:
            raise PlanDiffers(
                f"the planned step does not do what the step does: {difference}; nothing was changed. Something the step "
                "depends on was not seen when it was captured: please report it, and run the step itself meanwhile"
            )
        # The step does not repeat its own bits (kernels that add up in no fixed order), so near is all that can be asked.
        self.repeats = False
        self._require_near(eager, planned)
        self._undo()
        self._run_plan()

    def _require_near(self, eager: _Outcome, planned: _Outcome) -> None:
        if eager.tensors.keys() != planned.tensors.keys() or not _same_others(eager, planned):
            raise PlanDiffers(f"the planned step leaves other state than the step: {_difference(eager, planned)}")
        sizes: dict[Any, list[float]] = {}
        for place, value in eager.tensors.items():
            if not value.is_floating_point():
                continue
            start = self.start.tensors.get(place)
            change = value.double() if start is None or start.shape != value.shape else value.double() - start.double()
            kind = (place[0], place[-1] if place[0] == "state" else "", value.dtype)
            total = sizes.setdefault(kind, [0.0, 0.0, 0.0])
            for i, part in enumerate((planned.tensors[place].double() - value.double(), change, value.double())):
                total[i] += float(part.square().sum())
        for (kind, key, dtype), (off, change, size) in sizes.items():
            near = _NEAR.get(dtype, _NEAR_HALF)
            rounding = torch.finfo(dtype).eps ** 2 * size
            if not off <= near**2 * change + rounding * 16 and size == size:
                what = " ".join(filter(None, (kind, str(key))))
                raise PlanDiffers(
                    f"compiled kernels are not near enough to the step's own: {what} differs by {(off / (change or 1)) ** 0.5:.2g} "
                    "of what one step changes; nothing was changed"
                )


def _difference(one: _Outcome, other: _Outcome) -> str | None:
    """Return in words the first thing that differs, None if nothing does."""
    for place in one.tensors.keys() ^ other.tensors.keys():
        who = "step" if place in one.tensors else "plan"
        return f"only the {who} leaves {_shown(place)}"
    if not _same_others(one, other):
        return f"{one.others} against {other.others}"
    for place, value in one.tensors.items():
        twin = other.tensors[place]
        if (value.shape, value.dtype) != (twin.shape, twin.dtype):
            return f"{_shown(place)} is {value.dtype} {tuple(value.shape)} against {twin.dtype} {tuple(twin.shape)}"
        if not _same_bits(value, twin):
            if place[0] == "random":
                return "the random generator ends in another state"
            off = (value.double() - twin.double()).abs().max() if not value.is_complex() else float("nan")
            return f"{_shown(place)} differs by up to {float(off):.3g}"
    return None


def _same_others(one: _Outcome, other: _Outcome) -> bool:
    """Whether everything besides tensors is equal; two not-a-numbers are."""
    return one.others.keys() == other.others.keys() and all(
        value is other.others[place] or same_value(value, other.others[place]) or value == other.others[place]
        for place, value in one.others.items()
    )


def _shown(place: Place) -> str:
    return ".".join(map(str, place))


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and type hold the same bits: not-a-numbers are equal, zeros of two signs are not."""
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    as_bits = _BITS[a.element_size()]
    return bool(torch.equal(a.contiguous().view(as_bits), b.contiguous().view(as_bits)))


# Undoing a step: bytes of tensors, gradients, optimizer state and random generators ------------------------------------------


class UndoLog(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the bytes of everything that was there before and that an operator inside it writes, from right before the write.

    >>> weight = torch.ones(2)
    >>> with UndoLog() as log:
    ...     _ = weight.mul_(3).add(1).zero_()
    >>> len(log.changed), weight.tolist()
    (1, [3.0, 3.0])
    >>> log.undo()
    >>> weight.tolist()
    [1.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[int, tuple[torch.Tensor, torch.UntypedStorage]] = {}  # a tensor on it, and its old bytes
        self.collectives: list[str] = []
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "c10d" in func.namespace:
            self.collectives.append(str(func))
        if func is torch.ops.aten.lift_fresh.default:
            self._made.add(_key(args[0]))  # made from Python values right now
        for tensor in values_written(func, args, kwargs):
            self.keep(tensor)
        result = func(*args, **kwargs)
        operands = {_key(x) for x in tree_flatten((args, kwargs))[0] if _has_storage(x)}
        self._made |= {_key(x) for x in tree_flatten(result)[0] if _has_storage(x)} - operands
        return result

    def keep(self, tensor: torch.Tensor) -> None:
        """Keep the bytes of a tensor's storage, unless it was made meanwhile or is kept already."""
        if _has_storage(tensor) and _key(tensor) not in self._made and _key(tensor) not in self.changed:
            self.changed[_key(tensor)] = tensor.detach(), _host_bytes(tensor)

    def undo(self) -> None:
        """Restore everything; the log keeps its entries."""
        for tensor, kept in self.changed.values():
            tensor.untyped_storage().copy_(kept)


class _StepBindings:
    """The existing gradients and optimizer state, and the state of the random generators."""

    def __init__(self, state: StepState, device: str) -> None:
        self.device = device
        params = [param for optimizer in state.optimizers for _, _, param in state.params(optimizer)]
        leaves = {id(t): t for t in (*state.tensors, *params) if is_leaf(t)}
        self.grads = [(tensor, tensor.grad) for tensor in leaves.values()]
        self.states = [HeldState(optimizer) for optimizer in state.optimizers]
        self.random = random_state(device)
        self.generators = [(generator, generator.get_state()) for generator in state.generators]

    def restore(self) -> None:
        """Restore everything."""
        for tensor, grad in self.grads:
            tensor.grad = grad
        for held in self.states:
            held.restore()
        set_random_state(self.random, self.device)
        for generator, drawn in self.generators:
            generator.set_state(drawn)


def _has_storage(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _host_bytes(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Return a copy of a tensor's storage in the host's memory."""
    storage = tensor.untyped_storage()
    return storage.clone() if storage.device.type == "cpu" else storage.cpu()
