"""Results are written over dead operands."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")


import pebbler.torch as pt  # noqa: E402


def test_dead_operands_of_the_backward_pass_are_written_over():
    weight = torch.randn(64, 1000, requires_grad=True)

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(x @ weight, y)
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
        weight.grad = None
        return loss

    captured = pt.capture(step, torch.randn(32, 64), torch.zeros(32, dtype=torch.long))
    calls = {str(call.func) for group in captured.phases[-1].groups for call in group.calls}
    assert {"aten._log_softmax.out", "aten._log_softmax_backward_data.out"} <= calls
    logits = 32 * 1000 * 4
    state = (64 * 1000 + 32 * 64) * 4 + 32 * 8
    assert pt.plan_captured(captured, pt.roofline(captured, "cpu")).peak < state + 2.1 * logits + 64 * 1000 * 4
