"""Operators that send a saved value to the host in forward and fetch it in backward, for graphs that Inductor compiles.

Inductor knows nothing of them but what they read and make, so they run where the graph has them. `send` begins a copy, `sent`
makes the computing stream wait for it and is the last to read the value; `fetch` begins the way back into new memory, which may
be read after `arrived`. What forward hands to backward is a tensor of the host's bytes: it lives as long as autograd keeps it,
and its buffer goes back to the pool with it, whether backward ran or not.

Where the host has no room (two forward passes before a backward), `send` copies the value on its own device instead.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from pebbler.run.torch.run.host_copies import HostBytes, NoRoom, PendingLoad, Transfers, arrive, end_store

__all__ = ["ARRIVED", "FETCH", "SEND", "SENT", "HostPool"]


class HostPool:
    """The host's memory of one step: buffers, copies under way, and the number by which operators name it.

    >>> pool = HostPool("cpu", None)
    >>> value = torch.arange(6.0).reshape(2, 3)
    >>> there = SEND(value, pool.number)
    >>> back = FETCH(there, value.dtype, value.device, pool.number)
    >>> torch.equal(back, value), pool.transfers.bytes, there.dtype, tuple(there.shape)
    (True, 24, torch.uint8, (2, 3, 4))
    """

    def __init__(self, device: str, limit: int | None) -> None:
        self.transfers = Transfers(device, limit, spare=1.0)
        self.refused = 0  # bytes that stayed on the device because there was no room
        self.copies: WeakValueDictionary[int, HostBytes] = WeakValueDictionary()  # by address on the host
        # By address on the device. Held here, so that nobody else gets memory that a copy still writes to, should backward fail.
        self.loading: dict[int, PendingLoad] = {}
        self.number = len(_POOLS)
        _POOLS.append(self)


_POOLS: list[HostPool] = []  # one for each budget, and budgets stay


def _send(value: torch.Tensor, pool: int) -> torch.Tensor:
    mine = _POOLS[pool]
    if not torch.ops.aten.is_non_overlapping_and_dense.default(value):  # planned so for other shapes
        raise RuntimeError(f"a value of shape {tuple(value.shape)} and strides {value.stride()} cannot go to the host")
    raw = torch.as_strided(value, (value.numel(),), (1,)).view(torch.uint8)
    try:
        copy = HostBytes(mine.transfers, raw)
    except NoRoom:
        mine.refused += raw.numel()
        return torch.as_strided(raw.clone(), *_form(value))
    there = torch.from_numpy(np.asarray(copy))
    mine.copies[there.data_ptr()] = copy
    return torch.as_strided(there, *_form(value))


def _sent(there: torch.Tensor, value: torch.Tensor, pool: int) -> None:
    copy = _POOLS[pool].copies.get(there.data_ptr())
    if copy is not None:
        end_store(copy, value)


def _fetch(there: torch.Tensor, dtype: torch.dtype, device: torch.device, pool: int) -> torch.Tensor:
    mine = _POOLS[pool]
    mine.loading = {place: load for place, load in mine.loading.items() if load.done and not load.done.reached}
    back = _fetched_form(there, dtype, device, pool)
    raw = torch.as_strided(back, (back.numel(),), (1,)).view(torch.uint8)
    copy = mine.copies.get(there.data_ptr())
    if copy is None:
        raw.copy_(torch.as_strided(there, (there.numel(),), (1,)))
        return back
    done = copy.fetch(raw)
    if done is not None:
        mine.loading[back.data_ptr()] = PendingLoad(back, done)
    return back


def _arrived(value: torch.Tensor, pool: int) -> None:
    load = _POOLS[pool].loading.pop(value.data_ptr(), None)
    if load is not None:
        arrive(load)


def _form(value: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return shape and strides of a value's bytes, with an axis more: Inductor writes other values over buffers of their kind."""
    size = value.element_size()
    return [*value.shape, size], [*(stride * size for stride in value.stride()), 1]


def _sent_form(value: torch.Tensor, pool: int) -> torch.Tensor:
    shape, strides = _form(value)
    return torch.empty_strided(shape, strides, dtype=torch.uint8, device="cpu")


def _fetched_form(there: torch.Tensor, dtype: torch.dtype, device: torch.device, pool: int) -> torch.Tensor:
    strides = [stride // dtype.itemsize for stride in there.stride()[:-1]]
    return torch.empty_strided(there.shape[:-1], strides, dtype=dtype, device=device)


def _nothing(*_operands: Any) -> None:
    """Stand for an operator that makes nothing."""


_LIBRARY = torch.library.Library("pebbler", "FRAGMENT")
for _name, _schema, _real, _fake in (
    ("send", "(Tensor value, int pool) -> Tensor", _send, _sent_form),
    # What changes nothing would be left out of a graph; and whoever reads after a change waits for it.
    ("sent", "(Tensor(a!) there, Tensor value, int pool) -> ()", _sent, _nothing),
    ("fetch", "(Tensor there, ScalarType dtype, Device device, int pool) -> Tensor", _fetch, _fetched_form),
    ("arrived", "(Tensor(a!) value, int pool) -> ()", _arrived, _nothing),
):
    _LIBRARY.define(_name + _schema, tags=(torch.Tag.needs_exact_strides,))
    _LIBRARY.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pebbler::{_name}", _fake, lib=_LIBRARY)

SEND: Any = torch.ops.pebbler.send.default
SENT: Any = torch.ops.pebbler.sent.default
FETCH: Any = torch.ops.pebbler.fetch.default
ARRIVED: Any = torch.ops.pebbler.arrived.default
