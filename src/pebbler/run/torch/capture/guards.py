"""Guards: Python values, tensors and settings that the recorded step depended on and that must not change between steps.

A plan repeats what was recorded. So whatever the step could read is looked at before every run, as far as Python shows it: values
in closures, globals, attributes, lists and dicts that its code names, what its tensors look like, and torch's own settings. What
was asked for and was not there must stay away; objects keep their classes, classes and modules the functions that ran.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, compress, count
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch._C._dynamo.guards import dict_version

from pebbler.errors import InputError
from pebbler.run.torch.capture.executed_code import ExecutedCode, NamedValue
from pebbler.run.torch.capture.holders import ABSENT, PLAIN, Holder, is_watched_state, keys_of, slots_of
from pebbler.run.torch.capture.python_state import Change, PythonState, same_value, shown_value
from pebbler.run.torch.capture.source_lines import line_of, package_of
from pebbler.run.torch.capture.step_state import StepState
from pebbler.run.torch.capture.tensor_watch import TensorWatch
from pebbler.run.torch.capture.torch_settings import torch_settings

__all__ = ["Guards"]

_MODULE_KEYS = frozenset(vars(torch.nn.Module()))
_OPTIMIZER_KEYS = frozenset(("defaults", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"))
_members, _bases = operator.attrgetter("__dict__"), operator.attrgetter("__mro__")
_IMMUTABLE, _HEAP = 1 << 8, 1 << 9  # flags of classes in CPython: nobody can set an attribute of an immutable one
_GONE = (
    LookupError,
    ValueError,
    AttributeError,
    RuntimeError,
)  # what reading raises where something is not there any more


class _Watch(NamedTuple):
    """Values read again at every call, and their recorded values; `alike` compares two of them quickly."""

    read: Callable[[], Iterable[Any]]
    expected: list[Any]
    name: Callable[[int], str]
    alike: Callable[[Any, Any], bool] = operator.is_
    each: Callable[[], Iterable[Any]] | None = None  # as `read`, with what is gone marked as such
    quick: Callable[[], bool] | None = None  # whether all are as they were, sooner than one by one
    # Of a value that differs, what a person calls the part that matters, with what that was and is; None if nothing does.
    part: Callable[[int, Any, Any], tuple[str, Any, Any] | None] | None = None

    def now(self) -> list[Any]:
        """Return the values now, as far as they can be read."""
        try:
            return list((self.each or self.read)())
        except _GONE:
            return []


class Guards:
    """Checks that a step still depends on what it depended on when it was recorded."""

    def __init__(
        self, state: StepState, code: ExecutedCode, roots: list[tuple[str, Any]], settled: Sequence[Change] = ()
    ) -> None:
        """Look at everything that `code` may have read; each of `settled` may be as it was or as it is after a step."""
        self._settled = {change.name: change for change in settled}
        self._where = line_of(state.step)
        reads = _ReadContents(code, state)
        self.python = PythonState(roots, code.globals(), reads)
        holders = self.python.holders
        self._watches = [
            *_python_watches(holders, reads),
            *_code_watches(code, [value for _, value in roots], state),
            _tensor_attributes_watch(self.python.tensors),
            *_optimizer_watches(state),
            _settings_watch(),
        ]
        owners = [holder.owner for holder in holders if holder.kind not in ("global", "function", "cell", "class")]
        classes = [holder.owner for holder in holders if holder.kind == "class"]
        kinds = [*map(type, (*owners, *state.optimizers, *state.tensors)), *classes]
        self._watches += _class_watches([*kinds, *{type(kind) for kind in kinds}], reads.asks)
        paths = {id(tensor): path for path, tensor in self.python.tensors}
        names = [paths.get(id(tensor), f"tensor {i}") for i, tensor in enumerate(state.tensors)]
        self._tensors = TensorWatch(state.tensors, names)

    def check(self) -> list[int]:
        """Raise `InputError` for the first thing that is not as it was; return where the tensors of the state are in memory."""
        for watch in self._watches:
            try:
                if watch.quick() if watch.quick else all(map(watch.alike, watch.read(), watch.expected)):
                    continue
            except _GONE:
                pass
            self._explain(watch)
        change = self._tensors.change()
        if change is not None:
            raise InputError(self._message(*change))
        return self._tensors.storages

    def _message(self, what: str, change: str = "") -> str:
        return f"{self._where}: {what} changed since the step was captured{change}; plan and compile it again"

    def _explain(self, watch: _Watch) -> None:
        now = watch.now()
        for i, old in enumerate(watch.expected):
            new = now[i] if i < len(now) else ABSENT
            if _alike(watch, new, old):
                continue
            name = watch.name(i)
            settled = self._settled.get(name)
            if watch.part is not None and new is not ABSENT:
                part = watch.part(i, old, new)
                if part is not None:
                    raise InputError(self._message(part[0], _was_and_is(*part[1:])))
            elif settled is not None and (same_value(settled.old, new) or same_value(settled.new, new)):
                pass
            elif not same_value(old, new):
                raise InputError(self._message(name, _was_and_is(old, new)))
            watch.expected[i] = new


def _alike(watch: _Watch, new: Any, old: Any) -> bool:
    try:
        return bool(watch.alike(new, old))
    except _GONE:  # tensors that are compared with something else
        return False


def _was_and_is(old: Any, new: Any) -> str:
    return f" ({shown_value(old)}, now {'gone' if new is ABSENT else shown_value(new)})"


# Torch's settings -------------------------------------------------------------------------------------------------------


def _settings_watch() -> _Watch:
    readers = torch_settings()
    getters, names = list(readers.values()), list(readers)
    expected = [get() for get in getters]
    return _Watch(
        lambda: map(operator.call, getters), expected, names.__getitem__, operator.eq,
        quick=lambda: list(map(operator.call, getters)) == expected,
    )  # fmt: skip


def _optimizer_watches(state: StepState) -> list[_Watch]:
    """Return watches of which parameters the optimizers have; a loaded state brings other groups with the same ones."""
    optimizers = state.optimizers

    def counts() -> list[int]:
        return [len(group["params"]) for optimizer in optimizers for group in optimizer.param_groups] + [
            len(optimizers)
        ]

    def params() -> list[Any]:
        return [param for optimizer in optimizers for group in optimizer.param_groups for param in group["params"]]

    return [
        _Watch(lambda: [counts()], [counts()], lambda i: "params of an optimizer's param_groups", operator.eq),
        _Watch(params, params(), lambda i: "params of an optimizer's param_groups"),
    ]


# Python -----------------------------------------------------------------------------------------------------------------


class _ReadContents:
    """Contents of a holder that the recorded code may have read."""

    def __init__(self, code: ExecutedCode, state: StepState) -> None:
        self.names, self._called = code.attribute_names(), code.called_names()
        self._slots = {(id(holder.owner), holder.kind, key) for holder, key in state.slots}
        self.keeping = {id(holder.owner) for holder, _ in state.slots}  # where the step leaves tensors
        self._code = code
        self._methods: dict[type, frozenset[str]] = {}

    def __call__(self, holder: Holder, key: Any) -> bool:
        if self._slots and (id(holder.owner), holder.kind, key) in self._slots:
            return False
        if holder.kind == "state":
            return is_watched_state(holder.owner)  # an iterator that the step moves has been refused
        if holder.kind not in ("attributes", "slots", "class"):
            return True
        if key in self._called and isinstance(holder.before.get(key), PLAIN):
            return False  # a number that has the name of a method
        owner = holder.owner
        kind = owner if isinstance(owner, type) else type(owner)
        if isinstance(owner, torch.nn.Module) and key in _MODULE_KEYS:
            return True
        if isinstance(owner, torch.optim.Optimizer) and key == "param_groups":
            return False  # a loaded state brings new ones: the runner compares the settings in them
        if isinstance(owner, torch.optim.Optimizer) and key in _OPTIMIZER_KEYS:
            return True
        package = _package(kind)
        if package == "stdlib":
            return True  # which of them its own methods read is not looked at
        if package == "torch" and isinstance(owner, (torch.nn.Module, torch.optim.Optimizer)):
            return True
        return self.asks(kind, key)

    def asks(self, kind: type, key: Any) -> bool:
        """Whether the code that ran may have asked an object of a class for an attribute, there or not."""
        package = _package(kind)
        for side in ("",) if package == "torch" else (package, ""):
            names = self.names.get(side, set())
            if names is None or key in names:
                return True
        if kind not in self._methods:
            self._methods[kind] = self._code.method_names(kind)
        return key in self._methods[kind]

    def asks_owner(self, holder: Holder, key: Any) -> bool:
        """Whether the code may have asked for an attribute that was not there."""
        kind = holder.owner if isinstance(holder.owner, type) else type(holder.owner)
        if self._slots and (id(holder.owner), holder.kind, key) in self._slots:
            return False
        return holder.kind == "local" or self.asks(kind, key)


def _package(kind: type) -> str:
    module = kind.__module__ or ""
    if module.split(".")[0] == "torch":
        return "torch"
    return package_of(getattr(sys.modules.get(module), "__file__", None) or "")


def _python_watches(holders: Iterable[Holder], reads: _ReadContents) -> list[_Watch]:
    items: list[tuple[Any, Any, Any, Holder]] = []  # dict, key, value
    listed: list[tuple[Any, int, Any, Holder]] = []
    attributes: list[tuple[Any, str, Any, Holder]] = []
    cells: list[tuple[Any, Any, Holder]] = []
    sized: list[tuple[Any, Holder]] = []
    ordered: list[tuple[Any, Holder]] = []
    sets: list[tuple[Any, Holder]] = []
    objects: list[Holder] = []  # their attributes
    others: list[Holder] = []  # that are read as a whole
    for holder in holders:
        owner, before = holder.owner, holder.before
        match holder.kind:
            case "dict":
                items += [(owner, key, value, holder) for key, value in before.items()]
                if len(owner) == len(before) and id(owner) not in reads.keeping:
                    sized.append((owner, holder))
                    ordered += [(owner, holder)] if len(owner) > 1 else []
            case "attributes":
                items += [(vars(owner), key, value, holder) for key, value in before.items()]
                if vars(owner) or not _is_hooks(owner):
                    objects.append(holder)
            case "function":
                items += [(owner.__dict__, key, value, holder) for key, value in owner.__dict__.items()]
                objects.append(holder)
            case "global":
                items += [(owner[0], key, value, holder) for key, value in before.items()]
            case "list" if not isinstance(owner, tuple):
                listed += [(owner, key, value, holder) for key, value in before.items()]
                sized.append((owner, holder))
            case "set" if isinstance(owner, set):
                sets.append((owner, holder))
            case "slots":
                empty = [name for name in slots_of(owner) if not hasattr(owner, name) and reads(holder, name)]
                attributes += [(owner, key, value, holder) for key, value in before.items()]
                attributes += [(owner, name, ABSENT, holder) for name in empty]
            case "class":
                attributes += [(owner, key, value, holder) for key, value in before.items()]
            case "cell":
                cells += [(owner, value, holder) for value in before.values()]
            case "state" if before:
                others.append(holder)
            case "local" | "context" | "weak" | "view":
                others.append(holder)
    contents = operator.attrgetter("cell_contents")

    def keyed(rows: list[tuple[Any, Any, Any, Holder]], get: Callable[[Any, Any], Any]) -> _Watch:
        owners, keys, values = ([row[i] for row in rows] for i in range(3))
        return _Watch(lambda: map(get, owners, keys), values, lambda i: rows[i][3].name(rows[i][1]))

    cell_owners = [cell for cell, _, _ in cells]
    return [
        *_length_watches(sized),
        _keys_watch(ordered),
        _sets_watch(sets),
        _items_watch([item for item in items if type(item[0]) is dict]),
        keyed([item for item in items if type(item[0]) is not dict], _raw_item),  # which may make what is not there
        keyed(listed, operator.getitem),
        keyed(attributes, lambda owner, key: getattr(owner, key, ABSENT)),
        _Watch(lambda: map(contents, cell_owners), [value for _, value, _ in cells], lambda i: cells[i][2].path),
        _types_watch(objects),
        *_additions_watches(objects, reads),
        *map(_whole_watch, others),
    ]  # fmt: skip


def _length_watches(sized: list[tuple[Any, Holder]]) -> list[_Watch]:
    """Return watches of the lengths of lists and dicts; most are hooks of modules, and empty."""
    empty = [(owner, holder) for owner, holder in sized if not len(owner)]
    filled = [(owner, holder) for owner, holder in sized if len(owner)]
    owners, sizes = [owner for owner, _ in filled], [len(owner) for owner, _ in filled]
    empties = [owner for owner, _ in empty]
    return [
        # One question for all of them; which one it is is asked afterwards.
        _Watch(
            lambda: [int(any(map(len, empties)))], [0] * len(empties), lambda i: f"the length of {empty[i][1].path}",
            operator.eq, each=lambda: map(len, empties),
        ),
        _Watch(lambda: map(len, owners), sizes, lambda i: f"the length of {filled[i][1].path}", operator.eq),
    ]  # fmt: skip


def _equal_watch(read: Callable[[], Iterable[Any]], name: Callable[[int], str], **options: Any) -> _Watch:
    """Return a watch of objects that are compared by equality: keys, classes, functions."""
    expected = list(read())
    return _Watch(read, expected, name, operator.eq, quick=lambda: list(read()) == expected, **options)


def _keys_watch(ordered: list[tuple[Any, Holder]]) -> _Watch:
    """Return a watch of the keys of dicts and of their order."""
    # Other classes of dicts may show other keys than they have.
    plain = [(owner, holder) for owner, holder in ordered if type(owner) in (dict, OrderedDict)]
    rest = [(owner, holder) for owner, holder in ordered if type(owner) not in (dict, OrderedDict)]
    owners, others, holders = (
        [owner for owner, _ in plain],
        [owner for owner, _ in rest],
        [h for _, h in (*plain, *rest)],
    )
    return _equal_watch(
        lambda: map(tuple, chain(owners, map(keys_of, others))), lambda i: f"the order of {holders[i].path}"
    )


def _sets_watch(sets: list[tuple[Any, Holder]]) -> _Watch:
    """Return a watch of what sets hold, in the order in which a loop meets it."""
    owners = [owner for owner, _ in sets]
    return _equal_watch(lambda: map(tuple, owners), lambda i: f"the set {sets[i][1].path}")


def _types_watch(objects: list[Holder]) -> _Watch:
    owners = [holder.owner for holder in objects]
    return _equal_watch(lambda: map(type, owners), lambda i: f"the class of {objects[i].path}")


def _additions_watches(objects: list[Holder], reads: _ReadContents) -> list[_Watch]:
    """Return watches of attributes that objects get: one that the code asks for may hide what the class has."""
    # Where every attribute is watched, there are more of them if one came.
    whole = [holder for holder in objects if len(vars(holder.owner)) == len(holder.before)]
    partly = [holder for holder in objects if len(vars(holder.owner)) != len(holder.before)]

    def watch(holders: list[Holder], look: Callable[[Any], Any]) -> _Watch:
        members = [vars(holder.owner) for holder in holders]
        known = list(map(set, members))

        def part(i: int, old: Any, new: Any) -> tuple[str, Any, Any] | None:
            holder = holders[i]
            came = [key for key in members[i] if key not in known[i]]
            known[i].update(came)
            asked = next((key for key in came if reads.asks_owner(holder, key)), None)
            return None if asked is None else (holder.name(asked), ABSENT, members[i][asked])

        return _equal_watch(lambda: map(look, members), lambda i: holders[i].path, part=part)

    return [watch(whole, len), watch(partly, tuple)]


def _is_hooks(owner: Any) -> bool:
    """Whether an object is an empty ordered dict: modules have a dozen of them for hooks, and nobody gives them attributes."""
    return type(owner) is OrderedDict and not owner


def _whole_watch(holder: Holder) -> _Watch:
    """Return a watch of an object that is read as a whole: a buffer, attributes of a thread, a context variable."""

    def read() -> list[Any]:
        now = holder.read()
        return [tuple(now), *now.values()]

    def name(i: int) -> str:
        return holder.path if i == 0 else holder.name(list(holder.before)[i - 1])

    return _Watch(read, read(), name, same_value)


# Code -------------------------------------------------------------------------------------------------------------------


def _class_watches(classes: Iterable[type], asked: Callable[[type, str], bool]) -> list[_Watch]:
    """Return watches of classes: replaced methods, and added attributes that hide others.

    An object finds what it has not got itself in its class and the bases of that. So of every class that a step may ask, the bases
    in their order, the functions and other descriptors, and the presence of names that the step has `asked` for are held to what
    they were.
    """
    kinds = list(dict.fromkeys(classes))
    bases = dict.fromkeys(base for kind in kinds for base in kind.__mro__)
    changing = [base for base in bases if base.__flags__ & _HEAP and not base.__flags__ & _IMMUTABLE]
    # A class shows a proxy of its dict; the dict itself is read much faster.
    dicts: list[dict[str, Any]] = [gc.get_referents(vars(base))[0] for base in changing]
    before = list(map(dict, dicts))

    def matters(base: type, name: str, old: Any, new: Any) -> bool:
        both = old is not ABSENT and new is not ABSENT
        if old is new or (both and not _is_code(old) and not _is_code(new)):
            return False  # plain values that the step reads are watched with those of objects
        if name.startswith("__") and name.endswith("__"):
            return _is_code(old) or _is_code(new)
        return (old is not ABSENT and _is_code(old)) or asked(base, name)

    def changed(i: int, old: Any, new: Any) -> tuple[str, Any, Any] | None:
        for name in {**before[i], **dicts[i]}:
            then, now = before[i].get(name, ABSENT), dicts[i].get(name, ABSENT)
            if matters(changing[i], name, then, now):
                return f"{changing[i].__qualname__}.{name}", then, now
        before[i] = dict(dicts[i])
        return None

    def other_bases(i: int, old: Any, new: Any) -> tuple[str, Any, Any]:
        then, now = (", ".join(base.__qualname__ for base in row) for row in (old, new))
        return f"the bases of {kinds[i].__qualname__}", then, now

    return [
        _equal_watch(lambda: map(_bases, kinds), lambda i: kinds[i].__qualname__, part=other_bases),
        _equal_watch(lambda: map(dict_version, dicts), lambda i: changing[i].__qualname__, part=changed),
    ]


def _is_code(value: Any) -> bool:
    """Whether a value in a class is a method, a property, a class or anything else that a lookup may run."""
    return callable(value) or hasattr(type(value), "__get__")


def _tensor_attributes_watch(tensors: list[tuple[str, torch.Tensor]]) -> _Watch:
    """Return a watch of tensors that have no attributes of the user's; those that have some are watched like other objects."""
    bare = [(path, tensor) for path, tensor in tensors if not _members(tensor)]
    found = [tensor for _, tensor in bare]

    def part(i: int, old: int, new: int) -> tuple[str, Any, Any]:
        key, value = next(iter(_members(found[i]).items()))
        return f"{bare[i][0]}.{key}", ABSENT, value

    return _Watch(
        lambda: map(len, map(_members, found)), [0] * len(found), lambda i: bare[i][0], operator.eq,
        quick=lambda: not any(map(_members, found)), part=part,
    )  # fmt: skip


def _code_watches(code: ExecutedCode, called: Iterable[Any], state: StepState) -> list[_Watch]:
    """Return watches of the code that ran: of functions themselves, and of the names under which they are reached."""
    functions = [value for value in called if isinstance(value, FunctionType)]
    parts = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")

    def part(i: int, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[str, Any, Any] | None:
        for kind, before, after in zip(("code", "defaults", "defaults"), old, new, strict=True):
            if before is not after:
                return f"the {kind} of {functions[i].__qualname__}", before, after
        return None

    named = [(v.namespace, v.name, v.namespace[v.name]) for v in code.globals()]
    libraries = [value for value in code.library_functions() if value.name in value.namespace]
    known = {(id(namespace), name) for namespace, name, _ in named}
    rows = [(v.namespace, v.name, v.namespace[v.name], v) for v in libraries if (id(v.namespace), v.name) not in known]
    # Torch's optimizers run unwatched.
    homes = {base.__module__ for optimizer in state.optimizers for base in type(optimizer).__mro__[:-1]}
    for home in sorted(home for home in homes if home.startswith("torch.optim.")):
        space = vars(sys.modules[home])
        rows += [
            (space, n, v, NamedValue(f"{home}.{n}", space, n)) for n, v in space.items() if isinstance(v, FunctionType)
        ]
    for function in functions:
        defaults: dict[str, Any] = function.__kwdefaults__ or {}
        for key, value in defaults.items():
            rows.append((defaults, key, value, NamedValue(f"{function.__qualname__}({key}=)", defaults, key)))
    missing: dict[int, tuple[dict[str, Any], dict[str, NamedValue]]] = {}
    for value in code.missing_globals():
        missing.setdefault(id(value.namespace), (value.namespace, {}))[1][value.name] = value
    away = [(namespace, frozenset(names), names) for namespace, names in missing.values()]

    def came(i: int, old: bool, new: bool) -> tuple[str, Any, Any] | None:
        namespace, names, values = away[i]
        name = min(names & namespace.keys())
        return values[name].path, ABSENT, namespace[name]

    return [
        _Watch(
            lambda: map(parts, functions), list(map(parts, functions)), lambda i: functions[i].__qualname__, _identical, part=part
        ),
        _Watch(
            lambda: (namespace.keys().isdisjoint(names) for namespace, names, _ in away), [True] * len(away),
            lambda i: "a name", operator.is_, part=came,
        ),
        _rows_watch(rows, lambda i: rows[i][3].path),
    ]  # fmt: skip


def _identical(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return all(map(operator.is_, old, new))


def _items_watch(items: list[tuple[Any, Any, Any, Holder]]) -> _Watch:
    """Return a watch of values in plain dicts."""
    return _rows_watch(items, lambda i: items[i][3].name(items[i][1]))


def _rows_watch(rows: list[tuple[Any, Any, Any, Any]], name: Callable[[int], str]) -> _Watch:
    """Return a watch of rows of dict, key and value; only dicts that changed since the last look are read."""
    grouped: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        grouped.setdefault(id(row[0]), []).append(i)
    order = [i for numbers in grouped.values() for i in numbers]
    owners = [rows[numbers[0]][0] for numbers in grouped.values()]
    getters = [_getter([rows[i][1] for i in numbers]) for numbers in grouped.values()]
    ends = list(accumulate(map(len, grouped.values()), initial=0))
    expected = [rows[i][2] for i in order]
    versions: list[int] = [-1] * len(owners)

    def quick() -> bool:
        now = list(map(dict_version, owners))
        if now == versions:
            return True
        for i in compress(count(), map(operator.ne, now, versions)):
            if not all(map(operator.is_, getters[i](owners[i]), expected[ends[i] : ends[i + 1]])):
                return False
        versions[:] = now
        return True

    return _Watch(
        lambda: chain.from_iterable(map(operator.call, getters, owners)), expected, lambda i: name(order[i]),
        each=lambda: (rows[i][0].get(rows[i][1], ABSENT) for i in order), quick=quick,
    )  # fmt: skip


def _raw_item(owner: dict[Any, Any], key: Any) -> Any:
    return dict.get(owner, key, ABSENT)


def _getter(keys: list[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the values of some keys out of a dict."""
    get = operator.itemgetter(*keys)
    return get if len(keys) > 1 else lambda owner: (get(owner),)
