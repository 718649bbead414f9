"""A browser for the tests of pages, and what a page must not do: complain, load something, ask."""

from __future__ import annotations

import shutil
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Without the networking flags Chromium looks for hosts of its own at every start.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

# Text that is shown and too small to read, or whose contrast is below what WCAG AA asks: 4.5, or 3 for large text.
# In the element that a selector names, or on the whole page.
UNREADABLE = """(within) => {
  const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const rgba = (text) => { const n = text.match(/[\\d.]+/g)?.map(Number) ?? [0, 0, 0, 0]; return n.length < 4 ? [...n, 1] : n; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const known = new Map();
  const behind = (node) => {
    if (!node) return [255, 255, 255];
    if (!known.has(node)) known.set(node, over(rgba(getComputedStyle(node).backgroundColor), behind(node.parentElement)));
    return known.get(node);
  };
  const found = [];
  const walker = document.createTreeWalker(within ? document.querySelector(within) : document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || node.closest("script, style, noscript, title, :disabled, option")) continue;
    if (!node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    const style = getComputedStyle(node), inDrawing = node instanceof SVGElement;
    const box = node.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const view = node.ownerSVGElement, frame = view && view.viewBox.baseVal.width;
    const scale = frame ? view.getBoundingClientRect().width / frame : 1;
    const size = parseFloat(style.fontSize) * scale;
    if (size < 10) found.push(`${text.slice(0, 40)}: ${size.toFixed(1)} px`);
    let back = behind(inDrawing ? view : node);
    if (inDrawing) {  // what is drawn before it in its own group lies below it
      for (let at = node.previousElementSibling; at; at = at.previousElementSibling) {
        const paint = getComputedStyle(at);
        if (paint.display === "none" || !/^(circle|rect)$/.test(at.tagName) || paint.fill === "none") continue;
        if (at.getBBox().width < 20) continue;
        back = over(rgba(paint.fill), back);
        break;
      }
    }
    const ink = over(rgba(inDrawing ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5) - 0.01) found.push(`${text.slice(0, 40)}: contrast ${ratio.toFixed(2)}`);
  }
  return found;
}"""


def watched(page: Any) -> list[str]:
    """Return a list that will hold whatever goes wrong on a page: errors, warnings, dialogs, requests."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "blob:")) else wrong.append(request.url)
    )
    return wrong
