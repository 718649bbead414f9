"""The peak of a step and the time it computes again, simulated for a choice of saved values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pebbler.run.torch.backend.joint_step import JointStep

__all__ = ["SavedChoice", "eager_peak", "simulate"]


@dataclass(frozen=True)
class SavedChoice:
    """Values that forward saves, by number, with their bytes, the seconds that backward computes again, and the peak of the step.

    It is not legal where backward would have to run what must not run again.
    """

    saved: tuple[int, ...]
    bytes: int
    seconds: float
    peak: int
    legal: bool = True


def simulate(step: JointStep, chosen: Iterable[int], fusing: bool = True) -> SavedChoice:
    """Return what comes of saving values; those that backward does not need are left out, inputs that it needs are added.

    Forward and backward are run in torch's order: backward as it was traced, what is computed again just before its first use.
    A value whose readers are all in the same run of fused nodes takes no memory.
    """
    saved = set(chosen)
    backward = _backward_order(step, saved)
    needed = {source for node in backward for source in step.inputs[node]} | set(step.backward_outputs)
    saved = (saved & needed) | {i for i in needed if step.given[i] and step.fixed[i]}
    forward = _forward_order(step, saved)
    ran = set(forward)
    seconds = sum(step.seconds[node] for node in backward if node in ran and not step.tangent[node])
    storage = _storages(step)
    resident = sum(step.size[i] for i, given in enumerate(step.given) if given and not step.tangent[i])
    kept = {storage[i] for i in saved} | {storage[i] for i in step.forward_outputs}
    forward_peak = _peak(step, storage, forward, kept, {}, fusing)
    held: dict[int, list[int]] = {}  # storages there when backward starts, with the nodes that it reads them by
    for i in (*saved, *step.forward_outputs):
        if not step.given[storage[i]]:
            held.setdefault(storage[i], []).append(i)
    held |= {i: [i] for i, given in enumerate(step.given) if given and step.tangent[i]}
    results = {storage[i] for i in step.forward_outputs} | {storage[i] for i in step.backward_outputs}
    backward_peak = _peak(step, storage, backward, results, held, fusing)
    own = {storage[i] for i in saved if not step.given[storage[i]]}
    return SavedChoice(
        saved=tuple(sorted(saved)),
        bytes=sum(step.size[i] for i in own),
        seconds=seconds,
        peak=resident + max(forward_peak, backward_peak),
        legal=not any(step.fixed[node] for node in backward),
    )


def eager_peak(step: JointStep) -> int:
    """Return the peak of the step where nothing is fused and every value of forward that backward reads is saved."""
    read = {i for node, late in enumerate(step.tangent) if late for i in step.inputs[node] if not step.tangent[i]}
    return simulate(step, (i for i in read if step.tensor[i]), fusing=False).peak


def _storages(step: JointStep) -> list[int]:
    """Return for every node the node whose memory holds it."""
    storage = list(range(len(step.nodes)))
    for i, is_view in enumerate(step.view):
        if is_view and step.inputs[i]:
            storage[i] = storage[step.inputs[i][0]]
    return storage


def _forward_order(step: JointStep, saved: Collection[int]) -> list[int]:
    needed = [False] * len(step.nodes)
    for i in (*step.forward_outputs, *saved):
        needed[i] = True
    for i in range(len(step.nodes) - 1, -1, -1):
        if needed[i]:
            for source in step.inputs[i]:
                needed[source] = True
    return [i for i, need in enumerate(needed) if need and not step.given[i]]


def _backward_order(step: JointStep, saved: Collection[int]) -> list[int]:
    """Return the nodes that run in backward: as traced, with what is computed again just before it is read first."""
    done = list(step.given)
    for i in saved:
        done[i] = True
    order: list[int] = []
    ends = set(step.backward_outputs)
    for node in range(len(step.nodes)):
        if done[node] or not (step.tangent[node] or node in ends):
            continue
        stack, batch = [node], []
        while stack:
            i = stack.pop()
            if not done[i]:
                done[i] = True
                batch.append(i)
                stack += step.inputs[i]
        order += sorted(batch)
    return order


def _peak(
    step: JointStep,
    storage: Sequence[int],
    order: Sequence[int],
    kept: Collection[int],
    held: Mapping[int, Sequence[int]],
    fusing: bool,
) -> int:
    """Return the most bytes held while nodes run in this order, what the graph is given not counted.

    `held` is there at the start and goes after its last use, unless it is `kept`, as results are.
    """
    position = {node: t for t, node in enumerate(order)}
    run = [0] * len(order)  # how many kernels of their own ran before: fused nodes of equal number may share a kernel
    for t in range(1, len(order)):
        run[t] = run[t - 1] + step.kernel[order[t - 1]]
    last: dict[int, int] = {}  # when a node is read last, through views and fused readers
    fused: set[int] = set()
    for t in range(len(order) - 1, -1, -1):
        node = order[t]
        readers = [user for user in step.users[node] if user in position]
        last[node] = max((last[u] if step.view[u] or u in fused else position[u] for u in readers), default=t)
        stays = storage[node] in kept or not readers or not fusing or not step.fusible[node]
        if not stays and all(step.fusible[u] and run[position[u]] == run[t] for u in readers):
            fused.add(node)
    gone: list[list[int]] = [[] for _ in order]
    now = sum(step.size[i] for i in held)
    for i, names in held.items():
        if i not in kept:
            readers = [u for name in names for u in step.users[name] if u in position]
            uses = [last[u] if step.view[u] or u in fused else position[u] for u in readers]
            if uses:
                gone[max(uses)].append(i)
            else:
                now -= step.size[i]
    for node in order:
        if storage[node] == node and node not in fused and node not in kept:
            gone[last[node]].append(node)
    most = now
    for t, node in enumerate(order):
        new = step.size[node] if storage[node] == node and node not in fused else 0
        # Fused kernels write over an operand of theirs that nobody reads any more, but never over what came from outside.
        place = (
            fusing and step.fusible[node] and any(step.size[i] == new and i not in held and i != node for i in gone[t])
        )
        most = max(most, now if place else now + new)
        now += new - sum(step.size[i] for i in gone[t])
    return most
