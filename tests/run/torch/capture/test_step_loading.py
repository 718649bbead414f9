"""Steps are found by name, or the message says what is missing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:loads_", "has no function"),
        ("nowhere_at_all:x", "cannot be imported"),
        ("json", "expected module:function"),
    ],
)
def test_names_that_lead_nowhere(name, message):
    with pytest.raises(InputError, match=message):
        pt.load_step(name)
