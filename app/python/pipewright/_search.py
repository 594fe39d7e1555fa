"""The search for the best plans of a model."""

from __future__ import annotations

import concurrent.futures
import json
import os
import threading
import types
from collections.abc import Sequence
from typing import Any

from . import _pipewright as native
from ._models import Attention, Path, Paths, Precision, files_of, launching, measure_options
from ._pipewright import Candidate, Plan, Profile, UsageError
from ._program import use_own_torch
from ._progress import Progress, Reports
from ._simulate import _whole
from ._units import Size, path_text, several, size_text


class SearchResult:
    """What a search found. ``best`` and ``pareto`` are lists of :class:`Candidate`; :meth:`plan` makes a plan of one."""

    def __init__(self, searched: native.Searched, top: int) -> None:
        self._searched = searched
        self._top = top

    @property
    def best(self) -> list[Candidate]:
        """The best of each combination of schedule, chunks, microbatches and recomputation, best first, at most ``top``."""
        return self._searched.best(self._top)

    @property
    def pareto(self) -> list[Candidate]:
        """Those that no other beats in both speed and memory, fastest first."""
        return self._searched.front()

    @property
    def candidates(self) -> list[Candidate]:
        """All plans that were tried: those that fit first, most samples per second first."""
        return self._searched.candidates

    @property
    def skipped(self) -> list[str]:
        """Combinations that are impossible, and why."""
        return self._searched.skipped

    @property
    def one_rank(self) -> tuple[int, int] | None:
        """The best candidate's microbatches one after the other on one rank: step [ns] and memory [bytes]; None where the model does not fit."""
        return self._searched.one_rank

    @property
    def cancelled(self) -> bool:
        """Whether the search was ended before all was tried."""
        return self._searched.cancelled

    def plan(self, candidate: Candidate | None = None) -> Plan:
        """The plan of a candidate of this search; None: the best."""
        if candidate is None:
            if not self.candidates:
                raise UsageError("the search was ended before any plan was tried; search longer")
            candidate = self.candidates[0]
        return self._searched.plan(candidate)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``pipewright search --json``."""
        document: dict[str, Any] = json.loads(self._searched.json(self._top))
        return document

    def __repr__(self) -> str:
        ended = ", ended early" if self.cancelled else ""
        return f"<SearchResult of {self._searched.model}: {len(self.candidates)} plans{ended}>"

    def _repr_html_(self) -> str:
        head = "<tr><th>schedule</th><th>stages</th><th>microbatches</th><th>recompute</th><th>step</th><th>samples/s</th>" \
               "<th>bubble</th><th>peak memory</th></tr>"
        rows = "".join(
            f"<tr><td>{c.schedule}</td><td>{c.stages}</td><td>{c.microbatches} × {c.microbatch}</td><td>{', '.join(c.recompute)}</td>"
            f"<td>{c.step_ns / 1e6:.3g} ms</td><td>{c.samples_per_second:.1f}</td><td>{100 * c.bubble:.1f} %</td>"
            f"<td>{c.peak_bytes / 2**30:.3g} GiB{'' if c.fits else ', does not fit'}</td></tr>"
            for c in self.best)
        return f"<table>{head}{rows}</table>"


def search(
    model: Paths | None = None,
    *,
    layers: Path | None = None,
    costs_from: Path | None = None,
    ranks: int,
    microbatches: Sequence[int] = (),
    batch: int = 0,
    microbatch: int = 0,
    replicas: int = 1,
    schedules: Sequence[str] = (),
    chunks: Sequence[int] = (),
    recompute: bool = True,
    profile: Profile | Path | Sequence[Profile | Path] = (),
    cluster: str | os.PathLike[str] | None = None,
    rank_order: Sequence[int] = (),
    memory_limit: Size | None = None,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    zero1: bool = False,
    loss: str | None = None,
    device: str | None = None,
    precision: Precision = "traced",
    attention: Attention = "traced",
    tf32: bool = False,
    graphs: bool = True,
    measure_threads: int = 0,
    libraries: Sequence[Path] = (),
    threads: int = 0,
    top: int = 10,
    progress: Progress | None = None,
    executor: concurrent.futures.Executor | None = None,
) -> SearchResult:
    """Searches schedules, microbatches, splits and recomputation for the fastest plans, and the front between speed and memory.

    :param model: the archive, or several.
    :param layers: instead of a model: a table of layers with their costs (``.json``, ``.csv``).
    :param costs_from: instead of a model: the file of a job (:meth:`Job.save`), whose stages are cut anew.
    :param ranks: of a pipeline.
    :param microbatches: counts to try; none: R, 2R, 4R and 8R, and all that divide the batch.
    :param batch: samples per step over all replicas; 0: the most microbatches, of the exported size.
    :param microbatch: keep this size [samples] instead of the batch.
    :param replicas: data-parallel copies of the pipeline.
    :param schedules: names to try, and ``auto``, an order made for the costs of the best splits; none: all that include backwards.
    :param chunks: stages per rank to try; none: each schedule's usual number, and twice that.
    :param recompute: also try recomputation.
    :param profile: costs: one or several :class:`Profile` or their files, of different microbatch sizes.
    :param cluster: estimate costs for this preset or file. With ``profile``, only its ranks and links are taken. With neither, costs are
        measured now at each size.
    :param rank_order: ranks in the order of the pipeline; none: the best is searched where the cluster's ranks differ.
    :param memory_limit: of a rank.
    :param optimizer: whose state is counted, with ``momentum`` and ``zero1``; ``device`` to ``libraries``: as of :func:`plan`.
    :param measure_threads: intra-op threads of measuring processes.
    :param threads: of the search; 0: one for each core. The result does not depend on it.
    :param top: length of :attr:`SearchResult.best`.
    :param progress: called as ``progress(done, all)`` with units of work, on any thread; returns False to end the search.
    :param executor: a ``concurrent.futures`` executor (also Ray's or Dask's): a part of the search for each schedule runs there, with one
        thread. Its workers need this package and the model's path; costs must be a ``cluster`` or ``profile``. The result is at least as
        good: each part moves the splits of its own best plans. ``progress`` counts parts.

    Ctrl-C in the main thread ends the search, and the best so far is the result (``cancelled``).
    """
    call = dict(locals())
    o, top = _options(call), _within("top", top, 1, 2**20)
    measures = not o.profiles and not o.profiles_at_hand and not cluster and layers is None and costs_from is None
    if executor is not None:
        if measures:
            raise UsageError("a search on an executor does not measure; give profile=pipewright.profile(…) or cluster")
        return SearchResult(_spread(o, call, executor, progress), top)
    if measures:
        use_own_torch()
    return SearchResult(_run(o, progress, measures), top)


def _options(call: dict[str, Any]) -> native.SearchOptions:
    """Those of a call of :func:`search`, by the names of its arguments."""
    c = types.SimpleNamespace(**call)
    given = [] if c.profile is None else [c.profile] if isinstance(c.profile, (Profile, str, os.PathLike)) else list(c.profile)
    o = native.SearchOptions()
    o.models, o.ranks, o.replicas = _sources(c.model, c.layers, c.costs_from), _whole("ranks", c.ranks), _whole("replicas", c.replicas)
    o.microbatches = [_whole("microbatches", count) for count in several(c.microbatches)]
    o.batch, o.microbatch = _whole("batch", c.batch), _whole("microbatch", c.microbatch)
    o.schedules, o.chunks = several(c.schedules), [_whole("chunks", count) for count in several(c.chunks)]
    o.no_recompute, o.memory_limit = not c.recompute, size_text("memory_limit", c.memory_limit)
    o.profiles = [os.fspath(one) for one in given if not isinstance(one, Profile)]
    o.profiles_at_hand = [one for one in given if isinstance(one, Profile)]
    o.cluster, o.optimizer, o.momentum, o.zero1, o.loss = path_text(c.cluster), c.optimizer, c.momentum, c.zero1, c.loss or ""
    o.threads, o.rank_order = _within("threads", c.threads, 0, 1024), [_whole("rank_order", rank) for rank in several(c.rank_order)]
    o.how = measure_options(c.device or "", c.precision, c.tf32, c.graphs, c.measure_threads, c.libraries, c.attention)
    return o


def _within(name: str, value: int, least: int, most: int) -> int:
    number = _whole(name, value)
    if not least <= number <= most:
        raise UsageError(f"{name}={number} is not from {least} to {most}")
    return number


def _sources(model: Paths | None, layers: Path | None, costs_from: Path | None) -> list[str]:
    if costs_from is not None and not native.is_job(os.fspath(costs_from)):
        raise UsageError(f"{os.fspath(costs_from)} is not a job; make one with pipewright.read_job(trace).save(file)")
    if costs_from is not None and (model is not None or layers is not None):
        raise UsageError("costs_from is instead of a model; omit model and layers")
    return files_of(model, layers, costs_from)


Part = tuple[list[Candidate], list[str], int, bool]


def _spread(
    options: native.SearchOptions, call: dict[str, Any], executor: concurrent.futures.Executor, progress: Progress | None
) -> native.Searched:
    """One part of the search per schedule on the executor; merged. An interrupt or `progress` leaves out what has not begun."""
    native.require_parts(options)  # what the merge would refuse
    names = options.schedules or [*(family.name for family in native.schedules()), "auto"]
    arguments = {name: value for name, value in call.items() if name not in ("executor", "progress", "schedules", "threads")}
    futures = [executor.submit(search_part, {**arguments, "schedules": [name], "threads": 1}) for name in names]
    parts: list[Part] = []
    cancelled = False
    try:
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            parts.append(future.result())
            if progress is not None and progress(done, len(futures)) is False:
                cancelled = True
                break
    except KeyboardInterrupt:
        cancelled = True
    finally:
        for future in futures:
            future.cancel()
    return native.merge(options, [*parts, ([], [], 0, cancelled)])


def search_part(call: dict[str, Any]) -> Part:
    """A part of a search, on a worker of an executor. A schedule that is impossible is a part without candidates."""
    options = _options(call)
    options.is_part = True
    found = _run(options, None, measures=False)
    return found.candidates, found.skipped, found.shapes, found.cancelled


def _run(options: native.SearchOptions, progress: Progress | None, measures: bool) -> native.Searched:
    """Searches; what `progress` raises ends the search and is raised from here."""
    report = Reports(progress)
    in_main = threading.current_thread() is threading.main_thread()
    held = (measures or in_main) and launching.acquire(blocking=measures)
    try:
        searched = native.search(options, report, in_main and held)
    finally:
        if held:
            launching.release()
    report.reraise()
    return searched
