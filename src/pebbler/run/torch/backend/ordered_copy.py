"""Operators that run alone, whoever orders or fuses a graph.

`COPY_AFTER` copies a tensor after others have been made, so that readers of the copy run later; it may run again as often as anyone
likes. `SUM_ROWS` adds up rows in its own kernel, so that these rows can end before others are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["COPY_AFTER", "SUM_ROWS"]


def _copy(x: torch.Tensor, made: Sequence[torch.Tensor]) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _sum_rows(x: torch.Tensor) -> torch.Tensor:
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    return x.reshape(-1, x.shape[-1]).sum(0, dtype=wide)


_LIBRARY = torch.library.Library("pebbler", "FRAGMENT")
_LIBRARY.define("copy_after(Tensor x, Tensor[] made) -> Tensor")
_LIBRARY.impl("copy_after", _copy, "CompositeExplicitAutograd")
torch.library.register_fake("pebbler::copy_after", _copy, lib=_LIBRARY)
_LIBRARY.define("sum_rows(Tensor x) -> Tensor")
_LIBRARY.impl("sum_rows", _sum_rows, "CompositeExplicitAutograd")
torch.library.register_fake("pebbler::sum_rows", _sum_rows, lib=_LIBRARY)

COPY_AFTER: Any = torch.ops.pebbler.copy_after.default
SUM_ROWS: Any = torch.ops.pebbler.sum_rows.default
