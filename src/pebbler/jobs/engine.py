"""Engines that run jobs: threads of this process, a Dask cluster, or any `concurrent.futures.Executor`.

An engine only carries bytes. Each job runs in a child process of the engine's worker (`child_process`).
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

from pebbler.errors import InputError, PebblerError, quoted
from pebbler.jobs.child_process import ChildPool, attempt

__all__ = ["ENGINES", "Engine", "EngineChoice", "EngineLost", "open_engine"]

ENGINES = ("local", "dask")
_CONNECT = "10s"  # to reach a scheduler
_COUNTED = 5.0  # seconds for which the number of workers is taken as known


class EngineLost(PebblerError):
    """The engine takes no more work: its scheduler or its pool is gone."""


@dataclass
class Engine:
    """An executor, what it is to call with a request, and how it ends."""

    name: str
    executor: Executor
    attempt: Callable[[bytes], bytes]
    end: Callable[[], None]  # now, with nothing waited for
    workers: Callable[[], int]
    renew: Callable[[], Executor] | None = None  # when the executor has broken
    alive: Callable[[], bool] = lambda: True  # whether what it loses is lost with one worker, not with all

    def require_alive(self) -> None:
        """Raise `EngineLost` when nothing will run any more."""
        if not self.alive():
            raise EngineLost(f"the engine {self.name} is gone: its scheduler does not answer any more")

    def submit(self, request: bytes) -> Future[bytes]:
        """Hand a request to the executor; a broken one is replaced once, where that can be done."""
        try:
            return self.executor.submit(self.attempt, request)
        except Exception as error:
            if self.renew is None:
                raise EngineLost(
                    f"the engine {self.name} takes no more runs: {type(error).__name__}: {error}"
                ) from None
        self.executor.shutdown(wait=False)
        self.executor = self.renew()
        return self.executor.submit(self.attempt, request)


EngineChoice = Literal["local", "dask"] | str | Executor | Callable[[], Executor] | Engine


def open_engine(
    choice: EngineChoice = "local", *, workers: int | None = None, scheduler: str | None = None, fresh: bool = False
) -> Engine:
    """Return an engine by name, or one around an executor (or a function that makes one, so that it can be replaced if it breaks).

    `fresh` is for the engine here: every job in a new process, so that what it takes is its own.

    >>> engine = open_engine("local", workers=2)
    >>> engine.workers()
    2
    >>> engine.end()
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    if scheduler is not None and choice != "dask":
        raise InputError("a scheduler's address is for the engine dask")
    if choice == "local":
        return _local(workers or _cores(), fresh)
    if isinstance(choice, Engine):
        return choice
    if choice == "dask":
        return _dask(scheduler, workers)
    if isinstance(choice, Executor):
        return _given(choice, None, workers)
    if callable(choice):
        return _given(choice(), choice, workers)
    raise InputError(f"no engine {quoted(choice)}; there are {', '.join(ENGINES)}, and from Python any Executor")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _local(workers: int, fresh: bool) -> Engine:
    children = ChildPool(fresh=fresh)
    threads = ThreadPoolExecutor(workers, thread_name_prefix="pebbler-job")

    def end() -> None:
        threads.shutdown(wait=False, cancel_futures=True)
        children.close()

    return Engine("local", threads, children.attempt, end, lambda: workers)


def _given(executor: Executor, renew: Callable[[], Executor] | None, workers: int | None) -> Engine:
    name = type(executor).__name__
    count = workers or int(getattr(executor, "_max_workers", 0)) or _cores()
    engine = Engine(name, executor, attempt, lambda: None, lambda: count, renew)
    if renew is not None:  # what we made we end; what was given stays its owner's
        engine.end = lambda: engine.executor.shutdown(wait=False, cancel_futures=True)
    return engine


def _dask(scheduler: str | None, workers: int | None) -> Engine:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("the engine dask is not installed: pip install 'pebbler[dask]'") from None
    warnings.filterwarnings("ignore", message="Sending large graph")  # a request is a graph, and as large as it is
    cluster: Any = None
    with ExitStack() as undo:
        if scheduler is None:
            folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="pebbler-", ignore_cleanup_errors=True))
            cluster = _cluster_here(workers or _cores(), folder)
        try:
            client = Client(scheduler if cluster is None else cluster, timeout=_CONNECT, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(f"no Dask scheduler answers at {quoted(scheduler or 'local')}: {error}") from None
        ending = undo.pop_all()

    def end() -> None:
        with suppress(Exception):  # whatever is already gone need not be ended
            executor.shutdown(wait=False)
        with suppress(Exception):
            client.close(timeout=2)
        if cluster is not None:
            with suppress(Exception):
                cluster.close(timeout=5)
        ending.close()

    asked: list[tuple[float, int]] = [(-_COUNTED, 1)]

    def count() -> int:
        if time.monotonic() - asked[-1][0] >= _COUNTED:  # workers come and go, and each question is a journey
            with suppress(Exception):
                asked[:] = [(time.monotonic(), sum(client.nthreads().values()))]
        return asked[-1][1]

    executor = client.get_executor(pure=False)
    return Engine("dask", executor, attempt, end, count, alive=lambda: client.status == "running")


def _cluster_here(workers: int, folder: str) -> Any:
    """Return a cluster of threads of this process, which nobody outside of it can reach.

    Whoever reaches a scheduler or a worker of Dask can have it run anything. Here they talk through memory, not through
    sockets, and the web servers that Dask starts beside them are left out. Threads are enough: what they run is in processes
    of its own.
    """
    from distributed import Scheduler, SpecCluster, Worker

    class UnreachableScheduler(Scheduler):  # type: ignore[misc]
        def start_http_server(self, *_: Any, **__: Any) -> None: ...

    class UnreachableWorker(Worker):  # type: ignore[misc]
        def start_http_server(self, *_: Any, **__: Any) -> None: ...

    # The folder is on Python's path: Dask's default, a name in the system's temporary folder, may be another user's.
    options = {"protocol": "inproc://", "dashboard": False, "local_directory": folder}
    worker = {"cls": UnreachableWorker, "options": options | {"nthreads": 1, "memory_limit": 0}}
    return SpecCluster(
        scheduler={"cls": UnreachableScheduler, "options": options},
        workers=dict.fromkeys(range(workers), worker),
        silence_logs=logging.ERROR,
    )
