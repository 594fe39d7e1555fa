"""Models: what is in them, what they cost, and how they are cut into stages."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any, Literal, Union

from . import _pipewright as native
from ._pipewright import Error, Plan, Profile, UsageError, spelled
from ._program import environment, use_own_torch
from ._simulate import _whole
from ._units import Size, file_name, path_text, several, size_text

Path = Union[str, "os.PathLike[str]"]
Paths = Union[Path, Sequence[Path]]
Precision = Literal["traced", "bf16", "fp16", "fp8"]
Attention = Literal["traced", "fused", "unfused"]

launching = threading.Lock()
"""Held while processes are measured or Ctrl-C is listened for: one at a time in a process."""


def clusters() -> list[str]:
    """Names of the cluster presets, for ``cluster=``."""
    return native.clusters()


def inspect(model: Paths, *, microbatch: int = 0, report: bool = False, try_step: bool = False) -> dict[str, Any]:
    """What is in a traced model, and where it can be split: the document of ``pipewright inspect --json``.

    :param model: a ``torch.export`` archive (``.pt2``); a list where each stage was exported on its own.
    :param microbatch: samples for FLOPs and activations; 0: as exported.
    :param report: also whether it can be split and microbatched, and what would change its results (``verdict``, ``report``).
    :param try_step: also train one step on a random batch in 1, 2 and 4 microbatches, in a process of its own (``tried``); needs torch.
    :returns: among others ``inputs``, ``outputs`` (names, dtypes, shapes), ``modules`` (paths, parameters, ``forward_flops``,
        ``activation_bytes``) and ``split_points`` (names for ``plan(splits=…)``, bytes that cross).
    """
    files = paths_of(model)
    if not report and not try_step:
        document: dict[str, Any] = json.loads(native.inspect(files, _whole("microbatch", microbatch)))
        return document
    call = [native.program(), "inspect", *files, "--json"]
    call += ["--microbatch", str(_whole("microbatch", microbatch))] if microbatch else []
    call += (["--report"] if report else []) + (["--try"] if try_step else [])
    done = subprocess.run(call, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise failure_of(done.stderr, done.returncode)
    document = json.loads(done.stdout)
    return document


def profile(
    model: Paths,
    *,
    microbatch: int = 0,
    ranks: int = 0,
    device: str | None = None,
    precision: Precision = "traced",
    attention: Attention = "traced",
    tf32: bool = False,
    graphs: bool = True,
    threads: int = 0,
    loss: str | None = None,
    cluster: str | os.PathLike[str] | None = None,
    libraries: Sequence[Path] = (),
) -> Profile:
    """Measures forward and backward time and memory of every operator, in processes of their own; or estimates them for a cluster.

    :param model: the archive, or several.
    :param microbatch: samples in a microbatch; 0: as exported.
    :param ranks: processes that compute at the same time, as in a run on one host; 0: one.
    :param device: ``cpu`` (None), ``cuda`` (one GPU per process) or ``cuda:N``.
    :param precision: compute matrix products and the like in bf16 or fp16, as the run will; of estimates also linear layers in fp8.
    :param attention: how estimates count it: as traced, all as ``fused`` kernels, or none as one (``unfused``).
    :param tf32: let GPUs round the inputs of float32 matrix products.
    :param graphs: replay CUDA graphs on GPUs instead of launching every operator.
    :param threads: intra-op threads of each process; 0: one.
    :param loss: ``cross_entropy``, ``mse``, ``sum`` or ``output:NAME``; None: the model's own.
    :param cluster: a preset of :func:`clusters`, or a file: estimate from FLOPs and bytes; nothing is run, and no torch is needed.
    :param libraries: shared libraries that define custom operators of the model.

    Takes seconds to minutes. Ctrl-C ends the processes and raises KeyboardInterrupt.
    """
    how = measure_options(device or "", precision, tf32, graphs, threads, libraries, attention)
    use_own_torch()
    with launching:
        return native.profile(paths_of(model), _whole("microbatch", microbatch), _whole("ranks", ranks), how, loss or "", path_text(cluster))


def plan(
    model: Paths | None = None,
    *,
    layers: Path | None = None,
    ranks: int = 0,
    microbatches: int = 0,
    schedule: str | os.PathLike[str] = "1f1b",
    chunks: int = 0,
    microbatch: int = 0,
    batch: int = 0,
    replicas: int = 1,
    splits: Sequence[str] = (),
    balance: Literal["time", "memory", "parameters", "layers"] | None = None,
    profile: Profile | Path | None = None,
    cluster: str | os.PathLike[str] | None = None,
    rank_order: Sequence[int] = (),
    same_splits: bool = False,
    memory_limit: Size | None = None,
    recompute: str | Sequence[str] = "none",
    share: Literal["auto", "replicate", "transmit"] = "auto",
    optimizer: str = "sgd",
    momentum: float = 0.0,
    zero1: bool = False,
    loss: str | None = None,
    device: str | None = None,
    precision: Precision = "traced",
    attention: Attention = "traced",
    tf32: bool = False,
    graphs: bool = True,
    threads: int = 0,
    libraries: Sequence[Path] = (),
    seconds: float | None = None,
) -> Plan:
    """Cuts a model into stages and schedules it. Without ``profile`` and ``cluster`` its costs are measured now, as :func:`profile` does.

    :param model: the archive, or several where each stage was exported on its own.
    :param layers: instead of a model: a table of layers with their costs (``.json``, ``.csv``).
    :param ranks: of a pipeline; 0: split points + 1, else those of a job, else one per GPU where there are several, else one per core.
    :param microbatches: per step of each replica; 0: 4 per rank, or fewer where the batch is smaller.
    :param schedule: a name of :func:`schedules`, ``auto`` (an order made for the stages' costs and the memory limit), or a CSV file.
    :param chunks: stages per rank; 0: the schedule's usual number.
    :param microbatch: samples in a full microbatch; 0: as exported.
    :param batch: samples per step over all replicas; 0: all microbatches are full.
    :param replicas: data-parallel copies of the pipeline.
    :param splits: where stages begin: ``blocks.2``, ``blocks.1:end``, ``@node`` (names of :func:`inspect`'s ``split_points``).
    :param balance: what is balanced where no splits are named; None: time, where the model has no marks of its own.
    :param profile: costs: a :class:`Profile`, or its file.
    :param cluster: estimate the costs for this preset or file; nothing is run. With ``profile``, only its ranks and links are taken.
    :param rank_order: ranks in the order of the pipeline, where the cluster's ranks differ; none: as numbered.
    :param same_splits: cut all replicas alike, also where their ranks differ and splits of their own would be faster.
    :param memory_limit: of a rank: ``"24GiB"`` or bytes.
    :param recompute: ``none``, ``full``, ``auto`` (as little as the memory limit allows), or names of modules.
    :param share: how parameters of several stages are kept equal.
    :param optimizer: whose state is counted: ``sgd``, ``adam``, ``adamw``, ``rmsprop``.
    :param momentum: of sgd and rmsprop.
    :param zero1: spread that state over the replicas.
    :param loss: ``cross_entropy``, ``mse``, ``sum`` or ``output:NAME``; None: the model's own.
    :param device: where costs are measured; None: on the CPU.
    :param precision: as of :func:`profile`, also for estimates; ``attention`` likewise.
    :param seconds: how long the order of ``auto`` is searched (default: 2), counted in work, so that the result is always the same.
    :raises Error: where a rank would need more than the memory limit.
    """
    o = native.PlanOptions()
    o.models, o.schedule, o.seconds = files_of(model, layers), os.fspath(schedule), seconds
    o.ranks, o.chunks = _whole("ranks", ranks), _whole("chunks", chunks)
    o.microbatches, o.microbatch = _whole("microbatches", microbatches), _whole("microbatch", microbatch)
    o.batch, o.replicas = _whole("batch", batch), _whole("replicas", replicas)
    o.splits, o.balance = several(splits), balance
    if isinstance(profile, Profile):
        o.profile_at_hand = profile
    elif profile is not None:
        o.profile = os.fspath(profile)
    o.rank_order = [_whole("rank_order", rank) for rank in several(rank_order)]
    o.same_splits = same_splits
    o.cluster, o.memory_limit = path_text(cluster), size_text("memory_limit", memory_limit)
    o.recompute = several(recompute)
    o.share, o.optimizer, o.momentum, o.zero1, o.loss = share, optimizer, momentum, zero1, loss or ""
    o.how = measure_options(device or "", precision, tf32, graphs, threads, libraries, attention)
    if o.cluster or profile is not None or layers is not None:
        return native.plan(o)
    use_own_torch()
    with launching:
        return native.plan(o)


def files_of(model: Paths | None, layers: Path | None, job: Path | None = None) -> list[str]:
    """The model's archives, the layer table, or the file of a job."""
    if sum(given is not None for given in (model, layers, job)) != 1:
        raise UsageError("give either a model or layers")
    return paths_of(model) if model is not None else [os.fspath(given) for given in (layers, job) if given is not None]


def paths_of(model: Paths) -> list[str]:
    """One or several files as a list."""
    files = [file_name(one) for one in several(model)]
    if not files:
        raise UsageError("model is an empty list; give the path of a .pt2 archive")
    return files


def measure_options(
    device: str, precision: str, tf32: bool, graphs: bool, threads: int, libraries: Sequence[Path], attention: str
) -> native.MeasureOptions:
    """How costs are measured, as the library takes it."""
    how = native.MeasureOptions()
    how.device, how.precision, how.tf32, how.no_graphs = device, precision, tf32, not graphs
    how.attention = attention
    how.threads, how.libraries = _whole("threads", threads), [os.fspath(library) for library in several(libraries)]
    return how


def failure_of(stderr: str, status: int, own: dict[str, str] | None = None) -> Error:
    """The error of a program that failed: its last sentence; ``own``: as of :func:`spelled`."""
    lines = [line.removeprefix("pipewright: ") for line in stderr.splitlines() if line.startswith("pipewright: ")]
    sentence = spelled(lines[-1], own or {}) if lines else f"pipewright ended with status {status}."
    return UsageError(sentence) if status == 2 else Error(sentence)
