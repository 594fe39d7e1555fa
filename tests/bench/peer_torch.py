#!/usr/bin/env python3
"""Times torch.distributed.pipelining on the bench's GPT: the rival of `pipewright run`.

    torchrun --nproc-per-node 2 tests/bench/peer_torch.py --split blocks.4 --microbatches 8 --microbatch 4 --steps 10

Two ranks over Gloo on CPUs, one stage each: embed, position and the blocks before the split; the rest, norm and head.
Weights, tokens and targets come from `--seed`, the same on every rank. A step is schedule.step and the optimizer's
step; gradients are cleared and the ranks meet outside the timed part; a step's time is the slowest rank's. Rank 0 prints
one JSON line: {"median_step_ns", "steps_ns", "losses", "plan"}; losses are means over all targets before the update.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "resources"))
import bench_models  # noqa: E402
import sample_models  # noqa: E402

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class FirstStage(nn.Module):
    """Token ids to hidden values, blocks [0, split)."""

    def __init__(self, model, split):
        super().__init__()
        self.embed, self.position = model.embed, model.position
        self.blocks = model.blocks[:split]

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.position(positions)
        for block in self.blocks:
            x = block(x)
        return x


class LastStage(nn.Module):
    """Hidden values to logits, blocks [split, end)."""

    def __init__(self, model, split):
        super().__init__()
        self.blocks = model.blocks[split:]
        self.norm, self.head = model.norm, model.head

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def cross_entropy(logits, target):
    """Mean over all targets of a microbatch; all microbatches have the same number."""
    return nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


def parse(arguments):
    """Command line to options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt_25m", choices=("gpt_25m", "gpt_small", "gpt_heavy_head"))
    parser.add_argument("--split", default="blocks.4", metavar="blocks.K", help="first block of the second stage")
    parser.add_argument("--schedule", default="1f1b", choices=sorted(SCHEDULES))
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--microbatch", type=int, default=4, help="samples of one microbatch")
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before the timed ones (they update weights)")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads of each rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def split_index(name, blocks):
    """`blocks.K` to K; ends the program on anything else."""
    head, _, number = name.partition(".")
    if head != "blocks" or not number.isdigit() or not 0 < int(number) < blocks:
        raise SystemExit(f"peer_torch: '{name}' is not a split point; use blocks.1 to blocks.{blocks - 1}.")
    return int(number)


def synthetic_batch(model, samples, seed):
    """Seeded random token ids and targets, int64 [samples, length]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (samples, model.position.num_embeddings)
    vocabulary = model.embed.num_embeddings
    return (torch.randint(0, vocabulary, shape, generator=generator),
            torch.randint(0, vocabulary, shape, generator=generator))


def timed_step(schedule, optimizer, rank, tokens, target):
    """One step; returns (nanoseconds on this rank, microbatch losses on the last rank)."""
    losses = []
    optimizer.zero_grad(set_to_none=True)
    dist.barrier()
    start = time.perf_counter_ns()
    if rank == 0:
        schedule.step(tokens)
    else:
        schedule.step(target=target, losses=losses, return_outputs=False)
    optimizer.step()
    return time.perf_counter_ns() - start, losses


def reduce_step(nanoseconds, losses):
    """The slowest rank's time and the step's mean loss, on every rank."""
    slowest = torch.tensor(nanoseconds, dtype=torch.int64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    loss = torch.stack(losses).mean().detach().double() if losses else torch.zeros((), dtype=torch.float64)
    dist.all_reduce(loss)
    return int(slowest), float(loss)


def run(options, rank):
    """All steps; returns (step times in nanoseconds, losses), warm-up left out."""
    torch.manual_seed(options.seed)
    model, _ = getattr(sample_models if hasattr(sample_models, options.model) else bench_models, options.model)()
    split = split_index(options.split, len(model.blocks))
    tokens, target = synthetic_batch(model, options.microbatches * options.microbatch, options.seed + 1)
    module = (FirstStage if rank == 0 else LastStage)(model, split).train()
    del model
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = SCHEDULES[options.schedule](stage, n_microbatches=options.microbatches, loss_fn=cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=options.lr)
    times, means = [], []
    for step in range(options.warmup + options.steps):
        nanoseconds, losses = timed_step(schedule, optimizer, rank, tokens, target)
        nanoseconds, loss = reduce_step(nanoseconds, losses)
        if step >= options.warmup:
            times.append(nanoseconds)
            means.append(loss)
    return times, means


def main(arguments=None):
    """Joins the group torchrun describes, runs and prints rank 0's JSON line."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    if os.environ.get("WORLD_SIZE") != "2":
        raise SystemExit("peer_torch: needs 2 ranks; start it with torchrun --nproc-per-node 2.")
    dist.init_process_group("gloo")
    try:
        times, losses = run(options, dist.get_rank())
        if dist.get_rank() == 0:
            plan = {key: getattr(options, key) for key in ("model", "split", "schedule", "microbatches", "microbatch",
                                                           "threads", "lr", "seed", "warmup")}
            print(json.dumps({"median_step_ns": int(statistics.median(times)), "steps_ns": times, "losses": losses,
                              "plan": {**plan, "ranks": 2, "torch": torch.__version__}}), flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
