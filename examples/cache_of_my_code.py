"""Cache misses of plain numpy code: a blurred image, row by row and then column by column."""

from __future__ import annotations

import numpy as np

import pebbler as pb


def blur(image: pb.trace.Tracked, by_rows: bool) -> None:
    """Average each line with the next one, in place."""
    lines = image if by_rows else image.T
    for i in range(lines.shape[0] - 1):
        lines[i] = (lines[i] + lines[i + 1]) / 2


def main() -> None:
    sizes = [16, 64, 256, 1024]
    for by_rows in (True, False):
        with pb.trace.record() as recorder:
            image = pb.trace.tracked(np.ones((64, 64)), "image")
            with recorder.op("blur"):
                blur(image, by_rows)
        touched = recorder.trace()
        # Only the image: temps live in registers here. A line holds 16 floats.
        trace = pb.trace.Trace.of_addresses(
            touched.address[touched.tensor == touched.tensor_names.index("image")],
            touched.write[touched.tensor == touched.tensor_names.index("image")],
        )
        found = pb.trace.analyse(trace, sizes, line=16)
        print("by rows:   " if by_rows else "by columns:", f"{found.accesses:,} accesses to {found.distinct} lines")
        for size in sizes:
            print(f"  {size:>5,} lines: LRU misses {found.lru[size]:>6,}, the best possible {found.opt[size]:>6,}")


if __name__ == "__main__":
    main()
