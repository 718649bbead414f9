"""The operands of one call, taken apart once: stand-ins without memory, references for the record, and a key of how they look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from pebbler.run.torch.capture.calls import Constant
from pebbler.run.torch.capture.fake_results import results_depend_on_numbers
from pebbler.run.torch.capture.seen_tensors import SeenTensors

__all__ = ["Operands"]

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
