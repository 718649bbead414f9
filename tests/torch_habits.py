"""Habits of training code that reach past tensors and operators: each returns a `Habit`, made anew from the same seed.

`DAMAGING` give tensors other memory, replace them, or keep them where nobody looks. `SPEAKING` do something to the world outside.
"""

from __future__ import annotations

import array
import builtins
import collections
import concurrent.futures
import contextvars
import copy
import ctypes
import datetime
import functools
import io
import logging
import os
import queue
import random
import sys
import tempfile
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["DAMAGING", "OPENED", "SPEAKING", "Habit"]

DAMAGING: dict[str, Callable[[], Habit]] = {}
SPEAKING: dict[str, Callable[[], Habit]] = {}


@dataclass
class Habit:
    """A step, what it trains, and what else it leaves: `seen` returns tensors and plain values."""

    step: Callable[..., Any]
    model: nn.Module
    seen: Callable[[], Any] = field(default=lambda: [])


def damaging(make: Callable[[], Habit]) -> Callable[[], Habit]:
    DAMAGING[make.__name__] = make
    return make


def speaking(make: Callable[[], Habit]) -> Callable[[], Habit]:
    SPEAKING[make.__name__] = make
    return make


def trained(
    after: Callable[..., Any] = lambda model, loss: None,
    before: Callable[..., Any] = lambda model, x: None,
    model: nn.Module | None = None,
    rule: Callable[..., Any] = torch.optim.SGD,
    seen: Callable[[], Any] = lambda: [],
) -> Habit:
    """Return an ordinary step with something before the forward pass, and something after the optimizer."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)) if model is None else model
    optimizer = rule(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        before(model, x)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        after(model, loss)
        return loss

    return Habit(step, model, lambda: [seen(), [dict(state) for state in optimizer.state.values()]])


# Memory of tensors ------------------------------------------------------------------------------------------------------


@damaging
def clipping():
    def clip(model, loss):
        for param in model.parameters():
            param.data = param.data.clamp(-0.1, 0.1)

    return trained(clip)


@damaging
def vector_to_parameters():
    def shrink(model, loss):
        vector = nn.utils.parameters_to_vector(model.parameters()) * 0.99
        nn.utils.vector_to_parameters(vector, model.parameters())

    return trained(shrink)


class SAM(torch.optim.Optimizer):
    """As on GitHub (davda54/sam): keeps copies in its state and gives them back by `.data`."""

    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, dict(rho=rho, **options))
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["old"] = param.data.clone()
                param.add_(param.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for param in group["params"]:
                param.data = self.state[param]["old"]
        self.base.step()
        self.zero_grad()


@damaging
def sharpness_aware():
    model = nn.Linear(4, 2)
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.first_step()
        model(x).square().mean().backward()
        optimizer.second_step()
        return loss

    return Habit(step, model, lambda: [dict(state) for state in optimizer.state.values()])


@damaging
def averaged_weights_swapped_in():
    average = copy.deepcopy(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))

    def swap(model, loss):
        for param, mean in zip(model.parameters(), average.parameters(), strict=True):
            param.data, mean.data = mean.data, param.data

    return trained(swap, seen=lambda: list(average.parameters()))


@damaging
def weights_lent_and_given_back():
    def look(model, x):
        kept = [param.data for param in model.parameters()]
        for param in model.parameters():
            param.data = param.data * 2
        model(x)
        for param, old in zip(model.parameters(), kept, strict=True):
            param.data = old

    return trained(before=look)


@damaging
def set_from_another():
    def change(model, loss):
        with torch.no_grad():
            for param in model.parameters():
                param.set_(param.detach() * 0.9)

    return trained(change)


@damaging
def tensors_swapped():
    def change(model, loss):
        for param in list(model.parameters()):
            new = nn.Parameter(param.detach() * 0.9)
            new.grad = None
            param.grad = None
            torch.utils.swap_tensors(param, new)

    return trained(change)


@damaging
def data_in_a_gradient_hook():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))

    def shrink(param):
        param.data = param.data * 0.99

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(shrink)
    return trained(model=model)


@damaging
def memory_resized():
    def change(model, loss):
        storage = model[0].weight.untyped_storage()
        storage.resize_(storage.nbytes())

    return trained(change)


@damaging
def memory_filled():
    return trained(lambda model, loss: model[0].bias.untyped_storage().fill_(0))


@damaging
def weights_as_an_array():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    view = model[0].weight.detach().numpy()

    def change(model, loss):
        np.multiply(view, 0.9, out=view)

    return trained(change, model=model)


@damaging
def moved_to_another_dtype():
    model = nn.Linear(4, 2)

    def step(x):
        loss = model.double()(x.double()).square().mean()
        model.float()
        return loss

    return Habit(step, model)


@damaging
def a_state_dict_loaded():
    model = nn.Linear(4, 2)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    return trained(lambda model, loss: model.load_state_dict(kept), model=model)


@damaging
def a_state_dict_assigned():
    model = nn.Linear(4, 2)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    return trained(lambda model, loss: model.load_state_dict(kept, assign=True), model=model)


@damaging
def optimizer_state_loaded():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    kept = copy.deepcopy(optimizer.state_dict())

    def step(x):
        optimizer.load_state_dict(kept)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return Habit(step, model, lambda: [dict(state) for state in optimizer.state.values()])


@damaging
def optimizer_state_cleared_without_a_step():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()

    def step(x):
        optimizer.state.clear()
        return model(x).square().mean()

    return Habit(step, model, lambda: len(optimizer.state))


@damaging
def tensors_in_the_state_of_an_optimizer_that_never_steps():
    model = nn.Linear(4, 2)
    other = torch.optim.SGD(model.parameters(), lr=0.1)

    def keep(model, loss):
        other.state[model.weight]["seen"] = model.weight.detach() + 0

    return trained(keep, model=model, seen=lambda: [dict(state) for state in other.state.values()])


# Modules ----------------------------------------------------------------------------------------------------------------


@damaging
def a_module_copied():
    copies = []

    def keep(model, loss):
        copies[:] = [copy.deepcopy(model)]

    return trained(keep, seen=lambda: [param for model in copies for param in model.parameters()])


@damaging
def a_copy_thrown_away():
    return trained(lambda model, loss: copy.deepcopy(model)(torch.ones(1, 4)))


@damaging
def weight_norm():
    return trained(model=nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))))


@damaging
def weight_norm_by_hooks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trained(model=nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 2))))


@damaging
def spectral_norm():
    return trained(model=nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))))


@damaging
def spectral_norm_by_hooks():
    return trained(model=nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 2))))


@damaging
def a_parametrization_put_on_inside():
    class Half(nn.Module):
        def forward(self, x):
            return x / 2

    def change(model, loss):
        nn.utils.parametrize.register_parametrization(model[0], "bias", Half())
        nn.utils.parametrize.remove_parametrizations(model[0], "bias")

    return trained(change)


@damaging
def batch_norm():
    return trained(model=nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)))


class Holding(nn.Module):
    """A module that keeps something of every forward pass, as `keep` does."""

    def __init__(self, keep):
        super().__init__()
        self.inner, self.keep, self.last = nn.Linear(4, 2), keep, None
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x):
        out = self.inner(x)
        self.keep(self, out)
        return out


@damaging
def a_buffer_assigned():
    def keep(module, out):
        module.mean = 0.9 * module.mean + 0.1 * out.detach().mean(0)

    return trained(model=Holding(keep))


@damaging
def an_activation_in_an_attribute():
    def keep(module, out):
        module.last = out.detach()

    model = Holding(keep)
    return trained(model=model, seen=lambda: model.last)


@damaging
def an_activation_by_a_hook():
    model, seen = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), {}
    model[0].register_forward_hook(lambda module, args, out: seen.__setitem__("out", out.detach()))
    return trained(model=model, seen=lambda: dict(seen))


@damaging
def a_cache_made_once():
    def keep(module, out):
        if module.last is None:
            module.last = torch.arange(2.0)
        out.add(module.last)

    return trained(model=Holding(keep))


@damaging
def a_module_replaced():
    def change(model, loss):
        layer = nn.Linear(3, 2)
        with torch.no_grad():
            layer.weight.fill_(0.1)
            layer.bias.fill_(0.1)
        model[2] = layer

    return trained(change)


@damaging
def a_parameter_replaced():
    def change(model, loss):
        model[0].bias = nn.Parameter(model[0].bias.detach() * 0.5)

    return trained(change)


@damaging
def lazy_layers():
    model = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return Habit(step, model)


@damaging
def gradients_frozen_and_freed():
    def change(model, x):
        model[0].requires_grad_(False)
        model(x)
        model[0].requires_grad_(True)

    return trained(before=change)


@damaging
def a_layer_frozen_inside():
    return trained(lambda model, loss: model[0].requires_grad_(False))


@damaging
def a_hook_put_on_inside():
    def change(model, x):
        handle = model[0].weight.register_hook(lambda grad: grad * 0.5)
        model(x)
        handle.remove()

    return trained(before=change)


@damaging
def a_hook_left_on():
    def change(model, x):
        if not model[0].weight._backward_hooks:
            model[0].weight.register_hook(lambda grad: grad * 0.5)

    return trained(before=change)


@damaging
def gradients_of_an_unused_parameter_cleared():
    model = nn.ModuleDict({"used": nn.Linear(4, 2), "unused": nn.Linear(4, 2)})
    model["unused"].weight.grad = torch.ones(2, 4)

    def step(x):
        for param in model.parameters():
            param.grad = None
        loss = model["used"](x).square().mean()
        loss.backward()
        return loss

    return Habit(step, model)


# Places where nobody looks ------------------------------------------------------------------------------------------------


@damaging
def a_cached_function():
    @functools.lru_cache(8)
    def mask(size):
        return torch.ones(size, 2).tril()

    mask(7)
    model = nn.Linear(4, 2)

    def step(x):
        return (model(x) * mask(len(x))).square().mean()

    return Habit(step, model, lambda: mask(3))


@damaging
def a_cache_without_bounds():
    @functools.cache
    def mask(size):
        return torch.ones(size, 2).tril()

    model = nn.Linear(4, 2)

    def step(x):
        return (model(x) * mask(len(x))).square().mean()

    return Habit(step, model, lambda: mask(3))


KEPT: dict[str, Any] = {}


@damaging
def a_list_in_sys_modules():
    module = types.ModuleType("kept_by_habit")
    module.losses = []
    sys.modules["kept_by_habit"] = module
    return trained(
        lambda model, loss: sys.modules["kept_by_habit"].losses.append(loss.detach()), seen=lambda: module.losses
    )


@damaging
def a_dict_found_by_name():
    KEPT.clear()
    return trained(
        lambda model, loss: globals()["KE" + "PT"].__setitem__("loss", loss.detach()), seen=lambda: dict(KEPT)
    )


@damaging
def an_attribute_of_a_thread():
    local = threading.local()
    local.losses = []
    return trained(lambda model, loss: setattr(local, "last", loss.detach()), seen=lambda: getattr(local, "last", None))


@damaging
def an_attribute_of_a_function():
    def log():
        return None

    return trained(lambda model, loss: setattr(log, "last", loss.detach()), seen=lambda: getattr(log, "last", None))


@damaging
def an_attribute_of_an_imported_module():
    def keep(model, loss):
        os.last_loss_of_habit = loss.detach()

    return trained(keep, seen=lambda: os.__dict__.pop("last_loss_of_habit", None))


@damaging
def a_weak_dict():
    class Key:
        pass

    key, kept = Key(), weakref.WeakKeyDictionary()
    return trained(lambda model, loss: kept.__setitem__(key, loss.detach()), seen=lambda: list(kept.values()))


@damaging
def a_context_variable():
    last = contextvars.ContextVar("last", default=None)
    return trained(lambda model, loss: last.set(loss.detach()), seen=last.get)


@damaging
def a_user_list():
    kept = collections.UserList()
    return trained(lambda model, loss: kept.append(loss.detach()), seen=lambda: list(kept))


@damaging
def a_deque():
    kept = collections.deque(maxlen=3)
    return trained(lambda model, loss: kept.append(loss.detach()), seen=lambda: list(kept))


@damaging
def a_tuple_in_a_list():
    kept = []
    return trained(lambda model, loss: kept.append((len(kept), {"loss": loss.detach()})), seen=lambda: list(kept))


@damaging
def a_generator_that_keeps():
    kept = []

    def keeper():
        while True:
            kept.append((yield))

    sink = keeper()
    next(sink)
    return trained(lambda model, loss: sink.send(loss.detach()), seen=lambda: list(kept))


@damaging
def an_ordered_dict():
    kept = collections.OrderedDict(a=1, b=2)
    return trained(lambda model, loss: kept.move_to_end("a"), seen=lambda: list(kept.items()))


@damaging
def an_ordered_dict_in_a_generator():
    kept = collections.OrderedDict(a=1, b=2)

    def mover():
        while True:
            yield
            kept.update(c=3)
            kept.move_to_end("a")

    sink = mover()
    next(sink)
    return trained(lambda model, loss: next(sink), seen=lambda: list(kept.items()))


@damaging
def a_set_of_ids():
    kept = set()
    return trained(lambda model, loss: kept.add(len(kept)), seen=lambda: sorted(kept))


@damaging
def a_closure_reassigned():
    last = None

    def keep(model, loss):
        nonlocal last
        last = loss.detach()

    return trained(keep, seen=lambda: last)


@damaging
def an_array_of_numbers():
    kept = array.array("d", [0.0])
    return trained(lambda model, loss: kept.append(1.0), seen=lambda: kept.tolist())


@damaging
def an_array_of_bytes():
    kept = bytearray(b"a")
    return trained(lambda model, loss: kept.append(1), seen=lambda: bytes(kept))


@damaging
def a_view_of_memory():
    kept = memoryview(bytearray(8)).cast("i")[::-1]

    def count(model, loss):
        kept[1] += 1

    return trained(count, seen=kept.tolist)


@damaging
def an_array_of_c():
    kept = (ctypes.c_int * 3)()

    def count(model, loss):
        kept[1] += 1

    return trained(count, seen=lambda: list(kept))


@damaging
def an_error_in_the_middle():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    kept = []

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        kept.append(loss.detach())
        optimizer.step()
        try:
            return loss if len(x) else None
        finally:
            if loss.device.type == "cpu" and type(loss) is not torch.Tensor:
                raise RuntimeError("only while it is recorded", loss)

    return Habit(step, model, lambda: list(kept))


@damaging
def an_error_that_is_caught():
    return trained(lambda model, loss: _try(lambda: float(loss.detach())))  # torch warns of others, once


def _try(function):
    try:
        return function()
    except Exception:
        return None


# The world outside ------------------------------------------------------------------------------------------------------

WORLD: dict[str, Any] = {}
OPENED: list[Any] = []  # files that steps write to: whoever runs habits closes them


def said(name: str, act: Callable[[Any], Any], seen: Callable[[], Any] = lambda: []) -> None:
    SPEAKING[name] = lambda: trained(lambda model, loss: act(loss), seen=seen)


class Handler(logging.Handler):
    def emit(self, record):
        WORLD.setdefault("records", []).append((record.getMessage(), record.args))


logger = logging.getLogger("habits")
logger.propagate = False
logger.addHandler(Handler())
logger.setLevel("INFO")


@speaking
def a_queue():
    kept = queue.Queue()

    def drained():
        return [kept.get() for _ in range(kept.qsize())]

    return trained(lambda model, loss: kept.put(loss.detach()), seen=drained)


@speaking
def a_simple_queue():
    kept = queue.SimpleQueue()

    def drained():
        return [kept.get() for _ in range(kept.qsize())]

    return trained(lambda model, loss: kept.put(loss.detach()), seen=drained)


@speaking
def a_priority_queue():
    kept = queue.PriorityQueue()

    def drained():
        return [kept.get()[1] for _ in range(kept.qsize())]

    return trained(lambda model, loss: kept.put((kept.qsize(), loss.detach())), seen=drained)


@speaking
def a_file():
    path = Path(tempfile.mkdtemp()) / "losses.txt"

    def write(model, loss):
        with path.open("a") as file:
            file.write("step\n")

    return trained(write, seen=lambda: path.read_text() if path.exists() else "")


@speaking
def an_open_file():
    path = Path(tempfile.mkdtemp()) / "losses.txt"
    file = path.open("a", buffering=1)
    OPENED.append(file)
    return trained(lambda model, loss: file.write("step\n"), seen=lambda: path.read_text())


@speaking
def text_in_memory():
    text = io.StringIO()
    return trained(lambda model, loss: text.write("step "), seen=text.getvalue)


@speaking
def a_checkpoint():
    path = Path(tempfile.mkdtemp()) / "model.pt"
    return trained(lambda model, loss: torch.save(model.state_dict(), path), seen=lambda: path.exists())


@speaking
def a_thread():
    kept = []

    def start(model, loss):
        thread = threading.Thread(target=kept.append, args=(1,))
        thread.start()
        thread.join()

    return trained(start, seen=lambda: list(kept))


@speaking
def a_pool_of_threads():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    kept = []
    return trained(lambda model, loss: pool.submit(kept.append, 1).result(), seen=lambda: list(kept))


@speaking
def caught_and_told():
    def tell(model, loss):
        try:
            print("loss", loss.detach())
        except Exception:
            print("no loss")

    return trained(tell)


@speaking
def a_branch_on_a_file():
    path = Path(tempfile.mkdtemp()) / "stop"
    return trained(lambda model, loss: path.exists())


said("print", lambda loss: print("loss", loss.detach()))
said("print_a_number", lambda loss: print("a step"))
said("stdout", lambda loss: sys.stdout.write("a step\n"))
said("stderr", lambda loss: sys.stderr.write("a step\n"))
said("logging", lambda loss: logger.info("loss %s", loss.detach()), lambda: len(WORLD.get("records", [])))
said("logging_text", lambda loss: logger.info("a step"), lambda: len(WORLD.get("records", [])))
said("a_warning", lambda loss: warnings.warn("a step", stacklevel=1))
said("the_clock", lambda loss: time.perf_counter())
said("the_date", lambda loss: datetime.datetime.now())
said("a_pause", lambda loss: time.sleep(0))
said("an_environment_variable", lambda loss: os.environ.__setitem__("HABITS", "1"))
said("a_folder_made", lambda loss: os.makedirs(os.path.join(tempfile.gettempdir(), "habits"), exist_ok=True))
said("random_bytes", lambda loss: os.urandom(4))
said("python_random", lambda loss: random.random())
said("numpy_random", lambda loss: np.random.rand())
said("builtins_print_by_another_name", lambda loss: builtins.__dict__["print"]("a step"))
said("a_generator_seeded", lambda loss: torch._C.default_generator.manual_seed(5))
said("a_command", lambda loss: os.system("true"))
said("memory_of_c", lambda loss: ctypes.memset(ctypes.create_string_buffer(4), 0, 4))
