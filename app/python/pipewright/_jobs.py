"""Jobs of other people: their traces, what explains them, layouts of Megatron, hangs, and gates between runs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from . import _pipewright as native
from ._models import Path
from ._pipewright import Job, Schedule, UsageError
from ._progress import Progress, Reports
from ._simulate import _count, schedule as _schedule
from ._units import path_text


def read_job(
    *traces: Path,
    store: Path | None = None,
    run: int = 0,
    steps: str = "",
    patterns: Path | None = None,
    progress: Progress | None = None,
) -> Job:
    """The job that traces are of: its schedule, and how long each action took in each step. As ``pipewright import --out``.

    :param traces: files or folders of one job (torch.profiler, Nsight Systems SQLite, Chakra, NDTimeline, Primus, ours), a job that
        :meth:`Job.save` wrote, or a plan, whose one step is predicted.
    :param store: instead: a run store, and ``run`` in it (0: the newest).
    :param steps: only these, by their numbers, ``"5-8"`` or ``"12"``; empty: all. Those that warm up are kept, and stand for nothing.
    :param patterns: a file of patterns for the names of actions in the traces (JSON, as of ``import --patterns``).
    :param progress: called as ``progress(done, all)`` with bytes read; returns False to end the reading.
    :raises UsageError: for what cannot be read, or has no whole step.
    """
    o = native.JobOptions()
    o.paths, o.store = [os.fspath(trace) for trace in traces], os.fspath(store) if store is not None else ""
    o.run, o.steps, o.patterns = _count("run", run), steps, os.fspath(patterns) if patterns is not None else ""
    report = Reports(progress)
    job = native.read_job(o, report if progress is not None else None)
    report.reraise()
    if job is None:
        raise UsageError("the reading was ended before all was read; there is no job")
    return job


def explain(what: Job | Path, *more: Path, steps: str = "", patterns: Path | None = None) -> dict[str, Any]:
    """Where the steps go, and who slows them down: the document of ``pipewright explain --json``.

    :param what: a job, or what :func:`read_job` reads.
    :param more: further traces of the same job.
    :param steps: as of :func:`read_job`, as is ``patterns``; a job at hand has its own.
    """
    if isinstance(what, Job):
        if more or steps or patterns is not None:
            raise UsageError("a job at hand has its traces and steps; give them to read_job")
        job = what
    else:
        job = read_job(what, *more, steps=steps, patterns=patterns)
    return _document(native.explain(job))


def layout(
    layout: str,
    *,
    ranks: int = 0,
    chunks: int = 0,
    microbatches: int = 0,
    group: int = 0,
    num_layers: int | None = None,
    mtp_num_layers: int | None = None,
    layers: Path | None = None,
    cluster: str | os.PathLike[str] | None = None,
    optimizer: str | None = None,
) -> dict[str, Any]:
    """What Megatron makes of a ``--pipeline-model-parallel-layout``: the document of ``pipewright layout --json``.

    :param layout: the string: ``E`` embedding, ``t`` transformer layer, ``m`` MTP layer, ``L`` loss, ``|`` ends a stage, ``x*N``, ``(...)*N``.
    :param ranks: pipeline ranks; 0: one for each stage, or by ``chunks``, the stages of each rank.
    :param microbatches: per step; 0: 4 for each rank.
    :param group: microbatches of a chunk before the next chunk's turn; 0: as many as ranks.
    :param num_layers: transformer layers that the model has; None: those of the string; ``mtp_num_layers`` likewise.
    :param layers: a layer table (JSON or CSV): predicts step, bubble and memory, with messages of ``cluster`` and the state of ``optimizer``.
    """
    o = native.LayoutOptions()
    o.layout, o.ranks, o.chunks = layout, _count("ranks", ranks), _count("chunks", chunks)
    o.microbatches, o.group = _count("microbatches", microbatches), _count("group", group)
    o.num_layers, o.mtp_num_layers = num_layers, mtp_num_layers
    o.table, o.cluster, o.optimizer = os.fspath(layers) if layers is not None else "", path_text(cluster), optimizer or ""
    return _document(native.layout(o))


def hang(dumps: Path | Sequence[Path], schedule: Schedule | Path | None = None) -> dict[str, Any]:
    """What stopped a job, from what its ranks recorded: the document of ``pipewright hang --json``.

    :param dumps: files or folders: torch's Flight Recorder as JSON, ``ncclras -f json``, flight records of :func:`run`.
    :param schedule: what the job ran, or its CSV file: names the actions, and says whether :func:`check` finds the fault.
    """
    paths = [dumps] if isinstance(dumps, (str, os.PathLike)) else list(dumps)
    given = schedule if schedule is None or isinstance(schedule, Schedule) else _schedule(schedule)
    return _document(native.hang([os.fspath(path) for path in paths], given))


def gate(store: Path, against: Path, *, run: int = 0, limit: float = 0.05) -> dict[str, Any]:
    """Whether runs got slower than a base of the same plan, and which stage: the document of ``pipewright gate --json``.

    :param store: runs to judge: those of the newest run's plan, or ``run`` alone.
    :param against: runs of the base.
    :param limit: the slow-down that matters: 0.05 is 5 %.
    """
    if not 0 < limit <= 10:
        raise UsageError(f"limit={limit} is not a share of the step from above 0 to 10; 5 % is 0.05")
    return _document(native.gate(os.fspath(store), os.fspath(against), _count("run", run), float(limit)))


def _document(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document
