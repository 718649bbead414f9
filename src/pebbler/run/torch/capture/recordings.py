"""Recording a step until it repeats, and finding everything that it depends on.

The step runs until it repeats, then the phases that happen once are recorded a second time. Numbers that optimizers read have
other values each time, random generators another state. What then differs between two recordings of a phase, and what a recording
changes in Python, cannot be promised by a plan and is refused by name.
"""

from __future__ import annotations

import contextvars
import gc
import random
import traceback
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils._pytree import tree_flatten

from pebbler.collection import no_collection
from pebbler.errors import InputError, PebblerError
from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, Scalar, TensorRef, shown
from pebbler.run.torch.capture.executed_code import ExecutedCode
from pebbler.run.torch.capture.gradient_scaling import begin_scalers
from pebbler.run.torch.capture.guards import Guards
from pebbler.run.torch.capture.holders import PLAIN
from pebbler.run.torch.capture.python_state import Change, PythonState, same_value, shown_value
from pebbler.run.torch.capture.random_state import untouched_generators
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.side_effects import SideEffects, Stopped
from pebbler.run.torch.capture.source_lines import line_of, line_of_error
from pebbler.run.torch.capture.step_state import NotSettled, StepState
from pebbler.run.torch.capture.surroundings import Surroundings, forget
from pebbler.run.torch.capture.torch_settings import refuse_settings

__all__ = ["Recording", "python_roots", "record_phases", "without_finalizers"]

_MOST_PHASES = 4
_GENERATORS = ("Python's random generator", "numpy's random generator")


class Recording(NamedTuple):
    """One run of the step on tensors without memory."""

    record: Record
    scalars: Scalars
    entry: frozenset[Place]  # optimizer state and gradients that it reads


def record_phases(state: StepState) -> tuple[list[Recording], Guards]:
    """Return one recording of every phase, the last one of which repeats, and what must not change between steps.

    Everything that recording changes is put back, also where the step is refused.
    """
    refuse_settings()
    session = _Session(state)
    try:
        session.begin()
        recordings = session.until_it_repeats()
        compared = [_compared(recordings[-2], recordings[-1])]
        for number, first in enumerate(recordings[:-2]):
            if number == 0:
                state.restore()
            again = session.take()
            compared.insert(number, _compared(first, again))
    except BaseException as error:
        session.put_back(error)
        raise
    session.refuse_left(*session.put_back())
    return compared, Guards(state, session.code, [*python_roots(state), *session.functions], session.settled)


def _compared(recording: Recording, again: Recording) -> Recording:
    if recording.entry != again.entry:
        raise InputError("the step reads other optimizer state or gradients each time; a plan needs the same")
    record = _find_scalars(recording.record, recording.scalars, again.record, again.scalars)
    return recording._replace(record=record)


class _Session:
    """Runs of a step, and the Python state around them."""

    def __init__(self, state: StepState) -> None:
        self.state, self.code = state, ExecutedCode()
        self.surroundings = Surroundings(state.fakes)
        self.python: list[PythonState] = []
        self.functions: list[
            tuple[str, types.FunctionType]
        ] = []  # that the step calls, and others made from their code
        self.settled: list[Change] = []  # what the first run set for good
        self.runs = 0

    def begin(self) -> None:
        """Look at what the step can reach."""
        state = self.state
        self.python = [PythonState(python_roots(state))]
        first = self.python[0]
        state.scalers = begin_scalers(
            (holder.owner for holder in first.holders if holder.kind == "attributes"), state.leaves
        )
        if state.scalers:
            self.python[0] = PythonState(python_roots(state))  # with their scale
        state.know_tensors(self.python[0].tensors)
        refuse_wrappers(self.python[0])

    def until_it_repeats(self) -> list[Recording]:
        """Record until two recordings read the same optimizer state and gradients."""
        recordings = [self.take(first=True)]
        if self.settled:
            # The same step once more, with what it has set: it must do the same, and set nothing else.
            self.state.restore()
            recordings.append(self.take())
            _compared(*recordings)
            del recordings[0]
        # Now it is known which code runs, and what that can reach.
        self.functions = [(f.__qualname__, f) for f in self.code.functions(self.surroundings.functions())]
        # Others made from the same code are looked at before every step, but what they hold another thread may be changing now.
        ran = [(name, function) for name, function in self.functions if self.code.has_run(function)]
        self.python.append(PythonState([*python_roots(self.state), *ran], self.code.globals()))
        for _ in range(_MOST_PHASES):
            recordings.append(self.take())
            if recordings[-2].entry == recordings[-1].entry:
                return recordings
        raise InputError(
            f"the step still makes new state after {_MOST_PHASES} steps; only state of a fixed number can be planned"
        )

    def take(self, first: bool = False) -> Recording:
        """Record once more; refuse what changes Python state, but for plain values that the first run sets."""
        self.runs += 1
        generators = {id(g): g for python in self.python for g in python.generators}
        effects = SideEffects(self.code.package, first)
        context = contextvars.copy_context()
        with ExitStack() as stack:
            self.state.drawn = stack.enter_context(untouched_generators(list(generators.values())))
            known = {id(holder.owner) for python in self.python for holder in python.holders}
            stack.callback(effects.put_back, known)
            stack.enter_context(self.code.watch(effects))
            stack.enter_context(self.code.note_names())
            try:
                record, scalars = context.run(self.state.record, self.runs)
            except PebblerError:
                raise
            except Stopped as stopped:
                raise stopped.refusal from None
            except Exception as error:
                raise InputError(
                    f"{line_of_error(error)}: while the step was recorded on tensors without numbers it raised "
                    f"{type(error).__name__}: {error}"
                ) from error
        if effects.refusal is not None:
            raise effects.refusal  # the step has gone on all the same
        self._refuse_context(context)
        for python in self.python[-1:] if self.settled else self.python:
            changes = [change for change in python.changes() if not self.state.keeps(change, record)]
            if first and changes and all(isinstance(change.new, PLAIN) for change in changes):
                self.settled = changes
                self.python.append(PythonState(python_roots(self.state)))
            elif changes:
                self._refuse(changes)
        places = [storage.place for storage in record.storages if storage.place is not None]
        return Recording(record, scalars, frozenset(place for place in places if place[0] in ("state", "grad")))

    def put_back(self, error: BaseException | None = None) -> tuple[list[str], list[str]]:
        """Take everything back to where it was before the first recording, also after an error.

        Returns what was changed in tensors, and what held tensors without memory where nobody looks.
        """
        self.state.restore()
        for python in reversed(self.python):
            python.restore()
        owners = [holder.owner for python in self.python for holder in python.holders]
        tensors = [tensor for python in self.python for _, tensor in python.tensors]
        changed = self.surroundings.put_back([*self.state.tensors, *tensors, *owners], self.state.optimizers)
        # What a recording left in Python is put back by now, and held by nothing but what was noted of it.
        self.python, owners, tensors = [], [], []
        self.state.forget_recordings()
        _let_go(error, set())
        stray = self.surroundings.stray()
        return changed, forget(stray) if stray else []

    def refuse_left(self, changed: list[str], holders: list[str]) -> None:
        """Refuse changes that a recording made, including those that have been undone."""
        where = line_of(self.state.step)
        if changed:
            raise NotSettled(
                f"{where}: the step changes {changed[0]}, which a plan would not do; do that outside of the step"
            )
        if holders:
            raise NotSettled(
                f"{where}: the step leaves a tensor in {holders[0]} where pebbler does not look; return it, or keep it in a buffer"
            )

    def _refuse_context(self, context: contextvars.Context) -> None:
        """Refuse a step that sets variables of the context; those that it set are gone with its copy of the context."""
        now = contextvars.copy_context()
        for variable, value in context.items():
            if variable not in now or now[variable] is not value:
                raise InputError(
                    f"{line_of(self.state.step)}: the step sets the context variable {variable.name!r}, which a plan would not do; "
                    "set it outside of the step"
                )

    def _refuse(self, changes: list[Change]) -> None:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        where = self.code.line_that_stores(changes[0].name) or line_of(self.state.step)
        if changes[0].name in _GENERATORS:
            raise InputError(
                f"{where}: the step draws from {changes[0].name}, which a plan would not do; draw with torch (torch.rand([]) < p "
                "may decide a branch), or outside of the step and pass what was drawn as a tensor"
            )
        raise NotSettled(
            f"{where}: the step changes something besides tensors, which a plan would not do: {changes[0]}{more}; do that "
            "outside of the step, or run one step before planning if it happens only once"
        )


def _let_go(error: BaseException | None, seen: set[int]) -> None:
    """Let go of the tensors that an error and its causes hold: in frames of the step, and in what each was raised with."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    traceback.clear_frames(error.__traceback__)
    if any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(error.args)[0]):
        error.args = (str(error),)
    _let_go(error.__cause__, seen)
    _let_go(error.__context__, seen)


@contextmanager
def without_finalizers() -> Iterator[None]:
    """Keep other people's code from running in the middle: finalizers, and whoever counts collections.

    Recordings make many objects that stay, and each look for garbage among a program's million others takes longer than they do.
    """
    with no_collection():
        gc.collect(0)  # what is young from now on was made by the step
        yield


def python_roots(state: StepState) -> list[tuple[str, Any]]:
    """Return the roots of the search for what a step depends on."""
    module: types.ModuleType = torch.nn.modules.module
    spaces = (vars(module), vars(torch_optimizer))
    hooks = [
        (f"torch's {name[1:]}", value)
        for space in spaces
        for name, value in space.items()
        if name.startswith("_global_")
    ]
    numpy_random: Any = np.random.mtrand._rand
    arguments = [(f"argument {i}", leaf) for i, leaf in enumerate(state.leaves)]
    python_random: Any = random._inst
    generators = list(zip(_GENERATORS, (python_random, numpy_random), strict=True))
    return [("step", state.step), *arguments, *generators, *hooks]


def refuse_wrappers(python: PythonState) -> None:
    """Refuse modules that split training over processes: what they do is not all visible."""
    for holder in python.holders:
        name = type(holder.owner).__name__
        module = type(holder.owner).__module__
        if module.startswith(("torch.nn.parallel", "torch.distributed")) and isinstance(holder.owner, torch.nn.Module):
            raise InputError(
                f"{holder.path} is a {name}: training split over processes cannot be planned; train without "
                "a plan, or plan the step of the module inside it"
            )


# Comparing two recordings of the same step, operand by operand ------------------------------------------------------------


def _find_scalars(record: Record, scalars: Scalars, again: Record, others: Scalars) -> Record:
    """Return a recording with the numbers that change from step to step as expressions, found by comparing it with another.

    Everything else must be the same in both: operators, tensors and their views, constants, results, branches on numbers.
    """
    comparison = _RecordingPair(record, scalars, again, others)
    calls = [comparison.compared(call, twin) for call, twin in zip(record.calls, again.calls, strict=False)]
    if len(record.calls) != len(again.calls):
        call = max(record.calls, again.calls, key=len)[len(calls)]
        raise InputError(
            f"{call.where}: the step runs {call.func} in one step and not in the next; a plan needs the same ones"
        )
    comparison.compare_results()
    if record.guards != again.guards:
        raise InputError(
            "the step branches on a number, and takes another branch each time; a plan needs the same ones"
        )
    if [q.likeness for q in record.questions] != [q.likeness for q in again.questions]:
        raise InputError("the step branches on values, and takes another branch each time; a plan needs the same ones")
    return replace(record, calls=calls)


class _RecordingPair:
    """Compares two recordings; tensors that are found to be the same once are not looked at again."""

    def __init__(self, record: Record, scalars: Scalars, again: Record, others: Scalars) -> None:
        self.record, self.scalars, self.again, self.others = record, scalars, again, others
        self._same: set[tuple[int, int]] = set()

    def compared(self, call: Call, twin: Call) -> Call:
        """Return a call with numbers that follow from settings as expressions; refuse whatever else differs."""
        if (call.func is not twin.func and str(call.func) != str(twin.func)) or (call.grad, call.unless) != (
            twin.grad,
            twin.unless,
        ):
            raise InputError(
                f"{call.where}: the step runs {call.func}, and in the next step {twin.func}; a plan needs the same ones"
            )
        args, kwargs, outputs = (
            self._merged(call, old, new)
            for old, new in ((call.args, twin.args), (call.kwargs, twin.kwargs), (call.outputs, twin.outputs))
        )
        if args is call.args and kwargs is call.kwargs and outputs is call.outputs:
            return call
        return replace(call, args=args, kwargs=kwargs, outputs=outputs)

    def _merged(self, call: Call, old: Any, new: Any) -> Any:
        """Return operands with expressions in place of numbers that change; the same object where nothing does."""
        kind = type(old)
        if kind is TensorRef and type(new) is TensorRef:
            self._require_same_tensor(call, old.number, new.number)
            return old
        if old is new:
            return old
        if kind is tuple or kind is list or kind is dict:
            if type(new) is not kind or len(old) != len(new) or (kind is dict and list(old) != list(new)):
                raise InputError(f"{call.where}: {call.func} gets other operands each time")
            if kind is dict:
                parts = {key: self._merged(call, value, new[key]) for key, value in old.items()}
                return old if all(parts[key] is value for key, value in old.items()) else parts
            row = [self._merged(call, a, b) for a, b in zip(old, new, strict=True)]
            return old if all(a is b for a, b in zip(row, old, strict=True)) else kind(row)
        if isinstance(old, float) and isinstance(new, float):
            return self._number(call, old, new)
        self._require_same(call, old, new)
        return old

    def _number(self, call: Call, leaf: float, twin: float) -> Any:
        """Return a number, as an expression if it is computed anew in every step."""
        if same_value(float(leaf), float(twin)):
            return leaf if type(leaf) is float else float(leaf)
        expression = self.scalars.expressions.get(leaf)
        if expression is None or self.others.expressions.get(twin) != expression:
            raise InputError(
                f"{call.where}: {call.func} gets a number that changes from step to step ({leaf}, then {twin}), and how it "
                "follows from the optimizer's settings is not known; keep it in a tensor, or pass it as an argument in a tensor"
            )
        return Scalar(expression)

    def _require_same(self, call: Call, leaf: Any, other: Any) -> None:
        if isinstance(leaf, Constant) and isinstance(other, Constant):
            old, new = self.record.constants[leaf.number], self.again.constants[other.number]
            if not isinstance(old, torch.Tensor) and old is not new:
                raise InputError(
                    f"{call.where}: the step draws from another random generator each time; make it outside of the step"
                )
            if not _same_constant(old, new):
                raise InputError(
                    f"{call.where}: the step makes a tensor from Python values that are others in the next step "
                    f"({_values(old)}, then {_values(new)}); make it outside and pass it as an argument"
                )
        elif not same_value(leaf, other):
            raise InputError(
                f"{call.where}: {call.func} gets {shown_value(leaf)} and then {shown_value(other)}; a plan needs the same operands"
            )

    def _require_same_tensor(self, call: Call, number: int, other: int) -> None:
        if (number, other) in self._same:
            return
        old, new = self.record.tensors[number], self.again.tensors[other]
        places = self.record.storages[old.storage].place, self.again.storages[new.storage].place
        if old.storage != new.storage or places[0] != places[1]:
            raise InputError(
                f"{call.where}: {call.func} gets another tensor in the next step; pass it to the step as an argument"
            )
        if old != new:
            raise InputError(
                f"{call.where}: {call.func} gets another part of a tensor in the next step ({shown(old)} from {old.offset}, then "
                f"{shown(new)} from {new.offset}); a plan needs the same one"
            )
        self._same.add((number, other))

    def compare_results(self) -> None:
        """Refuse results and kept tensors that differ between recordings."""
        record, again = self.record, self.again
        leaves, spec = tree_flatten(record.result)
        twins, other_spec = tree_flatten(again.result)
        end = Call(None, (), {}, None, (), (), (), where="the end of the step")
        if spec != other_spec:
            raise InputError(f"the step returns another structure each time: {spec}, then {other_spec}")
        for leaf, other in zip(leaves, twins, strict=True):
            if isinstance(leaf, TensorRef) and isinstance(other, TensorRef):
                self._require_same_tensor(end, leaf.number, other.number)
            elif isinstance(leaf, Scalar) and leaf == other:
                continue  # read from the same tensor
            elif not same_value(leaf, other):
                raise InputError(f"the step returns {shown_value(leaf)}, and then {shown_value(other)}; return tensors")
        if record.binds.keys() != again.binds.keys():
            changed = sorted(map(str, record.binds.keys() ^ again.binds.keys()))[0]
            raise InputError(f"the step leaves other tensors behind each time: {changed}")
        for place, number in record.binds.items():
            self._require_same_tensor(end, number, again.binds[place])


def _same_constant(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return old is new
    if (old.shape, old.stride(), old.dtype, old.device) != (new.shape, new.stride(), new.dtype, new.device):
        return False
    return bool(torch.equal(old.contiguous().view(-1).view(torch.uint8), new.contiguous().view(-1).view(torch.uint8)))


def _values(constant: Any) -> str:
    return str(constant.tolist())[:60] if isinstance(constant, torch.Tensor) else f"a {type(constant).__name__}"
