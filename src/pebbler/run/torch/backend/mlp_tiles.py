"""MLPs in tiles of rows: the wide values between the widening and the narrowing layer exist for one tile at a time.

Rows of an MLP know nothing of each other, so a graph with an MLP per tile computes the same; gradients of weights are sums over
tiles. What is kept and what runs again is decided afterwards, tile by tile, as for every other value. The gradient of a bias is
added up by an operator that runs alone, tile by tile: Inductor would do it for all tiles in one kernel, and hold what that reads
until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from pebbler.run.torch.backend.graph_rows import is_cast, is_elementwise, is_layout, is_linear, shaped, undisturbed
from pebbler.run.torch.backend.node_costs import all_bytes
from pebbler.run.torch.backend.ordered_copy import SUM_ROWS

__all__ = ["TiledMLP", "find_mlps", "tile_mlps"]

_MOST_TILES = 4  # every tile is compiled for itself
_ROWS = 128  # less keeps no device busy


@dataclass(frozen=True)
class TiledMLP:
    """An MLP in a graph of Dynamo's: the rows it reads, its nodes in order up to the layer that narrows, and its sizes."""

    source: fx.Node
    nodes: tuple[fx.Node, ...]
    rows: int
    bytes: int  # of all that lies between

    @property
    def last(self) -> fx.Node:
        """The layer that narrows."""
        return self.nodes[-1]

    def tiles_within(self, room: int) -> int:
        """Return the number of tiles for which the values between the layers fit into `room`."""
        count = 1
        while count < _MOST_TILES and self.bytes > count * room and self.rows >= 2 * count * _ROWS:
            count *= 2
        return count


def find_mlps(graph: fx.Graph) -> list[TiledMLP]:
    """Return the MLPs of a graph; doubtful cases are left out."""
    found = (_recognised(node) for node in graph.nodes if _is_product(node))
    return [mlp for mlp in found if mlp is not None]


def tile_mlps(graph: fx.Graph, count: Callable[[TiledMLP], int]) -> list[str]:
    """Replace MLPs of a graph by tiles where `count` says more than one; return what was done, in words."""
    done = []
    for mlp in find_mlps(graph):
        tiles = count(mlp)
        if tiles > 1:
            done.append(f"{mlp.last.name}: an MLP of {mlp.rows:,} rows in {tiles} tiles")
            _replace(graph, mlp, tiles)
    return done


def _is_product(node: fx.Node) -> bool:
    return is_linear(node) or (node.target is torch.addmm and len(node.args) == 3 and not node.kwargs)


def _bias(product: fx.Node) -> Any:
    """Return the bias of a product, None where it has none."""
    if product.target is torch.addmm:
        return product.args[0]
    return product.args[2] if len(product.args) > 2 else product.kwargs.get("bias")


def _is_plain(product: fx.Node) -> bool:
    """Return whether a product adds nothing, or the same to every row."""
    bias = _bias(product)
    value, result = shaped(bias), shaped(product)
    return bias is None or (value is not None and result is not None and value.shape == result.shape[-1:])


def _operand(product: fx.Node) -> fx.Node | None:
    """Return the operand of a product that has the rows."""
    rows = product.args[1 if product.target is torch.addmm else 0]
    return rows if isinstance(rows, fx.Node) and shaped(rows) is not None else None


def _recognised(last: fx.Node) -> TiledMLP | None:
    wide, narrow = _operand(last), shaped(last)
    if wide is None or narrow is None or not _is_plain(last) or shaped(wide).shape[-1] <= narrow.shape[-1]:  # type: ignore[union-attr]
        return None
    inside: set[fx.Node] = {last}
    sources: set[fx.Node] = set()
    stack = [wide]
    while stack:
        node = stack.pop()
        if node in inside:
            continue
        if _is_product(node):
            operand = _operand(node)
            if operand is None or not _is_plain(node):
                return None
            sources.add(_rows_of(operand, inside))
        elif is_layout(node) or is_cast(node) or is_elementwise(node):
            stack += node.all_input_nodes
        else:
            return None
        inside.add(node)
    nodes = tuple(node for node in last.graph.nodes if node in inside)
    if len(sources) != 1 or any(user not in inside for node in nodes[:-1] for user in node.users):
        return None
    (source,) = sources
    return _sized(source, nodes)


def _rows_of(operand: fx.Node, inside: set[fx.Node]) -> fx.Node:
    """Return the tensor that an operand is a layout of, if nothing else reads that layout."""
    while is_layout(operand) and len(operand.users) == 1:
        inside.add(operand)
        operand = operand.args[0]
    return operand


def _sized(source: fx.Node, nodes: tuple[fx.Node, ...]) -> TiledMLP | None:
    given, last = shaped(source), shaped(nodes[-1])
    if given is None or last is None or given.dim() < 2 or not undisturbed(nodes[0], nodes[-1]):
        return None
    rows = given.numel() // max(1, given.shape[-1])
    between = [shaped(node) for node in nodes[:-1] if not is_layout(node)]
    if any(x is None or x.numel() != rows * x.shape[-1] for x in (*between, last)):
        return None
    size = all_bytes(between)
    return TiledMLP(source, nodes, rows, 2 * size)  # and their gradients


def _replace(graph: fx.Graph, mlp: TiledMLP, tiles: int) -> None:
    width = mlp.source.meta["example_value"].shape[-1]
    shape = mlp.last.meta["example_value"].shape
    size = -(-mlp.rows // tiles)
    with graph.inserting_before(mlp.last):
        flat = graph.call_method("reshape", (mlp.source, mlp.rows, width))
        parts = []
        for start in range(0, mlp.rows, size):
            here = {mlp.source: graph.call_method("narrow", (flat, 0, start, min(size, mlp.rows - start)))}
            for node in mlp.nodes:
                same = is_layout(node)
                here[node] = here[node.args[0]] if same else _copied(graph, node, here)
            parts.append(here[mlp.last])
        whole = graph.call_function(torch.cat, (parts,))
        new = graph.call_method("reshape", (whole, *shape))
    new.meta.update(mlp.last.meta)
    mlp.last.replace_all_uses_with(new)
    for node in reversed(mlp.nodes):
        graph.erase_node(node)


def _copied(graph: fx.Graph, node: fx.Node, here: dict[fx.Node, fx.Node]) -> fx.Node:
    """Return a node for one tile; a bias that is trained gets its gradient beside the product."""
    copied: fx.Node = graph.node_copy(node, lambda n: here.get(n, n))
    bias = _bias(node) if _is_product(node) else None
    if bias is None or not bias.meta["example_value"].requires_grad:
        return copied
    with graph.inserting_before(copied):
        copied.replace_input_with(bias, graph.call_method("detach", (bias,)))
    return graph.call_function(with_bias_gradient, (copied, bias))


def with_bias_gradient(product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return a product as it is, whose gradient is summed over its rows for the bias that was added without one."""
    result: torch.Tensor = _BiasGradient.apply(product, bias)
    return result


class _BiasGradient(torch.autograd.Function):  # type: ignore[misc]
    """The gradient of a bias of one tile."""

    @staticmethod
    def forward(ctx: Any, product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        ctx.dtype = bias.dtype
        return product.view_as(product)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Return the gradient for the product, and its sum for the bias."""
        return gradient, SUM_ROWS(gradient).to(ctx.dtype)
