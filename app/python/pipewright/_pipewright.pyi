"""The extension module: classes and functions of the library, as the Python files of the package use them."""

import os
from collections.abc import Callable
from typing import Any

import pandas

__version__: str

class Error(RuntimeError):
    """Something is wrong with the world or the call: a file, a model, a rank. One sentence that names the thing, the place and the cure."""

class UsageError(Error):
    """The caller's input is wrong: an unknown name, a value out of range, an unusable file."""

class TooLargeError(Error):
    """No plan was made, because a rank would need more memory than the limit."""

def spelled(sentence: str, own: dict[str, str] = ...) -> str:
    """An error of the program as this package says it: ``memory_limit`` for ``--memory-limit``."""

def program() -> str: ...
def resource_folder() -> str: ...
def is_installed() -> bool: ...

class Schedule:
    """Which rank does what in which order, in one training step. Two are equal if their names, placements and actions are."""

    @property
    def name(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def placement(self) -> str:
        """``loop``, ``v``, ``wave``, ``bidirectional`` or ``custom``."""
    @property
    def rank_of_stage(self) -> list[int]:
        """The rank of each stage (of a bidirectional placement: of its first replica)."""
    @property
    def is_lowered(self) -> bool:
        """Whether it has sends and receives."""
    @property
    def rows(self) -> list[list[str]]:
        """The actions of each rank in torch's notation: ``2F0`` is the forward of stage 2 on microbatch 0; empty: an idle cell."""
    def to_csv(self, *, letters: str = "torch") -> str:
        """In torch's CSV format. ``letters="zero-bubble"``: B is the backward's part for the inputs."""
    @staticmethod
    def from_csv(text: str, *, name: str = "custom", letters: str = "torch") -> Schedule: ...
    def lowered(self, order: str = "deferred") -> Schedule:
        """With sends and receives: ``deferred`` (ours), ``torch`` or ``torch-runtime``."""
    def _repr_html_(self) -> str: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class ScheduleFamily:
    """A named schedule: what it requires, where its rule comes from."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def needs(self) -> str: ...
    @property
    def chunks(self) -> int:
        """Stages per rank, where they are not given."""
    @property
    def placement(self) -> str: ...
    @property
    def torch_name(self) -> str:
        """torch's class that generates the same cells; empty: none."""

class Problem:
    """One thing wrong with a schedule."""

    @property
    def rank(self) -> int: ...
    @property
    def position(self) -> int:
        """In the rank's row; -1: something is missing from the row."""
    @property
    def action(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def stops(self) -> str:
        """Where it stops a run: ``always``, ``one_channel``, ``blocking_sends`` or ``nothing``."""

class Span:
    """One interval on a lane of a rank."""

    @property
    def rank(self) -> int: ...
    @property
    def kind(self) -> str:
        """``F``, ``B``, ``I``, ``W``, ``SEND_F``, ``SEND_B``, ``WAIT_F``, ``WAIT_B``, ``REDUCE_GRAD``, ``OPTIMIZER``, ``LOAD``, ``STORE``."""
    @property
    def stage(self) -> int:
        """-1 where it belongs to the whole rank."""
    @property
    def microbatch(self) -> int:
        """-1 of reductions and the optimizer."""
    @property
    def peer(self) -> int:
        """The receiver of a message; else the rank."""
    @property
    def bytes(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class RankFigures:
    """What one rank did in a step."""

    @property
    def rank(self) -> int: ...
    @property
    def busy_ns(self) -> int:
        """In forwards and backwards."""
    @property
    def idle_ns(self) -> int:
        """The makespan without ``busy_ns``."""
    @property
    def exposed_ns(self) -> int:
        """Of it with a message to this rank in flight."""
    @property
    def peak_bytes(self) -> int: ...
    @property
    def peak_live(self) -> int:
        """Most (stage, microbatch) pairs alive at once."""

class Trace:
    """What happened, or is predicted to happen, in one training step: spans and memory. A notebook shows it as a timeline."""

    @property
    def ranks(self) -> int: ...
    @property
    def spans(self) -> list[Span]:
        """By start, rank and end."""
    @property
    def memory(self) -> list[tuple[int, int, int]]:
        """(rank, time [ns], bytes from then on), by rank and time."""
    @property
    def makespan_ns(self) -> int:
        """From the first start to the last end of a compute action."""
    @property
    def window_ns(self) -> int:
        """The longest time from first start to last end on one rank."""
    @property
    def step_ns(self) -> int:
        """With reductions and optimizer."""
    @property
    def bubble(self) -> float:
        """Idle time of all ranks within the makespan, as a fraction of it."""
    @property
    def by_rank(self) -> list[RankFigures]: ...
    def columns(self) -> dict[str, list[Any]]:
        """The spans as columns of equal length: rank, kind, stage, microbatch, peer, bytes, start_ns, end_ns."""
    def to_dataframe(self) -> pandas.DataFrame:
        """The same as a pandas table; ImportError where there is no pandas."""
    def save(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes a file in the format of its extension: .json (Perfetto), .svg, .html or .csv."""
    def to_csv(self) -> str: ...
    @staticmethod
    def from_csv(text: str) -> Trace: ...
    def to_chrome(self, title: str = "step") -> str:
        """JSON for Perfetto and chrome://tracing."""
    def to_svg(self, title: str = "", *, width: int = 1200) -> str:
        """A drawing for papers and pages; ``width`` in pixels, 400 to 10,000."""
    def to_html(self, title: str = "") -> str:
        """A page with the drawing and tooltips, in one text without references."""
    def _repr_html_(self) -> str: ...
    def _html_part(self, title: str) -> str: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class ModelCut:
    """Where a plan cuts its model into stages."""

class Plan:
    """A model cut into stages and scheduled: what is needed to run and to predict it. A value with a JSON form."""

    @property
    def _cut(self) -> ModelCut | None: ...
    @property
    def model(self) -> str: ...
    @property
    def model_files(self) -> list[str]: ...
    @property
    def ranks(self) -> int:
        """Of one pipeline."""
    @property
    def stages(self) -> int: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def world_size(self) -> int:
        """Ranks of all replicas."""
    @property
    def replicas(self) -> int: ...
    @property
    def microbatch(self) -> int:
        """Samples in a full microbatch."""
    @property
    def batch(self) -> int:
        """Samples per step, of all replicas."""
    @property
    def loss(self) -> str: ...
    @property
    def splits(self) -> list[str]:
        """How each stage after the first begins."""
    @property
    def schedule(self) -> Schedule:
        """Lowered."""
    @property
    def optimizer(self) -> str:
        """Whose state its memory was checked with; empty: not known."""
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Plan: ...
    def _repr_html_(self) -> str: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class Profile:
    """Measured or estimated costs of each operator of a model at one microbatch size."""

    @property
    def model(self) -> str: ...
    @property
    def microbatch(self) -> int:
        """Samples."""
    @property
    def estimated(self) -> bool: ...
    @property
    def source(self) -> str:
        """Where the costs come from, in words."""
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Profile: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Profile: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class Prediction:
    """What is predicted of one training step. A notebook shows it as a timeline."""

    @property
    def makespan_ns(self) -> int:
        """From the first start to the last end of a compute action."""
    @property
    def window_ns(self) -> int:
        """The longest time from first start to last end on one rank."""
    @property
    def step_ns(self) -> int:
        """With reductions and optimizer."""
    @property
    def bubble(self) -> float:
        """Idle time of all ranks within the makespan, as a fraction of it."""
    @property
    def bubble_in_window(self) -> float:
        """1 − the busiest rank's time / window."""
    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: the FLOPs of forward and backward, of what the ranks do in the step at their peak; None where not known."""
    @property
    def period_ns(self) -> int:
        """Per microbatch in the steady state; 0: there is none."""
    @property
    def lower_bound_ns(self) -> int:
        """A makespan that no order of these actions beats; 0 where a limit is exceeded."""
    @property
    def by_rank(self) -> list[RankFigures]: ...
    @property
    def fits(self) -> bool:
        """Whether it keeps the limits that were given."""
    @property
    def excess(self) -> str:
        """The first rank that exceeds a limit, in words; empty where all fit."""
    @property
    def bubbles(self) -> list[str]:
        """Why each rank waits, one sentence per bubble; empty without ``why=True``."""
    @property
    def idle_by_cause(self) -> list[dict[str, int]]:
        """Each rank's idle time [ns] by cause: ``start-up``, ``imbalance``, ``drain``, ``message``, whose sum is all of it; and
        ``work ready``: how much of it passes although an action that the row computes later has all it needs."""
    @property
    def schedule(self) -> Schedule:
        """What was simulated."""
    @property
    def gap(self) -> float | None:
        """Of an order made for these costs (``"auto"``): a better one can be faster by at most this part of the time; 0: it is proven optimal."""
    @property
    def trace(self) -> Trace: ...
    @property
    def _cut(self) -> ModelCut | None: ...
    @property
    def costs(self) -> str:
        """Where the costs come from, in words."""
    def memory(self) -> list[dict[str, Any]]:
        """What each rank holds at its peak: ``rank``, ``peak_bytes``, ``at`` (the action) and ``parts`` (``kind``, ``stage``, ``microbatches``,
        ``bytes``), largest first; their sum is the peak."""
    def sensitivity(self, change: float = 0.1) -> list[tuple[str, int, int, int]]:
        """What the makespan depends on, largest effect first: ``("stage 2", on_path_ns, faster_ns, slower_ns)`` and ``("link 0–1", …)``: its time
        on the critical path, and the makespans where it takes this part less and more."""
    def limit_sensitivity(self, change: float = 0.1) -> list[tuple[int | None, int, int, int | None]]:
        """Of an order made for limits (``"auto"``): ``(rank, now_ns, more_ns, less_ns)``, its time now and with orders found anew where that
        rank's memory or live limit (None: every rank's) is larger and smaller by this part; ``less_ns`` is None where nothing fits."""
    def to_dict(self) -> dict[str, Any]:
        """The document of ``pipewright simulate --json``."""
    def _repr_html_(self) -> str: ...

class Candidate:
    """A plan that a search tried."""

    @property
    def schedule(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def microbatch(self) -> int:
        """Samples in a microbatch."""
    @property
    def recompute(self) -> list[str]: ...
    @property
    def rank_order(self) -> list[int]:
        """The ranks along the pipeline; empty: as numbered."""
    @property
    def balance(self) -> str:
        """What its splits balance: ``time``, ``memory``, ``parameters``, ``layers``, or ``marks`` of the model."""
    @property
    def moves(self) -> int:
        """Splits that were moved from there."""
    @property
    def step_ns(self) -> int: ...
    @property
    def makespan_ns(self) -> int: ...
    @property
    def bubble(self) -> float: ...
    @property
    def peak_bytes(self) -> int:
        """Of the rank that needs the most."""
    @property
    def fits(self) -> bool: ...
    @property
    def samples_per_second(self) -> float: ...
    @property
    def gap(self) -> float | None:
        """Of an order made for these costs (``"auto"``): a better one can be faster by at most this part of the makespan; else None."""
    @property
    def scaled_costs(self) -> bool:
        """Its costs are those of another microbatch size, scaled."""
    @property
    def on_front(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    __hash__ = None  # type: ignore[assignment]

class RunSummary:
    """A run as a list shows it."""

    @property
    def id(self) -> int: ...
    @property
    def started_at(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def schedule(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def failure(self) -> str: ...
    @property
    def ranks(self) -> int: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def predicted_step_ns(self) -> int: ...
    @property
    def measured_step_ns(self) -> int:
        """Of the median step after the first."""
    @property
    def state(self) -> str:
        """``completed``, ``failed`` or ``unfinished``."""
    @property
    def facts(self) -> dict[str, str]: ...

# What only the package's own files use.

class Job:
    """Schedule and measured times of somebody's training job: :func:`read_job` makes it of traces."""

    @property
    def name(self) -> str: ...
    @property
    def replicas(self) -> int: ...
    @property
    def tensor(self) -> int:
        """Ranks of a tensor-parallel group."""
    @property
    def schedule(self) -> Schedule:
        """Of one pipeline, without messages."""
    @property
    def steps(self) -> list[tuple[str, int]]:
        """Name and time [ns] of each."""
    @property
    def notes(self) -> list[str]:
        """What was missing or contradictory in the traces."""
    @property
    def times(self) -> str:
        """What the times of its steps are: ``measured``, ``rehearsed`` or ``predicted``."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """As JSON, for :func:`read_job` and every command that takes a job."""

class JobOptions:
    paths: list[str]
    store: str
    run: int
    steps: str
    patterns: str

class LayoutOptions:
    layout: str
    ranks: int
    chunks: int
    microbatches: int
    group: int
    num_layers: int | None
    mtp_num_layers: int | None
    table: str
    cluster: str
    optimizer: str

class SubjectOptions:
    forward: str
    backward: str
    input: str
    weight: str
    overlap: str
    latency: str
    transfer: str
    load: str
    store: str
    costs: str
    costs_from: str
    costs_from_steps: str
    job: Job | None
    layers: str
    splits: list[str]
    cluster: str
    optimizer: str
    memory_limit: str
    live_limit: list[int]
    slow: list[str]
    schedule: str
    shape: tuple[int, int, int]
    seconds: float | None

class MeasureOptions:
    device: str
    precision: str
    attention: str
    tf32: bool
    no_graphs: bool
    threads: int
    libraries: list[str]

class PlanOptions:
    models: list[str]
    schedule: str
    seconds: float | None
    ranks: int
    chunks: int
    microbatches: int
    microbatch: int
    batch: int
    replicas: int
    splits: list[str]
    balance: str | None
    profile: str
    profile_at_hand: Profile | None
    cluster: str
    rank_order: list[int]
    same_splits: bool
    memory_limit: str
    recompute: list[str]
    share: str
    optimizer: str
    momentum: float
    zero1: bool
    loss: str
    how: MeasureOptions

class SearchOptions:
    models: list[str]
    ranks: int
    replicas: int
    microbatches: list[int]
    batch: int
    microbatch: int
    rank_order: list[int]
    memory_limit: str
    schedules: list[str]
    chunks: list[int]
    no_recompute: bool
    profiles: list[str]
    profiles_at_hand: list[Profile]
    cluster: str
    optimizer: str
    momentum: float
    zero1: bool
    loss: str
    threads: int
    is_part: bool
    how: MeasureOptions

class Searched:
    @property
    def model(self) -> str: ...
    @property
    def candidates(self) -> list[Candidate]: ...
    @property
    def skipped(self) -> list[str]: ...
    @property
    def shapes(self) -> int: ...
    @property
    def one_rank(self) -> tuple[int, int] | None: ...
    @property
    def cancelled(self) -> bool: ...
    def best(self, most: int) -> list[Candidate]: ...
    def front(self) -> list[Candidate]: ...
    def plan(self, candidate: Candidate) -> Plan: ...
    def json(self, most: int) -> str: ...

class StudyStore:
    def __init__(self, path: str) -> None: ...
    @property
    def text(self) -> str: ...
    @property
    def points(self) -> int: ...
    def counts(self) -> tuple[int, int, int, int]: ...
    def rows(self) -> list[dict[str, Any]]: ...
    def best(self, most: int) -> list[dict[str, Any]]: ...
    def best_of_ranks(self) -> list[dict[str, Any]]: ...
    def problems(self, most: int) -> list[tuple[str, int]]: ...
    def merge(self, part: StudyStore) -> None: ...

def study(
    text: str, source: str, path: str, folder: str, shard: str, threads: int, progress: Callable[[int, int], bool] | None
) -> StudyStore: ...

class RunRecord:
    @property
    def id(self) -> int: ...
    @property
    def started_at(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def failure(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def predicted(self) -> Trace: ...
    @property
    def state(self) -> str: ...
    @property
    def facts(self) -> dict[str, str]: ...

class RunStore:
    def __init__(self, path: str) -> None: ...
    @property
    def note(self) -> str: ...
    def runs(self) -> list[RunSummary]: ...
    def load(self, id: int | None) -> RunRecord: ...
    def step_numbers(self, run: int, most: int) -> list[int]: ...
    def losses(self, run: int) -> list[float]: ...
    def trace(self, run: RunRecord, step: int | None) -> Trace: ...

class Verdict:
    @property
    def makespan_error(self) -> float: ...
    @property
    def step_error(self) -> float: ...
    @property
    def action_error(self) -> float: ...
    @property
    def matched(self) -> int: ...
    @property
    def matched_split(self) -> int: ...
    @property
    def unmatched(self) -> int: ...
    @property
    def same_splits(self) -> bool: ...
    @property
    def replayed_makespan_ns(self) -> int | None: ...
    @property
    def before_reduction_waits_ns(self) -> int: ...
    @property
    def after_reduction_waits_ns(self) -> int: ...
    def sentence(self, before: str, after: str, happened: bool) -> str: ...
    def json(self, sentence: str) -> str: ...

def schedules() -> list[ScheduleFamily]: ...
def schedule(name: str, ranks: int, chunks: int, microbatches: int, group: int, strict: bool, lowered: str) -> Schedule: ...
def check(schedule: Schedule) -> list[Problem]: ...
def check_sizes(schedule: Schedule, sends: list[int], receives: list[int]) -> list[Problem]: ...
def simulate(
    what: Schedule | Plan | None, options: SubjectOptions, sends: str, why: bool, jitter: float, draws: int, seed: int
) -> Prediction: ...
def read_job(options: JobOptions, progress: Callable[[int, int], bool] | None) -> Job | None: ...
def explain(job: Job) -> str: ...
def is_job(path: str) -> bool: ...
def layout(options: LayoutOptions) -> str: ...
def hang(dumps: list[str], schedule: Schedule | None) -> str: ...
def gate(store: str, against: str, run: int, limit: float) -> str: ...
def clusters() -> list[str]: ...
def made_schedules() -> list[str]:
    """Names of orders that are made for given costs: ``auto`` and others."""

def optimizers() -> dict[str, str]:
    """The engine's names of optimizers, by those of torch.optim's classes."""

def plan(options: PlanOptions) -> Plan: ...
def profile(models: list[str], microbatch: int, ranks: int, how: MeasureOptions, loss: str, cluster: str) -> Profile: ...
def inspect(models: list[str], microbatch: int) -> str: ...
def search(options: SearchOptions, progress: Callable[[int, int], bool], interruptible: bool) -> Searched: ...
def require_parts(options: SearchOptions) -> None: ...
def merge(options: SearchOptions, parts: list[tuple[list[Candidate], list[str], int, bool]]) -> Searched: ...
def judge(before: Trace, after: Trace, cut: ModelCut | None, cut_after: ModelCut | None) -> Verdict: ...
def judge_run(run: RunRecord, measured: Trace) -> Verdict: ...
