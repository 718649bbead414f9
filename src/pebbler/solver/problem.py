"""The input and output of every solving method: a problem, a running search, and the best plan so far."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pebbler.errors import InputError, PebblerError, RefutedBound, quoted
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.machine import machine as find_machine
from pebbler.game.moves import Move, Moves
from pebbler.game.plan import Plan
from pebbler.game.starts import free_starts, looped_params, start_choices
from pebbler.game.tile_meta import origin
from pebbler.referee.judgement import check
from pebbler.referee.rows.task import Task
from pebbler.workloads import load

if TYPE_CHECKING:
    from pebbler.solver.case import Case
    from pebbler.solver.tiling.transform_space import TransformSpace

__all__ = ["Impossible", "Problem", "Search"]

Start = Mapping[str, str | Sequence[str]]
_NO_BOUND = "no energy is negative"


class Impossible(PebblerError):
    """No legal plan exists, and the message says why and what would do. Commands exit with status 1."""


@dataclass(frozen=True)
class Problem:
    """A graph to be scheduled on a machine; the machine is already in the graph's unit."""

    graph: Graph
    machine: Machine
    steady: bool
    start: Start = field(default_factory=dict)  # what is asked for; see `start_choices`
    seed: int = 0
    threads: int = 1

    @classmethod
    def of(
        cls,
        graph: Graph | str | Path,
        machine: Machine | str | Path | None = None,
        *,
        steady: bool | None = None,
        start: Start | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> Problem:
        """Return the problem with defaults filled in and units agreed.

        The graph may be a file or a built-in workload, the machine a file or a built-in one: `red-blue` by default for a graph
        of pebbles, `notes` for any other.
        """
        graph = graph if isinstance(graph, Graph) else load(graph)
        machine = find_machine(machine or ("red-blue" if graph.unit == "pebble" else "notes"))
        steady = graph.updates_params if steady is None else steady
        if not isinstance(start or {}, Mapping):
            raise InputError(f"start must name levels by tensor, such as {{'x': 'fast'}}, got {quoted(start)}")
        return cls(graph, machine.in_unit(graph.unit), steady, dict(start or {}), seed, threads)

    def start_choices(self) -> dict[int, list[int] | None]:
        """Return the levels where each start value is, by tensor number; None where the solver chooses.

        Inputs of a steady step arrive in the slowest level, and only there. Its params start where the solver likes, as long as
        they end there too; a machine of one level leaves no choice. What has `start = "free"` starts where the solver likes.
        Everything else starts where the problem says.

        >>> from pebbler import machine, workloads
        >>> Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True).start_choices()
        {0: None, 1: None, 2: None, 3: None, 4: [3], 5: [3]}
        """
        return start_choices(self)

    @property
    def free_starts(self) -> list[int]:
        """The tensors that start where the plan says, by number; a machine of one level leaves no choice."""
        return free_starts(self)

    @property
    def plain(self) -> bool:
        """Whether starts and results follow the common rules; some methods know no others."""
        return not self.free_starts and self.machine.results == "apart"

    @property
    def looped_params(self) -> list[int]:
        """The params of a steady step, by tensor number: each must end exactly where it starts."""
        return looped_params(self)

    @cached_property
    def task(self) -> Task:
        """The subject of its bounds, as the referee knows it."""
        return Task(self.graph, self.machine, self.steady, self.start)

    @cached_property
    def scale(self) -> EnergyScale:
        """The scale at which the energies of plans of the graph as it is are exact.

        >>> from pebbler import machine, workloads
        >>> Problem.of(workloads.chain(3), machine("red-blue")).scale.quantum
        1.0
        """
        return EnergyScale.of(self.graph, self.machine)

    @cached_property
    def space(self) -> TransformSpace:
        """The ways to tile and fuse the graph."""
        from pebbler.solver.tiling.transform_space import TransformSpace

        return TransformSpace(self.graph)

    def plan(self, moves: Iterable[Move], start: Start | None = None, graph: Graph | None = None) -> Plan:
        """Return the moves as a plan of this problem, or of its graph transformed, which then carries it as `source`."""
        start = dict(self.start if start is None else start)
        graph = self.graph if graph is None else graph
        source = None if graph is self.graph else self.graph
        return Plan(graph, self.machine, Moves.of(graph, self.machine, moves), start, self.steady, source=source)

    def transformed(self, graph: Graph) -> Problem:
        """Return the problem for a tiled or fused form of its graph: tiles start where their whole tensors do."""
        if graph is self.graph:
            return self
        whole = {tensor.name: origin(tensor) for tensor in graph.tensors}
        start = {name: self.start[of] for name, of in whole.items() if of in self.start}
        return replace(self, graph=graph, start=start)


class Search:
    """A running search: the best plan so far, the best bound so far, and the clock.

    Methods offer plans and bounds; only what the referee accepts is kept. `report` is called after every change. Other threads
    may interrupt a search, or have its `stop` return True, and take a `snapshot` of it.
    """

    def __init__(
        self,
        problem: Problem,
        time_limit: float | None = None,
        report: Callable[[Search], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        if time_limit is not None and not time_limit >= 0:
            raise InputError(f"the time limit must be a number of seconds >= 0, got {time_limit}")
        self.problem = problem
        self.case: Case | None = None  # how it was asked, where that is more than the problem
        self.began = time.monotonic()
        self.time_limit = time_limit
        self.best: Plan | None = None
        self.energy = float("inf")
        self.scale = problem.scale  # of the best plan, which may be of the graph in another form
        self.bound = 0.0
        self.proof = _NO_BOUND
        self.certificate: Mapping[str, Any] | None = None  # of the best bound that has one
        self.refuted = ""  # the proof of a bound that a legal plan costs less than; no bound is stated after that
        self.cut_off = False  # set when time, not proof, ended some method
        self.quick = False  # set to stop after a fixed amount of work that is small, for the same answer every time
        self.as_it_is = False  # set when the bound is for plans of the graph as it is, not of every form
        self.whole: Search | None = None  # of the graph as it is, where other forms are allowed
        self.interim: object | None = None  # of a method that a later one goes on from
        self.program_order: float | None = None  # what program order costs, once a method has tried it and it fits
        self.enough: Callable[[Search], bool] | None = None  # set to end the search sooner than with a proof
        self._report, self._stop = report, stop
        self._outer: Search | None = None
        self._interrupted = False
        self._lock = threading.Lock()

    def part(
        self,
        time_limit: float | None,
        report: Callable[[Search], None] | None = None,
        problem: Problem | None = None,
    ) -> Search:
        """Return a separate search that ends when this search is interrupted."""
        inner = Search(problem or self.problem, time_limit, report)
        inner._outer = self
        return inner

    def interrupt(self) -> None:
        """End the search, and those that are part of it, as if its time were over."""
        self._interrupted = True

    @property
    def interrupted(self) -> bool:
        """Whether the search, or one that it is part of, was interrupted."""
        if self._interrupted or (self._stop is not None and self._stop()):
            return True
        return self._outer is not None and self._outer.interrupted

    @property
    def elapsed(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float:
        """Seconds left; infinite without a limit, never negative, and 0 once the search is interrupted."""
        if self.interrupted:
            self.cut_off = True
            return 0.0
        return float("inf") if self.time_limit is None else max(0.0, self.time_limit - self.elapsed)

    @property
    def fraction(self) -> float | None:
        """The share of the time limit that has passed, for progress bars; None without a limit."""
        return None if not self.time_limit else min(1.0, self.elapsed / self.time_limit)

    @property
    def gap(self) -> float | None:
        """The largest distance of the best plan from the optimum, as a fraction of the bound."""
        if self.best is None or self.bound <= 0:
            return None
        return max(0.0, self.energy / self.bound - 1)

    @property
    def done(self) -> bool:
        """Whether the best plan is proven optimal, or is good enough."""
        if self.enough is not None and self.enough(self):
            return True
        return self.best is not None and self.scale.proves(self.bound, self.energy)

    def offer(self, moves: Iterable[Move], start: Start | None = None, graph: Graph | None = None) -> bool:
        """Take a plan if the referee accepts it and it is the cheapest so far; return whether it was taken.

        `graph` is the problem's graph in a transformed form, when the moves are for that.
        """
        return self.offer_plan(self.problem.plan(moves, start, graph))

    def offer_plan(self, plan: Plan | None) -> bool:
        """Take a plan of this problem as `offer` does; None, for a method that found nothing, is never taken."""
        if plan is None:
            return False
        judgement = check(plan)
        if not judgement.legal:
            raise AssertionError(f"a solver offered an illegal plan: {judgement.error}")
        with self._lock:
            if judgement.energy >= self.energy:
                return False
            self.best, self.energy = plan, judgement.energy
            self.scale = EnergyScale.of(plan.graph, plan.machine)
        self._drop_refuted()
        self._tell()
        return True

    def note_program_order(self, energy: float) -> None:
        """Keep the cost of program order, here and in the search that this one is part of."""
        self.program_order = energy
        if self._outer is not None:
            self._outer.note_program_order(energy)

    def raise_bound(self, bound: float, proof: str, certificate: Mapping[str, Any] | None = None) -> None:
        """Take a lower bound that holds for every legal plan of the problem, if it is the best so far; likewise its certificate.

        Where every plan costs a whole number, it is rounded up.
        """
        if certificate is not None and (self.certificate is None or certificate["bound"] > self.certificate["bound"]):
            self.certificate = certificate
        if self.as_it_is and bound != self.energy:
            bound = self.problem.scale.least(bound)
        if bound > self.bound and not self.refuted:
            with self._lock:
                self.bound, self.proof = bound, proof
            self._drop_refuted()
            self._tell()

    def give_up(self, reason: Impossible) -> None:
        """Take a proof that no plan is legal, and raise it; unless a legal plan is known, which refutes it as it does a bound.

        >>> from pebbler.workloads import chain
        >>> Search(Problem.of(chain(1))).give_up(Impossible("nothing fits"))
        Traceback (most recent call last):
        pebbler.solver.problem.Impossible: nothing fits
        """
        if self.best is None:
            raise reason
        self.raise_bound(math.inf, str(reason))

    def snapshot(self) -> tuple[Plan | None, float, float, str]:
        """Return the best plan with its energy, and the bound with its proof, that belong together at this moment."""
        with self._lock:
            return self.best, self.energy, self.bound, self.proof

    def _drop_refuted(self) -> None:
        """Drop the bound, loudly, if the best plan costs less: one of the two is wrong, and the referee has judged the plan."""
        with self._lock:
            if not self.scale.is_less(self.energy, self.bound):
                return
            stated, self.refuted = (self.bound, self.proof)
            self.bound, self.proof, self.certificate = 0.0, _NO_BOUND, None
        warnings.warn(
            f"a fault in pebbler: a legal plan costs {self.energy:,.12g}, less than the lower bound of {stated:,.12g} "
            f"({self.refuted}); the bound is dropped. Please report it, with the graph and the machine",
            RefutedBound,
            stacklevel=3,
        )

    def _tell(self) -> None:
        if self._report is not None:
            self._report(self)
