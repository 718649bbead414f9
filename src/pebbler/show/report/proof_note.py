"""The explanation of a proof: the plans for which the bound holds, and the page of the documentation with the argument."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.game.plan import Covers

__all__ = ["ProofNote", "proof_note"]

_GRAPH = "It holds for every order, placement and recomputation of this graph as it is."
_TILINGS = "It holds for every tiling and fusion of the source, in every order and with any recomputation."

# What a method's words begin with or contain, for whom its bound holds, and the page that proves it. The first that fits counts.
_KNOWN = (
    ("docs/chains.md", "It holds for every schedule of this chain.", "chains.md"),
    ("search of every position", "It holds for every schedule of this chain.", "chains.md"),
    ("the chain's tables", "It holds for every schedule of this chain.", "chains.md"),
    ("every tiling", _TILINGS, "bounds.md"),
    ("from its certificate", _GRAPH, "bounds.md"),
    ("matrix products", _GRAPH, "products.md"),
    ("every order and recomputation", _GRAPH, "tiling.md"),
    ("cheapest last touch", _GRAPH, "tiling.md"),
    ("all orders searched", _GRAPH, "tiling.md"),
    ("no line lies higher", _GRAPH, "tiling.md"),
    ("made again around", _GRAPH, "recompute.md"),
    ("sequences of runs", _GRAPH, "recompute.md"),
    ("the only order there is", _GRAPH, "paging.md"),
)


@dataclass(frozen=True)
class ProofNote:
    """A proof in words, and the page of `docs` that has it in full."""

    words: str
    scope: str
    page: str


def proof_note(proof: str, covers: Covers = "graph") -> ProofNote | None:
    """Return a proof for readers; None where nothing is proven. A bound for every form says so, whatever its words are.

    >>> proof_note("every tiling: the touches that no element can avoid, at the best price").page
    'bounds.md'
    >>> proof_note("") is None
    True
    """
    if not proof:
        return None
    scope, page = next(((scope, page) for mark, scope, page in _KNOWN if mark in proof), (_GRAPH, "exact.md"))
    scope = _TILINGS if covers == "forms" else scope
    words = proof.removeprefix("every tiling: ").removesuffix(f"(docs/{page})").strip()
    return ProofNote(f"{'It is ' if words.startswith('verified') else 'Derived from: '}{words}.", scope, page)
