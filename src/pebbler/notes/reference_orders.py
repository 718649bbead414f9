"""Note 000's four orders of a training step, by name, for comparisons.

Solvers and reports do not depend on the notes: they take reference orders as an argument, and the commands pass these four.
"""

from __future__ import annotations

from pebbler.errors import InputError, near_matches, quoted

__all__ = ["NOTE_ORDERS", "compared_orders", "marked_orders", "note_order"]

_BEGIN = "fwd_linear1 fwd_relu fwd_linear2 fwd_loss bwd_loss bwd_dW2"
_REST = {
    "standard": "bwd_db2 bwd_dh bwd_relu bwd_dW1 bwd_db1 upd_W1 upd_b1 upd_W2 upd_b2",
    "fused": "upd_W2 bwd_db2 upd_b2 bwd_dh bwd_relu bwd_dW1 upd_W1 bwd_db1 upd_b1",
    "perlayer": "bwd_db2 upd_W2 upd_b2 bwd_dh bwd_relu bwd_dW1 bwd_db1 upd_W1 upd_b1",
    "optimal": "bwd_db2 upd_b2 bwd_dh bwd_relu upd_W2 bwd_db1 upd_b1 bwd_dW1 upd_W1",
}
NOTE_ORDERS = {name: tuple(f"{_BEGIN} {rest}".split()) for name, rest in _REST.items()}


def note_order(name: str) -> list[str]:
    """Return one of note 000's four orders of `note_mlp`: standard, fused, perlayer or optimal.

    >>> note_order("optimal")[-2:]
    ['bwd_dW1', 'upd_W1']
    """
    if name not in NOTE_ORDERS:
        raise InputError(f"note 000 has no order {quoted(name)}{near_matches(name, NOTE_ORDERS)}")
    return list(NOTE_ORDERS[name])


def compared_orders() -> dict[str, list[str]]:
    """Return the orders that `pebbler solve --compare` puts beside its own; the standard one is program order.

    >>> list(compared_orders())
    ['note 000, fused', 'note 000, per layer', 'note 000, optimal']
    """
    titles = {"fused": "fused", "perlayer": "per layer", "optimal": "optimal"}
    return {f"note 000, {title}": note_order(name) for name, title in titles.items()}


def marked_orders() -> dict[str, list[str]]:
    """Return the orders that `pebbler report` marks among all others.

    >>> list(marked_orders())
    ['note: standard', 'note: fused', 'note: perlayer', 'note: optimal']
    """
    return {f"note: {name}": note_order(name) for name in NOTE_ORDERS}
