"""Studies: every combination of lists and ranges, predicted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _pipewright as native
from ._models import Path
from ._pipewright import UsageError
from ._progress import Progress, Reports
from ._simulate import _whole
from ._units import integer

if TYPE_CHECKING:
    import pandas


class Study:
    """The results of a study; ``Study(path)`` opens those that :func:`study` or ``pipewright search --study`` wrote.

    A row is a dict with the columns of the file (``schedule``, ``ranks``, ``step_ns``, ``peak_bytes``, …).
    """

    def __init__(self, path: Path | native.StudyStore) -> None:
        self._native = path if isinstance(path, native.StudyStore) else native.StudyStore(os.fspath(path))

    @property
    def definition(self) -> dict[str, Any]:
        """The lists and ranges that it combines."""
        definition: dict[str, Any] = json.loads(self._native.text)
        return definition

    @property
    def points(self) -> int:
        """How many combinations there are."""
        return self._native.points

    @property
    def done(self) -> int:
        """How many of them are predicted, fitting or not."""
        return self._native.counts()[0]

    @property
    def fitting(self) -> int:
        """How many of them have a plan within the memory limit."""
        return self._native.counts()[1]

    def rows(self) -> list[dict[str, Any]]:
        """All predicted points, in the order of the study; ``problem`` is empty where there is a plan."""
        return self._native.rows()

    def best(self, most: int = 10) -> list[dict[str, Any]]:
        """Of each model the plans that fit with the most samples per second, best first."""
        return self._native.best(_whole("most", most))

    def best_of_ranks(self) -> list[dict[str, Any]]:
        """The best of each number of ranks (of all replicas), fewest first."""
        return self._native.best_of_ranks()

    def problems(self, most: int = 10) -> list[tuple[str, int]]:
        """Why points have no plan, with how many, the most frequent first."""
        return self._native.problems(_whole("most", most))

    def merge(self, part: Study | Path) -> None:
        """Adds the points of another part of the same study."""
        self._native.merge((part if isinstance(part, Study) else Study(part))._native)

    def to_dataframe(self) -> pandas.DataFrame:
        """All rows as a pandas table; ImportError where there is no pandas."""
        import pandas

        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        done, fit, too_large, impossible = self._native.counts()
        return f"<Study: {done} of {self.points} points; {fit} fit, {too_large} need too much memory, {impossible} are impossible>"


def study(
    what: Path | Mapping[str, Any],
    *,
    out: Path | None = None,
    shard: str | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> Study:
    """Predicts every combination of the values of a study.

    :param what: a study file (``.json``), or the same as a dict: ``{"model": "gpt.pt2", "cluster": "h100-nvlink", "ranks": [2, 4],
        "microbatches": {"from": 4, "to": 32, "times": 2}, "schedule": ["1f1b", "auto"]}``. A file's paths are relative to the file, those
        of a dict to the current folder.
    :param out: SQLite file for the results as they come; points that it has already are not predicted again. None: in memory.
    :param shard: only one of every N points, ``"I/N"``, for several processes with an ``out`` each; :meth:`Study.merge` joins them.
    :param threads: 0: one for each core.
    :param progress: called as ``progress(done, all)`` with points of this shard, on any thread; returns False to end early.

    Ctrl-C in the main thread ends the study (``KeyboardInterrupt``); ``out`` keeps what is done, and the same call resumes it.
    """
    if isinstance(what, Mapping):
        text, source, folder = json.dumps({"version": 1, **{name: _plain(value) for name, value in what.items()}}), "the study", ""
    else:
        source = os.fspath(what)
        folder = os.path.dirname(source)
        try:
            with open(source, encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            raise UsageError(f"cannot read the study {source}: {getattr(problem, 'strerror', None) or 'it is not text'}") from None
    if shard and out is None:
        raise UsageError("a shard needs a file for its results; give out")
    report = Reports(progress)
    path = ":memory:" if out is None else os.fspath(out)
    store = native.study(text, source, path, folder, shard or "", _whole("threads", threads), report)
    report.reraise()
    return Study(store)


def _plain(value: Any) -> Any:
    """A value as JSON has it: paths as texts, ranges and tuples as lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    number = integer(value)
    return value if number is None else number
