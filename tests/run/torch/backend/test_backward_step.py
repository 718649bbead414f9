"""Optimizer steps during backward: the same bits as the ordinary loop, less memory, and refusals where it cannot be right."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import pebbler.torch as pt
from pebbler.errors import InputError
from pebbler.run.torch.backend import backward_step, step_budget
from pebbler.run.torch.backend.dynamo_backend import pebbler

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")]
RULES = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "adamw_foreach": lambda groups: torch.optim.AdamW(groups, lr=0.01, foreach=True),
    "adamw_fused": lambda groups: torch.optim.AdamW(groups, lr=0.01, fused=True),
    "adamw_tensor_lr": lambda groups: torch.optim.AdamW(groups, lr=torch.tensor(0.01), foreach=False),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.01, lr_decay=0.1),
    "nadam": lambda groups: torch.optim.NAdam(groups, lr=0.01),
    "adafactor": lambda groups: torch.optim.Adafactor(groups, lr=0.01),
}


class Tied(nn.Module):
    """Weights that are used twice, and one that gets no gradient in most steps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.middle, self.rare = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, tokens, rare):
        x = self.middle(self.embed(tokens)).tanh()
        x = self.rare(x) if rare else x
        return nn.functional.cross_entropy(x @ self.embed.weight.T, tokens)


def build(rule):
    model = Tied()
    biases = [p for p in model.parameters() if p.dim() == 1]
    weights = [p for p in model.parameters() if p.dim() > 1]
    optimizer = RULES[rule]([{"params": weights}, {"params": biases, "weight_decay": 0.0}])
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def train(model, optimizer, scheduler, closure=False):
    for turn in range(6):
        torch.manual_seed(turn)
        tokens = torch.randint(11, (5,))
        if closure:

            def run(tokens=tokens, turn=turn):
                optimizer.zero_grad()
                loss = model(tokens, turn == 3)
                loss.backward()
                return loss

            optimizer.step(run)
        else:
            loss = model(tokens, turn == 3)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()


@pytest.mark.parametrize("closure", [False, True], ids=["plain", "closure"])
@pytest.mark.parametrize("rule", RULES)
def test_the_bits_are_those_of_the_ordinary_loop(rule, closure):
    wanted, found = build(rule), build(rule)
    train(*wanted, closure)
    pt.step_in_backward(found[1])
    train(*found, closure)
    assert found[1].state_dict()["param_groups"] == wanted[1].state_dict()["param_groups"]
    for ours, theirs in zip(found[0].parameters(), wanted[0].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    states = [optimizer.state_dict()["state"] for optimizer in (found[1], wanted[1])]
    assert states[0].keys() == states[1].keys()
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_a_state_that_was_saved_is_taken_up(tmp_path):
    wanted, found = build("adamw_foreach"), build("adamw_foreach")
    pt.step_in_backward(found[1])
    for parts in (wanted, found):
        train(*parts)
    torch.save(found[1].state_dict(), tmp_path / "state.pt")
    model, optimizer, scheduler = build("adamw_foreach")
    model.load_state_dict(copy.deepcopy(found[0].state_dict()))
    pt.step_in_backward(optimizer)
    optimizer.load_state_dict(torch.load(tmp_path / "state.pt"))
    scheduler.load_state_dict(found[2].state_dict())
    train(model, optimizer, scheduler)
    train(*wanted)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), wanted[0].parameters(), strict=True))


def loop_peak(inside):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(200, 200) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if inside:
        pt.step_in_backward(optimizer)

    def step():
        model(torch.ones(4, 200)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return pt.measure_peak(step)[1]


def test_one_gradient_at_a_time_is_held():
    everything, one = loop_peak(False), loop_peak(True)
    assert everything > 8 * 160_000
    assert one < 3 * 160_000


def after_backward():
    model, optimizer, _ = build("adamw_fused")
    pt.step_in_backward(optimizer)
    model(torch.arange(5), True).backward()
    return model, optimizer


def test_clipping_by_a_global_norm_is_refused():
    model, _ = after_backward()
    with pytest.raises(pt.GradientGone, match="Clipping by a global norm"):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with pytest.raises(pt.GradientGone, match="used by the optimizer during backward"):
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)


def test_gradients_are_not_added_up():
    model, _ = after_backward()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(pt.GradientGone, match="several backward passes"):
        model(torch.arange(5), True).backward()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_scaled_losses_are_refused():
    _, optimizer = after_backward()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(pt.GradientGone, match="GradScaler"):
        scaler.step(optimizer)
    with pytest.raises(pt.GradientGone):
        optimizer.zero_grad(set_to_none=False)


def test_optimizers_that_nobody_knows_must_be_vouched_for():
    class Mine(torch.optim.SGD):
        pass

    model = nn.Linear(2, 2)
    with pytest.raises(InputError, match=r"Mine updates every parameter.*alone=True"):
        pt.step_in_backward(Mine(model.parameters(), lr=0.1))
    with pytest.raises(InputError, match="LBFGS"):
        pt.step_in_backward(torch.optim.LBFGS(model.parameters()))
    pt.step_in_backward(Mine(model.parameters(), lr=0.1), alone=True)

    class Counts(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["turn"] = group.get("turn", 0) + 1
            return super().step(closure)

    other = nn.Linear(2, 2)
    pt.step_in_backward(Counts([{"params": list(other.parameters()), "turn": 0}], lr=0.1), alone=True)
    with pytest.raises(InputError, match="changes its groups' numbers"):
        other(torch.ones(1, 2)).sum().backward()


def test_hooks_and_gradients_that_are_there_are_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(InputError, match="gradients already"):
        pt.step_in_backward(optimizer)
    optimizer.zero_grad()
    optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(InputError, match="hooks before its steps"):
        pt.step_in_backward(optimizer)


def test_it_can_be_undone():
    model = nn.Linear(2, 2)
    undo = pt.step_in_backward(torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(1, 2)).sum().backward()
    undo()
    before = model.weight.clone()
    model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(model.weight, before)
    assert type(model.weight.grad) is torch.Tensor


def test_state_is_moved_for_each_update_and_back(monkeypatch):
    moves = []
    monkeypatch.setattr(backward_step, "_move", lambda state, device: moves.append((len(state), device.type)))
    model, optimizer, scheduler = build("adam")
    pt.step_in_backward(optimizer, host_state=True)
    train(model, optimizer, scheduler)
    assert moves[:2] == [(0, "cpu"), (4, "cpu")]  # none yet, then what Adam made
    assert moves[-2:] == [(4, "cpu"), (4, "cpu")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_state_lives_on_the_host():
    results = []
    for host in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(64, 64).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        pt.step_in_backward(optimizer, host_state=host)
        for _ in range(3):
            model(torch.ones(8, 64, device="cuda")).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        places = {v.device.type for s in optimizer.state.values() for v in s.values() if v.dim()}
        assert places == {"cpu" if host else "cuda"}
        results.append([p.detach().cpu() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_compiled_within_a_budget(monkeypatch):
    """With the backend, whose meter looks at gradients: they may have been used already."""
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    numbers = []
    for inside in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if inside:
            pt.step_in_backward(optimizer)
        compiled = torch.compile(model, backend=pebbler, options={"budget": "1MB"})
        for _ in range(3):
            loss = compiled(torch.ones(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if not inside:
                optimizer.step()
        numbers.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*numbers, strict=True))
