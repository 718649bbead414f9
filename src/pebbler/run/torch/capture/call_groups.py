"""Groups of calls that run together: one op of the graph each. Memory is counted by storage.

Two tensors that share a storage are one value to the planner, so a change of a view is a change of its base. A change in place
of something just made joins the call that made it, so that both can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pebbler.run.torch.capture.calls import Call, Scalar
from pebbler.run.torch.capture.scalars import inputs_of

__all__ = ["CallGroup", "group_calls", "last_uses", "scalar_names"]


@dataclass
class CallGroup:
    """Calls that run together, and their effects on storages."""

    calls: list[Call]
    reads: set[int] = field(default_factory=set)  # what must be there before
    makes: set[int] = field(default_factory=set)
    mutates: set[int] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)  # names of the numbers from tensors that its operands follow from
    fused: bool = False  # whether they are to become one kernel; what only they use is not among `makes`

    @property
    def name(self) -> str:
        """A short name: the first operator, or the first few of a fused group."""
        names = list(dict.fromkeys(call.name for call in self.calls))
        return "_".join(names[:3]) + ("_etc" if len(names) > 3 else "") if self.fused else names[0]

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return any(call.random for call in self.calls)

    @property
    def touches(self) -> set[int]:
        """All storages that it reads, makes or changes."""
        return self.reads | self.makes | self.mutates

    @classmethod
    def of(cls, calls: Iterable[Call], *, fused: bool = False) -> CallGroup:
        """Return the group of these calls, in this order."""
        group = cls([], fused=fused)
        for call in calls:
            group.append(call)
        return group

    def append(self, call: Call) -> None:
        """Add a call that runs right after the others."""
        if self.calls[-1:] != [call]:
            self.calls.append(call)
        self.reads |= set(call.reads) - self.makes
        self.makes |= set(call.makes)
        self.mutates |= set(call.mutates) - self.makes
        self.scalars |= scalar_names(call)


def scalar_names(call: Call) -> set[str]:
    """Return the names of the numbers read from tensors that a call's operands are computed from."""
    scalars = [leaf for leaf in call.leaves if isinstance(leaf, Scalar)]
    names = {name for scalar in scalars for name in inputs_of(scalar.expression) if name.startswith("item_")}
    return names if call.unless is None else names | {call.unless}


def last_uses(groups: Sequence[CallGroup]) -> dict[int, int]:
    """Return the number of the last group that touches each storage."""
    return {s: i for i, group in enumerate(groups) for s in group.touches}


def group_calls(calls: Iterable[Call]) -> list[CallGroup]:
    """Return the calls as groups, in program order: in-place changes join the call they change where that is safe."""
    groups: list[CallGroup | None] = []
    maker: dict[int, int] = {}  # storage -> number of the group that made it
    touched: dict[int, int] = {}  # storage -> last group that read or wrote it
    written: dict[int, int] = {}
    last_random = -1
    for call in calls:
        home = {maker.get(s, -1) for s in call.mutates}
        joined = None
        if len(home) == 1 and not call.makes and -1 not in home and not scalar_names(call):
            (at,) = home
            group = groups[at]
            assert group is not None
            untouched = all(touched[s] == at for s in call.mutates) and group.makes >= set(call.mutates)
            others = set(call.reads) - set(call.mutates)
            if untouched and not (call.random and last_random > at):
                if all(written.get(s, -1) <= at for s in others):
                    joined = at
                elif not group.reads and not group.random and all(touched[s] == at for s in group.makes):
                    # A fresh, empty tensor: it may as well be made here.
                    groups[at] = None
                    groups.append(group)
                    joined = len(groups) - 1
                    for s in group.makes:
                        maker[s] = touched[s] = written[s] = joined
        if joined is None:
            joined = len(groups)
            groups.append(CallGroup([]))
        group = groups[joined]
        assert group is not None
        group.append(call)
        for s in call.makes:
            maker[s] = joined
        for s in (*call.reads, *call.makes, *call.mutates):
            touched[s] = max(joined, touched.get(s, -1))
        for s in (*call.makes, *call.mutates):
            written[s] = joined
        if call.random:
            last_random = joined
    return [group for group in groups if group is not None]
