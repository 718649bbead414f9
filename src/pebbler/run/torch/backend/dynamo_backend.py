"""The backend itself: `torch.compile(model, backend="pebbler", options={"budget": "8GiB"})`."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, active_fake_mode, tracing
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.errors import InputError, quoted
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.compiled_program import CompiledProgram, keep_graph
from pebbler.run.torch.backend.graph_forms import GraphForms
from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.last_layers import LastLayers
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner, WantsOtherForm
from pebbler.run.torch.backend.plan_cache import PlanCache, graph_key
from pebbler.run.torch.backend.sent_graphs import kept_order
from pebbler.run.torch.backend.spare_gradients import NotRepeatable, SpareGradients, expects_nothing
from pebbler.run.torch.backend.step_budget import StepBudget, shared_budget
from pebbler.run.torch.backend.step_meter import open_workspaces
from pebbler.run.torch.backend.weight_watch import WeightWatch
from pebbler.run.torch.cost.costs import nearest_device

__all__ = ["pebbler"]


def pebbler(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's as Inductor does, and save for backward what keeps the step within its budget.

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
        self._budget = budget
        self._partitioner = SavedValuesPartitioner(
            nearest_device(budget.device),
            options.time_limit,
            budget.start,
            options.objective,
            budget.host_share if options.offload else None,
        )
        # Inductor changes the graph that it is given, so a copy stays for compiling again, with what Dynamo knows of its inputs.
        self._graph = copy.deepcopy(gm)
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
        self.forms = GraphForms(options.budget, known.level if known is not None else 0)
        self._spare = SpareGradients(self._graph, places, self._expect_all) if places else None
        self._plans: dict[int, GraphFrontier] = {}  # of the forms that are compared before one is compiled, by level
        self._untried = self._first_levels(options.least) if known is None else []
        self._partitioner.refuses = self._wants_other_form
        self._compiled = self._compile(gm, example_inputs)
        self._plans.clear()
        self._trained: list[weakref.ref[Any]] = []
        keep_graph(self)

    def program(self) -> CompiledProgram | None:
        """Return what runs now, for people to look at; None where the graph has no backward."""
        frontier, programs = self.frontier, self._partitioner.programs
        if frontier is None or programs is None:
            return None
        timed = self._partitioner.objective == "time"
        curve = [(choice.peak, choice.cost) for choice in frontier.choices] if timed else []
        limit = None if self._budget.options.least else self._budget.limit([frontier])
        seconds = (frontier.choice.cost, frontier.choices[0].cost) if timed else (0.0, 0.0)
        return CompiledProgram(*programs, self._budget.device, seconds, limit, curve, self._budget.peak, self._trained)

    @property
    def frontier(self) -> GraphFrontier | None:
        """The choices of what to save; None where the graph has no backward."""
        return self._partitioner.frontier

    def compile_again(self) -> None:
        """Compile before the next call, with the choice that the frontier's place says then."""
        self._stale = True

    def compile_smaller(self) -> bool:
        """Compile before the next call with choices that time kept from being found, or in a form that holds less; or return False.

        Operands are copied to round sizes in every form but the last one.
        """
        if self.frontier is not None and self.frontier.cut_off and self._partitioner.search_to_the_end():
            self.compile_again()
            return True
        level = self.forms.next_level(self._whole(self._graph).graph) if self.frontier is not None else None
        if level is not None:
            self.forms.level = level
        elif self._padding and self.frontier is not None and self.frontier.padded:
            self._padding = False
        else:
            return False
        self.compile_again()
        return True

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
        settings: dict[str, Any] = {"custom_partitioner_fn": self._partitioner}
        if not self._padding:
            settings |= {"shape_padding": False, "comprehensive_padding": False}
        try:
            compiled = _inductor(self.forms.write(self._whole(gm)), inputs, settings)
            self._weights.compiled(self._partitioner.read_again)
            return compiled
        except NotRepeatable:
            self._spare = LastLayers.of(self._spare) if self._spare is not None else None
        except WantsOtherForm:
            pass  # the forms' level says which
        return self._compile(copy.deepcopy(self._graph), inputs)

    def _first_levels(self, least: bool) -> list[int]:
        """Return the forms to compare with the graph as it is, where that must run something again to keep its budget.

        Chunks may take less time than that; tiles never do, and wait until nothing else is left.
        """
        levels = self.forms.levels(self._whole(self._graph).graph) if torch.is_grad_enabled() else []
        return levels if least else [level for level in levels if level == 1]

    def _wants_other_form(self, frontier: GraphFrontier) -> bool:
        """Return whether another form is to be planned or compiled; the forms' level then says which."""
        if not self._untried and not self._plans:
            return False
        if not self._plans and not self._budget.presses(frontier):
            self._untried.clear()
            return False
        self._plans[self.forms.level] = frontier
        if self._untried:
            self.forms.level = self._untried.pop(0)
            return True
        best = min(self._plans, key=lambda level: (self._budget.price(self._plans[level]), level))
        if best == self.forms.level:
            return False
        self.forms.level, self._partitioner.frontier = best, self._plans[best]
        self._plans = {best: self._partitioner.frontier}
        return True

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
            inputs = [
                given if isinstance(given, FakeTensor) else node.meta["example_value"]
                for given, node in zip(self._inputs, self._graph.graph.find_nodes(op="placeholder"), strict=True)
            ]
            with tracing(copy.copy(self._context)):
                self._compiled = self._compile(copy.deepcopy(self._graph), inputs)
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


def _own_context() -> TracingContext | None:
    """Return what Dynamo knows of the graph that is being compiled, apart from what it goes on to compile besides."""
    context = copy.copy(TracingContext.try_get())
    if context is not None:
        # Both are for DDP's first compilation: it counts backward graphs, and calls each graph once on fake tensors.
        context.ddp_optimizer_ctx, context.fakify_first_call = None, False
    return context


def _inductor(gm: fx.GraphModule, inputs: Sequence[Any], settings: dict[str, Any]) -> Callable[..., Any]:
    import torch._functorch.config as functorch_config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def compile_one(graph: fx.GraphModule, *args: Any, **more: Any) -> Any:
        with kept_order(graph.graph):
            return compile_fx_inner(graph, *args, **more)

    # The cache of joint graphs is asked before the partitioner and does not know what it would decide now; that of kernels is used.
    with functorch_config.patch(enable_autograd_cache=functorch_config.enable_autograd_cache and not settings):
        compiled: Callable[..., Any] = compile_fx(
            gm, inputs, compile_one if settings else compile_fx_inner, config_patches=settings or None
        )
    return compiled
