"""Functions whose result is a future: :mod:`pipewright.rpc.functions`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from .futures import Future

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["async_execution"]


def async_execution(fn: F) -> F:
    """Marks a function that returns a Future: remote calls of it give the future's result, and occupy no place for calls while they wait.

    With ``staticmethod`` and ``classmethod`` it is the inner one.
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # type: ignore[attr-defined]  # torch's mark, so that its decorator does it too
    return cast(F, wrapper)


def is_async(function: object) -> bool:
    """Whether a function is marked."""
    return hasattr(function, "_wrapped_async_rpc_function")


def result_of(future: Any) -> Any:
    """The result of a marked function's future, also of torch's."""
    if isinstance(future, torch.futures.Future):
        mine: Future[Any] = Future()
        future.add_done_callback(lambda done: _copy(done, mine))
        future = mine
    if not isinstance(future, Future):
        raise TypeError(f"A function with async_execution must return a Future, not {type(future).__name__}.")
    return future._wait_within_call()


def _copy(done: torch.futures.Future[Any], into: Future[Any]) -> None:
    try:
        into.set_result(done.value())
    except BaseException as error:
        into.set_exception(error)
