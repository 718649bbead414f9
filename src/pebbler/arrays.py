"""Types of flat arrays, by what they hold."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Bools", "Floats", "Int32s", "Ints", "Shorts"]

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Int32s: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]
Shorts: TypeAlias = NDArray[np.int16]
