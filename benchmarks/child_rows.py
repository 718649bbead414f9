"""Rows of a benchmark from processes of their own, each with a time limit; saved as they come, so that none is lost."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pebbler.files import write_text

__all__ = ["follow"]

Row = dict[str, Any]


def follow(
    command: list[str], seconds: float, rows: list[Row], shown: Callable[[Row], str], output: Path | None
) -> int:
    """Run a command whose lines `ROW {...}` are rows, pass on its other lines, and return its exit status."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        limit = threading.Timer(seconds, child.kill)
        limit.start()
        for line in child.stdout:
            if line.startswith("ROW "):
                rows.append(json.loads(line[4:]))
                print(shown(rows[-1]), flush=True)
                if output is not None:
                    write_text(output, json.dumps(rows, indent=1))
            else:
                print(line, end="", flush=True)
        limit.cancel()
    return child.returncode
