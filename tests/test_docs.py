"""The documentation: every block of the README and of every page runs and prints what the page shows.

Nothing is skipped silently. Python blocks and `pebbler` commands run, one page after the other from top to bottom; what takes
minutes runs with a shorter time limit (`QUICKER`) or is only parsed (`PARSED_ONLY`, with the reason). Other programs' command lines
must name targets, modules and files that exist. Data blocks are read by the library. A block of a kind that nobody checks fails.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from pebbler.cli import app, main
from pebbler.files import decode_json, read_toml
from pebbler.game.graph import Graph, GraphFile
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.sweeps.sweep_spec import read_spec
from pebbler.sweeps.swept_runs import list_runs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(.*)$", re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')

# Half a minute of solving a block teaches nothing that a second does not; what is printed does not depend on it.
QUICKER = {"time_limit=30": "time_limit=1", "time_limit=5)": "time_limit=1)", "--time-limit 5 ": "--time-limit 1 "}
QUICK_OPTIONS = {"solve": ["--time-limit", "1"], "calibrate": ["--seconds", "0.1"]}  # where a page gives none
PARSED_ONLY = {
    "pebbler reproduce": "takes minutes; tests/notes runs every experiment",
    "pebbler reproduce accuracy": "takes a minute; tests/notes/test_accuracy.py runs smaller grids",
    "pebbler reproduce accuracy --full --out DIR": "takes an hour of CPU",
    "pebbler sweep train.py:training --budget 40%..100%+10% --objective time,energy --device h200 -o out/budgets": (
        "the step is the reader's; tests/sweeps/test_swept_steps.py runs one"
    ),
    "pebbler reproduce ard tiling --out DIR": "takes ten seconds; tests/notes runs both",
}


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return kind, the rest of the line that opens it, and text of every block of a page."""
    parts = FENCE.split(page.read_text(encoding="utf-8"))
    assert len(parts) % 4 == 1, f"{page.name}: a fence is not closed"
    found = []
    for opening, text, closing in zip(parts[1::4], parts[2::4], parts[3::4], strict=True):
        assert closing == "", f"{page.name}: a fence opens inside {opening!r}"
        kind, _, rest = opening.partition(" ")
        found.append((kind, rest, text[1:]))
    return found


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """Return a function that runs one command line in an empty folder and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(words: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert not caught.value.code, f"{words}: {err}"
        return out + err

    return run


def plain(text: str) -> str:
    return " ".join(text.split())


def parse(words: list[str]) -> None:
    """Check that a `pebbler` command line names a command and options that exist."""
    group = typer.main.get_command(app)
    if len(words) == 1:
        return
    if words[1].startswith("-"):
        assert words[1] in {opt for param in group.params for opt in param.opts}, words
        return
    assert words[1] in group.commands, f"no command: {words}"
    group.commands[words[1]].make_context(words[1], words[2:])


def exists(words: list[str]) -> None:
    """Check that a command line of another program names what there is: a make target, a benchmark."""
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), words
    elif words[:2] == ["python", "-m"]:
        module = words[2].replace(".", "/")
        assert any(
            (ROOT / place).is_file() for place in (f"{module}.py", f"src/{module}.py", f"{module}/__main__.py")
        ), words
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words
    else:
        pytest.fail(f"nobody checks commands such as {words}")


def quicker(text: str) -> str:
    for slow, quick in QUICKER.items():
        text = text.replace(slow, quick)
    return text


def run_console(block: str, rest: str, names: dict[str, object], cli: Callable[[list[str]], str]) -> None:
    """Run the commands of a block. What stands below one is what it prints, from the first line to the last."""
    assert block.startswith("$ "), f"a console block begins with a command: {block}"
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        words = shlex.split(quicker(line), comments=True)
        if words[0] != "pebbler":
            exists(words)
            continue
        parse(words)
        option, value = QUICK_OPTIONS.get(words[1], (None, None))
        words += [option, value] if option and option not in words else []
        if shlex.join(words) not in PARSED_ONLY:
            require_shown(shown, cli(words))


def require_shown(shown: str, printed: str) -> None:
    """Fail unless a page shows all that a command prints; a line of `…` stands for any number of lines.

    Nothing shown is as good as everything left out. Empty lines and the rules of tables do not count, nor do spaces.
    """
    lines = [plain(line) for line in printed.splitlines() if line.strip(" ─")]
    wanted = [plain(line) for line in shown.splitlines() if line.strip(" ─")] or ["…"]
    pattern = "".join("(?:.*\n)*?" if line == "…" else re.escape(line) + "\n" for line in wanted)
    assert re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)), f"shown:\n{shown}\nprinted:\n{printed}"


def run_python(block: str, rest: str, names: dict[str, object], cli: object) -> None:
    """Run a block, as doctests where it shows results."""
    block = quicker(block)
    if ">>>" not in block:
        exec(compile(block, "block", "exec"), names)
        return
    told: list[str] = []
    test = doctest.DocTestParser().get_doctest(block, names, "block", "block", 0)
    doctest.DocTestRunner(verbose=False).run(test, out=told.append, clear_globs=False)
    names |= test.globs  # the test worked on a copy
    assert not told, "".join(told)


def read_data(block: str, rest: str, names: dict[str, object], cli: object) -> None:
    """Read a graph, machine or plan as the library does; a block with a title becomes the file of that name."""
    title = TITLE.search(rest)
    path = Path(title[1] if title else "block")
    path.write_text(block, encoding="utf-8")
    what = "sweep" if rest.endswith("sweep") else "machine" if path.suffix == ".toml" else rest
    if what == "sweep":
        assert list_runs(*read_spec(path, {}))
    elif what == "machine":
        read_toml(path, Machine)
    elif what == "graph":
        assert Graph.from_file(decode_json(block.encode(), GraphFile, "block")).dataflow is not None
    else:
        assert what == "plan", f"say what the block is: {rest!r}"
        Plan.load(path)


def check_shell(block: str, rest: str, names: dict[str, object], cli: object) -> None:
    """Check the syntax of lines that need a network: cloning, installing."""
    subprocess.run(["bash", "-n"], input=block.replace("<", "").replace(">", ""), text=True, check=True)
    assert re.findall(r"pip install (\S+)", block) in (["-e"], []), "the tutorial installs this repository"


def check_text(block: str, rest: str, names: dict[str, object], cli: object) -> None:
    """Take a benchmark's output as it is: it differs from run to run. It is no code; what printed it stands beside it."""
    assert not re.search(r"^(\$|>>>|pebbler )", block, re.MULTILINE), "this is code, not output"


CHECKS = {
    "console": run_console,
    "python": run_python,
    "json": read_data,
    "toml": read_data,
    "sh": check_shell,
    "text": check_text,
}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```" in page.read_text(encoding="utf-8")], ids=lambda page: page.stem
)
def test_every_block_of_a_page_runs_and_prints_what_it_shows(page, cli):
    found = blocks(page)
    if any("import torch" in text for _, _, text in found):
        pytest.importorskip("torch")
    names = types.ModuleType("page").__dict__
    for kind, rest, text in found:
        assert kind in CHECKS, f"{page.name}: nobody checks blocks of kind {kind!r}"
        CHECKS[kind](text, rest, names, cli)


def test_what_is_made_quicker_or_only_parsed_is_there():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [slow for slow in QUICKER if slow not in text] == []
    assert [line for line in PARSED_ONLY if f"$ {line}" not in text] == []


def inline_code() -> list[tuple[str, str]]:
    """Return page and text of every piece of code within a sentence."""
    found = []
    for page in PAGES:
        text = "".join(FENCE.split(page.read_text(encoding="utf-8"))[::4])
        found += [(page.name, plain(code)) for code in re.findall(r"`([^`\n]+)`", text)]
    return found


def test_commands_in_sentences_parse():
    lines = [(page, code) for page, code in inline_code() if code.startswith(("pebbler ", "make ", "python "))]
    assert len(lines) > 20
    for page, code in lines:
        words = shlex.split(code.partition(" > ")[0].replace(" ... ", " GRAPH ").removesuffix(" ..."))
        if words[0] != "pebbler":
            exists(words)
            continue
        try:
            parse(words)
        except Exception as error:
            # A sentence may leave out what the command works on.
            if type(error).__name__ != "MissingParameter":
                raise AssertionError(f"{page}: {code}") from error


def test_modules_and_files_in_sentences_exist():
    checked, missing = 0, []
    for page, code in inline_code():
        if re.fullmatch(r"[\w*-]+(/[\w.*-]+)+\.(py|md|json)", code) and not code.startswith("DIR/"):
            found = [*ROOT.glob(code), *(ROOT / "src" / "pebbler").glob(code)]
        elif re.fullmatch(r"(pebbler|pb)(\.\w+)+", code):
            found = resolves(code.replace("pb.", "pebbler.", 1) if code.startswith("pb.") else code)
        else:
            continue
        checked += 1
        missing += [] if found else [(page, code)]
    assert missing == []
    assert checked > 40


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


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
    links = [
        (page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+\.md)", page.read_text(encoding="utf-8"))
    ]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).is_file()] == []


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_what_a_page_shows_is_held_to_what_is_printed():
    printed = "a\n\n ───\n b   c \nd\ne\n"
    for shown in ("a\nb c\nd\ne", "…", "", "a\n…", "…\nd\ne", "a\n…\ne", "a\n…\nb c\nd\ne\n…"):
        require_shown(shown, printed)
    for shown in ("a", "b c\n…", "a\nd\n…", "…\nx\n…", "d\n…\na", "a\nb c\nd\n"):
        with pytest.raises(AssertionError):
            require_shown(shown, printed)


def test_search_needs_no_server_and_no_network():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "\n  - offline\n" in site
    scripts = re.findall(
        r"polyfills: \[(\S*iframe-worker\S*)\]", site
    )  # the plugin would fetch it from a server otherwise
    assert len(scripts) == 1
    assert "IFrameWorker" in (DOCS / scripts[0]).read_text(encoding="utf-8")


def test_the_first_screen_says_what_it_does_for_whom():
    top = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## What it finds")[0]
    assert len(top.splitlines()) < 45
    commands = re.findall(r"^\| .* \| `(pebbler [^`]+)` \|$", top, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["torch", "chain", "solve", "sweep", "play"]
    assert 0 < top.find("pip install") < top.find("| you |")  # install before the commands
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", top)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)


def test_docstring_examples_are_fenced():
    pytest.importorskip("griffe")
    text = "Return one.\n\n>>> one()\n1\n\nMore.\n\n    >>> two()\n    2"
    assert hook("doctests").fenced(text) == (
        "Return one.\n\n\n```pycon\n>>> one()\n1\n```\n\nMore.\n\n\n```pycon\n>>> two()\n    2\n```"
    )


def test_the_site_has_a_live_report_where_its_pages_say(tmp_path):
    live = hook("live_report")
    live.on_post_build({"site_dir": str(tmp_path)})
    assert "One training step, before and after" in (tmp_path / live.PAGE).read_text(encoding="utf-8")
    assert all(f'href="{live.PAGE}"' in (DOCS / page).read_text(encoding="utf-8") for page in ("index.md", "report.md"))
