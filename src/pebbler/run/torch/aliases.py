"""From a recording to ops of a graph: one op is a group of calls that run together, and memory is counted by storage.

Two tensors that share a storage are one value to the planner, so a change of a view is a change of its base. Four rewrites make
the recording easier to plan; none changes a bit of any result:

- an optimizer's call on lists of tensors becomes several calls on shorter lists, so that gradients can go early;
- a copy of something that is never looked at again becomes that thing itself;
- calls whose results nobody uses go;
- a change in place of something just made joins the call that made it, so that both can be run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pebbler.run.torch.record import Call, Record, Scalar, TensorRef, unique_refs
from pebbler.run.torch.scalars import inputs_of

__all__ = ["Group", "group_calls", "names_in", "rewrite"]

aten = torch.ops.aten


@dataclass
class Group:
    """Calls that run together, and what they do to storages. `again` is False if they must not run twice."""

    calls: list[Call]
    reads: set[int] = field(default_factory=set)  # what must be there before
    makes: set[int] = field(default_factory=set)
    mutates: set[int] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)  # names of numbers read from tensors
    fused: bool = False  # whether they are to become one kernel; what only they use is not among `makes`

    @property
    def name(self) -> str:
        """What it does, in short: its first operator, or the first few of a fused one."""
        names = list(dict.fromkeys(call.name for call in self.calls))
        return "_".join(names[:3]) + ("_etc" if len(names) > 3 else "") if self.fused else names[0]

    @property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return any(call.random for call in self.calls)

    def take(self, call: Call) -> None:
        """Add a call that runs right after the others."""
        if self.calls[-1:] != [call]:
            self.calls.append(call)
        self.reads |= set(call.reads) - self.makes
        self.makes |= set(call.makes)
        self.mutates |= set(call.mutates) - self.makes
        self.needs |= names_in(call)


def names_in(call: Call) -> set[str]:
    """Return the names of the numbers read from tensors that a call's operands are computed from."""
    scalars = [leaf for leaf in tree_flatten((call.args, call.kwargs))[0] if isinstance(leaf, Scalar)]
    return {name for scalar in scalars for name in inputs_of(scalar.expression) if name.startswith("item_")}


def rewrite(record: Record, keep: Iterable[int], chunks: tuple[int, int]) -> list[Call]:
    """Return the calls of a recording with lists split, copies elided and unused calls left out.

    `keep` are tensors that are used after the step; lists are cut into about four pieces, of a size within `chunks` bytes.
    """
    numbers = list(keep)
    calls = [piece for call in record.calls for piece in _split(record, call, chunks)]
    calls = _elide_copies(record, calls, {record.tensors[n].storage for n in numbers})
    return _drop_unused(record, calls, {record.tensors[n].storage for n in numbers})


def group_calls(record: Record, calls: Sequence[Call]) -> list[Group]:
    """Return the calls as groups, in program order: changes in place join what they change where that is safe."""
    groups: list[Group | None] = []
    maker: dict[int, int] = {}  # storage -> number of the group that made it
    touched: dict[int, int] = {}  # storage -> last group that read or wrote it
    written: dict[int, int] = {}
    last_random = -1
    for call in calls:
        home = {maker.get(s, -1) for s in call.mutates}
        joined = None
        if len(home) == 1 and not call.makes and -1 not in home and not names_in(call):
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
            groups.append(Group([]))
        group = groups[joined]
        assert group is not None
        group.take(call)
        for s in call.makes:
            maker[s] = joined
        for s in (*call.reads, *call.makes, *call.mutates):
            touched[s] = max(joined, touched.get(s, -1))
        for s in (*call.makes, *call.mutates):
            written[s] = joined
        if call.random:
            last_random = joined
    return [group for group in groups if group is not None]


def _split(record: Record, call: Call, chunks: tuple[int, int]) -> list[Call]:
    """Return a call on lists of tensors as calls on shorter lists."""
    if (
        not call.name.startswith(("_foreach_", "_fused_"))
        or not call.args
        or not isinstance(call.args[0], list | tuple)
    ):
        return [call]
    count = len(call.args[0])
    sizes = [
        max(record.storages[record.tensors[ref.number].storage].bytes for ref in refs)
        for refs in zip(*(a for a in call.args if _is_list(a, count) and isinstance(a[0], TensorRef)), strict=True)
    ]
    chunk = min(max(sum(sizes) // 4, chunks[0]), chunks[1])
    bounds, held = [0], 0
    for i, size in enumerate(sizes):
        if held and held + size > chunk:
            bounds.append(i)
            held = 0
        held += size
    bounds.append(count)
    if len(bounds) == 2:
        return [call]
    return [_piece(record, call, count, low, high) for low, high in pairwise(bounds)]


def _is_list(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count > 0


def _piece(record: Record, call: Call, count: int, low: int, high: int) -> Call:
    def cut(value: Any) -> Any:
        return list(value[low:high]) if _is_list(value, count) else value

    args, kwargs = tuple(map(cut, call.args)), {key: cut(value) for key, value in call.kwargs.items()}
    outputs = cut(call.outputs)

    def storages(tree: Any) -> list[int]:
        return list(dict.fromkeys(record.tensors[n].storage for n in unique_refs(tree)))

    reads = storages((args, kwargs))
    mine = set(reads) | set(storages(outputs))
    return replace(
        call, args=args, kwargs=kwargs, outputs=outputs, reads=tuple(reads),
        makes=tuple(s for s in call.makes if s in mine), mutates=tuple(s for s in call.mutates if s in mine),
    )  # fmt: skip


def _elide_copies(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
    """Replace `b = empty(); b.copy_(a)` by `a` where `a` is never used again; autograd makes such copies of gradients."""
    last_use: dict[int, int] = {}
    for i, call in enumerate(calls):
        for s in (*call.reads, *call.mutates):
            last_use[s] = i
    empties = {call.makes[0]: i for i, call in enumerate(calls) if call.func is aten.empty_strided.default}
    same: dict[int, int] = {}
    gone: set[int] = set()
    uses: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        for s in call.reads:
            uses.setdefault(s, []).append(i)
    for i, call in enumerate(calls):
        if call.func is not aten.copy_.default or len(call.args) < 2 or not isinstance(call.args[1], TensorRef):
            continue
        target, source = (record.tensors[ref.number] for ref in call.args[:2])
        a, b = source.storage, target.storage
        if b not in empties or uses[b][0] != i or last_use[a] != i or a in kept or record.storages[a].maker is None:
            continue
        if (source.shape, source.stride, source.offset, source.dtype) != (
            target.shape, target.stride, target.offset, target.dtype,
        ) or record.storages[a].bytes != record.storages[b].bytes:  # fmt: skip
            continue
        same[b] = same.get(a, a)
        gone |= {i, empties[b]}
    if not same:
        return calls
    # Every tensor of the copy now is a view of the original.
    for n, info in enumerate(record.tensors):
        if info.storage in same:
            record.tensors[n] = replace(info, storage=same[info.storage])

    def renamed(storages: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(same.get(s, s) for s in storages))

    return [
        replace(call, reads=renamed(call.reads), makes=renamed(call.makes), mutates=renamed(call.mutates))
        for i, call in enumerate(calls)
        if i not in gone
    ]


def _drop_unused(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
    """Leave out calls that only make what nobody reads; what draws random numbers stays, for the next draw depends on it."""
    wanted = {s for s, storage in enumerate(record.storages) if storage.place is not None} | set(kept)
    names: set[str] = set()
    needed = []
    for call in reversed(calls):
        useful = bool({*call.makes, *call.mutates, *call.statistics} & wanted) or call.random or call.scalar in names
        if useful:
            wanted |= set(call.reads)
            names |= names_in(call)
            needed.append(call)
    return needed[::-1]
