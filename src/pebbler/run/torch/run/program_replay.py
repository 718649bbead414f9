"""A program replayed: its kernels are recorded once, with their memory, and then launched together instead of one by one.

A planned step does the same every time, and launching its kernels from Python can take longer than they run. What may differ from
step to step is kept out of the recording:

- arguments are copied into tensors that the recording reads, and back where the step changes them;
- numbers that have changed since the program first ran (a learning rate with a schedule), numbers read from tensors, and what is
  on the host run between recordings, call by call; all other numbers are part of the recording, which is made again when one of
  them changes;
- results are copies, for the next replay overwrites them. What a step leaves behind (gradients) is lent: as long as somebody else
  than its place holds on to it, the program runs call by call;
- parameters, buffers and state are used where they are. If they are somewhere else one day, the recording is made again.

A recording is made without running anything, so one that fails leaves nothing behind. This module decides; the device records
(`GraphRecorder`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.fx
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from pebbler.collection import no_collection
from pebbler.errors import PebblerError, one_line
from pebbler.game.byte_sizes import shown_bytes
from pebbler.run.torch.capture.random_state import is_state_call, restore_generator, save_generator
from pebbler.run.torch.capture.views import take_part, take_view

if TYPE_CHECKING:
    from pebbler.run.torch.run.program import Program

__all__ = ["GraphRecorder", "NotReplayed", "ProgramReplay"]

_MOST_BETWEEN = 2**20  # bytes that calls between recordings may make for later ones: they are held all the time
_MOST_WASTED = 3  # recordings that were of little use
_LITTLE = 4  # replays that pay for a recording


class NotReplayed(PebblerError):
    """A program cannot be replayed."""


class GraphRecorder(Protocol):
    """Makes one recording, in pieces that are replayed one after the other."""

    @property
    def valid(self) -> bool:
        """Whether its pieces can still be replayed."""
        ...

    def begin(self, redraws: Sequence[Node]) -> None:
        """Begin a piece, in which these nodes set the generator back."""
        ...

    def end(self) -> Callable[[], None]:
        """End the piece; return a function that replays it."""
        ...

    def abandon(self) -> None:
        """Give up: nothing of the recording stays."""
        ...

    def reset(self) -> None:
        """Let go of the recording."""
        ...

    def finish(self) -> int:
        """Return by how many bytes the budget is broken, 0 if it is kept."""
        ...

    def save(self, node: Node) -> None:
        """Remember the state of the generator here."""
        ...

    def restore(self, node: Node, saved: Node) -> None:
        """Set the generator back to a saved state."""
        ...

    def prepare(self) -> None:
        """Prepare the replay of the first piece."""
        ...

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the same memory that does not keep it."""
        ...


class ProgramReplay:
    """Decides for every call of a program whether it is replayed; makes and keeps its recording."""

    def __init__(self, program: Program, new_recorder: Callable[[Program], GraphRecorder], patience: int = 0) -> None:
        self._program, self._new_recorder, self._patience = program, new_recorder, patience
        self.proven = False  # whether a replay has been compared with the program: before that there is none
        self._live: set[str] = set()  # names of numbers that have changed
        self._recorded: _RecordedProgram | None = None
        self._wasted = 0
        self.why_not: str | None = None  # it is not replayed any more
        self.recordings = self.replays = 0
        self.excess = 0  # bytes by which a recording broke the budget

    def __str__(self) -> str:
        if self.why_not is not None:
            return f"not replayed: {self.why_not}"
        if self._recorded is None:
            return "not replayed yet"
        between = len(self._recorded.between)
        return f"replayed as {_count(self._recorded.pieces, 'graph')}" + (
            f", {_count(between, 'call')} between them" if between else ""
        )

    @property
    def due(self) -> bool:
        """Whether the next call is replayed, as far as that is known."""
        return self._program.has_run and self._patience <= 0 and self.why_not is None

    def refuse(self, reason: str) -> None:
        """Replay no more."""
        self._let_go()
        self.why_not = reason

    def _let_go(self) -> None:
        if self._recorded is not None:
            self._recorded.recorder.reset()
        self._recorded = None

    def ready(self, inputs: Sequence[Any]) -> _RecordedProgram | None:
        """Return the recording to replay with these inputs, made if need be; None if the program is to run call by call."""
        if not self.due:
            self._patience -= 1
            return None
        if not self.proven:
            return None
        known = self._recorded
        if known is None or not known.recorder.valid or not known.fits(inputs):
            self._recorded = known = None if known is not None and self._gives_up(known, inputs) else self._made(inputs)
        if known is None or not known.returned():
            return None
        self.replays += 1
        return known

    def _gives_up(self, known: _RecordedProgram, inputs: Sequence[Any]) -> bool:
        changed = known.changed_numbers(inputs)
        self._live |= changed
        if not changed:
            self._wasted += known.replays < _LITTLE
        if self._wasted >= _MOST_WASTED:
            self.why_not = "the tensors that it changes are somewhere else at every call"
        self._let_go()  # before the next one is made: both would need memory
        return self.why_not is not None

    def _made(self, inputs: Sequence[Any]) -> _RecordedProgram | None:
        recorder: GraphRecorder | None = None
        made: _RecordedProgram | None = None
        try:
            between = _between(self._program, self._live)
            recorder = self._new_recorder(self._program)
            self.recordings += 1
            with no_collection():  # memory of others must not be given back in the middle of a recording
                made = _RecordedProgram(self._program, inputs, between, self._live, recorder)
            self.excess = recorder.finish()
            if not self.excess:
                return made
            self.why_not = f"that would hold {shown_bytes(self.excess)} more than the budget"
        except NotReplayed as error:
            self.why_not = str(error)
        except Exception as error:  # of whatever cannot be recorded, whoever raises it
            self.why_not = f"it could not be recorded ({type(error).__name__}: {one_line(str(error))[:200]})"
        except BaseException:
            if recorder is not None:
                recorder.abandon()
            raise
        made = None  # with what it holds
        if recorder is not None:
            recorder.abandon()
        return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _between(program: Program, live: set[str]) -> set[Node]:
    """Return the nodes that run between recordings: on the host, or with numbers that are not always the same."""
    nodes = list(program.module.graph.nodes)
    loose = {node for node in nodes if node.op == "placeholder" and node.target in live}  # not the same every time
    found: set[Node] = set()
    for node in nodes:
        if node.op in ("placeholder", "output"):
            continue
        if is_state_call(node.target):
            raise NotReplayed("the step sets or reads the state of a random generator")
        if node.meta["host"] or any(operand in loose for operand in node.all_input_nodes):
            found.add(node)
            if node.meta["form"] is None:
                loose.add(node)
    made = sum(_bytes(node.meta["form"]) for node in found if node.meta["form"] is not None)
    if made > _MOST_BETWEEN:
        raise NotReplayed(f"calls that depend on numbers make {shown_bytes(made)}")
    return found


def _bytes(form: tuple[Any, ...]) -> int:
    shape, stride, dtype, _ = form
    return _span(shape, stride) * int(dtype.itemsize)


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements that lie from the first to the last one of a tensor, both included.

    >>> _span((2, 3), (10, 1)), _span((4, 0), (1, 1))
    (13, 0)
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


_QUIET = frozenset((take_view, take_part, torch._C._set_grad_enabled))  # launch nothing


class _Argument:
    """A tensor that stands in for an argument: the same part of memory of its own."""

    def __init__(self, position: int, node: Node, value: torch.Tensor, changed: bool) -> None:
        self.position, self.changed = position, changed
        self.span = _span(value.shape, value.stride())
        for user in node.users:
            if user.target in (take_view, take_part):
                shape, stride, distance = user.args[1:4]
                size = value.element_size()
                dtype = user.args[4] if user.target is take_part else value.dtype
                first, each = (distance, dtype.itemsize) if user.target is take_part else (distance * size, size)
                if first < 0 or first + _span(shape, stride) * each > self.span * size:
                    raise NotReplayed(f"argument {position} is a part of a tensor of which the step sees more")
        self.memory = torch.empty(self.span, dtype=value.dtype, device=value.device)
        self.twin = self.memory.as_strided(value.shape, value.stride())
        self.take(value)

    def take(self, value: torch.Tensor) -> None:
        self.memory.copy_(value.as_strided((self.span,), (1,), value.storage_offset()))

    def give(self, value: torch.Tensor) -> None:
        value.as_strided((self.span,), (1,), value.storage_offset()).copy_(self.memory)


class _RecordingRun(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program for a recorder, all but the nodes that run between recordings."""

    def __init__(self, program: Program, between: set[Node], recorder: GraphRecorder) -> None:
        super().__init__(program.module)
        self.program, self.between, self.recorder = program, between, recorder
        self.steps: list[Callable[[], None] | Node] = []
        self.statics: dict[Node, Any] = {}  # operands of what runs between recordings
        self.twins: dict[Node, torch.Tensor] = {}  # results of what runs between, where recordings find them
        self.open = self.redrawing = False  # whether a piece is being recorded, and whether a draw is being repeated
        self.pending = list(program.module.graph.nodes)

    def run_node(self, n: Node) -> Any:
        self.pending.pop(0)
        if n.op == "placeholder":
            return super().run_node(n)
        if n.op == "output":
            self._close()
            return super().run_node(n)
        if n in self.between:
            return self._leave_out(n)
        if n.target is save_generator:
            self._open()
            self.recorder.save(n)
            return n
        if n.target is restore_generator:
            self.recorder.restore(n, self.env[n.args[0]])
            self.redrawing = not self.redrawing
            return None
        if n.target in _QUIET or _is_python(n.target):
            if n.target is torch._C._set_grad_enabled:
                self.steps.append(n)
            return super().run_node(n)
        self._open()
        result = super().run_node(n)
        return result if n.users else None  # the interpreter would keep it to the end

    def _leave_out(self, n: Node) -> Any:
        if self.redrawing:
            raise NotReplayed("a call that depends on numbers draws random ones again")
        self._close()
        for operand in n.all_input_nodes:
            if operand not in self.between and operand.op != "placeholder":
                value = self.env[operand]
                self.statics[operand] = tree_map_only(torch.Tensor, self.recorder.alias, value)
        self.steps.append(n)
        if n.meta["form"] is None or not n.users or all(user in self.between for user in n.users):
            return None
        shape, stride, dtype, device = n.meta["form"]
        self.twins[n] = torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        return self.twins[n]

    def _open(self) -> None:
        if not self.open:
            rest = itertools.takewhile(lambda node: node not in self.between, self.pending)
            restores = [node for node in rest if node.target is restore_generator]
            self.recorder.begin(restores[::2])  # every other one ends a repetition
            self.open = True

    def _close(self) -> None:
        if self.open:
            self.open = False
            self.steps.append(self.recorder.end())


def _is_python(target: Any) -> bool:
    """Whether a function computes with numbers only, or takes one of several results."""
    return getattr(target, "__module__", "") in ("_operator", "builtins")


class _RecordedProgram:
    """A recording with what runs between its pieces: `play` does what the program does."""

    def __init__(
        self, program: Program, inputs: Sequence[Any], between: set[Node], live: set[str], recorder: GraphRecorder
    ) -> None:
        self.program, self.recorder, self.between = program, recorder, between
        nodes = list(program.module.graph.nodes)
        self._number = {node: i for i, node in enumerate(nodes)}
        self.placeholders = [n for n in nodes if n.op == "placeholder" and n.target != "transfers"]
        changes = {place for node in nodes for place in node.meta.get("changes", ())}
        self._arguments = []
        self._fixed: list[tuple[int, int]] = []  # position, address
        for i, (node, value) in enumerate(zip(self.placeholders, inputs, strict=True)):
            if isinstance(value, torch.Tensor) and program.is_here(value):
                place = program.places[i] if i < len(program.places) else ("constant",)
                if place[0] == "arg":
                    self._arguments.append(_Argument(i, node, value, place in changes))
                else:
                    self._fixed.append((i, value.data_ptr()))
        self._first_number = len(inputs) - len(program.rates)
        self._numbers = [None if node.target in live else x for node, x in self._with_numbers(inputs)]
        given = list(inputs)
        for argument in self._arguments:
            given[argument.position] = argument.twin
        recording = _RecordingRun(program, between, recorder)
        transfers = () if program.transfers is None else (program.transfers,)
        outputs = recording.run(*transfers, *given)
        self.steps, self._statics, self._twins = recording.steps, recording.statics, recording.twins
        self.pieces = sum(not isinstance(step, Node) for step in self.steps)
        self.replays, self.at = 0, -1
        self._lent: list[torch.Tensor] = []
        self._holders: list[int] = []  # of each of them, while only this one holds it
        self._returns = self._kinds_of(nodes[-1].args[0], outputs, given)

    def _with_numbers(self, inputs: Sequence[Any]) -> Iterator[tuple[Node, float]]:
        return zip(self.placeholders[self._first_number :], inputs[self._first_number :], strict=True)

    # Whether it can be replayed -------------------------------------------------------------------------------------

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether tensors are at their recorded addresses, and numbers have their recorded values."""
        return not self.changed_numbers(inputs) and all(inputs[i].data_ptr() == place for i, place in self._fixed)

    def changed_numbers(self, inputs: Sequence[Any]) -> set[str]:
        """Return the names of the recorded numbers that are others now."""
        pairs = zip(self._with_numbers(inputs), self._numbers, strict=True)
        return {str(node.target) for (node, now), known in pairs if known is not None and known != now}

    def returned(self) -> bool:
        """Whether nothing holds on to the memory that it lends."""
        if not self._holders:  # now that nothing of its making holds them
            self._holders = [_holders(tensor) for tensor in self._lent]
        return all(_holders(x) == count for x, count in zip(self._lent, self._holders, strict=True))

    # Replaying ------------------------------------------------------------------------------------------------------

    def play(self, *inputs: Any) -> list[Any]:
        """Run the program on these inputs."""
        self.at, values = -1, {**self._statics, **dict(zip(self.placeholders, inputs, strict=True))}
        for argument in self._arguments:
            argument.take(inputs[argument.position])
            values[self.placeholders[argument.position]] = argument.twin
        self.recorder.prepare()
        for step in self.steps:
            if isinstance(step, Node):
                self.at = self._number[step]
                values[step] = self._run(step, values)
            else:
                self.at = len(self._number)  # any of its kernels may have run
                step()
        for argument in self._arguments:
            if argument.changed:
                argument.give(inputs[argument.position])
        self.replays += 1
        own = dict(zip(self.placeholders, inputs, strict=True))
        copies: dict[int, torch.UntypedStorage] = {}
        return [give(values, own, copies) for give in self._returns]

    def _run(self, node: Node, values: dict[Node, Any]) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "call_module":
            result = self.program.module.get_submodule(node.target)(*args, **kwargs)
        else:
            result = node.target(*args, **kwargs)
        twin = self._twins.get(node)
        return result if twin is None else twin.copy_(result)

    # What it returns ------------------------------------------------------------------------------------------------

    def _kinds_of(self, nodes: Sequence[Any], values: Sequence[Any], given: Sequence[Any]) -> list[Callable[..., Any]]:
        """Return for every output what makes it of the values between recordings, the inputs, and storages copied already."""
        there = {_key(x) for x in given if isinstance(x, torch.Tensor)}
        results = len(nodes) - len(self.program.binds)
        lent = [x for x in values[results:] if isinstance(x, torch.Tensor) and _key(x) not in there]
        returned = {_key(x) for x in values[:results] if isinstance(x, torch.Tensor)}
        if any(_key(x) in returned for x in lent):
            raise NotReplayed("the step returns what it leaves behind")
        made = [
            self._kind(node, value, there, i >= results)
            for i, (node, value) in enumerate(zip(nodes, values, strict=True))
        ]
        self._lent = list({_key(x): x for x in lent}.values())
        return made

    def _kind(self, node: Any, value: Any, there: set[int], lend: bool) -> Callable[..., Any]:
        if not isinstance(node, Node):
            return lambda values, own, copies: node
        if node in self.between and node not in self._twins:
            return lambda values, own, copies: values[node]
        if not isinstance(value, torch.Tensor):
            return lambda values, own, copies: value
        if _key(value) in there and node not in self._twins:
            return lambda values, own, copies: _view(node, own)
        if lend:
            return lambda values, own, copies: value.detach()
        return lambda values, own, copies: _copy(value, copies)


def _view(node: Node, own: dict[Node, Any]) -> Any:
    """Return a view of an input, taken again."""
    if node.op == "placeholder":
        return own[node]
    args = torch.fx.node.map_arg(node.args, lambda operand: _view(operand, own))
    return node.target(*args)


def _copy(tensor: torch.Tensor, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """Return a tensor on a copy of its storage; tensors that share one do so afterwards."""
    storage = copies.get(_key(tensor))
    if storage is None:
        storage = copies[_key(tensor)] = tensor.untyped_storage().clone()
    new = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return new.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _holders(tensor: torch.Tensor) -> int:
    """Return the number of objects that hold a storage."""
    return int(torch._C._storage_Use_Count(_key(tensor)))
