"""One word per thing: the glossary, and words that were given up (`test_layers` looks at names)."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "pebbler").rglob("*.py"))
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"^- \*\*([^*]+)\*\*(?: \([^)]*\))?: \S.*\.$")

# Metaphors that had to be learned. Whoever needs one of these words for something else finds a better one.
RETIRED = ("kitchen", "recipe", "dish", "tasting", "stakes", "rents", "second making", "dearer", "makes of")
RETIRED_MODULES = {
    "clock", "crossings", "gaps", "helpers", "kitchen", "locality", "look", "misc", "needs", "ready", "recipe", "rents",
    "retention", "rooms", "routing", "settle", "stakes", "takeover", "tasting", "utils",
}  # fmt: skip

# A docstring names its subject by a noun. "Whether" is how a boolean is described.
QUESTION = re.compile(r"(What|How|Where|Which|Who|Why|When)\b")
# In kernels of modules alone: every edit there compiles them again.

# How a figure came about is a command and a machine, not the day on which it was measured.
DIARY = re.compile(
    r"\b(whoever|gone on (with|from)|busy (machine|day|cores?)|the day before|another day|yesterday|within the hour|this session)\b"
)


def written_by_us() -> list[Path]:
    """Return every file of code or prose in the repository, less what is bundled from others."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("src", "tests", "docs", "examples", "benchmarks"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".js", ".css")]
    return [path for path in found if "vendor" not in path.parts and path != Path(__file__)]


def classes() -> set[str]:
    """Return the names of all classes."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES)
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def test_the_glossary_has_one_line_a_word_in_order():
    lines = GLOSSARY.split("\n\n", 2)[2].strip().splitlines()
    entries = [ENTRY.match(line) for line in lines]
    assert [line for line, entry in zip(lines, entries, strict=True) if entry is None] == []
    words = [entry[1].lower() for entry in entries if entry]
    assert [(a, b) for a, b in pairwise(words) if a >= b] == []
    assert len(words) > 40


def test_classes_in_the_glossary_exist():
    named = set(re.findall(r"`([A-Z][A-Za-z]+)(?:\.\w+)?`", GLOSSARY))
    assert len(named) > 10
    assert named - classes() == set()


def test_retired_words_stay_retired():
    pattern = re.compile(rf"\b({'|'.join(RETIRED)})", re.IGNORECASE)
    used = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in written_by_us()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert used == []
    assert RETIRED_MODULES & {path.stem for path in SOURCES} == set()


def docstrings() -> list[tuple[Path, ast.AST, str]]:
    """Return all docstrings of the package."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (path, node, text)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, owners) and (text := ast.get_docstring(node))
    ]


def test_docstrings_begin_with_a_noun_or_a_verb():
    asking = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path, _, text in docstrings()
        if QUESTION.match(text.removeprefix("Return ").capitalize())
    ]
    assert asking == []


def test_pages_keep_no_diary():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if DIARY.search(line)
    ]
    assert found == []
