"""Without PyTorch the package says what to install."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from pebbler.errors import PebblerError  # noqa: E402


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("pebbler.torch", "pebbler.run.torch"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PebblerError, match=r"pip install 'pebbler\[torch\]'"):
        import pebbler.torch  # noqa: F401
