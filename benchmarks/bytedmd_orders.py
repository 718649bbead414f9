"""ByteDMD of a matrix product in other orders than the naive one: nested loops over blocks, changed as long as there is time.

Run `python -m benchmarks.bytedmd_orders [N [SECONDS]]` from the repository root. Every product is added as soon as it is made.
Prints one JSON line: the naive i-j-k order, the best order found with its loops, and a lower bound for all orders that add
products at once.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from itertools import product

import numpy as np

from pebbler.referee.programs.product_reads import ProductForm, least_outside_reads
from pebbler.solver.products.loop_orders import changed_loops, first_loops, loops_of, loops_text, nested_order
from pebbler.trace.scalar_program import ScalarProgram

Forms = tuple[bool, bool]


def product_program(order: np.ndarray, index: np.ndarray, forms: Forms = (False, False)) -> ScalarProgram:
    """Return the instructions of a product in an order of its points; `forms`: B before A, and the product before the sum."""
    m, n, k = (index.max(axis=0) + 1).tolist()
    program = ScalarProgram()
    # The last element of the first argument is on top of the stack.
    program.arguments = m * k + k * n
    left, right = array("i"), array("i")
    sums: dict[tuple[int, int], int] = {}
    for i, j, inner in index[order].tolist():
        a, b = k * n + i * k + inner, inner * n + j
        left.append(b if forms[0] else a)
        right.append(a if forms[0] else b)
        made = program.arguments + len(left) - 1
        if (i, j) in sums:
            old = sums[i, j]
            left.append(made if forms[1] else old)
            right.append(old if forms[1] else made)
            made += 1
        sums[i, j] = made
    program.left, program.right = left, right
    program.returned = [sums[i, j] for i in range(m) for j in range(n)]
    return program


def stack_bound(n: int) -> int:
    """Return a lower bound on the ByteDMD of an n x n x n product in any order that adds products as soon as they are made.

    Reads deeper than c^2 are at least as many as reads from outside of c^2 + 1 cells must be (docs/products.md; one more cell for
    the product that waits to be added), less one for every matrix element: when one is read for the last time it leaves the
    stack, and another value may rise.
    """
    form, ops = ProductForm(n**3, n * n, n * n, n * n), 2 * n**3 - n * n
    total, side = 2 * ops + ops, 2  # every read costs 1; of the two reads of one instruction one is deeper than 1
    while True:
        found = least_outside_reads(form, side * side + 1, side * side + 1) - 2 * n * n
        if found <= 0:
            return total
        total, side = total + found, side + 1


def search(n: int, seconds: float) -> dict[str, object]:
    """Return the naive cost, the best found with its loops, and the bound."""
    index = np.array(list(product(range(n), repeat=3)))
    naive = product_program(np.arange(n**3), index).cost()
    rng, ends = np.random.default_rng(0), time.monotonic() + seconds
    known: dict[str, tuple[int, Forms]] = {}

    def price(loops: tuple[object, ...]) -> None:
        order = nested_order(index, loops)  # type: ignore[arg-type]
        forms = [(one, other) for one in (False, True) for other in (False, True)]
        known[loops_text(loops)] = min((product_program(order, index, form).cost(), form) for form in forms)  # type: ignore[arg-type]

    for loops in first_loops((n, n, n)):
        price(loops)
    while time.monotonic() < ends:
        ranked = sorted(known, key=lambda text: known[text])[:12]
        loops = changed_loops(rng, loops_of(ranked[min(len(ranked) - 1, int(rng.exponential(2.0)))]))
        if loops_text(loops) not in known:
            price(loops)
    best = min(known, key=lambda text: known[text])
    return {"n": n, "naive": naive, "best": known[best][0], "loops": best, "tried": len(known), "bound": stack_bound(n)}


def main() -> None:
    """Print what was found as one JSON line."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    print(json.dumps(search(n, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)))


if __name__ == "__main__":
    main()
