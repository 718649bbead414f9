"""Measuring leaves a training loop alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402


def test_planning_and_compiling_leave_the_random_numbers_of_a_training_loop_alone():
    training = models.normed(depth=1)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    pt.profile(pt.capture(training.step, *training.batches[0]), repeats=1)
    assert torch.equal(torch.rand(1), wanted)


def test_attention_whose_heads_share_keys_has_a_price():
    """torch's own counter of flops gives up there; a Llama on a GPU runs it."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        query, own, shared = (torch.empty(2, heads, 64, 32, device="cuda", dtype=torch.bfloat16) for heads in (8, 8, 2))

    def attend(query, key):
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, key, 0.0, True)[0]

    few, all_heads = (pt.roofline(pt.capture(attend, query, key), "h200")[0][0] for key in (shared, own))
    assert 0 < few.joules < all_heads.joules
