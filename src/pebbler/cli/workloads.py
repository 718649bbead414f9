"""`pebbler workloads`: the built-in workloads."""

from __future__ import annotations

from pebbler.cli.options import Json

__all__ = ["workloads"]


def workloads(json: Json = False) -> None:
    """List the built-in workloads and how each is called.

    Example: pebbler graph deep-mlp:n=20,hidden=1000,layers=8
    """
    from pebbler.cli.output import emit_json, table
    from pebbler.workloads import catalogue

    known = catalogue()
    if json:
        emit_json({"workloads": known})
    else:
        table("", ["workload", "what it is"], list(known.items()))
