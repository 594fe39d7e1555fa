"""This process as a worker of a job of remote calls: at most one job at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._pipewright import UsageError

if TYPE_CHECKING:
    from ._pipewright_torch import Worker


class _Job:
    worker: Worker | None = None
    process = 0


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


def begin(started: Worker) -> None:
    """From now on."""
    _job.worker, _job.process = started, os.getpid()


def end() -> None:
    """From now on it is none."""
    _job.worker = None


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
