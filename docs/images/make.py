"""Make the pictures of the README and the docs: `python docs/images/make.py`. Needs Chromium and playwright, and a minute.

`docs/figures.py` draws steps.png, from the run that the figures of the README come from.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import pebbler as pb
from pebbler.notes.reference_orders import note_order
from pebbler.notes.reproduction import plan_quickly
from pebbler.show.play import play

# Without the last three Chromium looks for hosts of its own at every start.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
]
HERE = Path(__file__).parent
VIEWS = {  # picture: page, picture of the player, section, move
    "player": ("plan", "order", "player", 130),
    "tiles": ("plan", "tiles", "player", 150),
    "energy": ("plan", "order", "energy", 130),
    "memory": ("plan", "order", "memory", 130),
    "difference": ("plan", "order", "diff", 130),
    "reuse": ("plan", "order", "reuse", 130),
    "misses": ("plan", "order", "misses", 130),
    "graph": ("whole", "graph", "player", 8),
    "landscape": ("whole", "graph", "landscape", 8),
    "chain": ("chain", "order", "player", 300),
    "distances": ("grid", "order", "places", 120),
}


def main() -> None:
    """Write the pictures."""
    take_report()
    take_game()
    take_step()


def take_report() -> None:
    """Write every view of the report: pebbler's plan of the notes' step, the note's order, a chain, a product on the grid."""
    step = pb.workloads.mlp(n=20, hidden=1000)
    pages = {
        "plan": [plan_quickly(step, pb.machine("notes"))],
        "whole": [pb.Plan.in_order(pb.workloads.note_mlp(), pb.machine("notes-recency"), note_order("optimal"))],
        "chain": [pb.solve_chain(100, red=11)],
        "grid": [pb.solve("matmul:m=4,n=4,k=4", "grid", time_limit=5)],
    }
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, plans in pages.items():
            page_file = Path(folder, f"{name}.html")
            pb.report(plans, page_file, names=["pebbler's plan" if name == "plan" else name])
            page = browser.new_page(
                viewport={"width": 1180, "height": 900}, color_scheme="light", reduced_motion="reduce"
            )
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready=true]")
            page.add_style_tag(content="nav.contents { display: none; }")  # it would lie across the picture
            for picture, (shown, mode, view, move) in VIEWS.items():
                if shown == name:
                    page.locator(f"[data-mode={mode}]").click()
                    page.evaluate(f"pebbler.player().goTo({move})")
                    page.mouse.move(0, 0)  # no read-out in the picture
                    page.locator(f"section[aria-labelledby={view}]").screenshot(path=HERE / f"{picture}.png")
        browser.close()


def take_game() -> None:
    """Write play.png: a chain in the middle of the game by hand, with a hint."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder, "play.html")
        play(page_file)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": 500}, color_scheme="light", reduced_motion="reduce")
        page.goto(f"{page_file.as_uri()}#level=chain-6&moves=c0.c1.s2.c2.d1.c3.d2")
        page.wait_for_selector("html[data-ready=true]")
        page.locator(".place").nth(2).focus()
        page.wait_for_selector("[data-test=costs]:not([data-finish=''])")
        page.keyboard.press("h")
        page.screenshot(path=HERE / "play.png")
        browser.close()


def take_step() -> None:
    """Write step.png: a transformer's training step in half of its memory, with values sent to the host and computed again."""
    import torch

    import pebbler.torch as pt

    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    rule = torch.optim.AdamW(model.parameters(), foreach=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    batch = [torch.randn(16, 128, 128)]
    free = pt.plan(step, batch, device="h200", time_limit=5)
    budgets = {f"{part:.0%} of the peak": int(part * free.peak) for part in (0.55, 0.7, 0.85)}
    plans = [pt.plan(step, batch, device="h200", offload=True, budget=one, time_limit=15) for one in budgets.values()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder, "report.html")
        pb.report([*plans, free], page_file, names=[*budgets, "no limit"])
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": 1400}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready=true]")
        page.add_style_tag(content="nav.contents { display: none; }")
        page.locator("section[aria-labelledby=step]").screenshot(path=HERE / "step.png")
        browser.close()


if __name__ == "__main__":
    main()
