"""`pebbler` and `python -m pebbler`: the command line."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C is heard from here on, while the rest is still being imported."""

    def leave(*_: object) -> None:
        os.write(2, b"interrupted: nothing had been found yet\n")
        os._exit(130)

    signal.signal(signal.SIGINT, leave)
    from pebbler.cli import main as run

    run()


if __name__ == "__main__":
    main()
