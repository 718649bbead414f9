"""A small package with kernels of its own, beside a copy of pebbler's foundation: quick to compile, and free to be edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["CALL", "INNER", "call", "install", "run"]

SOURCE = Path(__file__).parents[1] / "src" / "pebbler"
INNER = """
from pebbler.compiled import kernel

@kernel
def inner(x):
    return x + {}
"""
OUTER = """
from pebbler.compiled import kernel
from pebbler.probe_inner import inner

@kernel
def outer(x):
    return 10 * inner(x)
"""
CALL = """
from pebbler.probe_outer import outer
print(outer(1), sum(outer.stats.cache_hits.values()))
"""


def install(folder: Path) -> Path:
    """Return a copy of the package's foundation with two kernels, one of which calls the other from another file."""
    package = folder / "site" / "pebbler"
    package.mkdir(parents=True)
    for name in ("compiled.py", "kernel_folder.py", "version.py"):
        shutil.copy(SOURCE / name, package / name)
    (package / "__init__.py").write_text("")
    (package / "probe_inner.py").write_text(INNER.format(1))
    (package / "probe_outer.py").write_text(OUTER)
    return package


def call(package: Path, script: str = CALL, **environment: str) -> list[int]:
    """Return what the outer kernel returns for 1, and how often its compiled code came from disk."""
    return [int(word) for word in run(package, script, **environment)[0].split()]


def run(package: Path, script: str, **environment: str) -> tuple[str, str]:
    """Run a program with these variables and no others that name a folder; return what it prints and what it says."""
    named = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    clean = {key: value for key, value in os.environ.items() if key not in named}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr
