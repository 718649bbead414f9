"""Values in the middle of a step that can be known before it runs: is this mask all ones, is the layer left out, which step is it.

A plan follows the branches that were recorded. Where a step branches on a value that a few small operators compute from arguments,
buffers, optimizer state and random draws, those operators run by themselves, on copies: while the step is recorded, to take the
branch that the step itself would take now, and before every run of the plan, to see that it still is that one. Generators are put
back afterwards. Values that follow from activations or gradients cannot be known so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves
from pebbler.run.torch.capture.random_state import is_state_call
from pebbler.run.torch.capture.views import view_of

__all__ = ["EarlyCalls", "EarlyValues", "ValueQuestion", "apart", "drawing_from", "largest_in"]

_MOST_CALLS = 48  # that lead to one value
_MOST_BYTES = 16 * 2**20  # made on the way to it
# These draw as often as their shapes say, whatever the values of their operands are.
_PLAIN_DRAWS = frozenset(
    ("native_dropout", "bernoulli", "bernoulli_", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "randperm",
     "uniform_", "uniform", "normal_", "normal", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_")
)  # fmt: skip
Source = Callable[[Place], Any]  # what exists before the step


class ValueQuestion(NamedTuple):
    """A look of the step at the number in a tensor, or the largest of several, and the answer that its branch followed from."""

    position: int  # how many calls come before
    number: int
    where: str
    answer: Any
    name: str | None = None  # under which guards know the number; they say what follows from it

    @property
    def likeness(self) -> tuple[Any, ...]:
        """The features that two recordings of a step must share."""
        return self.position, self.number, self.answer, self.name


@dataclass
class _Lead:
    """Calls that lead to a value, and draws before them that only move the generator on."""

    real: set[int] = field(default_factory=set)
    draws: set[int] = field(default_factory=set)


class EarlyCalls:
    """Finds the calls of a recording, which may still grow, that lead to a value."""

    def __init__(self, record: Record, is_traced: Callable[[float], bool]) -> None:
        self.record, self._is_traced = record, is_traced
        self._writers: dict[int, list[int]] = {}  # storage -> calls that make or change it
        self._random: list[int] = []
        self._indexed = 0
        self._traced = False

    def values(
        self, looks: Sequence[tuple[int, int]], questions: Sequence[ValueQuestion] = (), *, traced: bool = False
    ) -> EarlyValues | None:
        """Return a program for tensors after some calls (`looks`: position, number), None if that needs the step itself.

        Operands that stand for other numbers are refused unless `traced`: then `compute` must be told what they are.
        """
        self._traced = traced
        together = _Lead()
        for position, number in looks:
            lead = self._leading_to(number, position)
            if lead is None:
                return None
            together.real |= lead.real
            together.draws |= lead.draws
        record, calls = self.record, self.record.calls
        runs = [(at, 1, calls[at], at not in together.real) for at in together.real | together.draws]
        asks = [(position, 0, (number, i), False) for i, (position, number) in enumerate(looks)]
        steps = tuple((what, aside) for _, _, what, aside in sorted([*runs, *asks], key=lambda step: step[:2]))
        used = {s for at in together.real for s in (*calls[at].reads, *calls[at].mutates)}
        used |= {record.tensors[number].storage for _, number in looks}
        places = tuple((s, place) for s in sorted(used) if (place := record.storages[s].place) is not None)
        changed = frozenset(s for at in together.real for s in (*calls[at].mutates, *calls[at].statistics))
        snapshot = replace(record, tensors=list(record.tensors), storages=list(record.storages), questions=[])
        return EarlyValues(snapshot, steps, places, changed, tuple(questions))

    def _leading_to(self, number: int, position: int) -> _Lead | None:
        self._index()
        found: set[int] = set()
        pending = [(self.record.tensors[number].storage, position)]
        bounds: dict[int, int] = {}
        while pending:
            storage, bound = pending.pop()
            if bounds.get(storage, -1) >= bound:
                continue
            bounds[storage] = bound
            for at in self._writers.get(storage, ()):
                if at >= bound:
                    break
                found.add(at)
                pending += [(read, at) for read in self.record.calls[at].reads]
            if len(found) > _MOST_CALLS:
                return None
        return self._with_draws(found) if self._may_run(found) else None

    def _index(self) -> None:
        for at in range(self._indexed, len(self.record.calls)):
            call = self.record.calls[at]
            for storage in dict.fromkeys((*call.makes, *call.mutates, *call.statistics)):
                self._writers.setdefault(storage, []).append(at)
            if call.random:
                self._random.append(at)
        self._indexed = len(self.record.calls)

    def _may_run(self, found: set[int]) -> bool:
        calls = [self.record.calls[at] for at in found]
        if sum(self.record.storages[s].bytes for call in calls for s in call.makes) > _MOST_BYTES:
            return False
        return not any(
            call.scalar is not None
            or call.unless is not None
            or (not self._traced and any(type(x) is float and self._is_traced(x) for x in call.leaves))
            for call in calls
        )

    def _with_draws(self, found: set[int]) -> _Lead | None:
        """Return calls with all draws of the same generators before them: those decide what is drawn."""
        lead = _Lead(set(found))
        drawing = [at for at in found if self.record.calls[at].random]
        keys = {_generator_key(self.record, self.record.calls[at]) for at in drawing}
        if any(isinstance(key, str) and key != "cpu" for key in keys):
            return None  # on another device the answer is not there before the step without waiting
        for at in self._random:
            call = self.record.calls[at]
            if at > max(drawing, default=-1) or _generator_key(self.record, call) not in keys:
                continue
            if call.unless is not None:
                return None
            if is_state_call(call.func):
                lead.real.add(at)
                for leaf in call.args:
                    more = self._leading_to(leaf.number, at) if isinstance(leaf, TensorRef) else _Lead()
                    if more is None:
                        return None
                    lead.real |= more.real
                    lead.draws |= more.draws
            elif call.name not in _PLAIN_DRAWS:
                return None
            else:
                lead.draws.add(at)
        return lead


def _generator_key(record: Record, call: Call) -> int | str:
    """Return the generator that a call draws from: the number of a constant, or the device of a default generator."""
    for leaf in call.leaves:
        if isinstance(leaf, Constant) and isinstance(record.constants[leaf.number], torch.Generator):
            return leaf.number
    if is_state_call(call.func):
        return str(torch.device(call.args[-1]).type)
    storages = (*call.makes, *call.mutates, *call.reads)
    return str(torch.device(record.storages[storages[0]].device).type) if storages else "cpu"


@dataclass(frozen=True)
class EarlyValues:
    """Calls that compute some values of a step before it runs, in the order of the step."""

    record: Record
    # Calls, and whether they run on stand-ins, for only what they draw matters; or looks at tensors, with their number.
    steps: tuple[tuple[Any, bool], ...]
    places: tuple[tuple[int, Place], ...]  # storages that must be there before
    changed: frozenset[int]  # storages that the calls change
    questions: tuple[ValueQuestion, ...] = ()

    def sources(self, find: Source) -> dict[int, torch.Tensor] | None:
        """Return the tensors that exist before the step, None where one has no values, or may be large and change with training."""
        found = {storage: find(place) for storage, place in self.places}
        for storage, tensor in found.items():
            if not isinstance(tensor, torch.Tensor) or isinstance(tensor, FakeTensor) or tensor.requires_grad:
                return None
            if storage in self.changed and tensor.untyped_storage().nbytes() > _MOST_BYTES:
                return None
        return found

    def compute(
        self, sources: dict[int, torch.Tensor], number: Callable[[float], float] | None = None
    ) -> Generator[tuple[int, torch.Tensor]]:
        """Yield the looks with their values, one after the other; the generators move on meanwhile (see `drawing_from`).

        `number` returns what operands that stand for other numbers are. Run it to its end, or close it: until then the caller is
        apart from its modes too.
        """
        roots: dict[int, torch.Tensor] = {}

        def operand(leaf: Any) -> Any:
            if isinstance(leaf, TensorRef):
                storage = self.record.tensors[leaf.number].storage
                root = roots[storage] if storage in roots else _stand_in(self.record, storage)
                return view_of(self.record, root, leaf.number)
            if number is not None and type(leaf) is float:
                return number(leaf)
            return self.record.constants[leaf.number] if isinstance(leaf, Constant) else leaf

        with apart():
            roots |= {s: _copy(tensor) if s in self.changed else tensor for s, tensor in sources.items()}
            for what, aside in self.steps:
                if isinstance(what, tuple):
                    tensor, index = what
                    yield index, view_of(self.record, roots[self.record.tensors[tensor].storage], tensor)
                    continue
                args, kwargs = map_leaves(operand, (what.args, what.kwargs))
                result = what.func(*args, **kwargs)
                if not aside:
                    for storage, _, index in self.record.results(what):
                        roots[storage] = result if index is None else result[index]

    def ask(self, sources: dict[int, torch.Tensor]) -> Generator[tuple[ValueQuestion, Any]]:
        """Yield the questions with their answers now; when it ends or is closed, the generators are as before."""
        states = [(generator, generator.get_state()) for generator in self.generators]
        with drawing_from(states), closing(self.compute(sources)) as values:
            for index, value in values:
                yield self.questions[index], value.item() if value.numel() == 1 else largest_in(value)

    @functools.cached_property
    def generators(self) -> list[torch.Generator]:
        """The generators that the calls draw from."""
        calls = [what for what, _ in self.steps if isinstance(what, Call) and what.random]
        keys = dict.fromkeys(_generator_key(self.record, call) for call in calls)
        return [torch._C.default_generator if isinstance(key, str) else self.record.constants[key] for key in keys]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a copy of its whole memory, so that other views can be taken of it too."""
    memory = tensor.untyped_storage().clone()
    form = tensor.storage_offset(), tensor.shape, tensor.stride()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(memory, *form)


def _stand_in(record: Record, storage: int) -> torch.Tensor:
    info = record.root(storage)
    return torch.empty_strided(
        info.shape, info.stride, dtype=info.dtype, device=record.storages[storage].device
    ).zero_()


def largest_in(tensor: torch.Tensor) -> int:
    """Return the largest of some whole numbers, 0 for none.

    >>> largest_in(torch.tensor([3, 5, 2]))
    5
    """
    return max(tensor.flatten().tolist(), default=0)


@contextmanager
def apart() -> Iterator[None]:
    """Run operators as a plan does, and keep them from whoever listens."""
    with (
        _disable_current_modes(),
        torch.no_grad(),
        torch._C._DisableAutocast(),
        torch._C._AutoDispatchBelowAutograd(),
        torch._C.DisableTorchFunction(),
    ):
        yield


@contextmanager
def drawing_from(states: Sequence[tuple[torch.Generator, torch.Tensor]]) -> Iterator[None]:
    """Let generators begin in these states; put them back to where they were afterwards."""
    before = [(generator, generator.get_state()) for generator, _ in states]
    for generator, state in states:
        generator.set_state(state)
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)
