"""PyTorch training steps, planned within a memory budget and run by the plan: `import pebbler.torch as pt`."""

from __future__ import annotations

from pebbler.run.torch import MissingTorch
from pebbler.run.torch.backend.backward_step import GradientGone, step_in_backward
from pebbler.run.torch.backend.compiled_program import CompiledProgram, programs_of
from pebbler.run.torch.backend.weight_watch import WeightsChanged
from pebbler.run.torch.capture.captured import Captured, capture
from pebbler.run.torch.capture.exported import from_export
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.step_loading import load_step
from pebbler.run.torch.cost.costs import Cost, Costs, Device, Link, roofline
from pebbler.run.torch.cost.peak_memory import measure_peak
from pebbler.run.torch.cost.profiling import profile
from pebbler.run.torch.fuse.fusion import fuse
from pebbler.run.torch.fuse.inductor import Kernels, NoCompiler
from pebbler.run.torch.plan.planner import least_budget, plan, plan_captured
from pebbler.run.torch.plan.step_energy import FrontierPoint, StepEnergy, energy_frontier, predict_energy
from pebbler.run.torch.plan.torch_plan import TorchPlan
from pebbler.run.torch.run.compiled_step import CompiledStep, compile
from pebbler.run.torch.run.planned_step import PlannedStep, step
from pebbler.run.torch.run.verification import OverBudget, PlanDiffers, PlanOutdated

__all__ = [
    "Captured",
    "CompiledProgram",
    "CompiledStep",
    "Cost",
    "Costs",
    "Device",
    "FrontierPoint",
    "GradientGone",
    "Kernels",
    "Link",
    "MissingTorch",
    "NoCompiler",
    "OverBudget",
    "Phase",
    "PlanDiffers",
    "PlanOutdated",
    "PlannedStep",
    "StepEnergy",
    "TorchPlan",
    "WeightsChanged",
    "capture",
    "compile",
    "energy_frontier",
    "from_export",
    "fuse",
    "least_budget",
    "load_step",
    "measure_peak",
    "plan",
    "plan_captured",
    "predict_energy",
    "profile",
    "programs_of",
    "roofline",
    "step",
    "step_in_backward",
]
