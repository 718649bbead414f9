"""The data of a report page, gathered from plans as plain lists that become JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pebbler.errors import InputError
from pebbler.game.dataflow import Rows
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Moves
from pebbler.game.plan import SCOPES, Plan, PlanFile
from pebbler.game.rich_repr import RichRepr
from pebbler.game.tile_meta import origin, tile_numbers
from pebbler.referee import pricing
from pebbler.referee.judgement import check
from pebbler.show.report.landscape import Landscape, survey
from pebbler.show.report.proof_note import ProofNote, proof_note
from pebbler.show.report.saving_steps import SavingStep, saving_steps, sources_by_origin
from pebbler.show.report.step_names import BudgetData, BudgetPoint, StepNames, UnlimitedStep, budget_of, step_of
from pebbler.show.report.step_reuse import StepReuse, measure_reuse
from pebbler.solver.assessment import assess
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem, program_order_peak

__all__ = ["GraphData", "PlanData", "ReportData", "gather", "program_order"]

# A page holds every move; beyond this a browser is the wrong place to look at them.
MOST_MOVES = 200_000
BASELINE = "program order"


@dataclass(frozen=True)
class RowsData:
    """`pebbler.game.dataflow.Rows` as lists."""

    start: list[int]
    items: list[int]

    @classmethod
    def of(cls, rows: Rows) -> RowsData:
        """Return the lists of flat rows."""
        return cls(rows.start.tolist(), rows.items.tolist())


@dataclass(frozen=True)
class GraphData:
    """A graph and its derived values, numbered as `Graph.dataflow` numbers them."""

    name: str
    unit: str
    energy_unit: str
    tensor_name: list[str]
    tensor_size: list[int]
    tensor_kind: list[str]
    tensor_origin: list[str]  # what it is a tile of, or its own name
    tensor_overwrites: list[str | None]
    storage: list[int]
    op_name: list[str]
    op_origin: list[str]
    op_sources: dict[str, list[str]]  # of origins that were fused: the source's ops behind them
    axes: list[str]  # those that are cut into tiles
    op_tile: list[list[int]]  # per op: axis, number of the tile, axis, number, ...
    op_cost: list[float]
    op_once: list[bool]
    value_tensor: list[int]
    value_version: list[int]
    value_maker: list[int]
    value_destroyer: list[int]
    value_survives: list[bool]
    reads: RowsData
    writes: RowsData
    destroys: RowsData
    readers: RowsData
    step: StepNames | None  # of a captured PyTorch step

    @classmethod
    def of(cls, graph: Graph, unit: str) -> GraphData:
        """Return a graph as lists, its costs counted in a unit."""
        flow = graph.dataflow
        tiles = tile_numbers(graph)
        axes = list(dict.fromkeys(axis for at in tiles for axis in at))
        return cls(
            name=graph.name,
            unit=graph.unit,
            energy_unit=unit,
            tensor_name=flow.tensor_names,
            tensor_size=flow.tensor_size.tolist(),
            tensor_kind=[tensor.kind for tensor in graph.tensors],
            tensor_origin=[origin(tensor) for tensor in graph.tensors],
            tensor_overwrites=[tensor.overwrites for tensor in graph.tensors],
            storage=flow.storage.tolist(),
            op_name=flow.op_names,
            op_origin=[origin(op) for op in graph.ops],
            op_sources={name: found for name, found in sources_by_origin(graph).items() if found != [name]},
            axes=axes,
            op_tile=[[number for axis, at in tile.items() for number in (axes.index(axis), at)] for tile in tiles],
            op_cost=flow.op_cost.tolist(),
            op_once=flow.op_once.tolist(),
            value_tensor=flow.value_tensor.tolist(),
            value_version=flow.value_version.tolist(),
            value_maker=flow.value_maker.tolist(),
            value_destroyer=flow.value_destroyer.tolist(),
            value_survives=flow.value_must_survive.tolist(),
            reads=RowsData.of(flow.op_reads),
            writes=RowsData.of(flow.op_writes),
            destroys=RowsData.of(flow.op_destroys),
            readers=RowsData.of(flow.value_readers),
            step=step_of(graph),
        )


@dataclass(frozen=True)
class JudgementData:
    """The referee's judgement; lists follow the numbering of levels, tensors, ops and kinds of move."""

    legal: bool
    energy: float
    error: str | None
    move: int | None
    peak: list[int]
    levels: list[float]
    tensors: list[float]
    ops: list[float]
    kinds: list[float]
    steps: list[float]


@dataclass(frozen=True)
class ClaimData:
    """The claims of a plan: all of them, those not verified here, and those found to be wrong."""

    energy: float | None
    bound: float | None
    status: str | None
    proof: str
    unverified: list[str]
    void: list[str]


@dataclass(frozen=True)
class EarlierPhases:
    """The most bytes held in the phases of a step before the repeating one, headroom aside: planned, and without a limit."""

    peak: int
    unlimited: int


@dataclass(frozen=True)
class PlanData:
    """One plan: its moves as flat lists, the referee's judgement, and how its memory behaves."""

    name: str
    graph: int  # in ReportData.graphs
    machine: Machine  # in the graph's unit
    capacity: list[int]
    steady: bool
    baseline: bool  # made here for comparison, not given by the user
    bound: float | None  # this and the next three: proven while the page was made
    gap: float | None
    status: str | None
    proof: ProofNote | None
    scope: str  # the plans that bound and status are for
    claims: ClaimData
    source: str | None
    program_order: float | None
    budget: BudgetData | None  # of a PyTorch plan
    unlimited: UnlimitedStep | None  # of a PyTorch plan
    earlier: EarlierPhases | None  # of a PyTorch plan that has such phases
    savings: list[SavingStep]  # schedules between program order and the plan
    kind: list[int]
    subject: list[int]
    level: list[int]
    to: list[int]
    start: list[int]  # per value: the levels that hold it at the start, as bits
    judgement: JudgementData
    reuse: StepReuse | None

    @classmethod
    def of(cls, plan: Plan, name: str, graph: int, *, baseline: bool) -> PlanData:
        """Return a plan as lists; a baseline needs no comparison with program order."""
        flow = plan.graph.dataflow
        machine = plan.machine.in_unit(plan.graph.unit)
        judgement = check(plan)
        moves = plan.moves
        start, slowest = [0] * flow.values, len(machine.level) - 1
        for value, level in plan.replay().start:
            start[value] |= 1 << (level if machine.management == "explicit" else slowest)
        base = None if baseline else program_order(plan)
        found, budget = assess(plan, judgement), budget_of(plan)
        return cls(
            name=name,
            graph=graph,
            machine=machine,
            capacity=pricing.capacities(machine).tolist(),
            steady=bool(plan.steady),
            baseline=baseline,
            bound=found.bound,
            gap=found.gap,
            status=found.status if plan.status is not None or plan.bound is not None else None,
            proof=proof_note(found.proof, found.covers),
            scope=SCOPES[found.covers],
            claims=ClaimData(
                plan.energy, plan.bound, plan.status, plan.proof, list(found.unverified), list(found.void)
            ),
            source=None if plan.source is None or "source" in found.unverified else plan.source.name,
            program_order=None if base is None else check(base).energy,
            budget=budget,
            unlimited=None if budget is None else budget.unlimited or unlimited_step(plan.graph),
            earlier=None if budget is None else earlier_phases(plan),
            savings=saving_steps(plan, base, judgement),
            kind=moves.kind.tolist(),
            subject=moves.subject.tolist(),
            level=moves.level.tolist(),
            to=moves.to.tolist(),
            start=start,
            judgement=JudgementData(
                legal=judgement.legal,
                energy=judgement.energy,
                error=judgement.error,
                move=judgement.move,
                peak=list(judgement.peak.values()),
                levels=list(judgement.levels.values()),
                tensors=list(judgement.tensors.values()),
                ops=list(judgement.ops.values()),
                kinds=list(judgement.moves.values()),
                steps=judgement.step_energy.tolist(),
            ),
            reuse=measure_reuse(plan.graph, moves.order, machine, steady=bool(plan.steady)),
        )


@dataclass(frozen=True, repr=False)
class ReportData(RichRepr):
    """Everything on the page. A notebook shows the page itself."""

    title: str
    version: str
    graphs: list[GraphData]
    plans: list[PlanData]
    landscape: Landscape | None
    curve: BudgetCurve | None  # of a PyTorch step: what budgets cost

    def __repr__(self) -> str:
        names = ", ".join(repr(plan.name) for plan in self.plans[:6]) + (", ..." if len(self.plans) > 6 else "")
        return f"ReportData({self.title[:80]!r}, plans {names})"


def gather(
    plans: Sequence[Plan],
    names: Sequence[str] | None = None,
    title: str | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
) -> ReportData:
    """Return the data of a page about some plans. A plan in program order is added for comparison.

    `references` are orders, by name, to be marked in the landscape.

    >>> from pebbler import machine, workloads
    >>> step = workloads.note_mlp()
    >>> order = [op.name for op in step.ops]
    >>> order.insert(9, order.pop(order.index("upd_W2")))
    >>> [(one.name, one.judgement.energy) for one in gather([Plan.in_order(step, machine("notes-recency"), order)]).plans]
    [('plan', 10844490), ('program order', 11004490)]
    """
    from pebbler.version import VERSION

    if not plans:
        raise InputError("a report needs at least one plan")
    moves = sum(len(plan.moves) for plan in plans)
    if moves > MOST_MOVES:
        raise InputError(f"{moves:,} moves are too many for one page (at most {MOST_MOVES:,})")
    labels = _labels(names, len(plans))
    shown = list(plans)
    # Of a PyTorch step, what it is without a limit is drawn behind the plan.
    base = program_order(plans[0]) if budget_of(plans[0]) is None else None
    known = base is None or any(_same_schedule(base, plan) for plan in shown)
    if base is not None and not known:
        shown.append(base)
        labels.append(BASELINE if BASELINE not in labels else f"{BASELINE} (made here)")
    graphs: list[Graph] = []
    units: list[str] = []
    data = []
    for plan, label in zip(shown, labels, strict=True):
        if not any(plan.graph is graph or plan.graph == graph for graph in graphs):
            graphs.append(plan.graph)
            units.append(plan.energy_unit)
        index = next(i for i, graph in enumerate(graphs) if plan.graph is graph or plan.graph == graph)
        data.append(PlanData.of(plan, label, index, baseline=plan is base))
    # What was done to the graph is in its name, and would make a long title.
    step = plans[0].graph if plans[0].source is None else plans[0].source
    heading = title or f"{step.name} on {plans[0].machine.name}"
    listed = [GraphData.of(graph, unit) for graph, unit in zip(graphs, units, strict=True)]
    budget = budget_of(plans[0])
    if budget is not None and listed[0].step is not None:
        # Random orders say little of a step; what other budgets cost is the question there.
        return ReportData(heading, VERSION, listed, data, None, budget_curve(plans[0], budget, data[0].graph))
    return ReportData(heading, VERSION, listed, data, survey(shown, labels, references=references), None)


def program_order(plan: Plan) -> Plan | None:
    """Return the plan's source in program order, run on its machine in a straightforward way; None if that does not fit.

    >>> from pebbler import machine, tile, workloads
    >>> step = workloads.mlp(n=20, hidden=1000)
    >>> tiled = Plan.in_order(tile(step, "hidden", 100), machine("notes"), source=step)
    >>> len(tiled.moves), len(program_order(tiled).moves)
    (114, 15)
    """
    graph = plan.graph if plan.source is None else plan.source
    if plan.machine.management != "explicit":
        return Plan.in_order(graph, plan.machine, steady=plan.steady)
    names = {tensor.name for tensor in graph.tensors}
    start = {} if plan.steady else {name: where for name, where in plan.start.items() if name in names}
    problem = Problem.of(graph, plan.machine, steady=plan.steady, start=start)
    found = program_order_plan(problem)
    return found if found is not None and check(found).legal else None


def _labels(names: Sequence[str] | None, count: int) -> list[str]:
    if names is not None and len(names) != count:
        raise InputError(f"names must match the plans: got {len(names)} for {count} plans")
    wanted = list(names) if names is not None else ["plan"] if count == 1 else [f"plan {i + 1}" for i in range(count)]
    labels: list[str] = []
    for name in wanted:
        fresh, number = name, 1
        while fresh in labels:
            number += 1
            fresh = f"{name} ({number})"
        labels.append(fresh)
    return labels


def _same_schedule(one: Plan, other: Plan) -> bool:
    return (
        one.moves == other.moves
        and one.machine == other.machine
        and one.steady == other.steady
        and one.graph == other.graph
    )


def to_json(data: ReportData) -> bytes:
    """Return the data as JSON."""
    return msgspec.json.encode(data)


# The memory of a captured PyTorch step without a budget, and the cost of other budgets as a curve ---------------------


_SHARES = (0.0, 0.05, 0.14, 0.3, 0.52, 0.78)  # of the bytes between the least budget and no limit
_SECONDS = 0.4  # of search per point: a plan made for one budget alone may be a little cheaper
_MOST_OPS = 4_000


@dataclass(frozen=True)
class BudgetCurve:
    """The cost of budgets, from the smallest with a plan to no limit."""

    graph: int  # in ReportData.graphs
    points: list[BudgetPoint]


def unlimited_step(graph: Graph) -> UnlimitedStep:
    """Return a step in its own order, every value freed after its last use.

    >>> from pebbler.workloads import chain
    >>> unlimited_step(chain(3)).held
    [2, 3, 4, 4, 4, 3, 2]
    """
    game = RecomputeProblem.of(Problem.of(graph, Machine("memory", graph.unit, (Level("memory", 0, 0),))))
    return UnlimitedStep(game.measure(game.program).memory.tolist(), [op.cost for op in graph.ops])


def earlier_phases(plan: Plan) -> EarlierPhases | None:
    """Return the memory of the phases that a PyTorch plan's file has beside the repeating one; None without any that are legal."""
    about = plan.meta.get("torch")
    try:
        files = msgspec.convert(about.get("first", []) if isinstance(about, Mapping) else [], list[PlanFile])
        graphs = [Graph.from_file(file.graph) for file in files]
        moves = [Moves.of(graph, file.machine, file.moves) for graph, file in zip(graphs, files, strict=True)]
    except (msgspec.ValidationError, InputError):
        return None
    phases = [
        Plan(graph, file.machine, made, file.start, file.steady)
        for graph, file, made in zip(graphs, files, moves, strict=True)
    ]
    judged = [check(phase) for phase in phases]
    if not judged or not all(one.legal for one in judged):
        return None
    held = max(next(iter(one.peak.values())) for one in judged)
    return EarlierPhases(held, max(program_order_peak(graph) for graph in graphs))


def budget_curve(plan: Plan, budget: BudgetData, graph: int) -> BudgetCurve | None:
    """Return the cost of other budgets for a step, with host copies if its plan has them; None without PyTorch."""
    if budget.curve:
        return BudgetCurve(graph, sorted(budget.curve, key=lambda point: point.peak))
    try:
        from pebbler.run.torch.plan.host_link import link_of
        from pebbler.run.torch.plan.phase_search import least_units, quick_cost
    except ImportError:
        return None
    most = max(unlimited_step(plan.graph).held, default=0)
    if not most or len(plan.graph.ops) > _MOST_OPS:
        return None
    link = link_of(plan.machine, overlap=budget.overlap)
    least = least_units([plan.graph], _SECONDS, offload=link is not None)[1]
    found = [BudgetPoint(most + budget.headroom, sum(op.cost for op in plan.graph.ops))]
    for share in reversed(_SHARES):
        made = quick_cost(plan.graph, int(least + share * (most - least)), _SECONDS, link)
        # What fits into less costs no less: a cheaper plan of a smaller budget serves the larger ones too.
        if made is not None and made[0] + budget.headroom < found[-1].peak:
            while len(found) > 1 and found[-1].cost >= made[1]:
                found.pop()
            found.append(BudgetPoint(made[0] + budget.headroom, made[1]))
    return BudgetCurve(graph, found[::-1])
