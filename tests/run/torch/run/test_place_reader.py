"""Reading all places at once gives what reading each of them gives, whatever became of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.run.torch.run.runner import PlaceReader  # noqa: E402


def test_places_are_read_as_they_are_resolved():
    training = models.mlp(depth=2, batch=4)
    captured = pt.capture(training.step, *training.batches[0])
    state = captured.state
    entries = [place for phase in captured.phases for place in phase.entry]
    stored = [s.place for phase in captured.phases for s in phase.record.storages if s.place is not None]
    grads = [("grad", i) for i, tensor in enumerate(state.tensors) if tensor.requires_grad]
    places = sorted({*entries, *stored, *grads, ("group", 0, 0, "lr")}, key=str)
    assert {place[0] for place in places} == {"arg", "tensor", "state", "grad", "group"}
    reader = PlaceReader(state, places)

    def compare():
        read = reader.read(training.batches[0])
        assert all(a is state.resolve(place, training.batches[0]) for a, place in zip(read, places, strict=True))
        return sum(value is not None for value in read)

    before = compare()
    training.step(*training.batches[1])
    assert compare() > before  # gradients, and the optimizer's state
    training.optimizer.load_state_dict(training.optimizer.state_dict())
    training.optimizer.state[state.tensors[0]].clear()
    compare()
    training.optimizer.state.clear()
    training.optimizer.zero_grad()
    assert compare() == before
