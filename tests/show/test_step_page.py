"""The report of a captured PyTorch step: the model's names, times and bytes that are the planner's and the referee's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import pebbler.torch as pt
from chromium import UNREADABLE
from naive_game import random_game
from opened_pages import Opened, needs_browser, open_report
from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Copy, Drop
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.run.torch.cost.costs import Link, roofline
from pebbler.run.torch.plan.host_link import machine_with_host, predicted_cost
from pebbler.run.torch.plan.planner import plan_captured
from pebbler.run.torch.plan.torch_plan import TorchPlan
from pebbler.show.report import report
from pebbler.show.report.page_data import GraphData
from pebbler.show.report.step_names import budget_of, step_of
from pebbler.solver.assessment import assess

pytestmark = needs_browser
Show = Callable[..., Opened]
NAMES = ["away", "free", "joules away", "free joules"]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


@pytest.fixture(scope="module")
def plans() -> list[TorchPlan]:
    """Plans of one step, for time and for joules: one value away and one made again, and without a limit."""
    model = nn.Sequential(*(Block(64) for _ in range(2)))
    rule = torch.optim.SGD(model.parameters(), momentum=0.9, foreach=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    captured = pt.capture(step, torch.ones(2048, 64))
    costs = roofline(captured, "h200")
    free, joules = (plan_captured(captured, costs, objective=one, time_limit=1) for one in ("time", "energy"))
    return [sent_away(free), free, sent_away(joules), joules]


def sent_away(free: TorchPlan) -> TorchPlan:
    """Return the plan with one value sent to the host between the passes, and another computed again."""
    graph, moves = free.plan.graph, list(free.plan.moves)
    link = Link(0.02, 0.02, overlap=free.objective == "time")

    def gap(module: str, call: str) -> tuple[str, str, int, int]:
        """Return an op of the forward pass, its result, and the moves between which only the backward pass wants that."""
        op = next(one for one in graph.ops if (one.meta["module"], one.meta["calls"][0]) == (module, call))
        name = op.writes[0]
        reads = [
            i for i, move in enumerate(moves) if isinstance(move, Compute) and name in graph.op_named(move.op).reads
        ]
        later = next(i for i in reads if graph.op_named(moves[i].op).meta["part"] == "backward")
        return op.name, name, max(i for i in reads if i < later), later

    _, away, last, back = gap("Block 0.wide", "addmm")
    op, again, dropped, made = gap("Block 1", "gelu")
    edits: list[tuple[int, list[Any]]] = [
        (last + 1, [Copy(away, "memory", "host"), Drop(away, "memory")]),
        (back, [Copy(away, "host", "memory"), Drop(away, "host")]),
        (dropped + 1, [Drop(again, "memory")]),
        (made, [Compute(op)]),
    ]
    for at, added in sorted(edits, key=lambda edit: -edit[0]):
        moves[at:at] = added
    peak = check(free.plan).peak["memory"]
    start = {tensor.name: "memory" for tensor in graph.tensors if tensor.kind == "param"}
    plan = replace(free.plan, machine=machine_with_host(peak, link), moves=moves, start=start, energy=None, bound=None)
    judged = check(plan)
    assert judged.legal, judged.error
    plan = replace(plan, energy=judged.energy, bound=free.plan.bound, status="bounded")
    return replace(free, phases=[plan], budget=peak + free.headroom, overlap=link.overlap)


@pytest.fixture(scope="module")
def step_file(plans: list[TorchPlan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all of them."""
    path = tmp_path_factory.mktemp("step") / "step.html"
    report(plans, path, names=NAMES)
    return path


@pytest.fixture
def opened(browser: Any, step_file: Path) -> Iterator[Opened]:
    found = open_report(browser, step_file, 1400, 900)
    yield found
    found.page.close()
    assert found.errors == []


def choose(opened: Opened, number: int) -> None:
    opened.page.locator("header select").select_option(str(number))


def test_the_page_proves_what_the_command_says(plans: list[TorchPlan]) -> None:
    for made in (plans[1], plans[3]):
        # Without a certificate the bound rests on the search that has proven it in this process.
        object.__setattr__(made.plan, "certificate", None)
        assert assess(made.as_plan()).gap == made.gap


@pytest.mark.slow
def test_cost_and_peak_are_the_planners(opened: Opened, plans: list[TorchPlan]) -> None:
    assert plans[0].overlap
    assert plans[0].offloaded > 0
    assert plans[0].recomputed > 0
    for number, planned in enumerate(plans):
        choose(opened, number)
        glance = opened.page.locator("#summary-view")
        scale = 1e9 if planned.objective == "time" else 1e12
        assert float(glance.get_attribute("data-cost")) == pytest.approx(scale * planned.cost)
        assert float(glance.get_attribute("data-peak")) == check(planned.plan).peak["memory"] + planned.headroom
        said = opened.page.locator("[data-test=step]")
        if planned.objective == "time":
            assert float(said.get_attribute("data-total")) == pytest.approx(scale * planned.cost)
        text = " ".join([said.inner_text(), glance.inner_text()])
        assert ("takes" in text, "costs" in text) == (planned.objective == "time", planned.objective == "energy")
        assert ("Energy" in text) == (planned.objective == "energy")


def test_times_of_moves_end_as_the_timing_kernel_says(opened: Opened, plans: list[TorchPlan]) -> None:
    cases = []
    for seed in range(60):
        game = random_game(random.Random(seed), 6, max_levels=2, operands="fastest", steady=False)
        if len(game.machine.level) == 2:
            moves = program(game.graph, game.machine, seed)
            cases.append((Plan(game.graph, game.machine, moves, steady=False), seed % 2 == 0))
    cases += [(plans[0].plan, overlap) for overlap in (True, False)]
    data = []
    for plan, overlap in cases:
        lists = {name: getattr(plan.moves, name).tolist() for name in ("kind", "subject", "level", "to")}
        arena = {"machine": plan.machine, "capacity": [], "steady": False, "start": []}
        data.append({"graph": GraphData.of(plan.graph, "ns"), "plan": arena | lists, "overlap": overlap})
    found = opened.page.evaluate(
        """(cases) => cases.map(({ graph, plan, overlap }) => {
          const time = pebbler.timeMoves(graph, pebbler.arenaOf(plan), plan, overlap);
          const inOrder = time.began.every((began, i) => began <= time.ended[i]);
          return { total: time.total, inOrder };
        })""",
        msgspec.to_builtins(data),
    )
    assert len(cases) > 30
    for (plan, overlap), one in zip(cases, found, strict=True):
        assert one["total"] == pytest.approx(predicted_cost(plan, overlap))
        assert one["inOrder"]


def program(graph: Graph, machine: Any, seed: int) -> list[Any]:
    """Return random moves; times need no legality, only tensors and levels that exist."""
    rng, names = random.Random(seed), machine.names
    moves: list[Any] = []
    for op in graph.ops:
        for tensor in rng.sample(graph.tensors, min(2, len(graph.tensors))):
            source = rng.randrange(2)
            moves.append(
                rng.choice([("copy", tensor.name, names[source], names[1 - source]), ("drop", tensor.name, names[0])])
            )
        moves.append(("compute", op.name))
    return moves


def test_the_bytes_drawn_are_those_that_the_referee_counts(opened: Opened, plans: list[TorchPlan]) -> None:
    for number, planned in enumerate(plans):
        choose(opened, number)
        held = opened.page.evaluate(
            "() => { const view = pebbler.step().times;"
            "return Array.from({ length: view.moves.kind.length + 1 }, (_, step) => view.heldAt(step)); }"
        )
        replay, size = planned.plan.replay(), planned.plan.graph.dataflow.value_size
        expected = [sum(int(size[value]) for value, level in replay.start if level == 0)]
        for step in replay:
            came = sum(int(size[value]) for value, level in step.added if level == 0)
            went = sum(int(size[value]) for value, level in step.removed if level == 0)
            expected.append(expected[-1] + came - went)
        assert held == expected
        assert max(held) == check(planned.plan).peak["memory"]


def test_what_comes_back_and_what_is_computed_again_have_colours_of_their_own(
    opened: Opened, plans: list[TorchPlan]
) -> None:
    legend = opened.page.locator("#step-view .legend").inner_text()
    for words in ("computed again", "copies to the host", "copies back", "back from the host", "optimizer state"):
        assert words in legend
    most = opened.page.evaluate(
        "() => { const { held } = pebbler.step().times;"
        "return [4, 5].map((k) => Math.max(...held.filter((_, i) => i % 8 === k))); }"
    )
    assert min(most) > 0
    choose(opened, 1)
    legend = opened.page.locator("#step-view .legend").inner_text()
    assert "host" not in legend
    assert "again" not in legend


def test_names_are_the_models(opened: Opened, plans: list[TorchPlan], tmp_path: Path) -> None:
    names = opened.page.evaluate("pebbler.player().graph.op_name")
    assert any(name.startswith("Block 0.wide · addmm") for name in names)
    assert any(name.startswith("Block 1.narrow · mm") for name in names)  # of the backward pass
    assert "0.wide.weight" in opened.page.evaluate("pebbler.player().graph.tensor_name")
    moves = opened.page.locator(".moves").inner_text()
    assert "Block 0.norm · native_layer_norm" in moves
    shares = opened.page.locator("#step-view .bars td.name").all_inner_texts()
    assert {"addmm", "Block 0", "Block 1", "forward", "backward", "optimizer", "computed again"} <= set(shares)
    # Saved again, they are those of the file.
    with opened.page.expect_download() as download:
        opened.page.locator("#player-view").get_by_role("button", name="Save as a plan").click()
    download.value.save_as(tmp_path / "saved.json")
    saved = Plan.load(tmp_path / "saved.json")
    assert list(saved.moves) == list(plans[0].plan.moves)
    assert check(saved).legal


def test_it_is_readable_at_every_size_and_works_by_keyboard(browser: Any, step_file: Path) -> None:
    for width, height, dark in ((1400, 900, True), (390, 844, False)):
        opened = open_report(browser, step_file, width, height, dark=dark)
        page = opened.page
        assert page.evaluate(UNREADABLE, "#step-view") == []
        assert page.evaluate(UNREADABLE, "#summary-view") == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        page.locator("#step-view .steptime").focus()
        whole = page.evaluate("pebbler.step().shown()")
        page.keyboard.press("+")
        page.keyboard.press("ArrowRight")
        near = page.evaluate("pebbler.step().shown()")
        assert near[1] - near[0] < whole[1] - whole[0]
        assert near[0] > whole[0]
        for _ in range(4):
            page.keyboard.press("-")
        assert page.evaluate("pebbler.step().shown()") == whole
        assert opened.errors == []
        page.close()


def test_pointing_says_who_and_a_click_goes_there(opened: Opened) -> None:
    page = opened.page
    chart = page.locator("#step-view .steptime")
    chart.evaluate("(node) => node.scrollIntoView({ block: 'center', behavior: 'instant' })")
    box = chart.bounding_box()
    x, move = page.evaluate(
        "() => { const { x } = pebbler.step().plotted, v = pebbler.step().times, names = v.graph.op_name;"
        "const i = v.moves.kind.findIndex((kind, i) => kind === 0 && names[v.moves.subject[i]].startsWith('Block 0.wide'));"
        "return [x((v.time.began[i] + v.time.ended[i]) / 2), i + 1]; }"
    )
    page.mouse.move(box["x"] + x, box["y"] + 35)
    told = page.locator(".tooltip").inner_text()
    for words in ("Block 0.wide · addmm", "test_step_page.py:", "forward", f"move {move}"):
        assert words in told
    page.mouse.click(box["x"] + x, box["y"] + 35)
    assert page.locator("[data-test=now]").get_attribute("data-step") == str(move)
    page.mouse.move(box["x"] + 300, box["y"] + 250)
    assert "held after move" in page.locator(".tooltip").inner_text()


def test_time_and_joules_have_a_frontier_each(opened: Opened) -> None:
    headings = opened.page.locator("#step-view h3").all_inner_texts()
    assert headings[:2] == ["What a smaller budget costs in time", "What a smaller budget costs in energy"]
    large = opened.page.locator("#step-view figure svg [aria-label=dot] circle[r='5']")
    assert large.count() == 4


def test_the_headline_is_the_planners(opened: Opened, plans: list[TorchPlan]) -> None:
    for number, planned in enumerate(plans):
        choose(opened, number)
        said = opened.page.locator("[data-test=headline]").inner_text()
        assert said.replace("→", "->").replace("−", "-") == planned.headline
        assert " instead of " in opened.page.locator("#summary-view .sentence").inner_text()
    assert " -> " not in plans[1].headline  # without a limit


def test_the_first_step_counts_where_it_holds_more_than_the_others(show: Show, plans: list[TorchPlan]) -> None:
    """An optimizer's first step, which makes its state, may set the peak: the page says what the command says."""
    both = replace(plans[0], phases=[plans[1].plan, plans[0].plan])
    assert both.peak > replace(both, phases=both.phases[-1:]).peak
    page = show(both).page
    assert page.locator("[data-test=headline]").inner_text().replace("→", "->").replace("−", "-") == both.headline
    assert " in the step that repeats) instead of " in page.locator("#summary-view .sentence").inner_text()
    assert page.locator("[data-peak]").first.get_attribute("data-peak") == str(both.peak)


def test_the_step_without_a_limit_is_drawn_behind(opened: Opened, plans: list[TorchPlan]) -> None:
    free = plans[1]
    held = opened.page.evaluate("pebbler.step().times.plan.unlimited.held")
    assert max(held) + free.headroom == free.unplanned_peak == free.peak
    assert len(held) == len(free.plan.graph.ops)
    # What a plan without a limit holds while each of its ops runs.
    replay, size = free.plan.replay(), free.plan.graph.dataflow.value_size
    now, most = sum(int(size[value]) for value, _ in replay.start), []
    for move, step in zip(free.plan.moves, replay, strict=True):
        now += sum(int(size[value]) for value, _ in step.added) - sum(int(size[value]) for value, _ in step.removed)
        most += [now] if isinstance(move, Compute) else []
    assert most == held
    assert "without a limit" in opened.page.locator("#step-view .legend").inner_text()
    choose(opened, 1)
    assert "without a limit" not in opened.page.locator("#step-view .legend").inner_text()


def test_modules_keep_what_is_there_when_the_backward_pass_begins(opened: Opened, plans: list[TorchPlan]) -> None:
    for number, planned in enumerate(plans[:2]):
        choose(opened, number)
        found = opened.page.evaluate("pebbler.moduleRows(pebbler.step().times.graph, pebbler.step().times.moves)")
        graph, flow = planned.plan.graph, planned.plan.graph.dataflow
        held: set[int] = set()
        for move, step in zip(planned.plan.moves, planned.plan.replay(), strict=True):
            if isinstance(move, Compute) and graph.op_named(move.op).meta["part"] == "backward":
                break
            held = held | {v for v, level in step.added if level == 0} - {v for v, level in step.removed if level == 0}
            held -= {v for v, level in step.removed if level == 0}
        part = [op.meta["part"] for op in graph.ops]
        kept = [
            v for v in held
            if flow.value_maker[v] >= 0 and part[flow.value_maker[v]] == "forward"
            and any(part[reader] != "forward" for reader in flow.value_readers.row(v).tolist())
            and not graph.tensors[flow.value_tensor[v]].name.endswith(".scratch")
        ]  # fmt: skip
        assert sum(row["kept"] for row in found) == sum(int(flow.value_size[v]) for v in kept)
        assert sum(row["sent"] for row in found) == planned.offloaded
        order = [graph.op_named(m.op) for m in planned.plan.moves if isinstance(m, Compute)]
        assert sum(row["again"] for row in found) == sum(op.cost for op in order) - sum(op.cost for op in graph.ops)
        assert opened.page.locator("[data-test=modules] tbody tr").count() == 1 + len(found)


def test_other_budgets_are_a_curve_that_falls(opened: Opened, plans: list[TorchPlan]) -> None:
    points = opened.page.evaluate("pebbler.data.curve.points")
    assert len(points) > 2
    assert points[-1] == {"peak": plans[1].unplanned_peak, "cost": sum(op.cost for op in plans[1].plan.graph.ops)}
    assert all(a["peak"] < b["peak"] and a["cost"] >= b["cost"] for a, b in pairwise(points))
    assert opened.page.locator("#landscape").is_hidden()
    assert opened.page.locator("a[href='#landscape']").is_hidden()


def test_what_a_file_says_wrongly_is_left_out(show: Show) -> None:
    strange = {"part": "sideways", "module": ["no", "text"], "line": 7, "calls": "mm"}
    markup = {"part": "forward", "module": "<img src=x onerror=window.hacked=1>", "line": "</script>", "calls": ["<b>"]}
    graph = (
        Graph("step", unit="byte").tensor("arg.0", 4, "param", meta={"label": ["odd"]}).tensor("a", 4).tensor("b", 4)
    )
    graph.op("a", ["arg.0"], ["a"], cost=5, meta=markup)
    graph.op("b", ["a"], ["b"], cost=5, meta=strange)
    one = Machine("device", "byte", (Level("memory", 0, 0, capacity=12),))
    plan = Plan.in_order(graph, one, meta={"torch": {"budget": "much"}, "cost_unit": "ns"})
    assert budget_of(plan) is None
    page = show(plan).page
    assert "<img src=x" in page.locator("#step-view").inner_text()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.slow
def test_graphs_that_are_no_steps_have_no_such_section(show: Show) -> None:
    assert step_of(workloads.note_mlp()) is None
    page = show(Plan.in_order(workloads.chain(3), machine("red-blue"), start={"N0": "fast"})).page
    assert page.locator("#step-view, a[href='#step']").count() == 0
