"""One run of a sweep, with a key that is a hash of all inputs of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from pebbler.jobs.request import current_versions

__all__ = ["SweptRun"]


@dataclass(frozen=True)
class SweptRun:
    """One run: the columns that say which it is, and the task that a worker gets."""

    columns: Mapping[str, Any]
    function: str
    task: Any  # a struct of plain data
    seconds: float | None  # the solver's time limit

    def payload(self) -> bytes:
        """Return the request for the worker."""
        return msgspec.msgpack.encode(self.task)

    @cached_property
    def run(self) -> str:
        """A hash of all that is asked, the same in every version."""
        return hashlib.sha256(self.function.encode() + b"\0" + self.payload()).hexdigest()[:32]

    @cached_property
    def key(self) -> str:
        """A hash of all that the result depends on: what is asked, and the versions that answer."""
        versions = msgspec.json.encode(current_versions(), order="sorted")
        return hashlib.sha256(self.run.encode() + versions).hexdigest()[:32]
