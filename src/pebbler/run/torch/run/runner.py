"""Running the programs of a captured step: the right phase, its inputs, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError
from pebbler.game.moves import Move
from pebbler.run.torch.capture.calls import TensorInfo, TensorRef, shown
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.scalars import evaluate
from pebbler.run.torch.capture.step_state import is_data, settings
from pebbler.run.torch.fuse.group_execution import compile_kernels
from pebbler.run.torch.fuse.inductor import Kernels
from pebbler.run.torch.plan.launch_fusion import launch_group
from pebbler.run.torch.run.program import Program
from pebbler.run.torch.run.program_builder import ProgramBuilder
from pebbler.run.torch.run.undo_log import random_state, set_random_state

__all__ = ["Runner"]


class Runner:
    """Runs the phases of a captured step in the order of their plans; call it like the step.

    Without `kernels` every operator runs by itself; `launches` are those of the last phase, the one that repeats.
    """

    def __init__(
        self,
        captured: Captured,
        moves: Sequence[Sequence[Move]],
        kernels: Kernels | None = None,
        launches: Sequence[Sequence[int]] = (),
    ) -> None:
        self.captured, self.state, self.moves = captured, captured.state, moves
        self.running = False  # a call is under way, or has failed after it may have changed something
        last = captured.phases[-1]
        if kernels is not None:
            groups = [(phase, group) for phase in captured.phases for group in phase.groups]
            groups += [(last, launch_group(last, moves[-1], launch)) for launch in launches]
            compile_kernels(kernels, groups, captured.device)
        self.programs = [
            ProgramBuilder(phase, plan, captured.device, kernels, launches if phase is last else ()).build()
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
        self._transient = [self.state.tensors[place[1]] for place in sorted(made - read)]

    def __call__(self, *args: Any) -> Any:
        """Run one step."""
        leaves = self.check(args)
        self.forget_gradients()
        phase, program = self._phase()
        rates = {name: self._rate(name) for name in program.rates}
        self._check_guards(phase, rates)
        inputs = [self.state.resolve(place, leaves) for place in program.places]
        # Below autograd nothing is recorded for a backward pass, whatever the gradient mode that the program sets for kernels.
        self.running = True
        drawn = random_state(self.captured.device) if any(group.random for group in phase.groups) else ()
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
                outputs = program(*inputs, *phase.record.constants, *rates.values())
        except BaseException:
            set_random_state(drawn, self.captured.device)
            raise
        result = tree_flatten(phase.record.result)
        count = sum(isinstance(leaf, TensorRef) for leaf in result[0])
        self.running = False
        for place, tensor in zip(program.binds, outputs[count:], strict=True):
            self.state.bind(place, tensor)
        tensors = iter(outputs[:count])
        return tree_unflatten([next(tensors) if isinstance(x, TensorRef) else x for x in result[0]], result[1])

    def forget_gradients(self) -> None:
        """Forget old gradients: the step throws them away before it makes new ones, and until then they take no room."""
        for tensor in self._transient:
            tensor.grad = None

    def phase(self) -> Phase:
        """Return the phase that the next call runs."""
        return self._phase()[0]

    def check(self, args: tuple[Any, ...]) -> list[Any]:
        """Return the arguments as a flat list; refuse whatever differs from the step that was captured."""
        leaves, spec = tree_flatten(args)
        if spec != self.state.spec:
            raise InputError(f"the plan is for arguments of the structure {self.state.spec}, got {spec}")
        for i, (leaf, known) in enumerate(zip(leaves, self.state.leaves, strict=True)):
            if is_data(known):
                _check_tensor(i, leaf, self._shapes[i], known.device)
            elif leaf is not known and (isinstance(known, torch.Tensor) or leaf != known):
                raise InputError(f"argument {i}: the plan is for {known!r}; plan again for another value")
        for number, optimizer in enumerate(self.state.optimizers):
            now, before = [settings(group) for group in optimizer.param_groups], self.state.hyper[number]
            if now != before:
                pairs = zip(before, now, strict=False)
                changed = sorted(key for old, new in pairs for key in new if old.get(key) != new[key])
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
            if all(self.state.resolve(place, ()) is not None for place in phase.entry):
                fresh = {place for other in self.captured.phases for place in other.entry} - phase.entry
                stale = [place for place in fresh if self.state.resolve(place, ()) is not None]
                if stale:
                    break
                return phase, program
        raise InputError(
            "only a part of the optimizer state or of the gradients exists; the plan covers all of it or none"
        )

    def _rate(self, name: str) -> float:
        _, number, group = name.split("_")
        rate = self.state.optimizers[int(number)].param_groups[int(group)]["lr"]
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


def _check_tensor(i: int, leaf: Any, info: TensorInfo, device: torch.device) -> None:
    """Refuse an argument that does not look as the one that was captured."""
    if not isinstance(leaf, torch.Tensor):
        raise InputError(f"argument {i} must be a tensor {shown(info)}, got {type(leaf).__name__}")
    if (tuple(leaf.shape), leaf.dtype, leaf.device) != (info.shape, info.dtype, device):
        got = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device}"
        raise InputError(
            f"argument {i}: the plan is for {shown(info)} on {device}, got {got}; plan again for this shape"
        )
    if leaf.stride() != info.stride:
        raise InputError(f"argument {i}: the plan is for strides {info.stride}, got {leaf.stride()}; plan again")
