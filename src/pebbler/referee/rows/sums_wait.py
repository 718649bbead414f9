"""A sum waits for its last terms, or its terms wait for each other.

Let the moment T be when some values have all been made, the last element of them with an index of axis a in tile A, and let the
pieces of op c wait for all elements that have their own indices along a (`Liveness.late`): none that has those of A has run by T.
Let c make a value S, summing over a, which is cut, and let it read a value D that has the axis.

- *Waits.* An element of S waits if its first touch after T is a read by a piece that goes on with the sum. If it does not wait,
  that touch is a write, because the sum lacks the pieces of A at T: by the piece that begins it. The other pieces go on from there,
  so all pieces that add to the element run after T, and read all elements of D that agree with it.
- *Kept.* An element of D that is read by c after T is *kept* if its first touch after T is a read. Otherwise that is a write, after
  T, by the op f that makes D. If all of D is made before T, this is a later run: the element is *renewed*. Else, for an
  operand H of f that has the axes of D and is made before T: f reads the element of H with the same indices after T, so that is
  kept or renewed.
- So, for each index of the axes that S and D share: all its elements of S wait, and of D at least those are read after T that have
  indices of A; or all elements of D are. With E the extent of a and t the size of the smallest tile of it, sizes s and d:
  kept + renewed + (d / s) (1 - t / E) waiting >= d.

*Renewed* elements are written by a later run after T, and read after that. In tiles that do not fit into level l of a cache they
are written back to below it then; those that are read before T have been written back to there before.
S, D and H are made by one op each, have storages of their own, and fusion cannot remove them; neither D nor H is added once to a
sum, and D is made by one piece each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Elements, Liveness

__all__ = ["WaitingSum", "waiting_sums"]


class WaitingSum(NamedTuple):
    """A sum over an axis, one of its operands, and the inputs of that operand if it may be made after the moment."""

    total: int
    axis: str
    term: int
    source: int | None


def waiting_sums(moment: Liveness, alone: set[int]) -> Iterator[WaitingSum]:
    """Yield the sums that wait for their last terms at a moment; `alone` are the values that have a storage of their own."""
    elements, flow = moment.elements, moment.elements.flow
    usable = alone - elements.vanishing
    for op in range(flow.ops):
        if op in moment.before or op in moment.after:
            continue
        for total in elements.op_writes[op]:
            axes = sorted(elements.summed(total) & elements.cut) if total in usable else []
            for axis in axes:
                if moment.late(op, axis):
                    for term in dict.fromkeys(elements.op_reads[op]):
                        if term in usable and axis in elements.tensor_axes(term) and _read_by_all(elements, op, term):
                            yield from _terms(moment, WaitingSum(total, axis, term, None), usable)


def _terms(moment: Liveness, one: WaitingSum, usable: set[int]) -> Iterator[WaitingSum]:
    """Yield a sum with a term that is made before the moment, or with what that is made from."""
    elements, flow = moment.elements, moment.elements.flow
    maker = int(flow.value_maker[one.term])
    if maker in moment.before:
        yield one
    elif maker != NONE and not (elements.summed(one.term) & elements.may_cut):
        axes = elements.tensor(one.term).axes
        for source in dict.fromkeys(elements.op_reads[maker]):
            if (
                source in usable
                and int(flow.value_maker[source]) in moment.before
                and dict(elements.tensor(source).axes or ()) == dict(axes or ())
                and _read_by_all(elements, maker, source)
            ):
                yield one._replace(source=source)


def _read_by_all(elements: Elements, op: int, value: int) -> bool:
    """Whether every piece of an op reads what agrees with it of a made value."""
    added = elements.graph.ops[op].meta.get("adds", ())
    made = int(elements.flow.value_maker[value]) != NONE
    return made and bool(elements.tensor(value).axes) and elements.tensor(value).name not in added
