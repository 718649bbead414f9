"""The house rules that can be read off the source: layers, cycles, names, sizes. CONTRIBUTING.md shows the layers."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from durations import longest_files

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# A module imports from rows above its own, never from below. The front door is what users import; nothing inside does.
LAYERS = (
    ("version", "errors", "limits", "files", "arrays", "collection", "kernel_folder", "compiled"),
    ("jobs",),
    ("game",),
    ("referee",),
    ("workloads",),
    ("trace",),
    ("joules",),
    ("solver", "extras"),  # the table of methods has rows for extras, which build on the rest of the solver
    ("run",),
    ("show",),
    ("sweeps",),
    ("notes",),
    ("cli",),
    ("front door",),
)
FRONT_DOOR = {"pebbler", "pebbler.torch", "pebbler.__main__"}
# Stages inside a room that has more than one: each imports from those before it.
STAGES = {"pebbler.run.torch": ("capture", "fuse", "cost", "plan", "run", "backend")}

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
Trees = dict[str, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """The syntax of every module, for these tests only: kept, its million objects would slow down all that come after."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def layer(module: str) -> int:
    room = "front door" if module in FRONT_DOOR else module.split(".")[1]
    return next(i for i, rooms in enumerate(LAYERS) if room in rooms)


def imports(module: ast.Module, *, types: bool) -> Iterator[str]:
    """Yield what a module imports from this package, in functions too; with `types`, also what only type checkers see."""
    pending: list[ast.AST] = [module]
    while pending:
        node = pending.pop()
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "pebbler")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "pebbler":
            assert node.level == 0, f"a relative import of {node.module}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    for other in imports(tree, types=True):
        if other not in MODULES:
            yield f"{module} imports {other}, which does not exist"
        elif other in FRONT_DOOR:
            if layer(module) < layer("pebbler.cli"):  # the command line is a user like any other
                yield f"{module} imports the front door"
        elif layer(other) > layer(module):
            yield f"{module} imports {other}, which is below it"
        for room, stages in STAGES.items():
            here, there = (name.removeprefix(f"{room}.").split(".")[0] for name in (module, other))
            if here in stages and there in stages and stages.index(there) > stages.index(here):
                yield f"{module} imports {other}, a later stage"


def test_modules_import_only_from_the_rooms_above_their_own(trees: Trees) -> None:
    assert [line for module, tree in trees.items() for line in wrong_imports(module, tree)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pebbler.game.graph", "from pebbler.solver import solve"),
        ("pebbler.game.graph", "import pebbler.trace.traces"),
        ("pebbler.solver.case", "def late():\n    from pebbler.show import report"),
        ("pebbler.solver.case", "import pebbler"),
        ("pebbler.game.graph", "from pebbler.game.nowhere import nothing"),
        ("pebbler.run.torch.plan.planner", "from pebbler.run.torch.run import runner"),
        ("pebbler.run.torch.cost.costs", "from pebbler.run.torch.backend.node_costs import call_cost"),
    ],
)
def test_a_wrong_import_is_found(module: str, line: str) -> None:
    assert len(list(wrong_imports(module, ast.parse(line)))) == 1


def test_no_import_is_cyclic(trees: Trees) -> None:
    try:
        TopologicalSorter({module: set(imports(tree, types=False)) for module, tree in trees.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_the_command_line_imports_the_notes(trees: Trees) -> None:
    for module, tree in trees.items():
        if module.split(".")[1:2] not in (["notes"], ["cli"]):
            assert not [other for other in imports(tree, types=True) if other.startswith("pebbler.notes")]


def test_few_modules_know_the_extras(trees: Trees) -> None:
    knowing = {
        module
        for module, tree in trees.items()
        if any(other.startswith("pebbler.extras") for other in imports(tree, types=True))
        if module.split(".")[1] not in ("extras", "cli")
    }
    assert knowing == {f"pebbler.solver.{name}" for name in ("methods", "case", "warm_up", "tiling")}


def test_the_recorded_files_are_there() -> None:
    """Long files begin first; one that was renamed would begin last."""
    assert [name for name in longest_files() if not (ROOT / name).is_file()] == []


def test_every_room_is_in_the_layers() -> None:
    rooms = {name.split(".")[1] for name in MODULES if name not in FRONT_DOOR}
    assert rooms == {room for row in LAYERS[:-1] for room in row}


def test_the_layers_are_those_that_contributing_shows() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in text.splitlines() if line.startswith("| `")]
    assert rows == [set(row) for row in LAYERS[:-1]]


def test_the_forms_of_the_data_exist(trees: Trees) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z]\w+)`", text))
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert len(named) > 20
    assert named - classes == set()


def test_no_module_name_is_used_twice() -> None:
    seen = defaultdict(list)
    for module in MODULES:
        last = module.rpartition(".")[2]
        # A command's module is named after the command, and every room may have kernels; stages are named after what is done.
        stage = any(module == f"{room}.{name}" for room, names in STAGES.items() for name in names)
        if module not in FRONT_DOOR and last != "kernels" and not stage and not module.startswith("pebbler.cli."):
            seen[last].append(module)
    assert {name: found for name, found in seen.items() if len(found) > 1} == {}


def test_no_class_name_is_used_twice(trees: Trees) -> None:
    seen = defaultdict(list)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                seen[node.name.lstrip("_")].append(module)
    assert {name: found for name, found in seen.items() if len(found) > 1} == {}


def test_modules_and_functions_are_short(trees: Trees) -> None:
    long = []
    for module, tree in trees.items():
        lines = len(MODULES[module].read_text(encoding="utf-8").splitlines())
        if lines > 600:
            long.append(f"{module}: {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                count = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
                if length > 80:
                    long.append(f"{module}.{node.name}: {length} lines")
                if count > 12:
                    long.append(f"{module}.{node.name}: {count} parameters")
    assert long == []


def test_kernels_know_nothing_of_graphs(trees: Trees) -> None:
    for module, tree in trees.items():
        if re.search(r"\.kernels(\.|$)", module):
            found = {other for other in imports(tree, types=True) if not re.search(r"\.kernels(\.|$)", other)}
            assert found <= {"pebbler.compiled", "pebbler.arrays"}, f"{module} imports {sorted(found)}"


def test_the_front_door_is_small() -> None:
    import pebbler

    assert len(pebbler.__all__) <= 28
    for name in pebbler.__all__:
        assert getattr(pebbler, name) is not None
