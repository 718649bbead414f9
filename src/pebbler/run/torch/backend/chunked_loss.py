"""A linear layer and the cross entropy of its results, computed in chunks of rows: only one chunk of logits exists at a time.

The loss is a sum over rows, so its gradients are sums over chunks; they are computed with the chunk's own forward, while its
logits are there, and multiplied by the loss's gradient in backward (Liger's kernels do the same by hand). Nothing runs twice, and
results differ by the order of additions alone; sums over chunks of bfloat16 gradients are kept in float32. A chunk begins when
the one before it has ended, whoever orders or fuses the graph: its rows are copied by an operator that asks for those results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from pebbler.run.torch.backend.graph_rows import is_cast, is_elementwise, is_layout, is_linear, shaped, undisturbed
from pebbler.run.torch.backend.node_costs import all_bytes
from pebbler.run.torch.backend.ordered_copy import COPY_AFTER

__all__ = ["ChunkedLoss", "chunk_losses", "cut_off_losses", "find_losses"]

_ARGUMENTS = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
_ROWS = 128  # less keeps no device busy


@dataclass(frozen=True)
class ChunkedLoss:
    """A loss in a graph of Dynamo's that can be computed in chunks: its nodes from the linear layer on, and its sizes."""

    linear: fx.Node
    between: tuple[fx.Node, ...]  # what happens to the logits before the loss, in order
    loss: fx.Node
    rows: int
    classes: int
    bytes: int  # of all logits and their gradients
    beside: int  # bytes that are there with a chunk: the layer's weight again as its gradient, or its operand and its gradient

    def chunks_within(self, room: int) -> int:
        """Return the number of chunks whose logits fit into `room`; none need be smaller than what is there with them."""
        count = 1
        while self.bytes > count * max(room, self.beside) and self.rows >= 2 * count * _ROWS:
            count *= 2
        return count


def find_losses(graph: fx.Graph) -> list[ChunkedLoss]:
    """Return the losses of a graph that chunks can compute; doubtful cases are left out."""
    found = (_recognised(node) for node in graph.nodes if node.op == "call_function" and _is_loss(node))
    return [loss for loss in found if loss is not None]


def chunk_losses(graph: fx.Graph, count: Callable[[ChunkedLoss], int]) -> list[str]:
    """Replace losses of a graph by chunked ones where `count` says more than one chunk; return what was done, in words.

    >>> def f(x, weight, target):
    ...     return functional.cross_entropy(functional.linear(x, weight), target)
    >>> chunk_losses(fx.symbolic_trace(f, concrete_args=None).graph, lambda loss: 4)  # without shapes nothing is sure
    []
    """
    done = []
    for loss in find_losses(graph):
        chunks = count(loss)
        if chunks > 1:
            _replace(graph, loss, chunks)
            done.append(f"{loss.loss.name}: {loss.rows:,} rows of {loss.classes:,} logits in {chunks} chunks")
    return done


def cut_off_losses(graph: fx.Graph, room: int) -> list[str]:
    """Return losses that would be computed in chunks if their logits did not come from another graph, in words."""
    told = []
    for loss in graph.nodes:
        node: Any = _arguments(loss).get("input") if loss.op == "call_function" and _is_loss(loss) else None
        while _acts_on_rows(node):
            node = node.args[0]
        logits = shaped(node) if isinstance(node, fx.Node) and node.op == "placeholder" else None
        if logits is not None and logits.numel() >= 2 * _ROWS * logits.shape[-1] and 2 * all_bytes([logits]) > room:
            told.append(
                f"{loss.name}: its logits, {logits.numel() // logits.shape[-1]:,} rows of {logits.shape[-1]:,}, come from another "
                "graph and are held whole; TORCH_LOGS=graph_breaks says what lies between it and their layer"
            )
    return told


def _is_loss(node: fx.Node) -> bool:
    return node.target is functional.cross_entropy


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a loss by name."""
    return dict(zip(_ARGUMENTS, node.args, strict=False)) | dict(node.kwargs)


def _recognised(loss: fx.Node) -> ChunkedLoss | None:
    told = _arguments(loss)
    logits, target = shaped(told.get("input")), shaped(told.get("target"))
    plain = told.get("weight") is None and told.get("size_average") is None and told.get("reduce") is None
    if logits is None or target is None or not plain or told.get("reduction", "mean") not in ("mean", "sum"):
        return None
    if logits.dim() != 2 or target.dim() != 1 or target.dtype != torch.int64 or logits.shape[0] < 2:
        return None
    between: list[fx.Node] = []
    node = told["input"]
    while not is_linear(node):
        if not _acts_on_rows(node):
            return None
        between.append(node)
        node = node.args[0]
    values = [shaped(n) for n in (node, *between, *node.args[:2])]
    # Small gradients need the loss's scale in float16, and it comes in backward.
    if any(x is None or x.dtype == torch.float16 for x in values) or logits.shape[1] != values[0].shape[-1]:  # type: ignore[union-attr]
        return None
    readers = [user for user in node.users if not (user.op == "call_method" and user.target == "detach")]
    if len(readers) != 1 or any(len(n.users) != 1 for n in between) or not undisturbed(node, loss):
        return None  # somebody else needs the logits' gradient
    size, beside = 2 * all_bytes(values[:1]), max(all_bytes(values[-1:]), 2 * all_bytes(values[-2:-1]))
    return ChunkedLoss(node, tuple(reversed(between)), loss, logits.shape[0], logits.shape[1], size, beside)


def _acts_on_rows(node: Any) -> bool:
    """Return whether every row of a node's result comes from one row of its operand, whatever the rows are."""
    if not isinstance(node, fx.Node) or not node.args or node.all_input_nodes != [node.args[0]]:
        return False
    before = shaped(node.args[0])
    if before is None or is_cast(node) or is_layout(node) or is_elementwise(node):
        return before is not None
    return node.target is operator.getitem and shaped(node) is not None and _keeps_last(node.args[1], before.dim())


def _keeps_last(index: Any, dims: int) -> bool:
    """Return whether an index takes slices of rows only."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is Ellipsis or isinstance(part, slice) for part in parts):
        return False
    return (Ellipsis not in parts and len(parts) < dims) or parts[-1] in (Ellipsis, slice(None, None, None))


def _replace(graph: fx.Graph, found: ChunkedLoss, chunks: int) -> None:
    """Put a chunked loss in a loss's place; rows of the layer's operand are brought into the order of the logits' rows."""
    told = _arguments(found.loss)
    operand, weight = found.linear.args[:2]
    bias = found.linear.args[2] if len(found.linear.args) > 2 else found.linear.kwargs.get("bias")
    width = operand.meta["example_value"].shape[-1]
    spec = _Spec(
        chunks,
        tuple(
            _elementwise(node) for node in found.between if not is_layout(node) and node.target is not operator.getitem
        ),
        int(told.get("ignore_index", -100)),
        float(told.get("label_smoothing", 0.0)),
        told.get("reduction", "mean") == "mean",
    )
    with graph.inserting_before(found.loss):
        rows = operand
        for node in found.between:
            if node.target is operator.getitem:
                rows = graph.call_function(operator.getitem, (rows, node.args[1]))
            elif is_layout(node):
                rows = graph.call_method("reshape", (rows, *node.meta["example_value"].shape[:-1], width))
        new = graph.call_function(_call_of(spec), (rows, weight, bias, told["target"]))
    new.meta.update(found.loss.meta)
    found.loss.replace_all_uses_with(new)
    for node in (found.loss, *reversed(found.between), *([] if len(found.linear.users) > 1 else [found.linear])):
        graph.erase_node(node)


def _elementwise(node: fx.Node) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a node as a function of its operand, which may stand in several places."""
    op, target, given, logits = node.op, node.target, (node.args, dict(node.kwargs)), node.args[0]

    def run(x: torch.Tensor) -> torch.Tensor:
        args, kwargs = fx.map_arg(given, lambda n: x if n is logits else n)
        result: torch.Tensor = (
            getattr(x, str(target))(*args[1:], **kwargs) if op == "call_method" else target(*args, **kwargs)
        )
        return result

    return run


@dataclass(frozen=True)
class _Spec:
    """The operations of a chunked loss on its logits, and the reduction that adds them up."""

    chunks: int
    steps: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    ignore_index: int
    label_smoothing: float
    mean: bool

    def loss(self, operands: Sequence[Any], target: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of some rows."""
        logits = functional.linear(*operands)
        for step in self.steps:
            logits = step(logits)
        smoothing = self.label_smoothing
        return functional.cross_entropy(
            logits, target, ignore_index=self.ignore_index, reduction="sum", label_smoothing=smoothing
        )


def _call_of(spec: _Spec) -> Callable[..., Any]:
    """Return a function for a graph to call; AOTAutograd traces through it."""

    def chunked_cross_entropy(rows: torch.Tensor, weight: torch.Tensor, bias: Any, target: torch.Tensor) -> Any:
        return _ChunkedFunction.apply(rows, weight, bias, target, spec)

    return chunked_cross_entropy


class _ChunkedFunction(torch.autograd.Function):  # type: ignore[misc]
    """The loss in chunks, with its gradients computed in forward."""

    @staticmethod
    def forward(ctx: Any, rows: Any, weight: Any, bias: Any, target: Any, spec: _Spec) -> Any:
        """Return the loss, and keep the gradients."""
        given = (rows, weight, bias)
        wanted = [i for i, need in enumerate(ctx.needs_input_grad[:3]) if need]
        share = (target != spec.ignore_index).sum() if spec.mean else None
        total: Any = 0
        of_rows, of_weight, of_bias = [], None, []
        size = -(-rows.shape[0] // spec.chunks)
        ended: list[torch.Tensor] = []
        for start in range(0, rows.shape[0], size):
            chunk = slice(start, start + size)
            mine = COPY_AFTER(rows[chunk], ended) if ended else rows[chunk]
            loss, found = _chunk(spec, (mine, weight, bias), target[chunk], share, wanted)
            total = total + loss
            if 0 in found:
                of_rows.append(found[0])
            if 1 in found:
                new = _wide(found[1])
                of_weight = new if of_weight is None else of_weight + new
            if 2 in found:
                of_bias.append(_wide(found[2])[None])
            ended = [loss, *of_rows[-1:], *of_bias[-1:], *([] if of_weight is None else [of_weight])]
        # Added one by one, the sums of all chunks would become one kernel, and all logits be held for it.
        gradients = (torch.cat(of_rows) if of_rows else None, of_weight, torch.cat(of_bias).sum(0) if of_bias else None)
        ctx.save_for_backward(*(g if g is None else g.to(x.dtype) for g, x in zip(gradients, given, strict=True)))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the gradients for that of the loss."""
        found: Sequence[Any] = ctx.saved_tensors
        return *(None if g is None else g * gradient.to(g.dtype) for g in found), None, None


def _chunk(
    spec: _Spec, given: Sequence[Any], target: torch.Tensor, share: torch.Tensor | None, wanted: Sequence[int]
) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """Return the loss of a chunk, and its gradients by operand."""
    operands = [x if x is None else x.detach().requires_grad_(i in wanted) for i, x in enumerate(given)]
    with torch.enable_grad():
        loss = spec.loss(operands, target)
        loss = loss if share is None else loss / share
    if not wanted:
        return loss.detach(), {}
    with torch.autocast(target.device.type, enabled=False):  # as in any backward
        found = torch.autograd.grad(loss, [operands[i] for i in wanted])
    return loss.detach(), dict(zip(wanted, found, strict=True))


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x
