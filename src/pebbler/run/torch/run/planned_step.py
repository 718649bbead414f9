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
from pebbler.game.byte_sizes import budget_of, bytes_of, shown_bytes
from pebbler.run.torch.capture.captured import Captured, capture
from pebbler.run.torch.capture.forgotten_gradients import GradientsForgotten
from pebbler.run.torch.capture.holders import PLAIN
from pebbler.run.torch.capture.one_at_a_time import is_under_way, one_at_a_time
from pebbler.run.torch.capture.step_arguments import flatten_arguments, unread_parameters
from pebbler.run.torch.capture.step_state import NotSettled
from pebbler.run.torch.cost.costs import Costs, Device, find_device, roofline
from pebbler.run.torch.cost.profiling import profile_for
from pebbler.run.torch.fuse.fusion import fuse
from pebbler.run.torch.plan.plan_folder import PlanFolder
from pebbler.run.torch.plan.planner import default_headroom, plan_captured
from pebbler.run.torch.plan.torch_plan import KernelChoice, Objective, TorchPlan
from pebbler.run.torch.run.compiled_step import CompiledStep, Replay, require_replay
from pebbler.run.torch.run.cuda_graphs import CudaGraphs, graphs_on
from pebbler.run.torch.run.verification import OverBudget, PlanDiffers, PlanOutdated
from pebbler.run.torch.run.verify_schedule import Verify, require_verify
from pebbler.solver.problem import Impossible
from pebbler.version import VERSION

__all__ = ["PlannedStep", "StepOptions", "step"]

_MOST_PLANS = 16  # of one step; more means that something changes in every call
_MOST_TRIES = 3  # at plans with more headroom


class StepOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The planning options of a step, described at `step`."""

    budget: int | str | None = None
    device: str | Device | None = None
    objective: Objective = "time"
    kernels: KernelChoice = "exact"
    offload: bool | None = None
    headroom: int | None = None
    time_limit: float = 30.0
    seed: int = 0
    verify: Verify = "again"
    replay: Replay = False
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

    A budget may be a share of what the step holds without a limit, such as `50%`.

    A step that branches on what is known before it runs (a draw, a step counter, a mask) gets a plan for every branch it takes.
    Plans are kept in the folder `cache` and found there again. Where a step cannot be planned, it runs as it is and a warning says
    why; with `strict` that is an error. A step that does something only once, such as making a cache, is planned after that. A
    budget that no plan keeps is always an error. With `keep_grads` gradients are left in `.grad` as the step leaves them. Other
    options are those of `plan` and `compile`: `device`, `objective`, `kernels`, `offload`, `time_limit` (of one plan), `seed`,
    `verify`, `replay`.

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
    >>> losses[0] > losses[1] > losses[2]
    True
    >>> fast
    PlannedStep(train, budget 1,000,000 bytes, peak 4,460 bytes, 3e-05 s per step (no more time), 2 plans)
    """
    known = StepOptions.__struct_fields__
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name} (known: {', '.join(known)})")
    if not callable(function):
        raise InputError(f"step: expected a function that trains one step, got {quoted(function)}")
    if not isinstance(cache, str | Path | None):
        raise InputError(f"cache must be a folder, got {quoted(cache)}")
    limit = None if budget is None else budget_of(budget)
    chosen = StepOptions(budget=limit, headroom=None if headroom is None else bytes_of(headroom), **options)
    _require_options(chosen)
    return PlannedStep(function, chosen, None if cache is None else PlanFolder(cache), strict)


def _require_options(options: StepOptions) -> None:
    """Refuse what can never be planned with now, and not at the first call, where a step may run without a plan."""
    for name, expected in (("kernels", KernelChoice), ("objective", Objective)):
        if getattr(options, name) not in get_args(expected):
            raise InputError(f"{name} must be {' or '.join(get_args(expected))}, got {quoted(getattr(options, name))}")
    require_verify(options.verify)
    require_replay(options.replay)
    if options.device is not None:
        if not isinstance(options.device, str | Device):
            raise InputError(f"device must be the name of a described device, got {quoted(options.device)}")
        find_device(options.device)
    if options.offload not in (None, True, False):
        raise InputError(f"offload must be True, False or None, got {quoted(options.offload)}")
    limit = options.time_limit
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < float("inf"):
        raise InputError(f"time_limit must be seconds, 0 or more, got {quoted(limit)}")
    if isinstance(options.seed, bool) or not isinstance(options.seed, int):
        raise InputError(f"seed must be a whole number, got {quoted(options.seed)}")


@dataclass
class _Variants:
    """The plans for one structure of arguments, each under the conditions and for the branches that its capture found."""

    plans: list[CompiledStep] = field(default_factory=list)
    refused: bool = False  # whether the step runs as it is where none of them fits
    waited: bool = False  # whether it has run as it is once, for it may do something only once
    headroom: int = 0  # bytes beyond the usual that plans turned out to need
    tries: int = 0  # at plans with more headroom
    unreplayed: CompiledStep | None = None  # a plan that keeps the budget unless it is recorded


class PlannedStep:
    """A step that plans itself; see `step`."""

    def __init__(
        self, function: Callable[..., Any], options: StepOptions, cache: PlanFolder | None, strict: bool
    ) -> None:
        self.function, self.options, self.cache, self.strict = function, options, cache, strict
        self._variants: dict[tuple[Any, ...], _Variants] = {}
        self._unread = unread_parameters(function)
        self._costs: dict[str, Costs] = {}  # by fingerprint
        self._graphs: dict[str, CudaGraphs | None] = {}  # by device; all plans share the memory of their recordings

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the state of a copy: the copy plans for itself, since these plans would train the original's tensors."""
        return self.function, self.options, self.cache, self.strict

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        name, budget = getattr(self.function, "__name__", type(self.function).__name__), self.options.budget
        told = [
            "no budget" if budget is None else f"budget {budget if isinstance(budget, str) else shown_bytes(budget)}"
        ]
        if plans := self.plans:
            most = max(plans, key=lambda plan: plan.peak)
            unit = "s" if most.objective == "time" else "J"
            told += [f"peak {shown_bytes(most.peak)}", f"{most.cost:.3g} {unit} per step ({most.more_cost})"]
        told.append(f"{len(plans)} plan{'' if len(plans) == 1 else 's'}" if plans else "not planned yet")
        told += {fast.replayed: None for each in self._variants.values() for fast in each.plans if fast.replayed}
        return f"PlannedStep({name}, {', '.join(told)})"

    @property
    def plans(self) -> list[TorchPlan]:
        """The plans made so far."""
        return [fast.plan for variants in self._variants.values() for fast in variants.plans]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step."""
        if is_under_way():
            return self.function(*args, **kwargs)
        # What the step does not read makes no other step.
        given = args, kwargs
        args, kwargs = self._read(args, kwargs)
        variants = self._variants.setdefault(_form(args, kwargs), _Variants())
        for fast in variants.plans:
            try:
                return self._run(variants, fast, args, kwargs)
            except PlanOutdated:
                variants.plans.clear()
                variants.refused = True  # whoever goes on does so with the step itself
                raise
            except PlanDiffers as error:
                if not self._needs_more(variants, error):
                    self._give_up(variants, error)
                variants.plans.clear()
                break
            except InputError:
                if fast.running:
                    raise
        if variants.refused:
            return self.function(*given[0], **given[1])
        made = self._plan(variants, args, kwargs)
        if made is None:
            return self.function(*given[0], **given[1])
        variants.plans.insert(0, made)
        try:
            return self._run(variants, made, args, kwargs)
        except (PlanDiffers, InputError) as error:
            if made.running:
                raise
            variants.plans.remove(made)
            if self._needs_more(variants, error):
                return self(*given[0], **given[1])
            self._give_up(variants, error)
            return self.function(*given[0], **given[1])

    def _run(self, variants: _Variants, fast: CompiledStep, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a plan; if there is no room to record it, the next call makes another one, with more headroom."""
        result = fast(*args, **kwargs)
        if fast.excess and self._needs_more(variants, OverBudget("", fast.excess)):
            variants.plans.remove(fast)
            variants.unreplayed = fast
        return result

    def _needs_more(self, variants: _Variants, error: PebblerError) -> bool:
        """Whether to plan again with more headroom, because a plan held more than the budget."""
        chosen = self.options.headroom is not None  # by the user
        if chosen or variants.tries == _MOST_TRIES or not isinstance(error, OverBudget) or not error.excess:
            return False
        variants.tries += 1
        variants.headroom += error.excess * 5 // 4
        return True

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments with None in place of numbers and the like that the step never reads."""
        if not self._unread:
            return args, kwargs
        unread = self._unread
        return (
            tuple(None if i in unread and isinstance(value, PLAIN) else value for i, value in enumerate(args)),
            {name: None if name in unread and isinstance(value, PLAIN) else value for name, value in kwargs.items()},
        )

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
            with one_at_a_time():  # what is measured too is measured alone
                captured = capture(self.function, *args, keywords=kwargs, keep_grads=self.options.keep_grads)
                if self.options.kernels == "compiled":
                    captured = fuse(captured)
                known = None if variants.headroom else self._cached(captured)
                made = known or self._made(captured, variants.headroom)
                if made.device not in self._graphs:
                    self._graphs[made.device] = graphs_on(made.device)
                return CompiledStep(
                    made, self.function, made.captured, made.kernels, self.options.verify, self.options.replay,
                    self._graphs[made.device],
                )  # fmt: skip
        except Impossible:
            unreplayed, variants.unreplayed = variants.unreplayed, None
            if unreplayed is None:
                raise  # to run as it is would break the budget
            variants.tries = _MOST_TRIES
            return unreplayed
        except GradientsForgotten:
            raise  # to run as it is would break the budget, or stop in the middle
        except NotSettled as error:
            if variants.waited or self.strict:
                self._give_up(variants, error)
            variants.waited = True
        except PebblerError as error:
            self._give_up(variants, error)
        return None

    def _made(self, captured: Captured, more: int) -> TorchPlan:
        options = self.options
        costs = self._costs.get(captured.fingerprint)
        if costs is None:
            costs = self._costs[captured.fingerprint] = self._costs_of(captured)
        headroom = options.headroom
        if headroom is None and graphs_on(captured.device) is not None and options.replay:
            more += _argument_bytes(captured)  # a recording reads copies
        if headroom is None and more:
            headroom = default_headroom(captured, costs) + more
        made = plan_captured(
            captured, costs, budget=options.budget, objective=options.objective, offload=options.offload,
            headroom=headroom, time_limit=options.time_limit, seed=options.seed,
        )  # fmt: skip
        if self.cache is not None:
            self.cache.write(self._key(captured), made.save)
        return made

    def _costs_of(self, captured: Captured) -> Costs:
        if self.options.device is None:
            return profile_for(captured, self.options.objective)
        return roofline(captured, self.options.device)

    def _cached(self, captured: Captured) -> TorchPlan | None:
        """Return the plan for a captured step that an earlier run has left; one that cannot be read is made again."""
        found = None if self.cache is None else self.cache.read(self._key(captured), TorchPlan.load)
        if found is None:
            return None
        same = found.kernels == self.options.kernels and (
            isinstance(self.options.budget, str) or found.budget == self.options.budget
        )
        return replace(found, captured=captured) if same and found.covers(captured.fingerprint) else None

    def _key(self, captured: Captured) -> str:
        """Return the key of a plan on disk. A plan of more phases also serves fewer, so only the last phase is in it."""
        device = torch.cuda.get_device_name(captured.device) if captured.device.startswith("cuda") else captured.device
        options = msgspec.json.encode(msgspec.structs.replace(self.options, verify="first", replay=False))
        facts = (captured.phases[-1].fingerprint, device, torch.__version__, VERSION, options)
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def _argument_bytes(captured: Captured) -> int:
    """Return the bytes of the arguments on the device where a step computes."""
    storages = captured.phases[-1].record.storages
    return sum(s.bytes for s in storages if s.place is not None and s.place[0] == "arg" and s.device == captured.device)


def _form(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key that two calls must share to run the same plan: structure, tensor metadata, and all other values."""
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
