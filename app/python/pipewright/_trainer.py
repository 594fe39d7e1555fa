"""Training from a script: the engine as one object of the user's own loop."""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import itertools
import json
import logging
import operator
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ._batches import by_name, export_example, leaves_of, samples_of
from ._choose import PlanRequest
from ._models import Path
from ._optimizers import kind_of, make_optimizer, numbers_of
from ._pipewright import Error, Plan, Profile, Trace, UsageError, spelled
from ._program import use_own_torch
from ._units import Size

if TYPE_CHECKING:
    import torch

    from ._batches import Batch

_log = logging.getLogger("pipewright")
_open: list[Trainer] = []
"""Not closed: they leave their jobs in good order at the end of the program."""
_joined: list[Any] = []
_numbers = itertools.count()
"""Of trainings; all ranks make them in the same order."""


@dataclasses.dataclass(frozen=True)
class TrainedStep:
    """What a callback of :class:`Trainer` gets of each step."""

    number: int
    """From 0, or from where a resumed training continues."""
    loss: float
    """The mean over the whole batch, before the update."""
    lr: float
    """The learning rate of the update, of the first group of parameters."""
    gradient_norm: float | None
    """Of the whole model before it was clipped; None without ``clip_norm``."""
    skipped: bool
    """No parameter changed, as the gradients were not finite (``skip_nonfinite``) or overflowed in fp16."""
    step_ns: int
    """From the first action of any rank to the end of the last update [ns]."""
    bubble: float
    """The part of the ranks' time in which they had nothing to compute, from 0 to 1."""
    trace: Trace
    """What every rank did, measured."""


class Trainer:
    """Trains an ``nn.Module`` with the pipeline engine, in the user's own loop.

    In a job of several processes (torchrun) every process makes the same calls with the same batches: each computes its stages of the model,
    and gets the loss. Alone, the process trains the whole model.

    :param model: taken as it is: its weights are where the training begins. It is exported (:func:`export`) and stays unchanged; see
        :meth:`update`. Rank 0's weights count.
    :param inputs: an example of the inputs of a batch, as large as each batch will be: a tensor, a tuple, or a dict by argument names.
    :param optimizer: an optimizer of torch.optim over the model's parameters (SGD, Adam, AdamW, RMSprop), its class, or its name; ``options``
        are its options (``lr=1e-3``). What its ``param_groups`` say counts at each step, so any schedule of torch.optim.lr_scheduler works;
        they may differ in ``lr`` and ``weight_decay``.
    :param loss: ``cross_entropy``, ``mse`` or ``sum`` of the model's first output, or ``output:NAME`` for a loss that the model computes.
    :param plan: how the model is split and scheduled: a :class:`Plan`, or its file; the number of its processes is the job's.
    :param ranks: split it over so many processes, the job's others are further replicas; None: as is predicted to be fastest, also not at all.
    :param microbatches: of each replica's part of a batch; 0: see :func:`plan`.
    :param schedule: of the microbatches; as are ``recompute`` and ``memory_limit`` for :func:`plan`.
    :param cluster: estimate costs for this preset or file; None: measure them, which takes some seconds.
    :param profile: costs at hand.
    :param clip_norm: the largest norm of the whole model's gradient, as ``torch.nn.utils.clip_grad_norm_`` does it.
    :param batch_dim: see :func:`export`.
    :param backend: the transport, one of those that ``pipewright devices`` lists; None: ``nccl`` if the model is on a GPU, else ``ucx``.
    :param precision: ``traced``, ``bf16`` or ``fp16``.
    :param store: SQLite file that records the run and its steps; see :class:`Store`.
    :param on_step: called with a :class:`TrainedStep` on rank 0 after each step.
    :param seed: of what the model draws (dropout); None: as the checkpoint that is resumed, or 0.
    :param resume: a checkpoint of :meth:`save` or ``run(save=…)`` to resume from.
    :param folder: where the exported model lies while it is trained; None: a temporary folder. On several hosts: one that all see.
    :param threads: of each operator; 0: as torch has it.
    :param timeout: longest wait between ranks [s]: so long it may take until a process that ended is missed, unless torchrun ends the others.
    :param start_timeout: longest time that rank 0 may take to export and plan [s].

    Leaves the job in good order with :meth:`close`, at the end of a ``with`` block, or at the end of the program.

    :raises UsageError: for a model, optimizer or plan that cannot be used, on all ranks.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Batch,
        *,
        optimizer: Any,
        loss: str | None = None,
        plan: Plan | Path | None = None,
        ranks: int | None = None,
        microbatches: int = 0,
        schedule: str = "1f1b",
        cluster: str | os.PathLike[str] | None = None,
        profile: Profile | Path | None = None,
        memory_limit: Size | None = None,
        recompute: str = "none",
        clip_norm: float | None = None,
        loss_count: str | None = None,
        batch_dim: Mapping[str, int | None] | None = None,
        backend: str | None = None,
        precision: Literal["traced", "bf16", "fp16"] = "traced",
        tf32: bool = False,
        zero1: bool = False,
        skip_nonfinite: bool = False,
        store: Path | None = None,
        log: Path | None = None,
        on_step: Callable[[TrainedStep], object] | None = None,
        resume: Path | None = None,
        folder: Path | None = None,
        seed: int | None = None,
        threads: int = 0,
        timeout: float = 120.0,
        start_timeout: float = 600.0,
        **options: Any,
    ) -> None:
        native = _native()
        self._native: Any = None
        if plan is not None:
            _refuse_beside_plan(ranks=ranks, microbatches=microbatches or None, schedule=None if schedule == "1f1b" else schedule, cluster=cluster,
                                profile=profile, memory_limit=memory_limit, recompute=None if recompute == "none" else recompute)
        self._loss = loss
        self.module = model
        self.optimizer = make_optimizer(optimizer, model.parameters(), options)
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._on_step = on_step
        self._example = by_name(inputs)
        on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        place = _job(native, float(start_timeout)).training(next(_numbers))
        self._rank: int = place.rank

        def prepare() -> str:
            """On rank 0: the exported model, its plan, and why it is so."""
            still = next((name for name, part in model.named_modules() if not part.training), None)
            if still is not None:
                raise UsageError(f"{still or 'The model'} is in eval() mode, but all of the model is trained in train() mode; call model.train()")
            where = self._folder(folder)
            archive = os.path.join(where, f"{type(model).__name__}.pt2")
            export_example(model, inputs, archive, batch_dim, operator.index(seed or 0))
            request = PlanRequest(archive, place.size, loss, microbatches, schedule, cluster, profile, memory_limit, recompute,
                               kind_of(self.optimizer), numbers_of(self.optimizer).get("momentum", 0.0), zero1, precision, tf32,
                               "cuda" if on_gpu else None, samples_of(model, inputs, batch_dim), threads or _own_threads())
            chosen, why = request.given(plan) if plan is not None else request.asked(ranks) if ranks is not None else request.best()
            path = os.path.join(where, "plan.json")
            chosen.save(path)
            return json.dumps({"plan": path, "archive": archive, "why": why})

        prepared = json.loads(_told(place, prepare))
        for what in ("plan", "archive"):
            if not os.path.exists(prepared[what]):
                raise UsageError(f"Rank {place.rank} does not see {prepared[what]} of rank 0; give folder= one that all hosts see")
        self.decision: str = prepared["why"]
        """One sentence: how the model is split, and why."""
        if place.rank == 0:
            _log.info(self.decision)
        settings = {
            "plan": prepared["plan"], "models": [prepared["archive"]], "loss": loss, "loss_count": loss_count,
            "optimizer": kind_of(self.optimizer), "numbers": numbers_of(self.optimizer, self._names), "clip_norm": clip_norm, "zero1": zero1,
            "skip_nonfinite": skip_nonfinite, "precision": precision, "tf32": tf32 or None, "seed": None if seed is None else operator.index(seed), "timeout": float(timeout),
            "threads": threads or _own_threads(), "backend": backend or ("nccl" if on_gpu else "ucx"),
            "store": _text(store), "log": _text(log), "resume": _text(resume),
        }
        self._native = native.Trainer(settings, place)
        self._inputs: list[str] = self._native.inputs()
        self._warn()
        _open.append(self)

    @property
    def plan(self) -> Plan:
        """How the model is split and scheduled."""
        return Plan.from_json(self._used().plan())

    @property
    def rank(self) -> int:
        """This process's number in the job, from 0."""
        return self._rank

    def step(self, batch: Batch, target: torch.Tensor | None = None) -> float:
        """One training step: forwards, backwards and the update.

        :param batch: the whole batch, the same on all ranks, of the form and size of the example ``inputs``.
        :param target: of ``cross_entropy`` int64 classes (-100: ignored), shaped as the output without its last dimension; of ``mse`` shaped as
            the output; else None.
        :returns: the mean loss over the batch before the update, on every rank.
        :raises UsageError: for a batch that does not fit, or that differs between ranks: on all of them, and nothing has changed.
        :raises Error: where a rank, or the connection to it, is lost, or numbers are not finite; the training is then over.
        """
        numbers = numbers_of(self.optimizer, self._names)
        figures = self._used().step(kind_of(self.optimizer), numbers, self._tensors(batch, target),
                                    self._on_step is not None and self._rank == 0)
        if getattr(self.optimizer.step, "_wrapped_by_lr_sched", False):
            _count_step(self.optimizer)
        self._warn()
        if self._on_step is not None and self._rank == 0:
            self._on_step(TrainedStep(lr=numbers["lr"], **figures))
        loss: float = figures["loss"]
        return loss

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The trained weights and buffers under the model's names, for ``load_state_dict`` and ``torch.save``: whole on every rank, on the CPU.
        All ranks call it."""
        found: dict[str, torch.Tensor] = self._used().weights()
        order = [name for name in self.module.state_dict() if name in found]
        return {name: found[name] for name in [*order, *(name for name in found if name not in set(order))]}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continues with these weights and buffers, the same on all ranks; the optimizer's state and the step count start afresh."""
        import torch

        missing = [name for name in self.module.state_dict() if name not in state]
        if missing:
            raise UsageError(f"The state lacks {missing[0]}; give all of the model's weights and buffers")
        with tempfile.TemporaryDirectory(prefix="pipewright-") as own:
            path = os.path.join(own, "state.pt")
            torch.save({name: tensor.detach().cpu() for name, tensor in state.items()}, path)
            self._used().load(path, True)
        self._warn()

    def save(self, path: Path) -> None:
        """Writes a checkpoint: weights, the optimizer's state and the number of steps, as ``run(save=…)`` does. All ranks call it; rank 0 writes."""
        self._used().save(os.fspath(path))

    def load(self, path: Path) -> None:
        """Resumes from a checkpoint of :meth:`save`, by this or another plan. All ranks call it, and see the file."""
        self._used().load(os.fspath(path), False)
        self._warn()

    def update(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """Copies the trained weights into the model that was given, or another of its kind; returns it. All ranks call it."""
        target = self.module if model is None else model
        target.load_state_dict(self.state_dict())
        return target

    def close(self) -> None:
        """Ends the training on all ranks, which all call it. A second call does nothing."""
        self._end(in_order=True)

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._end(in_order=error is None)

    def __repr__(self) -> str:
        return f"<Trainer of {type(self.module).__name__}, rank {self._rank}: {self.decision}>"

    def _used(self) -> Any:
        if self._native is None:
            raise UsageError("This trainer is closed; make another to continue")
        return self._native

    def _end(self, in_order: bool) -> None:
        ended, self._native = self._native, None
        if self in _open:
            _open.remove(self)
        if ended is not None:
            ended.close(in_order)
            self._tell(ended)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _folder(self, given: Path | None) -> str:
        if given is not None:
            os.makedirs(given, exist_ok=True)
            return os.path.abspath(given)
        self._temporary = tempfile.TemporaryDirectory(prefix="pipewright-")
        return self._temporary.name

    def _tensors(self, batch: Batch, target: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The batch by the engine's names."""
        given = by_name(batch)
        if isinstance(self._example, dict) and isinstance(given, dict):
            differing = sorted(set(given) ^ set(self._example))
            if differing:
                raise UsageError(f"The batch and the example of the inputs differ in {differing[0]}; give the same names in each")
            given = {name: given[name] for name in self._example}  # in the order of the example
        leaves = leaves_of(given)
        if len(leaves) != len(self._inputs):
            raise UsageError(f"The batch has {len(leaves)} tensors, but the model takes {len(self._inputs)}: {', '.join(self._inputs)}")
        tensors = dict(zip(self._inputs, leaves))
        if target is not None:
            if self._loss == "sum" or (self._loss or "").startswith("output:"):
                raise UsageError(f"The loss {self._loss} takes no target; call step with the batch alone")
            tensors["target"] = target
        return tensors

    def _warn(self) -> None:
        self._tell(self._native)

    def _tell(self, native: Any) -> None:
        for sentence in native.sentences():
            warnings.warn(spelled(sentence), stacklevel=3)


def _native() -> Any:
    """The part of the package that needs torch."""
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        raise Error("training needs torch in this process; install torch 2.11") from missing
    use_own_torch()
    return importlib.import_module("pipewright._pipewright_torch")


def _refuse_beside_plan(**given: object) -> None:
    """What a plan says already."""
    named = next((name for name, value in given.items() if value is not None), None)
    if named is not None:
        raise UsageError(f"{named} is for making a plan; leave it out beside plan=, which says it")


def _job(native: Any, timeout: float) -> Any:
    """This process's place in its job, which it takes once."""
    if not _joined:
        _joined.append(native.join_job(timeout))
    return _joined[0]


def keeps_meeting_place() -> bool:
    """Whether rank 0 of this process's trainings serves at MASTER_PORT, so that nothing else can meet there. Under torchrun nothing does."""
    return any(place.size > 1 for place in _joined) and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _told(place: Any, prepare: Callable[[], str]) -> str:
    """What rank 0 prepares, on all ranks; a failure of it, too."""
    if place.rank != 0:
        heard: str = place.hear()
        return heard
    try:
        text = prepare()
    except BaseException as problem:
        place.refuse(str(problem) or type(problem).__name__, isinstance(problem, UsageError))
        raise
    place.tell(text)
    return text


def _count_step(optimizer: torch.optim.Optimizer) -> None:
    """Lets schedules know that a step was done, which they ask the optimizer: one over no gradients."""
    for group in optimizer.param_groups:
        if any(parameter.grad is not None for parameter in group["params"]):
            optimizer.zero_grad()
    optimizer.step()


def _own_threads() -> int:
    import torch

    return torch.get_num_threads()


def _text(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


@atexit.register
def _close_all() -> None:
    """At the end of the program: trainings are left in good order, unless an exception ends it."""
    failed = getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None
    for trainer in list(_open):
        trainer._end(in_order=not failed)
