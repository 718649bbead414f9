"""The settings of optimizers: those that may change between steps are traced, all others must stay as they were.

Schedules change the learning rate, the momentum, the betas and the weight decay. Where such a setting is a number other than zero
it stands for any other: operators get expressions of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from pebbler.errors import InputError
from pebbler.run.torch.capture.scalars import Scalars

__all__ = ["SAMPLES", "fixed_settings", "read_setting", "traced_groups"]

# Name in expressions -> key in a parameter group, position there, and between which values it is while a step is recorded.
_TRACED: dict[str, tuple[str, int | None, float, float]] = {
    "lr": ("lr", None, 0.001, 0.002),
    "momentum": ("momentum", None, 0.7, 0.9),
    "weightdecay": ("weight_decay", None, 0.01, 0.02),
    "beta1": ("betas", 0, 0.7, 0.8),
    "beta2": ("betas", 1, 0.9, 0.95),
}
SAMPLES = {name: low for name, (_, _, low, _) in _TRACED.items()}


def _traced(group: dict[str, Any], scalars: Scalars, number: int, position: int) -> dict[str, Any]:
    """Return the entries that stand for a parameter group's numbers while a step is recorded."""
    traced: dict[str, Any] = {}
    for name, (key, part, low, high) in _TRACED.items():
        value = _part(group.get(key), part)
        if (type(value) is float and value != 0) or (name == "lr" and type(value) in (int, float)):
            made = scalars.number(f"{name}_{number}_{position}", low, high, partial(float, value))
            if part is None:
                traced[key] = made
            else:
                whole = list(traced.get(key, group[key]))
                whole[part] = made
                traced[key] = tuple(whole)
    return traced


def _part(value: Any, part: int | None) -> Any:
    if part is None:
        return value
    return value[part] if isinstance(value, tuple | list) and len(value) == 2 else None


def read_setting(name: str, optimizers: list[Optimizer]) -> float:
    """Return the value of a traced setting now."""
    kind, number, group = name.split("_")
    key, part, _, _ = _TRACED[kind]
    value = _part(optimizers[int(number)].param_groups[int(group)].get(key), part)
    if isinstance(value, torch.Tensor) or not isinstance(value, int | float):
        raise InputError(f"{key} was a number when the step was captured and is {type(value).__name__} now; plan again")
    return float(value)


def fixed_settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that must not change: those that are not traced, and the types of those that are.

    >>> fixed_settings({"params": [], "lr": 0.1, "momentum": 0.9, "nesterov": False})
    {'momentum': 'a number', 'nesterov': False, 'lr is a tensor': False}
    """
    plain = {key: value for key, value in group.items() if key not in ("params", "lr", "initial_lr")}
    fixed = {key: value for key, value in plain.items() if not isinstance(value, torch.Tensor)}
    for key, part, _, _ in _TRACED.values():
        if key in fixed:
            fixed[key] = _kinds(fixed[key]) if part is not None else _kind(fixed[key])
    # What schedulers write down for themselves.
    fixed = {key: value for key, value in fixed.items() if key not in ("initial_lr", "max_lr", "min_lr", *_SCHEDULED)}
    return fixed | {"lr is a tensor": isinstance(group["lr"], torch.Tensor)}


_SCHEDULED = ("max_momentum", "base_momentum")


def _kind(value: Any) -> Any:
    return "a number" if isinstance(value, float) and value != 0 else value


def _kinds(value: Any) -> Any:
    return tuple(map(_kind, value)) if isinstance(value, tuple | list) else value


def traced_groups(
    optimizer: Optimizer, scalars: Scalars, number: int
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Put traced numbers into an optimizer; yield each group with what was there."""
    for position, group in enumerate(optimizer.param_groups):
        traced = _traced(group, scalars, number, position)
        before = {key: group[key] for key in traced}
        group.update(traced)
        yield group, before
