"""Remembered results of operators are what torch says, and what is recorded does not depend on remembering."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.run.torch.capture import step_state  # noqa: E402
from pebbler.run.torch.capture.fake_results import FakeResults  # noqa: E402
from torch_loops import RIGHT  # noqa: E402

COUNT = logging.makeLogRecord({})  # a step that counts in anything that capture sees would be refused


class Forgetful(FakeResults):
    """Asks torch every time, and holds each answer to the one that would have been remembered."""

    def get(self, key, operands):
        return False, None

    def keep(self, key, func, operands, result):
        before = self._known.pop(key, None)
        super().keep(key, func, operands, result)
        if before is not None:
            COUNT.compared += 1
            assert self._known.get(key) == before, func


def recorded(step, *batch, **keywords):
    captured = pt.capture(step, *batch, keywords=keywords)
    return captured.fingerprint, [
        (phase.record.tensors, phase.record.storages, [vars(call) for call in phase.record.calls])
        for phase in captured.phases
    ]


def check(monkeypatch, step, *batch, **keywords):
    ours = recorded(step, *batch, **keywords)
    COUNT.compared = 0
    monkeypatch.setattr(step_state, "FakeResults", Forgetful)
    theirs = recorded(step, *batch, **keywords)
    assert ours[0] == theirs[0]
    for (tensors, storages, calls), (other_tensors, other_storages, other_calls) in zip(
        ours[1], theirs[1], strict=True
    ):
        assert (tensors, storages) == (other_tensors, other_storages)
        for call, other in zip(calls, other_calls, strict=True):
            call.pop("leaves", None), other.pop("leaves", None)
            assert repr(call) == repr(other)  # NaN is not equal to itself
    return COUNT.compared


LARGER = (models.normed, models.resnet, models.gpt2, models.lstm)


@pytest.mark.parametrize("make", [models.mlp, *(pytest.param(make, marks=pytest.mark.slow) for make in LARGER)])
def test_a_recording_is_the_same_without_remembering(monkeypatch, make):
    training = make() if make is not models.mlp else make(depth=2, batch=16)
    assert check(monkeypatch, training.step, *training.batches[0]) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_every_loop_is_recorded_the_same_without_remembering(monkeypatch, name):
    loop = RIGHT[name]()
    keywords = loop.keywords[0] if loop.keywords else {}
    check(monkeypatch, loop.step, *loop.batches[0], **keywords)


def twice(function):
    """A step that does everything twice, so that the second time may be remembered."""
    return lambda *batch: [function(*batch), function(*batch)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [torch.arange(0.0, end, 0.5) for end in (2.0, 3.0, 2.0)],
        lambda x: [x.split(2), x.unbind(1), x.chunk(3, 1), torch.std_mean(x, 0), x.max(0)],
        lambda x: [x * 2, x * 2.0, x.int() * 2, x.int() * 2.5, x * True],
        lambda x: [x.t().contiguous(), x.expand(2, 4, 6) + 1, x[1:, ::2] @ x[:, 1:4].t()[:3, :3], x.t() + x.t()],
        lambda x: [(x + x[:1]), torch.add(x.clone(), x), x.clone().add_(x.clone())],
        lambda x: [torch.linspace(0, 1, n) for n in (3, 4)] + [torch.full((2,), 1), torch.full((2,), 1.0)],
        lambda x: [torch.nn.functional.interpolate(x[None, None], scale_factor=s) for s in (2.0, 3.0, 0.5)],
        lambda x: [x.clone().t_().contiguous(), x.clone().unsqueeze_(0) + 1],
        lambda x: [x.reshape(6, 4).reshape(-1), x.t().reshape(-1), x.view(2, 12), x[2:].view(-1)],
        lambda x: [torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2)) * 1j), torch.complex(x, x).conj() * 2],
        lambda x: [torch.sort(x, dim)[1] for dim in (0, 1)] + [x[torch.tensor([0, 1])], x.topk(2)[0]],
    ],
)  # fmt: skip
def test_calls_that_look_alike_are_told_apart(monkeypatch, function):
    check(monkeypatch, twice(function), torch.randn(4, 6))


def test_the_default_dtype_is_part_of_what_results_follow_from():
    def step(x):
        made = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            made.append(torch.ones(3) * x)
        return made

    record = pt.capture(step, torch.ones(3, dtype=torch.int32)).phases[-1].record
    assert [record.tensors[ref.number].dtype for ref in record.result] == [torch.float32, torch.float64, torch.float32]


def test_operands_that_do_not_fit_are_refused_also_after_others_that_did():
    def step(x, y):
        z = x + y
        return z + torch.cat([y, y])[:3]

    with pytest.raises(InputError, match=r"test_fake_results.py:\d+: while the step was recorded"):
        pt.capture(step, torch.ones(4), torch.ones(4))
