"""Runs that were stored, and comparisons."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from . import _pipewright as native
from ._pipewright import Plan, Prediction, RunSummary, Trace, UsageError
from ._units import integer


class Run:
    """A stored run. What is large (losses of all steps, traces) is read on access."""

    def __init__(self, store: Store, record: native.RunRecord) -> None:
        self._store = store
        self._record = record

    @property
    def id(self) -> int:
        """Its number in the store."""
        return self._record.id

    @property
    def plan(self) -> Plan:
        """What was run."""
        return self._record.plan

    @property
    def predicted(self) -> Trace:
        """The step that was predicted for this run."""
        return self._record.predicted

    @property
    def started_at(self) -> str:
        """UTC, ISO 8601."""
        return self._record.started_at

    @property
    def backend(self) -> str:
        """How its ranks exchanged messages: the name of a transport, like ``ucx``."""
        return self._record.backend

    @property
    def state(self) -> str:
        """``completed``, ``failed`` or ``unfinished``."""
        return self._record.state

    @property
    def failure(self) -> str:
        """Why it failed, one sentence; empty where it completed."""
        return self._record.failure

    @property
    def seed(self) -> int:
        """Of data, dropout and drawn weights."""
        return self._record.seed

    @property
    def facts(self) -> dict[str, str]:
        """How it was computed, by the store's columns: precision, optimizer, …."""
        return self._record.facts

    @property
    def losses(self) -> list[float]:
        """The loss of each step, before its update."""
        return self._store._native.losses(self.id)

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps, as training counted them."""
        return self._store._native.step_numbers(self.id, 2**31 - 1)

    @property
    def trace(self) -> Trace:
        """The step that stands for the run: the median of those after the first, which warms up."""
        return self.step(None)

    def step(self, number: int | None) -> Trace:
        """What was measured in the step of this number; None: the one that stands for the run."""
        return self._store._native.trace(self._record, number)

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.plan!r}, {self.state}>"

    def _repr_html_(self) -> str:
        return self.trace._html_part(f"run {self.id}: {self.plan.model}, {self.plan.schedule.name}, measured")


class Store:
    """Runs in a file of ``pipewright run --store`` or :func:`run`; read only, and safe while a run is writing it.

        >>> store = pw.Store("runs.db")
        >>> store[-1].losses      # of the newest run
        >>> store[1].trace        # run number 1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if not os.path.exists(self.path):
            raise UsageError(f"there is no file {self.path}; give the path of a run store")
        self._native = native.RunStore(self.path)

    @property
    def runs(self) -> list[RunSummary]:
        """All runs, oldest first, without plans and traces."""
        return self._native.runs()

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return (self[summary.id] for summary in self.runs)

    def __getitem__(self, number: int) -> Run:
        """The run of this number, from 1; -1: the newest, -2: the one before."""
        run = integer(number)
        if run is None:
            raise TypeError(f"a run has a number, not {number!r}")
        if run < 0:
            runs = self.runs
            if -run > len(runs):
                raise IndexError(f"{self.path} has {len(runs)} runs")
            run = runs[run].id
        return Run(self, self._native.load(run))

    def __repr__(self) -> str:
        return f"<Store {self.path}: {len(self)} runs>"


class Comparison:
    """Where two steps differ. Errors are signed fractions, (after − before) / before: above 0 took longer."""

    def __init__(self, verdict: native.Verdict, before: str, after: str, happened: bool = True) -> None:
        self._verdict = verdict
        self._names = (before, after)
        self._happened = happened

    @property
    def makespan_error(self) -> float:
        """Of the time from the first to the last compute action."""
        return self._verdict.makespan_error

    @property
    def step_error(self) -> float:
        """Of the whole step, with optimizer and reductions."""
        return self._verdict.step_error

    @property
    def action_error(self) -> float:
        """Mean distance of the starts of matched actions, as a fraction of the second makespan."""
        return self._verdict.action_error

    @property
    def matched(self) -> int:
        """Compute actions that both have."""
        return self._verdict.matched

    @property
    def matched_split(self) -> int:
        """Of them, backwards that are whole (B) in one and split (I and W) in the other: the B and the I."""
        return self._verdict.matched_split

    @property
    def unmatched(self) -> int:
        """Compute actions that only one of them has."""
        return self._verdict.unmatched

    @property
    def same_splits(self) -> bool:
        """Whether both cut the model at the same places; if not, their stages are not compared. A trace does not say it, and counts as same."""
        return self._verdict.same_splits

    @property
    def reduction_waits_ns(self) -> tuple[int, int]:
        """How long all ranks of each waited for others to begin reductions of gradients, which count from then on: before, after."""
        return self._verdict.before_reduction_waits_ns, self._verdict.after_reduction_waits_ns

    @property
    def sentence(self) -> str:
        """How large the difference is, and where most of it comes from."""
        return self._verdict.sentence(*self._names, self._happened)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``pipewright compare --json``, without the runs' numbers."""
        document: dict[str, Any] = json.loads(self._verdict.json(self.sentence))
        return document

    def __repr__(self) -> str:
        return f"<Comparison: {self.sentence}>"


def compare(before: Run | Trace | Prediction, after: Run | Trace | Prediction | None = None) -> Comparison:
    """Compares two steps by rank, kind, stage and microbatch of their actions.

    :param before: the reference: a run, a trace or a prediction. A run alone is compared with its own prediction.
    :param after: the other one. A run is represented by its median step after the first.
    """
    if after is None:
        if not isinstance(before, Run):
            raise UsageError("a trace or prediction is compared with another one; give two, or a run")
        words = ("its prediction", "the rehearsal") if before.facts["synthetic"] == "yes" else ("", "")
        return Comparison(native.judge_run(before._record, before.trace), *words)
    names = ["" if isinstance(one, (Trace, Prediction)) else f"run {one.id}" for one in (before, after)]
    if names[0] == names[1] == "" and not (isinstance(before, Prediction) and isinstance(after, Trace)):
        names = ["the first", "the second"]
    elif "" in names and names != ["", ""]:
        names = [name or ("the prediction" if isinstance(one, Prediction) else "the trace") for name, one in zip(names, (before, after))]
    happened = not (isinstance(before, Prediction) and isinstance(after, Prediction))
    verdict = native.judge(_trace_of(before), _trace_of(after), _cut_of(before), _cut_of(after))
    return Comparison(verdict, names[0], names[1], happened)


def _cut_of(one: Run | Trace | Prediction) -> native.ModelCut | None:
    if isinstance(one, Trace):
        return None
    return one._cut if isinstance(one, Prediction) else one.plan._cut


def _trace_of(one: Run | Trace | Prediction) -> Trace:
    return one if isinstance(one, Trace) else one.trace
