"""Optimizers of parameters on several processes, with the name of :mod:`torch.distributed.optim`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from . import _pipewright_torch as _engine
from . import _remote_job, rpc
from ._optimizers import NAMES, NUMBERS
from ._pipewright import UsageError
from .futures import wait_all

__all__ = ["DistributedOptimizer"]

_KINDS: dict[type[torch.optim.Optimizer], str] = {getattr(torch.optim, name): kind for name, kind in NAMES.items()}
"""The engine's names of optimizers, by class."""


class DistributedOptimizer:
    """One local optimizer on each worker that owns some of the parameters. Steps of all optimizers on one worker take turns.

    SGD, Adam, AdamW and RMSprop are the engine's own, with torch.optim's arithmetic, where it knows all options that are given; other classes, and
    other options, run as torch.optim's on the owners.

    :param optimizer_class: of torch.optim, or one like them that the owners can import.
    :param params_rref: references to the parameters; each counts once, however often it is given.
    :param args: of the class, as `kwargs`.
    """

    def __init__(
        self,
        optimizer_class: type[torch.optim.Optimizer],
        params_rref: Sequence[rpc.RRef[torch.Tensor]],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not params_rref:
            raise UsageError("A distributed optimizer needs parameters; give references to them.")
        spec = _spec(optimizer_class, args, kwargs)
        self._engine: _engine.Optimizer | None = None
        self._local: list[rpc.RRef[_LocalOptimizer]] = []
        if spec is not None:
            self._engine = _engine.Optimizer(_remote_job.worker(), spec, [each._reference for each in params_rref])
            return
        owned: dict[int, list[rpc.RRef[torch.Tensor]]] = {}
        for each in params_rref:
            owned.setdefault(each.owner().id, []).append(each)
        made = [rpc.rpc_async(owner, _make, (optimizer_class, own, args, kwargs)) for owner, own in owned.items()]
        self._local = [each.wait() for each in made]

    def step(self, context_id: int) -> None:
        """Applies the context's gradients on all owners at once; returns when all are done. A parameter without a gradient stays as it is."""
        if self._engine is not None:
            self._engine.step(_remote_job.worker(), context_id)
            return
        steps = [rpc.rpc_async(each.owner(), _step, (each, context_id)) for each in self._local]
        wait_all(steps)


class _LocalOptimizer:
    """torch.optim's on an owner."""

    def __init__(self, optimizer_class: type[torch.optim.Optimizer], parameters: Iterable[torch.Tensor], args: Any, kwargs: Any) -> None:
        self.parameters = list({id(each): each for each in parameters}.values())
        self.optimizer = optimizer_class(self.parameters, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """With the context's gradients for ``.grad``, which is afterwards what it was before."""
        gradients = _engine.gradients(_remote_job.worker(), context_id)
        before = [each.grad for each in self.parameters]
        try:
            for each in self.parameters:
                each.grad = gradients.get(each)
            self.optimizer.step()
        finally:
            for each, gradient in zip(self.parameters, before, strict=True):
                each.grad = gradient


def _make(
    optimizer_class: type[torch.optim.Optimizer], owned: list[rpc.RRef[torch.Tensor]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> rpc.RRef[_LocalOptimizer]:
    return rpc.RRef(_LocalOptimizer(optimizer_class, [each.local_value() for each in owned], args, kwargs))


def _step(local: rpc.RRef[_LocalOptimizer], context_id: int) -> None:
    optimizer = local.local_value()
    _engine.in_turn(_remote_job.worker(), lambda: optimizer.step(context_id))


def _spec(optimizer_class: type[torch.optim.Optimizer], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _engine.OptimizerSpec | None:
    """For the engine; None where it does not have this optimizer with these options."""
    if optimizer_class not in _KINDS:
        return None
    kind = _KINDS[optimizer_class]
    signature = inspect.signature(optimizer_class)
    given = signature.bind(None, *args, **kwargs)
    given.apply_defaults()
    known: dict[str, float] = {}
    for name, value in list(given.arguments.items())[1:]:
        if name == "betas":
            value = dict(zip(("beta1", "beta2"), value, strict=True))
        elif name in NUMBERS:
            value = {name: value}
        elif name == "nesterov" and kind == "sgd":
            continue
        elif value == signature.parameters[name].default:
            continue
        else:
            return None
        if not all(isinstance(each, (int, float)) for each in value.values()):
            return None
        known |= {key: float(each) for key, each in value.items()}
    return _engine.OptimizerSpec(kind, known, bool(given.arguments.get("nesterov", False)))
