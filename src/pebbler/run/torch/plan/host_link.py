"""The host's memory as a second level: what copies to it and back cost, and how long a plan with such copies takes."""

from __future__ import annotations

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import LEAST_COPY, Link
from pebbler.run.torch.plan.kernels.move_timing import OpArrays, time_moves

__all__ = ["HOST", "MEMORY", "link_of", "machine_with_host", "predicted_cost", "repriced", "waiting_time"]

MEMORY, HOST = "memory", "host"  # the level that the budget bounds, and the one beyond the link


def machine_with_host(capacity: int, link: Link) -> Machine:
    """Return the machine of a device whose values may go to the host.

    >>> [level.capacity for level in machine_with_host(100, Link(2.0, 1.0, True)).level]
    [100, None]
    """
    host = Level(HOST, link.into, link.out)
    return Machine("device", "byte", (Level(MEMORY, 0, 0, capacity=capacity), host), operands="fastest")


def link_of(machine: Machine, *, overlap: bool) -> Link | None:
    """Return the link that a plan's machine was made with, None where it has no host.

    >>> link_of(machine_with_host(100, Link(2.0, 1.0, True)), overlap=False)
    Link(out=2.0, into=1.0, overlap=False, joules_per_byte=0.0, least=0)
    """
    if len(machine.level) == 1:
        return None
    host = machine.level[-1]
    return Link(host.write, host.read, overlap, least=LEAST_COPY if overlap else 0)


def predicted_cost(plan: Plan, overlap: bool) -> float:
    """Return the cost of a plan if copies overlap with the computation (one engine out, one in), or do not.

    >>> from pebbler.game.graph import Graph
    >>> g = Graph("two", unit="byte")
    >>> _ = g.tensor("a", 10), g.tensor("b", 1), g.op("f", [], ["a"], cost=5), g.op("g", [], ["b"], cost=7)
    >>> moves = [("compute", "f"), ("copy", "a", "memory", "host"), ("compute", "g"), ("drop", "a", "memory")]
    >>> plan = Plan(g, machine_with_host(100, Link(2.0, 1.0, True)), moves)
    >>> predicted_cost(plan, True), predicted_cost(plan, False)  # the copy takes 20, of which g hides 7
    (25.0, 32.0)
    """
    flow, moves = plan.graph.dataflow, plan.moves
    host = plan.machine.in_unit(plan.graph.unit).level[-1]
    reads, writes = flow.value_tensor[flow.op_reads.items], flow.value_tensor[flow.op_writes.items]
    ops = OpArrays(
        flow.op_cost, flow.op_reads.start, reads, flow.op_writes.start, writes, flow.tensor_size, flow.storage
    )  # fmt: skip
    prices = float(host.write), float(host.read), overlap
    return float(time_moves(moves.kind, moves.subject, moves.level, ops, *prices))


def repriced(plan: Plan, graph: Graph, link: Link | None) -> Plan:
    """Return the same moves on a graph and a link with other prices, without the plan's claims."""
    machine = plan.machine
    if len(machine.level) > 1 and link is not None:
        assert machine.level[0].capacity is not None
        machine = machine_with_host(machine.level[0].capacity, link)
    return Plan(graph, machine, Moves.of(graph, machine, plan.moves.words()), plan.start, plan.steady, meta=plan.meta)


def waiting_time(plan: Plan, timed: Graph, link: Link | None) -> float:
    """Return the time that a step waits for copies, in the unit of `timed`, whose costs are times as those of the link are.

    >>> g = Graph("two", unit="byte")
    >>> _ = g.tensor("a", 10), g.tensor("b", 1), g.op("f", [], ["a"], cost=5), g.op("g", [], ["b"], cost=7)
    >>> moves = [("compute", "f"), ("copy", "a", "memory", "host"), ("compute", "g"), ("drop", "a", "memory")]
    >>> joules = Plan(g, machine_with_host(100, Link(1.0, 1.0, False)), moves)
    >>> waiting_time(joules, g, Link(2.0, 1.0, True))  # the copy takes 20, of which g hides 7
    13.0
    """
    if len(plan.machine.level) == 1 or link is None:
        return 0.0
    again = repriced(plan, timed, link)
    taken = predicted_cost(again, True) if link.overlap else float(check(again).energy)
    return max(0.0, taken - float(timed.dataflow.op_cost[again.moves.order].sum()))
