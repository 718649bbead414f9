"""Best known figures of a sweep's runs. A plan that fits into less memory also fits into more, at the same cost.

The best energy known at a capacity is therefore the least energy found at any smaller or equal capacity, and the best bound is the
highest bound proven at any larger or equal capacity. Curves stay monotonic even if a time limit cut off some runs. This holds where
plans place values (explicit machines, PyTorch steps), not for caches. Comparable runs share a `family`: their bounds hold for the
same set of plans, either of the given graph or of every tiling and fusion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pebbler.sweeps.result_folder import Row

__all__ = ["with_best_known"]


def with_best_known(rows: Iterable[Row]) -> list[Row]:
    """Return rows with `best_energy`, `best_bound` and `best_key`, the run whose plan has that energy.

    >>> found = ((1, 9, 5), (2, 12, 3), (4, 7, 4))
    >>> rows = [{"key": str(c), "family": "f", "capacity": c, "energy": e, "bound": b} for c, e, b in found]
    >>> [(row["best_energy"], row["best_bound"], row["best_key"]) for row in with_best_known(rows)]
    [(9, 5, '1'), (9, 4, '1'), (7, 4, '4')]
    """
    rows = list(rows)
    families: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("family") is not None and row.get("capacity") is not None:
            families[row["family"]].append(row)
    known: dict[str, Row] = {}
    for family in families.values():
        family.sort(key=lambda row: (row["capacity"], row["key"]))
        best: Row | None = None
        for group in _same_capacity(family):
            best = min(
                (row for row in (best, *group) if row is not None and row.get("energy") is not None),
                key=lambda row: float(row["energy"]),
                default=None,
            )
            for row in group:
                known[row["key"]] = {"best_energy": best and best["energy"], "best_key": best and best["key"]}
        bound: float | None = None
        for group in reversed(_same_capacity(family)):
            bound = max(
                (value for value in (bound, *(row.get("bound") for row in group)) if value is not None), default=None
            )
            for row in group:
                known[row["key"]]["best_bound"] = bound
    alone = ({"best_energy": row.get("energy"), "best_bound": row.get("bound"), "best_key": row["key"]} for row in rows)
    return [row | known.get(row["key"], own) for row, own in zip(rows, alone, strict=True)]


def _same_capacity(family: list[Row]) -> list[list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in family:
        groups[row["capacity"]].append(row)
    return list(groups.values())
