"""`pebbler calibrate`: measured prices of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import Json

if TYPE_CHECKING:
    from pebbler.game.machine import Machine

__all__ = ["calibrate"]


def calibrate(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the machine (TOML); -: to stdout.", show_default=False)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda, cuda:N or cpu; by default a GPU if there is one.", show_default=False)
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds for every probe, at least.")] = 0.6,
    json: Json = False,
) -> None:
    """Measure this machine: joules per byte at each level, per flop, per launch and per byte of the link, and its rates.

    The file is a machine for `pebbler solve --machine` and a device for `pebbler torch --device`. A CPU without an energy
    counter gets times instead of joules, and the file says so; a GPU without one is an error, exit status 2.

    Example: pebbler calibrate -o machine.toml
    """
    from pebbler.cli.output import emit_json, progress
    from pebbler.cli.written_files import WrittenFiles, goes_to_stdout, require_json
    from pebbler.run.calibrate import calibrate as measure
    from pebbler.run.calibrate import save_machine

    require_json(output, json, *([] if goes_to_stdout(output) else [".toml"]), what="a machine")
    files = WrittenFiles()
    with progress("calibrating") as update:
        found = measure(device, seconds=seconds, report=lambda name, share: update(f"calibrating: {name}", share))
    files.write(output, lambda path: save_machine(found, path))
    if json:
        emit_json(found)
    else:
        _print(found, on_stderr=goes_to_stdout(output))
    files.name()


def _print(found: Machine, on_stderr: bool) -> None:
    from pebbler.cli.output import table

    unit, device = found.prices, found.device
    assert device is not None
    rows = [
        [level.name, "unbounded" if level.capacity is None else _size(level.capacity), f"{level.read:.4g}", f"{level.write:.4g}"]
        for level in found.level
    ]  # fmt: skip
    table(found.about, ["level", "holds", f"read, {unit}/byte", f"write, {unit}/byte"], rows, stderr=on_stderr)
    figures = [["memory, reads and writes", f"{device.bandwidth / 1e9:,.1f} GB/s"]]
    for dtype, rate in device.rates.items():
        joules = "" if rate.joules_per_flop is None else f", {1e12 * rate.joules_per_flop:.3g} pJ/flop"
        figures.append([f"products of {dtype}", f"{rate.flops / 1e9:,.0f} Gflop/s{joules}"])
    if device.launch:
        joules = "" if device.joules_per_launch is None else f", {1e6 * device.joules_per_launch:.3g} µJ"
        figures.append(["one launch", f"{1e6 * device.launch:.3g} µs{joules}"])
    if device.link is not None:
        joules = "" if device.joules_per_link_byte is None else f", {1e12 * device.joules_per_link_byte:.3g} pJ/byte"
        figures.append(["link to the host", f"{device.link / 1e9:,.1f} GB/s{joules}"])
    if device.idle_watts is not None and device.mean_residual is not None and device.worst_residual is not None:
        figures.append(["idle, before and after", f"{device.idle_watts[0]:.1f} and {device.idle_watts[1]:.1f} W"])
        figures.append(["awake, whatever runs", f"{device.static_watts or 0.0:.1f} W"])
        figures.append(["fit off by", f"{device.mean_residual:.1%} on average, {device.worst_residual:.1%} at worst"])
    table("", ["figure", "value"], figures, stderr=on_stderr)


def _size(size: int) -> str:
    return f"{size / 2**20:.3g} MiB" if size >= 2**20 else f"{size / 2**10:.3g} KiB"
