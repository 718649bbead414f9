"""Mini-batches in caches: hit rates by cache size, and parameter floats loaded per sample."""

from __future__ import annotations

from pebbler.notes.experiment import Plot, Question, Series, show, table
from pebbler.notes.tiled_loops import FLOATS_PER_KB, Loads, Tiled, TrainingLoop, Untiled, parameter_loads
from pebbler.trace.buffer_events import Events, buffer_lru

__all__ = [
    "BATCH",
    "LOOPED",
    "PRODUCT",
    "SINGLE",
    "LoadTable",
    "hit_plot",
    "hit_question",
    "hit_rates",
    "load_plot",
    "load_question",
    "load_table",
]

N, HIDDEN, BATCH = 20, 1000, 32
_HIT_CACHES_KB = (4, 16, 32, 64, 80, 96, 128, 192, 256)
_LOAD_BATCHES = (1, 4, 8, 16, 32, 64)
_LOAD_CACHES_KB = (32, 64, 128, 256)

HitRow = tuple[int, float, float, float, float]
# By schedule, batch size and cache size in KB: parameter floats loaded per sample.
LoadTable = dict[tuple[str, int, int], Loads]
SINGLE, LOOPED, PRODUCT = "single", "batch, sample by sample", "batch, matrix products"


def hit_rates(single: Events, batch: Events) -> list[HitRow]:
    """Return cache KB, then hit rate (% of reads) and effective ARD of the single steps and of the batch."""
    rows = []
    for kilobytes in _HIT_CACHES_KB:
        one, many = (buffer_lru(events, kilobytes * FLOATS_PER_KB) for events in (single, batch))
        rates = [100 * cache.hits / (cache.hits + cache.misses) for cache in (one, many)]
        rows.append((kilobytes, rates[0], one.effective_ard, rates[1], many.effective_ard))
    return rows


def hit_question(rows: list[HitRow]) -> Question:
    """Answer how hit rates depend on the size of the cache."""
    first = {column: next(row[0] for row in rows if row[column] == 100) for column in (1, 3)}
    fits = next(row for row in rows if row[0] == 96)
    return Question(
        question="How do hit rates depend on the size of the cache?",
        answer=(
            f"Every read of the single steps hits from {first[1]} KB on, every read of the batch only from {first[3]} KB: the "
            "batch needs room for W1 and for its accumulator at once. The note expects the batch to gain once W1 (80 KB) fits; at "
            f"{fits[0]} KB it hits {fits[3]:.0f} % of its reads, the single steps {fits[1]:.0f} %."
        ),
        tables=(
            table(
                "Buffer-granular LRU on the note's traces",
                ["KB", "single hit %", "effective ARD", "batch 32 hit %", "effective ARD"],
                rows,
            ),
        ),
    )


def hit_plot(rows: list[HitRow]) -> Plot:
    """Return hit rate against cache size."""
    sizes = tuple(row[0] for row in rows)
    return Plot(
        name="hit-rates",
        title="Reads that hit, by cache size",
        x_label="cache, KB",
        y_label="hits, % of reads",
        log_x=True,
        series=(
            Series(label="32 single steps", x=sizes, y=tuple(row[1] for row in rows)),
            Series(label="one batch of 32", x=sizes, y=tuple(row[3] for row in rows)),
        ),
    )


def load_table() -> LoadTable:
    """Return the parameter floats loaded per sample, for every schedule, batch size and cache size."""
    caches = [kilobytes * FLOATS_PER_KB for kilobytes in _LOAD_CACHES_KB]
    schedules: list[tuple[str, int, TrainingLoop]] = [(SINGLE, 1, Untiled(N, HIDDEN))]
    schedules += [(LOOPED, size, Untiled(N, HIDDEN, size)) for size in _LOAD_BATCHES]
    schedules += [
        (PRODUCT, size, Tiled(N, HIDDEN, 20, reverse=True, tile_w2=True, batch=size)) for size in _LOAD_BATCHES
    ]
    return {
        (name, size, kilobytes): Loads(round(load.lru / size), round(load.opt / size))
        for name, size, schedule in schedules
        for kilobytes, load in zip(_LOAD_CACHES_KB, parameter_loads(schedule, caches), strict=True)
    }


def load_question(loads: LoadTable) -> Question:
    """Answer how many parameter floats come from DRAM per sample."""
    headings = [f"{kb} KB {kind}" for kb in _LOAD_CACHES_KB for kind in ("LRU", "OPT")]
    tables = []
    for name in (SINGLE, LOOPED, PRODUCT):
        rows = []
        for size in _LOAD_BATCHES if name != SINGLE else (1,):
            cells = [loads[name, size, kb] for kb in _LOAD_CACHES_KB]
            rows.append((size, *(value for load in cells for value in (load.lru, load.opt))))
        tables.append(table(f"{name}: parameter floats from DRAM per sample", ["batch", *headings], rows))
    alone, looped, product = loads[SINGLE, 1, 64], loads[LOOPED, BATCH, 64], loads[PRODUCT, BATCH, 64]
    return Question(
        question="How many parameter floats come from DRAM per sample, against batch size?",
        answer=(
            f"In 64 KB a single step loads {show(alone.lru)} (LRU; {show(alone.opt)} at best). Sample by sample, as the note "
            f"traces it, a batch of {BATCH} loads {show(looped.lru)} (at best {show(looped.opt)}), because the accumulator of "
            f"W1 drives W1 out. With a matrix product per tile of W1 it is {show(product.lru)} ({show(product.opt)}), and "
            "falls with 1/batch. OPT keeps whatever lets the most reads of any kind hit."
        ),
        tables=tuple(tables),
    )


def load_plot(loads: LoadTable) -> Plot:
    """Return parameter loads against batch size; the single step is drawn as a level line."""

    def line(name: str, kind: str) -> Series:
        cells = [loads[name, 1 if name == SINGLE else size, 64] for size in _LOAD_BATCHES]
        values = tuple(float(cell.lru if kind == "LRU" else cell.opt) for cell in cells)
        return Series(label=f"{name}, {kind}", x=_LOAD_BATCHES, y=values)

    return Plot(
        name="parameter-loads",
        title="Parameter floats from DRAM per sample, 64 KB cache",
        x_label="batch size",
        y_label="floats per sample",
        log_x=True,
        log_y=True,
        series=tuple(line(name, kind) for name in (SINGLE, LOOPED, PRODUCT) for kind in ("LRU", "OPT")),
    )
