"""What a function on another worker raised, raised here."""

from __future__ import annotations

import builtins
import functools
import os
import sys
import traceback
from typing import Any, cast

from ._pipewright import Error, UsageError

_TRACEBACK = "\nTraceback (most recent call last):\n"
"""Stands between an exception's own text and its traceback, where both travel as one text."""


class RemoteError(Error):
    """What a function on another worker raised.

    Where its type is known here, the exception that is raised is of that type too: ``except ValueError`` catches a ValueError of any worker. Its
    traceback on the worker is a note of the exception, which Python prints below it.
    """

    type: str
    """Its type on the worker: ``ValueError``, ``package.module.Name``."""
    text: str
    """Its own text."""
    worker: str
    """Name of the worker where it was raised."""

    def __init__(self, type: str, text: str, worker: str) -> None:
        BaseException.__init__(self, type, text, worker)
        self.type, self.text, self.worker = type, text, worker

    def __str__(self) -> str:
        return f"{self.text} ({self.type} on {self.worker})"

    def __reduce__(self) -> tuple[object, ...]:
        return remote_error, (self.type, self.text, self.worker)


def describe(error: BaseException) -> tuple[str, str, str | None]:
    """Type, text with traceback, and worker of an exception that is to go to another worker; None: of this one."""
    if isinstance(error, RemoteError):
        return error.type, _joined(error.text, "\n".join(getattr(error, "__notes__", []))), error.worker
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name, _joined(str(error), _trace(error)), None


def remote_error(type: str, text: str, worker: str) -> RemoteError:
    """The exception for what `describe` said on that worker, or C++ of its own errors."""
    own, found, trace = text.partition(_TRACEBACK)
    kind = _class_of(type)
    error = RemoteError(type, own, worker) if kind is None else _both(cast(Any, kind))(type, own, worker)
    if found:
        error.add_note(trace.rstrip() if trace.startswith("On ") else f"On {worker}:{_TRACEBACK}{trace.rstrip()}")
    return error


def _trace(error: BaseException) -> str:
    """The calls that led to it, but for this package's own that called the function."""
    frames = traceback.extract_tb(error.__traceback__)
    folder = os.path.dirname(__file__)
    while frames and os.path.dirname(frames[0].filename) == folder:
        del frames[0]
    return "".join(frames.format())


def _joined(text: str, trace: str) -> str:
    return f"{text}{_TRACEBACK}{trace}" if trace else text


def _class_of(name: str) -> type[Exception] | None:
    """The class of that name, if this process has it."""
    known: dict[str, type[Exception]] = {"pw::UsageError": UsageError}
    if name in known:
        return known[name]
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}"
    found: object = sys.modules[module] if module else builtins
    for part in rest.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, RemoteError) else None


@functools.cache
def _both(kind: Any) -> type[RemoteError]:
    """A class of its own name that is both. Its constructor is RemoteError's, whatever that of the other takes."""
    try:
        return type(kind.__name__, (RemoteError, kind), {"__module__": kind.__module__, "__doc__": RemoteError.__doc__})
    except TypeError:  # the two cannot be one
        return RemoteError
