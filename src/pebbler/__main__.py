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

    try:
        run()
    finally:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # all is said and done, and Python itself would die of it on its way out


if __name__ == "__main__":
    main()
