"""One self-contained page about plans: `report(plans, path)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pebbler.errors import InputError, blamed_on, one_line
from pebbler.game.plan import Plan

if TYPE_CHECKING:
    from pebbler.show.report.page_data import ReportData

__all__ = ["report"]


_COMPILED = ("_orig_mod", "_torchdynamo_orig_callable")  # what torch.compile leaves on a model, or on a function


@runtime_checkable
class HoldsPlan(Protocol):
    """An object that can be shown as a plan, such as `pebbler.torch.TorchPlan`."""

    def as_plan(self) -> Plan:
        """Return it as one plan."""


def report(
    plans: Plan | HoldsPlan | str | Path | Sequence[Plan | HoldsPlan | str | Path] | Any,
    path: str | Path,
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    references: Mapping[str, Sequence[str]] | None = None,
    appendix: str = "",
) -> ReportData:
    """Write a page that shows plans (those of PyTorch steps too), or plan files, and return its contents.

    A model compiled with `backend="pebbler"` and a budget is shown, after its first steps, as the programs of its graphs.

    The page is one HTML file that loads nothing, with a player, lifetimes, reuse distances, miss curves, differences and the
    landscape of orders. Program order joins the plans for comparison, where it fits. `names` are the
    plans' names on the page; files are called by their own. `references` are orders of the first plan's ops, by name, that the
    landscape marks. `appendix` is HTML for the end of the page; it is not escaped, and no script in it runs.

    >>> import tempfile
    >>> from pebbler import machine, workloads
    >>> plan = Plan.in_order(workloads.note_mlp(), machine("notes-recency"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = report(plan, Path(folder, "report.html"))
    ...     Path(folder, "report.html").stat().st_size < 5_000_000
    True
    """
    from pebbler.files import write_text
    from pebbler.show.report.page_data import gather
    from pebbler.show.report.report_page import page

    if Path(path).suffix.lower() not in (".html", ".htm", ""):
        raise InputError(f"{path}: a report is a page, and is written as .html")
    if any(hasattr(plans, name) for name in _COMPILED):
        from pebbler.run.torch.backend.compiled_program import programs_of

        plans = programs_of(plans)
    given = [plans] if isinstance(plans, Plan | HoldsPlan | str | Path) else list(plans)
    loaded = []
    labels = []
    for i, one in enumerate(given):
        if isinstance(one, str | Path):
            labels.append(one_line(Path(one).stem))  # the name of a file need not be text
            loaded.append(Plan.load(one))
        else:
            labels.append("plan" if len(given) == 1 else f"plan {i + 1}")
            loaded.append(one if isinstance(one, Plan) else one.as_plan())
    files = [str(one) for one in given if isinstance(one, str | Path)]
    with blamed_on(", ".join(files)) if files else nullcontext():
        data = gather(loaded, names if names is not None else labels, title, references)
    write_text(path, page(data, appendix))
    return data
