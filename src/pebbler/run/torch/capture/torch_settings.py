"""Torch's own settings, which decide what operators a step runs: modes, defaults, choices of kernels, hooks for everything.

What torch can get and set as a plain value is a setting; those are found by their names, so that new ones count as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pebbler.errors import InputError

__all__ = ["refuse_settings", "torch_settings"]

# Named below, or no setting of what a step computes.
_OTHERS = ("_get_deterministic_algorithms", "_get_float32_matmul_precision",
           "_get_thread_name", "_get_tracing_state", "_get_graph_exec_group", "_get_warnAlways", "_get_torch_function_state",
           "_get_backcompat_broadcast_warn", "_get_backcompat_keepdim_warn")  # fmt: skip
_OF_CUDA = ("cuda", "cudnn", "cublas", "miopen", "rocm", "_sm_")


def torch_settings() -> dict[str, Callable[[], Any]]:
    """Return a reader of every setting, by the name that people use.

    >>> settings = torch_settings()
    >>> settings["grad mode (whether gradients are enabled)"](), settings["torch._C._get_mkldnn_enabled()"]()
    (True, True)
    """
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    own: Any = torch._C
    named: dict[str, Callable[[], Any]] = {
        "grad mode (whether gradients are enabled)": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "the default dtype": torch.get_default_dtype,
        "the default device": torch.get_default_device,
        "deterministic algorithms": own._get_deterministic_algorithms,
        "the precision of matrix products": own._get_float32_matmul_precision,
        "anomaly mode (torch.autograd.set_detect_anomaly)": torch.is_anomaly_enabled,
        "hooks for saved tensors (torch.autograd.graph.saved_tensors_hooks)": functools.partial(
            own._autograd._top_saved_tensors_default_hooks, True
        ),
        "torch's modes (TorchDispatchMode, TorchFunctionMode)": _modes,
        "autocast": lambda: tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds),
        "the cache of autocast": torch.is_autocast_cache_enabled,
        "the threads of autograd": own._is_multithreading_enabled,
        "whether views are replayed": own._is_view_replay_enabled,
    }
    return named | {f"torch._C.{name}()": getattr(own, name) for name in _plain_settings(len(kinds) > 1)}


def _modes() -> Any:
    own: Any = torch._C
    dispatched, functions = own._len_torch_dispatch_stack(), own._len_torch_function_stack()
    if not dispatched and not functions:
        return 0
    return (
        tuple(type(own._get_dispatch_stack_at(i)) for i in range(dispatched)),
        tuple(type(own._get_function_stack_at(i)) for i in range(functions)),
    )


@functools.cache
def _plain_settings(cuda: bool) -> tuple[str, ...]:
    """Return the names of the functions that get a plain value which another one sets."""
    found = []
    for name in sorted(dir(torch._C)):
        rest = name.removeprefix("_get_")
        if rest == name or name in _OTHERS or (not cuda and any(each in name for each in _OF_CUDA)):
            continue
        if not (rest.endswith("_enabled") or hasattr(torch._C, f"_set_{rest}")):
            continue
        try:
            value = getattr(torch._C, name)()
        except (TypeError, RuntimeError):
            continue  # it is about one thing that it is given
        if (
            value is None
            or isinstance(value, bool | int | str | tuple | list)
            or type(value).__name__.endswith("Backend")
        ):
            found.append(name)
    return tuple(found)


def refuse_settings() -> None:
    """Refuse to record a step under settings that plans do not support."""
    if torch.is_anomaly_enabled():
        raise InputError(
            "anomaly mode (torch.autograd.set_detect_anomaly) looks for NaN in every gradient, which a plan would not do; the step "
            "can be planned without it"
        )
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if kinds and torch.is_autocast_cache_enabled():
        # Only whoever leaves the context clears them, and nobody can ask whether that was since the last step.
        raise InputError(
            f"autocast ({kinds[0]}) is on around the step, and keeps its copies of weights from step to step until it is left; "
            "enter it inside of the step, or with cache_enabled=False"
        )
