"""Copies beside the computation, on flat arrays: when a plan's moves end, and where stores, drops and loads go.

One stream computes, one engine copies out to the host and one copies in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.run.torch.plan.kernels.idle_spans import DEAD, END, Timeline

__all__ = ["DROP", "FORGET", "LOAD", "RUN", "STORE", "place", "time_moves"]

RUN, STORE, DROP, LOAD, FORGET = 0, 1, 2, 3, 4  # kinds of events; FORGET drops the copy on the host
_AHEAD, _LINGERS, _AWAY, _BACK = 0, 1, 2, 3  # of a chosen gap: not begun, still in memory, in the host only, over
_WINDOW = 32  # gaps looked at for early loads


@kernel
def time_moves(
    kind: npt.NDArray,
    subject: npt.NDArray,
    level: npt.NDArray,
    cost: npt.NDArray,
    size: npt.NDArray,
    storage: npt.NDArray,
    r_start: npt.NDArray,
    r_items: npt.NDArray,
    w_start: npt.NDArray,
    w_items: npt.NDArray,
    out_price: float,
    in_price: float,
    overlap: bool,
    begin: npt.NDArray,
    end: npt.NDArray,
) -> float:
    """Return when the last move of a plan on two levels has ended; fill when each begins and ends.

    Moves are encoded as in a plan; reads and writes are those of ops, as tensors. Memory is free again only when what was
    copied out of it is out, and an op waits for what it reads to be in. Without overlap everything takes its turn.
    """
    now = 0.0
    out_free, in_free = 0.0, 0.0
    saved, loaded = np.zeros(len(size)), np.zeros(len(size))
    for i in range(len(kind)):
        s = subject[i]
        if kind[i] == 0:
            for k in range(r_start[s], r_start[s + 1]):
                now = max(now, loaded[storage[r_items[k]]])
            for k in range(w_start[s], w_start[s + 1]):
                home = storage[w_items[k]]
                now = max(now, saved[home], loaded[home])
            begin[i] = now
            now += cost[s]
            end[i] = now
        elif kind[i] == 1:
            home = storage[s]
            if level[i] == 0:
                begin[i] = max(now, out_free, loaded[home])
                end[i] = begin[i] + size[s] * out_price
                out_free = saved[home] = end[i]
            else:
                begin[i] = max(now, in_free, saved[home])
                end[i] = begin[i] + size[s] * in_price
                in_free = loaded[home] = end[i]
            if not overlap:
                now = end[i]
        else:
            if level[i] == 0:
                now = max(now, saved[storage[s]], loaded[storage[s]])
            begin[i] = end[i] = now
    return max(now, out_free, in_free)


@kernel
def _lingerer(s: Timeline, order: npt.NDArray, head: int, state: npt.NDArray, saved: npt.NDArray, now: float) -> int:
    """Return the gap whose value gives up its memory: of those with a finished store the last used, else the first to finish."""
    best = -1
    for k in range(len(order) - 1, head - 1, -1):
        i = order[k]
        if state[i] == _LINGERS:
            end = saved[s.t_value[i]]
            if end <= now:
                return int(i)
            if best < 0 or end < saved[s.t_value[best]]:
                best = int(i)
    return best


@kernel
def place(
    s: Timeline,
    sequence: npt.NDArray,
    size: npt.NDArray,
    destroyer: npt.NDArray,
    cost: npt.NDArray,
    chosen: npt.NDArray,
    capacity: int,
    out_price: float,
    in_price: float,
    overlap: bool,
    lead: float,
    kinds: npt.NDArray,
    subjects: npt.NDArray,
) -> tuple[float, int]:
    """Write the events of a sequence with the chosen gaps away; return when it ends and how many events there are.

    A store begins as soon as its value is not needed for a while, its memory is given up only when something else needs it, and
    a load begins as soon as there is room from then to its use, but not when that is more than `lead` copies away. Ends at
    infinity when it does not fit.
    """
    runs, count = len(sequence), 0
    held = np.int64(0)
    for v in range(len(size)):
        if s.first[v] != DEAD:
            held += size[v]
    planned = s.memory.copy()  # held at the least, with what has been loaded early
    order = np.flatnonzero(chosen)
    uses = np.empty(len(order), np.int64)
    for k in range(len(order)):
        i = order[k]
        uses[k] = runs if s.t_next[i] == END else s.t_run[s.t_next[i]]
        for q in range(s.t_run[i] + 1, uses[k]):
            planned[q] -= size[s.t_value[i]]
    by_use = np.argsort(uses, kind="mergesort")
    order, uses = order[by_use], uses[by_use]
    state = np.full(len(chosen), _AHEAD)
    blocked = np.zeros(len(chosen), np.int64)  # the run up to which an early load is known not to fit
    came = np.full(len(chosen), -1, np.int64)  # per touch: the chosen gap that ends there
    more = chosen.copy()  # per touch: whether its copy is sent away here or later
    for i in range(len(chosen) - 1, -1, -1):
        if s.t_next[i] >= 0:
            more[i] = more[i] or more[s.t_next[i]]
            if chosen[i]:
                came[s.t_next[i]] = i
    on_host = np.zeros(len(size), np.bool_)
    saved, loaded = np.zeros(len(size)), np.zeros(len(size))
    now, out_free, in_free = 0.0, 0.0, 0.0
    head = 0
    for p in range(runs + 1):
        # What this run needs: room for it is made by giving up what lingers.
        need, loads = np.int64(0), np.int64(0)
        if p < runs:
            for i in range(s.t_start[p], s.t_start[p + 1]):
                v = s.t_value[i]
                if i < s.t_start[p] + s.reads[p]:
                    if came[i] >= 0:
                        if state[came[i]] == _AWAY:
                            need += size[v]
                            loads += size[v]
                        else:
                            state[came[i]] = _BACK
                    if destroyer[v] == sequence[p]:
                        need -= size[v]
                else:
                    need += size[v]
        else:
            for k in range(head, len(order)):
                if uses[k] == runs:
                    if state[order[k]] == _AWAY:
                        need += size[s.t_value[order[k]]]
                    else:
                        state[order[k]] = _BACK
        while held + max(need, loads) > capacity:
            best = _lingerer(s, order, head, state, saved, now)
            if best < 0:
                return np.inf, count
            v = s.t_value[best]
            if not on_host[v]:
                now += size[v] * out_price
                on_host[v] = True
                kinds[count], subjects[count] = STORE, v
                count += 1
            now = max(now, saved[v], loaded[v])
            kinds[count], subjects[count] = DROP, v
            count += 1
            state[best] = _AWAY
            held -= size[v]
        # What this run reads and what is not there yet is loaded now.
        for k in range(head, len(order)):
            i = order[k]
            if uses[k] > p:
                break
            if state[i] == _AWAY:
                v = s.t_value[i]
                start = max(now, in_free, saved[v])
                in_free = loaded[v] = start + size[v] * in_price
                if not overlap:
                    now = in_free
                state[i] = _BACK
                held += size[v]
                kinds[count], subjects[count] = LOAD, v
                count += 1
                if s.t_next[i] < 0 or not more[s.t_next[i]]:
                    kinds[count], subjects[count] = FORGET, v
                    count += 1
                    on_host[v] = False
        if p == runs:
            break
        while head < len(order) and uses[head] <= p:
            head += 1
        op = sequence[p]
        for i in range(s.t_start[p], s.t_start[p + 1]):
            v = s.t_value[i]
            now = max(now, loaded[v])
            if destroyer[v] == op:
                now = max(now, saved[v])
                on_host[v] = False
                held -= size[v]
            elif i >= s.t_start[p] + s.reads[p]:
                held += size[v]
        kinds[count], subjects[count] = RUN, op
        count += 1
        now += cost[op]
        for i in range(s.t_start[p], s.t_start[p + 1]):
            v = s.t_value[i]
            if s.t_next[i] == DEAD and destroyer[v] != op:
                held -= size[v]
                now = max(now, saved[v])
                kinds[count], subjects[count] = DROP, v
                count += 1
                if on_host[v]:
                    on_host[v] = False
                    kinds[count], subjects[count] = FORGET, v
                    count += 1
        for i in range(s.t_start[p], s.t_start[p + 1]):
            if chosen[i]:
                v = s.t_value[i]
                state[i] = _LINGERS
                if not on_host[v] and overlap:
                    out_free = saved[v] = max(now, out_free, loaded[v]) + size[v] * out_price
                    on_host[v] = True
                    kinds[count], subjects[count] = STORE, v
                    count += 1
        # Early loads, in the order of their uses.
        looked = 0
        for k in range(head, len(order)):
            if looked == _WINDOW:
                break
            i = order[k]
            if state[i] != _AWAY:
                continue
            looked += 1
            v = s.t_value[i]
            use = min(uses[k], runs - 1)
            takes = max(0.0, in_free - now) + size[v] * in_price
            if s.began[use] - s.began[p] - cost[op] > lead * takes:
                break
            if blocked[i] > p + 1:
                break  # those used later wait behind it
            for q in range(p + 1, uses[k]):
                if planned[q] + size[v] > capacity:
                    blocked[i] = q + 1
                    break
            if blocked[i] > p + 1:
                break
            while overlap and held + size[v] > capacity:
                # What is needed later makes room if that costs nothing.
                other = _lingerer(s, order, k + 1, state, saved, now)
                if other < 0 or max(saved[s.t_value[other]], loaded[s.t_value[other]]) > now:
                    break
                kinds[count], subjects[count] = DROP, s.t_value[other]
                count += 1
                state[other] = _AWAY
                held -= size[s.t_value[other]]
            if held + size[v] > capacity:
                break
            for q in range(p + 1, uses[k]):
                planned[q] += size[v]
            start = max(now, in_free, saved[v])
            in_free = loaded[v] = start + size[v] * in_price
            if not overlap:
                now = in_free
            state[i] = _BACK
            held += size[v]
            kinds[count], subjects[count] = LOAD, v
            count += 1
            if s.t_next[i] < 0 or not more[s.t_next[i]]:
                kinds[count], subjects[count] = FORGET, v
                count += 1
                on_host[v] = False
    return max(now, out_free, in_free), count
