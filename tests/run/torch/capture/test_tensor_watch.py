"""A watch of tensors sees every change of how they look, and says which."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from pebbler.run.torch.capture.tensor_watch import TensorWatch  # noqa: E402


def tensors():
    base = torch.ones(4, 4)
    return [torch.nn.Parameter(torch.ones(3, 2)), torch.ones(5), base, base[1:], torch.ones(1, requires_grad=True)]


def swap(tensor, new):
    tensor.data = new


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: swap(t, torch.ones(7, 2)), "shape of x"),
        (lambda t: swap(t, torch.ones(*t.shape, 3)[..., 0]), "strides of x"),
        (lambda t: swap(t, t.data.double()), "dtype of x"),
        (lambda t: t.requires_grad_(not t.requires_grad), "requires_grad of x"),
        (lambda t: t.requires_grad_().register_hook(print), "of x"),
        (lambda t: t.requires_grad_().register_post_accumulate_grad_hook(print), "of x"),
    ],
)
def test_every_change_is_named(number, change, message):
    watched = tensors()
    watch = TensorWatch(watched, [f"x{i}" for i in range(len(watched))])
    assert watch.change() is None
    change(watched[number])
    found = watch.change()
    assert found is not None
    assert message + str(number) in found[0]


@pytest.mark.parametrize("mode", [torch.no_grad, lambda: torch.autocast("cpu"), torch.inference_mode])
def test_modes_of_torch_are_no_change(mode):
    watched = tensors()
    watch = TensorWatch(watched, list("abcde"))
    for _ in range(2):
        with mode():
            assert watch.change() is None
        assert watch.change() is None
    watched[1].data = torch.ones(6)
    with mode():
        assert watch.change()[0] == "shape of b"


def test_shared_memory_is_seen_and_other_memory_of_the_same_kind_is_not():
    watched = tensors()
    watch = TensorWatch(watched, list("abcde"))
    before = list(watch.storages)
    watched[1].data = torch.zeros(5)
    assert watch.change() is None
    assert watch.storages != before
    watched[3].data = torch.ones(4, 4)[1:]
    assert watch.change() == ("which parameters and buffers share memory", "")


def test_a_second_hook_beside_one_that_was_there_is_seen():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.register_hook(print)
    watch = TensorWatch([weight], ["weight"])
    assert watch.change() is None
    weight.register_hook(print)
    assert watch.change()[0] == "hooks of weight"
