"""Training graphs for the recomputation game, made up in the shapes of real ones.

A forward network is a list of nodes (inputs, size, cost). `training` adds its backward pass the way Checkmate's graphs have it: the
gradient of a node reads its own activation and, for every consumer, the consumer's activation and gradient.
"""

from __future__ import annotations

import math
import random
from itertools import pairwise

from pebbler.game.graph import Graph

__all__ = ["Node", "layered", "resnet", "training", "unet", "wide_layered"]

Node = tuple[list[int], int, int]


def training(name: str, nodes: list[Node]) -> Graph:
    """Return the forward and backward pass of a network as a graph.

    >>> [op.reads for op in training("two", [([], 4, 1), ([0], 4, 1)]).ops]
    [(), ('a0',), ('a1',), ('a0', 'a1', 'g1')]
    """
    graph = Graph(name, unit="byte")
    consumers: list[list[int]] = [[] for _ in nodes]
    for i, (inputs, size, cost) in enumerate(nodes):
        graph.tensor(f"a{i}", size)
        graph.op(f"f{i}", [f"a{j}" for j in inputs], [f"a{i}"], cost)
        for j in inputs:
            consumers[j].append(i)
    for i in range(len(nodes) - 1, -1, -1):
        _, size, cost = nodes[i]
        graph.tensor(f"g{i}", size)
        reads = [f"a{i}"] + [f"a{j}" for j in consumers[i]] + [f"g{j}" for j in consumers[i]]
        graph.op(f"b{i}", reads, [f"g{i}"], 2 * cost)
    return graph


def resnet(blocks: tuple[int, ...] = (3, 4, 6, 3), batch: int = 32) -> Graph:
    """Return a residual network with bottleneck blocks; the default has ResNet-50's blocks (352 ops)."""
    nodes: list[Node] = [([], 64 * 112 * 112 * batch, 118 * batch), ([0], 64 * 56 * 56 * batch, 2 * batch)]
    width, side = 64, 56
    for stage, count in enumerate(blocks):
        for block in range(count):
            entry = len(nodes) - 1
            if stage and not block:
                width, side = 2 * width, max(side // 2, 1)
            here = entry
            for kernel, channels in ((1, width), (3, width), (1, 4 * width)):
                units = channels * side * side * batch
                nodes.append(([here], units, max(1, units * kernel * kernel * width // 2**20)))  # convolution
                nodes.append(([len(nodes) - 1], units, max(1, units // 2**14)))  # normalisation
                if channels == width:
                    nodes.append(([len(nodes) - 1], units, max(1, units // 2**15)))  # activation
                here = len(nodes) - 1
            skip = entry
            units = 4 * width * side * side * batch
            if not block:
                nodes.append(([entry], units, max(1, units * width // 2**19)))
                skip = len(nodes) - 1
            nodes.append(([here, skip], units, max(1, units // 2**15)))
            nodes.append(([len(nodes) - 1], units, max(1, units // 2**15)))
    nodes.append(([len(nodes) - 1], 4 * width * batch, batch))
    nodes.append(([len(nodes) - 1], 1000 * batch, 2 * batch))
    return training(f"resnet-{'-'.join(map(str, blocks))}", nodes)


def unet(depth: int = 4, side: int = 256, channels: int = 32) -> Graph:
    """Return a U-Net: a way down, a way up, and skips across."""
    nodes: list[Node] = [([], 3 * side * side, 1)]
    skips = []
    for _ in range(depth):
        for _ in range(2):
            units = channels * side * side
            nodes.append(([len(nodes) - 1], units, units * channels // 2**14))
            nodes.append(([len(nodes) - 1], units, max(1, units // 2**14)))
        skips.append(len(nodes) - 1)
        side //= 2
        nodes.append(([len(nodes) - 1], channels * side * side, max(1, channels * side * side // 2**14)))
        channels *= 2
    for level in range(depth - 1, -1, -1):
        side, channels = side * 2, channels // 2
        nodes.append(([len(nodes) - 1], channels * side * side, channels * side * side * channels // 2**15))
        nodes.append(([len(nodes) - 1, skips[level]], 2 * channels * side * side, 1))
        for _ in range(2):
            units = channels * side * side
            nodes.append(([len(nodes) - 1], units, units * channels // 2**14))
            nodes.append(([len(nodes) - 1], units, max(1, units // 2**14)))
    nodes.append(([len(nodes) - 1], side * side, 1))
    return training(f"unet-{depth}", nodes)


def layered(ops: int, seed: int = 0, *, backward: bool = False) -> Graph:
    """Return a random graph in layers, sizes and costs uniform; with a backward pass it has twice the ops."""
    rng = random.Random(seed)
    nodes: list[Node] = []
    layer: list[int] = []
    before: list[int] = []
    while len(nodes) < ops:
        before, layer = layer, []
        for _ in range(min(rng.randint(1, 8), ops - len(nodes))):
            inputs = sorted(rng.sample(before, min(len(before), rng.randint(1, 3))))
            if nodes and rng.random() < 0.15:
                inputs = sorted({*inputs, rng.randrange(len(nodes) - len(layer)) if len(nodes) > len(layer) else 0})
            layer.append(len(nodes))
            nodes.append((inputs, rng.randint(50, 6000), rng.randint(1, 1000)))
    if backward:
        return training(f"random-{ops}-back", nodes)
    graph = Graph(f"random-{ops}", unit="byte")
    for i, (inputs, size, cost) in enumerate(nodes):
        graph.tensor(f"a{i}", size)
        graph.op(f"f{i}", [f"a{j}" for j in inputs], [f"a{i}"], cost)
    return graph


def wide_layered(ops: int, seed: int = 0) -> Graph:
    """Return a random graph in the shape of the public `random_layered` graphs (Gagrani et al., NeurIPS 2022; Moccasin, ICML 2023).

    Layers grow with the graph and are joined densely: 236 edges at 100 ops, about 2,500 at 500 and 5,900 at 1,000, of which one in
    seven skips layers. All values go into one last op, and program order is a random order that is legal.

    >>> len(wide_layered(500).ops), sum(len(op.reads) for op in wide_layered(500).ops) // 100
    (500, 24)
    """
    rng = random.Random(seed)
    widest = max(2, round(1.8 * math.sqrt(ops / 2)))
    degree = 0.85 * (2.36 + 1.55 * math.log(max(1.0, ops / 100)))
    layers: list[list[int]] = [[0]]
    count = 1
    while count < ops - 1:
        width = min(rng.randint(1, widest), ops - 1 - count)
        layers.append(list(range(count, count + width)))
        count += width
    layers.append([ops - 1])
    inputs: list[set[int]] = [set() for _ in range(ops)]
    for before, layer in pairwise(layers):
        for node in layer:
            inputs[node] = set(rng.sample(before, min(len(before), max(1, round(rng.expovariate(1 / degree))))))
            if rng.random() < 0.15 * degree:
                inputs[node].add(rng.randrange(before[-1] + 1))
    used = set().union(*inputs)
    for node in range(ops - 1):
        if node not in used:  # read by somebody of the next layer
            at = next(number for number, layer in enumerate(layers) if node in layer)
            inputs[rng.choice(layers[at + 1])].add(node)
    graph = Graph(f"wide-{ops}", unit="byte")
    waiting, ready, done = {node: len(inputs[node]) for node in range(ops)}, [0], set[int]()
    for node in range(ops):
        graph.tensor(f"n{node}", 10 * rng.randint(1, 620))
    while ready:
        node = ready.pop(rng.randrange(len(ready)))
        done.add(node)
        graph.op(f"op{node}", [f"n{other}" for other in sorted(inputs[node])], [f"n{node}"], rng.randint(0, 1000))
        for other in range(ops):
            if node in inputs[other]:
                waiting[other] -= 1
                ready += [other] if not waiting[other] else []
    return graph
