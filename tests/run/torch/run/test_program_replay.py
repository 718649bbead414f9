"""Replays on simulated graphs: same bits as the step, whatever changes between steps; call by call where that is not possible."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.run.torch.plan.planner import default_headroom  # noqa: E402
from pebbler.run.torch.run import compiled_step, planned_step  # noqa: E402
from pebbler.run.torch.run.program import Program  # noqa: E402
from simulated_graphs import SimulatedGraphs  # noqa: E402


@pytest.fixture
def simulated(monkeypatch):
    """What records on a CPU during a test."""
    graphs = SimulatedGraphs()
    for module in (compiled_step, planned_step):
        monkeypatch.setattr(module, "graphs_on", lambda device: graphs)
    return graphs


def small(**options):
    return models.mlp(depth=2, width=8, batch=16, **options)


def trained(training, step, count=8, between=lambda n: None):
    """Train from the start; return losses and all that is left."""
    training.reset()
    losses = []
    for n in range(count):
        losses.append(step(*training.batches[n % len(training.batches)]))
        between(n)
    return [loss.item() for loss in losses], [tensor.clone() for tensor in training.tensors()]


def assert_same(training, fast, **how):
    losses, state = trained(training, training.step, **how)
    ours, left = trained(training, fast, **how)
    assert ours == losses
    assert all(torch.equal(a, b) for a, b in zip(left, state, strict=True))


def replay_of(fast):
    (variants,) = fast._variants.values()
    return variants.plans[0]._runner.programs[-1].replay


@pytest.mark.parametrize("budget", [None, "97%"])
def test_a_step_is_recorded_once_and_then_replayed(simulated, budget):
    training = small()
    fast = pt.step(training.step, device="cpu", budget=budget, time_limit=1, replay="auto")
    assert_same(training, fast)
    replay = replay_of(fast)
    assert (replay.recordings, replay.why_not) == (1, None)
    assert replay.replays == simulated.prepared == 6  # all but the first two steps, one of which makes the momentum
    assert repr(fast).endswith("1 plan, replayed as 1 graph)")


def test_without_replay_nothing_is_recorded(simulated):
    training = small()
    fast = pt.step(training.step, device="cpu", replay=False)
    assert_same(training, fast)
    assert not simulated.recorders
    assert "replayed" not in repr(fast)


def test_a_cpu_replays_nothing_and_says_so_only_when_asked():
    training = small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = pt.step(training.step, device="cpu", replay="auto")
        trained(training, fast)
    assert "replayed" not in repr(fast)
    with pytest.warns(UserWarning, match="not replayed: nothing can be recorded on cpu"):
        trained(training, pt.step(training.step, device="cpu", replay=True), 2)
    with pytest.raises(InputError, match="replay must be auto, True or False"):
        pt.step(training.step, replay="yes")


def test_a_schedule_costs_one_recording_and_then_runs_between(simulated):
    training = small()
    fast = pt.step(training.step, device="cpu", replay="auto")

    def schedule(n):
        training.optimizer.param_groups[0]["lr"] *= 0.9

    assert_same(training, fast, between=schedule)
    assert replay_of(fast).recordings == 2
    assert "between them" in repr(fast)
    momentum = training.optimizer.param_groups[0]

    def both(n):
        schedule(n)
        momentum["momentum"] = 0.9 - 0.01 * n

    assert_same(training, fast, between=both)
    momentum["momentum"] = 0.9


@pytest.mark.parametrize("rule", [torch.optim.AdamW, torch.optim.Adafactor])
def test_numbers_from_counters_and_norms_are_those_of_every_step(simulated, rule):
    training = small()
    training.optimizer = rule(training.model.parameters(), lr=0.01)
    training.rate = 0.01
    fast = pt.step(training.step, device="cpu", replay="auto")
    assert_same(training, fast)
    assert replay_of(fast).why_not is None
    assert "between them" in repr(fast)


@pytest.mark.slow
def test_masks_are_drawn_afresh_and_again_as_they_were(simulated):
    training = models.mlp(depth=4, width=16, batch=256)
    layers = list(training.model)
    training.model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.Dropout(0.3))))
    training.start = {name: value.clone() for name, value in training.model.state_dict().items()}
    captured = pt.capture(training.step, *training.batches[0])
    least = pt.least_budget(captured, pt.roofline(captured, "cpu"), time_limit=1)[1]
    copies = sum(x.nbytes for x in training.batches[0])  # of arguments, which a recording reads
    fast = pt.step(training.step, device="cpu", budget=least + copies + 4096, time_limit=1, replay="auto")
    assert_same(training, fast)
    assert replay_of(fast).replays == 6
    program = fast._variants.popitem()[1].plans[0].code
    assert "restore_generator" in program  # some masks are made again
    assert len(set(trained(training, fast, 4)[0])) == 4


def test_every_shape_has_a_recording(simulated):
    training = small()
    (x, y), *_ = training.batches
    training.batches = [(x[:n], y[:n]) for n in (16, 9)]
    fast = pt.step(training.step, device="cpu", replay="auto")
    assert_same(training, fast, count=12)
    assert [variants.plans[0].replayed for variants in fast._variants.values()] == ["replayed as 1 graph"] * 2


def test_loaded_state_in_other_places_is_recorded_again(simulated):
    training = small()
    fast = pt.step(training.step, device="cpu", replay="auto")
    saved = {}

    def checkpoint(n):
        if n == 4:
            saved.update(copy.deepcopy({"model": training.model.state_dict(), **training.optimizer.state_dict()}))
        if n == 6:
            training.model.load_state_dict(saved.pop("model"))
            training.optimizer.load_state_dict(saved)

    assert_same(training, fast, count=12, between=checkpoint)
    assert replay_of(fast).recordings == 2


def test_state_that_moves_at_every_call_is_not_recorded_for_ever(simulated):
    training = small()
    fast = pt.step(training.step, device="cpu", replay=True)

    def move(n):
        training.optimizer.load_state_dict(training.optimizer.state_dict())
        for values in training.optimizer.state.values():
            values["momentum_buffer"] = values["momentum_buffer"].clone()

    assert_same(training, fast, count=12, between=move)
    assert replay_of(fast).recordings <= 4
    assert "not replayed: the tensors that it changes are somewhere else at every call" in repr(fast)


class Accumulating:
    """A step that adds to gradients; the loop updates the weights at every third call and throws the gradients away."""

    def __init__(self):
        self.training = small()

    def step(self, x, y):
        loss = self.training.loss(self.training.model, x, y)
        loss.backward()
        return loss

    def run(self, step, kept=lambda: None):
        self.training.reset()
        losses = []
        for n in range(15):
            losses.append(step(*self.training.batches[n % 4]).item())
            kept()
            if n % 3 == 2:
                self.training.optimizer.step()
                self.training.optimizer.zero_grad()
        return losses, [tensor.clone() for tensor in self.training.tensors()]


def test_gradients_are_added_up_and_may_be_kept(simulated):
    mine = Accumulating()
    losses, state = mine.run(mine.step)
    fast = pt.step(mine.step, device="cpu", keep_grads=True, replay="auto")
    ours, left = mine.run(fast)
    assert ours == losses
    assert all(torch.equal(a, b) for a, b in zip(left, state, strict=True))
    programs = [program for v in fast._variants.values() for plan in v.plans for program in plan._runner.programs]
    assert max(program.replay.replays for program in programs) > 2
    kept = []
    eager, expected = [], []
    mine.run(mine.step, lambda: eager.append(next(mine.training.model.parameters()).grad))
    expected = [grad.clone() for grad in eager]
    ours, left = mine.run(fast, lambda: kept.append(next(mine.training.model.parameters()).grad))
    assert ours == losses
    assert all(torch.equal(a, b) for a, b in zip(kept, expected, strict=True))  # nobody has written into them


def test_results_are_copies_and_views_of_arguments_stay_views(simulated):
    weight = torch.ones(3)

    def step(x, seen):
        seen += 1
        weight.mul_(0.5)
        y = x * weight
        return y, y[1:], x[1:], seen

    fast = pt.step(step, device="cpu", strict=True, replay="auto")
    seen, kept = torch.zeros(()), []
    for n in range(6):
        x = torch.full((2, 3), float(n))[0]
        kept.append((x, *fast(x, seen)))
    assert "replayed as 1 graph" in repr(fast)
    assert seen.item() == 6
    for n, (x, y, part, view, same) in enumerate(kept):
        assert y.tolist() == [n * 0.5 ** (n + 1)] * 3
        assert part.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
        assert view.data_ptr() == x[1:].data_ptr()
        assert same is seen


def test_what_cannot_be_recorded_runs_call_by_call(simulated):
    training = small()
    simulated.refused = ("aten.threshold_backward",)
    fast = pt.step(training.step, device="cpu", replay=True)
    refused = "not replayed: it could not be recorded .RuntimeError: operation not permitted"
    with pytest.warns(UserWarning, match=refused):
        assert_same(training, fast)
    assert simulated.abandoned == 1
    assert replay_of(fast).replays == 0


@pytest.mark.slow
def test_a_recording_beyond_the_budget_is_not_used(simulated):
    training = small()
    simulated.over = 3
    fast = pt.step(training.step, device="cpu", budget="100%", headroom=4096, time_limit=1, replay="auto")
    assert_same(training, fast)
    assert (simulated.abandoned, replay_of(fast).replays) == (1, 0)
    assert "not replayed: that would hold 3 bytes more than the budget" in repr(fast)


@pytest.mark.slow
def test_a_plan_with_more_headroom_is_made_where_a_recording_needs_it(simulated):
    training = small()
    fast = pt.step(training.step, device="cpu", budget="99%", time_limit=1, replay="auto")

    def fits(n):
        simulated.over = 4 if n < 3 else 0

    assert_same(training, fast, between=fits)
    (variants,) = fast._variants.values()
    (plan,) = variants.plans
    usual = default_headroom(plan.plan.captured, pt.roofline(plan.plan.captured, "cpu"))
    arguments = sum(x.nbytes for x in training.batches[0])
    assert plan.plan.headroom == usual + arguments + 5 * variants.tries
    assert variants.tries >= 1
    assert plan.plan.peak <= plan.plan.budget
    assert replay_of(fast).replays > 0


@pytest.mark.slow
def test_where_no_plan_leaves_more_room_the_first_one_stays(simulated):
    training = small()
    simulated.over = 10**6
    fast = pt.step(training.step, device="cpu", budget="99%", time_limit=1, replay="auto")
    assert_same(training, fast)
    assert "not replayed: that would hold" in repr(fast)
    assert simulated.abandoned == 1


def test_a_replay_that_does_something_else_is_given_up(simulated, monkeypatch):
    training = small()
    fast = pt.step(training.step, device="cpu", replay="auto")
    monkeypatch.setattr("simulated_graphs.Piece.replay", lambda self: None)
    assert_same(training, fast)
    assert "not replayed: it did not do the same (" in repr(fast)


@pytest.mark.parametrize("wrong", [None, "draws", "weights"])
def test_where_kernels_do_not_repeat_their_bits_a_replay_must_come_near(simulated, monkeypatch, wrong):
    training = small()
    training.model.append(torch.nn.Dropout(0.1))
    noise, run = [0], Program.__call__

    def uneven(program, *inputs):
        outputs = run(program, *inputs)
        if wrong == "draws" and program.replay.replays:
            torch.rand(1)
        if wrong == "weights" and program.replay.replays:
            next(training.model.parameters()).data.mul_(1.5)
        noise[0] *= 2  # another one every time, as sums in no fixed order are
        return [outputs[0] + 1e-6 * noise[0], *outputs[1:]]

    monkeypatch.setattr(Program, "__call__", uneven)
    fast = pt.step(training.step, device="cpu", verify="first", replay="auto")
    training.reset()
    for n, batch in enumerate(training.batches):
        noise[0] = n // 2  # from the third call on: all phases have been compared by then
        fast(*batch)
    assert ("not replayed: it did not do the same" in repr(fast)) == (wrong is not None)


def test_a_generator_that_the_step_sets_is_left_to_the_step(simulated):
    training = small()

    def step(x, y):
        torch.manual_seed(3)
        return training.step(torch.nn.functional.dropout(x, 0.5), y)

    fast = pt.step(step, device="cpu", replay="auto")
    losses = [trained(training, run)[0] for run in (step, fast)]
    assert losses[0] == losses[1]
    assert "not replayed: the step sets or reads the state of a random generator" in repr(fast)


def test_a_step_that_fails_between_recordings_says_what_it_changed(simulated, monkeypatch):
    training = small()
    fast = pt.step(training.step, device="cpu", replay="auto")

    def schedule(n):
        training.optimizer.param_groups[0]["lr"] *= 0.9

    trained(training, fast, between=schedule)
    recorded = replay_of(fast)._recorded
    node = [step for step in recorded.steps if isinstance(step, torch.fx.Node) and step in recorded.between][-1]
    target, failing = node.target, [True]

    def fail(*args, **kwargs):
        if failing[0]:
            raise torch.OutOfMemoryError("no more")
        return target(*args, **kwargs)

    node.target = fail
    before = replay_of(fast).replays
    with pytest.raises(torch.OutOfMemoryError) as error:
        fast(*training.batches[0])
    assert "when the planned step failed, up to" in error.value.__notes__[0]
    failing[0] = False
    training.reset()
    fast(*training.batches[0])
    assert replay_of(fast).replays >= before


@pytest.mark.parametrize("verify", ["first", "never", 3])
def test_replays_with_every_way_to_verify(simulated, verify):
    training = small()
    fast = pt.step(training.step, device="cpu", verify=verify, replay="auto")
    assert_same(training, fast)
    assert replay_of(fast).replays >= 6


@pytest.mark.slow
def test_values_that_go_to_the_host_and_back_are_recorded_too(simulated, deep):
    training, captured, least = deep
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"), budget=least, offload=True, time_limit=1)
    assert plan.offloaded
    fast = pt.compile(plan, training.step, replay="auto")
    assert_same(training, fast)
    assert fast.replayed == "replayed as 1 graph"
