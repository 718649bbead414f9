"""The page of a trace: the figures of the analysis, nothing loaded, names that cannot escape."""

from __future__ import annotations

from pathlib import Path

from pebbler import machine
from pebbler.show.cache_page import save_cache_page
from pebbler.trace import analyse


def test_the_page_has_the_figures_and_the_curve(tmp_path: Path) -> None:
    path, page = tmp_path / "t.csv", tmp_path / "page.html"
    path.write_text("address,write,tensor\n" + "".join(f"{a},r,{'<b>' if a else 'x'}\n" for a in (0, 1, 2, 0, 1, 2)))
    found = analyse(path, [2, 3], machine=machine("notes"))
    save_cache_page(found, page, "<script>", machine("notes"))
    text = page.read_text()
    assert "<script>" not in text
    assert "&lt;b&gt;" in text
    assert "<svg" in text
    assert "Energy on notes" in text
    assert ">6</td>" in text  # LRU misses with two lines
