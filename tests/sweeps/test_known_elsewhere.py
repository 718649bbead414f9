"""What runs say about one another, against a plain reading of the rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pebbler.sweeps.known_elsewhere import with_best_known
from pebbler.sweeps.sweep import sweep

figures = st.tuples(
    st.sampled_from(["f", "g", None]), st.integers(1, 5), st.none() | st.integers(1, 9), st.none() | st.integers(0, 9)
)


@given(st.lists(figures, max_size=12))
def test_the_least_from_below_and_the_highest_from_above(found):
    rows = [
        {"key": f"{i:02}", "family": family, "capacity": capacity, "energy": energy, "bound": bound}
        for i, (family, capacity, energy, bound) in enumerate(found)
    ]
    for row, known in zip(rows, with_best_known(rows), strict=True):
        kin = [other for other in rows if other["family"] == row["family"]] if row["family"] else [row]
        below = [other for other in kin if other["capacity"] <= row["capacity"] and other["energy"] is not None]
        above = [o["bound"] for o in kin if o["capacity"] >= row["capacity"] and o["bound"] is not None]
        assert known["best_energy"] == min((other["energy"] for other in below), default=None)
        assert known["best_bound"] == max(above, default=None)
        if below:
            assert known["best_energy"] == next(o["energy"] for o in rows if o["key"] == known["best_key"])
        assert {name: known[name] for name in row} == row


def test_families_are_runs_that_may_be_compared():
    def families(**more):
        return {run.columns.get("family") for run in sweep.runs("note-mlp", **more)}

    explicit = families(machines="notes-explicit", capacity={"L1": "100,200"}, seed=[0, 1], time_limit=[1, 2])
    assert len(explicit) == 1
    assert families(machines="notes", capacity={"L1": "100,200"}) == {None}
    others = [
        families(machines="notes-explicit", capacity={"L1": 100}, tile="none"),
        families(machines="notes-explicit", capacity={"L1": 100}, steady=False),
        families(machines="notes-explicit", capacity={"L1": 100, "L2": 500}),
        families(machines="horowitz-45nm"),
    ]
    assert len(set.union(explicit, *others)) == 5
