"""Probes of a CPU do what they say: as many bytes, as many flops."""

from __future__ import annotations

import numpy as np

from pebbler.joules.cpu_bench import CpuBench
from pebbler.joules.kernels.memory_sweeps import read_again, write_again


def naive_read(data, rounds):
    """Return what `read_again` returns, number by number."""
    total = 0.0
    for _ in range(rounds):
        total = sum(data.tolist()) - total * 0.5
    return total


def test_sweeps_read_and_write_everything_every_round():
    data = np.arange(100, dtype=np.float64)
    for rounds in (0, 1, 2, 5):
        assert read_again(data, rounds) == naive_read(data, rounds)
        written = data.copy()
        write_again(written, rounds)
        assert (written == (rounds - 1 if rounds else data)).all()


def test_probes_say_what_one_run_moves():
    probes = CpuBench(most=2**15).probes()
    swept = [probe for probe in probes if probe.sweep == "shared"]
    assert [probe.footprint for probe in swept] == [8192, 11584, 16384, 23168, 32768]
    assert all(probe.reads % probe.footprint == 0 and probe.reads > 0 == probe.writes for probe in swept)
    written = [probe for probe in probes if probe.writes and not probe.flops]
    assert all(probe.writes % probe.footprint == 0 and probe.reads == 0 for probe in written)
    assert {probe.dtype: probe.flops for probe in probes if probe.flops} == {
        "float32": 2.0 * 768**3,
        "float64": 2.0 * 768**3,
    }
    for probe in probes:
        probe.work.launch()
