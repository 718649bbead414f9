"""Running the programs of a captured step: choice of the phase, its inputs, and the tensors that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError
from pebbler.game.moves import Move
from pebbler.run.torch.capture.calls import Place, Scalar, TensorInfo, TensorRef, shown
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.early_values import EarlyValues, ValueQuestion
from pebbler.run.torch.capture.forgotten_gradients import ZEROING, ForgottenGradient, forget, require_gradients
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.python_state import same_value
from pebbler.run.torch.capture.random_state import random_state, set_random_state
from pebbler.run.torch.capture.scalars import Branches, inputs_of
from pebbler.run.torch.capture.settings import fixed_settings, read_setting
from pebbler.run.torch.capture.step_arguments import flatten_arguments
from pebbler.run.torch.capture.step_state import StepState, is_data
from pebbler.run.torch.capture.tensor_watch import storages_of_tensors
from pebbler.run.torch.fuse.group_execution import compile_kernels
from pebbler.run.torch.fuse.inductor import Kernels
from pebbler.run.torch.plan.launch_fusion import launch_group
from pebbler.run.torch.run.program import Program
from pebbler.run.torch.run.program_builder import ProgramBuilder
from pebbler.run.torch.run.program_replay import GraphRecorder, ProgramReplay

__all__ = ["Runner"]


class _ReadyPhase(NamedTuple):
    """A phase with its program, and readers of what exists before a call."""

    phase: Phase
    program: Program
    entry: PlaceReader  # what it reads of optimizer state and gradients
    fresh: PlaceReader  # what other phases read, and it does not
    inputs: PlaceReader
    random: bool


class Runner:
    """Runs the phases of a captured step in the order of their plans; call it like the step.

    Without `kernels` every operator runs by itself; `launches` are those of the last phase, the one that repeats. With a `recorder`
    programs are replayed from their second run on, those of other phases from their third: most of them run once.
    """

    def __init__(
        self,
        captured: Captured,
        moves: Sequence[Sequence[Move]],
        kernels: Kernels | None = None,
        launches: Sequence[Sequence[int]] = (),
        recorder: Callable[[Program], GraphRecorder] | None = None,
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
        self._branches = {id(phase): Branches(phase.record.guards) for phase in captured.phases}
        # Phases never run at the same time, so one set of buffers serves all of them.
        with_copies = [program for program in self.programs if program.transfers is not None]
        for program in with_copies:
            program.transfers = with_copies[0].transfers
        if recorder is not None:
            for program in self.programs:
                program.replay = ProgramReplay(program, recorder, patience=0 if program is self.programs[-1] else 1)
        self._shapes = {
            storage.place[1]: phase.record.tensors[storage.root]
            for phase in captured.phases
            for storage in phase.record.storages
            if storage.place is not None and storage.place[0] == "arg"
        }
        changed = {
            phase.record.storages[s].place
            for phase in captured.phases
            for group in phase.groups
            for call in group.calls
            for s in (*call.mutates, *call.statistics)
        }
        self._changed_places = sorted(place for place in changed if place is not None)
        self._changed_args = [place[1] for place in self._changed_places if place[0] == "arg"]
        # Where the state's own tensors are in memory is known from the guards; the others are read.
        self._changed_tensors = [place[1] for place in self._changed_places if place[0] == "tensor"]
        self._changed_others = PlaceReader(self.state, [p for p in self._changed_places if p[0] != "tensor"])
        entries = frozenset().union(*(phase.entry for phase in captured.phases))
        ready = [
            _ReadyPhase(
                phase, program, PlaceReader(self.state, sorted(phase.entry)),
                PlaceReader(self.state, sorted(entries - phase.entry)), PlaceReader(self.state, program.places),
                any(group.random for group in phase.groups),
            )
            for phase, program in zip(captured.phases, self.programs, strict=True)
        ]  # fmt: skip
        self._ready = sorted(ready, key=lambda each: -len(each.phase.entry))
        # Arguments that are plain tensors one after the other need not be taken apart.
        self._flat = len(self.state.args) == len(self.state.leaves) and all(map(_is_tensor, self.state.args))
        read = {place for phase in captured.phases for place in phase.entry if place[0] == "grad"}
        made = {place for phase in captured.phases for place in phase.record.binds if place[0] == "grad"}
        self._transient = [self.state.tensors[place[1]] for place in sorted(made - read)]
        # Some it clears in place, so that they must be there; to others it adds.
        cleared = {place for place in read if all(_clears_first(phase, place) for phase in captured.phases)}
        self._clears = [self.state.tensors[place[1]] for place in sorted(cleared)]
        self._accumulates = [self.state.tensors[place[1]] for place in sorted(read - cleared)]
        kept = {place for phase in captured.phases for place in phase.binds}
        self._forgets = [self.state.tensors[place[1]] for place in sorted(made - read - kept)]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run one step."""
        leaves, ready = self.check(args, keywords)
        phase, program = ready.phase, ready.program
        rates = {name: read_setting(name, self.state.optimizers) for name in program.rates}
        self.forget_gradients()
        inputs = ready.inputs.read(leaves)
        # Below autograd nothing is recorded for a backward pass, whatever the gradient mode that the program sets for kernels.
        self.running = True
        drawn = random_state(self.captured.device) if ready.random else ()
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
                outputs = program(*inputs, *phase.record.constants, *rates.values())
        except BaseException:
            set_random_state(drawn, self.captured.device)
            raise
        result = tree_flatten(phase.record.result)
        count = sum(isinstance(leaf, TensorRef | Scalar) for leaf in result[0])
        self.running = False
        for place, tensor in zip(program.binds, outputs[count:], strict=True):
            if tensor is not None:  # state that an optimizer would have made if it had not been left out
                self.state.bind(place, tensor)
        for place in phase.record.drops:
            self.state.tensors[place[1]].grad = None
        forget(self._forgets)
        returned = iter(outputs[:count])
        return tree_unflatten(
            [next(returned) if isinstance(x, TensorRef | Scalar) else x for x in result[0]], result[1]
        )

    def forget_gradients(self) -> None:
        """Forget old gradients: the step throws them away before it makes new ones, and until then they take no room."""
        for tensor in self._transient:
            tensor.grad = None
        for tensor in self._clears:
            if isinstance(tensor.grad, ForgottenGradient):
                tensor.grad.cleared()

    def unproven(self) -> ProgramReplay | None:
        """Return the replay that the next call could begin with if it had been compared; None if there is none."""
        replays = [program.replay for program in self.programs if program.replay is not None]
        if not any(replay.due and not replay.proven for replay in replays):
            return None
        replay = self._ready_phase().program.replay
        return replay if replay is not None and replay.due and not replay.proven else None

    def phase(self) -> Phase:
        """Return the phase that the next call runs."""
        return self._ready_phase().phase

    def check(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[list[Any], _ReadyPhase]:
        """Return the arguments as a flat list, and the program to run; refuse any difference from the captured step."""
        leaves: Sequence[Any] = args
        if keywords or not self._flat or len(args) != len(self.state.args) or not all(map(_is_tensor, args)):
            leaves, spec = flatten_arguments((args, dict(keywords)))
            if spec != self.state.spec:
                raise InputError(f"the plan is for arguments of the structure {self.state.spec}, got {spec}")
        for i, (leaf, known) in enumerate(zip(leaves, self.state.leaves, strict=True)):
            twin = self.state.twins.get(i)
            if twin is not None:
                if leaf is not leaves[twin]:
                    raise InputError(
                        f"argument {i} was the same tensor as argument {twin} when the step was captured; plan again"
                    )
            elif is_data(known):
                _check_tensor(i, leaf, self._shapes.get(i), known)
            elif not same_value(leaf, known):
                raise InputError(f"argument {i}: the plan is for {known!r}; plan again for another value")
        self._check_memory(leaves, self.captured.guards.check())
        for number, optimizer in enumerate(self.state.optimizers):
            now, before = [fixed_settings(group) for group in optimizer.param_groups], self.state.hyper[number]
            if now != before:
                pairs = zip(before, now, strict=False)
                changed = sorted(key for old, new in pairs for key in new if old.get(key) != new[key])
                what = ", ".join(changed) or "param_groups"
                raise InputError(
                    f"optimizer {number}: {what} changed since the step was captured; plan and compile it again"
                )
        ready = self._ready_phase()
        self._check_branches(ready.phase, leaves)
        require_gradients(self._accumulates)
        return list(leaves), ready

    def _check_memory(self, leaves: Sequence[Any], storages: Sequence[int]) -> None:
        """Refuse arguments in memory that the step changes: the plan takes arguments for memory of their own.

        `storages` tell where the tensors of the state are.
        """
        others = [value for value in self._changed_others.read(leaves) if isinstance(value, torch.Tensor)]
        held = {*storages_of_tensors(others), *(storages[i] for i in self._changed_tensors)}
        for i, leaf in enumerate(leaves):
            if i in self._shapes and i not in self._changed_args and leaf.untyped_storage()._cdata in held:
                raise InputError(f"argument {i} shares memory with a tensor that the step changes; pass a copy")
        own = [leaves[i].untyped_storage()._cdata for i in self._changed_args]
        if len(set(own)) != len(own):
            raise InputError("two arguments that the step changes share memory; pass copies")

    def _ready_phase(self) -> _ReadyPhase:
        """Return the phase that fits what exists now: the one that reads the most of it."""
        for ready in self._ready:
            if all(value is not None for value in ready.entry.read()):
                if all(value is None for value in ready.fresh.read()):
                    return ready
                break
        else:
            if not any(value is not None for ready in self._ready for value in ready.entry.read()):
                raise InputError(
                    "the optimizer has no state yet, or gradients are gone, that were there when the step was captured; plan "
                    "again, before the first step"
                )
        raise InputError(
            "only a part of the optimizer state or of the gradients exists; the plan covers all of it or none"
        )

    def _check_branches(self, phase: Phase, leaves: Sequence[Any]) -> None:
        """Refuse where the step would now take another branch than the one that was recorded."""
        numbers: dict[str, float] = {}
        with closing(self._answers(phase, leaves)) as answers:  # closed, so that generators are put back
            for question, answer in answers:
                if question.name is not None:
                    numbers[question.name] = answer
                elif answer != question.answer:
                    raise InputError(
                        f"{question.where}: the step branches on a value here, and would now take another branch than the one that "
                        "was captured; plan again for it (after a first step, if the branch is only about that), or use pt.step, "
                        "which makes a plan for every branch"
                    )
        optimizers = self.state.optimizers

        def number(name: str) -> float:
            return numbers[name] if name in numbers else read_setting(name, optimizers)

        other = self._branches[id(phase)].other(number)
        if other is not None:
            names = inputs_of(other)
            where = next((f"{question.where}: " for question in phase.record.questions if question.name in names), "")
            raise InputError(
                f"{where}the step branches on a number (a setting of the optimizer, its step counter, a draw), and would now take "
                "the other branch; plan again, or use pt.step, which makes a plan for every branch"
            )

    def _answers(self, phase: Phase, leaves: Sequence[Any]) -> Generator[tuple[ValueQuestion, Any]]:
        early: EarlyValues | None = phase.record.early
        if early is None:
            return
        sources = early.sources(lambda place: self.state.resolve(place, leaves))
        if sources is None:
            raise InputError("a tensor that the step branches on is gone or requires gradients now; plan again")
        yield from early.ask(sources)


def _clears_first(phase: Phase, place: Place) -> bool:
    """Whether a phase's first use of a gradient, if any, sets it to zero."""
    record = phase.record
    numbers = [s for s, storage in enumerate(record.storages) if storage.place == place]
    for call in record.calls:
        if any(s in (*call.reads, *call.mutates) for s in numbers):
            return call.func in ZEROING
    return True


def _is_tensor(value: Any) -> bool:
    return type(value) is torch.Tensor


def _check_tensor(i: int, leaf: Any, info: TensorInfo | None, known: torch.Tensor) -> None:
    """Refuse an argument whose shape, type or layout differs from the captured argument."""
    if info is None:
        return
    device = known.device
    if not isinstance(leaf, torch.Tensor):
        raise InputError(f"argument {i} must be a tensor {shown(info)}, got {type(leaf).__name__}")
    if leaf.requires_grad or type(leaf) is not type(known):
        raise InputError(
            f"argument {i}: the plan is for a plain tensor that does not require gradients; plan again for this one"
        )
    if (tuple(leaf.shape), leaf.dtype, leaf.device) != (info.shape, info.dtype, device):
        got = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device}"
        raise InputError(
            f"argument {i}: the plan is for {shown(info)} on {device}, got {got}; plan again for this shape"
        )
    if leaf.stride() != info.stride:
        raise InputError(f"argument {i}: the plan is for strides {info.stride}, got {leaf.stride()}; plan again")


# Reading what is found at the places of a plan's inputs: before every call, and for hundreds of tensors ---------------
# So which kind of place each is gets decided once.


class PlaceReader:
    """Reads what `StepState.resolve` returns for each of some places, in their order.

    Which parameters optimizers have is guarded, so their state is looked up by the parameters that they had.
    """

    def __init__(self, state: StepState, places: Sequence[Place]) -> None:
        self._state = state
        self._values: list[Any] = [None] * len(places)  # tensors that are always the same ones
        self._arguments: list[tuple[int, int]] = []
        self._grads: list[tuple[int, Any]] = []
        self._settings: list[tuple[int, Place]] = []
        self._states: dict[int, list[tuple[int, Any, Any]]] = {}  # by optimizer: position, parameter, key
        for i, place in enumerate(places):
            match place[0]:
                case "arg":
                    self._arguments.append((i, place[1]))
                case "tensor":
                    self._values[i] = state.tensors[place[1]]
                case "grad":
                    self._grads.append((i, state.tensors[place[1]]))
                case "state":
                    _, number, group, position, key = place
                    param = state.optimizers[number].param_groups[group]["params"][position]
                    self._states.setdefault(number, []).append((i, param, key))
                case _:
                    self._settings.append((i, place))

    def read(self, leaves: Sequence[Any] = ()) -> list[Any]:
        """Return the object that is there now, None if there is none; `leaves` are the arguments of the step, flat."""
        values = self._values.copy()
        for i, argument in self._arguments:
            values[i] = leaves[argument]
        for i, tensor in self._grads:
            values[i] = tensor.grad
        for i, place in self._settings:
            values[i] = self._state.resolve(place, leaves)
        for number, rows in self._states.items():
            states = self._state.optimizers[number].state
            for i, param, key in rows:
                kept = states.get(param)
                if kept is not None:
                    values[i] = kept.get(key)
        return values
