"""Design, predict, run and compare pipeline-parallel training plans of traced PyTorch models.

    >>> import pipewright as pw
    >>> pw.simulate(pw.schedule("1f1b", ranks=4, microbatches=8), forward="1ms").bubble
    0.2727272727272727

The same functions as the program ``pipewright`` and the desktop app: schedules and predictions need no torch; profiling, running and
exporting models use the torch of this environment, in processes of their own. :mod:`pipewright.rpc`, :mod:`pipewright.autograd` and
:mod:`pipewright.optim`, which are imported by these names, make this process a worker of a job; they need torch.

Durations are texts with a unit (``"1.5ms"``) or integers of nanoseconds, and come back as integers of nanoseconds (``makespan_ns``); sizes are
texts (``"24GiB"``) or integers of bytes; fractions are from 0 to 1. What is wrong with the world or the call is an :class:`Error` with one sentence
that names the thing, the place and the cure; :class:`UsageError` is the part of it that the caller can mend, :class:`TooLargeError` a plan that
does not fit its memory limit.
"""

from . import _pipewright
from ._docs import take_from_stub
from ._export import export
from ._jobs import explain, gate, hang, layout, read_job
from ._models import clusters, inspect, plan, profile
from ._pipewright import (
    Candidate,
    Error,
    Job,
    Plan,
    Prediction,
    Problem,
    Profile,
    RankFigures,
    RunSummary,
    Schedule,
    ScheduleFamily,
    Span,
    TooLargeError,
    Trace,
    UsageError,
    __version__,
)
from ._remote_errors import RemoteError
from ._run import RunResult, run
from ._search import SearchResult, search
from ._simulate import check, schedule, schedules, simulate
from ._store import Comparison, Run, Store, compare
from ._study import Study, study
from ._trainer import TrainedStep, Trainer

take_from_stub(_pipewright)

__all__ = [
    "Candidate",
    "Comparison",
    "Error",
    "Job",
    "Plan",
    "Prediction",
    "Problem",
    "Profile",
    "RankFigures",
    "RemoteError",
    "Run",
    "RunResult",
    "RunSummary",
    "Schedule",
    "ScheduleFamily",
    "SearchResult",
    "Span",
    "Store",
    "Study",
    "TooLargeError",
    "Trace",
    "TrainedStep",
    "Trainer",
    "UsageError",
    "__version__",
    "check",
    "clusters",
    "compare",
    "explain",
    "export",
    "gate",
    "hang",
    "inspect",
    "layout",
    "plan",
    "profile",
    "read_job",
    "run",
    "schedule",
    "schedules",
    "search",
    "simulate",
    "study",
]
