"""A machine with its measurements as TOML text, as `pebbler calibrate` writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pebbler.game.machine import Machine

__all__ = ["machine_toml"]


def machine_toml(machine: Machine, comment: str = "") -> str:
    """Return a machine's file; `comment` stands above it.

    >>> from pebbler.game.machine import Level
    >>> print(machine_toml(Machine("two", "byte", (Level("fast", 1, 1, 8), Level("slow", 9, 9.5))), "Made by hand."))
    # Made by hand.
    name = "two"
    unit = "byte"
    <BLANKLINE>
    [[level]]
    name = "fast"
    read = 1
    write = 1
    capacity = 8
    <BLANKLINE>
    [[level]]
    name = "slow"
    read = 9
    write = 9.5
    <BLANKLINE>
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    _write_table(lines, "", msgspec.to_builtins(machine))
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], path: str, table: dict[str, Any]) -> None:
    """Append a table: its plain values first, then the tables inside it."""
    inner = {key: value for key, value in table.items() if _is_table(value)}
    lines += [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner and value is not None
    ]
    for key, value in inner.items():
        name = f"{path}.{_key(key)}" if path else _key(key)
        for one in value if isinstance(value, list | tuple) else [value]:
            lines += ["", f"[[{name}]]" if isinstance(value, list | tuple) else f"[{name}]"]
            _write_table(lines, name, one)


def _is_table(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict)


def _key(key: str) -> str:
    plain = key != "" and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if plain else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        shown = f"{value:.6g}"
        return shown if set(shown) & set(".en") else f"{shown}.0"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
