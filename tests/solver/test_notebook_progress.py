"""Progress in notebooks: one line, shown by the kernel's display, and nothing anywhere else."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pebbler.solver import solve


class FakeHandle:
    def __init__(self, lines: list[str], content: dict[str, str]) -> None:
        self.lines = lines
        self.lines.append(content["text/plain"])

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.lines.append(content["text/plain"])


def pretend(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> list[str]:
    """Put an IPython in place that collects what is displayed."""
    lines: list[str] = []
    shell, display = ModuleType("IPython"), ModuleType("IPython.display")
    shell.get_ipython = lambda: SimpleNamespace(config=config)  # type: ignore[attr-defined]
    display.display = lambda content, *, raw, display_id: FakeHandle(lines, content)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return lines


def test_a_notebook_shows_how_far_the_search_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = pretend(monkeypatch, {"IPKernelApp": {}})
    solve("chain:length=10", start={"N0": "fast"})
    assert lines[-1] == "chain:length=10 on red-blue: 21 units, proven optimal"
    assert capsys.readouterr() == ("", "")
    lines.clear()
    solve("chain:length=10", start={"N0": "fast"}, report=lambda search: None)
    assert lines == []


def test_a_terminal_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = pretend(monkeypatch, {})
    solve("chain:length=10", start={"N0": "fast"})
    assert lines == []
