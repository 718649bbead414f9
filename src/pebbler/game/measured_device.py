"""A device measured by `pebbler calibrate`: the table `[device]` of a machine file."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ["CalibrationRow", "Coefficient", "DtypeRate", "MeasuredDevice"]


Rate = Annotated[float, msgspec.Meta(gt=0)]


class DtypeRate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Products of one dtype: flops per second that a large one reaches, and joules per flop beyond static power."""

    flops: Rate
    joules_per_flop: float | None = None


class Coefficient(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One fitted price, in joules per `unit`, and its standard error where it has one."""

    name: str
    unit: str
    value: float
    error: float | None = None


class CalibrationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One probe: seconds of a run, average watts and their standard error, and how far the fit is off, both as fractions."""

    name: str
    seconds: float
    watts: float | None = None
    error: float | None = None
    residual: float | None = None


class MeasuredDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The measurements of a device. Joules and watts are missing without an energy counter.

    `idle_watts` is drawn before and after, with nothing to do; `static_watts` is what the fit takes for being awake, whatever
    runs. Prices count beyond that.
    """

    name: str
    kind: str
    bandwidth: Rate  # bytes per second of memory, reads and writes together
    rates: Annotated[dict[str, DtypeRate], msgspec.Meta(min_length=1)]
    launch: float = 0.0  # seconds that a kernel takes at least
    link: Rate | None = None  # bytes per second to host memory
    idle_watts: tuple[float, float] | None = None  # before and after
    static_watts: float | None = None
    joules_per_byte: float | None = None  # of memory
    joules_per_launch: float | None = None
    joules_per_link_byte: float | None = None
    period: float | None = None  # seconds between updates of the counter
    mean_residual: float | None = None
    worst_residual: float | None = None
    notes: tuple[str, ...] = ()
    coefficient: tuple[Coefficient, ...] = ()
    row: tuple[CalibrationRow, ...] = ()
