"""A planned step as a drop-in for the step it was made for."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pebbler.errors import InputError, quoted
from pebbler.game.byte_sizes import shown_bytes
from pebbler.game.moves import Compute, Move
from pebbler.referee.judgement import require_legal
from pebbler.run.torch.capture.captured import Captured, capture
from pebbler.run.torch.capture.one_at_a_time import is_under_way, one_at_a_time
from pebbler.run.torch.cost.profiling import profile
from pebbler.run.torch.fuse.fusion import fuse, inner_bytes, kernels_of, mark_fusable
from pebbler.run.torch.plan.host_link import MEMORY
from pebbler.run.torch.plan.launch_fusion import held_between, plan_launches
from pebbler.run.torch.plan.torch_plan import KernelChoice, TorchPlan
from pebbler.run.torch.run.cuda_graphs import CudaGraphs, graphs_on
from pebbler.run.torch.run.program import Program
from pebbler.run.torch.run.program_replay import GraphRecorder
from pebbler.run.torch.run.runner import Runner
from pebbler.run.torch.run.verification import (
    DoesNotFit,
    NotCompared,
    OverBudget,
    PlanDiffers,
    PlanOutdated,
    proven_call,
    verified_call,
)
from pebbler.run.torch.run.verify_schedule import Verify, VerifySchedule, require_verify

__all__ = ["CompiledStep", "Replay", "compile", "require_replay"]

Replay = bool | Literal["auto"]  # "auto": wherever it can be


class CompiledStep:
    """A planned step as a callable; it captures the step again at its first call if the plan comes from a file."""

    def __init__(
        self,
        plan: TorchPlan,
        step: Callable[..., Any],
        captured: Captured | None,
        kernels: KernelChoice,
        verify: Verify = "again",
        replay: Replay = False,
        graphs: CudaGraphs | None = None,
    ) -> None:
        self.plan, self.step, self.kernels, self.verify, self.replay = plan, step, kernels, verify, replay
        self._graphs = (graphs or graphs_on(plan.device)) if replay else None
        self._told = replay is not True  # whether why it is not replayed has been said
        self._exact: Runner | None = None  # runs the same plan call by call
        self._unverified: set[str] = set()  # fingerprints of phases that have not been compared with the step yet
        self._schedule = VerifySchedule(verify)
        self._room = plan.budget is None  # whether there is memory for the step itself, beyond the first calls
        self._runner = None if captured is None else self._make(captured)

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the state of a copy: the copy captures its own step, since its tensors are not those of this one."""
        return replace(self.plan, captured=None), self.step, None, self.kernels, self.verify, self.replay

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run one step."""
        if is_under_way():
            return self.step(*args, **keywords)
        if self._runner is None:
            self._runner = self._make(capture(self.step, *args, keywords=keywords))
        runner = self._runner
        due = self._schedule.due()
        if not due and not self._unverified:
            return self._ran(runner, args, keywords)
        phase = runner.phase().fingerprint
        if phase in self._unverified:
            result = self._compared(runner, args, keywords)
            self._unverified.discard(phase)
            if due:
                self._schedule.done()
            return result
        return self._verified_again(runner, args, keywords) if due else self._ran(runner, args, keywords)

    def _ran(self, runner: Runner, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run the plan; a replay of it is compared first."""
        replay = runner.unproven()
        if replay is None:
            return runner(*args, **keywords)
        with one_at_a_time():
            result = proven_call(runner, replay, args, keywords)
        if not self._told and replay.why_not is not None:
            self._told = True
            warnings.warn(f"the planned step is {replay}", stacklevel=4)
        return result

    def _compared(self, runner: Runner, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            with one_at_a_time():  # draws of other planned steps would be taken for this one's
                return verified_call(runner, self._exact, self.plan.budget, args, keywords)
        except NotCompared as error:
            self._room &= not isinstance(error, DoesNotFit)
            warnings.warn(f"{error}; its plan runs without comparison", stacklevel=4)
            return self._ran(runner, args, keywords)

    def _verified_again(self, runner: Runner, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Compare again; without memory for the step itself, compare with a recording on fake tensors."""
        runner.check(args, keywords)  # what can be refused is
        try:
            if self._room:
                result = self._compared(runner, args, keywords)
            else:
                self._record_again(runner, args, keywords)
                gc.collect()  # a recording holds itself, and small tensors, which count against the budget
                result = self._ran(runner, args, keywords)
        except OverBudget:
            raise
        except PlanDiffers as error:
            raise PlanOutdated(
                f"{error} (it did at call {self._schedule.last}, and this is call {self._schedule.calls}: go back to what was "
                "saved before)"
            ) from error
        self._schedule.done()
        return result

    def _record_again(self, runner: Runner, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        runner.forget_gradients()
        known = runner.captured
        try:
            captured = capture(self.step, *args, device=known.device, keywords=keywords, keep_grads=known.keep_grads)
        except InputError as error:
            raise PlanDiffers(f"the step cannot be planned any more: {error}") from error
        if self.plan.kernels == "compiled":
            captured = fuse(captured)
        if not self.plan.covers(captured.fingerprint):
            raise PlanDiffers(f"the planned step does not do what the step does: {_difference(captured, self.plan)}")

    def _make(self, captured: Captured) -> Runner:
        runner = self._make_runner(captured)
        if self._graphs is None and not self._told:
            self._told = True
            warnings.warn(
                f"the planned step is not replayed: nothing can be recorded on {self.plan.device}", stacklevel=3
            )
        if self.verify == "never":
            for program in runner.programs:
                if program.replay is not None:
                    program.replay.proven = True
        if self.verify != "never":
            self._unverified = {phase.fingerprint for phase in runner.captured.phases}
            if self.kernels == "compiled":
                self._exact = Runner(runner.captured, runner.moves)
        return runner

    def _make_runner(self, captured: Captured) -> Runner:
        if self.plan.kernels == "compiled":
            captured = fuse(captured)
        if self.plan.covers(captured.fingerprint):
            phases = self.plan.phases[-len(captured.phases) :]
            self.plan = replace(self.plan, phases=phases, fingerprint=captured.fingerprint)
        else:
            raise InputError(
                f"the plan is for another step: it has fingerprint {self.plan.fingerprint}, this step with these shapes has "
                f"{captured.fingerprint}; {_difference(captured, self.plan)}"
            )
        for phase in self.plan.phases:
            require_legal(phase)
        moves: list[Sequence[Move]] = [phase.moves for phase in self.plan.phases]
        if self.kernels == self.plan.kernels:
            _refuse_others(self.plan, captured)
            return Runner(captured, moves, kernels_of(captured), self.plan.launches, self._recorder)
        if self.kernels == "exact":
            _require_room(self.plan, captured)
            return Runner(captured, moves, recorder=self._recorder)
        marked = mark_fusable(captured)
        costs = profile(marked)
        assert costs.price is not None
        room = self.plan.peak - self.plan.headroom
        last, launches, _ = plan_launches(marked.phases[-1], self.plan.plan, MEMORY, costs[-1], costs.price, room)
        return Runner(marked, [*moves[:-1], last.moves], marked.kernels, launches, self._recorder)

    @property
    def _recorder(self) -> Callable[[Program], GraphRecorder] | None:
        return None if self._graphs is None else partial(self._graphs.recorder, budget=self.plan.budget)

    @property
    def excess(self) -> int:
        """Bytes by which a recording would have broken the budget."""
        replays = [] if self._runner is None else [program.replay for program in self._runner.programs]
        return max((replay.excess for replay in replays if replay is not None), default=0)

    @property
    def replayed(self) -> str:
        """In words, whether the repeating step is replayed, and if not, why; empty where nothing can be recorded."""
        replay = None if self._runner is None else self._runner.programs[-1].replay
        return "" if replay is None else str(replay)

    @property
    def running(self) -> bool:
        """Whether a call is running, or has failed after it may have changed tensors."""
        return self._runner is not None and self._runner.running

    def check(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Raise `InputError` if the plan is not for this call."""
        if self._runner is not None:
            self._runner.check(args, keywords)

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's memory that its copies keep from step to step."""
        programs = [] if self._runner is None else self._runner.programs
        return max((program.transfers.bytes for program in programs if program.transfers is not None), default=0)

    @property
    def code(self) -> str:
        """The program that runs in the repeating step, as Python."""
        return "" if self._runner is None else str(self._runner.programs[-1].module.code)


def _difference(captured: Captured, plan: TorchPlan) -> str:
    ours, theirs = captured.graph, plan.plan.graph
    sizes = {tensor.name: tensor for tensor in theirs.tensors}
    for tensor in ours.tensors:
        other = sizes.get(tensor.name)
        if other is None:
            return f"the plan knows no {quoted(tensor.name)}"
        if other.meta != tensor.meta:
            return f"{quoted(tensor.name)} is {tensor.meta.get('type')} here and {other.meta.get('type')} in the plan"
    return "operators or operands differ"


def _refuse_others(plan: TorchPlan, captured: Captured) -> None:
    """Compile only what the plan was made for: another kernel may hold more."""
    kernels = kernels_of(captured)
    if kernels is not None:
        for phase, known in zip(captured.phases, plan.phases, strict=True):
            for op in known.graph.ops:
                if not op.meta.get("compiled"):
                    kernels.refuse(phase.record, phase.group(op.name))


def _require_room(plan: TorchPlan, captured: Captured) -> None:
    """Refuse to run fused ops call by call where the values inside them would not fit into the budget."""
    if plan.budget is None:
        return
    for phase, known in zip(captured.phases, plan.phases, strict=True):
        graph = known.graph
        inner = {op.name: inner_bytes(phase.record, phase.group(op.name)) for op in phase.graph.ops}
        made = {op.name: sum(graph.tensor_named(name).size for name in op.writes) for op in graph.ops}
        for move, held in zip(known.moves, held_between(known, MEMORY), strict=False):
            if isinstance(move, Compute):
                need = held + made[move.op] + inner[move.op] + plan.headroom
                if need > plan.budget:
                    raise InputError(
                        f"the plan is for compiled kernels; run exactly, {quoted(move.op)} would hold up to {shown_bytes(need)}, "
                        f'more than the budget of {shown_bytes(plan.budget)}; plan with kernels="exact"'
                    )


def compile(
    plan: TorchPlan,
    step: Callable[..., Any],
    *,
    kernels: KernelChoice | None = None,
    verify: Verify = "again",
    replay: Replay = False,
) -> CompiledStep:
    """Return a drop-in for `step` that runs the plan within the budget.

    With `kernels="exact"` the step's own kernels run one by one: same results bit for bit. With "compiled", ops that follow one
    another are fused and compiled: faster, and as near to the step's results as those of `torch.compile` are. By default it is what
    the plan was made for; a plan for the other kind runs too, unless it would break the budget.

    The step's parameters, buffers and optimizer state are changed in place as before; gradients that the step throws away are not
    kept. The learning rate may change between calls; another shape or setting is refused.

    The first call of every phase runs the step itself as well, from the same state, and raises `PlanDiffers`, with nothing changed,
    unless the plan leaves the same; that call takes the memory that the step takes, and a copy of its state. With `verify="again"`
    that is repeated at calls 2, 4, 8, ... 256 and then every so often, in less than one percent of the time; `PlanOutdated` says
    that the plan was right before. Where there is a budget, or no memory, the step is then recorded again on tensors without
    memory instead. With "first" nothing is repeated, with a number every so many calls are compared, with "never" none is.

    With `replay="auto"`, on CUDA, the plan is recorded as a CUDA graph at its second call and replayed from then on: nothing waits
    for Python to launch kernels. `replayed` says so, or why not. `replay=True` also warns where it is not. Nothing is recorded by
    default.

    >>> import torch
    >>> from pebbler.run.torch.plan.planner import plan
    >>> weight = torch.ones(3)
    >>> def step(x):
    ...     loss = (weight * x).square().sum()
    ...     weight.sub_(0.1 * x)
    ...     return loss
    >>> fast = compile(plan(step, [torch.ones(3)], budget="1MB", device="cpu"), step)
    >>> [round(fast(torch.ones(3)).item(), 2) for _ in range(3)]
    [3.0, 2.43, 1.92]
    """
    captured = plan.captured if plan.captured is not None and plan.captured.state.step == step else None
    if kernels not in (None, "exact", "compiled"):
        raise InputError(f"kernels must be exact or compiled, got {quoted(kernels)}")
    require_verify(verify)
    require_replay(replay)
    return CompiledStep(plan, step, captured, kernels or plan.kernels, verify, replay)


def require_replay(replay: Replay) -> None:
    """Refuse unknown values of `replay`."""
    if replay is not True and replay is not False and replay != "auto":
        raise InputError(f"replay must be auto, True or False, got {quoted(replay)}")
