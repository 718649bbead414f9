"""Reuse distances and optimal misses beside libcachesim, pycachesim, plain C and plain Python, in one run.

Run `python -m benchmarks.cache_speed` from the repository root, with the `bench` extra installed and gcc at hand. All tools
see the same two traces. Times are CPU times of one thread (on a busy machine a clock on the wall measures the others), the
best of a few rounds in which the tools take turns. Every count that two tools share is compared; a difference is an error.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import cachesim
import libcachesim
import numpy as np

from pebbler.trace.caches import hierarchy, opt_misses
from pebbler.trace.distances import Packer, profile, reuse_distances

ROUNDS = 4
SIZE = 8192
LEVELS = [(64, 8), (512, 8), (2048, 16)]
# libcachesim's own default, and the smaller hash tables that suit these traces better: it is given the best of them.
HASH_POWERS = (16, 20, 24)
PYTHON_ACCESSES = 300

# The textbook method: a Fenwick tree over all of time, one node per access. It is given dense ids for nothing.
C_SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int distances(const int64_t *ids, int64_t n, int64_t distinct, int64_t *out) {
    int32_t *tree = calloc(n + 1, sizeof *tree);
    int64_t *last = malloc(distinct * sizeof *last);
    if (!tree || !last) return 1;
    memset(last, 0xff, distinct * sizeof *last);
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t before = last[ids[i]];
        if (before < 0) {
            out[i] = 0;
            live++;
        } else {
            int64_t below = 0;
            for (int64_t j = before; j; j &= j - 1) below += tree[j];
            out[i] = live - below;
            for (int64_t j = before + 1; j <= n; j += j & -j) tree[j]--;
        }
        for (int64_t j = i + 1; j <= n; j += j & -j) tree[j]++;
        last[ids[i]] = i;
    }
    free(tree);
    free(last);
    return 0;
}
"""


def zipf_trace(accesses: int = 5_000_000, words: int = 1_000_000, seed: int = 1) -> np.ndarray:
    """Accesses to words of Zipf popularity (exponent 1) whose addresses are in no order."""
    rng = np.random.default_rng(seed)
    weight = np.cumsum(1 / np.arange(1, words + 1))
    return rng.permutation(words)[np.searchsorted(weight, rng.random(accesses) * weight[-1])].astype(np.int64)


def matrix_trace(n: int = 128) -> np.ndarray:
    """The i-j-k product of two n x n matrices: A[i, k], B[k, j], C[i, j] for every term."""
    i, j, k = np.indices((n, n, n)).reshape(3, -1)
    return np.stack([i * n + k, n * n + k * n + j, 2 * n * n + i * n + j], axis=1).ravel().astype(np.int64)


def take_turns(tools: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> tuple[dict[str, float], dict[str, Any]]:
    """Best time of each tool, and its result."""
    seconds: dict[str, float] = {}
    results = {}
    for _ in range(rounds):
        for name, tool in tools.items():
            start = time.process_time()
            results[name] = tool()
            seconds[name] = min(time.process_time() - start, seconds.get(name, float("inf")))
    return seconds, results


def compiled_fenwick(folder: Path) -> Callable[[np.ndarray, int], np.ndarray]:
    """The C function above, as a Python one."""
    (folder / "fenwick.c").write_text(C_SOURCE)
    library = folder / "fenwick.so"
    subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", folder / "fenwick.c", "-o", library], check=True)
    function = ctypes.CDLL(str(library)).distances
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def run(ids: np.ndarray, distinct: int) -> np.ndarray:
        out = np.empty(ids.size, np.int64)
        if function(ids.ctypes.data, ids.size, distinct, out.ctypes.data):
            raise MemoryError
        return out

    return run


def oracle_file(path: Path, trace: np.ndarray) -> str:
    """The trace in libcachesim's binary form with next-access times, without which its Belady is wrong."""
    order = np.lexsort((np.arange(trace.size), trace))
    following = np.full(trace.size, -1, np.int64)
    same = trace[order[1:]] == trace[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    rows = np.zeros(trace.size, np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    rows["id"], rows["size"], rows["next"] = trace + 1, 1, following
    rows.tofile(path)
    return str(path)


def replay(policy: type, path: str, accesses: int, power: int) -> int:
    """Misses of one libcachesim cache of SIZE words."""
    reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    return round(policy(SIZE, hashpower=power).process_trace(reader)[0] * accesses)


def python_rate(trace: np.ndarray) -> float:
    """Accesses per second of a Python list as the stack, in the middle of the trace: beginnings have short stacks."""
    middle = trace.size // 2
    _, last = np.unique(trace[:middle][::-1], return_index=True)
    stack = trace[:middle][::-1][np.sort(last)].tolist()
    rest = trace[middle : middle + PYTHON_ACCESSES].tolist()
    start = time.process_time()
    for word in rest:
        depth = stack.index(word) if word in stack else -1
        if depth >= 0:
            del stack[depth]
        stack.insert(0, word)
    return len(rest) / (time.process_time() - start)


def pycachesim_hits(trace: np.ndarray, writes: np.ndarray) -> tuple[list[tuple[int, int, int]], float]:
    """(read hits, misses, written-back lines received) of each level of LEVELS, and the seconds it took."""
    memory = cachesim.MainMemory()
    below = None
    for number, (sets, ways) in reversed(list(enumerate(LEVELS))):
        last = below is None
        below = cachesim.Cache(f"L{number}", sets, ways, 1, "LRU", store_to=below, load_from=below)
        if last:
            memory.load_to(below)
            memory.store_from(below)
    simulator = cachesim.CacheSimulator(below, memory)
    pairs = [(None, (a,)) if w else ((a,), None) for a, w in zip(trace.tolist(), writes.tolist(), strict=True)]
    start = time.process_time()
    simulator.loadstore(pairs, length=1)
    seconds = time.process_time() - start
    levels = [level for level in simulator.stats() if level["name"] != "MEM"]
    return [(s["HIT_count"], s["MISS_count"], s["STORE_count"]) for s in levels], seconds


def compare(name: str, trace: np.ndarray, writes: np.ndarray, folder: Path) -> dict[str, Any]:
    """Run everything on one trace, check every shared count, print the table."""
    path = oracle_file(folder / "trace.bin", trace)
    packer = Packer()
    ids = packer.ids(trace).astype(np.int64)
    fenwick = compiled_fenwick(folder)
    n = trace.size
    tools: dict[str, Callable[[], Any]] = {
        "distances": lambda: reuse_distances(trace),
        "profile": lambda: profile(trace),
        "C": lambda: fenwick(ids, packer.count),
        "opt": lambda: opt_misses(trace, [SIZE])[0],
        "levels": lambda: hierarchy(trace, LEVELS, writes=writes, writes_refresh=False),
    }
    for power in HASH_POWERS:
        tools[f"lru {power}"] = lambda power=power: replay(libcachesim.LRU, path, n, power)
        tools[f"belady {power}"] = lambda power=power: replay(libcachesim.Belady, path, n, power)
    seconds, results = take_turns(tools)
    lru, belady = (min((seconds[f"{tool} {p}"], p) for p in HASH_POWERS) for tool in ("lru", "belady"))
    hits, pycachesim_seconds = pycachesim_hits(trace, writes)
    python = n / python_rate(trace)

    checks = {
        "distances = C Fenwick's": bool((results["distances"] == results["C"]).all()),
        f"LRU misses of {SIZE} = libcachesim's": results["profile"].misses([SIZE])[0] == results[f"lru {lru[1]}"],
        f"OPT misses of {SIZE} = libcachesim's Belady's": results["opt"] == results[f"belady {belady[1]}"],
        "hits, misses, write-backs of 3 levels = pycachesim's": hits
        == [(level.read_hits, level.misses, level.writes) for level in results["levels"]],
    }
    rows = [
        ("pebbler: distance of every access", seconds["distances"], None),
        ("pebbler: misses of every LRU size", seconds["profile"], None),
        ("C Fenwick tree, gcc -O3: distances (packed ids given)", seconds["C"], "distances"),
        (f"libcachesim LRU: misses of one size (hash 2^{lru[1]})", lru[0], "profile"),
        ("libcachesim LRU, its default hash 2^24", seconds["lru 24"], "profile"),
        (f"Python list stack (from {PYTHON_ACCESSES} accesses in the middle)", python, "distances"),
        ("pebbler: OPT misses of one size", seconds["opt"], None),
        (f"libcachesim Belady: one size (hash 2^{belady[1]})", belady[0], "opt"),
        ("pebbler: 3 set-associative levels with write-backs", seconds["levels"], None),
        ("pycachesim: the same, from a list of tuples", pycachesim_seconds, "levels"),
    ]
    print(f"\n{name}: {n:,} accesses, {packer.count:,} words")
    print(f"{'':57} {'M/s':>9} {'pebbler is':>14}")
    for label, taken, ours in rows:
        ratio = f"{taken / seconds[ours]:,.1f} x as fast" if ours else ""
        print(f"{label:57} {n / taken / 1e6:9.3f} {ratio:>18}")
    for check, holds in checks.items():
        print(f"  {'same' if holds else 'DIFFERENT'}: {check}")
    return {
        "accesses": n,
        "words": packer.count,
        "million_per_second": {label: n / taken / 1e6 for label, taken, _ in rows},
        "checks": checks,
    }


COLD_START = """
import time
start = time.perf_counter()
from pebbler.trace.caches import opt_misses
from pebbler.trace.energy import lru_energy
from pebbler.trace.distances import profile
imported = time.perf_counter()
trace = [1, 2, 3] * 10
profile(trace), opt_misses(trace, [2]), lru_energy(trace, [False] * 30, [2, None], [1, 2], [1, 2])
print(imported - start, time.perf_counter() - imported)
"""


def cold_start(folder: Path) -> dict[str, float]:
    """Seconds of importing and of the first calls: kernels compiled, then taken from disk."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "numba")}
    found = {}
    for state in ("compiling", "from disk"):
        done = subprocess.run(
            [sys.executable, "-c", COLD_START], env=environment, capture_output=True, check=True, text=True
        )
        found["import"], found[f"first calls, {state}"] = map(float, done.stdout.split())
    return found


def main() -> int:
    """Print everything; the exit status says whether all counts agree."""
    versions = {tool: metadata.version(tool) for tool in ("numpy", "numba", "libcachesim", "pycachesim")}
    print(f"Python {platform.python_version()}, " + ", ".join(f"{tool} {number}" for tool, number in versions.items()))
    print(
        f"CPU time of one thread, best of {ROUNDS} rounds in turns, on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = cold_start(folder)
        print("cold start, seconds: " + ", ".join(f"{what} {seconds:.2f}" for what, seconds in start.items()))
        zipf, product = zipf_trace(), matrix_trace()
        found = {
            "zipf": compare("Zipf", zipf, np.zeros(zipf.size, bool), folder),
            "matrix product": compare(
                "Matrix product 128^3 (C is written)", product, np.arange(product.size) % 3 == 2, folder
            ),
        }
    if "--json" in sys.argv:
        print(json.dumps({"cold_start": start, **found}, default=bool))
    return 0 if all(all(trace["checks"].values()) for trace in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
