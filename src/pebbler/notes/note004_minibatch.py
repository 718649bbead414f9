"""Note 004: mini-batches, their reuse distance and their loads."""

from __future__ import annotations

import msgspec
import numpy as np

from pebbler.notes.experiment import ClaimVerdict, Experiment, NoteFigure, Plot, Question, Series, compare, show, table
from pebbler.notes.parity import Config, draw_data, draw_params
from pebbler.notes.sgd import firing, margins
from pebbler.notes.step_scripts import PARAMS, batch_step, step
from pebbler.notes.tiled_loops import FLOATS_PER_KB, Loads, Tiled, TrainingLoop, Untiled, parameter_loads
from pebbler.trace.buffer_events import Events, buffer_lru

__all__ = ["run"]

CONFIG = Config()

# Batch size: floats per sample and its ratio as printed; ARD, floats, reads and writes in full.
_SWEEP = {
    1: ("48,046", "1.00", 20437.767431211756, 48046, 9, 9),
    4: ("85,560", "1.78", 107606.12884208982, 342240, 76, 50),
    8: ("75,688", "1.58", 166923.45739341763, 605501, 154, 97),
    16: ("64,123", "1.33", 302818.87365265796, 1025969, 282, 173),
    32: ("66,626", "1.39", 547881.3046903154, 2132040, 608, 370),
    64: ("62,907", "1.31", 1085939.054690498, 4026020, 1176, 710),
}
# Hidden units, cache floats: hits, misses and effective ARD of 32 single steps and of one batch of 32.
_CACHES = {
    (200, 8192): ((543, 0, 0.0), (384, 140, 112186.79918849612)),
    (1000, 8192): ((494, 49, 33847.63265306123), (420, 188, 612423.8296923338)),
    (1000, 65536): ((543, 0, 0.0), (608, 0, 0.0)),
}
_SMALL = {"single": (6323.43490668814, 492731, 543, 441), "batch": (102325.49366852669, 364278, 524, 316)}
_REWRITTEN = "The trace rewrites the parameters before every single step, which no trainer does; without that the batch moves more."
_FORWARD_ONLY = (
    "Batch size 1 was traced on a sample of margin 1.347, which makes no gradient: it is a forward pass, not a step."
)
_UPDATES = "The note counts its 32 initial writes and forgets the updates; a trainer writes once at the start and once per update."


def run() -> Experiment:
    """Return note 004's figures, the corrected ones, and how many parameter floats a batch loads from DRAM."""
    single, batch = _single(CONFIG), _batch(CONFIG, BATCH)
    once = _single(CONFIG, fresh=False)
    full_step = Events()
    step(full_step, CONFIG.n, CONFIG.hidden, fires=True)
    rows = [
        *_comparison_rows(single, batch, once),
        *(row for size in _SWEEP for row in _sweep_rows(size, full_step.total_floats)),
        *(row for key in _CACHES for row in _cache_rows(*key)),
        *_small_rows(),
    ]
    loads, hits = load_table(), hit_rates(single, batch)
    alone, looped, product = loads[SINGLE, 1, 64].lru, loads[LOOPED, BATCH, 64].lru, loads[PRODUCT, BATCH, 64].lru
    return Experiment(
        name="minibatch",
        note="004",
        question="How much does mini-batch SGD improve energy efficiency over single-sample SGD?",
        config=msgspec.to_builtins(CONFIG) | {"batch": BATCH},
        seeds=(CONFIG.seed,),
        rows=tuple(rows),
        verdicts=(
            ClaimVerdict(
                claim="A batch of 32 moves 13 % fewer floats than 32 single steps.",
                truth=(
                    f"It moves {100 * (batch.total_floats / once.total_floats - 1):.0f} % more: {show(batch.total_floats)} "
                    f"against {show(once.total_floats)}, once the single steps no longer rewrite their parameters each time."
                ),
                evidence="The note's own event trace with the parameters written once.",
            ),
            ClaimVerdict(
                claim="A batch loads 97 % fewer parameters from DRAM: about 2,000 floats per sample instead of 48,000.",
                truth=(
                    f"Not as the note writes it: in 64 KB a sample at a time loads {show(looped)} parameter floats per sample, a "
                    f"single step {show(alone)}. One matrix product per tile of W1 for the whole batch gets to {show(product)}."
                ),
                evidence="Element-by-element LRU simulation in steady state, lines of 64 bytes.",
            ),
        ),
        questions=(hit_question(hits), load_question(loads)),
        plots=(hit_plot(hits), load_plot(loads)),
    )


def _single(config: Config, *, fresh: bool = True) -> Events:
    events = Events()
    for s, fires in enumerate(firing(config, BATCH)):
        step(events, config.n, config.hidden, fires=fires, fresh=fresh or s == 0)
    return events


def _batch(config: Config, size: int) -> Events:
    events, data = Events(), draw_data(config)
    fires = (margins(draw_params(config), data.x_train[:size], data.y_train[:size]) < 1).tolist()
    if size == 1:
        step(events, config.n, config.hidden, fires=fires[0])
    else:
        batch_step(events, config.n, config.hidden, fires)
    return events


def _writes(events: Events, *names: str) -> int:
    chosen = np.array([name in names for name in events.names])
    return int(np.count_nonzero(chosen[events.buffers()] & events.is_write()))


def _comparison_rows(single: Events, batch: Events, once: Events) -> list[NoteFigure]:
    total, total_once = single.total_floats, once.total_floats
    change, honest = (100 * (batch.total_floats / floats - 1) for floats in (total, total_once))

    def forgotten(name: str, published: str, *params: str) -> NoteFigure:
        measured, corrected = _writes(single, *params), _writes(once, *params)
        return compare(name, measured, published, corrected=corrected, wrong=True, why=_UPDATES)

    return [
        compare("single: firing samples", sum(firing(CONFIG, BATCH)), reference=17),
        compare("single: ARD", single.weighted_ard(), "31,500", reference=31499.64337904391, unit="floats"),
        compare("batch 32: ARD", batch.weighted_ard(), "547,881", reference=547881.3046903154, unit="floats"),
        compare("batch 32: ARD over single", batch.weighted_ard() / single.weighted_ard(), "17", unit="x"),
        compare("single: reads, writes", (single.reads, single.writes), reference=(543, 441)),
        compare("single: total floats", total, "2,455,931", corrected=total_once, unit="floats", why=_REWRITTEN),
        compare("single: floats, written once", total_once, reference=1773900, unit="floats"),
        compare("batch 32: total floats", batch.total_floats, "2,132,040", unit="floats"),
        compare("batch 32: against single", change, "-13", corrected=honest, unit="%", why=_REWRITTEN),
        compare("single: W1 reads", len(single.distances("W1")), "49"),
        compare("batch 32: W1 reads", len(batch.distances("W1")), "34"),
        forgotten("single: W1 writes", "32", "W1"),
        compare("single: W1 writes, written once", _writes(once, "W1"), reference=18),
        compare("batch 32: W1 writes", _writes(batch, "W1"), "2"),
        forgotten("single: parameter writes", "128", *PARAMS),
        compare("batch 32: parameter writes", _writes(batch, *PARAMS), "8"),
    ]


def _sweep_rows(size: int, full_step: int) -> list[NoteFigure]:
    per_sample, ratio, ard, floats, reads, writes = _SWEEP[size]
    events = _batch(CONFIG, size)
    measured = events.total_floats / size
    alone = _batch(CONFIG, 1).total_floats
    corrected, why = (full_step, _FORWARD_ONLY) if size == 1 else (None, "")
    honest_ratio = (corrected or measured) / full_step
    return [
        compare(f"batch {size}: floats per sample", measured, per_sample, corrected=corrected, unit="floats", why=why),
        compare(
            f"batch {size}: against batch 1",
            measured / alone,
            ratio,
            corrected=honest_ratio,
            unit="x",
            why=_FORWARD_ONLY,
        ),
        compare(f"batch {size}: ARD in full", events.weighted_ard(), reference=ard, unit="floats"),
        compare(f"batch {size}: floats", events.total_floats, reference=floats, unit="floats"),
        compare(f"batch {size}: reads, writes", (events.reads, events.writes), reference=(reads, writes)),
    ]


def _cache_rows(hidden: int, cache_floats: int) -> list[NoteFigure]:
    config = msgspec.structs.replace(CONFIG, hidden=hidden)
    traces = {"single": _single(config), "batch 32": _batch(config, BATCH)}
    rows = []
    for (name, events), (hits, misses, ard) in zip(traces.items(), _CACHES[hidden, cache_floats], strict=True):
        cache = buffer_lru(events, cache_floats)
        where = f"{name}, hidden {hidden}, {cache_floats // FLOATS_PER_KB} KB"
        rows += [
            compare(f"{where}: hits", cache.hits, reference=hits),
            compare(f"{where}: misses", cache.misses, reference=misses),
            compare(f"{where}: ARD", cache.effective_ard, reference=ard, unit="floats"),
        ]
    return rows


def _small_rows() -> list[NoteFigure]:
    config = msgspec.structs.replace(CONFIG, hidden=200)
    rows = []
    for name, events in (("single", _single(config)), ("batch", _batch(config, BATCH))):
        ard, floats, reads, writes = _SMALL[name]
        rows += [
            compare(f"{name}, hidden 200: ARD", events.weighted_ard(), reference=ard, unit="floats"),
            compare(f"{name}, hidden 200: floats", events.total_floats, reference=floats, unit="floats"),
            compare(f"{name}, hidden 200: reads, writes", (events.reads, events.writes), reference=(reads, writes)),
        ]
    return rows


# Mini-batches in caches: hit rates by cache size, and parameter floats loaded per sample ------------------------------


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
