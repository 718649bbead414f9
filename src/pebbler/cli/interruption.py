"""Ctrl-C: a command ends within two seconds, after printing and saving its best result so far.

A command runs in its own thread while the main thread waits. The main thread can handle Ctrl-C at any moment, because compiled
kernels release the interpreter lock, and no exception is raised inside a kernel, which would crash the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from pebbler.errors import PebblerError, one_line
from pebbler.files import remove_unfinished

__all__ = ["INTERRUPTED", "exit_at_once", "hold", "run_command"]

INTERRUPTED = 130  # exit status
_GRACE = 1.0  # seconds in which a search may end by itself, with what its methods have not offered yet
_PRINTING = 30.0  # seconds in which a command that has its answer may print and save it
_LISTENING = 0.2  # seconds in which Ctrl-C is heard at the latest

_PRESSED, _LET_GO, _ENDED = "Ctrl-C", "let go", "ended"


class _Hands:
    """The best result so far of the running command, and whether Ctrl-C has claimed it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.news: SimpleQueue[str] = SimpleQueue()  # unlike an event, it may be written to by a signal handler
        self.keep: Callable[[], bool] | None = None
        self.stop: Callable[[], None] | None = None
        self.grace = _GRACE
        self.printing = False
        self.taken = False


_hands = _Hands()


@contextmanager
def hold(keep: Callable[[], bool], stop: Callable[[], None] | None = None, grace: float = _GRACE) -> Iterator[None]:
    """Work with something in hand: Ctrl-C calls `stop`, waits for `grace`, and calls `keep`, which prints and saves what there is.

    `keep` returns False when there is nothing yet; it is called from the main thread, and the work may still be going on. What
    a command does after the block is its answer: Ctrl-C waits for it.
    """
    hands = _hands
    with hands.lock:
        hands.keep, hands.stop, hands.grace = keep, stop, grace
    try:
        yield
    finally:
        with hands.lock:
            hands.keep = hands.stop = None
            hands.printing = True
            taken = hands.taken
        if taken:
            hands.news.put(_LET_GO)
            threading.Event().wait()  # the main thread has what was found, and ends the program


def run_command(command: Callable[[], None]) -> None:
    """Run a command so that Ctrl-C ends the program with status 130; what the command raises is raised here."""
    if threading.current_thread() is not threading.main_thread():
        command()
        return
    global _hands
    hands = _hands = _Hands()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            command()
        except BaseException as error:  # SystemExit too: it is for the main thread
            raised.append(error)
        hands.news.put(_ENDED)

    before = signal.signal(signal.SIGINT, lambda *_: hands.news.put(_PRESSED))
    try:
        threading.Thread(target=work, name="pebbler", daemon=True).start()
        if _first_news(hands) == _PRESSED:
            _end(hands)
    finally:
        signal.signal(signal.SIGINT, before)
    if raised:
        raise raised[0]


def _first_news(hands: _Hands) -> str:
    """Wait for the command's end or Ctrl-C.

    It wakes now and then: a signal that the system hands to another thread is noted there, but does not end this one's wait.
    """
    while True:
        with suppress(Empty):
            return hands.news.get(timeout=_LISTENING)


def _end(hands: _Hands) -> None:
    """End the program with what is in hand; return only if the command has ended meanwhile."""
    with hands.lock:
        hands.taken = not hands.printing
        keep, stop = hands.keep, hands.stop
    if not hands.taken:
        with suppress(Empty):
            while hands.news.get(timeout=_PRINTING) != _ENDED:
                pass
            return
        exit_at_once()
    if stop is not None:
        stop()
        ends = time.monotonic() + hands.grace
        with suppress(Empty):  # pressing again makes it no quicker: what is being put together would be lost
            while hands.news.get(timeout=max(0.0, ends - time.monotonic())) == _PRESSED:
                pass
    kept = False
    patience = threading.Timer(_PRINTING, exit_at_once)  # for the case that what is kept cannot be printed
    patience.daemon = True
    patience.start()
    try:
        _end_progress()
        kept = keep is not None and keep()
    except PebblerError as error:
        kept = True
        sys.stderr.write(f"error: {one_line(str(error))}\n")
    except BrokenPipeError:
        kept = True  # the reader has gone
    exit_at_once("" if kept else "interrupted: nothing had been found yet\n")


def _end_progress() -> None:
    """Take progress bars off the terminal and give it its cursor back."""
    end = getattr(sys.modules.get("pebbler.cli.output"), "end_progress", None)
    if end is not None:
        end()


def exit_at_once(message: str = "interrupted\n") -> None:
    """End the program with status 130 whatever its threads are doing, and leave no unfinished files."""
    remove_unfinished()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        sys.stderr.write(message)
        sys.stderr.flush()
    os._exit(INTERRUPTED)
