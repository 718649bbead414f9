"""Conversion of a plan to a program on numbered cells: levels are rows of cells, nearest first; each copy of a value has a cell."""

from __future__ import annotations

from heapq import heappop, heappush

from pebbler.errors import InputError, quoted
from pebbler.extras.cells.cell_program import CellProgram, Instruction
from pebbler.game.moves import COMPUTE, DROP
from pebbler.game.plan import Plan
from pebbler.referee.judgement import require_legal

__all__ = ["cell_program"]

_WORDS = {"product": "mul", "add": "add"}


def cell_program(plan: Plan) -> CellProgram:
    """Return a legal plan of single elements as a program; the inputs and outputs are in the order of the graph's tensors.

    An op without results stands for reading its operands at the end, as every program does.

    >>> from pebbler import machine, solve, workloads
    >>> plan = solve(workloads.matmul(1, 1, 1), machine("grid"), time_limit=0)
    >>> cell_program(plan).text()
    '1,2\\nmul 1,1,2\\n1\\n'
    """
    require_legal(plan)
    return _CellWriter(plan).write()


class _CellWriter:
    """The cells while the plan is played."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.flow = plan, plan.graph.dataflow
        for tensor in plan.graph.tensors:
            if tensor.size != 1:
                raise InputError(f"tensor {quoted(tensor.name)}: a cell holds one unit, its size is {tensor.size}")
            if tensor.kind == "param":
                raise InputError(f"tensor {quoted(tensor.name)}: a program has inputs and outputs, no params")
        self.free: list[list[int]] = []
        self.after = 1  # the first cell that belongs to no level yet; the last level takes them as it needs them
        for level in plan.machine.in_unit(plan.graph.unit).level:
            count = level.capacity or 0
            self.free.append(list(range(self.after, self.after + count)))
            self.after += count
        self.cells: dict[int, dict[int, int]] = {}  # by value and level
        self.made: list[Instruction] = []

    def write(self) -> CellProgram:
        """Play the moves and write them down."""
        flow, moves = self.flow, self.plan.moves
        current = flow.start_value.tolist()
        for tensor, levels in self.plan.start_levels().items():
            for level in levels[:1]:
                self._put(current[tensor], level)
        inputs = tuple(
            self._nearest(current[number])[1]
            for number, tensor in enumerate(self.plan.graph.tensors)
            if tensor.kind == "input"
        )
        kinds, subjects, levels_, goals = (x.tolist() for x in (moves.kind, moves.subject, moves.level, moves.to))
        drops: list[int] = []
        for at, kind in enumerate(kinds):
            if kind == DROP:
                if at not in drops:
                    self._take(current[subjects[at]], levels_[at])
            elif kind == COMPUTE:
                drops = []
                while at + len(drops) + 1 < len(kinds) and kinds[at + len(drops) + 1] == DROP:
                    drops.append(at + len(drops) + 1)
                written = self.flow.value_tensor[self.flow.op_writes.row(subjects[at])].tolist()
                drops = [drop for drop in drops if subjects[drop] not in written]
                gone = [(current[subjects[drop]], levels_[drop]) for drop in drops]
                self._compute(subjects[at], levels_[at], gone, current)
            else:
                value = current[subjects[at]]
                source = self.cells[value][levels_[at]]
                self._note("copy", self._put(value, goals[at]), (source,))
        final = flow.final_value.tolist()
        outputs = tuple(
            self._nearest(final[number])[1]
            for number, tensor in enumerate(self.plan.graph.tensors)
            if tensor.kind == "output"
        )
        return CellProgram(inputs, tuple(self.made), outputs, len(self.made) + 2)

    def _compute(self, op: int, level: int, dropped: list[tuple[int, int]], current: list[int]) -> None:
        """Write an op down; its result may go to the cell of what is overwritten, or dropped right after."""
        node = self.plan.graph.ops[op]
        sources = tuple(self._nearest(value)[1] for value in self.flow.op_reads.row(op).tolist())
        results = self.flow.op_writes.row(op).tolist()
        for value in self.flow.op_destroys.row(op).tolist():
            for at in sorted(self.cells.get(value, ())):
                self._take(value, at)
        for value, at in dropped:
            self._take(value, at)
        if not results and node.reads:
            return
        word = _WORDS.get(str(node.meta.get("kernel")))
        if word is None or len(results) != 1 or len(sources) != 2:
            raise InputError(f"op {quoted(node.name)}: a program adds or multiplies two elements")
        (value,) = results
        current[self.flow.value_tensor[value]] = value
        self._note(word, self._put(value, level), sources)

    def _note(self, kind: str, goal: int, sources: tuple[int, ...]) -> None:
        self.made.append(Instruction(kind, goal, sources, len(self.made) + 2))

    def _nearest(self, value: int) -> tuple[float, int]:
        """Return the price and the cell from which a value is read."""
        levels = self.plan.machine.level
        return min((levels[at].read, cell) for at, cell in self.cells[value].items())

    def _put(self, value: int, level: int) -> int:
        held = self.cells.setdefault(value, {})
        if level not in held:
            if not self.free[level]:
                heappush(self.free[level], self.after)
                self.after += 1
            held[level] = heappop(self.free[level])
        return held[level]

    def _take(self, value: int, level: int) -> None:
        heappush(self.free[level], self.cells[value].pop(level))
