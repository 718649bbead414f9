"""Certificates say which rows made them: where rows change, their version does."""

from __future__ import annotations

import hashlib

from mutated_certificates import named_task
from pebbler.referee.certificates import VERSION
from pebbler.referee.programs.formulas import FORMULAS
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import FEW, Leaf, Near
from pebbler.referee.rows.table import rows_of
from pebbler.referee.rows.tile_range import TileRange

CASES = [
    ("mlp:n=4,hidden=8", "notes"),
    ("mlp:n=3,hidden=5,batch=2", "notes-explicit"),
    ("attention:tokens=4,width=4,heads=1", "notes"),
    ("attention:tokens=32,width=4,heads=1", "notes"),  # a row of weights fills the registers
]
DIGESTS = {4: "b12d59840eec31c8"}


def digest() -> str:
    """Return a digest of all rows of some leaves, and of the names of formulas."""
    found = hashlib.sha256(repr(sorted(FORMULAS)).encode())
    for workload, machine in CASES:
        task = named_task(workload, machine)
        for tiles in (TileRange.all_of(task.graph), TileRange.of_sizes(task.graph, {"hidden": 2, "tokens": 2})):
            family = Family(task, tiles.open, tiles.cut)
            leaves = [Leaf(family, tiles), *(Leaf(family, tiles, moment) for moment in family.moments()[:2])]
            if task.caches:
                leaves += [Leaf(family, tiles, leaves[1].moment, (Near(0, few),)) for few in FEW]
            for row in (row for leaf in leaves for row in rows_of(leaf)):
                terms = sorted((repr(counter), str(factor)) for counter, factor in row.terms.items())
                found.update(repr((row.name, row.of, terms, str(row.least), row.whole)).encode())
    return found.hexdigest()[:16]


def test_rows_that_say_something_else_have_another_version():
    changed = "rows have changed: raise VERSION in referee/certificates.py, and note the digest"
    assert DIGESTS.get(VERSION) == digest(), changed
