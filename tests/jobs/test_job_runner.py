"""Retries, losses and stops, on engines that fail as they are told."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool

import msgspec
import pytest

from pebbler.errors import InputError
from pebbler.jobs.child import answer
from pebbler.jobs.engine import Engine, EngineLost, open_engine
from pebbler.jobs.job_runner import Faults, Job, VersionsDiffer, run_jobs
from pebbler.jobs.request import JobReply, JobRequest, current_versions


class Inline(Executor):
    """Runs what it is given at once, in the thread that gives it."""

    def __init__(self):
        self.broken = False

    def submit(self, function, /, *arguments, **more):
        if self.broken:
            raise BrokenProcessPool("it broke")
        future: Future[bytes] = Future()
        try:
            future.set_result(function(*arguments, **more))
        except BaseException as error:
            future.set_exception(error)
        return future


def engine(attempt, **more):
    return Engine("test", Inline(), attempt, lambda: None, lambda: 2, **more)


def jobs(count):
    return [Job(str(i), "pebbler.test:x", lambda i=i: str(i).encode()) for i in range(count)]


def replies(by_payload):
    """Return an attempt whose replies to a payload are given one after the other, and how often each was asked for."""
    asked: Counter[str] = Counter()

    def attempt(data: bytes) -> bytes:
        name = msgspec.msgpack.decode(data, type=JobRequest).payload.decode()
        asked[name] += 1
        told = by_payload(name, asked[name])
        if isinstance(told, BaseException):
            raise told
        return msgspec.msgpack.encode(told)

    return attempt, asked


def test_every_job_has_one_outcome_and_is_asked_for_once():
    attempt, asked = replies(lambda name, _: JobReply("done", name.encode() * 2))
    found = {one.key: one.body for one in run_jobs(iter(jobs(50)), engine(attempt))}
    assert found == {str(i): f"{i}{i}".encode() for i in range(50)}
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("loss", [JobReply("lost", reason="it died"), RuntimeError("worker gone")])
def test_what_is_lost_is_tried_again_and_then_failed_with_the_reason(loss):
    attempt, asked = replies(lambda name, time: loss if name == "1" or (name == "2" and time < 3) else JobReply("done"))
    found = {one.key: one for one in run_jobs(iter(jobs(4)), engine(attempt), Faults(retries=2))}
    assert asked == {"0": 1, "1": 3, "2": 3, "3": 1}
    assert found["1"].body is None
    assert found["1"].attempts == 3
    assert found["1"].reason in ("it died", "RuntimeError: worker gone")
    assert found["2"].body == b""
    assert found["2"].attempts == 3


def test_what_would_fail_again_is_not_tried_again():
    attempt, asked = replies(lambda name, _: JobReply("error", reason="a bug"))
    found = list(run_jobs(iter(jobs(3)), engine(attempt), Faults(retries=5)))
    assert [one.reason for one in found] == ["a bug"] * 3
    assert set(asked.values()) == {1}


def test_other_versions_are_refused():
    attempt, _ = replies(lambda name, _: JobReply("refused", reason="pebbler is 9 there and 1 here", host="node7"))
    with pytest.raises(VersionsDiffer, match="node7 has other versions: pebbler is 9 there"):
        list(run_jobs(iter(jobs(3)), engine(attempt)))
    attempt, _ = replies(lambda name, _: ModuleNotFoundError("No module named 'pebbler'"))
    with pytest.raises(VersionsDiffer, match="pebbler is missing there"):
        list(run_jobs(iter(jobs(3)), engine(attempt)))


def test_the_child_itself_refuses_other_versions():
    wrong = current_versions() | {"pebbler": "0.0.0", "numba": "0"}
    reply = answer(JobRequest("pebbler.sweeps.solve_task:solve_task", b"", wrong))
    assert reply.status == "refused"
    assert "pebbler is" in reply.reason
    assert "and 0.0.0 here" in reply.reason


def test_a_broken_executor_is_replaced_only_if_it_can_be():
    attempt, _ = replies(lambda name, _: JobReply("done"))
    broken = engine(attempt)
    broken.executor.broken = True
    with pytest.raises(EngineLost, match="takes no more runs: BrokenProcessPool: it broke"):
        list(run_jobs(iter(jobs(3)), broken))
    renewed = engine(attempt, renew=Inline)
    renewed.executor.broken = True
    assert len(list(run_jobs(iter(jobs(3)), renewed))) == 3


def test_a_dead_scheduler_fails_no_run():
    attempt, _ = replies(lambda name, _: OSError("connection closed"))
    with pytest.raises(EngineLost, match="does not answer any more"):
        list(run_jobs(iter(jobs(3)), engine(attempt, alive=lambda: False)))


def test_none_is_asked_for_again_later():
    attempt, _ = replies(lambda name, _: JobReply("done"))
    first, second = jobs(2)
    found = run_jobs(iter([None, first, None, None, second]), engine(attempt))
    assert [one.key for one in found] == ["0", "1"]


def test_stop_ends_it_and_no_more_is_taken_than_runs():
    attempt, asked = replies(lambda name, _: JobReply("done"))
    stop = threading.Event()
    seen = []
    for one in run_jobs(iter(jobs(1000)), engine(attempt), stop=stop):
        seen.append(one)
        if len(seen) == 10:
            stop.set()
    assert len(seen) == 10
    assert len(asked) <= 10 + 4  # two for each of the two workers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"choice": "ray"}, "no engine ray; there are local, dask"),
        ({"choice": "local", "workers": 0}, "workers must be at least 1"),
        ({"choice": "local", "scheduler": "tcp://x"}, "is for the engine dask"),
    ],
)
def test_wrong_engines_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        open_engine(**arguments)


def test_wrong_faults_are_named():
    with pytest.raises(InputError, match="retries"):
        Faults(retries=-1)
    with pytest.raises(InputError, match="memory"):
        Faults(memory=0)
