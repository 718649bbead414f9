"""The memory accesses of a schedule: traces, reuse distances and caches."""

from pebbler.trace.buffer_events import Events, buffer_lru
from pebbler.trace.cache_analysis import analyse, roles
from pebbler.trace.caches import WriteBacks, hierarchy, level_hits, opt_misses, set_associative
from pebbler.trace.distances import StackDistance, reuse_distances
from pebbler.trace.energy import lru_energy
from pebbler.trace.plan_trace import trace_plan
from pebbler.trace.recording import Recorder, record
from pebbler.trace.sampling import sample_miss_ratio
from pebbler.trace.scalar_program import bytedmd, trace_scalars
from pebbler.trace.traces import Trace
from pebbler.trace.tracking import Tracked, tracked

__all__ = [
    "Events",
    "Recorder",
    "StackDistance",
    "Trace",
    "Tracked",
    "WriteBacks",
    "analyse",
    "buffer_lru",
    "bytedmd",
    "hierarchy",
    "level_hits",
    "lru_energy",
    "opt_misses",
    "record",
    "reuse_distances",
    "roles",
    "sample_miss_ratio",
    "set_associative",
    "trace_plan",
    "trace_scalars",
    "tracked",
]
