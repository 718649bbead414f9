"""Copies beside the computation, on flat arrays: where stores, drops and loads go among the runs of ops, and when all have ended.

One stream computes, one engine copies out to the host and one copies in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.run.torch.plan.kernels.idle_spans import DEAD, Timeline, span_end
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays

__all__ = ["DROP", "FORGET", "LOAD", "RUN", "STORE", "schedule_copies"]

RUN, STORE, DROP, LOAD, FORGET = 0, 1, 2, 3, 4  # kinds of events; FORGET drops the copy on the host
_PENDING, _RESIDENT, _AWAY, _BACK = 0, 1, 2, 3  # of a chosen span: not begun, still in memory, on the host only, over
_WINDOW = 32  # spans looked at for early loads

_VALUE = np.dtype(
    [("size", "i8"), ("destroyer", "i8"), ("saved", "f8"), ("loaded", "f8"), ("on_host", "?")], align=True
)
_TOUCH = np.dtype(
    [
        ("value", "i8"),
        ("next", "i8"),
        ("ends", "i8"),  # the chosen span that ends here, -1 for none
        ("blocked", "i8"),  # the run up to which an early load is known not to fit
        ("chosen", "?"),  # whether the value is away after this touch
        ("away_later", "?"),  # the same, or after a later touch of this copy
    ],
    align=True,
)
_RUN = np.dtype(
    [
        ("op", "i8"),
        ("cost", "f8"),
        ("began", "f8"),
        ("first", "i8"),  # its first touch, the first of its results, and the touch after the last
        ("results", "i8"),
        ("stop", "i8"),
    ],
    align=True,
)
_SPAN = np.dtype([("touch", "i8"), ("end", "i8")])
_EVENT = np.dtype([("kind", "i8"), ("subject", "i8")])
_STATE = np.dtype(
    [
        ("now", "f8"),  # when the computation, the engine out and the engine in are free
        ("out_free", "f8"),
        ("in_free", "f8"),
        ("held", "i8"),  # units in memory
        ("events", "i8"),  # how many have been written
        ("head", "i8"),  # the first span that is not over
        ("capacity", "i8"),
        ("lead", "f8"),
        ("out", "f8"),
        ("into", "f8"),
        ("overlap", "?"),
    ],
    align=True,
)


class _Schedule(NamedTuple):
    """The copies to be scheduled and their progress, as arrays of records."""

    values: Array
    touches: Array
    span_state: Array  # per touch: of the span that begins there
    runs: Array
    planned: Array  # per run: units held at the least, with what has been loaded early
    spans: Array  # the chosen ones by their ends
    events: Array
    state: Array  # one record


@kernel
def schedule_copies(
    touches: Timeline,
    game: RecomputeArrays,
    sequence: Array,
    chosen: Array,
    capacity: int,
    out: float,
    into: float,
    overlap: bool,
    lead: float,
) -> tuple[float, Array]:
    """Return the time at which a sequence ends with values away over the chosen spans, and its events.

    A store begins as soon as its value is not needed for a while, its memory is given up only when something else needs it, and
    a load begins as soon as there is room from then to its use, but not when that is more than `lead` copies away. A unit takes
    `out` and `into` to copy. Ends at infinity when it does not fit.
    """
    s = _begin(touches, game, sequence, chosen)
    now = s.state[0]
    now.capacity, now.lead = capacity, lead
    now.out, now.into, now.overlap = out, into, overlap
    return _ending(s), s.events[: now.events]


@inner_kernel
def _ending(s: _Schedule) -> float:
    now = s.state[0]
    for p in range(len(s.runs)):
        if not _make_room(s, _units_needed(s, p)):
            return np.inf
        _load_due(s, p)
        _run(s, p)
        _store_idle(s, p)
        _load_early(s, p)
    if not _make_room(s, _units_needed_at_end(s)):
        return np.inf
    _load_due(s, len(s.runs))
    return float(max(now.now, now.out_free, now.in_free))


@kernel
def _begin(t: Timeline, game: RecomputeArrays, sequence: Array, chosen: Array) -> _Schedule:
    values, touches = np.zeros(len(game.size), _VALUE), np.zeros(len(chosen), _TOUCH)
    runs, planned, state = np.zeros(len(sequence), _RUN), t.most.copy(), np.zeros(1, _STATE)
    for v in range(len(values)):
        values[v].size, values[v].destroyer = game.size[v], game.destroyer[v]
        if t.first[v] != DEAD:
            state[0].held += game.size[v]
    for p in range(len(runs)):
        op = sequence[p]
        runs[p].op, runs[p].cost, runs[p].began = op, game.cost[op], t.began[p]
        runs[p].first, runs[p].results, runs[p].stop = t.t_start[p], t.t_start[p] + t.reads[p], t.t_start[p + 1]
    for i in range(len(touches)):
        touches[i].value, touches[i].next, touches[i].ends = t.t_value[i], t.t_next[i], -1
        touches[i].chosen = chosen[i]
    for i in range(len(touches) - 1, -1, -1):
        touches[i].away_later = chosen[i]
        if t.t_next[i] >= 0:
            touches[i].away_later = chosen[i] or touches[t.t_next[i]].away_later
            if chosen[i]:
                touches[t.t_next[i]].ends = i
    order = np.flatnonzero(chosen)
    spans = np.zeros(len(order), _SPAN)
    ends = np.empty(len(order), np.int64)
    for k in range(len(order)):
        ends[k] = span_end(t, order[k])
        planned[t.t_run[order[k]] + 1 : ends[k]] -= game.size[t.t_value[order[k]]]
    by_end = np.argsort(ends, kind="mergesort")
    for k in range(len(order)):
        spans[k].touch, spans[k].end = order[by_end[k]], ends[by_end[k]]
    events = np.empty(len(runs) + 4 * len(touches) + 8, _EVENT)
    return _Schedule(values, touches, np.full(len(touches), _PENDING, np.int8), runs, planned, spans, events, state)


@inner_kernel
def _emit(s: _Schedule, kind: int, subject: int) -> None:
    event = s.events[s.state[0].events]
    event.kind, event.subject = kind, subject
    s.state[0].events += 1


@inner_kernel
def _units_needed(s: _Schedule, p: int) -> int:
    """Return the units that must be free for a run: before it for what it loads, after it for its results."""
    need, loads = 0, 0
    run = s.runs[p]
    for i in range(run.first, run.results):
        value = s.values[s.touches[i].value]
        span = s.touches[i].ends
        if span >= 0:
            if s.span_state[span] == _AWAY:
                need += value.size
                loads += value.size
            else:
                s.span_state[span] = _BACK
        if value.destroyer == run.op:
            need -= value.size
    for i in range(run.results, run.stop):
        need += s.values[s.touches[i].value].size
    return max(need, loads)


@inner_kernel
def _units_needed_at_end(s: _Schedule) -> int:
    need = 0
    for k in range(s.state[0].head, len(s.spans)):
        i = s.spans[k].touch
        if s.span_state[i] == _AWAY:
            need += s.values[s.touches[i].value].size
        else:
            s.span_state[i] = _BACK
    return need


@inner_kernel
def _victim(s: _Schedule, first: int) -> int:
    """Return the touch whose resident value is dropped: of those with a finished store the last used, else the first to finish."""
    best, soonest = -1, np.inf
    for k in range(len(s.spans) - 1, first - 1, -1):
        i = s.spans[k].touch
        if s.span_state[i] == _RESIDENT:
            end = s.values[s.touches[i].value].saved
            if end <= s.state[0].now:
                return int(i)
            if end < soonest:
                best, soonest = int(i), end
    return best


@inner_kernel
def _evict(s: _Schedule, i: int) -> None:
    _emit(s, DROP, s.touches[i].value)
    s.span_state[i] = _AWAY
    s.state[0].held -= s.values[s.touches[i].value].size


@inner_kernel
def _make_room(s: _Schedule, units: int) -> bool:
    """Drop resident values until so many units are free; return whether they are."""
    now = s.state[0]
    while now.held + units > now.capacity:
        i = _victim(s, now.head)
        if i < 0:
            return False
        value = s.values[s.touches[i].value]
        if not value.on_host:
            now.now += value.size * now.out
            value.on_host = True
            _emit(s, STORE, s.touches[i].value)
        now.now = max(now.now, value.saved, value.loaded)
        _evict(s, i)
    return True


@inner_kernel
def _load(s: _Schedule, i: int) -> None:
    """Begin to load the value of a span, and forget the copy on the host if that is not used again."""
    now, touch = s.state[0], s.touches[i]
    value = s.values[touch.value]
    now.in_free = max(now.now, now.in_free, value.saved) + value.size * now.into
    value.loaded = now.in_free
    if not now.overlap:
        now.now = now.in_free
    s.span_state[i] = _BACK
    now.held += value.size
    _emit(s, LOAD, touch.value)
    if touch.next < 0 or not s.touches[touch.next].away_later:
        _emit(s, FORGET, touch.value)
        value.on_host = False


@inner_kernel
def _load_due(s: _Schedule, p: int) -> None:
    """Load what run `p` reads and what is still away."""
    now = s.state[0]
    while now.head < len(s.spans) and s.spans[now.head].end <= p:
        i = s.spans[now.head].touch
        if s.span_state[i] == _AWAY:
            _load(s, i)
        now.head += 1


@inner_kernel
def _run(s: _Schedule, p: int) -> None:
    """Run an op as soon as its operands are in and what it overwrites is out, and drop what is dead afterwards."""
    now, run = s.state[0], s.runs[p]
    for i in range(run.first, run.stop):
        value = s.values[s.touches[i].value]
        now.now = max(now.now, value.loaded)
        if value.destroyer == run.op:
            now.now = max(now.now, value.saved)
            value.on_host = False
            now.held -= value.size
        elif i >= run.results:
            now.held += value.size
    _emit(s, RUN, run.op)
    now.now += run.cost
    for i in range(run.first, run.stop):
        touch = s.touches[i]
        value = s.values[touch.value]
        if touch.next == DEAD and value.destroyer != run.op:
            now.held -= value.size
            now.now = max(now.now, value.saved)
            _emit(s, DROP, touch.value)
            if value.on_host:
                value.on_host = False
                _emit(s, FORGET, touch.value)


@inner_kernel
def _store_idle(s: _Schedule, p: int) -> None:
    """Begin the chosen spans after a run; with overlap their stores begin too."""
    now = s.state[0]
    for i in range(s.runs[p].first, s.runs[p].stop):
        touch = s.touches[i]
        if touch.chosen:
            value = s.values[touch.value]
            s.span_state[i] = _RESIDENT
            if not value.on_host and now.overlap:
                now.out_free = max(now.now, now.out_free, value.loaded) + value.size * now.out
                value.saved = now.out_free
                value.on_host = True
                _emit(s, STORE, touch.value)


@inner_kernel
def _load_early(s: _Schedule, p: int) -> None:
    """Begin loads before the runs that need them, in the order of these, until one has to wait."""
    looked = 0
    for k in range(s.state[0].head, len(s.spans)):
        if looked == _WINDOW:
            break
        if s.span_state[s.spans[k].touch] == _AWAY:
            looked += 1
            if not _load_early_if_room(s, p, k):
                break


@inner_kernel
def _load_early_if_room(s: _Schedule, p: int, k: int) -> bool:
    now, run, end = s.state[0], s.runs[p], s.spans[k].end
    touch = s.touches[s.spans[k].touch]
    size = s.values[touch.value].size
    takes = max(0.0, now.in_free - now.now) + size * now.into
    idle = s.runs[min(end, len(s.runs) - 1)].began - run.began - run.cost
    if idle > now.lead * takes or touch.blocked > p + 1:
        return False
    for q in range(p + 1, end):
        if s.planned[q] + size > now.capacity:
            touch.blocked = q + 1
            return False
    while now.overlap and now.held + size > now.capacity:
        # What is needed later makes room if that costs nothing.
        other = _victim(s, k + 1)
        if other < 0:
            break
        value = s.values[s.touches[other].value]
        if max(value.saved, value.loaded) > now.now:
            break
        _evict(s, other)
    if now.held + size > now.capacity:
        return False
    for q in range(p + 1, end):
        s.planned[q] += size
    _load(s, s.spans[k].touch)
    return True
