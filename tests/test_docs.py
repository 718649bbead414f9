"""The documentation: every block of the tutorial and how-to pages runs and prints what the page shows."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import typer

from pebbler.cli import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """Return a function that runs one line of a console, in an empty folder, and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> str:
        words = shlex.split(line)
        assert words[0] == "pebbler", line
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert not caught.value.code, f"{line}: {err}"
        return out + err

    return run


def plain(text: str) -> str:
    return " ".join(text.split())


def run_console(block: str, cli) -> None:
    """Run the commands of a block; each line shown below one must be among those it prints."""
    printed: list[str] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            printed = [plain(one) for one in cli(line[2:]).splitlines()]
        else:
            assert plain(line) in printed, f"not printed: {line}"


def run_python(block: str, names: dict[str, object], where: str) -> None:
    if ">>>" not in block:
        exec(compile(block, where, "exec"), names)
        return
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(block, names, where, where, 0)
    doctest.DocTestRunner(verbose=False).run(test, out=told.append, clear_globs=False)
    names |= test.globs  # the test worked on a copy
    assert not told, "".join(told)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs_and_prints_what_it_shows(page, cli):
    if "pytorch" in page.stem:
        pytest.importorskip("torch")
    names = types.ModuleType("page").__dict__
    kinds = set()
    for kind, title, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        kinds.add(kind)
        if title:
            Path(title).write_text(block, encoding="utf-8")
        elif kind == "console":
            run_console(block, cli)
        elif kind == "python":
            run_python(block, names, f"{page.name}: {block[:40]!r}")
    assert kinds & {"console", "python"}, "nothing on this page runs"


def hook(name: str) -> types.ModuleType:
    """Return one of the site's own modules, which lie outside the package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_has_every_command_and_option():
    page = hook("commands").command_pages()
    for name, command in typer.main.get_command(app).commands.items():
        section = page.partition(f"## pebbler {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for param in command.params:
            for opt in (*param.opts, *param.secondary_opts) if param.param_type_name == "option" else ():
                assert f"`{opt}`" in section, (name, opt)
            assert param.name == "help" or (param.help and param.help.replace("|", "\\|") in section), (
                name,
                param.name,
            )


def test_links_between_pages_lead_somewhere():
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8"))
    ]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).is_file()] == []


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_docstring_examples_are_fenced():
    pytest.importorskip("griffe")
    text = "Return one.\n\n>>> one()\n1\n\nMore.\n\n    >>> two()\n    2"
    assert hook("doctests").fenced(text) == (
        "Return one.\n\n\n```pycon\n>>> one()\n1\n```\n\nMore.\n\n\n```pycon\n>>> two()\n    2\n```"
    )
