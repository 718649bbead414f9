"""The demo: one training step planned, checked and shown, with the research notes on a second page."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine, machine
from pebbler.game.plan import Plan
from pebbler.notes.experiment import Experiment
from pebbler.notes.notes_page import folded
from pebbler.notes.reference_orders import marked_orders
from pebbler.notes.reproduction import EXPERIMENTS, REPORT, SWEEPS, plan_quickly, reproduce
from pebbler.referee.judgement import Judgement, require_legal
from pebbler.run.numbers import Comparison, verify
from pebbler.show.report import report
from pebbler.workloads import mlp

__all__ = ["Demonstration", "demonstrate"]

PLAN = "plan.json"
NOTES = "notes"
_QUICK = [name for name in EXPERIMENTS if name not in SWEEPS]  # the others take minutes
_ORDER = (*_QUICK[1:], *_QUICK[:1])  # the first note waits for the plan
_TITLE = "One training step, before and after"
_WHAT_NOTES_ARE = (
    "The step is that of five short research notes on how much energy training takes; pebbler computes every figure that they "
    "published again, and corrects those that are wrong."
)


@dataclass(frozen=True)
class Demonstration:
    """The results of the demo: a plan, the referee's judgements of program order and of the plan, and the notes' figures."""

    plan: Plan
    before: Judgement
    after: Judgement
    results: Comparison
    experiments: dict[str, Experiment]
    plan_file: Path
    page: Path

    @property
    def times_less(self) -> float:
        """The energy of program order divided by that of the plan."""
        return self.before.energy / self.after.energy


def demonstrate(out: str | Path, progress: Callable[[str, float], None] | None = None) -> Demonstration:
    """Plan the notes' training step and write the plan and a page that plays it, program order beside it.

    The notes' figures stand at the end of the page, folded, and in the folder `notes`. Only the one step is solved, so that
    it takes seconds; `reproduce` also answers the notes' questions that need more solving. `progress` is told what begins
    and the fraction done so far.
    """

    def tell(what: str, done: float) -> None:
        if progress is not None:
            progress(what, done)

    folder = Path(out)
    step, caches = mlp(n=20, hidden=1000), machine("notes")
    # On a new machine both sides compile kernels first, which is most of the time, so a second process plans meanwhile.
    planned = _plan_meanwhile(step, caches)

    def known(graph: Graph, levels: Machine) -> Plan | None:
        return planned() if graph.name == step.name and levels == caches else None

    found = reproduce(_ORDER, folder / NOTES, lambda name, done: tell(f"planning; the notes: {name}", done), known)
    plan = planned()
    plan.save(folder / PLAN)
    before = require_legal(Plan.in_order(step, caches, steady=plan.steady))
    tell("the page", 1.0)
    page = folder / REPORT
    report(
        [plan],
        page,
        names=["pebbler's plan"],
        title=_TITLE,
        references=marked_orders(),
        appendix=folded([found[name] for name in _QUICK], _WHAT_NOTES_ARE, f"{NOTES}/{REPORT}"),
    )
    return Demonstration(plan, before, require_legal(plan), verify(plan), found, folder / PLAN, page)


def _plan_meanwhile(step: Graph, caches: Machine) -> Callable[[], Plan]:
    """Plan in a process of its own; return what waits for the plan. (A pool would leave semaphores behind when Ctrl-C ends us.)"""
    context = get_context("spawn")
    answer, its_end = context.Pipe(duplex=False)
    context.Process(target=_plan_and_send, args=(its_end, step, caches), daemon=True).start()
    its_end.close()

    @cache
    def planned() -> Plan:
        try:
            plan: Plan = answer.recv()
        except EOFError:  # it was killed
            plan = plan_quickly(step, caches)
        return plan

    return planned


def _plan_and_send(answer: Connection, step: Graph, caches: Machine) -> None:
    _end_with_the_parent()
    answer.send(plan_quickly(step, caches))


def _end_with_the_parent() -> None:
    """Ignore Ctrl-C, which a terminal sends to both, and end when the parent has ended, however that was."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
