"""Backward passes over several processes, with the names of :mod:`torch.distributed.autograd`.

    >>> import pipewright.autograd as dist_autograd
    >>> with dist_autograd.context() as context_id:
    ...     loss = rpc.rpc_sync("worker1", torch.mul, args=(a, b)).sum()
    ...     dist_autograd.backward(context_id, [loss])
    ...     gradients = dist_autograd.get_gradients(context_id)
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Literal

import torch

from . import _pipewright_torch as _engine
from . import _remote_job

__all__ = ["backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """True; torch asks so for builds that lack it."""
    return True


class context:
    """A forward and its backward passes: tensors in calls of this thread keep their history on all workers, until the end of the ``with``. Its value
    is the context's id, which is unique in the job."""

    def __init__(self) -> None:
        self._open: list[_engine.Context] = []

    def __enter__(self) -> int:
        self._open.append(_engine.Context(_remote_job.worker()))
        return self._open[-1].id

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.pop().close()


def backward(
    context_id: int,
    roots: torch.Tensor | Sequence[torch.Tensor],
    retain_graph: bool = False,
    *,
    mode: Literal["auto", "fast", "smart"] = "auto",
) -> None:
    """Runs a backward pass from tensors of this worker, over all workers whose calls lead to them. Gradients are added to the context's, not to
    ``.grad``; :func:`get_gradients` gives them.

    :param roots: a loss, or several: tensors of one element.
    :param retain_graph: keep what another pass through the same graph needs.
    :param mode: ``fast`` takes all messages to be used by the loss, and ends with an error where one is not; ``smart`` finds out before which are;
        ``auto`` begins as fast and finds out only where something waits. The gradients are the same.

    :raises UsageError: for roots that cannot be used, and a context that is not open here.
    :raises RemoteError: what a function raised in its backward on another worker.
    :raises Error: naming the worker that is lost, or did not answer within the options' ``rpc_timeout``.
    """
    losses = [roots] if isinstance(roots, torch.Tensor) else list(roots)
    _engine.backward(_remote_job.worker(), context_id, losses, retain_graph, mode)


def get_gradients(context_id: int) -> dict[torch.Tensor, torch.Tensor]:
    """The gradients of this worker's tensors in that context. They are the context's own: copy what is to outlive it unchanged."""
    return _engine.gradients(_remote_job.worker(), context_id)
