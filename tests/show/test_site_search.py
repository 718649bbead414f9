"""The site that `make docs` builds, opened from the disk: its search finds pages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium")]


def test_search_works_without_a_server(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, cwd=ROOT, check=True)
    errors: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "site" / "index.html").as_uri())
        page.fill("input[data-md-component=search-query]", "recomputation")
        page.wait_for_selector(".md-search-result__item")
        found = page.locator(".md-search-result__item a").first.get_attribute("href")
        browser.close()
    assert found is not None
    assert "recompute.html" in found
    assert errors == []
