"""The state of random generators as operators: a step that saves, sets or seeds it does so in its plan too.

Draws keep their order, and these are ordered with them. While a step is recorded, torch's default generators are stood in for by
`RecordedGenerator`, which records what is done to them; other threads get the generators themselves. Whatever reaches a generator
by another way is refused when its method is called (`SideEffects`), or because its state is another one afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from pebbler.errors import InputError
from pebbler.run.torch.capture.one_at_a_time import replaced
from pebbler.run.torch.capture.source_lines import user_line

__all__ = [
    "RecordedGenerator", "drawn_so_far", "is_state_call", "random_state", "recorded_generators", "restore_generator",
    "save_generator", "set_random_state", "untouched_generators",
]  # fmt: skip

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


def save_generator(device: str) -> torch.Tensor:
    """Return the state of the default random generator of a device; a node of programs that draw the same numbers again."""
    return _generator(device).get_state()


def restore_generator(state: torch.Tensor, device: str) -> None:
    """Set the state of the default random generator of a device."""
    _generator(device).set_state(state)


def drawn_so_far(state: torch.Tensor) -> int:
    """Return the offset that a CUDA generator has reached; the state is its seed and that, in eight bytes each.

    >>> drawn_so_far(torch.tensor([7, 0, 0, 0, 0, 0, 0, 0, 12, 1, 0, 0, 0, 0, 0, 0], dtype=torch.uint8))
    268
    """
    return int.from_bytes(bytes(state[8:16].tolist()), "little")


def random_state(device: str) -> Sequence[torch.Tensor]:
    """Return the states of the default generators that a step on a device draws from.

    >>> len(random_state("cpu"))
    1
    """
    return [save_generator(place) for place in ("cpu", *([device] if device.startswith("cuda") else []))]


def set_random_state(states: Sequence[torch.Tensor], device: str) -> None:
    """Set the states that `random_state` returned; nothing for an empty list."""
    for state, place in zip(states, ("cpu", device), strict=False):
        restore_generator(state, place)


def _seed(seed: int, device: str) -> None:
    _generator(device).manual_seed(seed)


_library.impl("get_rng_state", save_generator, "CompositeExplicitAutograd")
_library.impl("set_rng_state", restore_generator, "CompositeExplicitAutograd")
_library.impl("manual_seed", _seed, "CompositeExplicitAutograd")


def is_state_call(func: Any) -> bool:
    """Whether a call reads or sets the state of a generator."""
    return getattr(func, "namespace", None) == "pebbler"


class StateRecorder(Protocol):
    """A recorder of calls on the state of generators."""

    def get_state(self, device: str, size: int) -> torch.Tensor:
        """Record that the state is read; return a tensor that stands for it."""
        ...

    def call_on_state(self, func: Any, *args: Any) -> None:
        """Record that the state is set."""
        ...


class RecordedGenerator:
    """Stands in for a default generator while a step is recorded; wherever the recorder is not listening, it is that generator."""

    def __init__(self, recorder: StateRecorder, device: str, listening: Callable[[], bool]) -> None:
        self._recorder, self._device, self._listening = recorder, device, listening
        self.device = torch.device(device)

    def get_state(self) -> torch.Tensor:
        """Record that the state is read."""
        if not self._listening():
            return save_generator(self._device)
        return self._recorder.get_state(self._device, _generator(self._device).get_state().numel())

    def set_state(self, state: torch.Tensor) -> None:
        """Record that the state is set."""
        if not self._listening():
            return restore_generator(state, self._device)
        self._recorder.call_on_state(torch.ops.pebbler.set_rng_state.default, state, self._device)

    def manual_seed(self, seed: int) -> RecordedGenerator | torch.Generator:
        """Record that the generator is seeded."""
        if not self._listening():
            return _generator(self._device).manual_seed(seed)
        self._recorder.call_on_state(torch.ops.pebbler.manual_seed.default, int(seed), self._device)
        return self

    def __getattr__(self, name: str) -> Any:
        if not self._listening():
            return getattr(_generator(self._device), name)
        raise InputError(f"{user_line()}: {name} of a random generator cannot be planned; seed it with manual_seed")


@contextmanager
def recorded_generators(recorder: StateRecorder, listening: Callable[[], bool]) -> Iterator[None]:
    """Let torch's functions for random state record what they do where `listening` says so."""
    cpu = RecordedGenerator(recorder, "cpu", listening)
    cuda = tuple(RecordedGenerator(recorder, f"cuda:{i}", listening) for i in range(len(torch.cuda.default_generators)))
    with (
        replaced(torch.random, "default_generator", cpu),
        replaced(torch, "default_generator", cpu),
        replaced(torch.cuda, "default_generators", cuda),
    ):
        yield


@contextmanager
def untouched_generators(others: Sequence[torch.Generator]) -> Iterator[dict[int, torch.Tensor]]:
    """Refuse a step that moves a generator itself, and put that back; yields the states, by `_cdata`.

    Another thread may draw meanwhile from the generators that all share. Those are put back only where there is no other.
    """
    shared = [torch._C.default_generator, *torch.cuda.default_generators]
    before = [(generator, generator.get_state()) for generator in (*shared, *others)]
    mine = before if threading.active_count() == 1 else before[len(shared) :]
    try:
        yield {generator._cdata: state for generator, state in before}
        for generator, state in mine:
            if not torch.equal(generator.get_state(), state):
                raise InputError(
                    "the step draws from, seeds or sets a random generator where that cannot be recorded; seed generators outside, "
                    "or use torch.manual_seed, torch.get_rng_state and torch.set_rng_state"
                )
    finally:
        for generator, state in mine:
            generator.set_state(state)
