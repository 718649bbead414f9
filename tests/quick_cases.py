"""Which cases of a test run with every commit: a few of each kind; `make slow` runs all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["quick_only"]


def quick_only(quick: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Return the cases for `parametrize`, those that are not among the quick ones marked slow."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]
