"""Records what torch.profiler sees of torch.distributed.pipelining: the traces in tests/data/torch_traces.

    torch_traces.py DIR [NAME …]

Each is a folder with one compressed Kineto file per rank, of real processes on Gloo: two steps with an optimizer. The schedule that was
meant is beside it (`schedule.csv`), so that a test can compare what an import recovers with what torch was told to do. A class that labels
nothing in this version of torch (Schedule1F1B) runs as its own order in torch's runtime, which labels every action.
"""

import csv
import gzip
import json
import os
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

WIDTH, ROWS = 384, 192
STEPS = 2
# Name: schedule class, ranks, stages per rank, microbatches, replicas
CASES = {
    "gpipe": ("ScheduleGPipe", 2, 1, 4, 1),
    "1f1b": ("Schedule1F1B", 4, 1, 4, 1),
    "interleaved": ("ScheduleInterleaved1F1B", 2, 2, 4, 1),
    "zero_bubble": ("ScheduleInterleavedZeroBubble", 2, 2, 4, 1),
    "zbv": ("ScheduleZBVZeroBubble", 2, 2, 4, 1),
    "dualpipev": ("ScheduleDualPipeV", 2, 2, 6, 1),
    "replicas": ("ScheduleInterleaved1F1B", 2, 2, 4, 2),
}
KEPT = ("user_annotation",)  # categories, and operators:
KEPT_OPERATORS = ("c10d::send", "c10d::recv_")


def stages_of(name, rank, ranks, chunks):
    """Numbers of the stages of a rank, in the order in which torch wants them."""
    if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        return [rank, 2 * ranks - 1 - rank]
    return [rank + chunk * ranks for chunk in range(chunks)]


def one_forward_one_backward(rank, ranks, microbatches):
    """The row of a rank; torch 2.11's own list (Schedule1F1B._get_pipeline_order) begins the last rank with F1."""
    warmup = min(ranks - rank - 1, microbatches)
    row = [f"{rank}F{m}" for m in range(warmup)]
    for m in range(microbatches - warmup):
        row += [f"{rank}F{warmup + m}", f"{rank}B{m}"]
    row += [f"{rank}B{m}" for m in range(microbatches - warmup, microbatches)]
    return [_Action.from_str(action) for action in row]


def schedule_of(name, stages, microbatches, loss):
    """The schedule; one of the classes that label nothing as its order in torch's runtime."""
    made = getattr(torch_schedules, name)
    if name == "ScheduleGPipe":
        return made(stages[0], microbatches, loss_fn=loss)
    if name == "Schedule1F1B":
        order = {rank: one_forward_one_backward(rank, stages[0].num_stages, microbatches) for rank in range(stages[0].num_stages)}
        schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=loss)
        schedule._prepare_schedule_with_comms(order)
        return schedule
    return made(stages, microbatches, loss_fn=loss)


def order_of(schedule, ranks):
    """Rows of compute actions, as torch writes them."""
    order = getattr(schedule, "pipeline_order_with_comms", None) or schedule._get_pipeline_order()
    skipped = ("REDUCE", "SEND", "RECV", "SHARD")
    return [[str(a) for a in order[rank] if a is not None and not any(word in str(a) for word in skipped)] for rank in range(ranks)]


def run(rank, world, case, folder, port):
    """One process of a job."""
    name, ranks, chunks, microbatches, replicas = CASES[case]
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    groups = [dist.new_group([pipe * replicas + replica for pipe in range(ranks)]) for replica in range(replicas)]
    group, place = groups[rank % replicas], rank // replicas
    torch.manual_seed(0)
    parts = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(ranks * chunks)]
    stages = [
        PipelineStage(parts[s], s, ranks * chunks, torch.device("cpu"), group=group) for s in stages_of(name, place, ranks, chunks)
    ]
    for stage in stages:  # Gloo has no pair of a rank with itself, which the two stages in the bottom of a V would warm up
        stage._get_init_p2p_neighbors_ops = list
    schedule = schedule_of(name, stages, microbatches, torch.nn.functional.mse_loss)
    if rank == 0:
        with open(folder / "schedule.csv", "w", encoding="ascii", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(order_of(schedule, ranks))
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.01)
    x, target = torch.randn(ROWS * microbatches, WIDTH), torch.randn(ROWS * microbatches, WIDTH)
    first = any(stage.is_first for stage in stages)
    last = any(stage.is_last for stage in stages)

    def step():
        optimizer.zero_grad()
        arguments = (x,) if first else ()
        schedule.step(*arguments, target=target, losses=[]) if last else schedule.step(*arguments)
        optimizer.step()

    step()
    dist.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()
    dist.barrier()
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "trace.json"
        profiler.export_chrome_trace(str(path))
        save(path, folder / f"rank{rank}.json.gz")
    dist.barrier()
    dist.destroy_process_group()


def save(path, target):
    """Writes the trace without what no importer reads: fewer kilobytes in the repository."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event.get("ph") == "M" or event.get("cat") in KEPT or event.get("name") in KEPT_OPERATORS]
    for event in events:
        if event.get("ph") == "X":
            event.pop("args", None)
    kept = {key: trace[key] for key in ("schemaVersion", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit") if key in trace}
    text = json.dumps({**kept, "traceEvents": events}, separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main():
    folder = pathlib.Path(sys.argv[1])
    for number, case in enumerate(sys.argv[2:] or CASES):
        (folder / case).mkdir(parents=True, exist_ok=True)
        world = CASES[case][1] * CASES[case][4]
        mp.spawn(run, args=(world, case, folder / case, 29650 + number), nprocs=world)
        print(case, sum(path.stat().st_size for path in (folder / case).iterdir()))


if __name__ == "__main__":
    main()
