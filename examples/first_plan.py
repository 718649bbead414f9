"""The cheapest order of a training step, proven, checked and run: what note 000 looked for by sampling."""

from __future__ import annotations

import pebbler as pb
from pebbler.notes import note_order


def main() -> None:
    step = pb.workloads.note_mlp()
    machine = pb.machine("notes-recency")
    program = pb.check(pb.Plan.in_order(step, machine))
    plan = pb.solve(step, machine, time_limit=60)

    print(f"program order: {program.energy / 1e6:.3f} µJ")
    print(f"best order:    {plan.energy / 1e6:.3f} µJ, {plan.status} ({plan.proof})")
    print("order:", ", ".join(move.op for move in plan.moves))

    judgement = pb.check(plan)
    print("by level:", {level: f"{energy / 1e6:.3f} µJ" for level, energy in judgement.levels.items()})
    print("same results as program order, bit for bit:", pb.verify(plan).identical)

    # The note's own suggestion updates W2 before the backward pass has read it.
    broken = pb.Plan.in_order(step, machine, note_order("fused"))
    print("note's fused order:", pb.check(broken).error)


if __name__ == "__main__":
    main()
