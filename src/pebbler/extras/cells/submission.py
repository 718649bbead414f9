"""A program of the distance grid as a public table takes it: the program, a verifier that stands alone, and a page about it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

from pebbler.errors import InputError
from pebbler.extras.cells import product_verifier
from pebbler.extras.cells.cell_program import CellProgram, WrongProgram
from pebbler.files import write_bytes

__all__ = ["write_submission"]

_WORDS = {"mul": "multiplications", "add": "additions", "sub": "subtractions", "copy": "copies", "output": "outputs"}


def write_submission(program: CellProgram, folder: str | Path) -> list[Path]:
    """Write the program, its verifier and its page into a folder; return the files. Refuse programs of no matrix product."""
    try:
        m, n, k = sizes = program.matching_sizes()
        text = program.text()
        costs = {kind: cost for kind, cost in product_verifier.verify(text, sizes).items() if cost}
    except (WrongProgram, ValueError) as error:
        raise InputError(f"the program computes no matrix product: {error}") from None
    total = sum(costs.values())
    assert total == program.cost()
    name, data = f"matmul_{m}x{k}x{n}_{total}", text.encode()
    digest = hashlib.sha256(data).hexdigest()
    verifier = Path(product_verifier.__file__).read_text(encoding="utf-8")
    for constant, value in (("PROGRAM", f'"{name}.ir"'), ("SHA256", f'"{digest}"'), ("SIZES", sizes), ("COSTS", costs)):
        verifier, count = re.subn(rf"(?m)^({constant}\b[^=]*=) [^#\n]*", rf"\1 {value} ", verifier)
        assert count == 1
    counts = Counter(one.kind for one in program.instructions) + Counter(output=len(program.outputs))
    rows = [f"| {_WORDS[kind]} | {counts[kind]:,} | {cost:,} |" for kind, cost in costs.items()]
    page = [
        f"# A product of {m} x {k} and {k} x {n} for {total:,}",
        "",
        "| read by | count | cost |",
        "|---|---:|---:|",
        *rows,
        f"| all | {sum(counts.values()):,} | {total:,} |",
        "",
        f"Highest cell: {max((*program.inputs, *program.outputs, *(one.goal for one in program.instructions))):,}. "
        f"SHA-256 of `{name}.ir`: `{digest}`.",
        "",
        f"`python3 -S {name}.py` checks the SHA-256, computes every output as a polynomial in the elements of the matrices, "
        "and adds up the reads. Found by pebbler.",
        "",
    ]
    files = {f"{name}.ir": data, f"{name}.py": verifier.encode(), f"{name}.md": "\n".join(page).encode()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        write_bytes(Path(folder) / file, content)
    return [Path(folder) / file for file in files]
