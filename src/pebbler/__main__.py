"""`python -m pebbler`: the command line."""

from pebbler.cli import main

if __name__ == "__main__":
    main()
