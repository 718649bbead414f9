"""Copies beside the computation, event by event: the slow twin of `pebbler.run.torch.plan.kernels.move_timing.time_moves`."""

from __future__ import annotations

from pebbler.game.moves import Compute, Copy
from pebbler.game.plan import Plan


def ends_at(plan: Plan, overlap: bool) -> float:
    """When everything has ended, found by asking again and again which job can begin next.

    Every move is a job for one worker (computing, copying out, copying in), workers take their jobs in the order of the moves, and
    a job begins when all jobs that it must wait for have ended.
    """
    graph, host = plan.graph, plan.machine.level[-1]
    sizes = {tensor.name: tensor.size for tensor in graph.tensors}
    home = {tensor.name: tensor.overwrites or tensor.name for tensor in graph.tensors}
    while any(home[home[name]] != home[name] for name in home):
        home = {name: home[home[name]] for name in home}
    ops = {op.name: op for op in graph.ops}
    fastest = plan.machine.names[0]
    jobs: list[tuple[str, float, list[int]]] = []  # worker, duration, what it waits for

    def latest(worker: str) -> list[int]:
        return [i for i, job in enumerate(jobs) if job[0] == worker][-1:]

    copies: dict[str, list[int]] = {}  # by where the tensor lives: the jobs that copied it
    for move in plan.moves:
        if isinstance(move, Compute):
            op = ops[move.op]
            touched = {home[name] for name in op.writes}
            waits = [i for place in touched for i in copies.get(place, [])]
            waits += [i for name in op.reads for i in copies.get(home[name], []) if jobs[i][0] == "in"]
            jobs.append(("compute", op.cost, waits))
        elif isinstance(move, Copy):
            out = move.source == fastest
            price = host.write if out else host.read
            others = [i for i in copies.get(home[move.tensor], []) if jobs[i][0] != ("out" if out else "in")]
            waits = latest("compute") + others
            worker = ("out" if out else "in") if overlap else "compute"
            jobs.append((worker, sizes[move.tensor] * price, waits))
            copies.setdefault(home[move.tensor], []).append(len(jobs) - 1)
        else:
            waits = copies.get(home[move.tensor], []) if move.level == fastest else []
            jobs.append(("compute", 0.0, list(waits)))
    ended: dict[int, float] = {}
    while len(ended) < len(jobs):
        for i, (worker, duration, waits) in enumerate(jobs):
            before = [k for k in range(i) if jobs[k][0] == worker]
            if i not in ended and all(k in ended for k in [*before, *waits]):
                ended[i] = max([0.0, *(ended[k] for k in [*before, *waits])]) + duration
    return max(ended.values(), default=0.0)
