"""PyTorch training steps, planned within a memory budget and run by the plan: `import pebbler.torch as pt`."""

from __future__ import annotations

from pebbler.run.torch import *  # noqa: F403
from pebbler.run.torch import __all__ as __all__
