"""Running a plan: a drop-in for the step it was made for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError, quoted
from pebbler.game.plan import Move
from pebbler.referee.judgement import require_legal
from pebbler.run.torch.capture import Captured, Phase, capture
from pebbler.run.torch.fusion import fuse, inner_bytes, mark_fusable
from pebbler.run.torch.launches import held_before, launch_group, plan_launches
from pebbler.run.torch.offload import MEMORY
from pebbler.run.torch.profiling import compile_kernels, profile
from pebbler.run.torch.program import Program, build_program
from pebbler.run.torch.record import Place, TensorRef, shown
from pebbler.run.torch.scalars import evaluate
from pebbler.run.torch.sizes import shown_bytes
from pebbler.run.torch.torch_plan import KernelChoice, TorchPlan
from pebbler.run.torch.tracing import World, is_data, settings

__all__ = ["CompiledStep", "Runner", "compile"]


class Runner:
    """Runs the phases of a captured step in the order of their plans; call it like the step."""

    def __init__(
        self, captured: Captured, moves: Sequence[Sequence[Move]], launches: Sequence[Sequence[int]] = ()
    ) -> None:
        self.captured, self.world = captured, captured.world
        last = captured.phases[-1]
        groups = [(phase, group) for phase in captured.phases for group in phase.groups]
        groups += [(last, launch_group(last, moves[-1], launch)) for launch in launches]
        compile_kernels(captured, groups)
        self.programs = [
            build_program(phase, plan, captured.device, captured.kernels, launches if phase is last else ())
            for phase, plan in zip(captured.phases, moves, strict=True)
        ]
        # Phases never run at the same time, so one set of buffers serves all of them.
        with_copies = [program for program in self.programs if program.transfers is not None]
        for program in with_copies:
            program.transfers = with_copies[0].transfers
        self._shapes = {
            storage.place[1]: phase.record.tensors[storage.root]
            for phase in captured.phases
            for storage in phase.record.storages
            if storage.place is not None and storage.place[0] == "arg"
        }
        read = {place for phase in captured.phases for place in phase.entry if place[0] == "grad"}
        made = {place for phase in captured.phases for place in phase.record.binds if place[0] == "grad"}
        self._transient = [self.world.tensors[place[1]] for place in sorted(made - read)]

    def __call__(self, *args: Any) -> Any:
        """Run one step."""
        leaves = self._check(args)
        # The step throws old gradients away before it makes new ones; they must not take room until then.
        for tensor in self._transient:
            tensor.grad = None
        phase, program = self._phase()
        rates = {name: self._rate(name) for name in program.rates}
        self._check_guards(phase, rates)
        inputs = [resolve(self.world, place, leaves) for place in program.places]
        # Below autograd nothing is recorded for a backward pass, whatever the gradient mode that the program sets for kernels.
        with torch.no_grad(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
            outputs = program(*inputs, *phase.record.constants, *rates.values())
        result = tree_flatten(phase.record.result)
        count = sum(isinstance(leaf, TensorRef) for leaf in result[0])
        for place, tensor in zip(program.binds, outputs[count:], strict=True):
            bind(self.world, place, tensor)
        tensors = iter(outputs[:count])
        return tree_unflatten([next(tensors) if isinstance(x, TensorRef) else x for x in result[0]], result[1])

    def _check(self, args: tuple[Any, ...]) -> list[Any]:
        leaves, spec = tree_flatten(args)
        if spec != self.world.spec:
            raise InputError(f"the plan is for arguments of the structure {self.world.spec}, got {spec}")
        for i, (leaf, known) in enumerate(zip(leaves, self.world.leaves, strict=True)):
            if is_data(known):
                info = self._shapes[i]
                if not isinstance(leaf, torch.Tensor):
                    raise InputError(f"argument {i} must be a tensor {shown(info)}, got {type(leaf).__name__}")
                if (tuple(leaf.shape), leaf.dtype, leaf.device) != (info.shape, info.dtype, known.device):
                    got = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device}"
                    raise InputError(
                        f"argument {i}: the plan is for {shown(info)} on {known.device}, got {got}; plan again for this shape"
                    )
                if leaf.stride() != info.stride:
                    raise InputError(
                        f"argument {i}: the plan is for strides {info.stride}, got {leaf.stride()}; plan again"
                    )
            elif leaf is not known and (isinstance(known, torch.Tensor) or leaf != known):
                raise InputError(f"argument {i}: the plan is for {known!r}; plan again for another value")
        for number, optimizer in enumerate(self.world.optimizers):
            now = [settings(group) for group in optimizer.param_groups]
            if now != self.world.hyper[number]:
                changed = sorted(
                    key
                    for old, new in zip(self.world.hyper[number], now, strict=False)
                    for key in new
                    if old.get(key) != new[key]
                )
                what = ", ".join(changed) or "param_groups"
                raise InputError(
                    f"optimizer {number}: {what} changed since the step was captured; plan and compile it again"
                )
        return list(leaves)

    def _phase(self) -> tuple[Phase, Program]:
        """Return the phase that fits what exists now: the one that reads the most of it."""
        for phase, program in sorted(
            zip(self.captured.phases, self.programs, strict=True), key=lambda pair: -len(pair[0].entry)
        ):
            if all(resolve(self.world, place, ()) is not None for place in phase.entry):
                fresh = {place for other in self.captured.phases for place in other.entry} - phase.entry
                stale = [place for place in fresh if resolve(self.world, place, ()) is not None]
                if stale:
                    break
                return phase, program
        raise InputError(
            "only a part of the optimizer state or of the gradients exists; the plan covers all of it or none"
        )

    def _rate(self, name: str) -> float:
        _, number, group = name.split("_")
        rate = self.world.optimizers[int(number)].param_groups[int(group)]["lr"]
        if isinstance(rate, torch.Tensor):
            raise InputError(
                "the learning rate was a number when the step was captured and is a tensor now; plan again"
            )
        return float(rate)

    def _check_guards(self, phase: Phase, rates: dict[str, float]) -> None:
        for expression, result in phase.record.guards.items():
            try:
                now = evaluate(expression, rates)
            except KeyError:
                continue  # depends on a step counter; two recordings have agreed on it
            if now != result:
                raise InputError(
                    "the step branches on the learning rate, and would now take the other branch; plan again"
                )


def resolve(world: World, place: Place, leaves: Sequence[Any]) -> Any:
    """Return what is found at a place, None for nothing."""
    match place[0]:
        case "arg":
            return leaves[place[1]]
        case "tensor":
            return world.tensors[place[1]]
        case "grad":
            return world.tensors[place[1]].grad
        case "group":
            return world.optimizers[place[1]].param_groups[place[2]][place[3]]
    _, number, group, i, key = place
    optimizer = world.optimizers[number]
    return optimizer.state.get(optimizer.param_groups[group]["params"][i], {}).get(key)


def bind(world: World, place: Place, tensor: torch.Tensor) -> None:
    """Leave a tensor at a place."""
    if place[0] == "grad":
        world.tensors[place[1]].grad = tensor
        return
    _, number, group, i, key = place
    optimizer = world.optimizers[number]
    optimizer.state[optimizer.param_groups[group]["params"][i]][key] = tensor


class CompiledStep:
    """A planned step as a callable; it captures the step again at its first call if the plan comes from a file."""

    def __init__(
        self, plan: TorchPlan, step: Callable[..., Any], captured: Captured | None, kernels: KernelChoice
    ) -> None:
        self.plan, self.step, self.kernels = plan, step, kernels
        self._runner = None if captured is None else self._make(captured)

    def __call__(self, *args: Any) -> Any:
        """Run one step."""
        if self._runner is None:
            self._runner = self._make(capture(self.step, *args))
        return self._runner(*args)

    def _make(self, captured: Captured) -> Runner:
        if self.plan.kernels == "compiled":
            captured = fuse(captured)
        if captured.fingerprint != self.plan.fingerprint:
            raise InputError(
                f"the plan is for another step: it has fingerprint {self.plan.fingerprint}, this step with these shapes has "
                f"{captured.fingerprint}; {_difference(captured, self.plan)}"
            )
        for phase in self.plan.phases:
            require_legal(phase)
        moves: list[Sequence[Move]] = [phase.moves for phase in self.plan.phases]
        if self.kernels == self.plan.kernels:
            _refuse_others(self.plan, captured)
            return Runner(captured, moves, self.plan.launches)
        if self.kernels == "exact":
            _require_room(self.plan, captured)
            return Runner(replace(captured, kernels=None), moves)
        captured = mark_fusable(captured)
        costs = profile(captured)
        assert costs.price is not None
        room = self.plan.peak - self.plan.headroom
        last, launches = plan_launches(captured.phases[-1], self.plan.plan, MEMORY, costs[-1], costs.price, room)
        return Runner(captured, [*moves[:-1], last.moves], launches)

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
    if captured.kernels is not None:
        for phase, known in zip(captured.phases, plan.phases, strict=True):
            for op in known.graph.ops:
                if not op.meta.get("compiled"):
                    captured.kernels.refuse(phase.record, phase.group(op.name))


def _require_room(plan: TorchPlan, captured: Captured) -> None:
    """Refuse to run fused ops call by call where the values inside them would not fit into the budget."""
    if plan.budget is None:
        return
    for phase, moves in zip(captured.phases, plan.phases, strict=True):
        inner = {op.name: inner_bytes(phase.record, phase.group(op.name)) for op in phase.graph.ops}
        sizes = {tensor.name: tensor.size for tensor in moves.graph.tensors}
        writes = {op.name: op.writes for op in moves.graph.ops}
        for move, held in zip(moves.moves, held_before(moves, MEMORY), strict=True):
            if move[0] == "compute":
                need = held + sum(sizes[name] for name in writes[move[1]]) + inner[move[1]] + plan.headroom
                if need > plan.budget:
                    raise InputError(
                        f"the plan is for compiled kernels; run exactly, {quoted(move[1])} would hold up to {shown_bytes(need)}, "
                        f'more than the budget of {shown_bytes(plan.budget)}; plan with kernels="exact"'
                    )


def compile(plan: TorchPlan, step: Callable[..., Any], *, kernels: KernelChoice | None = None) -> CompiledStep:
    """Return a drop-in for `step` that runs the plan within the budget.

    With `kernels="exact"` the step's own kernels run one by one: same results bit for bit. With "compiled", ops that follow one
    another are fused and compiled: faster, and as near to the step's results as those of `torch.compile` are. By default it is what
    the plan was made for; a plan for the other kind runs too, unless it would break the budget.

    The step's parameters, buffers and optimizer state are changed in place as before; gradients that the step throws away are not
    kept. The learning rate may change between calls; another shape or setting is refused.

    >>> model = torch.nn.Linear(4, 2)
    >>> rule = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def step(x):
    ...     rule.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     rule.step()
    ...     return loss
    >>> from pebbler.run.torch.plan import plan
    >>> fast = compile(plan(step, [torch.ones(8, 4)], budget="1MB", device="cpu"), step)
    >>> losses = [fast(torch.ones(8, 4)).item() for _ in range(3)]
    >>> losses[0] > losses[1] > losses[2]
    True
    """
    captured = plan.captured if plan.captured is not None and plan.captured.world.step == step else None
    if kernels not in (None, "exact", "compiled"):
        raise InputError(f"kernels must be exact or compiled, got {quoted(kernels)}")
    return CompiledStep(plan, step, captured, kernels or plan.kernels)
