"""The command line: every command is one call of the library.

Command modules import what they need when they run, so that `pebbler --help` stays quick.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import sys
from typing import Annotated

import typer

from pebbler.cli.cache import cache
from pebbler.cli.calibrate import calibrate
from pebbler.cli.chain import chain
from pebbler.cli.check import check
from pebbler.cli.demo import demo
from pebbler.cli.export import export
from pebbler.cli.graph import graph
from pebbler.cli.interruption import run_command
from pebbler.cli.machines import machines
from pebbler.cli.measure import measure
from pebbler.cli.options import PlainCommand, PlainGroup
from pebbler.cli.play import play
from pebbler.cli.report import report
from pebbler.cli.reproduce import reproduce
from pebbler.cli.solve import solve
from pebbler.cli.sweep import sweep
from pebbler.cli.torch import torch
from pebbler.cli.trace import trace
from pebbler.cli.workloads import workloads
from pebbler.errors import InputError, PebblerError, one_line, quoted
from pebbler.limits import limits

__all__ = ["app", "main"]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # for what is printed

app = typer.Typer(
    name="pebbler",
    help="Find, prove and run low-energy schedules for neural-network training steps.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=PlainGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from pebbler.version import VERSION

        typer.echo(f"pebbler {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AMOUNT",
            help="Raise a limit on input files that an error message names, such as unpacked=4GiB; repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    limits.reset()
    for text in limit or ():
        _raise_limit(text)


def _raise_limit(text: str) -> None:
    from pebbler.sweeps.value_ranges import amounts_of

    name, equals, amount = text.partition("=")
    found = amounts_of(amount, "--limit") if equals else []
    if len(found) != 1 or found[0].share is not None:
        raise InputError(f"--limit: expected NAME=AMOUNT such as unpacked=4GiB or runs=2000000, got {quoted(text)}")
    limits.set(name, int(found[0].value))


def _reflowed(text: str) -> str:
    """Return a docstring with every paragraph on one line, for a terminal to break.

    >>> _reflowed("One.\\n\\nTwo\\nlines.")
    'One.\\n\\nTwo lines.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


_COMMANDS = (
    demo, solve, sweep, chain, torch, check, report, play, export, trace, cache, graph, machines, workloads, measure, calibrate,
    reproduce,
)  # fmt: skip
for _command in _COMMANDS:
    app.command(cls=PlainCommand, help=_reflowed(inspect.getdoc(_command) or ""))(_command)


def main() -> None:
    """Run the command line; errors a person can act on get one line and no traceback.

    Ctrl-C ends it with status 130: see `interruption`.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: what it has no letters for is shown escaped
    try:
        try:
            run_command(lambda: app(prog_name="pebbler"))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except InputError as error:
        sys.stderr.write(f"error: {one_line(str(error))}\n")
        sys.exit(2)
    except PebblerError as error:
        sys.stderr.write(f"{one_line(str(error))}\n")
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; nobody is left to tell
        sys.exit(0)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        sys.stderr.write(f"error: the answer could not be printed: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try once more, and complain
        sys.exit(2)
