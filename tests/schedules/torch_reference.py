"""Prints what torch.distributed.pipelining does for every small shape, for torch_test.cpp to compare with.

    python torch_reference.py FAMILY...      (names as in `pipewright schedule list`)
    python torch_reference.py --lower FILE

The first form: for each family one block for each shape with R in 1..8 ranks, V in 1..4 stages per rank (torch's single-stage classes: 1)
and M in 1..32 microbatches:
`= family R V M` and 3 R lines, one for each rank: the compute-only rows, those with messages added, and those the runtime prepares
with sharding, reduction and messages. Cells are separated by commas; an idle cell is empty. Where torch refuses the shape
the block is the line `! family R V M`. The second form lowers the compute-only schedules of a file, of blocks `= R M` and R rows, and
prints for each `= R M` and its rows with messages and as the runtime prepares them, or `! R M` where torch finds it malformed.
The last line is `end`.
"""

import sys

import torch
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining._utils import generate_stage_to_rank_mapping

RANKS, CHUNKS, MICROBATCHES = range(1, 9), range(1, 5), range(1, 33)

MULTI_STAGE = {
    "interleaved-1f1b": (torch_schedules.ScheduleInterleaved1F1B, "loop"),
    "looped-bfs": (torch_schedules.ScheduleLoopedBFS, "loop"),
    "interleaved-zb": (torch_schedules.ScheduleInterleavedZeroBubble, "loop"),
    "zbv": (torch_schedules.ScheduleZBVZeroBubble, "v"),
    "dualpipev": (torch_schedules.ScheduleDualPipeV, "v"),
}
SINGLE_STAGE = {
    "forward-only": torch_schedules._ScheduleForwardOnly,
    "gpipe": torch_schedules.ScheduleGPipe,
    "1f1b": torch_schedules.Schedule1F1B,
}
MODULE = torch.nn.Linear(1, 1)


def loss(output, target):
    return output


class Stage:
    """As much of a pipeline stage as the schedules need; writes down the order of its forwards and backwards."""

    def __init__(self, index, ranks, stages):
        self.stage_index, self.num_stages = index, stages
        self.group_rank, self.group_size = 0, ranks
        self.submod = MODULE
        self.has_backward = True
        self.is_first, self.is_last = index == 0, False  # no loss is computed
        self.done = []

    def forward_one_chunk(self, microbatch, *args, **kwargs):
        self.done.append(torch_schedules._Action(self.stage_index, torch_schedules.F, microbatch))

    def backward_one_chunk(self, microbatch, **kwargs):
        self.done.append(torch_schedules._Action(self.stage_index, torch_schedules.B, microbatch))

    def __getattr__(self, name):
        """Messages and preparations: nothing to do, nothing to wait for."""
        return lambda *args, **kwargs: []


def scheduled(family, ranks, chunks, microbatches):
    """Compute-only rows and the runtime's rows of a class that keeps its order in a table."""
    make, style = MULTI_STAGE[family]
    stages = ranks * chunks
    rank_of = generate_stage_to_rank_mapping(ranks, stages, style)
    schedule = make([Stage(s, ranks, stages) for s in range(stages) if rank_of[s] == 0], microbatches, loss_fn=loss)
    return schedule.pipeline_order, schedule.pipeline_order_with_comms, rank_of


def executed(family, ranks, microbatches):
    """The same of a class that has one stage per rank and runs a loop: what the loop does, lowered as the runtime would."""
    rows, sharded = {}, {}
    for rank in range(ranks):
        stage = Stage(rank, ranks, ranks)
        SINGLE_STAGE[family](stage, microbatches, loss_fn=loss)._step_microbatches()
        rows[rank] = stage.done
        sharded[rank] = with_sharding(stage.done, microbatches)
    rank_of = {rank: rank for rank in range(ranks)}
    return rows, with_messages(sharded, rank_of), rank_of


def with_sharding(row, microbatches):
    return torch_schedules._add_reduce_grad(torch_schedules._add_unshard_reshard(row), microbatches)


def with_messages(rows, rank_of):
    todo = {rank: [action for action in row if action is not None] for rank, row in rows.items()}
    return torch_schedules._add_send_recv(todo, stage_to_rank=lambda stage: rank_of[stage], num_stages=len(rank_of))


def print_rows(rows, out):
    for rank in sorted(rows):
        out.write(",".join("" if action is None else repr(action) for action in rows[rank]) + "\n")


def print_shape(family, ranks, chunks, microbatches, out):
    shape = f"{family} {ranks} {chunks} {microbatches}\n"
    try:
        if family in SINGLE_STAGE:
            rows, runtime_rows, rank_of = executed(family, ranks, microbatches)
        else:
            rows, runtime_rows, rank_of = scheduled(family, ranks, chunks, microbatches)
        rows_with_messages = with_messages(rows, rank_of)
    except (ValueError, AssertionError):
        out.write("! " + shape)
        return
    out.write("= " + shape)
    for table in (rows, rows_with_messages, runtime_rows):
        print_rows(table, out)


def lower_file(path, out):
    with open(path) as file:
        while header := file.readline():
            ranks, microbatches = map(int, header[2:].split())
            rows = {rank: [torch_schedules._Action.from_str(cell) for cell in file.readline().split(",")] for rank in range(ranks)}
            rank_of = {a.stage_index: rank for rank, row in rows.items() for action in row for a in action.sub_actions or (action,)}
            try:
                tables = (rows, {rank: with_sharding(row, microbatches) for rank, row in rows.items()})
                tables = [with_messages(table, rank_of) for table in tables]
            except AssertionError:
                out.write("!" + header[1:])
                continue
            out.write(header)
            for table in tables:
                print_rows(table, out)


def main(arguments):
    if arguments[0] == "--lower":
        lower_file(arguments[1], sys.stdout)
    else:
        for family in arguments:
            for ranks in RANKS:
                for chunks in CHUNKS if family in MULTI_STAGE else (1,):
                    for microbatches in MICROBATCHES:
                        print_shape(family, ranks, chunks, microbatches, sys.stdout)
    sys.stdout.write("end\n")


if __name__ == "__main__":
    main(sys.argv[1:])
