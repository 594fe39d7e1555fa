"""How a trainer plans: as it is told, or what is predicted to take the least time."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal

from ._models import Path
from ._models import plan as make_plan
from ._pipewright import Plan, Profile, TooLargeError, UsageError
from ._simulate import simulate
from ._units import Size


@dataclasses.dataclass(frozen=True)
class PlanRequest:
    """What rank 0 of a trainer knows when it plans."""

    archive: str
    world: int
    loss: str | None
    microbatches: int
    schedule: str
    cluster: str | os.PathLike[str] | None
    profile: Profile | Path | None
    memory_limit: Size | None
    recompute: str
    optimizer: str
    momentum: float
    zero1: bool
    precision: Literal["traced", "bf16", "fp16"]
    tf32: bool
    device: str | None
    batch: int
    threads: int

    def given(self, plan: Plan | Path) -> tuple[Plan, str]:
        """The user's own plan."""
        chosen = plan if isinstance(plan, Plan) else Plan.load(os.fspath(plan))
        if chosen.world_size != self.world:
            raise UsageError(f"The plan is for {chosen.world_size} processes, and the job has {self.world}; start as many, or plan for these")
        return chosen, f"Trains by the given plan: {_words(chosen)}."

    def asked(self, ranks: int) -> tuple[Plan, str]:
        """A plan for so many ranks."""
        if ranks < 1 or self.world % ranks != 0:
            raise UsageError(f"ranks={ranks} does not divide the job's {self.world} processes; start a multiple of {ranks}")
        chosen = self.plan(ranks, self.world // ranks)
        return chosen, f"Trains as asked: {_words(chosen)}."

    def best(self) -> tuple[Plan, str]:
        """The whole model on each process, or split over all: what is predicted to take less time, and fits."""
        if self.world == 1:
            return self.plan(1, 1), "Trains in one process."
        try:
            whole: Plan | None = self.plan(1, self.world)
            problem = ""
        except TooLargeError as refused:
            whole, problem = None, str(refused)
        split = self.plan(self.world, 1)
        if whole is None:
            return split, f"Trains {_words(split)}, as the whole model does not fit one process ({problem.rstrip('.')})."
        times = simulate(whole).step_ns, simulate(split).step_ns
        shown = f"a step is predicted to take {times[0] / 1e6:.3g} ms not split and {times[1] / 1e6:.3g} ms split"
        return (split, f"Trains {_words(split)}: {shown}.") if times[1] < times[0] else (whole, f"Trains {_words(whole)}: {shown}.")

    def plan(self, ranks: int, replicas: int) -> Plan:
        """A plan of this form; its costs are estimated or measured."""
        limit = self.memory_limit
        if limit is None and self.device is not None:
            import torch

            limit = torch.cuda.get_device_properties(0).total_memory
        microbatches = self.microbatches or (1 if ranks == 1 else 0)
        measures = self.cluster is None and self.profile is None
        return make_plan(self.archive, ranks=ranks, replicas=replicas, microbatches=microbatches, batch=self.batch, schedule=self.schedule,
                         cluster=self.cluster, profile=self.profile, memory_limit=limit, recompute=self.recompute,
                         optimizer=self.optimizer, momentum=self.momentum, zero1=self.zero1 and replicas > 1, loss=self.loss,
                         precision=self.precision, tf32=self.tf32 and measures, device=self.device if measures else None,
                         threads=self.threads if measures else 0)


def _words(plan: Plan) -> str:
    """``split over 2 ranks, 4 microbatches``"""
    ranks = "not split" if plan.ranks == 1 else f"split over {plan.ranks} ranks"
    copies = f", {plan.replicas} replicas" if plan.replicas > 1 else ""
    return f"{ranks}{copies}, {plan.microbatches} microbatches" if plan.microbatches > 1 else f"{ranks}{copies}"
