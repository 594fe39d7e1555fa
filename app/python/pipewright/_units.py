"""Durations and sizes as the package takes them: texts with a unit, or integers in the smallest unit."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, Union

from ._pipewright import UsageError

Duration = Union[str, int]
"""A text with a unit (``"1.5ms"``, ``"200us"``, ``"30ns"``, ``"2s"``) or an integer of nanoseconds."""

Durations = Union[Duration, Iterable[Duration]]
"""One duration for all stages, or one per stage."""

Size = Union[str, int]
"""A text with a unit (``"24GiB"``, ``"80GB"``) or an integer of bytes."""


def integer(value: object) -> int | None:
    """The value of anything that is an integer, numpy's among them; None for all else, truth values included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def several(value: Any) -> list[Any]:
    """The values of a sequence, and of a single text, path or number that value alone."""
    return [value] if isinstance(value, (str, os.PathLike)) or not isinstance(value, Iterable) else list(value)


def file_name(path: str | os.PathLike[str]) -> str:
    """The path as the program takes it: none begins as an option does."""
    text = os.fspath(path)
    return os.path.join(os.curdir, text) if text.startswith("-") else text


def path_text(path: str | os.PathLike[str] | None) -> str:
    """The path or name as the library reads it; empty for None."""
    return "" if path is None else os.fspath(path)


def duration_text(name: str, value: Duration | None) -> str:
    """The duration as the library reads it; empty for None."""
    if value is None:
        return ""
    return _text(name, value, "ns", "a duration", "1.5ms", "nanoseconds")


def duration_list(name: str, value: Durations | None) -> str:
    """One or several durations, separated by commas; empty for None."""
    if value is None:
        return ""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return duration_text(name, value)
    texts = [duration_text(name, one) for one in value]
    if not texts:
        raise UsageError(f"{name} is an empty list; give one duration, or one per stage")
    return ",".join(texts)


def size_text(name: str, value: Size | None) -> str:
    """The size as the library reads it; empty for None."""
    if value is None:
        return ""
    return _text(name, value, "B", "a size", "24GiB", "bytes")


def _text(name: str, value: object, unit: str, what: str, example: str, whole: str) -> str:
    if isinstance(value, str):
        if not value.strip():
            raise UsageError(f"{name} is empty; give {what} such as \"{example}\"")
        return value
    number = integer(value)
    if number is None:
        raise UsageError(f"{name}={value!r} is not {what}; give a text with a unit, \"{example}\", or an integer of {whole}")
    if number < 0:
        raise UsageError(f"{name}={number} is negative; give {what} of 0 or more")
    if number >= 2**63:
        raise UsageError(f"{name}={number} is too large; give {what} below 2^63 {whole}")
    return f"{number}{unit}"
