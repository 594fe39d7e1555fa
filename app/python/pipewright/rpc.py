"""Calls of functions on other processes, with the names of :mod:`torch.distributed.rpc`.

    >>> from pipewright import rpc
    >>> rpc.init_rpc("worker0", rank=0, world_size=2)
    >>> rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 1))
    tensor([2., 2.])

Arguments and results are what pickle takes; tensors travel beside the pickle, and keep their history within an autograd context
(:mod:`pipewright.autograd`). Functions and classes are named, not copied: the worker imports them from the same module.
"""

from __future__ import annotations

import atexit
import enum
import os
import sys
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch

from . import _program, _remote_job, _trainer
from . import _rpc_functions as functions
from ._pipewright import UsageError
from ._pipewright_torch import Reference, Worker, WorkerSettings
from ._remote_errors import RemoteError, describe
from ._remote_values import Call, ReferenceHolder, pickled, unpickled
from .futures import Future

T = TypeVar("T")

UNSET_RPC_TIMEOUT = -1.0
"""The timeout of a call that gives none: that of the options."""
DEFAULT_RPC_TIMEOUT_SEC = 60.0
_NO_LIMIT = 86400.0
"""What a timeout of 0 means: a day. Every wait ends at some time; a worker that is lost ends it at once."""

__all__ = [
    "BackendType",
    "DEFAULT_RPC_TIMEOUT_SEC",
    "Future",
    "RRef",
    "RemoteError",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "UNSET_RPC_TIMEOUT",
    "WorkerInfo",
    "functions",
    "get_rpc_timeout",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]


sys.modules[__name__ + ".functions"] = functions  # so that its names can be imported, as from torch's


class BackendType(enum.Enum):
    """What programs for torch give as the backend."""

    TENSORPIPE = "TENSORPIPE"
    """The transport of the options."""


def is_available() -> bool:
    """True; torch asks so for builds that lack it."""
    return True


class WorkerInfo(NamedTuple):
    """A worker of the job."""

    name: str
    id: int


To = str | int | WorkerInfo
"""A worker: its name, its rank or its WorkerInfo."""


class RpcBackendOptions:
    """How the workers of a job work; the same on all of them but for `num_worker_threads`.

    :param num_worker_threads: calls of others that run here at a time; those that wait for other calls do not count.
    :param rpc_timeout: of calls and backward passes that give none [s]; 0: a day.
    :param init_method: ``env://`` (MASTER_ADDR and MASTER_PORT) or ``tcp://host:port``: where worker 0 listens.
    :param transport: one that ``pipewright devices`` lists for CPUs; ``ucx`` is the default.
    :param start_timeout: to meet all others and connect [s].
    :param lost_after: a worker that sends nothing for so long, not even that it lives, is lost [s].
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = 16,
        rpc_timeout: float = DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = "env://",
        transport: str = "ucx",
        start_timeout: float = 60.0,
        lost_after: float = 10.0,
    ) -> None:
        self.num_worker_threads = num_worker_threads
        self.rpc_timeout = rpc_timeout
        self.init_method = init_method
        self.transport = transport
        self.start_timeout = start_timeout
        self.lost_after = lost_after


TensorPipeRpcBackendOptions = RpcBackendOptions
"""The name that programs for torch use."""


def init_rpc(
    name: str,
    backend: str | BackendType | None = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Makes this process a worker of a job, and returns when all workers of the job are connected.

    :param name: others call this worker by it; each name once.
    :param backend: the transport, as in the options; None or :class:`BackendType`: that of the options.
    :param rank: from 0; -1: RANK of the environment, as torchrun and srun set it.
    :param world_size: number of workers; None: WORLD_SIZE of the environment.

    :raises UsageError: where the workers do not agree, or this process is one already.
    :raises Error: naming who did not come in time.
    """
    if _remote_job.is_worker():
        raise UsageError("This process is a worker already; call shutdown before it becomes another one.")
    options = rpc_backend_options or RpcBackendOptions()
    _program.use_own_torch()
    settings = WorkerSettings(
        name=name,
        transport=backend if isinstance(backend, str) and backend else options.transport,
        start_deadline=_seconds(options.start_timeout),
        deadline=_seconds(options.rpc_timeout),
        lost_after=options.lost_after,
        threads=options.num_worker_threads,
    )
    place = _place(rank, world_size, options.init_method)
    started = Worker(place, settings, call=_call, evaluate=_evaluate, pickle=pickled, describe=describe)
    _remote_job.begin(started, _seconds(options.rpc_timeout))
    atexit.register(_leave)


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Ends the job.

    :param graceful: wait until all workers have called this and no call is in flight anywhere. Otherwise this worker leaves at once: its own calls
        end with an error, and the others lose it.
    :param timeout: how long to wait [s]; 0: a day.

    :raises Error: naming the worker that did not come in time, or was lost. This process has left then, too.
    """
    if _remote_job.is_within_call():
        raise UsageError("A call of another worker, or a future's callback, cannot end this worker; call shutdown where init_rpc was called.")
    started = _remote_job.worker()
    try:
        if graceful:
            started.shutdown(_seconds(timeout))
        else:
            started.leave()
    finally:
        _remote_job.end()
        atexit.unregister(_leave)


def get_rpc_timeout() -> float:
    """The timeout of calls that give none [s]."""
    _remote_job.worker()
    return _remote_job.timeout()


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """A worker by name; None: this one."""
    started = _remote_job.worker()
    return _info(started, started.rank if worker_name is None else _rank(started, worker_name))


def rpc_sync(
    to: To,
    func: Callable[..., T],
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> T:
    """Calls a function on a worker; blocks until its result is there.

    :param func: one that the worker can import by its name; of builtin and torch functions, too.
    :param timeout: [s]; 0: a day.

    :raises RemoteError: what the function raised, as an exception of that type too.
    :raises Error: naming the worker that did not answer in time, or is lost.
    """
    return rpc_async(to, func, args, kwargs, timeout).wait()


def rpc_async(
    to: To,
    func: Callable[..., T],
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> Future[T]:
    """As :func:`rpc_sync`, but returns at once. Tensors among the arguments must stay as they are until the result is there."""
    started = _remote_job.worker()
    return Future._of(started.call(_name(started, to), _pickled_call(func, args, kwargs), _deadline(timeout)), _unpickled)


def remote(
    to: To,
    func: Callable[..., T],
    args: tuple[Any, ...] | list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    timeout: float = UNSET_RPC_TIMEOUT,
) -> RRef[T]:
    """Calls a function on a worker, where the result stays; returns a reference to it at once. What goes wrong is raised by :meth:`RRef.to_here`."""
    started = _remote_job.worker()
    return RRef._of(started.keep(_name(started, to), _pickled_call(func, args, kwargs), _deadline(timeout)))


class RRef(ReferenceHolder, Generic[T]):
    """A reference to a value of a worker, its owner, which keeps the value as long as any worker has a reference. Calls take and give references.

    :param value: of this worker.
    """

    def __init__(self, value: T, type_hint: object = None) -> None:
        self._reference = _remote_job.worker().share(value)

    @classmethod
    def _of(cls, reference: Reference) -> RRef[T]:
        made: RRef[T] = cls.__new__(cls)
        made._reference = reference
        return made

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """A copy of the value, with its history within an autograd context; on the owner the value itself. Waits until it is there.

        :raises RemoteError: what the function raised that was to make the value.
        """
        started = _remote_job.worker()
        return cast(T, Future._of(started.fetch(self._reference, _deadline(timeout)), _identity if self.is_owner() else _unpickled).wait())

    def local_value(self) -> T:
        """The value itself, on its owner. Raises UsageError on other workers."""
        if not self.is_owner():
            raise UsageError(f"The value of this RRef is on {self.owner_name()}; fetch it with to_here, or call a function there.")
        return self.to_here()

    def owner(self) -> WorkerInfo:
        """The worker that has the value."""
        return _info(_remote_job.worker(), self._reference.owner)

    def owner_name(self) -> str:
        """The name of the worker that has the value."""
        return self.owner().name

    def is_owner(self) -> bool:
        """Whether that is this worker."""
        return self._reference.owner == _remote_job.worker().rank

    def confirmed_by_owner(self) -> bool:
        """True: references hold shares of their value, which need no confirmation."""
        return True

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value's methods, called on its owner: ``rref.rpc_sync().forward(x)``."""
        return _Methods(self, lambda *call: rpc_sync(self.owner(), _invoke, call, timeout=timeout))

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Likewise; a method gives a Future."""
        return _Methods(self, lambda *call: rpc_async(self.owner(), _invoke, call, timeout=timeout))

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """Likewise; a method gives an RRef to its result."""
        return _Methods(self, lambda *call: remote(self.owner(), _invoke, call, timeout=timeout))

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Runs a backward pass from the value on its owner: of that autograd context, or without one a local pass, into ``.grad``."""
        if self.is_owner():
            _backward(self, dist_autograd_ctx_id, retain_graph)
        else:
            rpc_sync(self.owner(), _backward, (self, dist_autograd_ctx_id, retain_graph))

    def __repr__(self) -> str:
        return f"RRef({self._reference.id} on {self.owner_name()})"


class _Methods:
    """The methods of a reference's value."""

    def __init__(self, rref: RRef[Any], call: Callable[..., Any]) -> None:
        self._rref = rref
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._call(self._rref, name, args, kwargs)


def _invoke(rref: RRef[Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _run(getattr(rref.local_value(), name), args, kwargs)


def _backward(rref: RRef[Any], context: int, retain_graph: bool) -> None:
    if context == -1:
        torch.autograd.backward(rref.local_value(), retain_graph=retain_graph)
    else:
        from . import autograd

        autograd.backward(context, [rref.local_value()], retain_graph)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = function(*args, **kwargs)
    return functions.result_of(result) if functions.is_async(function) else result


def _evaluate(data: bytes, items: list[Any]) -> Any:
    """Runs a call of another worker."""
    _remote_job.wait_for_begin()
    with _remote_job.within_call():
        return _run(*_unpickled((data, items)))


def _call(data: bytes, items: list[Any]) -> tuple[bytes, list[Any]]:
    return pickled(_evaluate(data, items))


def _pickled_call(function: Callable[..., Any], args: tuple[Any, ...] | list[Any] | None, kwargs: dict[str, Any] | None) -> tuple[bytes, list[Any]]:
    if not callable(function):
        raise UsageError(f"A remote call needs a function, not {function!r}.")
    return pickled(tuple(Call(function, tuple(args or ()), dict(kwargs or {}))))


def _unpickled(data: tuple[bytes, list[Any]]) -> Any:
    return unpickled(data, RRef._of)


def _identity(value: Any) -> Any:
    return value


def _seconds(timeout: float) -> float:
    if timeout < 0:
        raise UsageError(f"A timeout of {timeout} s has no meaning; give more than 0, or 0 for a day.")
    return min(float(timeout), _NO_LIMIT) or _NO_LIMIT


def _deadline(timeout: float) -> float | None:
    """Of a call; None: the options' one."""
    return None if timeout == UNSET_RPC_TIMEOUT else _seconds(timeout)


def _info(started: Worker, rank: int) -> WorkerInfo:
    return WorkerInfo(started.names[rank], rank)


def _rank(started: Worker, to: To) -> int:
    if isinstance(to, WorkerInfo):
        return to.id
    names = started.names
    if isinstance(to, int) and 0 <= to < len(names):
        return to
    if to not in names:
        raise UsageError(f"There is no worker {to!r}; this job has {', '.join(names)}.")
    return names.index(to)


def _name(started: Worker, to: To) -> str:
    return started.names[_rank(started, to)]


def _place(rank: int, world_size: int | None, init_method: str) -> dict[str, str]:
    """The environment's variables, with what was given instead."""
    variables = dict(os.environ)
    if rank >= 0:
        variables["RANK"] = str(rank)
    if world_size is not None:
        variables["WORLD_SIZE"] = str(world_size)
    if init_method.startswith("tcp://"):
        host, _, port = init_method.removeprefix("tcp://").rstrip("/").rpartition(":")
        variables["MASTER_ADDR"], variables["MASTER_PORT"] = host.strip("[]"), port
    elif init_method != "env://":
        raise UsageError(f"init_method is {init_method!r}; it must be env:// or tcp://host:port.")
    elif variables.get("WORLD_SIZE") != "1" and _trainer.keeps_meeting_place():
        raise UsageError("The Trainer of this process keeps the place at MASTER_PORT; call init_rpc before it is made, or give another place as "
                         "init_method='tcp://host:port'.")
    if variables.get("WORLD_SIZE") == "1":  # nobody to meet
        variables.setdefault("MASTER_ADDR", "127.0.0.1")
        variables.setdefault("MASTER_PORT", "29500")
    return variables


def _leave() -> None:
    """At the end of a process that did not call shutdown: the others lose it at once."""
    if _remote_job.is_worker():
        _remote_job.worker().leave()
        _remote_job.end()
