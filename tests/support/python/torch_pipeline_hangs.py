#!/usr/bin/env python3
"""Makes the dumps in tests/data/torch_pipelines: jobs of torch.distributed.pipelining on Gloo that hang, each for a known reason.

    .deps/venv/bin/python tests/support/python/torch_pipeline_hangs.py [FOLDER] [--all] [CASE...]

The schedules are torch's own classes with all that they do at set-up: a greeting of the neighbours, and the exchange of shapes as objects.
As ProcessGroupGloo enters no message into the Flight Recorder, `isend` and `irecv` are wrapped (see torch_hangs.py); the recorder learns of
a message's end when it is waited for. A case is SCHEDULE-RANKS-FAULT-STEP, or SCHEDULExT-… where stages give T tensors, of different widths;
`--all` makes a grid of them, not only those kept as test data.

`truths.json` is made of what is done to a job and what its ranks themselves say, never of a dump: the fault, and for each rank the action
whose message failed to come, which the stage names when it makes the message. Of a job that departs from its schedule, `expected` is the
first message that a job without the fault posts there, as far as a dump can tell: messages do not say their microbatch.
"""
import datetime
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

import torch_hangs

WAIT = 2.0  # seconds that a wait may take
WIDTH, SIZE = 4, 2  # of a boundary, and of a microbatch

# Each fault: rank, or stage, is the middle one; microbatch 1 of 4, or of 2 where there are fewer microbatches than stages.
FAULTS = ("killed", "killed_in_backward", "killed_with_dump", "stopped", "stopped_in_backward", "stopped_with_dump", "missing_send",
          "missing_gradient", "wrong_size", "inverted_order", "few_microbatches", "stopped_in_set_up")
KEPT = (
    "gpipe-2-missing_send-1 gpipe-3-killed-0 gpipe-3-stopped-1 gpipe-3-few_microbatches-0 gpipe-3-stopped_in_set_up-0 "
    "gpipe-2-inverted_order-0 gpipe-2-wrong_size-0 1f1b-4-killed-0 1f1b-3-stopped_with_dump-1 1f1b-3-missing_gradient-0 "
    "1f1b-2-inverted_order-1 1f1b-3-wrong_size-1 1f1b-3-few_microbatches-0 interleaved-2-killed-0 interleaved-2-stopped_with_dump-0 "
    "interleaved-3-stopped-0 interleaved-2-missing_send-0 interleaved-2-wrong_size-0 interleaved-2-inverted_order-0 "
    "interleaved-2-few_microbatches-0 "
    "gpipex2-3-killed-0 1f1bx2-3-stopped-1 1f1bx3-3-missing_gradient-0 1f1bx2-2-inverted_order-1 interleavedx2-2-missing_send-0"
).split()


def all_cases():
    return [f"{schedule}{tensors}-{ranks}-{fault}-{step}" for schedule in ("gpipe", "1f1b", "interleaved") for tensors in ("", "x2")
            for ranks in (2, 3, 4)
            for fault in FAULTS for step in (0, 1) if not (fault in ("stopped_in_set_up", "few_microbatches") and step == 1)]


class Case:
    def __init__(self, name):
        self.name = name
        schedule, ranks, self.fault, step = name.split("-")
        self.schedule, _, tensors = schedule.partition("x")
        self.tensors = int(tensors or 1)
        self.ranks, self.step = int(ranks), int(step)
        self.chunks = 2 if self.schedule == "interleaved" else 1
        self.stages = self.ranks * self.chunks
        few = self.fault == "few_microbatches"
        self.microbatches = self.ranks if self.chunks == 2 else 4
        if few and self.chunks == 1:
            self.microbatches = self.ranks - 1
        if not few and self.chunks == 2:
            self.microbatches = 2 * self.ranks
        self.stage, self.microbatch = self.stages // 2, 1 if self.microbatches > 1 else 0
        if self.fault in ("missing_send", "inverted_order"):
            self.stage = self.stages // 2 - 1
        self.rank = 0 if few else self.stage % self.ranks
        self.always = self.fault.endswith("with_dump") or self.fault == "wrong_size"
        self.quiet = self.fault.startswith(("killed", "stopped"))

    def microbatches_of(self, rank):
        """Rank 0 runs more than the others, where that is the fault."""
        return self.microbatches + (self.ranks if self.chunks == 2 else 1) if self.fault == "few_microbatches" and rank == 0 \
            else self.microbatches

    def action(self):
        """What the fault is in."""
        kind = {"missing_send": "SEND_F", "missing_gradient": "SEND_B", "wrong_size": "RECV_F", "inverted_order": "SEND_F"}
        letter = "B" if self.fault.endswith("in_backward") else "F"
        return f"{self.stage}{kind.get(self.fault, letter)}{self.microbatch}"


class Recorder:
    """Wraps the messages of the process group. `labels` has the action that each tensor's message belongs to."""

    def __init__(self, rank, ranks, path, always):
        import torch.distributed.distributed_c10d as c10d

        self.rank, self.ranks, self.path, self.always = rank, list(range(ranks)), path, always
        self.entries, self.posted, self.labels, self.tensors = [], [], {}, []
        self.failed = None
        for name, sends in (("isend", True), ("irecv", False)):
            setattr(c10d, name, self.wrapped(getattr(c10d, name), sends))
            setattr(sys.modules["torch.distributed"], name, getattr(c10d, name))

    def wrapped(self, real, sends):
        def post(tensor, peer=None, group=None, tag=0, **other):
            to = other.get("group_dst", other.get("group_src", peer))
            entry = torch_hangs.new_entry(self.entries, sends, self.rank, to, tensor, WAIT)
            self.tensors.append(tensor)
            self.posted.append(self.labels.get(id(tensor)))
            if self.always:
                self.dump()
            try:
                work = real(tensor, peer, group, tag, **other)
            except RuntimeError:
                self.fail(self.posted[-1], entry, "posting")
                raise
            return Waited(self, work, entry, self.posted[-1])
        return post

    def fail(self, label, entry, doing):
        self.failed = {"action": label, "operation": entry["profiling_name"], "doing": doing}

    def dump(self):
        torch_hangs.write_dump(self.path, self.ranks, self.entries)


class Waited:
    def __init__(self, recorder, work, entry, label):
        self.recorder, self.work, self.entry, self.label = recorder, work, entry, label

    def wait(self):
        try:
            self.work.wait(datetime.timedelta(seconds=WAIT))
        except RuntimeError:
            self.recorder.fail(self.label, self.entry, "waiting")
            raise
        torch_hangs.complete(self.entry)
        if self.recorder.always:
            self.recorder.dump()


def label_messages(stage, recorder):
    for name, kind in (("get_fwd_recv_ops", "RECV_F"), ("get_fwd_send_ops", "SEND_F"), ("get_bwd_recv_ops", "RECV_B"),
                       ("get_bwd_send_ops", "SEND_B")):
        def labelled(microbatch, make=getattr(stage, name), kind=kind):
            made = make(microbatch)
            for op in made:
                recorder.labels[id(op.tensor)] = f"{stage.stage_index}{kind}{microbatch}"
                recorder.tensors.append(op.tensor)
            return made
        setattr(stage, name, labelled)


def break_stage(case, stage, step):
    """Does to a stage what the case is about; `step` holds the step that runs."""
    import torch
    import torch.distributed as dist

    microbatch = case.microbatch
    at = lambda number: number == microbatch and step[0] == case.step
    if case.quiet:
        name = "backward_one_chunk" if case.fault.endswith("in_backward") else "forward_one_chunk"

        def dies(number, *rest, run=getattr(stage, name), **named):
            if at(number):
                time.sleep(0.4)  # the others come to their waits
                os.kill(os.getpid(), signal.SIGKILL if case.fault.startswith("killed") else signal.SIGSTOP)
            return run(number, *rest, **named)
        if case.fault != "stopped_in_set_up":
            setattr(stage, name, dies)
            return

        def dies_in_set_up(*rest, **named):
            time.sleep(0.4)
            os.kill(os.getpid(), signal.SIGSTOP)
        stage._prepare_forward_infra = dies_in_set_up
    elif case.fault in ("missing_send", "missing_gradient"):
        name = "get_fwd_send_ops" if case.fault == "missing_send" else "get_bwd_send_ops"
        make = getattr(stage, name)
        setattr(stage, name, lambda number: [op for op in make(number) if not at(number)])
    elif case.fault == "wrong_size":
        make_all = stage.get_fwd_recv_ops

        def halves(number):
            made = make_all(number)
            for op in made if at(number) else []:
                op.tensor = torch.zeros(SIZE // 2, *op.tensor.shape[1:])
            return made
        stage.get_fwd_recv_ops = halves
    elif case.fault == "inverted_order":
        # Activations from this microbatch on are sent only after its gradient has come.
        send, back, kept = stage.get_fwd_send_ops, stage.backward_one_chunk, []

        def later(number):
            made = send(number)
            if number < microbatch or step[0] != case.step:
                return made
            kept.extend(made)
            return []

        def first_sends(number, *rest, **named):
            for op in kept if at(number) else []:
                dist.isend(op.tensor, op.peer)
            return back(number, *rest, **named)
        stage.get_fwd_send_ops, stage.backward_one_chunk = later, first_sends


def rows_of(case, schedule):
    """The cells that torch's schedule has, or of 1F1B its definition: torch 2.11's list for that begins with microbatch 1 on the last rank."""
    count = case.microbatches
    if case.schedule != "1f1b":
        return [[str(cell) if cell is not None else "" for cell in schedule.pipeline_order[rank]] for rank in range(case.ranks)]
    rows = []
    for rank in range(case.ranks):
        warm = min(count, case.ranks - 1 - rank)
        row = [f"F{m}" for m in range(warm)]
        for m in range(warm, count):
            row += [f"F{m}", f"B{m - warm}"]
        rows.append([f"{rank}{cell}" for cell in row + [f"B{m}" for m in range(count - warm, count)]])
    return rows


def module(case):
    """A stage that gives as many tensors as the case says: of width 4, 5, …"""
    import torch

    class Several(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x, *others):
            y = self.linear(x)
            return (y, *(y.sum(1, keepdim=True).expand(-1, WIDTH + 1 + i).contiguous() + (others[i] if others else 0)
                         for i in range(case.tensors - 1)))

    return torch.nn.Linear(WIDTH, WIDTH) if case.tensors == 1 else Several()


def make_schedule(case, rank, recorder, step):
    import torch
    import torch.distributed.pipelining as pp

    stages = []
    for index in range(rank, case.stages, case.ranks):
        stage = pp.PipelineStage(module(case), index, case.stages, torch.device("cpu"))
        if index == case.stage and case.fault != "few_microbatches":
            break_stage(case, stage, step)
        label_messages(stage, recorder)
        stages.append(stage)
    count = case.microbatches_of(rank)
    squares = torch.nn.MSELoss()

    def loss(output, target):
        if isinstance(output, torch.Tensor):
            return squares(output, target)
        return squares(output[0], target) + sum(other.mean() for other in output[1:])

    if case.schedule == "interleaved":
        return pp.ScheduleInterleaved1F1B(stages, count, loss)
    kind = pp.ScheduleGPipe if case.schedule == "gpipe" else pp.Schedule1F1B
    schedule = kind(stages[0], max(count, case.stages), loss)  # torch refuses fewer for 1F1B, but runs them
    schedule._n_microbatches = count
    schedule.pipeline_order = schedule._get_pipeline_order()
    return schedule


def run_rank(case, rank, folder, store):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=case.ranks, timeout=datetime.timedelta(seconds=60))
    dist.barrier()
    recorder = Recorder(rank, case.ranks, folder / f"nccl_trace_rank_{rank}.json", case.always)
    step = [0]
    schedule = make_schedule(case, rank, recorder, step)
    if rank == 1:  # never the one that runs more microbatches than meant
        (folder / "schedule.csv").write_text("".join(",".join(row) + "\r\n" for row in rows_of(case, schedule)))
    size = SIZE * case.microbatches_of(rank)
    try:
        for step[0] in range(2):
            inputs = (torch.zeros(size, WIDTH),) if rank == 0 else ()
            schedule.step(*inputs, target=torch.zeros(size, WIDTH) if rank == case.ranks - 1 else None)
    except Exception as error:
        print(f"{case.name}, rank {rank}: {recorder.failed} {str(error)[:80]}", file=sys.stderr)
    recorder.dump()
    (folder / f"said_{rank}.json").write_text(json.dumps({"failed": recorder.failed, "posted": recorder.posted}))
    time.sleep(WAIT)  # an end of this process would be news to the others
    os._exit(0)


def run(case, folder):
    """Runs a job; returns what its ranks say."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    store = tempfile.mktemp()
    children = []
    for rank in range(case.ranks):
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            run_rank(case, rank, folder, store)
        children.append(child)
    for rank, child in enumerate(children):
        if not (case.quiet and rank == case.rank):
            os.waitpid(child, 0)
    if case.quiet:
        os.kill(children[case.rank], signal.SIGKILL)
        os.waitpid(children[case.rank], 0)
    said = {}
    for path in folder.glob("said_*.json"):
        said[int(path.stem[5:])] = json.loads(path.read_text())
        path.unlink()
    return said


def seen(case, action):
    """What a dump says of a message: not its microbatch."""
    if action is None:
        return None
    stage, kind = action.split("RECV" if "RECV" in action else "SEND")
    forward = (kind[1] == "F") == ("SEND" in action)
    return ("RECV" in action, (int(stage) + (1 if forward else -1)) % case.ranks)


def truth_of(case, root):
    said = run(case, root / case.name)
    stuck = {str(rank): one["failed"] for rank, one in sorted(said.items()) if one["failed"] and one["failed"]["doing"] == "waiting"}
    truth = {"fault": case.fault, "rank": case.rank, "step": case.step, "stuck": stuck}
    if ended := [rank for rank, one in sorted(said.items()) if not one["failed"]]:
        truth["ended"] = ended  # these came to the end of the job
    if case.quiet or case.fault == "wrong_size":
        return truth | {"action": None if case.fault == "stopped_in_set_up" else case.action()}
    sound = Case(case.name)
    sound.fault = "none"
    folder = root / f"{case.name}.sound"
    meant = run(sound, folder)[case.rank]["posted"]
    for left in folder.iterdir():
        left.unlink()
    folder.rmdir()
    posted = said[case.rank]["posted"]
    first = next(i for i, (one, other) in enumerate(zip(meant, posted + [None])) if seen(case, one) != seen(case, other))
    return truth | {"expected": meant[first], "posted": posted[first] if first < len(posted) else None}


def main(arguments):
    import torch.distributed.pipelining  # once for all ranks

    every = "--all" in arguments
    names = [a for a in arguments if "-" in a and not a.startswith("-") and "/" not in a]
    folders = [a for a in arguments if "/" in a]
    root = pathlib.Path(folders[0]) if folders else pathlib.Path(__file__).parents[2] / "data" / "torch_pipelines"
    truths = {}
    for name in names or (all_cases() if every else KEPT):
        truths[name] = truth_of(Case(name), root)
        print(name, json.dumps(truths[name]), flush=True)
    (root / "truths.json").write_text(json.dumps(truths, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
