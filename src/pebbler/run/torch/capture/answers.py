"""Answers to a recorded step that inspects a value: the value itself if it can be known in advance, otherwise a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Place, Record, TensorRef
from pebbler.run.torch.capture.early_values import (
    EarlyCalls,
    EarlyValues,
    ValueQuestion,
    apart,
    drawing_from,
    largest_in,
)
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.source_lines import running_optimizer, user_line

__all__ = ["Answers", "refusal"]

aten = torch.ops.aten


def refusal() -> str:
    """Return the reason why a step that looks at a value here cannot be planned."""
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
        """Whether a step that looks at a tensor of one element can be told what it finds."""
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
        """Refuse looks at numbers that the step changes afterwards: every step would need a plan of its own."""
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
