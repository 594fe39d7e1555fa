"""Remote calls without workers: the same names, in one process, where autograd is PyTorch's own. What programs of distributed autograd must equal."""

import threading
from typing import NamedTuple

_place = threading.local()


class WorkerInfo(NamedTuple):
    name: str
    id: int


def here():
    """The worker that the running function is on."""
    return getattr(_place, "name", "worker0")


def get_worker_info(name=None):
    name = name or here()
    return WorkerInfo(name, int(name.removeprefix("worker")))


def _name(to):
    return to if isinstance(to, str) else f"worker{to.id if isinstance(to, WorkerInfo) else to}"


def rpc_sync(to, func, args=(), kwargs=None, timeout=-1):
    before, _place.name = here(), _name(to)
    try:
        return func(*(args or ()), **(kwargs or {}))
    finally:
        _place.name = before


class _Done:
    """A result that is there, or what was raised instead."""

    def __init__(self, run):
        self._value = self._error = None
        try:
            self._value = run()
        except Exception as error:
            self._error = error

    def wait(self):
        if self._error is not None:
            raise self._error
        return self._value

    def then(self, callback):
        return _Done(lambda: callback(self))

    value = wait


def rpc_async(to, func, args=(), kwargs=None, timeout=-1):
    return _Done(lambda: rpc_sync(to, func, args, kwargs))


class RRef:
    def __init__(self, value, owner=None):
        self._done = value if owner else _Done(lambda: value)
        self._owner = owner or here()

    def to_here(self, timeout=-1):
        return self._done.wait()

    def local_value(self):
        assert here() == self._owner
        return self._done.wait()

    def owner(self):
        return get_worker_info(self._owner)

    def owner_name(self):
        return self._owner

    def is_owner(self):
        return here() == self._owner

    def rpc_sync(self, timeout=-1):
        return _Methods(self, rpc_sync)

    def rpc_async(self, timeout=-1):
        return _Methods(self, rpc_async)

    def remote(self, timeout=-1):
        return _Methods(self, remote)


class _Methods:
    def __init__(self, rref, call):
        self._rref, self._call = rref, call

    def __getattr__(self, name):
        return lambda *args, **kwargs: self._call(self._rref.owner(), getattr(self._rref._done.wait(), name), args, kwargs)


def remote(to, func, args=(), kwargs=None, timeout=-1):
    return RRef(rpc_async(to, func, args, kwargs), _name(to))
