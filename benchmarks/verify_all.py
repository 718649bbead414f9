"""Verify the certificates of all plans in a folder, without searching.

Run `python -m benchmarks.verify_all DIR`. Every `*.json` in the folder, or in `plans` of a sweep's folder, is loaded as a plan.
Each gets a line with the energy that the referee finds, the bound that the file claims, the bound that its certificate proves,
the gap between the energy and that bound, leaves and bytes of the certificate, and the seconds that this took. The exit status is
1 if a certificate proves nothing, a plan is illegal or a file is no plan. A plan without a certificate is told so; its claims are
not looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pebbler.errors import PebblerError
from pebbler.game.plan import Plan
from pebbler.solver.assessment import assess

__all__ = ["Verified", "leaves", "main", "verified"]

HEADER = (
    f"{'file':<48} {'energy':>18} {'claimed':>18} {'verified':>18} {'gap %':>7} {'leaves':>7} {'bytes':>9} {'s':>6}"
)


@dataclass(frozen=True)
class Verified:
    """What became of a file: numbers where there are any, and what is wrong."""

    name: str
    energy: float | None = None
    claimed: float | None = None
    bound: float | None = None
    leaves: int = 0
    size: int = 0
    seconds: float = 0.0
    wrong: str = ""
    words: str = ""

    def __str__(self) -> str:
        gap = f"{100 * (self.energy / self.bound - 1):.1f}" if self.energy is not None and self.bound else "-"
        numbers = [f"{one:,.0f}" if one is not None else "-" for one in (self.energy, self.claimed, self.bound)]
        line = f"{self.name:<48} {numbers[0]:>18} {numbers[1]:>18} {numbers[2]:>18} {gap:>7}"
        return f"{line} {self.leaves:>7,} {self.size:>9,} {self.seconds:>6.2f}  {self.wrong or self.words}".rstrip()


def verified(path: Path) -> Verified:
    """Return what the certificate of a plan proves."""
    began = time.monotonic()
    try:
        plan = Plan.load(path)
        found = assess(plan)
    except (PebblerError, OSError) as error:
        return Verified(path.name, wrong=str(error))
    energy, claimed = found.judgement.energy, plan.bound
    if not found.judgement.legal:
        return Verified(path.name, None, claimed, wrong=f"illegal: {found.judgement.error}")
    if plan.certificate is None:
        return Verified(path.name, energy, claimed, seconds=time.monotonic() - began, words="no certificate")
    size = len(msgspec.json.encode(plan.certificate))
    bound = found.bound if found.verified else None
    wrong = "" if found.verified else "; ".join(found.void) or "the certificate proves nothing"
    return Verified(
        path.name, energy, claimed, bound, leaves(plan.certificate.get("tree")), size, time.monotonic() - began, wrong
    )


def leaves(tree: object) -> int:
    """Return how many leaves a tree has.

    >>> leaves({"axis": "i", "most": 2, "low": {"weights": []}, "high": {"weights": []}})
    2
    """
    pending, found = [tree], 0
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            found += "weights" in node
            pending += node.values()
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Verify the certificates of all plans in a folder.")
    parser.add_argument("folder", type=Path, help="where the plans are")
    folder = parser.parse_args(arguments).folder
    if not folder.is_dir():
        parser.error(f"{folder} is not a folder")
    print(HEADER)
    found = []
    plans = folder / "plans"  # of a folder of results, as sweeps and `benchmarks.gaps --folder` write it
    for path in sorted(plans.rglob("*.json") if plans.is_dir() else folder.glob("*.json")):
        found.append(verified(path))
        print(found[-1], flush=True)
    proven = sum(one.bound is not None for one in found)
    wrong = sum(bool(one.wrong) for one in found)
    size, seconds = sum(one.size for one in found), sum(one.seconds for one in found)
    print(
        f"{len(found)} files: {proven} verified, {len(found) - proven - wrong} without a certificate, {wrong} wrong; "
        f"{sum(one.leaves for one in found):,} leaves, {size:,} bytes, {seconds:.1f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
