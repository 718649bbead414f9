"""Details of a captured PyTorch step for the report: the model's names, source lines, parts, kernels and the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.plan import Plan

__all__ = ["BudgetData", "BudgetPoint", "StepNames", "UnlimitedStep", "budget_of", "step_of"]

PARTS = ("forward", "backward", "optimizer")
# By the first word of a tensor's name, which says where the step finds it.
ROLES = {"arg": "batch", "state": "state", "grad": "gradient"}
_BETWEEN = " · "


class UnlimitedStep(msgspec.Struct, frozen=True):
    """The same step without a budget, op by op: bytes held while each runs, headroom aside, and what it costs."""

    held: list[int]
    cost: list[float]


class BudgetPoint(msgspec.Struct, frozen=True):
    """A plan for another budget: its peak in bytes, headroom included, and the cost of a step in the graph's unit."""

    peak: int
    cost: float


class BudgetData(msgspec.Struct, frozen=True):
    """The budget of a plan file in bytes, and the meaning of its costs."""

    device: str
    budget: int | None
    headroom: int
    objective: str
    unplanned: float
    kernels: str = "exact"
    overlap: bool = False
    launch_peak: int = 0
    unlimited: UnlimitedStep | None = None
    curve: list[BudgetPoint] = []
    held: int | None = None  # bytes that were measured


@dataclass(frozen=True)
class StepNames:
    """Per op and tensor, what people call it, and what it belongs to."""

    op_label: list[str]
    tensor_label: list[str]
    op_part: list[str]  # forward, backward or optimizer
    op_module: list[str]
    op_line: list[str]
    op_kernel: list[str]  # the operators that it runs
    op_again: list[bool]  # whether it computes again what another op has computed
    op_sent: list[int]  # bytes that it sends to the host itself
    tensor_role: list[str]  # parameter, state, gradient, batch, scratch, or "" for what the step makes


def budget_of(plan: Plan) -> BudgetData | None:
    """Return the budget of a PyTorch plan; None for others, and where the file does not say it properly."""
    try:
        return msgspec.convert(plan.meta.get("torch"), BudgetData)
    except msgspec.ValidationError:
        return None


def step_of(graph: Graph) -> StepNames | None:
    """Return the names of a captured step, None for any other graph.

    >>> from pebbler.workloads import chain
    >>> step_of(chain(3)) is None
    True
    >>> g = Graph("step", unit="byte").tensor("arg.0", 4, "param").tensor("mm_0", 4)
    >>> g = g.op("mm_0", ["arg.0"], ["mm_0"], meta={"part": "forward", "module": "head", "calls": ["mm"]})
    >>> found = step_of(g)
    >>> found.op_label, found.tensor_label, found.tensor_role
    (['head · mm_0'], ['batch 0', 'head · mm_0'], ['batch', ''])
    """
    if not any(_text(op.meta, "part") in PARTS for op in graph.ops):
        return None
    label = {tensor.name: _tensor_label(tensor) for tensor in graph.tensors}
    op_label = [_op_label(op, label) for op in graph.ops]
    for op, named in zip(graph.ops, op_label, strict=True):
        for name in op.writes:
            if label[name] == name:  # made by the step: called after its maker
                label[name] = named + name[len(op.name) :] if name.startswith(op.name) else name
    parts: list[str] = []
    for op in graph.ops:
        part = _text(op.meta, "part")
        parts.append(part if part in PARTS else parts[-1] if parts else PARTS[0])
    return StepNames(
        op_label=op_label,
        tensor_label=list(label.values()),
        op_part=parts,
        op_module=[_text(op.meta, "module") for op in graph.ops],
        op_line=[_text(op.meta, "line") or _text(op.meta, "where") for op in graph.ops],
        op_kernel=[_kernel(op) for op in graph.ops],
        op_again=[op.meta.get("again") is True for op in graph.ops],
        op_sent=[sent if isinstance(sent := op.meta.get("sent"), int) else 0 for op in graph.ops],
        tensor_role=[_role(tensor) for tensor in graph.tensors],
    )


def _text(meta: Mapping[str, Any], key: str) -> str:
    """Return an entry of a file's free-form data as text, "" where it is none."""
    found = meta.get(key)
    return found if isinstance(found, str) else ""


def _role(tensor: Tensor) -> str:
    if tensor.kind in ("param", "input"):
        return ROLES.get(tensor.name.partition(".")[0], "parameter")
    return "scratch" if tensor.name.endswith(".scratch") else ""


def _tensor_label(tensor: Tensor) -> str:
    given = _text(tensor.meta, "label")
    if given:
        return given
    first, _, rest = tensor.name.partition(".")
    return f"batch {rest}" if first == "arg" and tensor.kind == "param" else tensor.name


def _op_label(op: Op, label: Mapping[str, str]) -> str:
    """Return an op's place and name: its module, the parameter that it updates, or its line."""
    place = _text(op.meta, "module")
    if not place and _text(op.meta, "part") == "optimizer":
        place = next((label[name] for name in op.writes if label[name] != name), "")
    place = place or _text(op.meta, "line")
    return f"{place}{_BETWEEN}{op.name}" if place else op.name


def _kernel(op: Op) -> str:
    calls = op.meta.get("calls")
    names = list(dict.fromkeys(map(str, calls))) if isinstance(calls, list) else []
    return " + ".join(names[:3]) + (" + …" if len(names) > 3 else "") if names else op.name
