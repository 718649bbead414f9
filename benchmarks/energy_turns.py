"""Processes that take turns for `energy_truth`: one per model, prepared side by side, measuring one after the other.

Capturing and compiling take minutes of CPU time and can go side by side; nothing may run beside a measurement. Files in a folder
say whose turn it is (`MODEL.ready`, `MODEL.goN`, `MODEL.doneN` for round N), and hold what each process has found (`MODEL.json`).
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.energy_truth_page import summarize
from pebbler.files import write_text

__all__ = ["SimulatedCounter", "schedules_of", "take_turns", "work_in_turn"]

KERNELS = {False: "exact", True: "compiled"}
LATE = 25.0  # seconds after the limit in which what was begun may end
PASSED = ("schedules", "seconds", "op_seconds", "time_limit", "calibration", "simulated_watts")  # to the processes
Row = dict[str, Any]


class SimulatedCounter:
    """A counter that adds `watts` all the time: to try this out where there is none."""

    def __init__(self, watts: float) -> None:
        self.watts, self.name = watts, f"CPU simulated at {watts:g} W"

    def read(self) -> float:
        """Return joules in steps of 5 ms."""
        return self.watts * 0.005 * int(time.perf_counter() / 0.005)


class Measured(Protocol):
    """What a process asks of its model."""

    costs: dict[bool, Any]

    def prepare(self, schedule: str) -> None:
        """Do what takes a CPU."""

    def forget_costs(self) -> None:
        """Forget figures that were measured beside others."""

    def run(self, schedule: str) -> Row:
        """Return a row."""

    def ops(self, compiled: bool) -> list[Row]:
        """Return the largest kinds of ops."""


def schedules_of(model: str, text: str) -> list[list[str]]:
    """Return the schedules of a model round by round: those named alone, and those named for it (`gpt=energy:0.5`).

    >>> schedules_of("gpt", "eager,gpt=energy:0.5;vit=energy:0.5;torch.compile")
    [['eager', 'energy:0.5'], [], ['torch.compile']]
    """
    rounds = ([word.strip().rpartition("=") for word in part.split(",")] for part in text.split(";"))
    return [[schedule for owner, _, schedule in words if owner in ("", model)] for words in rounds]


def take_turns(options: argparse.Namespace, about: dict[str, Any]) -> None:
    """Start a process per model, wait until they are prepared, let one after the other measure, and write what they found."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # of `timeout` and job queues: the processes must end too
    began, models = time.perf_counter(), options.models.split(",")
    settings = {name: getattr(options, name) for name in ("seconds", "op_seconds", "time_limit")}
    columns = " ".join(f"{word:>9s}" for word in ("pred. J", "J", "pred. ms", "ms", "W"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workers = {model: _start(model, folder, options) for model in models}

        def left() -> float:
            return float(options.limit) - (time.perf_counter() - began)

        def wait(model: str, sign: str, seconds: Callable[[], float]) -> None:
            while workers[model].poll() is None and not (folder / f"{model}.{sign}").exists() and seconds() > 0:
                time.sleep(0.1)

        try:
            for model in models:
                wait(model, "ready", lambda: min(left(), options.preparation - (time.perf_counter() - began)))
            print(f"prepared in {time.perf_counter() - began:.0f} s", flush=True)
            print(f"{'model':9s} {'schedule':18s} {columns} {'error':>7s}", flush=True)
            for number in range(options.schedules.count(";") + 1):
                # Whoever is not prepared yet comes last, and keeps nobody waiting.
                for model in sorted(models, key=lambda model: not (folder / f"{model}.ready").exists()):
                    if left() > 0 and workers[model].poll() is None and schedules_of(model, options.schedules)[number]:
                        write_text(folder / f"{model}.go{number}", str(time.time() + left()))
                        wait(model, f"done{number}", lambda: left() + LATE)
                        _write(options, about | settings, folder)
        finally:
            for worker in workers.values():
                worker.kill()
                worker.wait()
            known = _write(options, about | settings, folder)
            missing = [row for row in known["rows"] if "error" in row]
            print(summarize(known["rows"]), f"{len(missing)} rows are missing." if missing else "", flush=True)


def _start(model: str, folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "benchmarks.energy_truth", "--models", model, "--turn", str(folder)]
    for name in PASSED:
        if getattr(options, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return subprocess.Popen(
        [*words, "--output", str(folder / f"{model}.json"), *(["--small"] if options.small else [])]
    )


def _write(options: argparse.Namespace, about: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gather what the processes have written, say what is missing, and write it all."""
    known: dict[str, Any] = about | {"rows": [], "ops": {}}
    for model in options.models.split(","):
        part = folder / f"{model}.json"
        found = json.loads(part.read_text()) if part.is_file() else {"rows": [], "ops": {}}
        known["ops"] |= found["ops"]
        known["rows"] += with_missing(
            model, (s for part in schedules_of(model, options.schedules) for s in part), found["rows"]
        )
    if options.output is not None:
        write_text(options.output, json.dumps(known, indent=1) + "\n")
    return known


def with_missing(model: str, schedules: Iterable[str], rows: list[Row]) -> list[Row]:
    """Return a row for every schedule of a model: its own, or one that says that it is missing.

    >>> with_missing("gpt", ["eager", "compiled:0.5"], [{"model": "gpt", "schedule": "eager", "joules": 4.0}])[1]["error"]
    'not measured (time limit reached, or the process ended)'
    """
    by_name = {row["schedule"]: row for row in rows}
    none = {"model": model, "error": "not measured (time limit reached, or the process ended)"}
    return [by_name.get(schedule, none | {"schedule": schedule}) for schedule in schedules]


def work_in_turn(make: Callable[[], Measured], options: argparse.Namespace) -> None:
    """Prepare one model, say so, and measure its schedules whenever it is its turn."""
    model, folder, truth = options.models, options.turn, make()
    rounds = schedules_of(model, options.schedules)
    for schedule in dict.fromkeys(schedule for part in rounds for schedule in part):
        try:
            truth.prepare(schedule)
        except Exception as error:
            print(f"{model} {schedule}: {type(error).__name__}: {error}"[:500], flush=True)
    truth.forget_costs()
    _free()
    (folder / f"{model}.ready").touch()
    known: dict[str, Any] = {"rows": [], "ops": {}}
    for number, schedules in enumerate(rounds):
        if not schedules:
            continue
        go = folder / f"{model}.go{number}"
        while not go.exists():
            time.sleep(0.1)
        until = float(go.read_text())
        for schedule in schedules:
            if time.time() > until:
                break
            known["rows"].append(_row(truth, model, schedule))
            known["ops"] |= {f"{model} {word}": truth.ops(key) for key, word in KERNELS.items() if key in truth.costs}
            write_text(options.output, json.dumps(known, default=str) + "\n")
        _free()
        (folder / f"{model}.done{number}").touch()


def _row(truth: Measured, model: str, schedule: str) -> Row:
    began = time.perf_counter()
    try:
        row = truth.run(schedule)
    except Exception as error:  # one schedule must not cost the others
        traceback.print_exc()
        row = {"model": model, "schedule": schedule, "error": f"{type(error).__name__}: {error}"[:500]}
    row["took_seconds"] = time.perf_counter() - began
    _show(row)
    return row


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _show(row: Row) -> None:
    """Print one row at once."""
    if "error" in row:
        print(f"{row['model']:9s} {row['schedule']:18s} {row['error']}", flush=True)
        return
    told = [f"{row['model']:9s} {row['schedule']:18s}"]
    for key, factor in (
        ("predicted_joules", 1),
        ("joules", 1),
        ("predicted_seconds", 1e3),
        ("seconds", 1e3),
        ("watts", 1),
    ):
        told.append(f"{factor * row[key]:9.2f}" if row.get(key) is not None else f"{'-':>9s}")
    if row.get("predicted_joules"):
        told.append(f"{row['predicted_joules'] / row['joules'] - 1:+7.1%}")
    print(" ".join(told), f"took {row['took_seconds']:.0f} s", flush=True)
    print(json.dumps(row, default=str), flush=True)  # so that the log alone is enough
