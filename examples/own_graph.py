"""A graph and a machine of one's own: how much fast memory does a two-layer step want?"""

from __future__ import annotations

import pebbler as pb
from pebbler.game.moves import Copy


def two_layers(width: int) -> pb.Graph:
    """Return one SGD step of two square layers, in the order in which one would write it."""
    g = pb.Graph("two-layers", unit="float32")
    weights, row = width * width, width
    g.tensor("W", weights, kind="param")
    g.tensor("V", weights, kind="param")
    g.tensor("x", row, kind="input")
    for name, size in [("h", row), ("y", row), ("dy", row), ("dV", weights), ("dh", row), ("dW", weights)]:
        g.tensor(name, size)
    work = 2 * weights  # a multiplication and an addition per weight, at 1 pJ each
    g.op("layer1", reads=["x", "W"], writes=["h"], cost=work)
    g.op("layer2", reads=["h", "V"], writes=["y"], cost=work)
    g.op("loss", reads=["y"], writes=["dy"], cost=row)
    g.op("grad_V", reads=["dy", "h"], writes=["dV"], cost=work)
    g.op("grad_h", reads=["dy", "V"], writes=["dh"], cost=work)
    g.op("grad_W", reads=["dh", "x"], writes=["dW"], cost=work)
    g.op("step_W", reads=["W", "dW"], writes=["W"], cost=work)
    g.op("step_V", reads=["V", "dV"], writes=["V"], cost=work)
    return g


def scratchpad(floats: int) -> pb.Machine:
    """Return a small memory that ops work on, beside DRAM that costs a hundred times as much."""
    levels = (pb.Level("SRAM", 1, 1, capacity=floats), pb.Level("DRAM", 100, 100))
    return pb.Machine("scratchpad", "float32", levels, operands="fastest")


def main() -> None:
    step = two_layers(64)
    for hazard in step.dataflow.hazards():
        if hazard.kind == "WAR":
            print(hazard.why())
    for floats in (9_000, 12_450, 12_600):
        plan = pb.solve(step, scratchpad(floats), tile="none", time_limit=60)
        copied = [move.tensor for move in plan.moves if isinstance(move, Copy)]
        print(
            f"{floats:>6,} floats: {plan.energy / 1e6:.3f} µJ a step, copied {sorted(copied)}, {plan.status}; "
            f"params start in {dict(plan.start)}"
        )


if __name__ == "__main__":
    main()
