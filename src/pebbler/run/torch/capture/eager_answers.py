"""Letting models that ask whether they are being traced take the path that they take without a plan.

Recording runs on fake tensors, and libraries ask for that: transformers' `is_tracing` then avoids branches on values and fused
attention. A plan must repeat the step as it runs by itself, so the answer is no; a branch on a value is refused where it happens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["eager_answers"]

_QUESTIONS = (("transformers.utils.import_utils", "is_fake_tensor"),)


@contextmanager
def eager_answers() -> Iterator[None]:
    """Answer no wherever a library asks whether a tensor is fake."""
    saved: list[tuple[Any, str, Any]] = []
    for module_name, name in _QUESTIONS:
        module = sys.modules.get(module_name)
        if module is not None and hasattr(module, name):
            saved.append((module, name, getattr(module, name)))
            setattr(module, name, lambda value: False)
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
