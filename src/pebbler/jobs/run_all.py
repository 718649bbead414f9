"""A function applied to many inputs: on all cores, each in its own process, or sequentially for small workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pebbler.errors import InputError, PebblerError
from pebbler.jobs.engine import open_engine
from pebbler.jobs.job_runner import Faults, Job, run_jobs

__all__ = ["JobFailed", "run_all"]


class JobFailed(PebblerError):
    """A piece of work that was asked for as part of a whole could not be done."""


def run_all(
    function: Callable[[bytes], bytes], payloads: Sequence[bytes], *, apart: bool = True, workers: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield the number of every input and what a function of this package answers, as they come.

    With `apart` they run in processes of their own, as many at a time as there are cores; otherwise here, in their order. The first
    that fails ends it: `InputError` where it was the input's fault.

    >>> from pebbler.jobs.child import echo
    >>> sorted(run_all(echo, [b"a", b"b"], apart=False)), sorted(run_all(echo, [b"a", b"b"], workers=1))
    ([(0, b'a'), (1, b'b')], [(0, b'a'), (1, b'b')])
    """
    if not apart or len(payloads) < 2:
        for number, payload in enumerate(payloads):
            yield number, function(payload)
        return
    name = f"{function.__module__}:{function.__qualname__}"
    engine = open_engine("local", workers=workers)
    try:
        jobs = iter([Job(str(i), name, lambda payload=payload: payload) for i, payload in enumerate(payloads)])  # type: ignore[misc]
        for outcome in run_jobs(jobs, engine, Faults(retries=1)):
            if outcome.body is None:
                raise (InputError if outcome.wrong_input else JobFailed)(outcome.reason)
            yield int(outcome.key), outcome.body
    finally:
        engine.end()
