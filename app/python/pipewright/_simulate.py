"""Schedules, checks of them, and predictions: all that needs no model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, Union

from . import _pipewright as native
from ._pipewright import Job, Plan, Prediction, Problem, Schedule, ScheduleFamily, UsageError
from ._units import Duration, Durations, Size, duration_list, duration_text, integer, path_text, several, size_text

Sends = Literal["overlapped", "posted", "one-channel", "blocking"]
Lowering = Literal["torch", "torch-runtime", "deferred"]
Source = Union[Schedule, Plan, str, "os.PathLike[str]"]


def schedules() -> list[ScheduleFamily]:
    """All named schedules, with what they require: as ``pipewright schedule list``."""
    return native.schedules()


def schedule(
    name: str | os.PathLike[str],
    *,
    ranks: int = 0,
    chunks: int = 0,
    microbatches: int = 0,
    group: int = 0,
    strict: bool = False,
    lowered: Lowering | None = None,
) -> Schedule:
    """A named schedule, or that of a CSV file (a name that ends in ``.csv``).

    :param name: a name of :func:`schedules`, torch's name for it (``Interleaved1F1B``), or a CSV file in torch's format.
    :param ranks: pipeline devices R, 1 to 4096; needed for a name, and refused by a file that has another number.
    :param chunks: stages per rank; 0: the schedule's usual number. The pipeline has ranks × chunks stages.
    :param microbatches: microbatches M per step.
    :param group: for ``interleaved-1f1b``: Megatron's microbatch group size; 0: as torch.
    :param strict: refuse combinations that torch refuses.
    :param lowered: add sends and receives, in torch's order, as torch's runtime lowers, or in ours; None: compute only.
    :raises UsageError: for an unknown name or an impossible combination; the sentence says what would work.
    """
    return native.schedule(os.fspath(name), _whole("ranks", ranks), _whole("chunks", chunks), _whole("microbatches", microbatches),
                           _whole("group", group), bool(strict), lowered or "")


def check(
    what: Schedule | str | os.PathLike[str], *, sends: Sequence[int] | None = None, receives: Sequence[int] | None = None
) -> list[Problem]:
    """All that is wrong with a schedule; an empty list where it is complete, well ordered and free of deadlock.

    :param what: a schedule, or a CSV file.
    :param sends: bytes that each stage sends forward per microbatch, one number per stage; with ``receives`` sizes are compared too.
    :param receives: bytes that each stage expects.
    """
    given = what if isinstance(what, Schedule) else schedule(what)
    problems = native.check(given)
    if (sends is None) != (receives is None):
        raise UsageError("sizes need both ends: give sends and receives, or neither")
    if sends is not None and receives is not None:
        problems = sorted(problems + native.check_sizes(given, list(sends), list(receives)), key=lambda p: (p.rank, p.position))
    return problems


def simulate(
    what: Source | None = None,
    *,
    forward: Durations | None = None,
    backward: Durations | None = None,
    input: Durations | None = None,
    weight: Durations | None = None,
    overlap: Durations | None = None,
    latency: Duration | None = None,
    transfer: Duration | None = None,
    load: Duration | None = None,
    store: Duration | None = None,
    costs: str | os.PathLike[str] | None = None,
    costs_from: Job | str | os.PathLike[str] | None = None,
    steps: str = "",
    layers: str | os.PathLike[str] | None = None,
    splits: Sequence[str] = (),
    cluster: str | os.PathLike[str] | None = None,
    optimizer: str | None = None,
    sends: Sends = "overlapped",
    slow: Mapping[int | tuple[int, int], float] | None = None,
    live_limit: int | Sequence[int] | None = None,
    memory_limit: Size | None = None,
    why: bool = False,
    jitter: float = 0.0,
    draws: int = 1000,
    seed: int = 1,
    ranks: int = 0,
    chunks: int = 0,
    microbatches: int = 0,
    seconds: float | None = None,
) -> Prediction:
    """Predicts one training step.

    Durations are texts with a unit (``"1.5ms"``, ``"200us"``) or integers of nanoseconds; those of stages are one value, or a list with one per
    stage. A plan has costs of its own and takes none of them.

    :param what: a schedule, its name, a plan, the file of one (``.csv``, ``.json``), or ``"auto"``: an order made for these costs and limits,
        or ``"zb-1p"``, ``"zb-2p"``: the same with the room of these schedules
        (:attr:`Prediction.schedule`; :attr:`Prediction.gap` says how good it is); None, with ``costs_from``: the job's own schedule.
    :param forward: of a stage on one microbatch (default ``"1ms"``).
    :param backward: of a stage on one microbatch (default: twice the forward).
    :param input: the part of the backward for the inputs, where the schedule splits it (default: half).
    :param weight: the part for the weights.
    :param overlap: of a forward and a backward in one slot (default: their sum).
    :param latency: from the end of an action to the arrival of its message, without the transfer.
    :param transfer: how long a message occupies its channel (one for each direction of a pair of ranks).
    :param load: lockstep schedules: loading a microbatch from the host.
    :param store: lockstep schedules: storing a result to the host.
    :param costs: a problem file (JSON) with shape, costs and limits instead of these times.
    :param costs_from: the usual times of a job (:func:`read_job`), its file or its trace instead of these times; ``steps`` are those of it
        that count, ``"5-8"``.
    :param layers: a layer table (JSON or CSV) instead of these times, cut into the schedule's stages.
    :param splits: with ``layers``: names of the layers that begin stages (default: balanced by time).
    :param cluster: with ``layers``: messages without a time of their own take as long as on this preset or file.
    :param optimizer: with ``layers``: whose state is counted (default: none).
    :param sends: in the background; when both ends are posted, with a channel for each direction or one for both; or blocking both ranks.
    :param slow: factors of ranks, ``{2: 1.5}``, and links, ``{(1, 2): 3}``.
    :param live_limit: most (stage, microbatch) pairs alive at once, of all ranks or per rank.
    :param memory_limit: of a rank, ``"24GiB"`` or bytes.
    :param why: also explain every bubble (:attr:`Prediction.bubbles`).
    :param jitter: vary each duration at random by about this fraction, 0 to 2; the distribution is in :meth:`Prediction.to_dict`.
    :param draws: how often, with ``jitter``.
    :param seed: of the random numbers of ``jitter``.
    :param ranks: with the name of a schedule, ``"auto"`` among them: pipeline devices; with ``costs`` as there.
    :param chunks: likewise: stages per rank; 0: as in ``costs``, otherwise the schedule's usual number.
    :param microbatches: likewise: per step; with ``costs`` as there.
    :param seconds: with ``"auto"``: how long the order is searched (default: 2), counted in work, so that the result is always the same.
    :raises UsageError: for unusable input, and a schedule that cannot run (:func:`check` says why).
    :raises TypeError: without ``what`` and ``costs_from``.
    """
    o = native.SubjectOptions()
    o.forward, o.backward = duration_list("forward", forward), duration_list("backward", backward)
    o.input, o.weight = duration_list("input", input), duration_list("weight", weight)
    o.overlap = duration_list("overlap", overlap)
    o.latency, o.transfer = duration_text("latency", latency), duration_text("transfer", transfer)
    o.load, o.store = duration_text("load", load), duration_text("store", store)
    o.costs = os.fspath(costs) if costs is not None else ""
    o.job = costs_from if isinstance(costs_from, Job) else None
    o.costs_from = costs_from.name if isinstance(costs_from, Job) else os.fspath(costs_from) if costs_from is not None else ""
    o.costs_from_steps = steps
    if what is None and costs_from is None:
        raise TypeError("there is nothing to simulate; give a schedule, a plan, or costs_from=, the job whose schedule to take")
    o.layers = os.fspath(layers) if layers is not None else ""
    o.splits, o.cluster, o.optimizer = several(splits), path_text(cluster), optimizer or ""
    o.memory_limit = size_text("memory_limit", memory_limit)
    if slow is not None and not isinstance(slow, Mapping):
        raise UsageError(f"slow={slow!r} is not a dict of factors; give {{2: 1.5}} for a rank, {{(1, 2): 3}} for a link")
    o.slow = [_slow(at, factor) for at, factor in (slow or {}).items()]
    if live_limit is not None:
        o.live_limit = [_whole("live_limit", n) for n in several(live_limit)]
    o.seconds = None if seconds is None else _number("seconds", seconds)
    made = what if isinstance(what, str) and what in native.made_schedules() else None
    if what is None:
        o.shape = (_whole("ranks", ranks), _whole("chunks", chunks), _whole("microbatches", microbatches))
    elif made is not None:
        o.schedule = made
        o.shape = (_whole("ranks", ranks), _whole("chunks", chunks), _whole("microbatches", microbatches))
    source = None if what is None or made is not None else _source(what, ranks, chunks, microbatches)
    return native.simulate(source, o, sends, why, _number("jitter", jitter), _whole("draws", draws), _whole("seed", seed))


def _source(what: Source, ranks: int, chunks: int, microbatches: int) -> Schedule | Plan:
    shaped = bool(ranks or chunks or microbatches)
    if not isinstance(what, (Schedule, Plan)):
        path = os.fspath(what)
        if not path.endswith(".json"):
            return schedule(path, ranks=ranks, chunks=chunks, microbatches=microbatches)
        what = path if shaped else Plan.load(path)
    if shaped or isinstance(what, str):
        raise UsageError("ranks, chunks and microbatches are for a schedule that is given by its name; any other has its own")
    return what


def _slow(at: int | tuple[int, int], factor: float) -> str:
    ranks = [_whole("slow", rank) for rank in several(at)]
    if not 1 <= len(ranks) <= 2:
        raise UsageError(f"slow has {at!r}; give a rank, 2, or the two of a link, (1, 2)")
    return f"{'-'.join(str(rank) for rank in ranks)}={_number('slow', factor)!r}"


def _number(name: str, value: float) -> float:
    try:
        return float(value + 0.0)
    except TypeError:
        raise UsageError(f"{name}={value!r} is not a number") from None


def _count(name: str, value: int) -> int:
    """A number of things, of which 0 is not given."""
    if _whole(name, value) < 0:
        raise UsageError(f"{name}={value} is below 0; give a number of 1 or more, or omit it")
    return _whole(name, value)


def _whole(name: str, value: int) -> int:
    """A number that fits the library; its range is checked there."""
    number = integer(value)
    if number is None:
        raise UsageError(f"{name}={value!r} is not an integer")
    if not -(2**31) <= number < 2**31:
        raise UsageError(f"{name}={number} is out of range")
    return number
