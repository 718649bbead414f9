"""A hook of mkdocs: fills the page of commands from the commands themselves, so that it cannot fall behind."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["command_pages", "on_page_markdown"]

PAGE = "reference/commands.md"


def command_pages() -> str:
    """Return every command of `pebbler` with its help, arguments and options, as Markdown."""
    import typer

    from pebbler.cli import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_section(name, command) for name, command in group.commands.items())


def _section(name: str, command: Any) -> str:
    told, _, example = inspect.cleandoc(command.help).partition("Example: ")
    words = [_word(param) for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(["pebbler", name, "[OPTIONS]", *words])
    rows = [f"| {_spelling(param)} | {_about(param)} |" for param in command.params if param.name != "help"]
    lines = [f"## pebbler {name}", told.strip(), f"```text\n{usage}\n```"]
    if example:
        lines.append(f"Example: `{example.strip()}`")
    return "\n\n".join([*lines, "\n".join(["| argument or option | what it is |", "|---|---|", *rows])])


def _word(param: Any) -> str:
    word = param.metavar or param.name.upper()
    return word if param.required or word.startswith("[") else f"[{word}]"


def _spelling(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{_word(param)}`".replace("|", "\\|")
    return " ".join(f"`{opt}`" for opt in (*param.opts, *param.secondary_opts))


def _about(param: Any) -> str:
    told = (param.help or "").replace("|", "\\|")
    shown = param.show_default and param.default is not None and param.default is not False
    return f"{told} Default: `{param.default}`." if shown else told


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Append the commands to their page."""
    return f"{markdown}\n\n{command_pages()}\n" if page.file.src_uri == PAGE else markdown
