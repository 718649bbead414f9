"""Changes that people make between two training steps: each is a thing that the step reads, how, and what happens to it."""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import ctypes
import dataclasses
import functools
import math
import operator
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_pre_hook

__all__ = ["MUTATIONS", "ORDINARY", "Mutation", "Scene"]


class Scene:
    """What a step is made of: a model, an optimizer, whatever it reads, and how to undo what a change did."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = Layer(6, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.thing: Any = None
        self.undo: list[Callable[[], Any]] = []

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the scene is over."""
        had, before = name in vars(owner), vars(owner).get(name)
        setattr(owner, name, value)
        self.undo.append(lambda: setattr(owner, name, before) if had else delattr(owner, name))


@dataclasses.dataclass
class Mutation:
    make: Callable[[Scene], Any]
    read: Callable[[Scene], float]  # a factor of the loss
    change: Callable[[Scene], Any]


class Layer(nn.Linear):
    merged = False

    def forward(self, x):
        return super().forward(x) * (2 if self.merged else 1)


MUTATIONS: dict[str, Mutation] = {}


def add(name: str, make: Callable[[Scene], Any], read: Callable[..., float], change: Callable[..., Any]) -> None:
    """Add a change of a thing: `make(scene)`, then `read(thing)` in the step and `change(thing)` between steps."""
    MUTATIONS[name] = Mutation(make, lambda s: read(s.thing), lambda s: change(s.thing))


def add_scene(name: str, change: Callable[[Scene], Any], read: Callable[[Scene], float] = lambda s: 1.0) -> None:
    """Add a change of the model, the optimizer, torch or Python itself."""
    MUTATIONS[name] = Mutation(lambda s: None, read, change)


# Mappings ---------------------------------------------------------------------------------------------------------------


class OwnDict(dict):
    pass


class Defaulting(dict):
    def __missing__(self, key):
        return 1.0


MAPPINGS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"a": 1.0, "b": 2.0},
    "ordered dict": lambda: collections.OrderedDict(a=1.0, b=2.0),
    "default dict": lambda: collections.defaultdict(float, a=1.0, b=2.0),
    "counter": lambda: collections.Counter(a=1, b=2),
    "own dict": lambda: OwnDict(a=1.0, b=2.0),
    "dict with __missing__": lambda: Defaulting(a=1.0, b=2.0),
    "UserDict": lambda: collections.UserDict(a=1.0, b=2.0),
    "ChainMap": lambda: collections.ChainMap({}, {"a": 1.0, "b": 2.0}),
    "attributes of a namespace": lambda: vars(types.SimpleNamespace(a=1.0, b=2.0)),
}


def _replace_first(mapping: Any) -> None:
    kept = dict(mapping)
    mapping.clear()
    mapping.update(dict(reversed(kept.items())))


MAPPING_CHANGES: dict[str, tuple[Callable[[Any], float], Callable[[Any], Any]]] = {
    "value": (lambda m: float(m["a"]), lambda m: operator.setitem(m, "a", 3)),
    "added, get": (lambda m: float(m.get("w", 1.0)), lambda m: operator.setitem(m, "w", 3)),
    "added, in": (lambda m: 3.0 if "w" in m else 1.0, lambda m: operator.setitem(m, "w", 0)),
    "added, len": (lambda m: float(len(m)), lambda m: operator.setitem(m, "w", 0)),
    "swapped keys": (
        lambda m: 3.0 if "w" in m else 1.0,
        lambda m: (operator.setitem(m, "w", 2.0), m.pop("b") if "b" in getattr(m, "maps", [m])[0] else None),
    ),
    "order": (lambda m: float(next(iter(m.values()))), _replace_first),
    "emptied": (lambda m: 3.0 if not m else 1.0, lambda m: m.clear() if not hasattr(m, "maps") else m.maps[1].clear()),
}
for kind, make in MAPPINGS.items():
    for what, (read, change) in MAPPING_CHANGES.items():
        if not (kind == "ChainMap" and what == "order"):
            add(f"{kind}: {what}", lambda s, make=make: make(), read, change)
add("dict: true for one", lambda s: {"a": 1}, lambda m: 2.0 if m["a"] is True else 1.0, lambda m: m.update(a=True))
add(
    "dict: type of a value",
    lambda s: {"a": 2},
    lambda m: 7 / m["a"] if isinstance(m["a"], int) else 1.0,
    lambda m: m.update(a=2.0),
)
add(
    "dict of dicts", lambda s: {"a": {"b": {"c": 1.0}}}, lambda m: m["a"]["b"]["c"], lambda m: m["a"]["b"].update(c=2.0)
)
add(
    "mapping proxy",
    lambda s: (d := {"a": 1.0}, types.MappingProxyType(d)),
    lambda m: m[1]["a"],
    lambda m: m[0].update(a=2.0),
)
add("view of values", lambda s: (d := {"a": 1.0}, d.values()), lambda m: sum(m[1]), lambda m: m[0].update(b=1.0))
add(
    "ordered dict: moved to its end",
    lambda s: collections.OrderedDict(a=1.0, b=2.0),
    lambda m: next(iter(m.values())),
    lambda m: m.move_to_end("a"),
)

# Sequences and sets ------------------------------------------------------------------------------------------------------

SEQUENCES: dict[str, Callable[[], Any]] = {
    "list": lambda: [1.0, 2.0],
    "deque": lambda: collections.deque([1.0, 2.0]),
    "UserList": lambda: collections.UserList([1.0, 2.0]),
    "array": lambda: array.array("d", [1.0, 2.0]),
}
SEQUENCE_CHANGES: dict[str, tuple[Callable[[Any], float], Callable[[Any], Any]]] = {
    "item": (lambda c: c[0], lambda c: operator.setitem(c, 0, 3.0)),
    "appended": (lambda c: float(len(c)), lambda c: c.append(1.0)),
    "popped": (lambda c: float(len(c)), lambda c: c.pop()),
    "reversed": (lambda c: c[0], lambda c: c.reverse()),
    "sum": (lambda c: sum(c), lambda c: c.extend([1.0, 1.0])),
}
for kind, make in SEQUENCES.items():
    for what, (read, change) in SEQUENCE_CHANGES.items():
        add(f"{kind}: {what}", lambda s, make=make: make(), read, change)
add("set: swapped", lambda s: {"a"}, lambda c: 2.0 if "b" in c else 1.0, lambda c: (c.remove("a"), c.add("b")))
add("set: added", lambda s: {1}, lambda c: float(len(c)), lambda c: c.add(2))
add("set: emptied", lambda s: {1}, lambda c: 2.0 if c else 1.0, lambda c: c.clear())
add("set in a frozen dict value", lambda s: {"k": {1, 2}}, lambda c: float(max(c["k"])), lambda c: c["k"].add(3))
add("bytearray", lambda s: bytearray(b"\x01"), lambda c: float(c[0]), lambda c: operator.setitem(c, 0, 2))
add("memoryview", lambda s: memoryview(bytearray(b"\x01")), lambda c: float(c[0]), lambda c: operator.setitem(c, 0, 2))
add("numpy array", lambda s: np.ones(2), lambda c: float(c[0]), lambda c: operator.setitem(c, 0, 2.0))
add(
    "numpy array of objects",
    lambda s: np.array([1.0, "x"], dtype=object),
    lambda c: c[0],
    lambda c: operator.setitem(c, 0, 2.0),
)
add("ctypes number", lambda s: ctypes.c_double(1.0), lambda c: c.value, lambda c: setattr(c, "value", 2.0))
add("ctypes array", lambda s: (ctypes.c_int * 2)(1, 2), lambda c: float(c[0]), lambda c: operator.setitem(c, 0, 2))
add(
    "bound append",
    lambda s: (items := [1.0], items.append),
    lambda c: float(len(c[1].__self__)),
    lambda c: c[0].append(1.0),
)

# Objects ------------------------------------------------------------------------------------------------------------------


class Config:
    w = 1.0

    def __init__(self) -> None:
        self.inner = types.SimpleNamespace(w=1.0)


class Slotted:
    __slots__ = ("v", "w")

    def __init__(self) -> None:
        self.w = 1.0


@dataclasses.dataclass
class Data:
    w: float = 1.0


class Local(threading.local):
    w = 1.0


class WithProperty:
    _w = 1.0

    @property
    def w(self):
        return self._w


class Dynamic:
    def __init__(self) -> None:
        self.values = {"w": 1.0}

    def __getattr__(self, name):
        return self.__dict__["values"][name]


OBJECTS: dict[str, Callable[[], Any]] = {
    "object": Config, "slots": Slotted, "data class": Data, "namespace": lambda: types.SimpleNamespace(w=1.0),
    "thread local": Local, "module": lambda: _with_w(nn.Identity()), "function": lambda: _with_w(lambda: None),
}  # fmt: skip


def _with_w(owner: Any) -> Any:
    owner.w = 1.0
    return owner


for kind, make in OBJECTS.items():
    add(f"{kind}: attribute", lambda s, make=make: make(), lambda c: c.w, lambda c: setattr(c, "w", 2.0))
    add(
        f"{kind}: getattr, added",
        lambda s, make=make: make(),
        lambda c: getattr(c, "v", 1.0),
        lambda c: setattr(c, "v", 2.0),
    )
    add(
        f"{kind}: hasattr, added",
        lambda s, make=make: make(),
        lambda c: 2.0 if hasattr(c, "v") else 1.0,
        lambda c: setattr(c, "v", 0),
    )
    add(
        f"{kind}: a computed name",
        lambda s, make=make: make(),
        lambda c: getattr(c, "".join(["", "w"])),
        lambda c: setattr(c, "w", 2.0),
    )
    add(
        f"{kind}: attrgetter",
        lambda s, make=make: make(),
        lambda c: operator.attrgetter("w")(c),
        lambda c: setattr(c, "w", 2.0),
    )
add(
    "namespace: deleted",
    lambda s: types.SimpleNamespace(w=2.0),
    lambda c: getattr(c, "w", 1.0),
    lambda c: delattr(c, "w"),
)
add("object: over its class", lambda s: Config(), lambda c: c.w, lambda c: setattr(c, "w", 2.0))
add("object: inside", lambda s: Config(), lambda c: c.inner.w, lambda c: setattr(c.inner, "w", 2.0))
add(
    "object: inside, replaced",
    lambda s: Config(),
    lambda c: c.inner.w,
    lambda c: setattr(c, "inner", types.SimpleNamespace(w=2.0)),
)
add("object: vars", lambda s: Config(), lambda c: float(len(vars(c))), lambda c: setattr(c, "other", 2.0))
add("object: __dict__", lambda s: Config(), lambda c: c.__dict__.get("k", 1.0), lambda c: c.__dict__.update(k=2.0))
add("object: try, except", lambda s: Config(), lambda c: _tried(c), lambda c: setattr(c, "v", 2.0))
add(
    "object: reduce(getattr)",
    lambda s: Config(),
    lambda c: functools.reduce(getattr, ["inner", "w"], c),
    lambda c: setattr(c.inner, "w", 2.0),
)
add("slots: empty one", lambda s: Slotted(), lambda c: getattr(c, "v", 1.0), lambda c: setattr(c, "v", 2.0))
add("property over an attribute", lambda s: WithProperty(), lambda c: c.w, lambda c: setattr(c, "_w", 2.0))
add("__getattr__ over a dict", lambda s: Dynamic(), lambda c: c.w, lambda c: c.values.update(w=2.0))
add("weak reference", lambda s: (k := Config(), weakref.ref(k)), lambda c: c[1]().w, lambda c: setattr(c[0], "w", 2.0))
add("weak proxy", lambda s: (k := Config(), weakref.proxy(k)), lambda c: c[1].w, lambda c: setattr(c[0], "w", 2.0))
add(
    "weak values",
    lambda s: (k := Config(), weakref.WeakValueDictionary(k=k)),
    lambda c: c[1]["k"].w,
    lambda c: setattr(c[0], "w", 2.0),
)
add(
    "weak keys",
    lambda s: (k := Config(), weakref.WeakKeyDictionary({k: 1.0})),
    lambda c: c[1][c[0]],
    lambda c: operator.setitem(c[1], c[0], 2.0),
)
add(
    "weak set",
    lambda s: (k := Config(), Config(), weakref.WeakSet([k])),
    lambda c: float(len(c[2])),
    lambda c: c[2].add(c[1]),
)
add("context variable", lambda s: _context(s), lambda c: c.get(), lambda c: c.set(2.0))
add(
    "context variable without a value",
    lambda s: contextvars.ContextVar("v"),
    lambda c: c.get(1.0),
    lambda c: c.set(2.0),
)
add("partial", lambda s: functools.partial(lambda w: w, w=1.0), lambda c: c(), lambda c: c.keywords.update(w=2.0))


def _tried(owner: Any) -> float:
    try:
        return owner.v
    except AttributeError:
        return 1.0


def _context(scene: Scene) -> contextvars.ContextVar[float]:
    variable: contextvars.ContextVar[float] = contextvars.ContextVar("w")
    variable.set(1.0)
    return variable


# Functions and classes ----------------------------------------------------------------------------------------------------


def default(w=1.0):
    return w


def keyword_default(*, w=1.0):
    return w


def plain():
    return 1.0


def doubled():
    return 2.0


NUMBER = 1.0
HERE = sys.modules[__name__]
lazy = types.ModuleType("lazy_settings")
sys.modules["lazy_settings"] = lazy
lazy.w = 1.0
lazy.__file__ = "lazy_settings.py"


def imported() -> float:
    import lazy_settings

    return lazy_settings.w


def imported_name() -> float:
    from lazy_settings import w

    return w


def fresh_class() -> type:
    class Base:
        w = 1.0

        def value(self):
            return 1.0

        @staticmethod
        def fixed():
            return 1.0

        @classmethod
        def of(cls):
            return cls.w

    class Kind(Base):
        pass

    return Kind


class Other:
    w = 2.0

    def value(self):
        return 2.0


def objects(scene: Scene) -> Any:
    return fresh_class()()


add(
    "function: defaults",
    lambda s: types.FunctionType(default.__code__, globals(), argdefs=(1.0,)),
    lambda c: c(),
    lambda c: setattr(c, "__defaults__", (2.0,)),
)
add(
    "function: code",
    lambda s: types.FunctionType(plain.__code__, globals()),
    lambda c: c(),
    lambda c: setattr(c, "__code__", doubled.__code__),
)
add_scene(
    "function: keyword defaults",
    lambda s: (
        s.undo.append(lambda: keyword_default.__kwdefaults__.update(w=1.0)),
        keyword_default.__kwdefaults__.update(w=2.0),
    ),
    lambda s: keyword_default(),
)
add_scene("global: a number", lambda s: s.patch(HERE, "NUMBER", 2.0), lambda s: NUMBER)
add_scene("global: a function", lambda s: s.patch(HERE, "plain", doubled), lambda s: plain())
add_scene("global: over a builtin", lambda s: s.patch(HERE, "abs", lambda x: 2.0), lambda s: abs(-1.0))
add_scene("global: asked for by name", lambda s: s.patch(HERE, "LATER", 2.0), lambda s: globals().get("LATER", 1.0))
add_scene("builtins: a function", lambda s: s.patch(builtins, "abs", lambda x: 2.0), lambda s: abs(-1.0))
add_scene("module imported inside", lambda s: s.patch(lazy, "w", 2.0), lambda s: imported())
add_scene("name imported inside", lambda s: s.patch(lazy, "w", 2.0), lambda s: imported_name())
add_scene("module attribute added", lambda s: s.patch(lazy, "v", 2.0), lambda s: getattr(lazy, "v", 1.0))
add_scene("math.sqrt", lambda s: s.patch(math, "sqrt", lambda x: 2.0), lambda s: math.sqrt(1.0))
add_scene("math.pi", lambda s: s.patch(math, "pi", 3.0), lambda s: math.pi)
add_scene("environment, []", lambda s: _environment(s), lambda s: float(os.environ.get("PEBBLER_W", "1")))
add_scene("environment, getenv", lambda s: _environment(s), lambda s: float(os.getenv("PEBBLER_W", "1")))
add("closure", lambda s: _counter(), lambda c: c[0](), lambda c: c[1](2.0))
add("method on its class", objects, lambda c: c.value(), lambda c: setattr(type(c), "value", lambda self: 2.0))
add("method on a base", objects, lambda c: c.value(), lambda c: setattr(type(c).__mro__[1], "value", lambda self: 2.0))
add("method on an instance", objects, lambda c: c.value(), lambda c: setattr(c, "value", lambda: 2.0))
add("static method", objects, lambda c: c.fixed(), lambda c: setattr(type(c), "fixed", staticmethod(lambda: 2.0)))
add("class method", objects, lambda c: c.of(), lambda c: setattr(type(c), "of", classmethod(lambda cls: 2.0)))
add("attribute of a class", objects, lambda c: c.w, lambda c: setattr(type(c), "w", 2.0))
add("attribute of a base", objects, lambda c: c.w, lambda c: setattr(type(c).__mro__[1], "w", 2.0))
add("attribute of a class, asked", objects, lambda c: getattr(c, "v", 1.0), lambda c: setattr(type(c), "v", 2.0))
add(
    "property over an attribute of a class",
    objects,
    lambda c: c.w,
    lambda c: setattr(type(c), "w", property(lambda self: 2.0)),
)
add(
    "__class__",
    objects,
    lambda c: c.value(),
    lambda c: setattr(c, "__class__", type("Kin", (type(c),), {"value": lambda self: 2.0})),
)
add("__bases__", objects, lambda c: c.value(), lambda c: setattr(type(c), "__bases__", (Other,)))
add(
    "__getattr__ added",
    lambda s: objects(s),
    lambda c: getattr(c, "v", 1.0),
    lambda c: setattr(type(c), "__getattr__", lambda self, name: 2.0),
)
add(
    "__len__ replaced",
    lambda s: type("Sized", (), {"__len__": lambda self: 1})(),
    lambda c: float(len(c)),
    lambda c: setattr(type(c), "__len__", lambda self: 2),
)
add(
    "__call__ replaced",
    lambda s: type("Called", (), {"__call__": lambda self: 1.0})(),
    lambda c: c(),
    lambda c: setattr(type(c), "__call__", lambda self: 2.0),
)
add("class used as a namespace", lambda s: fresh_class(), lambda c: c.w, lambda c: setattr(c, "w", 2.0))
add("list of functions", lambda s: [plain], lambda c: c[0](), lambda c: operator.setitem(c, 0, doubled))


def _environment(scene: Scene) -> None:
    os.environ["PEBBLER_W"] = "2"
    scene.undo.append(lambda: os.environ.pop("PEBBLER_W"))


def _counter() -> tuple[Callable[[], float], Callable[[float], None]]:
    w = 1.0

    def get() -> float:
        return w

    def put(value: float) -> None:
        nonlocal w
        w = value

    return get, put


# The model and torch ------------------------------------------------------------------------------------------------------


def _twice(module: nn.Module, *rest: Any) -> Any:
    return rest[-1] * 2


def _enter(scene: Scene, context: Any) -> None:
    context.__enter__()
    scene.undo.append(lambda: context.__exit__(None, None, None))


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is functional.mse_loss else result


class Rounded(nn.Module):
    def forward(self, weight):
        return weight.round(decimals=1)


class Kin(Layer):
    def forward(self, x):
        return functional.linear(x, self.weight, self.bias) * 3


def _half(optimizer: Any, *rest: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(0.5)


def _hook(scene: Scene, register: Callable[..., Any], *args: Any, **options: Any) -> None:
    scene.undo.append(register(*args, **options).remove)


def _rounding_hooks() -> Any:
    return torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.bfloat16() if t.dtype == torch.float32 else t,
        lambda t: t.float() if t.dtype == torch.bfloat16 else t,
    )


add_scene("model: flag of its class", lambda s: setattr(s.model, "merged", True))
add_scene("model: attribute added", lambda s: setattr(s.model, "w", 2.0), lambda s: getattr(s.model, "w", 1.0))
add_scene(
    "model: forward on the instance",
    lambda s: setattr(s.model, "forward", lambda x: functional.linear(x, s.model.weight) * 2),
)
add_scene(
    "model: forward on its class",
    lambda s: s.patch(Layer, "forward", lambda self, x: functional.linear(x, self.weight) * 2),
)
add_scene(
    "model: forward of torch's class",
    lambda s: s.patch(nn.Linear, "forward", lambda self, x: functional.linear(x, self.weight) * 2),
)
add_scene(
    "model: __call__ of torch's class", lambda s: s.patch(nn.Module, "__call__", lambda self, x: self.forward(x) * 2)
)
add_scene("model: another class", lambda s: setattr(s.model, "__class__", Kin))
add_scene("model: forward hook", lambda s: _hook(s, s.model.register_forward_hook, _twice))
add_scene("model: forward pre-hook", lambda s: _hook(s, s.model.register_forward_pre_hook, lambda m, x: (x[0] * 2,)))
add_scene("model: backward hook", lambda s: _hook(s, s.model.register_full_backward_hook, lambda m, i, o: None))
add_scene("model: hooks of all modules", lambda s: _hook(s, nn.modules.module.register_module_forward_hook, _twice))
add_scene("model: eval", lambda s: s.model.eval(), lambda s: 1.0 if s.model.training else 2.0)
add_scene("model: bias gone", lambda s: setattr(s.model, "bias", None))
add_scene("model: weight replaced", lambda s: setattr(s.model, "weight", nn.Parameter(torch.ones(4, 6))))
add_scene("model: weight set by data", lambda s: setattr(s.model.weight, "data", torch.ones(4, 6)))
add_scene("model: weight as another type", lambda s: s.model.double())
add_scene("model: frozen", lambda s: s.model.weight.requires_grad_(False))
add_scene(
    "model: parametrized",
    lambda s: nn.utils.parametrize.register_parametrization(s.model, "weight", Rounded(), unsafe=True),
)
add_scene(
    "model: a buffer",
    lambda s: s.model.register_buffer("w", torch.tensor(2.0)),
    lambda s: 2.0 if len(list(s.model.buffers())) else 1.0,
)
add_scene("parameter: hook", lambda s: _hook(s, s.model.weight.register_hook, lambda g: g * 2))
add_scene(
    "parameter: hook after accumulating",
    lambda s: _hook(s, s.model.weight.register_post_accumulate_grad_hook, lambda p: p.grad.mul_(2)),
)
add_scene(
    "parameter: attribute added",
    lambda s: setattr(s.model.weight, "w", 2.0),
    lambda s: getattr(s.model.weight, "w", 1.0),
)
add_scene("optimizer: rate", lambda s: s.optimizer.param_groups[0].update(lr=0.3))
add_scene("optimizer: momentum", lambda s: s.optimizer.param_groups[0].update(momentum=0.5))
add_scene("optimizer: nesterov and momentum", lambda s: s.optimizer.param_groups[0].update(momentum=0.5, nesterov=True))
add_scene("optimizer: maximize", lambda s: s.optimizer.param_groups[0].update(maximize=True))
add_scene("optimizer: fewer parameters", lambda s: s.optimizer.param_groups[0]["params"].pop())
add_scene("optimizer: its step", lambda s: setattr(s.optimizer, "step", lambda: None))
add_scene(
    "optimizer: the step of its class", lambda s: s.patch(torch.optim.SGD, "step", lambda self, closure=None: None)
)
add_scene(
    "optimizer: the function behind it", lambda s: s.patch(sys.modules["torch.optim.sgd"], "sgd", lambda *a, **k: None)
)
add_scene("optimizer: zero_grad", lambda s: setattr(s.optimizer, "zero_grad", lambda: None))
add_scene("optimizer: pre-hook", lambda s: _hook(s, s.optimizer.register_step_pre_hook, _half))
add_scene("optimizer: hook of all", lambda s: _hook(s, register_optimizer_step_pre_hook, _half))
add_scene("optimizer: loaded state", lambda s: s.optimizer.load_state_dict(s.optimizer.state_dict()))
add_scene(
    "torch: default dtype",
    lambda s: (torch.set_default_dtype(torch.float64), s.undo.append(lambda: torch.set_default_dtype(torch.float32))),
    lambda s: float(torch.ones(1).element_size()),
)
add_scene("torch: autocast", lambda s: _enter(s, torch.autocast("cpu", torch.bfloat16)))
add_scene("torch: no_grad", lambda s: _enter(s, torch.no_grad()))
add_scene("torch: inference mode", lambda s: _enter(s, torch.inference_mode()))
add_scene(
    "torch: deterministic algorithms",
    lambda s: (
        torch.use_deterministic_algorithms(True),
        s.undo.append(lambda: torch.use_deterministic_algorithms(False)),
    ),
)
add_scene(
    "torch: precision of products",
    lambda s: (
        torch.set_float32_matmul_precision("medium"),
        s.undo.append(lambda: torch.set_float32_matmul_precision("highest")),
    ),
    lambda s: float(len(torch.get_float32_matmul_precision())),
)
add_scene("torch: mkldnn", lambda s: _enter(s, torch.backends.mkldnn.flags(enabled=False)))
add_scene("torch: saved tensors", lambda s: _enter(s, _rounding_hooks()))
add_scene("torch: anomaly mode", lambda s: _enter(s, torch.autograd.detect_anomaly(check_nan=True)))
add_scene("torch: a function mode", lambda s: _enter(s, Doubling()))
add_scene("torch: a function", lambda s: s.patch(functional, "mse_loss", lambda a, b: (a - b).abs().mean()))
add_scene(
    "torch: a method of tensors",
    lambda s: s.patch(torch.Tensor, "backward", lambda self, *a, **k: torch.autograd.backward(self * 2)),
)
add_scene(
    "torch: a method that tensors got", lambda s: s.patch(torch.Tensor, "square", lambda self: self * 2), lambda s: 1.0
)
add_scene("torch: the seed", lambda s: torch.manual_seed(5))
add_scene("torch: threads", lambda s: (torch.set_num_threads(2), s.undo.append(lambda: torch.set_num_threads(1))))


# A few of every kind; the others are run with -m slow.
ORDINARY = frozenset((
    "set: swapped", "object: over its class", "namespace: getattr, added", "model: flag of its class", "thread local: attribute",
    "context variable", "UserDict: value", "method on its class", "weak reference", "optimizer: hook of all", "torch: autocast",
    "torch: a function", "model: forward of torch's class", "parameter: hook", "__class__", "function: code",
    "global: over a builtin", "environment, getenv", "closure", "dict: order", "slots: empty one", "deque: reversed",
))  # fmt: skip
