"""Files that are damaged or hostile: bytes changed anywhere, and values changed inside of what still is JSON or TOML."""

from __future__ import annotations

import copy
import json
import random
import tomllib
from collections.abc import Callable
from typing import Any

__all__ = ["HOSTILE", "damaged", "mutated_json", "mutated_lines", "mutated_toml", "toml_text"]

# What a reader may not have thought of: numbers at the edges of types, texts that mean something to a terminal, a path or a
# spreadsheet, other types, depth.
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    100,
    1000,
    2**31 - 1,
    2**31,
    2**32,
    2**48,
    2**53 + 1,
    2**56,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    10**100,
    10**400,
    0.5,
    -0.0,
    1e-308,
    1e15,
    1e30,
    1e300,
    -1e300,
    "",
    " ",
    "x" * 5000,
    "\0",
    "\x1b[2J\x1b]0;title\x07",
    "two\nlines",
    "\x9b31m",
    "\u202e",
    "é€😀",
    "\ud800",
    "../../../../x",
    "/etc/passwd",
    "-",
    "*",
    "=HYPERLINK(1)",
    "%s%n",
    "$\\frac$",
    "<img src=x onerror=alert(1)>",
    "NaN",
    "inf",
    "1e400",
    "0x10",
    "1..9999999",
    "100%",
    "9" * 30 + "GiB",
    [],
    {},
    [[]],
    [None],
    [0],
    ["x"],
    {"x": 1},
    {"": None},
    [[[[[[[[]]]]]]]],
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them changed, a part gone, doubled or moved, or a short tail."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        at = rng.randrange(len(changed) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 50, 500))
        how = rng.randrange(7)
        if how == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif how == 1 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif how == 2:
            del changed[at : at + length]
        elif how == 3:
            changed[at:at] = changed[at : at + length]
        elif how == 4:
            changed[at:at] = (
                rng.choice((b"9", b"-", b"0", b"e9", b".", b'"', b"[", b"{", b"]", b",", b"\0", b"\xff", b"\n"))
                * length
            )
        elif how == 5:
            other = rng.randrange(len(changed) + 1)
            changed[at : at + length] = changed[other : other + length]
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def mutated_json(data: bytes, rng: random.Random) -> bytes:
    """Return JSON with some values replaced, removed, doubled, renamed or taken from elsewhere in it."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        value = _mutated(value, rng)
    return json.dumps(value).encode()


def mutated_toml(data: bytes, rng: random.Random) -> bytes:
    """Return TOML changed in the same ways."""
    value = tomllib.loads(data.decode())
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        value = _mutated(value, rng)
    return toml_text(value).encode("utf-8", "replace") if isinstance(value, dict) else b"x = 1\n"


def mutated_lines(data: bytes, rng: random.Random) -> bytes:
    """Return text with words replaced by hostile ones and lines moved."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(lines)) if lines else 0
        how = rng.randrange(4)
        if how == 0 and lines:
            words = lines[at].replace(",", " , ").split(" ")
            words[rng.randrange(len(words))] = str(rng.choice(HOSTILE))[:300]
            lines[at] = " ".join(words)
        elif how == 1 and lines:
            del lines[at]
        elif how == 2 and lines:
            lines.insert(rng.randrange(len(lines)), lines[at] * rng.choice((1, 2, 100)))
        else:
            lines.insert(at, str(rng.choice(HOSTILE))[:300])
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _mutated(value: Any, rng: random.Random) -> Any:
    """Return a value with one change somewhere inside of it."""
    places: list[tuple[Any, Any]] = []  # container and key
    pending = [value]
    while pending and len(places) < 20_000:
        inside = pending.pop()
        keys = (
            list(inside) if isinstance(inside, dict) else list(range(len(inside))) if isinstance(inside, list) else []
        )
        places += [(inside, key) for key in keys]
        pending += [inside[key] for key in keys]
    if not places or rng.random() < 0.01:
        return _hostile(rng)
    inside, key = rng.choice(places)
    other = rng.choice(places)
    changes: list[Callable[[], object]] = [
        lambda: inside.__setitem__(key, _hostile(rng)),
        lambda: inside.__setitem__(key, _hostile(rng)),
        lambda: inside.__setitem__(key, _near(inside[key], rng)),
        lambda: inside.pop(key),
        lambda: inside.__setitem__(key, copy.deepcopy(other[0][other[1]])),
        lambda: (
            inside.__setitem__(str(_hostile(rng)), copy.deepcopy(inside[key]))
            if isinstance(inside, dict)
            else inside.append(copy.deepcopy(inside[key]))
        ),
    ]
    rng.choice(changes)()
    return value


def _hostile(rng: random.Random) -> Any:
    """Return a hostile value of its own: a shared one would change with the next change inside of it, or hold itself."""
    return copy.deepcopy(rng.choice(HOSTILE))


def _near(value: Any, rng: random.Random) -> Any:
    """Return a value of the same type that is a little or far off."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 1000, value // 3, str(value)))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value * 3, [value], value.upper(), value + "\x1b[31m"))
    if isinstance(value, list):
        return rng.choice((value[::-1], value * 2, value[:1], value * 50 if len(value) < 20 else value, {"x": value}))
    return rng.choice((list(value.values()), dict(list(value.items())[:1]), [value])) if isinstance(value, dict) else 0


def toml_text(value: dict[str, Any]) -> str:
    """Return a table as TOML; what TOML cannot say is left out."""
    return "".join(f"{_toml_key(key)} = {text}\n" for key, item in value.items() if (text := _toml(item)) is not None)


def _toml_key(key: str) -> str:
    return _toml_string(key)


def _toml_string(text: str) -> str:
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, list):
        return f"[{', '.join(text for item in value if (text := _toml(item)) is not None)}]"
    if isinstance(value, dict):
        items = ((key, _toml(item)) for key, item in value.items())
        return f"{{{', '.join(f'{_toml_key(key)} = {text}' for key, text in items if text is not None)}}}"
    return None
