"""What the tests of pages share: a browser for each module, and pages that must have gone without a fault when they close."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opened_pages import Opened, launched, open_report
from pebbler.game.plan import Plan
from pebbler.show.report import report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Write the report of some plans and open it; at the end nothing may have gone wrong in it."""
    opened: list[Opened] = []

    def open_page(plans: Plan | list[Plan], *, width: int = 1280, dark: bool = False, **more: Any) -> Opened:
        report(plans, tmp_path / "report.html", **more)
        opened.append(open_report(browser, tmp_path / "report.html", width, 800, dark=dark))
        return opened[-1]

    yield open_page
    for one in opened:
        one.page.close()
        assert one.errors == []
