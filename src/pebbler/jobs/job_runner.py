"""Running jobs on an engine: a bounded number at a time, with lost jobs repeated."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

import msgspec

from pebbler.errors import InputError
from pebbler.jobs.engine import Engine
from pebbler.jobs.request import JobReply, JobRequest, current_versions

__all__ = ["Faults", "Job", "JobOutcome", "VersionsDiffer", "run_jobs"]

_WAIT = 0.2  # seconds between looks at whether to stop
_AHEAD = 2  # jobs handed over per worker, so that none waits for the next


class VersionsDiffer(InputError):
    """A worker has other versions than this process: its results would not be comparable."""


@dataclass(frozen=True)
class Job:
    """A piece of work under a key: a function of this package by name, and what makes the bytes that it is given."""

    key: str
    function: str
    payload: Callable[[], bytes]
    seconds: float | None = None  # after which it counts as hung
    attempts: int = 0


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job: its answer, or the reason for having none."""

    key: str
    body: bytes | None
    reason: str
    attempts: int
    host: str
    wrong_input: bool = False


@dataclass(frozen=True)
class Faults:
    """The handling of faults: the number of retries of a lost job, and the limits of each job."""

    retries: int = 2
    memory: int | None = None  # bytes per job

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise InputError(f"retries must be 0 or more, got {self.retries}")
        if self.memory is not None and self.memory < 1:
            raise InputError(f"the memory of a run must be at least 1 byte, got {self.memory}")


def run_jobs(
    jobs: Iterator[Job | None], engine: Engine, faults: Faults | None = None, stop: threading.Event | None = None
) -> Iterator[JobOutcome]:
    """Yield the outcome of every job as it comes, until all are done or `stop` is set.

    `jobs` may yield None for "none just now": it is asked again a little later. Jobs whose process died, hung or was out of
    memory are tried again, at most `faults.retries` times. A worker with other versions ends it all: `VersionsDiffer`.
    """
    return _Run(engine, faults or Faults(), stop or threading.Event()).outcomes(jobs)


class _Run:
    def __init__(self, engine: Engine, faults: Faults, stop: threading.Event) -> None:
        self.engine, self.faults, self.stop = engine, faults, stop
        self.ended: SimpleQueue[Future[bytes]] = SimpleQueue()
        self.running: dict[Future[bytes], Job] = {}
        self.again: deque[Job] = deque()

    def outcomes(self, jobs: Iterator[Job | None]) -> Iterator[JobOutcome]:
        exhausted = False
        try:
            while not self.stop.is_set():
                while len(self.running) < _AHEAD * max(1, self.engine.workers()) and not self.stop.is_set():
                    job = self.again.popleft() if self.again else None if exhausted else next(jobs, _NO_MORE)
                    if job is _NO_MORE:
                        exhausted, job = True, None
                    if job is None:
                        break
                    self._submit(job)
                if exhausted and not self.running and not self.again:
                    return
                try:
                    future = self.ended.get(timeout=_WAIT)
                except Empty:
                    continue
                outcome = self._outcome(future)
                if outcome is not None:
                    yield outcome
        finally:
            for future in self.running:
                future.cancel()

    def _submit(self, job: Job) -> None:
        job = replace(job, attempts=job.attempts + 1)
        request = JobRequest(job.function, job.payload(), current_versions(), job.seconds, self.faults.memory)
        future = self.engine.submit(msgspec.msgpack.encode(request))
        self.running[future] = job
        future.add_done_callback(self.ended.put)

    def _outcome(self, future: Future[bytes]) -> JobOutcome | None:
        """Return the outcome of a job; None if the job will be retried."""
        job = self.running.pop(future)
        reply = _reply(future)
        if reply.status == "refused":
            raise VersionsDiffer(f"a worker on {reply.host or 'another machine'} has other versions: {reply.reason}")
        if reply.status == "lost":
            self.engine.require_alive()
        if reply.status == "lost" and job.attempts <= self.faults.retries:
            self.again.append(job)
            return None
        body = reply.body if reply.status == "done" else None
        return JobOutcome(job.key, body, reply.reason, job.attempts, reply.host, reply.wrong_input)


_NO_MORE = Job("", "", bytes)


def _reply(future: Future[bytes]) -> JobReply:
    """Return the reply of a future; what the engine itself raises means that the job was lost with its worker."""
    try:
        return msgspec.msgpack.decode(future.result(), type=JobReply)
    except CancelledError:
        return JobReply("lost", reason="the engine dropped it")
    except ModuleNotFoundError as error:
        return JobReply("refused", reason=f"pebbler is missing there, or a part of it: {error}")
    except Exception as error:
        return JobReply("lost", reason=f"{type(error).__name__}: {error}")
