"""Copies on simulated streams: nothing is read before it is written, whatever the order in which streams get on."""

from __future__ import annotations

import gc
import random
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from pebbler.run.torch.run import host_copies
from pebbler.run.torch.run.host_copies import HostBytes, PendingLoad, Transfers, arrive, end_store


class Event:
    """Has come once its stream has got to it. Like CUDA's, it is not to be referenced weakly."""

    __slots__ = ("come", "stream")

    def __init__(self, stream):
        self.stream, self.come = stream, False

    def query(self):
        return self.come

    def synchronize(self):
        while not self.come:
            assert sum(stream.advance() for stream in STREAMS), "it waits for something that never comes"


class Stream:
    """Work that is done in order, later."""

    def __init__(self, *_device):
        self.queue = []
        STREAMS.append(self)

    def put(self, work):
        self.queue.append(work)

    def record_event(self):
        event = Event(self)
        self.put(event)
        return event

    def wait_event(self, event):
        self.put((event,))

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        self.record_event().synchronize()

    def advance(self):
        """Do the next piece of work; return whether there was one that need not wait."""
        work = self.queue[0] if self.queue else None
        if work is None or (isinstance(work, tuple) and not work[0].come):
            return False
        self.queue.pop(0)
        if isinstance(work, Event):
            work.come = True
        elif not isinstance(work, tuple):
            work()
        return True


class Memory:
    """Bytes on a device or pinned; copying into them is work of the stream that is current."""

    def __init__(self, count):
        self.bytes = torch.zeros(count, dtype=torch.uint8)

    def numel(self):
        return self.bytes.numel()

    def copy_(self, source, _beside):
        def work():
            self.bytes.copy_(source.bytes)

        CURRENT[-1].put(work)


STREAMS: list[Stream] = []
CURRENT: list[Stream] = []


@contextmanager
def within(stream):
    CURRENT.append(stream)
    yield
    CURRENT.pop()


@pytest.fixture
def compute(monkeypatch):
    """Return the stream that computes; copies to the host go to others."""
    STREAMS.clear()
    CURRENT[:] = [Stream()]
    cuda = SimpleNamespace(Stream=Stream, stream=within, current_stream=lambda _device=None: CURRENT[0])
    monkeypatch.setattr(host_copies, "torch", SimpleNamespace(**{**vars(torch), "cuda": cuda}))
    monkeypatch.setattr(host_copies, "_pinned", Memory)
    return CURRENT[0]


def steps(compute, draw, transfers, values=6, size=8):
    """Run forward and backward of one step; every memory is used again as soon as the computing stream may."""
    device = [Memory(size) for _ in range(3)]  # values take turns in these
    sent = []
    for number in range(values):
        place = device[number % 3]
        if number >= 3:  # what was here must have left
            end_store(sent[number - 3], SimpleNamespace(device="cuda:0"))
        compute.put(lambda place=place, number=number: place.bytes.fill_(number + 1))
        sent.append(HostBytes(transfers, place))
        some_progress(draw)
    for copy in sent[-3:]:
        end_store(copy, SimpleNamespace(device="cuda:0"))
    for place in device:  # and be written over
        compute.put(lambda place=place: place.bytes.fill_(99))
    seen, loads = [], []
    for number in reversed(range(values)):
        place = device[number % 3]
        done = sent.pop().fetch(place)  # its buffer goes back to the pool with it
        loads.append((number, PendingLoad(SimpleNamespace(device="cuda:0"), done), place))
        some_progress(draw)
        if len(loads) == 2:
            read(compute, seen, *loads.pop(0))
    while loads:
        read(compute, seen, *loads.pop(0))
    return seen


def read(compute, seen, number, load, place):
    arrive(load)
    compute.put(lambda: seen.append((number, place.bytes.tolist())))
    compute.put(lambda: place.bytes.fill_(77))


def some_progress(draw):
    """Let streams get on a little, in any order, or not at all."""
    for _ in range(draw.choice([0, 0, 1, 5])):
        draw.choice(STREAMS).advance()


def finish(draw):
    while any(stream.queue for stream in STREAMS):
        waiting = [stream for stream in STREAMS if stream.queue]
        assert sum(stream.advance() for stream in draw.sample(waiting, len(waiting))), "streams wait for each other"


@pytest.mark.parametrize("seed", range(60))
def test_what_is_fetched_is_what_was_sent_however_streams_get_on(compute, seed):
    draw = random.Random(seed)
    transfers = Transfers("cuda:0", spare=1.0)
    seen = [steps(compute, draw, transfers) for _ in range(3)]  # the host runs ahead: buffers are used again at once
    finish(draw)
    for step in seen:
        assert sorted(step) == [(number, [number + 1] * 8) for number in range(6)]
    assert transfers.bytes == 6 * 8


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_a_recording_are_over_when_it_ends_and_no_others_are(compute, seed):
    """A recording's own copies are waited for at its end; events that are made later may lie where its events were."""
    draw = random.Random(seed)
    transfers = Transfers("cuda:0", spare=1.0)
    seen = [steps(compute, draw, transfers)]
    for _ in range(3):
        transfers.begin_recording()
        seen.append(steps(compute, draw, transfers))
        transfers.end_recording()
        gc.collect()
        seen += [steps(compute, draw, transfers) for _ in range(2)]
    finish(draw)
    for step in seen:
        assert sorted(step) == [(number, [number + 1] * 8) for number in range(6)]


@pytest.mark.parametrize("missing", ["end_store", "arrive"])
def test_without_a_wait_it_would_be_noticed(compute, monkeypatch, missing):
    monkeypatch.setitem(globals(), missing, lambda *_operands: None)
    wrong = 0
    for seed in range(60):
        STREAMS[:] = [compute]
        draw = random.Random(seed)
        transfers = Transfers("cuda:0", spare=1.0)
        seen = [steps(compute, draw, transfers) for _ in range(3)]
        finish(draw)
        wrong += any(sorted(step) != [(n, [n + 1] * 8) for n in range(6)] for step in seen)
    assert wrong
