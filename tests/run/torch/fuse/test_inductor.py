"""Views of a storage, in operators that a compiler sees through."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from pebbler.run.torch.capture.calls import TensorInfo  # noqa: E402
from pebbler.run.torch.fuse.inductor import view  # noqa: E402


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_views_are_found_in_view_operators(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    base = (
        torch.arange(float(torch.Size(sizes).numel()))
        .reshape(sizes)
        .permute(data.draw(st.permutations(range(len(sizes)))))
    )
    other = base
    for _ in range(data.draw(st.integers(0, 3))):
        match data.draw(st.sampled_from(["flat", "permute", "expand", "slice"])):
            case "flat" if other.is_contiguous():
                other = other.view(-1)
            case "permute":
                other = other.permute(data.draw(st.permutations(range(other.dim()))))
            case "expand":
                other = other.unsqueeze(0).expand(2, *other.shape)
            case "slice" if other.shape[0] > 1:
                other = other[1:]

    def info(tensor):
        return TensorInfo(0, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype)

    graph = torch.fx.Graph()
    graph.output(view(graph, graph.placeholder("root"), info(base), info(other)))
    found = torch.fx.GraphModule(torch.nn.Module(), graph)(base)
    assert torch.equal(found, other)
    assert found.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
