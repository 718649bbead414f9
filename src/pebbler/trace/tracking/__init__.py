"""Numpy arrays that record which of their elements are read and written."""

from __future__ import annotations

from pebbler.trace.tracking.tracked_array import Tracked, tracked

__all__ = ["Tracked", "tracked"]
