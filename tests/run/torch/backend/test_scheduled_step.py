"""The scheduled program of a step: its peak is what the compiled step holds, and one compilation is enough."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import chain, pairwise, permutations

import pytest
import torch
from torch import nn
from torch._inductor.dependencies import StarDep
from torch._inductor.scheduler import Scheduler
from torch.nn import functional

import pebbler.torch as pt
from pebbler.game.moves import Compute
from pebbler.referee.judgement import check
from pebbler.run.torch.backend import dynamo_backend, scheduled_graph, step_budget
from pebbler.run.torch.backend import scheduled_step as step_schedule
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.graph_frontier import GraphFrontier, Scheduled, fit_step, settle_place, step_peak
from pebbler.run.torch.backend.node_costs import measured_call
from pebbler.run.torch.backend.scheduled_graph import Allocation, Free, KernelCall, Reuse, ScheduledGraph
from pebbler.run.torch.backend.scheduled_step import scheduled_step
from pebbler.run.torch.backend.step_memory import SavedChoice
from pebbler.run.torch.plan.launch_fusion import held_between

pytestmark = [
    pytest.mark.usefixtures("graphs"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


def frontier_of(*choices, inputs=0):
    """Return choices of simulated peak, saved bytes and cost."""
    found = [SavedChoice((i,), held, cost, peak) for i, (peak, held, cost) in enumerate(choices)]
    return GraphFrontier("", [], found, eager=choices[0][0], inputs=inputs, padded=False)


def test_a_program_is_a_plan_and_its_peak_is_the_referees():
    forward = ScheduledGraph(
        inputs={"w": 10}, outputs=["loss", "h"], strides=[(), (1,)],
        events=[
            Allocation("h", 100), KernelCall("first", ("w",), ("h",), 1e-9),
            Allocation("t", 40), KernelCall("second", ("h",), ("t",), 1e-9), Reuse("t", "loss"),
            KernelCall("third", ("t",), ("loss",), 1e-9),
        ],
    )  # fmt: skip
    backward = ScheduledGraph(
        inputs={"h": 100, "tangents_1": 40}, outputs=["g"], strides=[(1,)],
        events=[
            Allocation("d", 30), KernelCall("fourth", ("h", "tangents_1"), ("d",), 1e-9, scratch=500), Free("h"),
            Free("tangents_1"),
            Allocation("g", 60), KernelCall("fifth", ("d",), ("g",), 1e-9), Free("d"),
        ],
    )  # fmt: skip
    step = scheduled_step(forward, backward, {"h": 1})
    assert step.peak == 10 + 100 + 40 + 30 + 500  # the fourth call, with its scratch memory
    assert check(step.plan).legal
    assert sum(isinstance(move, Compute) for move in step.plan.moves) == 6  # one of them takes the tangent
    assert step.seconds == pytest.approx(5e-9)


def test_gradients_of_results_are_held_until_backward_ends_unless_they_are_filled_in():
    forward = ScheduledGraph(
        inputs={"w": 10}, outputs=["y", "h"], strides=[(1,), (1,)],
        events=[
            Allocation("h", 100), KernelCall("first", ("w",), ("h",), 1e-9),
            Allocation("y", 40), KernelCall("second", ("h",), ("y",), 1e-9),
        ],
    )  # fmt: skip
    backward = ScheduledGraph(
        inputs={"h": 100, "tangents_1": 40}, outputs=["g"], strides=[(1,)],
        events=[
            Allocation("d", 30), KernelCall("third", ("h", "tangents_1"), ("d",), 1e-9), Free("tangents_1"),
            Allocation("g", 60), KernelCall("fourth", ("d", "h"), ("g",), 1e-9), Free("h"), Free("d"),
        ],
    )  # fmt: skip
    assert scheduled_step(forward, backward, {"h": 1}).peak == 10 + 100 + 40 + 30 + 60
    assert scheduled_step(forward, backward, {"h": 1}, passing=["tangents_1"]).peak == 10 + 100 + 30 + 60


@pytest.mark.parametrize("order", list(permutations(["d", "low", "high"])), ids="-".join)
def test_memory_of_which_parts_have_names_of_their_own_is_held_until_the_last_is_let_go(order):
    """The halves of a concatenation may be let go after the whole: each ended the memory again, and the plan was refused."""
    forward = ScheduledGraph(
        {"w": 10}, ["h"], [(1,)], [Allocation("h", 100), KernelCall("first", ("w",), ("h",), 1e-9)]
    )
    last = [Free(name) for name in order]
    backward = ScheduledGraph(
        inputs={"h": 100}, outputs=["g"], strides=[(1,)], aliases={"low": "d", "high": "d"},
        events=[
            Allocation("d", 40), KernelCall("halves", ("h",), ("low", "high"), 1e-9), KernelCall("sum", ("d",), (), 1e-9),
            *last[:2], Allocation("t", 7), KernelCall("next", ("h",), ("t",), 1e-9), Free("t"),
            *last[2:], Allocation("g", 60), KernelCall("last", ("h",), ("g",), 1e-9),
        ],
    )  # fmt: skip
    step = scheduled_step(forward, backward, {"h": 0})
    assert check(step.plan).legal
    assert step.peak == 10 + 100 + 60
    places = [str(move) for move in step.plan.moves]
    assert sum("backward d" in move and "rop" in move for move in places) == 1
    assert held_between(step.plan, "memory")[-3] == 10 + 100 + 40  # before the last of the three is let go


def test_few_schedules_correct_all_choices():
    frontier = frontier_of((1000, 900, 1.0), (800, 700, 1.1), (600, 500, 1.2), (400, 300, 1.5), (200, 100, 3.0))
    made = []

    def schedule(place):
        made.append(place)
        return Scheduled(int(1.5 * frontier.choices[place].peak), frontier.choices[place].cost)

    settle_place(frontier, 650, schedule)
    assert frontier.place == 3  # 600 as scheduled; 600 as simulated would be 900
    assert len(made) <= 3
    settle_place(frontier, 0, schedule)
    assert frontier.place == frontier.least == 4


@pytest.mark.parametrize("off", [0.8, 1.0, 1.3])
def test_the_least_ends_when_schedules_agree_on_what_was_simulated(off):
    """Of a Llama of 16 layers eight choices were scheduled in each of four forms, a minute each; the first was the least."""
    frontier = frontier_of((2000, 1900, 1.0), *((1000 - 10 * i, 900 - 10 * i, 1.0 + 0.01 * i) for i in range(60)))
    made = []

    def schedule(place):
        made.append(place)
        return Scheduled(round(off * frontier.choices[place].peak), frontier.choices[place].cost)

    settle_place(frontier, 0, schedule)
    assert frontier.place == 60
    assert len(made) <= 3


@pytest.mark.parametrize("seed", range(200))
def test_the_least_is_found_where_schedules_err_by_less_than_is_allowed_for(seed):
    draw = random.Random(seed)
    sizes = sorted((draw.randint(500, 1500) for _ in range(draw.randint(2, 12))), reverse=True)
    frontier = frontier_of(*((size, size, 1.0 + i) for i, size in enumerate(sizes)))
    frontier.own = [0]
    held = [round(size * draw.uniform(0.995, 1.0)) for size in sizes]
    settle_place(frontier, 0, lambda place: Scheduled(held[place], 1.0))
    assert frontier.peak() == min(held)


def test_no_choice_of_a_form_is_scheduled_that_cannot_hold_less_than_another_form():
    frontier = frontier_of((1000, 900, 1.0), (800, 700, 1.1))
    frontier.own = []
    settle_place(frontier, 0, pytest.fail, below=500)
    assert frontier.place == 1
    made = []
    settle_place(frontier, 0, lambda place: (made.append(place), Scheduled(790))[1], below=750)
    assert made == [1]


def test_after_a_miss_the_next_schedule_stays_on_the_safe_side():
    """On a T5 schedules held a seventh more than was expected, one after the other, and each took as long as compiling."""
    frontier = frontier_of(*((1000 - 10 * i, 900 - 10 * i, 1.0 + 0.001 * i) for i in range(60)))
    made = []

    def schedule(place):
        made.append(place)
        simulated = frontier.choices[place].peak
        return Scheduled(int(simulated * (1.05 + 0.4 * (1000 - simulated) / 600)), frontier.choices[place].cost)

    settle_place(frontier, 800, schedule)
    assert len(made) == 2
    assert 0.95 * 800 <= frontier.peak() <= 800


def test_a_choice_that_is_clearly_faster_than_torchs_own_is_scheduled_alone():
    frontier = frontier_of((1000, 900, 1.0), (590, 500, 1.2), (600, 510, 1.4))
    frontier.own = [0, 2]
    made = []
    settle_place(frontier, 600, lambda place: (made.append(place), Scheduled(590, 1.2))[1])
    assert (frontier.place, made) == (1, [1])


def test_a_graph_beside_others_is_scheduled_once_however_little_they_leave():
    """A Whisper's last graphs were scheduled eight times in each of four forms, before a measured step shared the room."""
    for room in (1, 300, 10_000):
        frontier = frontier_of((1000, 900, 1.0), (800, 700, 1.1), (600, 500, 1.2), (400, 300, 1.5))
        frontier.shared, made = True, []

        def schedule(place, frontier=frontier, made=made):
            made.append(place)
            return Scheduled(frontier.choices[place].peak + 50, frontier.choices[place].cost)

        settle_place(frontier, room, schedule)
        assert made == [frontier.place] == [0 if room == 10_000 else 3]


def test_nothing_is_scheduled_where_nothing_can_fit():
    frontier = frontier_of((1000, 900, 1.0), (800, 700, 1.1))
    settle_place(frontier, 300, pytest.fail)
    assert frontier.place == 1


def test_graphs_of_a_step_hold_what_those_before_them_have_saved():
    first = frontier_of((500, 400, 1.0), (150, 50, 1.2), inputs=10)
    second = frontier_of((500, 400, 1.0), (300, 200, 1.1))
    assert step_peak([first, second], [0, 0]) == 400 + 500
    assert step_peak([first, second], [1, 0]) == 50 + 500
    assert fit_step([first, second], 900) == [0, 0]
    assert fit_step([first, second], 700) == [0, 1]  # the cheaper way
    assert fit_step([first, second], 350) == [1, 1]
    assert fit_step([first, second], 1) == [1, 1]  # as little as there is


def test_a_torch_that_is_not_known_is_told_and_simulated(graphs, monkeypatch, caplog):
    def fail(self):
        raise AttributeError("no such thing")

    monkeypatch.setattr(scheduled_graph._ScheduleReader, "read", fail)
    layer = nn.Linear(8, 8)
    with caplog.at_level("WARNING", logger="pebbler"):
        torch.compile(lambda x: layer(x).tanh().sum(), backend=pebbler, options={"budget": 10**8})(torch.ones(4, 8))
    assert "schedule cannot be read" in caplog.text
    assert torch.__version__ in caplog.text
    assert graphs[0].frontier.peak() == graphs[0].frontier.choice.peak


def test_a_schedule_that_is_no_plan_does_not_stop_a_model(graphs, monkeypatch, caplog):
    def lose(*args):
        raise KeyError("buf55")

    monkeypatch.setattr(step_schedule, "scheduled_step", lose)
    layer = nn.Linear(8, 8)
    with caplog.at_level("WARNING", logger="pebbler"):
        torch.compile(lambda x: layer(x).tanh().sum(), backend=pebbler, options={"budget": 10**8})(torch.ones(4, 8))
    assert "schedule is no plan" in caplog.text
    assert graphs[0].frontier.peak() == graphs[0].frontier.choice.peak


def test_a_kernel_may_read_its_own_results(graphs, monkeypatch):
    """As kernels of Triton do whose parts have loops of their own: found on a Swin transformer."""
    asked = []
    own = scheduled_graph._ScheduleReader._ran

    def reading_its_own(self, node):
        reads = node.read_writes.reads
        for buf in node.get_outputs():
            reads.add(StarDep(buf.get_name()))
            asked.append(buf.get_name())
        return own(self, node)

    monkeypatch.setattr(scheduled_graph._ScheduleReader, "_ran", reading_its_own)
    layer = nn.Linear(8, 8)
    torch.compile(lambda x: layer(x).tanh().sum(), backend=pebbler, options={"budget": 10**8})(torch.ones(4, 8))
    assert asked
    assert graphs[0].frontier.scheduled[graphs[0].frontier.place].cost is not None


def test_a_model_that_is_planned_is_lowered_and_written_once(graphs, monkeypatch):
    made = []
    own = Scheduler.codegen
    monkeypatch.setattr(Scheduler, "codegen", lambda self: (made.append(self), own(self))[1])
    layer, x = nn.Linear(16, 16), torch.randn(8, 16)
    with torch._inductor.config.patch(fx_graph_cache=False):
        torch.compile(lambda x: layer(x).sin().square().sum(), backend=pebbler, options={"budget": 10**8})(x).backward()
    assert len(made) == 2  # forward and backward
    found = layer.weight.grad
    (expected,) = torch.autograd.grad(layer(x).sin().square().sum(), [layer.weight])
    torch.testing.assert_close(found, expected)


def test_a_form_that_wins_after_others_were_planned_is_not_lowered_again(graphs, monkeypatch, caplog):
    made, own = [], Scheduler.codegen
    monkeypatch.setattr(Scheduler, "codegen", lambda self: (made.append(self), own(self))[1])
    monkeypatch.setattr(dynamo_backend, "_AGAIN", -1.0)  # so the graph as it is and its chunks are always compared
    monkeypatch.setattr(
        dynamo_backend.PlannedGraph,
        "_price",
        lambda self, plan: (0, float(plan is not next(iter(self._plans.values())))),
    )
    head, x, target = nn.Linear(16, 512), torch.randn(1024, 16), torch.zeros(1024, dtype=torch.int64)

    def loss(x):
        return functional.cross_entropy(head(x), target)

    with torch._inductor.config.patch(fx_graph_cache=False), caplog.at_level("INFO", logger="pebbler"):
        torch.compile(loss, backend=pebbler, options={"budget": 5 * 2**20})(x).backward()
    (graph,) = graphs
    assert graph.forms.level == 0
    assert len(made) == 4  # forward and backward of both forms
    assert "lowered again" not in caplog.text
    assert graph.program() is not None
    found = head.weight.grad
    (expected,) = torch.autograd.grad(loss(x), [head.weight])
    torch.testing.assert_close(found, expected)


def test_torchs_own_choice_is_scheduled_and_taken_where_another_is_hardly_better():
    def settled(ours, theirs, held=600):
        """Return which of three choices is taken, given the times of ours and torch's own for the room of 600."""
        frontier = frontier_of((1000, 900, 1.0), (590, 500, 1.2), (600, 510, 1.25))
        frontier.own = [0, 2]
        peaks, costs, made = (1000, 590, held), (1.0, ours, theirs), []

        def schedule(place):
            made.append(place)
            return Scheduled(peaks[place], costs[place])

        settle_place(frontier, 600, schedule)
        return frontier.place, made

    assert settled(1.2, 1.22) == (2, [2, 1])
    assert settled(1.2, 1.3) == (1, [2, 1])
    assert settled(1.2, 1.1, held=601) == (1, [2, 1])  # it does not fit
    assert settled(1.0, 1.25) == (1, [2, 1])


def test_calls_are_measured_where_they_run():
    a, b = torch.ones(300, 300), torch.ones(300, 300)
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    x.meta["val"], y.meta["val"] = a, b
    product = graph.call_function(torch.ops.aten.mm.default, (x, y))
    found = measured_call(product, kinds=("cpu",))
    assert 0 < found.seconds < 1
    assert found.scratch < 1e6
    assert measured_call(product, {x: (1, 300)}, ("cpu",)) is not found  # laid out in another way
    assert measured_call(product, kinds=("cpu",)) is found
    assert measured_call(product) is None  # on a CPU a plan does not depend on the clock
    assert measured_call(graph.call_function(torch.ops.aten.add.Tensor, (x, y)), kinds=("cpu",)) is None
    y.meta["val"] = torch.ones(3)  # fails
    assert measured_call(product, kinds=("cpu",)) is None


def mlp():
    model = nn.Sequential(*chain(*[(nn.Linear(64, 64), nn.Tanh()) for _ in range(5)]))
    return model, lambda run, x: run(x).square().mean(), torch.randn(512, 64)


def conv():
    """Values large beside the workspaces of oneDNN, which take some 10 KB that no schedule knows, more on some processors."""
    model = nn.Sequential(*chain(*[(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(3)]))
    return model, lambda run, x: run(x).square().mean(), torch.randn(32, 4, 32, 32)


def attention():
    model = nn.Sequential(
        *[nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, activation="gelu") for _ in range(2)]
    )
    return model, lambda run, x: run(x).square().mean(), torch.randn(4, 64, 32)


def words():
    model = nn.Sequential(nn.Embedding(512, 32), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 512))
    y = torch.randint(512, (1024,))
    return model, lambda run, x: functional.cross_entropy(run(x).float(), y), torch.randint(512, (1024,))


KINDS = {"mlp": mlp, "conv": conv, "attention": attention, "words": words}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.9, 0.45, "least"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_predicted_is_held_and_one_compilation_is_enough(kind, share, graphs):
    torch.manual_seed(0)
    model, loss, x = KINDS[kind]()
    whole = torch.compile(lambda x: loss(model, x), backend=pebbler, options={"budget": share})
    try:
        for _ in range(3):
            model.zero_grad()
            whole(x).backward()
    except pt.OverBudget:
        assert graphs[0].frontier.place == graphs[0].frontier.least
    (budget,) = step_budget._BUDGETS.values()
    assert budget.predicted == pytest.approx(budget.held, rel=0.01)
    if share != 0.45:
        assert budget.compilations == 1


def test_gradients_that_nobody_gives_are_no_inputs(graphs):
    """Of logits that are returned beside the loss, for one."""
    layer, drop, x = nn.Linear(16, 64), nn.Dropout(0.1), torch.randn(32, 16)

    def both(x):
        logits = drop(layer(drop(x)))
        return logits.square().mean(), logits

    torch.compile(both, backend=pebbler, options={"budget": 10**8})(x)
    given = sum(p.nbytes for p in layer.parameters()) + x.nbytes
    assert given <= graphs[0].frontier.inputs < given + 64  # seeds


def blocks(count=3):
    return nn.Sequential(*chain(*[(nn.Linear(64, 64), nn.Tanh()) for _ in range(count)]))


def broken(compiled):
    """One model in several graphs, eager code between them."""
    first, second = blocks(), blocks()

    @compiled
    def run(x):
        x = first(x)
        torch._dynamo.graph_break()
        return second(x).square().mean()

    return [first, second], run


def eager_loss(compiled):
    """What is outside of the graph holds more than the graph."""
    body = blocks()
    run = compiled(body)
    return [body], lambda x: functional.softmax(run(x).repeat(1, 8), 1).log().square().mean()


def encoder_and_decoder(compiled):
    """Two compiled modules, the second of which is called twice."""
    models = blocks(2), blocks(4)
    encoder, decoder = map(compiled, models)
    return models, lambda x: (decoder(encoder(x)) + decoder(x)).square().mean()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [broken, eager_loss, encoder_and_decoder])
@pytest.mark.parametrize("share", [0.9, 0.6, "least"])
def test_what_several_graphs_and_eager_code_hold_is_predicted(kind, share, graphs):
    torch.manual_seed(0)
    models, loss = kind(lambda run: torch.compile(run, backend=pebbler, options={"budget": share}))
    x = torch.randn(2048, 64)
    with suppress(*([] if share == "least" else [pt.OverBudget])):
        for _ in range(6):
            for model in models:
                model.zero_grad()
            loss(x).backward()
    (budget,) = step_budget._BUDGETS.values()
    assert budget.predicted == pytest.approx(budget.held, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("filled", [False, True])
def test_gradients_of_results_are_held_as_predicted(filled, graphs):
    """To the end of backward where eager code gives them, else until they are read.

    In torch 2.11 zeros are held to the end, too: a T5 held half a GiB there, the size of its logits, more than its schedule said.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*chain(*[(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise((64, 1024, 1024, 64, 256))]))
    drop = nn.Dropout(0.1)  # the graph cannot be repeated, and its results do not come from a linear layer

    def both(x):
        y = drop(model(x))
        return y.square().mean(), y

    run, x = torch.compile(both if filled else model, backend=pebbler, options={"budget": 10**8}), torch.randn(2048, 64)
    for _ in range(3):
        model.zero_grad()
        (run(x)[0] if filled else run(x).square().mean()).backward()
    (budget,) = step_budget._BUDGETS.values()
    assert budget.predicted == pytest.approx(budget.held, rel=0.01)
    (graph,) = graphs
    assert graph.frontier.scheduled  # so the prediction is a schedule's
    assert graph._spare is None
    tangents = [name for name in graph.frontier.names if name.startswith("tangents")]
    assert len(tangents) == 1 + filled


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_small_t5_is_compiled_once_and_holds_what_is_predicted(graphs):
    """Four layers with dropout and tied weights, which simulated peaks missed by a quarter."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(
        d_model=128, d_kv=32, d_ff=512, num_layers=4, num_heads=4, vocab_size=1024, dropout_rate=0.1,
        decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).train()
    ids, labels = (torch.randint(1024, (8, 256)) for _ in range(2))
    run = torch.compile(model, backend=pebbler, options={"budget": 0.5})
    for _ in range(3):
        run(input_ids=ids, labels=labels).loss.backward()
        model.zero_grad()
    (budget,) = step_budget._BUDGETS.values()
    assert budget.compilations == 1
    assert budget.predicted == pytest.approx(budget.held, rel=0.02)
    (graph,) = graphs
    tangents = [name for name in graph.frontier.names if name.startswith("tangents")]
    assert len(tangents) == 3  # of the loss, the encoder's last state and the operand of the logits, not of the logits


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["mlp", "conv", "words"])
def test_losses_stay_as_near_to_eager_as_those_of_torch_compile(kind, graphs):
    def losses(compiled):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model, loss, x = KINDS[kind]()
        rule = torch.optim.SGD(model.parameters(), lr=0.05)
        run, found = compiled(lambda x: loss(model, x)), []
        for _ in range(50):
            rule.zero_grad()
            found.append(run(x))
            found[-1].backward()
            rule.step()
        return torch.stack([value.detach() for value in found])

    eager = losses(lambda run: run)
    theirs = (losses(torch.compile) - eager).abs().max()
    ours = (losses(lambda run: torch.compile(run, backend=pebbler, options={"budget": 0.7})) - eager).abs().max()
    assert ours <= 2 * theirs + 1e-5 * eager.abs().max()
