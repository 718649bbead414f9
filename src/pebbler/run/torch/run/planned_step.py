"""The door for training loops: a step that plans itself at its first call, once for every shape, and keeps its plans on disk."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import torch

from pebbler.errors import InputError, PebblerError, quoted
from pebbler.run.torch.capture.captured import Captured, capture
from pebbler.run.torch.capture.holders import PLAIN
from pebbler.run.torch.capture.step_arguments import flatten_arguments
from pebbler.run.torch.cost.costs import Device, nearest_device, roofline
from pebbler.run.torch.cost.profiling import profile_for
from pebbler.run.torch.fuse.fusion import fuse
from pebbler.run.torch.plan.byte_sizes import bytes_of
from pebbler.run.torch.plan.planner import plan_captured
from pebbler.run.torch.plan.torch_plan import KernelChoice, Objective, TorchPlan
from pebbler.run.torch.run.compiled_step import CompiledStep, Verify, compile, require_verify
from pebbler.run.torch.run.forgotten_gradients import GradientsForgotten, stand_ins
from pebbler.run.torch.run.verification import OverBudget, PlanDiffers
from pebbler.solver.problem import Impossible
from pebbler.version import VERSION

__all__ = ["PlannedStep", "StepOptions", "step"]

_MOST_PLANS = 16  # of one step; more means that something changes in every call


class StepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a step is planned; what each means is said by `step`."""

    budget: int | None = None
    device: str | Device | None = None
    objective: Objective = "time"
    kernels: KernelChoice = "exact"
    offload: bool | None = None
    headroom: int | None = None
    time_limit: float = 30.0
    seed: int = 0
    verify: Verify = "first"
    keep_grads: bool = False


def step(
    function: Callable[..., Any],
    *,
    budget: str | int | None = None,
    cache: str | Path | None = None,
    strict: bool = False,
    headroom: str | int | None = None,
    **options: Any,
) -> PlannedStep:
    """Return a drop-in for a training step that plans itself within `budget` bytes, for every shape of batch at its first call.

    A step that branches on what is known before it runs (a draw, a step counter, a mask) gets a plan for every branch it takes.
    Plans are kept in the folder `cache` and found there again. Where a step cannot be planned, it runs as it is and a warning says
    why; with `strict` that is an error. A budget that no plan keeps is always an error. With `keep_grads` gradients are left in
    `.grad` as the step leaves them. Other options are those of `plan` and `compile`: `device`, `objective`, `kernels`, `offload`,
    `time_limit` (of one plan), `seed`, `verify`.

    >>> model = torch.nn.Linear(4, 2)
    >>> rule = torch.optim.SGD(model.parameters(), lr=0.05)
    >>> def train(x, weight=1.0):
    ...     rule.zero_grad()
    ...     loss = weight * model(x).square().mean()
    ...     loss.backward()
    ...     rule.step()
    ...     return loss
    >>> fast = step(train, budget="1MB", device="cpu")
    >>> losses = [fast(torch.ones(n, 4), weight=2.0).item() for n in (8, 8, 3)]  # the last batch is smaller
    >>> losses[0] > losses[1] > losses[2], fast
    (True, PlannedStep(train, 2 plans))
    """
    known = StepOptions.__struct_fields__
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name} (known: {', '.join(known)})")
    limit, spare = (None if size is None else bytes_of(size) for size in (budget, headroom))
    chosen = StepOptions(budget=limit, headroom=spare, **options)
    for name, expected in (("kernels", KernelChoice), ("objective", Objective)):
        if getattr(chosen, name) not in get_args(expected):
            raise InputError(f"{name} must be {' or '.join(get_args(expected))}, got {quoted(getattr(chosen, name))}")
    require_verify(chosen.verify)
    return PlannedStep(function, chosen, None if cache is None else Path(cache), strict)


@dataclass
class _Variants:
    """The plans for one structure of arguments, each under the conditions and for the branches that its capture found."""

    plans: list[CompiledStep] = field(default_factory=list)
    refused: bool = False  # whether the step runs as it is where none of them fits


class PlannedStep:
    """A step that plans itself; see `step`."""

    def __init__(self, function: Callable[..., Any], options: StepOptions, cache: Path | None, strict: bool) -> None:
        self.function, self.options, self.cache, self.strict = function, options, cache, strict
        self._variants: dict[tuple[Any, ...], _Variants] = {}
        self._forgotten: dict[int, torch.Tensor] = {}  # parameters whose gradients some plan has not kept

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        count = len(self.plans)
        return f"PlannedStep({name}, {count} plan{'' if count == 1 else 's'})"

    @property
    def plans(self) -> list[TorchPlan]:
        """The plans made so far."""
        return [fast.plan for variants in self._variants.values() for fast in variants.plans]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step."""
        variants = self._variants.setdefault(_form(args, kwargs), _Variants())
        for fast in variants.plans:
            try:
                return self._run(fast, args, kwargs)
            except PlanDiffers as error:
                self._give_up(variants, error)
                variants.plans.clear()
                break
            except InputError:
                if fast.running:
                    raise
        if variants.refused:
            return self._run_as_it_is(args, kwargs)
        made = self._plan(variants, args, kwargs)
        if made is None:
            return self._run_as_it_is(args, kwargs)
        variants.plans.insert(0, made)
        try:
            return self._run(made, args, kwargs)
        except (PlanDiffers, InputError) as error:
            if made.running:
                raise
            self._give_up(variants, error)
            variants.plans.remove(made)
            return self._run_as_it_is(args, kwargs)

    def _run(self, fast: CompiledStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a plan, unless it adds to gradients that the plan of an earlier call has not kept."""
        if any(id(tensor) in self._forgotten and tensor.grad is None for tensor in fast.accumulates):
            fast.check(args, kwargs)  # it may be another plan's turn
            raise GradientsForgotten
        result = fast(*args, **kwargs)
        self._forgotten |= {id(tensor): tensor for tensor in fast.forgets}
        return result

    def _run_as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with stand_ins(self._forgotten.values()):
            result = self.function(*args, **kwargs)
        self._forgotten = {key: tensor for key, tensor in self._forgotten.items() if tensor.grad is None}
        return result

    def _give_up(self, variants: _Variants, error: PebblerError) -> None:
        """Run the step as it is from now on where no plan fits, and say why."""
        if self.strict or isinstance(error, OverBudget):
            raise error  # to run the step as it is would take more still
        variants.refused = True
        warnings.warn(f"the step runs as it is, without a plan: {error}", stacklevel=3)

    def _plan(self, variants: _Variants, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledStep | None:
        try:
            if len(self.plans) >= _MOST_PLANS:
                raise InputError(
                    f"{_MOST_PLANS} plans were made, and the arguments or the branches that the step takes differ again; pass "
                    "numbers that change as tensors, pad batches, and let fewer things be decided at random"
                )
            captured = capture(self.function, *args, keywords=kwargs, keep_grads=self.options.keep_grads)
            if self.options.kernels == "compiled":
                captured = fuse(captured)
            made = self._cached(captured) or self._made(captured)
            return compile(made, self.function, verify=self.options.verify)
        except Impossible:
            raise  # to run as it is would break the budget
        except PebblerError as error:
            self._give_up(variants, error)
        return None

    def _made(self, captured: Captured) -> TorchPlan:
        options = self.options
        described = options.device or nearest_device(captured.device)
        measured = options.device is None
        costs = profile_for(captured, options.objective) if measured else roofline(captured, described)
        made = plan_captured(
            captured, costs, budget=options.budget, objective=options.objective, offload=options.offload,
            headroom=options.headroom, time_limit=options.time_limit, seed=options.seed,
        )  # fmt: skip
        if self.cache is not None:
            self.cache.mkdir(parents=True, exist_ok=True)
            made.save(self._file(captured))
        return made

    def _cached(self, captured: Captured) -> TorchPlan | None:
        """Return the plan for a captured step that an earlier run has left; one that cannot be read is made again."""
        if self.cache is None or not self._file(captured).exists():
            return None
        try:
            found = TorchPlan.load(self._file(captured))
        except InputError as error:
            warnings.warn(f"planning again: {error}", stacklevel=4)
            return None
        same = found.kernels == self.options.kernels and found.budget == self.options.budget
        return replace(found, captured=captured) if same and found.covers(captured.fingerprint) else None

    def _file(self, captured: Captured) -> Path:
        """Return where a plan is kept: under what it depends on. A plan of more phases serves for fewer, so the last one counts."""
        assert self.cache is not None
        device = torch.cuda.get_device_name(captured.device) if captured.device.startswith("cuda") else captured.device
        options = msgspec.json.encode(msgspec.structs.replace(self.options, verify="first"))
        facts = (captured.phases[-1].fingerprint, device, torch.__version__, VERSION, options)
        return self.cache / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}.json"


def _form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return what two calls must share to run the same plan: structure, what tensors look like, and all other values."""
    leaves, spec = flatten_arguments((args, kwargs))
    first: dict[int, int] = {}
    parts: list[Any] = [repr(spec)]
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            twin = first.setdefault(id(leaf), i)  # the same tensor twice is another step than two tensors
            parts.append((twin, leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad))
        else:
            parts.append((type(leaf), repr(leaf) if isinstance(leaf, PLAIN) else id(leaf)))
    return tuple(parts)
