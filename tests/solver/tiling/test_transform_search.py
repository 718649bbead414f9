"""Which transforms get a thorough search, after quick schedules have priced them."""

from __future__ import annotations

from pebbler import machine, workloads
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.transform_search import TransformSearch
from pebbler.solver.tiling.transform_space import Transform, TransformSpace


def test_other_axes_get_a_chance_whatever_quick_schedules_say_of_them() -> None:
    # On this machine quick schedules of tiles along `hidden` alone are hundreds of times too dear, and there the optimum is.
    search = Search(Problem.of(workloads.get("mlp:n=20,hidden=1000,batch=32"), machine("cortex-m")))
    transforms = TransformSearch(search, TransformSpace(search.problem.graph), 60.0)
    fused = transforms.fused()
    kinds = {
        "all": [fused.with_sizes(batch=size, hidden=16, n=16) for size in (16, 12)],
        "hidden": [fused.with_sizes(hidden=size) for size in (500, 63, 32, 16)],
        "batch": [fused.with_sizes(batch=size) for size in (16, 8)],
    }

    def candidate(transform: Transform) -> object:
        return transforms.candidates[transforms.space.effective(transform)]

    energy = {transform: transforms.energy(transform) for tried in kinds.values() for transform in tried}
    finalists = transforms.ranked()[:1]
    assert finalists == [candidate(kinds["all"][0])]
    others = transforms.others(finalists)
    # Tiles of 16 are the cheapest along `hidden`; those of 63 are close enough and a quarter of the graph.
    assert energy[kinds["hidden"][3]] < energy[kinds["hidden"][1]] < 1.05 * energy[kinds["hidden"][3]]
    assert others == [candidate(kinds["hidden"][1]), candidate(kinds["batch"][1])]
    assert transforms.others([*finalists, *others]) == []
