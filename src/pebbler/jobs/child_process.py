"""Child processes from their parent's side: every request gets a reply, even if the process dies.

Every run of every engine happens in such a child. A run that is killed, hangs or exhausts memory therefore ends alone: the thread,
Dask worker or Slurm job that started the run continues and reports the failure.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress

import msgspec

from pebbler.errors import one_line
from pebbler.jobs.child import read_message, write_message
from pebbler.jobs.request import JobReply, JobRequest
from pebbler.kernel_folder import child_variables

__all__ = ["ChildPool", "ChildProcess", "attempt"]

_IDLE = 60.0  # seconds after which a child that nobody asks is ended
_TOLD = 2000  # bytes of what a child said last


class ChildProcess:
    """A process that answers requests. Ends with whoever started it, however that ends."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pebbler.jobs.child"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | child_variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the process that asks
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, request: bytes, seconds: float | None) -> JobReply:
        """Return the reply to a request; `lost` if the process dies over it or takes more than `seconds`, and then it is gone."""
        late: list[bool] = []

        def end() -> None:
            late.append(True)
            self.kill()

        clock = threading.Timer(seconds, end) if seconds is not None else None
        data = None
        if clock is not None:
            clock.daemon = True
            clock.start()
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with suppress(OSError, ValueError):  # a pipe that breaks: there will be no answer
                write_message(self._process.stdin, request)  # type: ignore[arg-type]
                data = read_message(self._process.stdout)  # type: ignore[arg-type]
        finally:
            if clock is not None:
                clock.cancel()
        if data is not None:
            return msgspec.msgpack.decode(data, type=JobReply)
        self.kill()
        reason = f"it ran past its limit of {seconds:g} s" if late else self._death()
        self.close()
        return JobReply("lost", reason=reason, host=platform.node())

    def _death(self) -> str:
        """Return in words how the process ended."""
        status = self._process.wait()
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _TOLD))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        told = f": {one_line(lines[-1])}" if lines else ""
        if status == -signal.SIGKILL:
            return "its process was killed (signal 9), as a machine does that runs out of memory"
        if status < 0:
            with suppress(ValueError):
                return f"its process died of {signal.Signals(-status).name}{told}"
        return f"its process ended with status {status}{told}"

    def kill(self) -> None:
        """End the process now."""
        with suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """End the process and forget it."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


class ChildPool:
    """Children that wait for the next request, as many as were ever asked at once; those that wait too long are ended.

    With `fresh` every request gets a process of its own.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        self._clock: threading.Timer | None = None
        self._closed = False

    def attempt(self, request: bytes) -> bytes:
        """Answer a request in one of the children."""
        seconds = msgspec.msgpack.decode(request, type=JobRequest).seconds
        child = self._take()
        if child is None:
            return msgspec.msgpack.encode(JobReply("lost", reason="the sweep was stopped", host=platform.node()))
        reply = child.ask(request, seconds)
        self._give_back(child, keep=reply.status != "lost" and not self._fresh)
        return msgspec.msgpack.encode(reply)

    def _take(self) -> ChildProcess | None:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    self._busy.add(child)
                    return child
                child.close()
            if self._closed:
                return None
            child = ChildProcess()
            self._busy.add(child)
            return child

    def _give_back(self, child: ChildProcess, *, keep: bool) -> None:
        with self._lock:
            self._busy.discard(child)
            if keep and not self._closed:
                self._idle.append(child)
                if self._clock is not None:
                    self._clock.cancel()
                self._clock = threading.Timer(_IDLE, self._end_idle)
                self._clock.daemon = True
                self._clock.start()
                return
        child.close()

    def _end_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()

    def close(self) -> None:
        """End all children; those that are busy answer `lost`."""
        with self._lock:
            self._closed = True
            busy = list(self._busy)
            if self._clock is not None:
                self._clock.cancel()
        for child in busy:
            child.kill()
        self._end_idle()


_children = ChildPool()


def attempt(request: bytes) -> bytes:
    """Answer a request in a child of this process: what engines call where they run."""
    return _children.attempt(request)
