"""The site that `make docs` builds, opened from the disk: its search finds pages, and its text can be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chromium import BROWSER, FLAGS, UNREADABLE

ROOT = Path(__file__).parents[2]
sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the site."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


def test_search_works_without_a_server(site, browser):
    errors: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.fill("input[data-md-component=search-query]", "recomputation")
    page.wait_for_selector(".md-search-result__item")
    found = page.locator(".md-search-result__item a").first.get_attribute("href")
    assert found is not None
    assert "recompute.html" in found
    assert errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_code_have_contrast(site, browser, scheme):
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    hard = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        hard[path.name] = page.evaluate(UNREADABLE, "body")
    assert len(hard) > 40
    page.goto((site / "index.html").as_uri())
    assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    assert {name: found for name, found in hard.items() if found} == {}
