"""A hook of mkdocs: makes the report of the notes' step part of the site, so that readers can play with one before they install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["on_post_build"]

PAGE = "live-report.html"


def on_post_build(config: Any) -> None:
    """Plan the notes' step and write its page into the built site."""
    import pebbler as pb
    from pebbler.notes.reference_orders import marked_orders
    from pebbler.notes.reproduction import plan_quickly

    plan = plan_quickly(pb.workloads.mlp(n=20, hidden=1000), pb.machine("notes"))
    title = "One training step, before and after"
    page = Path(config["site_dir"], PAGE)
    pb.report([plan], page, names=["pebbler's plan"], title=title, references=marked_orders())
