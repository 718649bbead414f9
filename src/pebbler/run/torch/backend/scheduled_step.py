"""The programs of forward and backward as one plan of the game: scheduled nodes are ops, pieces of memory tensors, frees drops.

One machine with one level holds everything, so the peak that the referee reports is what the compiled step will hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Drop, Move, Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import require_legal
from pebbler.run.torch.backend.scheduled_graph import Allocation, Free, KernelCall, Reuse, ScheduledGraph
from pebbler.run.torch.plan.launch_fusion import held_between

__all__ = ["ScheduledStep", "scheduled_step"]

_DEVICE = Machine("device", "byte", (Level("memory", 0, 0),), operands="any", prices="ns")


@dataclass(frozen=True)
class ScheduledStep:
    """A step as it will run: the plan, its peak in bytes as the referee counts it, and about how long it takes.

    `above` are the bytes that forward and backward hold above what they begin with, and those that are saved between them.
    """

    plan: Plan
    peak: int
    seconds: float
    above: tuple[int, int, int]


def scheduled_step(
    forward: ScheduledGraph, backward: ScheduledGraph, saved: Mapping[str, int], batch: Collection[str] = ()
) -> ScheduledStep:
    """Return the plan of a step; what forward is given stays all the time, and some of it is the `batch`.

    `saved` says for inputs of backward which output of forward they are.
    """
    writer = _PlanWriter()
    first = {name: f"arg.{name}" if name in batch else f"given {name}" for name in forward.inputs}
    for name, size in forward.inputs.items():
        writer.give(first[name], size)
    ends = writer.run("forward", forward, first, set())
    given: dict[str, str] = {}
    tangents: dict[str, int] = {}
    for name, size in backward.inputs.items():
        place = ends[saved[name]] if name in saved else None
        if place is None and name in saved:
            continue  # a number
        place = first.get(name) if place is None else place
        if place is None:
            tangents[name] = size
        given[name] = place or f"tangent {name}"
    writer.turn(given, tangents)
    ends = writer.run("backward", backward, given, set(given.values()))
    return writer.finish(ends)


class _PlanWriter:
    """Writes events as tensors, ops and moves; a tensor is one piece of memory, written by whatever is put there."""

    def __init__(self) -> None:
        self.tensors: dict[str, int] = {}
        self.ops: list[Op] = []
        self.moves: list[Move] = []
        self.given: list[str] = []
        self.held: dict[str, set[str]] = {}  # names of buffers by the memory that they are in
        self.seconds = 0.0
        self.known: set[str] = set()  # nodes of forward
        self.turned = 0  # moves before backward begins

    def give(self, name: str, size: int) -> None:
        """Note memory that exists from the start to the end."""
        self.tensors[name] = size
        self.given.append(name)

    def run(self, phase: str, graph: ScheduledGraph, given: Mapping[str, str], mortal: set[str]) -> list[str | None]:
        """Write the events of a graph, and return the memory of its outputs; of its inputs only `mortal` may be freed."""
        place = dict(given)  # of buffers
        for name, memory in given.items():
            self.held.setdefault(memory, set()).add(name)
        fresh: list[str] = []

        def find(buffer: str) -> str | None:
            while buffer not in place and buffer in graph.aliases:
                buffer = graph.aliases[buffer]
            return place.get(buffer)

        ends = {out for out in graph.outputs if out is not None}
        for event in graph.events:
            if isinstance(event, Allocation):
                memory = f"{phase} {event.buffer}"
                place[event.buffer] = memory
                self.tensors[memory] = event.size
                self.held[memory] = {event.buffer}
                fresh.append(memory)
            elif isinstance(event, Reuse):
                memory = place[event.old]
                place[event.buffer] = memory
                self.held[memory].discard(event.old)
                self.held[memory].add(event.buffer)
            elif isinstance(event, KernelCall):
                self._call(phase, event, [find(b) for b in event.reads], [find(b) for b in event.writes], fresh)
            elif isinstance(event, Free):
                freed = find(event.buffer)
                if freed is None or event.buffer in ends:
                    continue
                names = self.held.get(freed, set())
                names.discard(event.buffer)
                if not names and (freed in mortal or freed.startswith(f"{phase} ")) and freed not in self.given:
                    self._drop(freed, fresh)
        return [None if out is None else find(out) for out in graph.outputs]

    def _call(
        self, phase: str, call: KernelCall, reads: Sequence[str | None], writes: Sequence[str | None], fresh: list[str]
    ) -> None:
        self._allocate([memory for memory in fresh if memory not in writes])
        fresh.clear()
        name = f"{phase} {call.name}"
        results = [memory for memory in dict.fromkeys(writes) if memory is not None and memory not in self.given]
        scratch = f"{name} scratch"
        if call.scratch:
            self.tensors[scratch] = call.scratch
            results.append(scratch)
        operands = [memory for memory in dict.fromkeys(reads) if memory is not None]
        if operands or results:
            meta = self._about(phase, call)
            self.ops.append(Op(name, tuple(operands), tuple(results), round(call.seconds * 1e9), meta=meta))
            self.moves.append(Compute(name))
            self.seconds += call.seconds
        if call.scratch:
            self.moves.append(Drop(scratch, "memory"))

    def _about(self, phase: str, call: KernelCall) -> dict[str, Any]:
        """Return a page's facts about a call: a kernel of backward is recomputation if all its nodes ran in forward."""
        if phase == "forward":
            self.known.update(call.nodes)
        again = phase == "backward" and bool(call.nodes) and self.known.issuperset(call.nodes)
        about = {"part": phase, "module": call.module, "calls": list(call.calls)}
        return about | ({"again": True} if again else {}) | ({"sent": call.sent} if call.sent else {})

    def _allocate(self, memories: Sequence[str]) -> None:
        """Take memory that no kernel writes at once."""
        for memory in memories:
            self.ops.append(Op(f"{memory} allocated", (), (memory,)))
            self.moves.append(Compute(f"{memory} allocated"))

    def _drop(self, memory: str, fresh: list[str]) -> None:
        if memory in fresh:
            fresh.remove(memory)
            del self.tensors[memory]
            return
        self.moves.append(Drop(memory, "memory"))
        self.held.pop(memory, None)

    def turn(self, saved: Mapping[str, str], tangents: Mapping[str, int]) -> None:
        """Begin backward: results of forward that are not saved are gone, and gradients of the results come in."""
        kept = set(saved.values())
        for memory in list(self.held):
            if memory.startswith("forward ") and memory not in kept:
                self._drop(memory, [])
            self.held.pop(memory, None)
        for name, size in tangents.items():
            self.tensors[f"tangent {name}"] = size
        self._allocate([f"tangent {name}" for name in tangents])
        self.turned = len(self.moves)

    def finish(self, ends: Sequence[str | None]) -> ScheduledStep:
        """Return the plan, judged."""
        results = {memory for memory in ends if memory is not None}
        written = {memory for op in self.ops for memory in op.writes}
        tensors = [
            Tensor(name, size, "input" if name in self.given else "output" if name in results else "temp")
            for name, size in self.tensors.items()
            if name in self.given or name in written
        ]
        graph = Graph("compiled step", "byte", tensors, self.ops)
        start = dict.fromkeys(self.given, "memory")
        plan = Plan(
            graph, _DEVICE, Moves.of(graph, _DEVICE, self.moves), start=start, steady=False, meta={"cost_unit": "ns"}
        )
        judged = require_legal(plan)
        return ScheduledStep(plan, int(judged.peak["memory"]), self.seconds, self._above(plan))

    def _above(self, plan: Plan) -> tuple[int, int, int]:
        """Return the peaks of forward and backward above their inputs, gradients included, and the bytes saved between them."""
        held = held_between(plan, "memory")
        begins, turned = held[0], held[self.turned]
        tangents = sum(size for memory, size in self.tensors.items() if memory.startswith("tangent "))
        saved = turned - begins - tangents
        return max(held[: self.turned + 1]) - begins, max(held[self.turned :]) - begins - saved, saved
