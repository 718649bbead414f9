"""Report pages in a real browser: opened, watched, and asked what they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chromium import BROWSER, FLAGS, watched

READY = "html[data-ready=true]"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium: apt-get install chromium")


@contextmanager
def launched() -> Iterator[Any]:
    """Yield a browser."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="browser tests need playwright: pip install playwright"
    )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page and what went wrong in it."""

    page: Any
    errors: list[str]

    def value(self, name: str) -> Any:
        """Return what the page says of the order shown: energy or legal."""
        return self.page.locator("[data-test=live]").get_attribute(f"data-{name}")

    def select(self, index: int) -> None:
        """Go to a move, with the list of moves in focus."""
        self.page.evaluate(f"pebbler.player().goTo({index + 1})")
        self.page.locator(".moves").focus()

    def order(self) -> list[str]:
        """Return the ops of the order shown."""
        script = "() => { const p = pebbler.player(); return Array.from(p.timeline.moves.subject, (o) => p.graph.op_name[o]); }"
        return self.page.evaluate(script)


def open_report(browser: Any, file: Path, width: int, height: int, *, dark: bool = False, more: str = "") -> Opened:
    """Open a page and wait until it has drawn itself; `more` goes behind its address."""
    scheme = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")
    found = Opened(page, watched(page))
    page.goto(file.as_uri() + more)
    page.wait_for_selector(READY)
    return found
