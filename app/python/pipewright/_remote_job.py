"""This process as a worker of a job of remote calls: at most one job at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._pipewright import Error, UsageError

if TYPE_CHECKING:
    from ._pipewright_torch import Worker


class _Job:
    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.process = 0
        self.timeout = 0.0
        self.begun = threading.Event()


_BEGIN_S = 60.0
"""How long a call waits for its worker, which only lacks that the others are connected."""

_job = _Job()
_running = threading.local()


def worker() -> Worker:
    """This process as a worker. Raises UsageError where it is none."""
    if _job.worker is None:
        raise UsageError("This process is no worker; call pipewright.rpc.init_rpc first.")
    if _job.process != os.getpid():
        raise UsageError("The worker is the process that this one was forked from; start processes before init_rpc, or by spawn.")
    return _job.worker


def is_worker() -> bool:
    """Whether this process is a worker."""
    return _job.worker is not None and _job.process == os.getpid()


def timeout() -> float:
    """Of calls that give none [s]."""
    return _job.timeout


def begin(started: Worker, timeout: float) -> None:
    """From now on. `timeout`: of calls that give none [s]."""
    _job.worker, _job.process, _job.timeout = started, os.getpid(), timeout
    _job.begun.set()


def end() -> None:
    """From now on it is none."""
    _job.begun.clear()
    _job.worker = None


def wait_for_begin() -> None:
    """For calls that come while this worker is still being made: others may be faster. Raises Error where it is not made."""
    if not _job.begun.wait(_BEGIN_S):
        raise Error("A call came to a process that did not become a worker; see what its init_rpc raised.")


@contextlib.contextmanager
def within_call() -> Iterator[None]:
    """This thread runs what another worker called, or what follows a result."""
    _running.depth = getattr(_running, "depth", 0) + 1
    try:
        yield
    finally:
        _running.depth -= 1


def is_within_call() -> bool:
    """Whether this thread does."""
    return getattr(_running, "depth", 0) > 0
