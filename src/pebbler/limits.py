"""Limits on the resources that a file may take: checked before the work, named in the refusal, raised by an option.

A file of a few bytes can ask for any amount of work: a compressed trace that unpacks to gigabytes, a sweep of billions of
runs. What is beyond these limits is far more likely a wrong or a hostile file than a real one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from pebbler.errors import InputError, near_matches, quoted

__all__ = ["Limits", "beyond", "limits"]


@dataclass
class Limits:
    """The limits of this process. `pebbler --limit NAME=AMOUNT` raises one for a command; Python sets it: `limits.runs = 10**7`."""

    file: int = 128 * 2**20  # bytes of a graph, a plan or a table; a plan of a million moves takes some 30 MB
    toml: int = 2**20  # bytes of a machine or of a sweep's spec
    program: int = 16 * 2**20  # bytes of a program on numbered cells: a million instructions
    unpacked: int = 256 * 2**20  # bytes of a trace beyond what is on the disk: compressed, or holes in the file
    line: int = 2**20  # bytes of one line of a text trace
    runs: int = 1_000_000  # of a sweep
    graphs: int = 4096 * 2**20  # bytes of graphs that the runs of a sweep carry together
    layers: int = 300_000  # of a built-in workload; one takes some 4 KB as a graph

    def set(self, name: str, amount: int) -> None:
        """Set a limit by its name.

        >>> Limits().set("run", 5)
        Traceback (most recent call last):
        pebbler.errors.InputError: no limit run (did you mean runs?)
        """
        names = [field.name for field in fields(self)]
        if name not in names:
            raise InputError(f"no limit {quoted(name)}{near_matches(name, names)}")
        setattr(self, name, amount)

    def reset(self) -> None:
        """Set every limit to what it is by default."""
        for field in fields(self):
            setattr(self, field.name, field.default)


limits = Limits()


def beyond(name: str, problem: str) -> InputError:
    """Return the error for what is beyond a limit; `problem` says what there is too much of.

    >>> print(beyond("runs", "this sweep has 2,000,000 runs"))
    this sweep has 2,000,000 runs; the limit is 1,000,000 (pebbler --limit runs=... raises it)
    """
    most: int = getattr(limits, name)
    shown = f"{most:,}" if name in ("runs", "layers") or most < 2**20 else f"{most / 2**20:,.4g} MiB"
    return InputError(f"{problem}; the limit is {shown} (pebbler --limit {name}=... raises it)")
