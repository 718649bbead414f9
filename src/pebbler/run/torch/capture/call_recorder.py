"""Recording a training step: every operator that really runs, below autograd, on tensors without memory.

Which tensors share memory is read off the storages of the fake tensors, what is changed in place off the operators' schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, Storage, TensorInfo, TensorRef
from pebbler.run.torch.capture.operators import (
    COLLECTIVES,
    FILLED_LIKE,
    RESIZING,
    is_random,
    norm_dtypes,
    returns_several,
    statistics_updated,
    tensors_read,
    tensors_written,
)
from pebbler.run.torch.capture.questions import certain_answer, question_about
from pebbler.run.torch.capture.real_layouts import RealLayouts
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.source_lines import in_optimizer, user_line

__all__ = ["CallRecorder", "call_item"]

aten = torch.ops.aten
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def call_item(tensor: torch.Tensor) -> float:
    """Return the number in a tensor of one element."""
    return float(tensor.item())


class CallRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records the operators that run inside it."""

    def __init__(
        self,
        fakes: FakeTensorMode,
        scalars: Scalars,
        locate: Callable[[torch.Tensor], Place],
        resolve: Callable[[Place], Any],
        layouts: RealLayouts,
    ) -> None:
        super().__init__()
        self.fakes, self.scalars, self.locate, self.resolve, self.layouts = fakes, scalars, locate, resolve, layouts
        self.record = Record()
        self.items = 0
        self.calling = False  # whether an operator was called, not a question such as bool(tensor)
        self._ids: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._kept: list[Any] = []  # keeps ids of objects from being used again
        self._fake_of: dict[int, torch.Tensor] = {}

    # Tensors ----------------------------------------------------------------------------------------------------------

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor already seen, or of a view of something already seen."""
        fake = self._fake_of.get(id(tensor))
        if fake is not None:
            return self._ids[id(fake)]
        if not isinstance(tensor, FakeTensor):
            return None
        if id(tensor) in self._ids:
            return self._ids[id(tensor)]
        storage = self._storages.get(_key(tensor))
        return None if storage is None else self._add(tensor, storage)

    def enter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake of a tensor that exists before the step, and note where it is found."""
        fake = self._fake_of.get(id(tensor))
        if fake is None and isinstance(tensor, FakeTensor):
            fake = tensor
        _require_plain(tensor)
        if fake is None:
            fake = self.fakes.from_tensor(tensor.detach())
            self._fake_of[id(tensor)] = fake
            self._kept.append(tensor)
        if self.number_of(fake) is None:
            self._new(fake, None, self.locate(tensor))
        return fake

    def enter_apart(self, tensor: torch.Tensor) -> None:
        """Note an argument of the step, as memory of its own: the next one may be a slice of something else."""
        if id(tensor) not in self._fake_of:
            _require_plain(tensor)
            with self.fakes:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            self._fake_of[id(tensor)] = fake
            self._kept.append(tensor)
            self._new(fake, None, self.locate(tensor))

    def _new(self, fake: torch.Tensor, maker: int | None, place: Place | None = None) -> int:
        if fake.is_conj() or fake.is_neg():
            raise InputError(f"{user_line()}: lazily conjugated or negated tensors are not supported")
        storage = len(self.record.storages)
        size = fake.untyped_storage().nbytes()
        self.record.storages.append(Storage(size, str(fake.device), len(self.record.tensors), maker, place))
        self._storages[_key(fake)] = storage
        return self._add(fake, storage)

    def _add(self, fake: torch.Tensor, storage: int) -> int:
        known = self.record.storages[storage]
        number = len(self.record.tensors)
        info = TensorInfo(storage, tuple(fake.shape), fake.stride(), int(fake.storage_offset()), fake.dtype)
        if number != known.root and self.record.tensors[known.root].dtype != fake.dtype:
            raise InputError(f"{user_line()}: viewing a tensor as another dtype ({fake.dtype}) is not supported")
        self.record.tensors.append(info)
        self._ids[id(fake)] = number
        self._kept.append(fake)
        return number

    # Calls ------------------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        if func is aten.lift_fresh.default and not isinstance(args[0], FakeTensor):
            return self._constant(args[0])
        if func.namespace in COLLECTIVES:
            raise InputError(
                f"{user_line()}: {func} talks to other processes, which no plan can order yet; train without a plan, or plan the "
                "part of the step before it"
            )
        name = func._schema.name.split("::")[-1]
        if func is aten._local_scalar_dense.default and args[0].dim() == 0 and self.calling and in_optimizer():
            return float(self.item(args[0]))  # a tensor among the operands of an operator that takes a number
        if func is aten._local_scalar_dense.default:
            return self._answer(args[0])
        if name in RESIZING:
            raise InputError(f"{user_line()}: {name} changes how much memory a tensor has; a plan needs fixed sizes")
        args, kwargs = tree_map(lambda x: self.enter(x) if isinstance(x, torch.Tensor) else x, (args, kwargs))
        # The cache of fake results forgets which of several results share memory; for one result it is right, and fast.
        self.fakes.cache_enabled = not returns_several(func)
        try:
            with self.fakes:
                result = func(*args, **kwargs)
        except DataDependentOutputException:
            raise InputError(_refusal()) from None
        except DynamicOutputShapeException as error:
            raise InputError(
                f"{user_line()}: the shape of the result of {error.func} depends on values; a plan needs fixed shapes"
            ) from None
        except RuntimeError as error:
            if not isinstance(error, UnsupportedOperatorException) and "fake impl" not in str(error):
                raise
            raise InputError(
                f"{user_line()}: operator {getattr(error, 'func', func)} has no shape function (fake implementation); "
                "register one to plan it"
            ) from None
        result = self.layouts.corrected(self.fakes, func, args, kwargs, self._corrected(name, args, result))
        self._note(func, name, args, kwargs, result)
        return result

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

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, result: Any) -> None:
        position = len(self.record.calls)

        def refer(x: Any) -> Any:
            if isinstance(x, torch.Generator):
                return self._generator(x)
            return TensorRef(self.number_of(x)) if isinstance(x, torch.Tensor) else x  # type: ignore[arg-type]

        ref_args, ref_kwargs = tree_map(refer, (args, kwargs))
        statistics = tuple(self.record.tensors[n].storage for n in statistics_updated(name, ref_args))
        written = self.record.storages_of(tensors_written(func, ref_args, ref_kwargs))
        mutated = tuple(s for s in written if s not in statistics)
        before = len(self.record.storages)
        for out in tree_flatten(result)[0]:
            if isinstance(out, torch.Tensor) and self.number_of(out) is None:
                self._new(out, position)
        makes = tuple(range(before, len(self.record.storages)))
        if not makes and not mutated:
            if func.namespace not in ("aten", "prims") and not tree_flatten(result)[0]:
                raise InputError(
                    f"{user_line()}: {func} returns nothing and says of nothing that it changes it; no plan can keep it"
                )
            return  # a view: it takes no memory, and is taken again wherever it is needed
        outputs = tree_map(refer, result)
        if name in FILLED_LIKE:  # recorded without its operand, so that nothing is kept alive for it
            self._note_shaped(name, ref_args, ref_kwargs, outputs, makes)
            return
        reads = tuple(self.record.storages_of(tensors_read(name, ref_args, ref_kwargs)))
        self.record.calls.append(
            Call(func, ref_args, ref_kwargs, outputs, reads, makes, mutated, is_random(func, name, args, kwargs), statistics,
                 where=user_line(), backward=torch._C._current_autograd_node() is not None,
                 grad=torch.is_grad_enabled())
        )  # fmt: skip

    def _note_shaped(self, name: str, args: Any, kwargs: Any, outputs: Any, makes: tuple[int, ...]) -> None:
        info = self.record.tensors[outputs.number]
        device = torch.device(self.record.storages[info.storage].device)
        options = {"dtype": info.dtype, "device": device}
        value = FILLED_LIKE[name]
        calls = self.record.calls
        calls.append(
            Call(aten.empty_strided.default, (list(info.shape), list(info.stride)), options, outputs, (), makes, ())
        )
        if value is not None:
            fill = args[-1] if value == "value" and not isinstance(args[-1], TensorRef) else value
            fill = kwargs.get("fill_value", fill)
            calls.append(Call(aten.fill_.Scalar, (outputs, fill), {}, outputs, makes, (), makes))

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        """Record a tensor made from Python values as a copy of it, for the step may change it in place."""
        number = len(self.record.constants)
        self.record.constants.append(value.detach().clone())
        fake = self.fakes.from_tensor(value.detach().clone())
        made = self._new(fake, len(self.record.calls))
        storage = self.record.tensors[made].storage
        self.record.calls.append(
            Call(aten.clone.default, (Constant(number),), {}, TensorRef(made), (), (storage,), (), where=user_line())
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
        storage = self.record.tensors[self._new(fake, len(self.record.calls))].storage
        self._call_on_state(
            torch.ops.pebbler.get_rng_state.default, (device,), TensorRef(len(self.record.tensors) - 1), (storage,)
        )
        return fake

    def call_on_state(self, func: Any, *args: Any) -> None:
        """Record that the state of a default generator is set."""
        refs = tuple(TensorRef(self._ids[id(self.enter(x))]) if isinstance(x, torch.Tensor) else x for x in args)
        self._call_on_state(func, refs, None, ())

    def _call_on_state(self, func: Any, args: tuple[Any, ...], outputs: Any, makes: tuple[int, ...]) -> None:
        reads = tuple(self.record.storages_of(x.number for x in args if isinstance(x, TensorRef)))
        self.record.calls.append(Call(func, args, {}, outputs, reads, makes, (), random=True, where=user_line()))

    def _answer(self, tensor: torch.Tensor) -> Any:
        """Return the value of a tensor that the step asks for, where it can be known before every step."""
        fake = self.enter(tensor)
        number = self.number_of(fake)
        assert number is not None
        if tensor.dtype == torch.bool or not tensor.dtype.is_floating_point:
            certain = certain_answer(self.record, number)
            if certain is not None:
                return certain
            question = question_about(self.record, number, self.resolve, user_line())
            # Whole numbers from arguments are lengths and the like, other ones in every batch.
            if question is not None and (
                tensor.dtype == torch.bool or all(place[0] != "arg" for _, place in question.places)
            ):
                self.record.questions += (
                    [question] if question.places else []
                )  # from constants alone it is always the same
                return question.answer
        raise InputError(_refusal())

    def item(self, tensor: torch.Tensor) -> Any:
        """Record that the step reads a number out of a tensor; return a traced number in its place."""
        fake = self.enter(tensor)
        number = self.number_of(fake)
        assert number is not None
        name = f"item_{self.items}"
        self.items += 1
        storage = self.record.tensors[number].storage
        self.record.calls.append(
            Call(call_item, (TensorRef(number),), {}, None, (storage,), (), (), scalar=name, where=user_line())
        )
        return self.scalars.number(name, 2.0, 9.0)

    @contextmanager
    def only_if_zero(self, tensor: torch.Tensor) -> Iterator[None]:
        """Record that the calls inside run only in steps where a number in a tensor is zero."""
        fake = self.enter(tensor)
        self.item(fake)
        name, start = f"item_{self.items - 1}", len(self.record.calls)
        yield
        for i in range(start, len(self.record.calls)):
            self.record.calls[i] = replace(self.record.calls[i], unless=name)


def _require_plain(tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN_TENSORS:
        raise InputError(
            f"{user_line()}: tensors of the subclass {type(tensor).__name__} cannot be planned; only torch.Tensor and Parameter can"
        )


def _key(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided:
        raise InputError(f"{user_line()}: only plain strided tensors are supported, got layout {tensor.layout}")
    return int(tensor.untyped_storage()._cdata)


def _refusal() -> str:
    return (
        f"{user_line()}: the step looks at the value of a tensor (item, bool, a branch on data): a plan needs the same "
        "operators in every step; return the tensor and look at it outside"
    )
