"""Operators that copy to the host and back: the same bits, buffers that go back to their pool, limits that are kept."""

from __future__ import annotations

import gc

import pytest
import torch

from pebbler.run.torch.backend.host_operators import ARRIVED, FETCH, SEND, SENT, HostPool
from pebbler.run.torch.cost.peak_memory import measure_peak


def there_and_back(value, pool):
    there = SEND(value, pool.number)
    SENT(there, value, pool.number)
    back = FETCH(there, value.dtype, value.device, pool.number)
    ARRIVED(back, pool.number)
    return there, back


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64])
@pytest.mark.parametrize("form", [((2, 3, 5), (15, 5, 1)), ((2, 3, 5), (1, 10, 2)), ((1, 4), (99, 1)), ((), ())])
def test_values_of_any_kind_come_back_bit_by_bit(dtype, form):
    pool = HostPool("cpu", None)
    value = torch.empty_strided(*form, dtype=dtype).copy_(torch.randint(0, 2, form[0]))
    _, back = there_and_back(value, pool)
    assert torch.equal(back, value)
    assert back.dtype == dtype
    assert [s for s, n in zip(back.stride(), back.shape, strict=True) if n > 1] == [
        s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1
    ]


def test_a_part_of_a_larger_storage_is_sent_alone():
    pool = HostPool("cpu", None)
    base = torch.arange(100.0)
    there, back = there_and_back(base[20:40].view(4, 5), pool)
    assert torch.equal(back, base[20:40].view(4, 5))
    assert pool.transfers.bytes == there.numel() == 80


def test_a_value_with_gaps_is_refused():
    with pytest.raises(RuntimeError, match=r"shape \(3,\) and strides \(2,\) cannot go to the host"):
        SEND(torch.arange(6)[::2], HostPool("cpu", None).number)


def test_what_is_on_the_host_is_not_counted_as_memory_of_the_device():
    pool = HostPool("cpu", None)
    value = torch.ones(100_000)
    there, peak = measure_peak(lambda: SEND(value, pool.number))
    assert peak < 1000
    assert there.numel() == 400_000


def test_a_buffer_goes_back_when_the_last_look_at_it_is_gone():
    pool = HostPool("cpu", None)
    value = torch.randn(64)
    there = SEND(value, pool.number)
    look = there.view(-1)[3:].detach()
    place = there.data_ptr()
    del there
    other = SEND(torch.zeros(64), pool.number)  # takes another buffer: somebody still looks at the first
    assert other.data_ptr() != place
    assert torch.equal(look, value.view(torch.uint8)[3:])
    del look
    gc.collect()
    assert SEND(torch.ones(64), pool.number).data_ptr() == place
    assert pool.transfers.bytes == 2 * 256
    assert not pool.copies or set(pool.copies) == {other.data_ptr()}


def test_the_limit_is_kept_and_what_finds_no_room_stays_on_the_device():
    pool = HostPool("cpu", 1000)
    values = [torch.randn(100) for _ in range(4)]
    there = [SEND(value, pool.number) for value in values]
    assert (pool.transfers.bytes, pool.transfers.most, pool.refused) == (800, 800, 800)
    for value, bytes_ in zip(values, there, strict=True):
        before = value.clone()
        SENT(bytes_, value, pool.number)
        value.zero_()  # whoever computes may write over it from now on
        back = FETCH(bytes_, value.dtype, value.device, pool.number)
        ARRIVED(back, pool.number)
        assert torch.equal(back, before)


def test_idle_buffers_of_other_sizes_make_room():
    pool = HostPool("cpu", 1000)
    for count in (100, 200, 30, 250, 251):
        there = SEND(torch.ones(count), pool.number)
        assert pool.transfers.bytes <= 1000
        del there
    assert (pool.refused, pool.transfers.bytes) == (1004, 1000)


def test_sizes_that_change_from_step_to_step_do_not_pile_up():
    pool = HostPool("cpu", None)
    for count in range(100, 200):
        there = [SEND(torch.ones(count), pool.number) for _ in range(3)]
        assert pool.transfers.bytes <= 2 * 3 * 4 * count
        del there
    for count in (150, 199) * 3:  # two that take turns are kept
        before = pool.transfers.bytes
        there = [SEND(torch.ones(count), pool.number) for _ in range(3)]
        del there
    assert pool.transfers.bytes == before


def test_pinned_memory_is_counted_as_torch_rounds_it():
    pool = HostPool("cuda:0", 2**20)
    assert [pool.transfers.held_for(size) for size in (1, 4096, 4097)] == [1, 4096, 8192]
