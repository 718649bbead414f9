"""`pebbler measure`: the energy of another program."""

from __future__ import annotations

from typing import Annotated

import typer

from pebbler.cli.options import Json

__all__ = ["measure"]


def measure(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", show_default=False)],
    json: Json = False,
    idle: Annotated[float, typer.Option(help="Seconds of idle power, before and after; 0: none.")] = 1.0,
) -> None:
    """Run a program and print what the energy counters of this machine say of it: all visible GPUs, and the CPU where readable.

    Idle power is measured before and after. Exit status: the program's own; 2 without a counter, and the program does not
    run then. Needs the extra "joules" for NVIDIA GPUs.

    Example: pebbler measure -- python train.py
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.output import emit_json, table
    from pebbler.joules.measured_program import MeasuredProgram

    program = MeasuredProgram(command, idle=idle)

    def show() -> None:
        if json:
            emit_json(program.figures())
        else:
            rows = [[name, f"{joules:,.3f} J"] for name, joules in program.by_counter.items()]
            rows += [["all", f"{program.joules:,.3f} J"]] if len(rows) > 1 else []
            rows += [["time", f"{program.seconds:,.3f} s"], ["average power", f"{program.watts:,.1f} W"]]
            if program.idle_watts:
                before_after = " and ".join(f"{watts:,.1f} W" for watts in program.idle_watts)
                rows += [["idle, before and after", before_after], ["beyond idle", f"{program.net_joules:,.3f} J"]]
            rows.append(["uncertain by", f"{program.uncertain_joules:,.3f} J (one update of the counter)"])
            table(program.title, ["figure", "value"], rows, stderr=True)

    def keep() -> bool:
        program.stop()
        if program.has_begun:
            show()
        return program.has_begun

    with hold(keep):
        program.run()
    show()
    raise typer.Exit(program.status)
