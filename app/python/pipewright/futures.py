"""Results that may still be on their way, as in :mod:`torch.futures`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch  # noqa: F401  # whose libraries the module below needs

from . import _remote_job
from ._pipewright import UsageError
from ._pipewright_torch import Result

T = TypeVar("T")
S = TypeVar("S")

_log = logging.getLogger("pipewright")

__all__ = ["Future", "collect_all", "wait_all"]


class Future(Generic[T]):
    """A result that may still be on its way: of :func:`pipewright.rpc.rpc_async`, or one that a program sets itself. Any thread.

    Waits of a call are bounded by the call's timeout; Ctrl-C ends them.
    """

    def __init__(self) -> None:
        self._result = Result()
        self._read: Callable[[Any], T] = _value_of
        self._lock = threading.Lock()
        self._known: list[T] = []

    @classmethod
    def _of(cls, result: Result, read: Callable[[Any], T]) -> Future[T]:
        """Of a call, whose raw result `read` understands."""
        future: Future[T] = cls()
        future._result, future._read = result, read
        return future

    def done(self) -> bool:
        """Whether the result, or what was raised instead, is there."""
        return self._result.is_done()

    def wait(self) -> T:
        """The result, when it is there; the same object each time.

        :raises RemoteError: what was raised on the worker, as an exception of that type too.
        :raises Error: naming the worker that did not answer in time, or is lost.
        """
        return self._known_of(self._result.wait())

    def _wait_within_call(self) -> T:
        """As :meth:`wait`, but only as long as the caller of the function that this thread runs."""
        return self._known_of(self._result.wait_within_call())

    def _known_of(self, raw: Any) -> T:
        with self._lock:
            if not self._known:
                self._known.append(self._read(raw))
            return self._known[0]

    def value(self) -> T:
        """The result of a future that is done. Raises UsageError for one that is not."""
        if not self.done():
            raise UsageError("The result of this future is not there yet; wait for it.")
        return self.wait()

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """The result of ``callback(self)``, which is called on a thread of its own when this is done, in this thread's autograd context."""
        following: Future[S] = Future()

        def run() -> None:
            try:
                with _remote_job.within_call():
                    following.set_result(callback(self))
            except BaseException as error:
                following.set_exception(error)

        _remote_job.worker().when_done(self._result, following._result, run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """As :meth:`then`, but nobody gets the callback's result; what it raises is logged."""

        def logged(done: Future[T]) -> None:
            try:
                callback(done)
            except Exception:
                _log.exception("A callback of a future raised, and nobody waits for it.")

        self.then(logged)

    def set_result(self, result: T) -> None:
        """Ends a future that the program made. Raises UsageError for one that is done."""
        self._set((result, None))

    def set_exception(self, result: BaseException) -> None:
        """Ends a future that the program made with what its :meth:`wait` raises."""
        self._set((None, result))

    def _set(self, outcome: tuple[T | None, BaseException | None]) -> None:
        if not self._result.set(outcome):
            raise UsageError("This future is done already; set its result once.")


def _value_of(outcome: Any) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of these futures, done when all of them are, well or not."""
    collected: Future[list[Future[Any]]] = Future()
    left = len(futures)
    lock = threading.Lock()

    def count(_: object = None) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            collected.set_result(list(futures))

    for future in futures:
        future.add_done_callback(count)
    if not futures:
        collected.set_result([])
    return collected


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all, in their order. Waits for all of them, then raises what ended the first that has no result."""
    for future in futures:
        try:
            future.wait()
        except Exception:
            continue
    return [future.wait() for future in futures]
