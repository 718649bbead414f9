"""Validation of integer parameters of workloads."""

from __future__ import annotations

from pebbler.errors import InputError

__all__ = ["require_whole"]


def require_whole(workload: str, most: int, **arguments: int | None) -> None:
    """Refuse an argument that is not a whole number from 1 to `most`; None stands for "not given".

    >>> require_whole("mlp", 10, n=0)
    Traceback (most recent call last):
    pebbler.errors.InputError: workload mlp: n must be a whole number from 1 to 10, got 0
    """
    for name, value in arguments.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise InputError(f"workload {workload}: {name} must be a whole number from 1 to {most:,}, got {value!r}")
