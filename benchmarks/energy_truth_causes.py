"""Where joules go that a prediction misses, and what a plan for energy could trade: tables of `energy_truth`'s rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pebbler.game.measured_device import MeasuredDevice

__all__ = ["conditions_table", "misplaced", "objective_table", "op_table", "table", "trade_table"]

Row = dict[str, Any]
KERNELS = {"eager": "exact", "exact": "exact", "compiled": "compiled", "energy": "compiled"}


def table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return Markdown; a word where there is nothing."""
    if not lines:
        return "None was measured."
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *lines)).replace(
        "| --- " * len(columns) + "|", "|" + "---|" * len(columns)
    )


def conditions_table(rows: Sequence[Row]) -> str:
    """Return the joules and times of a step's ops: measured singly, in a mixture and in the step, with clocks and temperatures.

    One line for each model and kind of kernels: the first of its schedules that runs every op once.
    """
    lines, seen = [], set()
    for row in rows:
        kernels = KERNELS.get(row["schedule"].partition(":")[0])
        energy = row.get("op_energy", {})
        if row["schedule"] not in ("eager", "compiled:none") or "joules" not in row or "mixed_joules" not in energy:
            continue
        if (row["model"], kernels) in seen:
            continue
        seen.add((row["model"], kernels))
        predicted, spent, seconds = row["predicted_joules"], row["joules"], row["predicted_seconds"]
        apart = predicted / energy["mixed_joules"], seconds / energy["mixed_seconds"]
        lines.append(
            [
                row["model"], str(kernels), f"{apart[0]:.2f}, {1e3 * apart[1]:.1f}", f"{predicted:.2f}, {1e3 * seconds:.1f}",
                f"{spent:.2f}, {1e3 * row['seconds']:.1f}", f"{apart[0] / spent - 1:+.1%}", f"{predicted / spent - 1:+.1%}",
                _state(row, "clock_mhz"), _state(row, "celsius"),
            ]
        )  # fmt: skip
    columns = ["model", "kernels", "single ops: J, ms", "mixture", "step", "single ops, error", "mixture, error"]
    return table([*columns, "MHz, ops and step", "°C, ops and step"], lines)


def _state(row: Row, key: str) -> str:
    found = [row.get(which, {}).get(key) for which in ("op_state", "step_state")]
    return ", ".join("" if value is None else f"{value:.0f}" for value in found)


def misplaced(ops: Sequence[Row]) -> float:
    """Return the share of the joules that ops take beyond what their time says, at the power of all together.

    >>> misplaced([{"seconds": 1.0, "joules": 300.0}, {"seconds": 1.0, "joules": 500.0}])
    0.125
    """
    seconds, joules = (sum(op[key] for op in ops) for key in ("seconds", "joules"))
    return float(sum(max(0.0, op["joules"] - op["seconds"] * joules / seconds) for op in ops) / joules)


def op_table(known: Mapping[str, Sequence[Row]]) -> str:
    """Return how far joules of ops are from proportional to their time."""
    lines = []
    for name, ops in known.items():
        model, _, kernels = name.rpartition(" ")
        spent = sum(op["joules"] for op in ops)
        large = [op for op in ops if op["joules"] > 0.01 * spent]
        if len(large) < 2:
            continue
        watts = sorted((op["joules"] / op["seconds"], op["op"]) for op in large)
        low, high = (f"{power:.0f} W ({_short(op)})" for power, op in (watts[0], watts[-1]))
        mean = spent / sum(op["seconds"] for op in ops)
        lines.append([model, kernels, f"{mean:.0f} W", low, high, f"{misplaced(ops):.1%}"])
    return table(["model", "kernels", "all ops", "lowest", "highest", "joules in other ops than the time"], lines)


def trade_table(device: MeasuredDevice) -> str:
    """Return the cost of restoring a byte that was given up, in time and in joules, by the way of restoring it.

    A copy goes to the host and comes back. An elementwise op reads two bytes for every one that it makes. A product of bfloat16
    makes two bytes with 2 K flops. Joules count static power for as long as the step is longer.
    """
    byte, link, watts, out = device.joules_per_byte, device.link, device.static_watts, device.joules_per_link_byte
    assert byte is not None
    assert link is not None
    assert watts is not None
    assert out is not None
    rate = device.rates["bfloat16"]
    assert rate.joules_per_flop is not None
    ways = [("a copy that ops hide", 0.0, 2 * out), ("a recomputed elementwise op", 3 / device.bandwidth, 3 * byte)]
    for depth in (1024, 4096):
        taken = max(depth / rate.flops, 1 / device.bandwidth)
        ways.append((f"a recomputed product, K = {depth:,}", taken, depth * rate.joules_per_flop + byte))
    ways.append(("a copy that the step waits for", 2 / link, 2 * out))
    lines = []
    for name, seconds, beyond in ways:
        joules = beyond + watts * seconds
        lines.append(
            [name, f"{1e12 * seconds:.2f}", f"{1e9 * joules:.2f}", f"{joules / seconds:.0f}" if seconds else ""]
        )
    waited = 2 * out + 2 * watts / link
    joules_even = (waited - byte) / (rate.joules_per_flop + watts / rate.flops)
    time_even = 2 * rate.flops / link
    told = (
        "A recomputed product costs as much as a copy that the step waits for "
        f"at K = {joules_even:,.0f} in joules, at K = {time_even:,.0f} in time."
    )
    return "\n\n".join([table(["a byte restored by", "ps", "nJ", "W"], lines), told])


def _short(name: str, most: int = 28) -> str:
    return f"`{name}`" if len(name) <= most else f"`{name[: most - 1]}…`"


def objective_table(rows: Sequence[Row]) -> str:
    """Return plans for energy beside plans for time at the same budget, measured in turns (in early runs: one after the other)."""
    lines, by_name = [], {(row["model"], row["schedule"]): row for row in rows}
    for row in rows:
        sibling = by_name.get((row["model"], row["schedule"].replace("energy:", "compiled:")), {})
        other = row.get("time_plan", sibling)
        if not row["schedule"].startswith("energy:") or "joules" not in row or "joules" not in other:
            continue
        cells = [row["model"], row["schedule"].partition(":")[2]]
        cells += [f"{one['predicted_joules']:.2f}, {1e3 * one['predicted_seconds']:.1f}" for one in (other, row)]
        cells.append(f"{row['predicted_joules'] / other['predicted_joules'] - 1:+.1%}")
        cells += [f"{one['joules']:.2f}, {1e3 * one['seconds']:.1f}" for one in (other, row)]
        cells.append(f"{row['joules'] / other['joules'] - 1:+.1%}{_noise(row, other)}")
        cells += [f"{one['recomputed']}, {one['offloaded_bytes'] / 1e9:.2f}" for one in (other, row)]
        lines.append(cells)
    columns = [
        "model",
        "share of the peak",
        "for time, predicted: J, ms",
        "for energy",
        "difference",
        "for time, measured: J, ms",
    ]
    columns += ["for energy", "difference", "for time: ops recomputed, GB to the host", "for energy"]
    return table(columns, lines)


def _noise(row: Row, other: Row) -> str:
    """Return the largest relative difference between two windows of the same plan, where there are two."""
    each = [[one["joules"] for one in plan["windows"]] for plan in (row, other) if "windows" in plan]
    return f" ± {max(max(found) / min(found) - 1 for found in each):.1%}" if each else ""
