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

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves
from pebbler.run.torch.capture.random_state import is_state_call
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.source_lines import running_optimizer, user_line
from pebbler.run.torch.capture.views import view_of

__all__ = ["Answers", "EarlyCalls", "EarlyValues", "ValueQuestion", "apart", "refusal"]

aten = torch.ops.aten

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


# Answers to a recorded step that inspects a value: the value itself if it can be known in advance, otherwise a refusal ------


def refusal() -> str:
    """Return the reason why a step that reads a value here cannot be planned."""
    optimizer = running_optimizer()
    advice = "return the tensor and look at it outside"
    if optimizer is not None:
        advice = f"{optimizer} does that, so train without a plan, or with an optimizer that does not (AdamW, Adafactor of torch)"
    return (
        f"{user_line()}: the step looks at the value of a tensor (item, bool, a branch on data) that is not known before the step "
        f"runs: a plan needs the same operators in every step; {advice}"
    )


class Answers:
    """Answers the questions of one recording, and remembers them: they are asked again before every step."""

    def __init__(
        self,
        record: Record,
        scalars: Scalars,
        find: Callable[[Place], Any],
        drawn: dict[int, torch.Tensor],
    ) -> None:
        """`find` returns what exists before the step, `drawn` holds the states, by `_cdata`, in which generators begin it."""
        self.record, self.scalars, self.find, self.drawn = record, scalars, find, drawn
        self._calls = EarlyCalls(record, self.scalars.is_traced)
        self._named: set[str] = set()
        self._noting = True

    def value(self, number: int, position: int | None = None) -> tuple[torch.Tensor, EarlyValues] | None:
        """Return a tensor as it will be after so many calls, and the values it follows from; None if it cannot be known."""
        early = self._calls.values([(len(self.record.calls) if position is None else position, number)])
        sources = None if early is None else early.sources(self.find)
        if early is None or sources is None:
            return None
        with apart(), drawing_from([(g, self.drawn.get(g._cdata, g.get_state())) for g in early.generators]):
            ((_, value),) = early.compute(sources)
            return value.clone(), early

    def guess(self, number: int) -> torch.Tensor | None:
        """Return a tensor as it will be after the step, None where that cannot be known; numbers are taken as they are now."""
        early = self._calls.values([(len(self.record.calls), number)], traced=True)
        sources = None if early is None else early.sources(self.find)
        if early is None or sources is None or early.generators:
            return None
        self._noting = False
        try:
            ((_, value),) = early.compute(sources, self.scalars.actual)
        except InputError:
            return None  # it follows from a number that is not known
        finally:
            self._noting = True
        with apart():
            return value.clone()

    def is_known(self, number: int, dtype: torch.dtype) -> bool:
        """Whether the value of a tensor of one element is known when a step reads it."""
        return _certain_answer(self.record, number) is not None or self._known(number, dtype) is not None

    def _known(self, number: int, dtype: torch.dtype) -> tuple[torch.Tensor, EarlyValues] | None:
        known = self.value(number) if not dtype.is_complex else None
        if known is None or dtype == torch.bool:
            return known
        # Numbers from arguments and draws are lengths and the like, and counters count: others in every batch.
        early = known[1]
        changing = early.changed & {storage for storage, _ in early.places}
        return None if changing or early.generators or any(place[0] == "arg" for _, place in early.places) else known

    def look(self, number: int, dtype: torch.dtype) -> Any:
        """Return the number that the step finds in a tensor of one element."""
        certain = _certain_answer(self.record, number)
        if certain is not None:
            return certain
        known = self._known(number, dtype)
        if known is None:
            raise InputError(refusal())
        value, early = known
        with apart():
            answer = value.item()
        if early.places or early.generators:  # from constants alone it is always the same
            self.record.questions.append(ValueQuestion(len(self.record.calls), number, user_line(), answer))
        return answer

    def longest(self, number: int) -> int:
        """Return the largest number in a tensor, which a shape follows from; another one needs another plan."""
        known = self.value(number)
        if known is None:
            raise InputError(
                f"{user_line()}: shapes follow from lengths that are not known before the step runs; pass them as an argument"
            )
        with apart():
            answer = largest_in(known[0])
        self.record.questions.append(ValueQuestion(len(self.record.calls), number, user_line(), answer))
        return answer

    def number(self, name: str, number: int, position: int, *, optimizer: bool = True) -> float:
        """Return a number that the step has read from a tensor after so many calls, and now branches on."""
        known = self.value(number, position)
        if known is None and not optimizer:
            raise InputError(refusal())
        if known is None:
            raise InputError(
                f"{user_line()}: the optimizer branches on a number that it reads from a tensor and that is not known before the "
                "step runs, such as a norm; train without a plan, or with another optimizer"
            )
        if self._noting and name not in self._named:
            self._named.add(name)
            self.record.questions.append(ValueQuestion(position, number, user_line(), None, name))
        with apart():
            return float(known[0].item())

    def finish(self) -> None:
        """Assemble the program that answers all questions before a step."""
        questions = self.record.questions
        if not questions:
            return
        self._refuse_counters()
        self.record.early = self._calls.values([(q.position, q.number) for q in questions], questions)
        if self.record.early is None:
            raise InputError(
                f"{questions[0].where}: the step branches on a value that depends on whether a GradScaler leaves the optimizer "
                "out; train without the scaler, or without a plan"
            )

    def _refuse_counters(self) -> None:
        """Refuse reads of numbers that the step changes afterwards: every step would need a separate plan."""
        changed = {s for call in self.record.calls for s in (*call.mutates, *call.statistics)}
        for question in self.record.questions:
            if question.name is not None or isinstance(question.answer, bool):
                continue
            early = self._calls.values([(question.position, question.number)])
            if early is not None and changed & {storage for storage, _ in early.places}:
                raise InputError(
                    f"{question.where}: the step looks at the value of a tensor that it changes later; use the tensor itself, or "
                    "keep the number outside of the step and pass it as a tensor"
                )


def _certain_answer(record: Record, number: int) -> bool | None:
    """Return the answer to `torch.rand([]) < p` where it is always the same: nothing in [0, 1) is below 0, everything below 1.

    Models that leave layers out at random ask so even where no layer is to be left out.
    """
    storage = record.tensors[number].storage
    maker = next((call for call in record.calls if storage in call.makes), None)
    if maker is None or maker.func not in (aten.lt.Scalar, aten.ge.Scalar) or not isinstance(maker.args[0], TensorRef):
        return None
    drawn = record.tensors[maker.args[0].number].storage
    draw = next((call for call in record.calls if drawn in call.makes), None)
    changed = any({drawn, storage} & set(call.mutates) for call in record.calls)
    if draw is None or draw.func is not aten.rand.default or changed:
        return None
    bound = maker.args[1]
    if not isinstance(bound, int | float) or 0 < bound < 1:
        return None
    below = bound >= 1
    return below if maker.func is aten.lt.Scalar else not below
