"""The state of random generators as operators: a step that saves, sets or seeds it does so in its plan too.

Draws keep their order, and these are ordered with them. While a step is recorded, torch's default generators are stood in for by
`RecordedGenerator`, which records what is done to them; the real ones hold a state that nothing else has, so that whatever
reaches them by another way shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.source_lines import user_line

__all__ = ["RecordedGenerator", "is_state_call", "recorded_generators", "untouched_generators"]

_library = torch.library.Library("pebbler", "DEF")
_tags = (torch.Tag.nondeterministic_seeded,)
_library.define("get_rng_state(str device) -> Tensor", tags=_tags)
_library.define("set_rng_state(Tensor state, str device) -> ()", tags=_tags)
_library.define("manual_seed(int seed, str device) -> ()", tags=_tags)


def _generator(device: str) -> torch.Generator:
    place = torch.device(device)
    if place.type != "cuda":
        return torch._C.default_generator
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if place.index is None else place.index]


def _get(device: str) -> torch.Tensor:
    return _generator(device).get_state()


def _set(state: torch.Tensor, device: str) -> None:
    _generator(device).set_state(state)


def _seed(seed: int, device: str) -> None:
    _generator(device).manual_seed(seed)


_library.impl("get_rng_state", _get, "CompositeExplicitAutograd")
_library.impl("set_rng_state", _set, "CompositeExplicitAutograd")
_library.impl("manual_seed", _seed, "CompositeExplicitAutograd")


def is_state_call(func: Any) -> bool:
    """Whether a call reads or sets the state of a generator."""
    return getattr(func, "namespace", None) == "pebbler"


class StateRecorder(Protocol):
    """What records calls on the state of generators."""

    def get_state(self, device: str, size: int) -> torch.Tensor:
        """Record that the state is read; return a tensor that stands for it."""
        ...

    def call_on_state(self, func: Any, *args: Any) -> None:
        """Record that the state is set."""
        ...


class RecordedGenerator:
    """Stands in for a default generator while a step is recorded."""

    def __init__(self, recorder: StateRecorder, device: str) -> None:
        self._recorder, self._device = recorder, device
        self.device = torch.device(device)

    def get_state(self) -> torch.Tensor:
        """Record that the state is read."""
        return self._recorder.get_state(self._device, _generator(self._device).get_state().numel())

    def set_state(self, state: torch.Tensor) -> None:
        """Record that the state is set."""
        self._recorder.call_on_state(torch.ops.pebbler.set_rng_state.default, state, self._device)

    def manual_seed(self, seed: int) -> RecordedGenerator:
        """Record that the generator is seeded."""
        self._recorder.call_on_state(torch.ops.pebbler.manual_seed.default, int(seed), self._device)
        return self

    def __getattr__(self, name: str) -> Any:
        raise InputError(f"{user_line()}: {name} of a random generator cannot be planned; seed it with manual_seed")


@contextmanager
def recorded_generators(recorder: StateRecorder) -> Iterator[None]:
    """Let torch's functions for random state record what they do."""
    random: Any = torch.random
    saved = random.default_generator, torch.default_generator, torch.cuda.default_generators
    random.default_generator = torch.default_generator = RecordedGenerator(recorder, "cpu")
    torch.cuda.default_generators = tuple(RecordedGenerator(recorder, f"cuda:{i}") for i in range(len(saved[2])))
    try:
        yield
    finally:
        random.default_generator, torch.default_generator, torch.cuda.default_generators = saved


@contextmanager
def untouched_generators(others: Sequence[torch.Generator]) -> Iterator[dict[int, torch.Tensor]]:
    """Refuse whatever reaches a generator itself; put the states back as they were in any case. Yields those, by `_cdata`."""
    generators = [torch._C.default_generator, *torch.cuda.default_generators, *others]
    saved = [generator.get_state() for generator in generators]
    for i, generator in enumerate(generators):
        generator.manual_seed(0x5EED + i)  # a step that seeds it to what it was is seen too
    marks = [generator.get_state() for generator in generators]
    try:
        yield {generator._cdata: state for generator, state in zip(generators, saved, strict=True)}
        for generator, mark in zip(generators, marks, strict=True):
            if not torch.equal(generator.get_state(), mark):
                raise InputError(
                    "the step draws from, seeds or sets a random generator where that cannot be recorded; seed generators outside, "
                    "or use torch.manual_seed, torch.get_rng_state and torch.set_rng_state"
                )
    finally:
        for generator, state in zip(generators, saved, strict=True):
            generator.set_state(state)
