"""An operator that copies a tensor after others have been made, so that readers of the copy run later.

It holds by operands alone, whoever orders or fuses a graph. It may run again as often as anyone likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["COPY_AFTER"]


def _copy(x: torch.Tensor, made: Sequence[torch.Tensor]) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


_LIBRARY = torch.library.Library("pebbler", "FRAGMENT")
_LIBRARY.define("copy_after(Tensor x, Tensor[] made) -> Tensor")
_LIBRARY.impl("copy_after", _copy, "CompositeExplicitAutograd")
torch.library.register_fake("pebbler::copy_after", _copy, lib=_LIBRARY)

COPY_AFTER: Any = torch.ops.pebbler.copy_after.default
