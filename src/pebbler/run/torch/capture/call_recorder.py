"""Recording a training step: every operator that really runs, below autograd, on tensors without memory.

Which tensors share memory is read off the storages of the fake tensors, what is changed in place off the operators' schemas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from pebbler.errors import InputError
from pebbler.run.torch.capture.call_sites import CallSites
from pebbler.run.torch.capture.calls import (
    Call,
    Constant,
    Place,
    Record,
    TensorRef,
    operator_name,
    reference,
)
from pebbler.run.torch.capture.early_values import Answers, apart, refusal
from pebbler.run.torch.capture.executed_code import pause_watch, resume_watch
from pebbler.run.torch.capture.fake_results import FakeResults, results_depend_on_numbers
from pebbler.run.torch.capture.forgotten_gradients import ZEROING, ForgottenGradient
from pebbler.run.torch.capture.operand_trees import leaves_of, map_leaves
from pebbler.run.torch.capture.operators import (
    COLLECTIVES,
    CTC,
    FILLED_LIKE,
    RESIZING,
    is_random,
    norm_dtypes,
    statistics_updated,
    tensors_read,
    tensors_written,
)
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.seen_tensors import SeenTensors
from pebbler.run.torch.capture.source_lines import in_optimizer, in_validation, user_line

__all__ = ["CallRecorder", "call_item", "require_valid"]

aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
_TORCHS_OWN = ("aten", "prims")


def call_item(tensor: torch.Tensor) -> float:
    """Return the number in a tensor of one element."""
    return float(tensor.item())


def require_valid(tensor: torch.Tensor) -> float:
    """Refuse values that a distribution cannot have, as `torch.distributions` does."""
    if not tensor.item():
        raise ValueError(
            "a distribution found values outside of what its arguments or its support may be (validate_args)"
        )
    return 1.0


class CallRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records the operators that run inside it."""

    def __init__(
        self,
        results: FakeResults,
        scalars: Scalars,
        locate: Callable[[torch.Tensor], Place],
        find: Callable[[Place], Any],
        drawn: dict[int, torch.Tensor],
        try_kernels: bool,
    ) -> None:
        super().__init__()
        self.results, self.scalars, self.try_kernels = results, scalars, try_kernels
        self.fakes: FakeTensorMode = results.fakes
        self.record = Record()
        self.answers = Answers(self.record, scalars, find, drawn)
        self.seen = SeenTensors(self.record, results, locate)
        self.sites = CallSites()
        self.items = 0
        self.refusal: InputError | None = None  # the first one, which the step may have caught
        self.calling = False  # whether an operator was called, not a question such as bool(tensor)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor already seen, or of a view of something already seen."""
        return self.seen.number_of(tensor)

    # Calls ------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._dispatch(func, args, kwargs or {})
        except InputError as error:
            self.refusal = self.refusal or error
            raise

    def _dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].fake_device  # every second dispatch is this question
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        if func is aten.lift_fresh.default and not isinstance(args[0], FakeTensor):
            return self._constant(args[0])
        if func.namespace in COLLECTIVES:
            raise InputError(
                f"{user_line()}: {func} talks to other processes, which no plan can order yet; train without a plan, or plan the "
                "part of the step before it"
            )
        name = operator_name(func)
        if func is aten._local_scalar_dense.default and args[0].dim() == 0 and self.calling and in_optimizer():
            return float(self.item(args[0]))  # a tensor among the operands of an operator that takes a number
        if func is aten._local_scalar_dense.default:
            return self._answer(args[0])
        if func is aten.equal.default:
            return self._equal(*args)
        if name in RESIZING:
            raise InputError(f"{user_line()}: {name} changes how much memory a tensor has; a plan needs fixed sizes")
        if func in ZEROING:
            args = map_leaves(lambda x: x.cleared() if isinstance(x, ForgottenGradient) else x, args)
        paused = pause_watch()
        try:
            operands = Operands(func, args, kwargs, self.seen, self._generator)
            known, result = self.results.get(operands.key, operands.tensors)
            if not known:
                if func.namespace not in _TORCHS_OWN:
                    resume_watch(paused)  # the shape function of an operator may be the user's own
                result = self._run(func, name, operands)
                self.results.keep(operands.key, func, operands.tensors, result)
                if torch.Tag.inplace_view in func.tags:
                    self.seen.look_again(args[0])
            self._note(func, name, operands, result)
        finally:
            resume_watch(paused)
        return result

    def _run(self, func: Any, name: str, operands: Operands) -> Any:
        """Return the result of a call on tensors without memory, as its kernel makes it."""
        args, kwargs = operands.fakes
        self.fakes.cache_enabled = False  # torch's own forgets which of several results share memory
        try:
            with self.fakes:
                result = self._aligned(args[0], args[3]) if name == "_ctc_loss" else func(*args, **kwargs)
        except DataDependentOutputException:
            raise InputError(refusal()) from None
        except DynamicOutputShapeException as error:
            raise InputError(
                f"{user_line()}: the shape of the result of {error.func} depends on values; a plan needs fixed shapes: "
                "multiply by a mask, or choose with torch.where"
            ) from None
        except RuntimeError as error:
            if not isinstance(error, UnsupportedOperatorException) and "fake impl" not in str(error):
                raise
            raise InputError(
                f"{user_line()}: operator {getattr(error, 'func', func)} has no shape function (fake implementation); "
                "register one to plan it"
            ) from None
        result = self._corrected(name, args, result)
        return laid_out_as_made(self.fakes, func, args, kwargs, result) if self.try_kernels else result

    def _aligned(self, scores: torch.Tensor, lengths: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the results of the CTC loss: a loss per sequence, and a table as wide as the longest target."""
        known = not isinstance(lengths, torch.Tensor)
        longest = max(lengths, default=0) if known else self.answers.longest(self.seen.entry(lengths).reference.number)
        batch = scores.shape[1:-1]
        return scores.new_empty(batch), scores.new_empty((math.prod(batch), scores.shape[0], 2 * longest + 1))

    def _corrected(self, name: str, args: Any, result: Any) -> Any:
        """Return a fake result as the kernel makes it where torch's shape function is wrong."""
        dtypes = norm_dtypes(name, args)
        if dtypes is None:
            return result
        with self.fakes:
            return tuple(
                x if x is None or x.dtype == dtype else torch.empty_like(x, dtype=dtype)
                for x, dtype in zip(result, dtypes, strict=True)
            )

    def _reference(self, value: Any) -> Any:
        """Return the reference that stands for a result in the record."""
        return self.seen.entry(value).reference if isinstance(value, torch.Tensor) else value

    def _note(self, func: Any, name: str, operands: Operands, result: Any) -> None:
        position = len(self.record.calls)
        ref_args, ref_kwargs = operands.references
        statistics = tuple(self.record.tensors[n].storage for n in statistics_updated(name, ref_args))
        written = self.record.storages_of(tensors_written(func, ref_args, ref_kwargs))
        mutated = tuple(s for s in written if s not in statistics)
        before = len(self.record.storages)
        for out in leaves_of(result):
            if isinstance(out, torch.Tensor) and self.number_of(out) is None:
                self.seen.new(out, position)
        makes = tuple(range(before, len(self.record.storages)))
        if not makes and not mutated:
            if func.namespace not in _TORCHS_OWN and not leaves_of(result):
                raise InputError(
                    f"{user_line()}: {func} returns nothing and says of nothing that it changes it; no plan can keep it"
                )
            return  # a view: it takes no memory, and is taken again wherever it is needed
        outputs = map_leaves(self._reference, result)
        if name in FILLED_LIKE:  # recorded without its operand, so that nothing is kept alive for it
            self._note_shaped(name, ref_args, ref_kwargs, outputs, makes)
            return
        reads = tuple(self.record.storages_of(tensors_read(name, ref_args, ref_kwargs)))
        where, site = self.sites.here()
        self.record.calls.append(
            Call(
                func, ref_args, ref_kwargs, outputs, reads, makes, mutated, is_random(func, name, ref_args, ref_kwargs),
                statistics, where=where, backward=site.part == "backward", grad=torch.is_grad_enabled(), site=site,
            )
        )  # fmt: skip

    def _note_shaped(self, name: str, args: Any, kwargs: Any, outputs: Any, makes: tuple[int, ...]) -> None:
        info = self.record.tensors[outputs.number]
        device = torch.device(self.record.storages[info.storage].device)
        options = {"dtype": info.dtype, "device": device}
        value = FILLED_LIKE[name]
        calls, (_, site) = self.record.calls, self.sites.here()
        shape = list(info.shape), list(info.stride)
        calls.append(Call(aten.empty_strided.default, shape, options, outputs, (), makes, (), site=site))
        if value is not None:
            fill = args[-1] if value == "value" and not isinstance(args[-1], TensorRef) else value
            fill = kwargs.get("fill_value", fill)
            calls.append(Call(aten.fill_.Scalar, (outputs, fill), {}, outputs, makes, (), makes, site=site))

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        """Record a tensor made from Python values as a copy of it, for the step may change it in place."""
        number = len(self.record.constants)
        self.record.constants.append(value.detach().clone())
        fake = self.fakes.from_tensor(value.detach().clone())
        made = self.seen.new(fake, len(self.record.calls))
        storage = self.record.tensors[made].storage
        self.record.calls.append(
            Call(aten.clone.default, (Constant(number),), {}, reference(made), (), (storage,), (), where=user_line())
        )
        return fake

    def _generator(self, generator: torch.Generator) -> Constant:
        """Return a random generator among the operands as a constant: it is the same object in every step, or refused."""
        for i, known in enumerate(self.record.constants):
            if known is generator:
                return Constant(i)
        self.record.constants.append(generator)
        return Constant(len(self.record.constants) - 1)

    # The state of random generators ---------------------------------------------------------------------------------------

    def get_state(self, device: str, size: int) -> torch.Tensor:
        """Record that the state of a default generator is read; return a tensor that stands for it."""
        with self.fakes:
            fake = torch.empty(size, dtype=torch.uint8)
        storage = self.record.tensors[self.seen.new(fake, len(self.record.calls))].storage
        self._call_on_state(
            torch.ops.pebbler.get_rng_state.default, (device,), reference(len(self.record.tensors) - 1), (storage,)
        )
        return fake

    def call_on_state(self, func: Any, *args: Any) -> None:
        """Record that the state of a default generator is set."""
        refs = tuple(self.seen.entry(x).reference if isinstance(x, torch.Tensor) else x for x in args)
        self._call_on_state(func, refs, None, ())

    def _call_on_state(self, func: Any, args: tuple[Any, ...], outputs: Any, makes: tuple[int, ...]) -> None:
        reads = tuple(self.record.storages_of(x.number for x in args if isinstance(x, TensorRef)))
        self.record.calls.append(Call(func, args, {}, outputs, reads, makes, (), random=True, where=user_line()))

    def _answer(self, tensor: torch.Tensor) -> Any:
        """Return the value of a tensor that the step asks for, where it can be known before every step.

        What torch's distributions check must hold, and is checked in the plan too.
        """
        number = self.seen.entry(tensor).reference.number
        where = in_validation() if tensor.dtype == torch.bool else None
        if where is None or self.answers.is_known(number, tensor.dtype):
            return self.answers.look(number, tensor.dtype)
        storage, name = self.record.tensors[number].storage, f"check_{len(self.record.calls)}"
        self.record.calls.append(
            Call(
                require_valid,
                (reference(number),),
                {},
                None,
                (storage,),
                (),
                (),
                scalar=name,
                where=where,
                random=False,
            )
        )
        return True

    def _equal(self, one: torch.Tensor, other: torch.Tensor) -> Any:
        """Return the answer to the question whether two tensors are equal."""
        if one.shape != other.shape:
            return False
        same = self._dispatch(aten.eq.Tensor, (one, other), {})
        return self._answer(self._dispatch(aten.all.default, (same,), {}))

    def next_item(self) -> str:
        """Return a name for a number that is read from a tensor."""
        self.items += 1
        return f"item_{self.items - 1}"

    def item(self, tensor: torch.Tensor) -> Any:
        """Record that the step reads a number out of a tensor; return a traced number in its place."""
        with apart():  # this is no operator of the step, so nobody has stopped listening
            number = self.seen.entry(tensor).reference.number
        name = self.next_item()
        storage = self.record.tensors[number].storage
        position = len(self.record.calls)
        self.record.calls.append(
            Call(call_item, (reference(number),), {}, None, (storage,), (), (), scalar=name, where=user_line())
        )
        return self.scalars.number(name, 2.0, 9.0, lambda: self.answers.number(name, number, position))

    @contextmanager
    def only_if_zero(self, tensor: torch.Tensor) -> Iterator[None]:
        """Record that the calls inside run only in steps where a number in a tensor is zero."""
        fake = self.seen.enter(tensor)
        self.item(fake)
        name, start = f"item_{self.items - 1}", len(self.record.calls)
        yield
        for i in range(start, len(self.record.calls)):
            self.record.calls[i] = replace(self.record.calls[i], unless=name)


# The operands of one call, taken apart once: stand-ins without memory, references for the record, and a key of how they look


# Values that say all about themselves when they are compared.
_PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
)


class Operands:
    """The operands of a call in the forms that recording needs; `key` is what its results look like follows from, or None."""

    __slots__ = ("_key", "_known", "_numbers", "_refer", "_seen", "_storages", "fakes", "key", "references", "tensors")

    def __init__(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        seen: SeenTensors,
        refer: Callable[[torch.Generator], Constant],
    ) -> None:
        """Take operands apart; tensors become known to `seen`, and `refer` returns what stands for a random generator."""
        self._seen, self._refer, self._known = seen, refer, True
        self._numbers = results_depend_on_numbers(func)
        # What results may depend on besides the operands.
        self._key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        self._storages: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []  # in order
        fakes, references = self._take(args)
        self.fakes: tuple[list[Any], dict[str, Any]] = (fakes, {})
        self.references: tuple[tuple[Any, ...], dict[str, Any]] = (tuple(references), {})
        if kwargs:
            self._key.extend(kwargs)
            fakes, references = self._take(kwargs.values())
            self.fakes[1].update(zip(kwargs, fakes, strict=True))
            self.references[1].update(zip(kwargs, references, strict=True))
        self.key = tuple(self._key) if self._known else None

    def _take(self, values: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        key = self._key
        fakes: list[Any] = []
        references: list[Any] = []
        for value in values:
            kind: Any = type(value)
            if isinstance(value, torch.Tensor):
                fake, reference, storage, look = self._seen.entry(value)
                if look is None:
                    self._known = False
                # Two operands in the same memory are another case than two apart.
                key.append((look, fake.requires_grad, self._storages.setdefault(storage, len(self._storages))))
                self.tensors.append(fake)
                fakes.append(fake)
                references.append(reference)
                continue
            if kind is list or kind is tuple:
                key += (kind, len(value))
                inner, refs = self._take(value)
                fakes.append(kind(inner))
                references.append(kind(refs))
                continue
            fakes.append(value)
            if kind is torch.Generator:
                key.append(kind)
                value = self._refer(value)
            elif kind is float and not self._numbers:
                key.append(kind)
            elif kind in _PLAIN:
                key += (kind, value)
            else:
                self._known = False
            references.append(value)
        return fakes, references


# In which order kernels lay out their results, where torch's shape functions may be wrong about it --------------------
# A shape function sometimes keeps the strides of its operand where the kernel makes a row-major result (layer norm of a permuted
# tensor), or the other way round. An operator that is recorded with an operand or a result that is not row-major is therefore run
# once, on zeros of the same layout.


def laid_out_as_made(fakes: FakeTensorMode, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """Return a fake result laid out as the kernel lays it out."""
    operands, results = _tensors((args, kwargs)), _tensors(result)
    if not _is_in_doubt(func, args, kwargs, operands, results):
        return result
    strides = _strides_made(func, args, kwargs, [x.shape for x in results])
    if strides is None or strides == [x.stride() for x in results]:
        return result
    remaining = iter(strides)

    def laid_out(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.empty_strided(leaf.shape, next(remaining), dtype=leaf.dtype, device=leaf.device)

    with fakes:
        return map_leaves(laid_out, result)


def _is_in_doubt(func: Any, args: Any, kwargs: Any, operands: list[Any], results: list[Any]) -> bool:
    """Return whether a kernel makes new tensors, may lay them out in another way, and can be tried on zeros."""
    if func.namespace != "aten" or func in CTC or func._schema.is_mutable or torch.Tag.pointwise in func.tags:
        return False
    if any(x.layout != torch.strided for x in (*operands, *results)) or all(
        x.is_contiguous() for x in (*operands, *results)
    ):
        return False
    if is_random(func, func._schema.name.split("::")[-1], args, kwargs):
        return False
    if any(x.dtype == torch.uint8 for x in operands):  # a workspace, which its maker must have filled
        return False
    if any(x.device.type == "cuda" and not torch.cuda.is_available() for x in (*operands, *results)):
        return False
    memory = {x.untyped_storage()._cdata for x in operands}
    return not any(x.untyped_storage()._cdata in memory for x in results)  # a view is as its operand is


def _strides_made(func: Any, args: Any, kwargs: Any, shapes: list[Any]) -> list[Any] | None:
    """Return the strides of what an operator really makes, or None where it cannot be tried."""
    try:
        with _disable_current_modes(), torch.no_grad():
            real_args, real_kwargs = map_leaves(_zeros, (tuple(args), kwargs))
            made = _tensors(func(*real_args, **real_kwargs))
    except RuntimeError:  # not enough memory, or a kernel that has no result for zeros: the run itself will check
        return None
    return [x.stride() for x in made] if [x.shape for x in made] == shapes else None


def _zeros(fake: Any) -> Any:
    if not isinstance(fake, FakeTensor):
        return fake
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in leaves_of(tree) if isinstance(leaf, torch.Tensor)]
