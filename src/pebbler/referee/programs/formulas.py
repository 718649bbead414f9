"""The formulas and programs that a certificate of a graph as it is may name, and what it then proves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from pebbler.game.energy_scale import EnergyScale
from pebbler.game.sums import Sums
from pebbler.referee.certificates import NotProven, short
from pebbler.referee.programs.cuts import prove_cut
from pebbler.referee.programs.milestone_program import prove_milestones
from pebbler.referee.programs.moments import prove_moments
from pebbler.referee.programs.order_floors import prove_last_touches
from pebbler.referee.programs.pages import prove_pages
from pebbler.referee.programs.passes import prove_passes
from pebbler.referee.programs.product_reads import prove_products
from pebbler.referee.programs.stay_program import prove_stays
from pebbler.referee.rows.task import Task

__all__ = ["FORMULAS", "prove"]

FORMULAS: Mapping[str, Callable[[Task, Mapping[str, Any], float], Fraction]] = {
    "cut": prove_cut,
    "last touches": prove_last_touches,
    "milestones": prove_milestones,
    "moments": prove_moments,
    "pages": prove_pages,
    "passes": prove_passes,
    "products": prove_products,
    "stays": prove_stays,
}
ANY_SUMS = ("moments", "products")  # what holds in any order of the terms of sums, but for what is alive at a moment


def prove(task: Task, certificate: Mapping[str, Any], ends: float) -> float:
    """Return the bound that a certificate with a formula proves for the graph as it is; `ends` is on the monotonic clock.

    What `covers` sums holds in any order of their terms as well.

    Where all prices and costs are whole, or whole quarters, it is rounded up to the next such number.
    """
    name = certificate.get("formula")
    if not isinstance(name, str) or name not in FORMULAS:
        raise NotProven(f"there is no formula {short(name)}")
    covers = certificate.get("covers")
    if covers == "sums" and Sums.of(task.graph) is not None:
        if name not in ANY_SUMS or certificate.get("moments"):
            raise NotProven(f"the formula {name} knows nothing of sums whose terms come in another order")
    elif covers != "graph":
        raise NotProven(f"it covers {short(covers)}; a formula is for the graph as it is")
    least = max(FORMULAS[name](task, certificate, ends), Fraction())
    quantum = EnergyScale.of(task.graph, task.machine).quantum
    if quantum:
        return float(math.ceil(least / Fraction(quantum)) * Fraction(quantum))
    return math.nextafter(float(least), 0.0) if least else 0.0
