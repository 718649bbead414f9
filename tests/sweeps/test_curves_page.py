"""The page of a sweep in a real browser, and which plans get pages."""

from __future__ import annotations

import json
import re

import pytest

import pebbler as pb
from chromium import BROWSER, FLAGS, UNREADABLE, watched
from pebbler.sweeps.curves_page import chosen_for_reports, curves_page, write_page
from pebbler.sweeps.result_folder import ResultFolder
from pebbler.sweeps.sweep_table import SweepTable, load_table

sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
READY = "html[data-ready=true]"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium: apt-get install chromium")


def row(key, **more):
    figures = {
        "key": key * 16, "run": key * 16, "graph": "g", "machine": "m", "level": "L1", "capacities": "L1=1", "energy": None,
        "bound": None, "gap": None, "energy_unit": "pJ", "status": "bounded", "finished": "1", "versions": "", "pebbler": "",
        "step_seconds": None, "step_joules": None, "capacity": None, "error": None, "program_order": None,
    }  # fmt: skip
    return figures | more


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a page and gives it back with what went wrong in it."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)

        def show(path):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            errors = watched(page)
            page.goto(f"file://{path}")
            page.wait_for_selector(READY)
            return page, errors

        yield show
        browser.close()


@pytest.mark.slow
@needs_browser
def test_curves_have_a_line_per_machine_and_points_that_open_reports(opened, tmp_path):
    pb.sweep("chain:length=6", tmp_path, capacity={"fast": "3..5"}, workers=1)
    path = write_page(ResultFolder(tmp_path), reports=1)
    page, errors = opened(path)
    assert page.locator("#curves figure").count() == 1
    points = page.locator("#curves svg a")
    assert points.count() == 3
    links = [points.nth(i).get_attribute("href") or points.nth(i).get_attribute("xlink:href") for i in range(3)]
    assert sum(link.startswith("reports/") for link in links) == 1
    assert all((tmp_path / link).is_file() for link in links)
    assert page.locator("#runs tbody tr").count() == 3
    assert page.locator("#front").is_hidden()
    page.locator("#curves select").first.select_option("saving")
    page.wait_for_function("document.querySelector('#curves figure').textContent.includes('times cheaper')")
    assert page.evaluate(UNREADABLE) == []
    assert errors == []
    page, errors = opened(tmp_path / next(link for link in links if link.startswith("reports/")))
    assert errors == []


@needs_browser
def test_the_front_of_steps(opened, tmp_path):
    points = [(100, 3.0, 1.0), (200, 2.0, 1.5), (300, 2.5, 1.2), (400, 2.5, 2.0)]  # the last is beaten by the third
    rows = [
        row(
            f"a{i}",
            graph="a.py:f",
            capacity=budget,
            step_seconds=time,
            step_joules=joules,
            energy=time,
            energy_unit="ns",
        )
        for i, (budget, time, joules) in enumerate(points)
    ]
    path = tmp_path / "index.html"
    path.write_text(curves_page(SweepTable(rows), ResultFolder(tmp_path), "t"))
    page, errors = opened(path)
    assert page.locator("#front figure").count() == 2
    dots = page.locator("#front figure").first.locator("svg circle")
    fills = [dots.nth(i).get_attribute("fill") for i in range(4)]
    assert [fill != "var(--paper)" for fill in fills].count(True) == 3
    assert errors == []


@needs_browser
def test_strange_names_are_text(opened, tmp_path):
    bad = "<img src=x onerror=alert(1)>&'\"\u2028</script>"
    rows = [
        row(f"b{i}", graph=bad, machine=bad, error=bad, capacity=i + 1, energy=5.0 - i, bound=1.0) for i in range(3)
    ]
    rows += [row("cc", status="failed", error=bad)]
    path = tmp_path / "index.html"
    path.write_text(curves_page(SweepTable(rows), ResultFolder(tmp_path), bad))
    page, errors = opened(path)
    assert page.locator("img").count() == 0
    assert page.locator("#runs tbody tr").count() == 4
    assert errors == []


def test_the_page_holds_the_table_and_loads_nothing(tmp_path):
    (tmp_path / "rows").mkdir()
    folder = ResultFolder(tmp_path)
    folder.put("aa" * 16, row("aa", energy=1.0, capacity=3), b"{}")
    text = curves_page(load_table(tmp_path), folder, "t")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert data["rows"][0]["plan"] == f"plans/aa/{'aa' * 16}.json"
    assert data["rows"][0]["report"] is None
    assert not re.search(r'(src|href)="http', text)


def test_pages_go_round_the_lines():
    rows = [row(g, graph=g, energy=float(e), capacity=e) for g in "abc" for e in (1, 2)]
    assert [(one["graph"], one["energy"]) for one in chosen_for_reports(rows, 4)] == [
        ("a", 1),
        ("b", 1),
        ("c", 1),
        ("a", 2),
    ]
    assert chosen_for_reports([row("d")], 4) == []


def test_the_title_names_what_was_swept(tmp_path):
    from pebbler.sweeps.curves_page import _title
    from pebbler.sweeps.result_folder import ResultFolder
    from pebbler.sweeps.sweep_table import SweepTable

    folder = ResultFolder(tmp_path)
    row = {"graph": "mlp", "machine": "notes"}
    assert _title(SweepTable([row, row]), folder) == "Sweep: mlp on notes"
    assert _title(SweepTable([row, row | {"graph": "chain"}]), folder) == f"Sweep: {tmp_path.name}"
