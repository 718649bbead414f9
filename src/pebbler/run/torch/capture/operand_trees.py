"""Operands and results of operators as structures: lists, tuples and dicts of leaves, and nothing else.

Torch's pytrees know many more kinds of structures and take ten times as long; an operator's arguments hold only these three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["leaves_of", "map_leaves"]


def leaves_of(tree: Any) -> list[Any]:
    """Return the leaves of a structure, in order.

    >>> leaves_of((1, [2, (3, None)], {"x": 4}))
    [1, 2, 3, None, 4]
    """
    leaves: list[Any] = []
    _add_leaves(tree, leaves)
    return leaves


def _add_leaves(tree: Any, leaves: list[Any]) -> None:
    kind = type(tree)
    if kind is tuple or kind is list:
        for part in tree:
            inner = type(part)
            if inner is tuple or inner is list or inner is dict:
                _add_leaves(part, leaves)
            else:
                leaves.append(part)
    elif kind is dict:
        for part in tree.values():
            _add_leaves(part, leaves)
    else:
        leaves.append(tree)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a structure of the same form with the function applied to every leaf.

    >>> map_leaves(str, (1, [2], {"x": 3}))
    ('1', ['2'], {'x': '3'})
    """
    kind = type(tree)
    if kind is tuple:
        return tuple([map_leaves(function, part) for part in tree])
    if kind is list:
        return [map_leaves(function, part) for part in tree]
    if kind is dict:
        return {key: map_leaves(function, part) for key, part in tree.items()}
    return function(tree)
