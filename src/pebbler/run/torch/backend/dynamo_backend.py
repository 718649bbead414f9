"""The backend itself: `torch.compile(model, backend="pebbler", options={"budget": "8GiB"})`."""

from __future__ import annotations

import copy
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, active_fake_mode, tracing
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.errors import InputError, quoted
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.chunked_loss import find_losses
from pebbler.run.torch.backend.compiled_program import CompiledProgram, keep_graph
from pebbler.run.torch.backend.dynamo_copies import copy_graph
from pebbler.run.torch.backend.graph_forms import GraphForms
from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner, TorchsOwnSchedule, WantsOtherForm
from pebbler.run.torch.backend.plan_cache import PlanCache, graph_key
from pebbler.run.torch.backend.recompute_order import recompute_late
from pebbler.run.torch.backend.scheduled_graph import NotScheduled, written_before
from pebbler.run.torch.backend.scheduled_step import ScheduledStep
from pebbler.run.torch.backend.sent_graphs import kept_order
from pebbler.run.torch.backend.spare_gradients import (
    LastLayers,
    NotRepeatable,
    SpareGradients,
    drops_values,
    expects_nothing,
)
from pebbler.run.torch.backend.step_budget import StepBudget, shared_budget
from pebbler.run.torch.backend.step_meter import open_workspaces
from pebbler.run.torch.backend.weight_watch import WeightWatch
from pebbler.run.torch.cost.costs import nearest_device

__all__ = ["pebbler"]

_LOG = logging.getLogger(__name__)
_AGAIN = 0.02  # of the cost: what must be computed again, and may be gained, before chunks of a loss are compared
_Form = tuple[int, bool]  # a level, and whether operands of products may be copied to round sizes


def pebbler(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a Dynamo graph as Inductor does, saving for backward only values that keep the step within its budget.

    Without a budget this is Inductor. Registered for `torch.compile` under the name `pebbler`, wherever pebbler is installed.
    """
    told = BackendOptions.read(options)
    if mode not in (None, "default"):
        raise InputError(f"mode {quoted(mode)} is not there yet: leave mode out")
    if told.free:
        return _inductor(gm, example_inputs, {})
    places = [str(x.device) for x in example_inputs if isinstance(x, torch.Tensor)]
    device = next((place for place in places if place.startswith("cuda")), "cpu")
    if device != "cpu":
        open_workspaces(device)
    return PlannedGraph(gm, example_inputs, told, shared_budget(device, told))


class PlannedGraph:
    """A compiled graph that is compiled again, with other values saved, when its budget says so."""

    def __init__(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], options: BackendOptions, budget: StepBudget
    ) -> None:
        self._budget, self._least = budget, options.least
        self._partitioner = SavedValuesPartitioner(
            nearest_device(budget.device),
            math.inf if options.least else options.time_limit,
            self._room,
            options.objective,
            budget.host,
            budget.host_left,
        )
        # Inductor changes the graph that it is given, so a copy stays for compiling again, with what Dynamo knows of its inputs.
        self._graph = copy_graph(gm)
        self._inputs = [
            x.detach().requires_grad_(x.requires_grad) if isinstance(x, FakeTensor) else None for x in example_inputs
        ]
        self._context = _own_context()
        self._weights = WeightWatch(gm.graph)
        self._stale, self._padding = False, True
        self._cache = PlanCache(options.cache) if options.cache is not None else None
        self._key = budget.numbered(graph_key(gm, budget.device, options)) if self._cache is not None else ""
        places = expects_nothing(gm) if torch.is_grad_enabled() else []
        known = self._cache.load(self._key) if self._cache is not None else None
        if known is not None:
            self._padding, self._partitioner.frontier = known.padding, known.frontier
            places = places if known.spare else []
        self._spare = SpareGradients(self._graph, places, self._expect_all) if places else None
        if self._spare is not None and drops_values(gm.graph):
            self._spare = LastLayers.of(self._spare)
        self._whole_graph = self._whole(self._graph).graph
        self.forms = GraphForms(options.budget, known.level if known is not None else 0)
        if self._least and known is None:
            self.forms = self._last_form()
        self._plans: dict[_Form, GraphFrontier] = {}  # of the forms that are compared before one is compiled
        self._partitioner.refuses, self._partitioner.below = self._wants_other_form, self._held_by_other_forms
        self._compiled = self._compile(gm, example_inputs)
        self._trained: list[weakref.ref[Any]] = []
        self._unlimited: ScheduledStep | None = None  # the graph as torch would compile it
        keep_graph(self)

    def program(self) -> CompiledProgram | None:
        """Return the program that runs now, for people to look at; None for a graph without backward or schedule.

        How it would run without a budget is scheduled when it is asked for first.
        """
        frontier, partitioner = self.frontier, self._partitioner
        if frontier is None:
            return None
        if partitioner.program is None:  # the choice was known from a file
            partitioner.looks = True
            self._schedule(self.forms.write(self._whole(copy_graph(self._graph))), partitioner, self._padding)
            partitioner.looks = False
        if self._unlimited is None:
            look = TorchsOwnSchedule(partitioner.device)
            self._schedule(copy_graph(self._graph), look)
            self._unlimited = look.step
        if partitioner.program is None or self._unlimited is None:
            return None
        places = range(len(frontier.choices)) if partitioner.objective == "time" else ()
        curve = [(frontier.peak(place), frontier.cost(place)) for place in places]
        limit = None if self._budget.options.least else self._budget.limit([frontier])
        about = self._budget.device, limit, curve, self._budget.peak, self._trained
        return CompiledProgram(partitioner.program, self._unlimited, *about)

    def _schedule(self, gm: fx.GraphModule, partitioner: CustomPartitionerFn, padding: bool = True) -> None:
        """Have a graph that nobody else needs partitioned and scheduled, and not compiled."""
        with suppress(WantsOtherForm, NotScheduled), self._as_dynamo_left_it() as inputs:
            _inductor(gm, inputs, _settings(partitioner, padding))

    @property
    def frontier(self) -> GraphFrontier | None:
        """The choices of saved values; None for a graph without backward."""
        return self._partitioner.frontier

    def compile_again(self) -> None:
        """Compile before the next call, with the choice that the frontier's place says then."""
        self._stale = True

    def compile_least(self) -> bool:
        """Compile the choice with the least memory before the next call, however long that takes; return False if that is done."""
        if self._least or self.frontier is None:
            return False
        self._begin_least()
        self.compile_again()
        return True

    def _begin_least(self) -> None:
        self._least = True
        self._plans.clear()
        self.forms, self._padding = self._last_form(), True
        self._partitioner.plans_anew, self._partitioner.time_limit = True, math.inf

    def _last_form(self) -> GraphForms:
        """Return the form that most likely holds least: planned first, it spares the others their schedules."""
        return GraphForms(None, max(GraphForms(None).levels(self._whole_graph), default=0))

    def _held_by_other_forms(self) -> float:
        """Return the fewest bytes that a form of the graph holds, of those that are compared."""
        return min((known.peak for plan in self._plans.values() for known in plan.scheduled.values()), default=math.inf)

    def _room(self, frontier: GraphFrontier) -> int:
        """Return the bytes that a graph may hold: as many as its forms before, whose step may have been measured."""
        room = self._budget.room(frontier)
        known = [plan.room for plan in self._plans.values() if plan.room is not None]
        return 0 if self._least else known[0] if known else room

    def settle(self, peak: int) -> None:
        """Keep the plan on disk, now that the step's peak is known and nothing will change."""
        if self._cache is not None and self.frontier is not None and not self._stale:
            spare = self._spare is not None
            form = {"padding": self._padding, "spare": spare, "level": self.forms.level}
            self._cache.store(self._key, **form, peak=peak, frontier=self.frontier)

    def _expect_all(self) -> None:
        self._spare = None
        self.compile_again()

    def _whole(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Return a graph without the gradients that are not expected."""
        return self._spare.without() if self._spare is not None else gm

    def _compile(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph that nobody else needs; without the gradients that are not expected, where that can be made good."""
        self._partitioner.repeatable = self._spare is not None and self._spare.whole
        settings = _settings(self._partitioner, self._padding)
        self._whole_graph = self._whole(
            self._graph
        ).graph  # made here: within Inductor fake tensors are of another mode
        try:
            compiled = _inductor(self.forms.write(self._whole(gm)), inputs, settings, self._partitioner)
            self._budget.compiled()
            self._weights.compiled(self._partitioner.read_again)
            self._plans.clear()
            self._partitioner.planned.clear()
            return compiled
        except NotRepeatable:
            self._spare = LastLayers.of(self._spare) if self._spare is not None else None
        except WantsOtherForm:
            pass  # the forms' level says which
        return self._compile(copy_graph(self._graph), inputs)

    @contextmanager
    def _as_dynamo_left_it(self) -> Iterator[list[Any]]:
        """Go back to where Dynamo handed over the graph, and give the inputs that it knew then."""
        inputs = [
            given if isinstance(given, FakeTensor) else node.meta["example_value"]
            for given, node in zip(self._inputs, self._graph.graph.find_nodes(op="placeholder"), strict=True)
        ]
        with tracing(copy.copy(self._context)):
            yield inputs

    def _wants_other_form(self, frontier: GraphFrontier) -> bool:
        """Return whether another form is to be planned or compiled, now that one is; its level and padding then say which.

        Chunks may take less time than computing much again, so they are compared with the graph as it is. All other forms are for
        budgets that nothing else keeps, and the last resort is what holds least, as if that had been asked for.
        """
        here = self.forms.level, self._padding
        self._plans[here] = frontier
        fits = any(plan.peak() <= (plan.room or 0) for plan in self._plans.values())
        forms = [form for form in self._forms(frontier) if form not in self._plans]
        if fits:
            again = here == (0, True) and frontier.cost() > frontier.cost(0) * (1 + _AGAIN)
            forms = [form for form in forms if form == (1, True) and again and self._promise(frontier) > _AGAIN]
        elif not forms and not self._least and not frontier.shared:
            self._begin_least()
            return True
        if not forms:
            forms = [min(self._plans, key=lambda form: (*self._price(self._plans[form]), form))]
            self._partitioner.frontier = self._plans[forms[0]]
            for plan in self._plans.values():
                plan.room = None
            if forms[0] == here:
                return False
        self.forms.level, self._padding = forms[0]
        return True

    def _promise(self, frontier: GraphFrontier) -> float:
        """Return the part of its cost that a graph gains by chunks of its losses at best: if all logits took no room."""
        room = (frontier.room or 0) + sum(loss.bytes for loss in find_losses(self._whole_graph))
        return 1 - frontier.cost(frontier.within(room)) / max(frontier.cost(), 1e-30)

    def _price(self, frontier: GraphFrontier) -> tuple[int, float]:
        """Return the bytes that a plan holds too much, and what it costs: of two forms of a graph the lower is better."""
        return max(0, frontier.peak() - (frontier.room or 0)), frontier.cost()

    def _forms(self, frontier: GraphFrontier) -> list[_Form]:
        """Return the forms that a graph has; operands are copied to round sizes in every one but the last."""
        levels = [0, *self.forms.levels(self._whole_graph)]
        padded = [(level, True) for level in levels]
        return [*(reversed(padded) if self._least else padded), *([(levels[-1], False)] if frontier.padded else [])]

    def __call__(self, *args: Any) -> Any:
        spare = self._spare
        if self.frontier is None or not torch.is_grad_enabled():
            return self._compiled(*args)
        if self._budget.in_backward:
            return self._compiled(*args) if spare is None else spare.attach(args, self._compiled(*args))
        if active_fake_mode() is not None:
            # DDP's graphs are compiled one after the other before any runs; each is called once for the strides of its outputs.
            self._budget.expect(self)
            return self._compiled(*args)
        self._budget.foresee()
        if self._stale:
            self._stale = False
            with self._as_dynamo_left_it() as inputs:
                self._compiled = self._compile(copy_graph(self._graph), inputs)
        self._budget.enter(self, args)
        self._trained = self._trained or [weakref.ref(x) for x in args if isinstance(x, torch.nn.Parameter)]
        spare = self._spare
        try:
            outputs = self._compiled(*args)
        except BaseException:
            self._budget.abandon()
            raise
        node = self._budget.leave(outputs)
        if node is not None and self._weights.due(self._budget.steps):
            self._weights.check_before(node, args)
        return outputs if spare is None else spare.attach(args, outputs)


def _settings(partitioner: CustomPartitionerFn, padding: bool) -> dict[str, Any]:
    """Return Inductor's settings: who partitions, and whether operands are copied to round sizes."""
    settings: dict[str, Any] = {"custom_partitioner_fn": partitioner}
    if not inductor_config.triton.cudagraphs:  # which partitions of a graph's program are for
        settings["graph_partition"] = False
    return settings if padding else settings | {"shape_padding": False, "comprehensive_padding": False}


def _own_context() -> TracingContext | None:
    """Return Dynamo's context of the graph that is being compiled, without graphs that Dynamo goes on to compile."""
    context = copy.copy(TracingContext.try_get())
    if context is not None:
        # Both are for DDP's first compilation: it counts backward graphs, and calls each graph once on fake tensors.
        context.ddp_optimizer_ctx, context.fakify_first_call = None, False
    return context


def _inductor(
    gm: fx.GraphModule, inputs: Sequence[Any], settings: dict[str, Any], planned: SavedValuesPartitioner | None = None
) -> Callable[..., Any]:
    import torch._functorch.config as functorch_config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def compile_one(graph: fx.GraphModule, *args: Any, **more: Any) -> Any:
        late = planned is not None and planned.late and bool(more.get("is_backward"))
        _LOG.info("compiling: %s", "backward" if more.get("is_backward") else "forward")
        written = planned.written if planned is not None else []
        with kept_order(graph.graph), recompute_late(late), written_before(written):
            compiled = compile_fx_inner(graph, *args, **more)
        if more.get("is_backward"):  # which torch may compile later than forward
            written.clear()
        return compiled

    # The cache of joint graphs is asked before the partitioner and does not know what it would decide now; that of kernels is used.
    with functorch_config.patch(enable_autograd_cache=functorch_config.enable_autograd_cache and not settings):
        compiled: Callable[..., Any] = compile_fx(
            gm, inputs, compile_one if settings else compile_fx_inner, config_patches=settings or None
        )
    return compiled
