"""Messages for illegal plans: error codes of the rules, with the names of the graph and the machine."""

from __future__ import annotations

from collections.abc import Sequence

from pebbler.errors import quoted
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee.kernels import explicit_game as rules

__all__ = ["explain"]

_REASONS = {
    rules.OVERFLOW: "{level_a} would hold {count_b}; its capacity is {capacity_a}",
    rules.NOT_MADE: "{op_b} reads {value_a}, which {maker_a} has not made yet",
    rules.NOT_PRESENT: "{op_b} reads {value_a}, which is in no level any more",
    rules.NOT_THERE: "{tensor_a} is not in {level_b}",
    rules.NOT_FAST: "{op_b} reads {value_a}, which is not in the fastest level ({level_c})",
    rules.RESULT_NOT_FAST: "results of {op_a} must go to the fastest level ({level_c}), not to {level_b}",
    rules.OVERWRITES_EARLY: "{op_c} overwrites {value_a} before {op_b} reads it",
    rules.OVERWRITES_UNMADE: "{op_c} overwrites {value_a} before {op_b} writes it",
    rules.ALREADY_RAN: "{op_a} has run and cannot run again: {once_a}",
    rules.STALE_RESULT: "running {op_b} again would bring back {value_a}, which {destroyer_a} has overwritten",
    rules.LOSES_NEEDED: "{value_c} is lost, and with it {value_a}, which {op_b} still needs and nothing can recompute",
    rules.SAME_LEVEL: "copies {tensor_a} from {level_b} to the same level",
    rules.NEVER_RAN: "{op_a} has not run",
    rules.NOT_AT_END: "{value_a} must survive, but is in no level",
    rules.NOT_STEADY: "a steady plan must leave {value_a} in {levels_c}, where its param started, not in {levels_b}",
}


def explain(reason: int, plan: Plan, machine: Machine, about: Sequence[int]) -> str:
    """Return the reason why a move is illegal, from what the kernel returned."""
    template = _REASONS[reason]
    if reason == rules.LOSES_NEEDED and about[0] == about[2]:
        template = "{value_c} is lost, which {op_b} still needs and nothing can recompute"
    return template.format_map(_Words(plan, machine, about))


class _Words(dict[str, str]):
    """The words of a reason: `{op_b}` is the op whose number is the second of the three that the kernel returned."""

    def __init__(self, plan: Plan, machine: Machine, about: Sequence[int]) -> None:
        self.plan, self.machine, self.about = plan, machine, dict(zip("abc", about, strict=True))

    def __missing__(self, key: str) -> str:
        kind, letter = key.split("_")
        i, flow = self.about[letter], self.plan.graph.dataflow
        names = self.machine.names
        match kind:
            case "op":
                return quoted(flow.op_names[i]) if i >= 0 else "the end"
            case "maker":
                return quoted(flow.op_names[flow.value_maker[i]])
            case "destroyer":
                return quoted(flow.op_names[flow.value_destroyer[i]])
            case "value":
                return flow.name_value(i)
            case "tensor":
                return quoted(flow.tensor_names[i])
            case "level":
                return quoted(names[i])
            case "levels":
                return " and ".join(quoted(name) for bit, name in enumerate(names) if i >> bit & 1) or "no level"
            case "capacity":
                return f"{self.machine.level[i].capacity:,}"
            case "count":
                return f"{i:,} {'unit' if i == 1 else 'units'}"
            case "once":
                return "it is marked once" if flow.op_once[i] else "it updates in place"
        raise KeyError(key)
