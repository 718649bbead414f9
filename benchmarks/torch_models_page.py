"""Tables of `torch_models`: every row, what was to be shown, and the table of the docs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["TITLES", "Measured", "markdown", "show", "shown_row", "summary"]

Row = dict[str, Any]

TITLES = {
    "gpt": "GPT, 16 blocks of 1024",
    "llama": "HF Llama, 12 x 1536",
    "gpt2": "HF GPT-2, dropout, autocast",
    "resnet50": "ResNet-50, autocast",
    "vit": "ViT-B/16, autocast",
    "unet": "U-Net, group norm, autocast",
    "llama32": "HF Llama, 32 x 1024",
    "t5": "HF T5, 8+8 layers of 768, dropout, bfloat16",
    "swin": "Swin-T, autocast, clipping",
    "convnext": "ConvNeXt-S, autocast, clipping",
    "whisper": "HF Whisper-small's shape, dropout, autocast",
    "masked": "HF BERT, masked words, autocast, padded",
    "adapters": "HF Llama, 16 x 2048, frozen, adapters",
    "decoder": "HF Llama, 16 x 2048, 128k words, 4 x 4096",
}
COLUMNS = {
    "eager": "eager",
    "torch:1": "torch.compile",
    "pebbler:none": "pebbler, no budget",
    "torch:0.3": "its budget 0.3",
    "pebbler:@torch:0.3": "pebbler at that peak",
    "torch:0.05": "its budget 0.05",
    "pebbler:@torch:0.05": "pebbler at that peak",
    "pebbler:least": "pebbler's least",
}
HEAD = (
    f"{'model':10s} {'variant':22s} {'peak GiB':>9s} {'budget':>7s} {'ms':>9s} {'/torch:1':>9s} {'set-up s':>9s} "
    f"{'/torch:1':>9s} {'loss - eager':>13s} {'predicted':>9s} {'/held':>7s} {'compiled':>8s}"
)


class Measured:
    """The rows that were measured, by model and variant."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {(row["model"], row["variant"]): row for row in rows if "error" not in row}
        self.models = list(dict.fromkeys(row["model"] for row in rows))
        self.missing = [row for row in rows if "error" in row]

    def row(self, model: str, variant: str) -> Row | None:
        """Return a row, if it was measured."""
        return self._rows.get((model, variant))

    def both(self, ours: str, theirs: str) -> Iterator[tuple[str, Row, Row]]:
        """Yield the rows of two variants for every model that has both."""
        for model in self.models:
            a, b = self.row(model, ours), self.row(model, theirs)
            if a is not None and b is not None:
                yield model, a, b

    def kind(self, kind: str, model: str | None = None) -> list[Row]:
        """Return the rows of all variants of a kind."""
        rows = [row for (_, variant), row in self._rows.items() if variant.partition(":")[0] == kind]
        return [row for row in rows if model in (None, row["model"])]

    def loss_apart(self, row: Row) -> float | None:
        """Return the largest difference of a loss from eager's; None without eager's."""
        eager = self.row(row["model"], "eager")
        if eager is None:
            return None
        return max(abs(a - b) for a, b in zip(row["losses"], eager["losses"], strict=False))

    def ratio(self, row: Row, key: str) -> float | None:
        """Return a figure over that of torch.compile on the same model."""
        theirs = self.row(row["model"], "torch:1")
        return None if theirs is None else row[key] / theirs[key]

    def at_peaks(self) -> Iterator[tuple[Row, Row]]:
        """Yield pebbler's rows at peaks that the knob reaches, each with the knob's row."""
        for row in self.kind("pebbler"):
            theirs = self.row(row["model"], row["variant"].partition("@")[2])
            if theirs is not None:
                yield row, theirs


def kept(row: Row, known: Measured) -> bool | None:
    """Return whether a row kept the bytes it promised; None where it promised nothing."""
    budget = _budget(row, known)
    return bool(row["peak"] <= budget) if budget else None


def shown_row(row: Row, rows: Sequence[Row]) -> str:
    """Return one row as a line of the table; the others say what to compare it with."""
    start = f"{row['model']:10s} {row['variant']:22s}"
    if "error" in row:
        return f"{start} {row['error']}"
    known = Measured(rows)
    told = {None: "-", True: "kept", False: "BROKEN"}[kept(row, known)]
    cells = [f"{row['peak'] / 2**30:9.3f}", f"{told:>7s}", f"{row['ms']:9.2f}", _shown(known.ratio(row, "ms"), "9.3f")]
    cells += [f"{row['setup']:9.1f}", _shown(known.ratio(row, "setup"), "9.2f")]
    cells.append(_shown(known.loss_apart(row), "13.2e"))
    if row.get("predicted"):
        cells.append(f"{row['predicted'] / 2**30:9.3f} {row['predicted'] / row['held']:7.4f} {row['compilations']:8d}")
    return " ".join([start, *cells]) + ("" if row.get("quiet", True) else "  timed beside others")


def show(rows: Sequence[Row]) -> str:
    """Return all rows as a table, and below it what was to be shown."""
    return "\n".join([HEAD, *(shown_row(row, rows) for row in rows), "", *summary(rows)])


def summary(rows: Sequence[Row]) -> list[str]:
    """Return what was to be shown, each with its mean and its worst model."""
    known = Measured(rows)
    lines = []
    free = {model: ours["ms"] / theirs["ms"] for model, ours, theirs in known.both("pebbler:none", "torch:1")}
    lines += _told("time without a budget, over torch.compile's (at most 1.01)", free, ".3f", max)
    pairs = list(known.at_peaks())
    faster = {_at(ours): theirs["ms"] / ours["ms"] - 1 for ours, theirs in pairs}
    lines += _told(
        "faster than activation_memory_budget at its peak (3% on average, never slower)", faster, "+.1%", min
    )
    promises = [(row, kept(row, known)) for row in known.kind("pebbler")]
    broken = [f"{_at(row)} by {row['peak'] / _budget(row, known) - 1:.1%}" for row, keeps in promises if keeps is False]
    held = sum(keeps is not None for _, keeps in promises)
    lines.append(f"budgets kept in every step after settling: {held - len(broken)} of {held}" + _listed(broken))
    least = {}
    for model in known.models:
        ours, theirs = known.row(model, "pebbler:least"), [row["peak"] for row in known.kind("torch", model)]
        if ours is not None and theirs:
            least[model] = ours["peak"] / min(theirs)
    lines += _told("least peak, over the knob's least (below 1 on every model)", least, ".2f", max)
    setup = {_at(row): ratio for row in known.kind("pebbler") if (ratio := known.ratio(row, "setup")) is not None}
    lines += _told("set-up, over torch.compile's (at most 1.6, 1.3 on average)", setup, ".2f", max, every=False)
    apart = {_at(row): row["predicted"] / row["held"] - 1 for row in known.kind("pebbler") if row.get("predicted")}
    lines += _told(
        "predicted peak of forward and backward, over the held one (1% apart, 2% at worst)",
        apart, "+.2%", lambda values, key: max(values, key=lambda name: abs(key(name))),
    )  # fmt: skip
    compiled = {_at(row): float(row["compilations"]) for row in known.kind("pebbler") if row.get("compilations")}
    lines += _told("graphs compiled", compiled, ".0f", max)
    losses = {}
    for row in known.kind("pebbler"):
        ours_apart, compiled = known.loss_apart(row), known.row(row["model"], "torch:1")
        theirs_apart = known.loss_apart(compiled) if compiled is not None else None
        if ours_apart is not None and theirs_apart:
            losses[_at(row)] = ours_apart / theirs_apart
    lines += _told("largest difference of a loss from eager's, over torch.compile's", losses, ".2f", max, every=False)
    reasons = dict.fromkeys(row["error"] for row in known.missing)
    for reason in reasons:
        lines.append(f"{reason}: {', '.join(_at(row) for row in known.missing if row['error'] == reason)}")
    return lines


def markdown(rows: Sequence[Row]) -> str:
    """Return the table of the docs, peak GiB / ms, and what was to be shown as a list."""
    known = Measured(rows)
    lines = ["| model | " + " | ".join(COLUMNS.values()) + " |", "|---" * (1 + len(COLUMNS)) + "|"]
    for model in known.models:
        cells = [known.row(model, variant) for variant in COLUMNS]
        shown = ["-" if row is None else f"{row['peak'] / 2**30:.2f} / {row['ms']:.1f}" for row in cells]
        lines.append(f"| {TITLES[model]} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *(f"- {line}" for line in summary(rows))])


def _shown(value: float | None, form: str) -> str:
    width = form.partition(".")[0]
    return f"{value:{form}}" if value is not None else f"{'-':>{width}s}"


def _at(row: Row) -> str:
    return f"{row['model']} {row['variant']}"


def _budget(row: Row, known: Measured) -> int:
    theirs = known.row(row["model"], row["variant"].partition("@")[2])
    return int(row.get("budget") or (theirs["peak"] if theirs is not None else 0))


def _listed(names: Sequence[str]) -> str:
    return f" (broken: {', '.join(names)})" if names else ""


def _told(what: str, values: dict[str, float], form: str, worst: Any, every: bool = True) -> list[str]:
    """Return a line with the mean, the worst, and every value if asked; none without values."""
    if not values:
        return []
    where = worst(values, key=lambda name: values[name])
    listed = "; " + ", ".join(f"{name} {value:{form}}" for name, value in values.items()) if every else ""
    mean = statistics.mean(values.values())
    return [f"{what}: mean {mean:{form}}, worst {values[where]:{form}} ({where}){listed}"]
