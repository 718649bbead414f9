"""The main program of a child process, which answers requests one by one until its parent ends.

`python -m pebbler.jobs.child` reads requests from its standard input and writes replies to its standard output, each with its
length before it. A separate thread reads, so the end of the parent ends this process even during a computation: kernels release
the interpreter lock.
"""

from __future__ import annotations

import os
import platform
import struct
import threading
import traceback
from importlib import import_module
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from pebbler.errors import InputError, PebblerError
from pebbler.jobs.request import JobReply, JobRequest, current_versions, difference

__all__ = ["answer", "echo", "main", "read_message", "write_message"]

_LENGTH = struct.Struct("<Q")


def read_message(stream: BinaryIO) -> bytes | None:
    """Return the next message of a stream; None when it ends, even in the middle of one."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    return data if len(data) == size else None


def write_message(stream: BinaryIO, data: bytes) -> None:
    """Write a message."""
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def answer(request: JobRequest) -> JobReply:
    """Return the result of a request's function, which must belong to this package.

    >>> answer(JobRequest("os:getcwd", b"", current_versions())).reason
    'os:getcwd is no function of pebbler'
    """
    host = platform.node()
    differs = difference(request.versions, current_versions())
    if differs:
        return JobReply("refused", reason=differs, host=host)
    module, _, name = request.function.partition(":")
    if module.partition(".")[0] != "pebbler":
        return JobReply("error", reason=f"{request.function} is no function of pebbler", host=host)
    try:
        _limit_memory(request.memory)
        body: bytes = getattr(import_module(module), name)(request.payload)
    except MemoryError:
        return JobReply("lost", reason="it ran out of memory", host=host)
    except PebblerError as error:
        return JobReply("error", reason=str(error), host=host, wrong_input=isinstance(error, InputError))
    except Exception as error:
        if request.memory is not None and not _has_room():  # Python tells some of these by other names while it imports
            return JobReply("lost", reason="it ran out of memory", host=host)
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(last.filename)}, line {last.lineno}"
        return JobReply("error", reason=f"{type(error).__name__}: {error} ({place})", host=host)
    return JobReply("done", body, host=host)


def echo(payload: bytes) -> bytes:
    """Return the argument: a job for measuring the overhead of jobs."""
    return payload


def _limit_memory(limit: int | None) -> None:
    if limit is None:
        return
    import resource  # not everywhere

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def _has_room() -> bool:
    try:
        bytearray(2**24)
    except MemoryError:
        return False
    return True


def main() -> None:
    """Answer requests until the standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between replies
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        reply = answer(msgspec.msgpack.decode(requests.get(), type=JobRequest))
        write_message(replies, msgspec.msgpack.encode(reply))
        if reply.status == "lost":
            os._exit(0)  # what is left after running out of memory is not relied on


def _read(requests: SimpleQueue[bytes]) -> None:
    stream = os.fdopen(os.dup(0), "rb")
    while True:
        data = read_message(stream)
        if data is None:
            os._exit(1)
        requests.put(data)


if __name__ == "__main__":
    main()
