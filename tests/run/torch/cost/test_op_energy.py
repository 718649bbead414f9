"""Joules of single ops by a counter: the largest kinds are measured, the rest is modelled, and both are told apart."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.joules import energy_counters as counters  # noqa: E402
from pebbler.joules.energy_counters import NoCounter  # noqa: E402
from pebbler.joules.meter import EnergyMeter  # noqa: E402
from pebbler.joules.power import PowerReading  # noqa: E402
from pebbler.run.torch.cost import op_energy, op_prices  # noqa: E402
from pebbler.run.torch.cost.costs import calibrated_device, estimate, find_device  # noqa: E402
from pebbler.run.torch.cost.op_energy import NotRecorded  # noqa: E402
from simulated_meters import WallCounter  # noqa: E402


@pytest.fixture
def quick(monkeypatch):
    """Windows of a few updates."""
    monkeypatch.setattr(op_energy.OpMeter.__init__, "__defaults__", (0.1,))


def step(x):
    return ((x @ x).relu() @ x).sum()


def test_measured_joules_are_the_counters(quick):
    captured = pt.capture(step, torch.ones(300, 300))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter(watts=200)]), seconds=60)
    assert costs.energy.static_watts == pytest.approx(200, rel=0.2)
    assert costs.energy.measured_share > 0.9
    assert 1 <= costs.energy.kinds <= costs.energy.all_kinds
    for cost in costs[-1]:
        if cost.seconds > 1e-4:
            assert cost.joules == pytest.approx(200 * cost.seconds, rel=0.2)
    plan = pt.plan_captured(captured, costs, objective="energy")
    assert plan.joules_from == "measured"
    predicted = pt.predict_energy(plan, costs)
    assert predicted.joules == pytest.approx(sum(cost.joules for cost in costs[-1]))
    assert predicted.seconds == pytest.approx(sum(cost.seconds for cost in costs[-1]))


def test_without_time_for_the_counter_everything_is_modelled(quick):
    captured = pt.capture(step, torch.ones(100, 100))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter(watts=50)]), seconds=0.0)
    assert costs.energy.kinds == 0
    assert costs.energy.measured_share == 0
    assert costs.energy.modelled_joules == 0
    assert costs.energy.together_joules == pytest.approx(sum(cost.joules for cost in costs[-1]))
    assert all(cost.joules == pytest.approx(50 * cost.seconds, rel=0.2) for cost in costs[-1])


def test_what_does_not_fit_into_memory_together_is_modelled(quick, monkeypatch):
    def full(self, runs, copies=False, longer=1.0):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(op_energy.OpMeter, "measure", full)
    captured = pt.capture(step, torch.ones(100, 100))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter(watts=50)]), seconds=0.0)
    assert costs.energy.together_joules == costs.energy.alone_joules == 0
    # What an op moves and computes, and static power for as long as it takes.
    first = costs[-1][0]
    described = estimate(captured.phases[-1].record, captured.phases[-1].groups[0], find_device("cpu")).joules
    assert first.joules == pytest.approx(described + costs.energy.static_watts * first.seconds, rel=0.01)


def test_ops_that_cannot_run_together_are_halved_until_they_can(quick, monkeypatch):
    windows, mixtures = [], []

    def noted(self, runs, copies=False, longer=1.0):
        names = [run.group.name for run in runs]
        if len(runs) > 1 and "cos" in names:
            raise NotRecorded
        (windows if longer == 1 else mixtures).append(names)
        return PowerReading(70.0, 1e-3, 0.01, 3)

    monkeypatch.setattr(op_energy.OpMeter, "measure", noted)
    captured = pt.capture(lambda x: x.exp().sin().cos().tan().sqrt(), torch.ones(100, 100))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter()]), seconds=0.0)
    assert sorted(name for names in windows for name in names) == ["cos", "exp", "sin", "sqrt", "tan"]
    assert ["cos"] in windows
    assert 1 < len(windows) < 5
    assert costs.energy.modelled_joules == 0
    assert sorted(map(sorted, mixtures)) == [["exp", "sqrt"], ["sin", "tan"]]  # every other one, twice


def test_ops_run_together_in_parts_that_fit(quick, monkeypatch):
    windows = []

    def noted(self, runs, copies=False, longer=1.0):
        if longer > 1:  # a mixture takes what the two windows take
            return PowerReading(70.0, 2e-3, 0.01, 3)
        windows.append([(run.group.name, run.count) for run in runs])
        return PowerReading(70.0, 1e-3, 0.01, 3)

    monkeypatch.setattr(op_energy.OpMeter, "measure", noted)
    captured = pt.capture(lambda x: (x.exp().exp().exp() @ x @ x).sin(), torch.ones(100, 100))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter()]), seconds=0.0)
    assert sorted(map(sorted, windows)) == [[("exp", 3), ("sin", 1)], [("mm", 2)]]
    assert sum(cost.seconds for cost in costs[-1]) == pytest.approx(2e-3)
    assert sum(cost.joules for cost in costs[-1]) == pytest.approx(2 * 70e-3)
    windows.clear()
    monkeypatch.setattr(op_prices, "_TOGETHER", {"cpu": 100_000})
    pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter()]), seconds=0.0)
    assert len(windows) == 3  # exp and sin no longer fit into one


class LimitedDevice:
    """A GPU with a power limit: products would draw 1200 W for 1 ms, the others draw 200 W for 1 ms; 700 W are allowed.

    What draws more runs slower, and takes fewer joules for it: at a clock c a product takes 1 / c ms and c ** 2 of its joules.
    """

    def __init__(self):
        self.mixtures = []

    def measure(self, runs, copies=False, longer=1.0):
        def seconds(clock):
            return sum(run.count * (1e-3 / clock if run.group.name == "mm" else 1e-3) for run in runs)

        def joules(clock):
            return sum(run.count * (1.2 * clock**2 if run.group.name == "mm" else 0.2) for run in runs)

        clock = max(c / 1000 for c in range(100, 1001) if joules(c / 1000) <= 700 * seconds(c / 1000))
        if longer > 1:
            self.mixtures.append({run.group.name: run.count for run in runs})
        once = runs[0].count if len(runs) == 1 and copies else 1
        return PowerReading(joules(clock) / seconds(clock), seconds(clock) / once, 0.01, 3)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_prices_are_those_of_a_mixture_in_which_ops_share_the_power_limit(quick, monkeypatch, seconds):
    device = LimitedDevice()
    monkeypatch.setattr(op_energy.OpMeter, "measure", lambda self, *words, **more: device.measure(*words, **more))
    captured = pt.capture(lambda x, y: (x @ y @ y @ y).exp().exp().sin(), *torch.ones(2, 200, 200))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter()]), seconds=seconds)
    assert device.mixtures == [{"mm": 3, "exp": 2, "sin": 1}]
    # 3 x 1.2 J and 3 x 0.2 J in 6 ms is just what is allowed: nothing is slowed down, as it is apart.
    assert sum(cost.joules for cost in costs[-1]) == pytest.approx(3 * 1.2 + 3 * 0.2)
    assert sum(cost.seconds for cost in costs[-1]) == pytest.approx(6e-3)
    told = costs.energy
    clock = 0.835  # of a product alone: 1200 W x 0.835 ** 3 is 700 W
    assert told.mixed_joules == pytest.approx(4.2 / (3 * 1.2 * clock**2 + 3 * 0.2))
    assert told.mixed_seconds == pytest.approx(6 / (3 / clock + 3))
    assert told.alone_joules + told.together_joules == pytest.approx(4.2)
    # A kernel that is measured later, as launches of several ops are, costs what it would in that mixture.
    later = pt.capture(lambda x: x.tan(), torch.ones(200, 200)).phases[-1]
    costs.measure(later, later.groups)
    cost = costs.price(later, later.groups[0])
    assert cost.joules == pytest.approx(0.2 * told.mixed_joules)
    assert cost.seconds == pytest.approx(1e-3 * told.mixed_seconds)
    assert device.mixtures == [{"mm": 3, "exp": 2, "sin": 1}]


def test_kinds_of_ops_measured_before_are_not_measured_again(quick, monkeypatch):
    windows = []

    def noted(self, runs, copies=False, longer=1.0):
        windows.append(({run.group.name for run in runs}, longer))
        return PowerReading(100.0, 1e-3 * sum(run.count for run in runs), 0.01, 3)

    monkeypatch.setattr(op_energy.OpMeter, "measure", noted)
    captured = pt.capture(lambda x, y: (x @ y).exp().sin() @ y, *torch.ones(2, 50, 50))
    meter = EnergyMeter([WallCounter()])
    first = pt.profile(captured, energy="measured", meter=meter, seconds=0.0)
    assert [names for names, _ in windows] == [{"mm"}, {"exp", "sin"}, {"mm", "exp", "sin"}]
    windows.clear()
    fused = pt.fuse(captured)
    second = pt.profile(fused, energy="measured", meter=meter, seconds=0.0, known=first)
    kernel = fused.phases[-1].groups[1].name
    assert [names for names, _ in windows] == [
        {kernel},
        {"mm", kernel},
    ]  # a fused op is another kind, and so is its mixture
    assert [cost.joules for cost in second[-1]] == pytest.approx([0.1, 0.1, 0.1])
    # Compiled, an operator by itself is another kind of op as well: it may run as a kernel.
    windows.clear()
    single = pt.capture(lambda x, y: (x @ y).exp() @ y, *torch.ones(2, 50, 50))
    before = pt.profile(single, energy="measured", meter=meter, seconds=0.0)
    windows.clear()
    pt.profile(pt.fuse(single), energy="measured", meter=meter, seconds=0.0, known=before)
    assert windows[0] == ({"exp"}, 1.0)


def test_a_mixture_that_does_not_fit_into_memory_runs_in_parts(quick, monkeypatch):
    device = LimitedDevice()
    monkeypatch.setattr(op_energy.OpMeter, "measure", lambda self, *words, **more: device.measure(*words, **more))
    monkeypatch.setattr(op_prices, "_room", lambda place: 170_000)  # two kinds
    captured = pt.capture(lambda x: x.exp().sin().cos().tan(), torch.ones(100, 100))
    costs = pt.profile(captured, energy="measured", meter=EnergyMeter([WallCounter()]), seconds=0.0)
    assert sorted(map(len, device.mixtures)) == [2, 2]
    assert (costs.energy.mixed_joules, costs.energy.mixed_seconds) == pytest.approx((1, 1))


def test_no_counter_no_joules_and_planning_for_energy_says_that_they_are_described(monkeypatch):
    monkeypatch.setattr(counters, "nvml_counters", lambda uuids: ([], "NVIDIA GPUs: none in this test"))
    monkeypatch.setattr(counters, "rapl_counters", lambda: ([], "CPU: none in this test"))
    captured = pt.capture(step, torch.ones(50, 50))
    with pytest.raises(NoCounter, match="none in this test"):
        pt.profile(captured, energy="measured")
    assert pt.profile(captured).energy is None
    plan = pt.plan(step, [torch.ones(50, 50)], objective="energy", time_limit=1)
    assert plan.joules_from == "described"
    assert pt.plan(step, [torch.ones(50, 50)], time_limit=1).joules_from is None


def test_planning_for_energy_asks_the_counter_where_there_is_one(monkeypatch, quick, tmp_path):
    monkeypatch.setattr(op_energy, "find_counters", lambda uuids=None: [WallCounter(watts=100)])
    plan = pt.plan(step, [torch.ones(50, 50)], objective="energy", time_limit=1)
    assert plan.joules_from == "measured"
    plan.save(tmp_path / "plan.json")
    assert pt.TorchPlan.load(tmp_path / "plan.json").joules_from == "measured"
    with pytest.raises(InputError, match="made in this process"):
        pt.predict_energy(pt.TorchPlan.load(tmp_path / "plan.json"), pt.Costs([]))


def test_energy_is_measured_or_described():
    with pytest.raises(InputError, match="energy must be described or measured, got guessed"):
        pt.profile(pt.capture(step, torch.ones(5, 5)), energy="guessed")


CALIBRATED = """
name = "mine"
unit = "byte"
{prices}
[[level]]
name = "DRAM"
read = 10
write = 10

[device]
name = "mine"
kind = "cpu"
bandwidth = 1e9
{joules}
[device.rates.float32]
flops = 1e9
{flop}
[device.rates.bfloat16]
flops = 4e9
{flop}
"""


def test_a_calibrated_file_is_a_device(tmp_path):
    path = tmp_path / "mine.toml"
    joules = "static_watts = 10.0\njoules_per_byte = 1e-9\njoules_per_launch = 1e-3"
    path.write_text(CALIBRATED.format(prices="", joules=joules, flop="joules_per_flop = 2e-9"))
    captured = pt.capture(lambda x: x @ x, torch.ones(100, 100))
    (cost,) = pt.roofline(captured, str(path))[0]
    flops, moved = 2e6, 2 * 40_000  # the operand, which is read once, and the result
    assert cost.seconds == pytest.approx(flops / 1e9)
    assert cost.joules == pytest.approx(flops * 2e-9 + moved * 1e-9 + 1e-3 + 10 * cost.seconds)
    half = pt.capture(lambda x: x @ x, torch.ones(100, 100, dtype=torch.bfloat16))
    assert pt.roofline(half, str(path))[0][0].seconds == pytest.approx(flops / 4e9)
    plan = pt.plan(lambda x: x @ x, [torch.ones(100, 100)], device=str(path), objective="energy")
    assert plan.cost == pytest.approx(cost.joules, rel=1e-6)


def test_a_device_calibrated_without_a_counter_plans_for_time_only(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(CALIBRATED.format(prices='prices = "ns"', joules="", flop=""))
    device = find_device(str(path))
    assert math.isnan(device.joules_per_byte)
    assert device == calibrated_device(pt_device(path))
    assert pt.plan(step, [torch.ones(50, 50)], device=str(path), time_limit=1).cost > 0
    with pytest.raises(InputError, match="calibrated without an energy counter"):
        pt.plan(step, [torch.ones(50, 50)], device=str(path), objective="energy", time_limit=1)


def pt_device(path):
    from pebbler.game.machine import measured_device

    return measured_device(path)


def test_a_file_that_is_no_device_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: cannot be read"):
        find_device(str(tmp_path / "none.toml"))
    path = tmp_path / "plain.toml"
    path.write_text('name = "x"\nunit = "byte"\n[[level]]\nname = "a"\nread = 1\nwrite = 1\n')
    with pytest.raises(InputError, match=r"plain\.toml has no table \[device\]"):
        find_device(str(path))
