"""Note 003: the reuse distance of three ways to write the same training step."""

from __future__ import annotations

import msgspec

from pebbler.notes.experiment import ClaimVerdict, Experiment, NoteFigure, Plot, Question, Series, compare, show, table
from pebbler.notes.parity import Config, draw_data
from pebbler.notes.sgd import margins, train
from pebbler.notes.step_scripts import VARIANTS, step
from pebbler.notes.tiled_loops import FLOATS_PER_KB, Tiled, steady_lru
from pebbler.trace.buffer_events import Events

__all__ = ["run"]

CONFIG = Config(hidden=500, stop=0.9)

# The note's table, and what its program gives in full.
_PUBLISHED = {
    "standard": ("17,976", "24", "18", "51,073", None),
    "fused": ("17,741", "24", "18", "51,073", "1.3"),
    "perlayer": ("17,299", "15", "13", "47,566", "3.8"),
}
_REFERENCE = {
    "standard": (17976.402757373715, 26547, 3348253.104460899, (11042, 28070), (13042, 14549, 39570)),
    "fused": (17740.877839303877, 26547, 3314675.9732290013, (11042, 29573), (13042, 14549, 16050)),
    "perlayer": (17298.56596854372, 24542, 3083639.095427301, (11042, 26566), (13042, 14044, 14544)),
}
_BLOCKS = (10, 25, 50, 100, 250, 500)


def run() -> Experiment:
    """Return note 003's figures, and what block updates of W1 would give."""
    traces = {variant: _trace(variant) for variant in VARIANTS}
    standard, perlayer = traces["standard"].weighted_ard(), traces["perlayer"].weighted_ard()
    rows = [row for variant, events in traces.items() for row in _rows(variant, events, standard)]
    mean = {v: sum(e.distances("W2")) / 3 for v, e in traces.items()}
    share = 100 * 2 * 20 * CONFIG.hidden / traces["standard"].floats_read
    rows += [
        compare("standard: mean W2 distance", mean["standard"], "22,387", unit="floats"),
        compare("perlayer: mean W2 distance", mean["perlayer"], "13,877", unit="floats"),
        compare("standard: W1's share of reads", share, "75", unit="%"),
    ]
    ards = [_block_ard(block) for block in _BLOCKS]
    misses = [[_block_misses(block, kb, back) for kb in (32, 64) for back in (False, True)] for block in _BLOCKS]
    return Experiment(
        name="ard",
        note="003",
        question="Does updating per layer still give better reuse on 20-bit parity?",
        config=msgspec.to_builtins(CONFIG),
        seeds=(CONFIG.seed,),
        rows=tuple(rows),
        verdicts=(
            ClaimVerdict(
                claim="Per-layer updates lower the weighted reuse distance by 3.8 %.",
                truth=f"Yes, by {100 * (1 - perlayer / standard):.1f} %, and all three variants train alike.",
                evidence="Every figure of the note comes out to the last digit.",
            ),
        ),
        questions=(_blocks(ards, misses),),
        plots=(
            Plot(
                name="distances",
                title="Weighted reuse distance of one step (hidden 500)",
                x_label="variant",
                y_label="floats",
                kind="bar",
                series=(
                    Series(label="weighted ARD", x=tuple(traces), y=tuple(e.weighted_ard() for e in traces.values())),
                ),
            ),
            Plot(
                name="blocks",
                title="Block updates of W1 in a 32 KB cache",
                x_label="hidden units per block",
                y_label="missed floats per step",
                log_x=True,
                series=tuple(
                    Series(label=label, x=_BLOCKS, y=tuple(float(row[column]) for row in misses))
                    for column, label in enumerate(("same order", "reversed backward"))
                ),
            ),
        ),
    )


def _trace(variant: str) -> Events:
    events = Events()
    step(events, CONFIG.n, CONFIG.hidden, variant, fires=True)
    return events


def _rows(variant: str, events: Events, standard: float) -> list[NoteFigure]:
    ard, reads, writes, floats, gain = _PUBLISHED[variant]
    full_ard, floats_read, dmc, w1, w2 = _REFERENCE[variant]
    trained, data = train(CONFIG, variant), draw_data(CONFIG)
    margin = margins(trained.params, data.x_train, data.y_train)
    sample = int((margin < 1).argmax())
    measured = events.weighted_ard()
    rows = [
        compare(f"{variant}: test accuracy", trained.test_accuracy[-1], "0.965"),
        compare(f"{variant}: epochs", trained.epochs, "6"),
        compare(f"{variant}: first firing sample", sample, "41"),
        compare(f"{variant}: its margin", float(margin[sample]), "0.9889"),
        compare(f"{variant}: weighted ARD", measured, ard, reference=full_ard, unit="floats"),
        compare(f"{variant}: reads", events.reads, reads),
        compare(f"{variant}: writes", events.writes, writes),
        compare(f"{variant}: total floats", events.total_floats, floats, unit="floats"),
        compare(f"{variant}: floats read", events.floats_read, reference=floats_read, unit="floats"),
        compare(f"{variant}: W1 distances", tuple(events.distances("W1")), reference=w1, unit="floats"),
        compare(f"{variant}: W2 distances", tuple(events.distances("W2")), reference=w2, unit="floats"),
        compare(f"{variant}: DMC", events.dmc(), reference=dmc),
    ]
    if gain is not None:
        rows.append(compare(f"{variant}: ARD below standard", 100 * (1 - measured / standard), gain, unit="%"))
    return rows


def _block_misses(block: int, kilobytes: int, reverse: bool) -> int:
    tiled = Tiled(CONFIG.n, CONFIG.hidden, block, tile_dh=True, reverse=reverse)
    return round(steady_lru(tiled, kilobytes * FLOATS_PER_KB).missed_floats)


def _block_ard(block: int) -> float:
    events, tiled = Events(), Tiled(CONFIG.n, CONFIG.hidden, block, tile_dh=True)
    tiled.start(events)
    tiled.step(events)
    return events.weighted_ard()


def _blocks(ards: list[float], misses: list[list[int]]) -> Question:
    """Answer the note's closing suggestion: update W1 in blocks, so that each block stays in cache."""
    whole, best = misses[-1][1], min(row[1] for row in misses)
    size = _BLOCKS[[row[1] for row in misses].index(best)]
    return Question(
        question="What would block updates of W1 give?",
        answer=(
            f"By reuse distance nothing: {show(ards[0], 0)} floats in blocks of {_BLOCKS[0]} against {show(ards[-1], 0)} "
            f"whole. In a 32 KB cache, which W1 (40 KB) does not fit, blocks of {size} visited in reverse on the way back cut the "
            f"missed floats per step from {show(whole)} to {show(best)}; in the same order as the forward pass they give "
            f"{show(min(row[0] for row in misses))} at best. At 64 KB W1 fits and {show(misses[0][3])} floats are missed."
        ),
        tables=(
            table(
                "Missed floats per step in steady state, buffer LRU (hidden 500)",
                ["block", "weighted ARD", "32 KB", "32 KB reversed", "64 KB", "64 KB reversed"],
                [(block, ard, *row) for block, ard, row in zip(_BLOCKS, ards, misses, strict=True)],
            ),
        ),
    )
