"""Plans on disk: a second job takes them as they are; what is damaged or of another graph is left aside."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch import nn

from pebbler.run.torch.backend import dynamo_backend, graph_frontier, step_budget
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.plan_cache import PlanCache

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


class Job:
    """A training job with a cache of plans, and what it had to do."""

    def __init__(self, monkeypatch, folder):
        self.monkeypatch, self.folder = monkeypatch, folder
        self.compiled = self.planned = self.measured = 0

    def run(self, width=24, budget=60_000, steps=6, **options):
        torch._dynamo.reset()
        self.compiled = self.planned = self.measured = 0
        self.monkeypatch.setattr(step_budget, "_BUDGETS", {})
        inductor, plan, meter = dynamo_backend._inductor, graph_frontier.GraphFrontier.plan, step_budget.step_meter

        def count(name, call):
            def counted(*args):
                setattr(self, name, getattr(self, name) + 1)
                return call(*args)

            return counted

        with self.monkeypatch.context() as patch:
            patch.setattr(dynamo_backend, "_inductor", count("compiled", inductor))
            patch.setattr(graph_frontier.GraphFrontier, "plan", staticmethod(count("planned", plan)))
            patch.setattr(step_budget, "step_meter", count("measured", meter))
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
            rule = torch.optim.SGD(model.parameters(), lr=0.1)
            run = torch.compile(model, backend=pebbler, options={"budget": budget, "cache": self.folder, **options})
            x = torch.linspace(-1, 1, 64 * width).reshape(64, width)
            losses = []
            for _ in range(steps):
                rule.zero_grad()
                loss = run(x).square().mean()
                loss.backward()
                rule.step()
                losses.append(loss.item())
        return losses


@pytest.fixture
def job(monkeypatch, tmp_path):
    yield Job(monkeypatch, tmp_path / "plans")
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_second_job_plans_and_measures_nothing(job):
    losses = job.run()
    assert job.planned >= 1
    assert job.measured >= 3
    (file,) = job.folder.iterdir()
    assert json.loads(file.read_text())["peak"] <= 60_000
    assert job.run() == losses
    assert (job.compiled, job.planned, job.measured) == (1, 0, 0)
    job.run(budget=70_000)  # another budget is another plan
    assert job.planned >= 1
    assert len(list(job.folder.iterdir())) == 2


def test_files_that_are_damaged_are_left_aside(job):
    losses = job.run()
    (file,) = job.folder.iterdir()
    good = json.loads(file.read_text())
    damaged = [
        b"", b"{", b"\xff\xfe", b"[]", json.dumps({**good, "key": "0" * 64}).encode(),
        json.dumps({**good, "frontier": {**good["frontier"], "place": 999}}).encode(),
        json.dumps({**good, "frontier": {**good["frontier"], "choices": []}}).encode(),
        json.dumps({**good, "extra": 1}).encode(),
    ]  # fmt: skip
    key = good["key"]
    cache = PlanCache(str(job.folder))
    assert cache.load(key).key == key
    for data in damaged:
        file.write_bytes(data)
        with pytest.warns(UserWarning, match="left aside"):
            assert cache.load(key) is None
    with pytest.warns(UserWarning, match="left aside"):
        assert job.run() == losses
    assert job.planned >= 1
    assert json.loads(file.read_text())["key"] == key  # written anew


def test_a_plan_with_values_on_the_host_is_kept_and_checked(job):
    losses = job.run(budget="least", offload=True)
    (file,) = job.folder.iterdir()
    good = json.loads(file.read_text())
    choice = good["frontier"]["choices"][good["frontier"]["place"]]
    assert choice["sent"]
    assert job.run(budget="least", offload=True) == losses
    assert job.planned == 0
    cache = PlanCache(str(job.folder))
    for field, value in (("node", 10**6), ("left", 10**6), ("left", -2), ("fetched", -1), ("fetched", 10**6)):
        told = json.loads(json.dumps(good))
        told["frontier"]["choices"][told["frontier"]["place"]]["sent"][0][field] = value
        file.write_text(json.dumps(told))
        with pytest.warns(UserWarning, match="a value that is sent is not saved"):
            assert cache.load(good["key"]) is None


def test_a_plan_of_another_joint_graph_is_not_taken(job):
    losses = job.run()
    (file,) = job.folder.iterdir()
    told = json.loads(file.read_text())
    told["frontier"]["key"] = "0" * 64
    file.write_text(json.dumps(told))
    assert job.run() == losses
    assert job.planned >= 1


def test_a_folder_that_cannot_be_written_costs_a_warning(job, tmp_path):
    (tmp_path / "plans").write_text("a file, not a folder")
    with pytest.warns(UserWarning, match="could not be kept"):
        job.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not (tmp_path / "plans").is_dir()
