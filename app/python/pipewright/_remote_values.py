"""How Python objects travel between workers: a pickle, with tensors and references taken out, which then keep what only the engine knows of them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ._pipewright_torch import Reference

Pickled = tuple[bytes, list[Any]]
"""The pickle, and the tensors and references that its persistent ids number."""


class Call(NamedTuple):
    """What another worker is to run."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ReferenceHolder:
    """What has a reference to a value of a worker: an RRef. Only a message between workers takes it along."""

    _reference: Reference

    def __reduce__(self) -> tuple[object, ...]:
        raise pickle.PicklingError("An RRef is known to the workers of its job only; it cannot be pickled but by a remote call.")


def pickled(value: object) -> Pickled:
    """A value for another worker."""
    file = io.BytesIO()
    pickler = _Pickler(file, value)
    pickler.dump(value)
    return file.getvalue(), pickler.items


def unpickled(data: Pickled, holder: Callable[[Reference], ReferenceHolder]) -> Any:
    """What `pickled` took, of another worker. Tensors have the history that the engine gave them."""
    return _Unpickler(data, holder).load()


class _Pickler(pickle.Pickler):
    """A Parameter that is itself an argument, or in lists, tuples and dicts of them, goes as any tensor, so that gradients come back to it. One
    that is part of another object, such as a module, stays a Parameter: a copy."""

    def __init__(self, file: io.BytesIO, value: object) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.items: list[Any] = []
        self._places: dict[int, tuple[str, int, bool]] = {}
        self._kept: list[object] = []  # so that no other object gets its id
        self._own: set[int] = set()
        _parameters(value, self._own)

    def persistent_id(self, obj: Any) -> tuple[str, int, bool] | None:
        if isinstance(obj, torch.Tensor):
            if type(obj) is not torch.Tensor and id(obj) not in self._own:
                return None
            return self._place("tensor", obj, obj, obj.requires_grad)
        if isinstance(obj, ReferenceHolder):
            return self._place("reference", obj, obj._reference, False)
        return None

    def _place(self, kind: str, obj: object, item: object, needs_gradient: bool) -> tuple[str, int, bool]:
        if id(obj) not in self._places:
            self._places[id(obj)] = (kind, len(self.items), needs_gradient)
            self.items.append(item)
            self._kept.append(obj)
        return self._places[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Pickled, holder: Callable[[Reference], ReferenceHolder]) -> None:
        super().__init__(io.BytesIO(data[0]))
        self._items = data[1]
        self._holder = holder

    def persistent_load(self, pid: tuple[str, int, bool]) -> Any:
        kind, index, needs_gradient = pid
        if kind == "reference":
            if not isinstance(self._items[index], ReferenceHolder):
                self._items[index] = self._holder(self._items[index])
            return self._items[index]
        tensor: torch.Tensor = self._items[index]
        if needs_gradient and not tensor.requires_grad:  # outside of a context: as torch, a leaf
            tensor.requires_grad_()
        return tensor


def _parameters(value: object, found: set[int]) -> None:
    """The identities of Parameters in lists, tuples and dicts."""
    if isinstance(value, torch.nn.Parameter):
        found.add(id(value))
    elif isinstance(value, (list, tuple)):
        for each in value:
            _parameters(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            _parameters(each, found)
