"""Letting models that ask whether they are being traced take the path that they take without a plan.

Recording runs on fake tensors, and libraries ask for that: transformers' `is_tracing` then avoids branches on values and fused
attention. A plan must repeat the step as it runs by itself, so the answer is no; a branch on a value is refused where it happens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pebbler.run.torch.capture.one_at_a_time import replaced

__all__ = ["eager_answers"]

_QUESTIONS = (("transformers.utils.import_utils", "is_fake_tensor"),)


@contextmanager
def eager_answers(listening: Callable[[], bool]) -> Iterator[None]:
    """Answer no wherever a library asks, while a step is recorded, whether a tensor is fake."""
    with ExitStack() as stack:
        for module_name, name in _QUESTIONS:
            module = sys.modules.get(module_name)
            if module is not None and hasattr(module, name):
                stack.enter_context(replaced(module, name, _no(getattr(module, name), listening)))
        yield


def _no(question: Callable[[Any], bool], listening: Callable[[], bool]) -> Callable[[Any], bool]:
    return lambda value: not listening() and question(value)
