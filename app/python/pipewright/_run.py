"""Runs of plans: one process per rank."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal

from ._models import Path, failure_of
from ._pipewright import Plan, Trace, program, spelled
from ._program import environment
from ._store import Run, Store
from ._units import file_name, several

_OWN_NAMES = {"--load-library": "load_library"}
_ENDING_S = 30.0
"""How long the launcher may take to end its ranks after an interrupt; it needs about a second."""


class RunResult:
    """What a run gave. Its steps are in a :class:`Store`; without ``store`` in a temporary one that lives as long as this object."""

    def __init__(self, document: dict[str, Any], store: Store, temporary: str) -> None:
        self._document = document
        self._store = store
        weakref.finalize(self, shutil.rmtree, temporary, True)

    @property
    def losses(self) -> list[float]:
        """The loss of each step, before its update."""
        return [float(loss) for loss in self._document["losses"]]

    @property
    def run(self) -> Run:
        """The stored run: its plan, prediction and steps."""
        return self._store[self._document["run_id"]]

    @property
    def trace(self) -> Trace:
        """The measured step that stands for the run."""
        return self.run.trace

    @property
    def predicted(self) -> Trace:
        """The step that was predicted."""
        return self.run.predicted

    def to_dict(self) -> dict[str, Any]:
        """The document of ``pipewright run --json``: figures of each step and rank, verification, checkpoint."""
        return self._document

    def __repr__(self) -> str:
        return f"<RunResult of {self.run.plan!r}: {len(self.losses)} steps>"

    def _repr_html_(self) -> str:
        return self.run._repr_html_()


def run(
    plan: Plan | Path,
    *,
    steps: int = 1,
    store: Path | None = None,
    model: Path | Sequence[Path] = (),
    backend: str | None = None,
    precision: Literal["traced", "bf16", "fp16"] | None = None,
    synthetic: bool = False,
    backward: Literal["schedule", "dynamic"] | None = None,
    order: Literal["plan", "ready"] | None = None,
    data: Path | None = None,
    loss: str | None = None,
    loss_count: str | None = None,
    loss_over: Literal["microbatch", "batch"] | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    alpha: float | None = None,
    betas: tuple[float, float] | None = None,
    weight_decay: float | None = None,
    warmup: int | None = None,
    decay_steps: int | None = None,
    final_rate: float | None = None,
    clip_norm: float | None = None,
    zero1: bool | None = None,
    save: Path | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    resume: Path | None = None,
    reset_optimizer: bool = False,
    log: Path | None = None,
    seed: int | None = None,
    threads: int | None = None,
    timeout: float | None = None,
    load_library: Sequence[Path] = (),
    init: Literal["random"] | None = None,
    verify: bool = False,
    skip_nonfinite: bool = False,
    find_nan: bool = False,
    masked: bool = False,
    tf32: bool | None = None,
    graphs: bool | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> RunResult:
    """Executes a plan: training steps with one process per rank, measured. Needs torch, unless ``synthetic``.

    :param plan: a :class:`Plan`, or its file.
    :param steps: training steps.
    :param store: SQLite file that records the run, also one that fails; None: a temporary one.
    :param model: the model's archives, if they are no longer where the plan says.
    :param backend: the transport, one of those that ``pipewright devices`` lists; the default is ``nccl`` on GPUs, else ``ucx``.
    :param synthetic: do not compute, but take as long as the plan says, and send messages of its sizes.
    :param backward: ``schedule`` follows the plan's rows; ``dynamic`` runs its stages by remote calls and distributed autograd instead.
    :param data: a ``torch.save`` of a dict of tensors, or ``"module:function"``: a function that returns an iterable of batches, each a dict of
        tensors or ``(inputs…, target)``; None: synthetic data.
    :param optimizer: with torch.optim's arithmetic: ``sgd``, ``adam``, ``adamw``, ``rmsprop`` (default: as the plan accounts for); ``lr`` to ``final_rate`` are its settings.
    :param verify: compare the first step with one rank on the same microbatches; the result is in :meth:`RunResult.to_dict`.
    :param timeout: longest time that a wait between ranks may take [s].
    :param progress: called as ``progress(done, all)`` about once a second, with steps, on a thread of this package; what it raises ends the run
        and is raised from here.

    The others are the options of ``pipewright run`` of their names, and None leaves them at their defaults; ``pipewright run --help`` explains
    them. Warnings of the ranks become Python warnings. Ctrl-C ends the ranks and raises KeyboardInterrupt.

    :raises UsageError: for unusable options; the sentence says what would work.
    :raises Error: where the run failed: the first cause, with its rank, step and action.
    """
    options = dict(locals())
    temporary = tempfile.mkdtemp(prefix="pipewright-")
    try:
        return RunResult(*_run_in(temporary, options), temporary)
    except BaseException:
        _remove_but_flight_records(temporary)
        raise


def _remove_but_flight_records(temporary: str) -> None:
    """The sentence of a failure names these files."""
    for name in os.listdir(temporary):
        if ".flight-rank-" not in name:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(temporary, name))
    with contextlib.suppress(OSError):  # there are some
        os.rmdir(temporary)


def _run_in(temporary: str, options: dict[str, Any]) -> tuple[dict[str, Any], Store]:
    """The document of a run, and its store, with what is temporary in this folder."""
    plan, store, model, progress = (options[name] for name in ("plan", "store", "model", "progress"))
    libraries = options["load_library"]
    for name in ("plan", "store", "model", "progress", "load_library"):
        del options[name]
    path = os.path.join(temporary, "plan.json") if isinstance(plan, Plan) else file_name(plan)
    if isinstance(plan, Plan):
        plan.save(path)
    kept = file_name(store) if store is not None else os.path.join(temporary, "runs.db")
    call = [program(), "run", path, "--store", kept, "--json", "--progress", "json", *_arguments(options)]
    for archive in several(model):
        call += ["--model", file_name(archive)]
    for library in several(libraries):
        call += ["--load-library", file_name(library)]
    return json.loads(_start(call, progress, path if isinstance(plan, Plan) else None)), Store(kept)


def _arguments(options: dict[str, Any]) -> list[str]:
    """Options of the program for those of Python: `clip_norm=1` is `--clip-norm 1`."""
    call: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if name in ("tf32", "graphs", "zero1"):
            call += [] if value is None else [option if value else f"--no-{name}"]
        elif isinstance(value, bool):
            call += [option] if value else []
        elif isinstance(value, (tuple, list)):
            call += [option, ",".join(repr(float(one)) for one in value)]
        elif value is not None:
            call.append(f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return call


def _start(call: list[str], progress: Callable[[int, int], object] | None, plan: str | None) -> str:
    """Runs the program; returns what it wrote to stdout. An interrupt reaches it too, and is raised when it has ended. ``plan``: a temporary
    file, which its sentences do not name."""
    process = subprocess.Popen(call, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace")
    assert process.stdout is not None and process.stderr is not None
    complaints: list[str] = []
    raised: list[BaseException] = []

    def report(done: int, every: int) -> None:
        if progress is None or raised:
            return
        try:
            progress(done, every)
        except BaseException as error:  # stderr must be read on, or the program dies of it before it has ended its ranks
            raised.append(error)
            process.send_signal(signal.SIGINT)

    reader = threading.Thread(target=_follow, args=(process.stderr, complaints, report), daemon=True)
    reader.start()
    try:
        text = process.stdout.read()
        process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        reader.join(_ENDING_S)
        process.stdout.close()
    if raised:
        raise raised[0]
    if plan is not None:
        complaints = [line.replace(plan, "the plan") for line in complaints]
    if process.returncode == -signal.SIGINT or (process.returncode != 0 and complaints and "Interrupted;" in complaints[-1]):
        raise KeyboardInterrupt
    if process.returncode != 0:
        raise failure_of("\n".join(complaints), process.returncode, _OWN_NAMES)
    for line in complaints:
        warnings.warn(spelled(line.removeprefix("pipewright: "), _OWN_NAMES), stacklevel=3)
    return text


def _follow(stream: IO[str], complaints: list[str], progress: Callable[[int, int], None]) -> None:
    """Reads the program's stderr: progress as JSON lines, sentences, and what libraries write."""
    with stream:
        for line in stream:
            if line.startswith("{"):
                try:
                    state = json.loads(line)
                    done, every = int(state["done"]), int(state["all"])
                except (ValueError, KeyError, TypeError):
                    continue
                progress(done, every)
            elif line.startswith("pipewright: "):
                complaints.append(line.rstrip())
