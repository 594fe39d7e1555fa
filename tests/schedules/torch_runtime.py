"""Trains a small model with torch's pipeline runtime in the order of each CSV of a folder, for torch_runtime_test.cpp.

    python torch_runtime.py FOLDER

FOLDER/cases.txt has a line `FILE FORMAT STAGES MICROBATCHES` for each case, FORMAT being one of `_load_csv`'s, and STAGES the rank of each
stage (`0,1,1,0`), which torch must infer. Two processes with Gloo between them load each file into `_PipelineScheduleRuntime`, which
validates it, and do three SGD steps; losses, gradients and parameters after each are compared with those of the same model in one process
on the same microbatches. torch 2.11 begins its first step with a number sent from each stage to its neighbours. Where both are on one rank,
as in a V, Gloo has no connection for it and the step fails; there that exchange, and nothing else, is left out.

Prints `ok FILE: what was done` or `failed FILE: why` for each case. A pair of processes in which a case failed is ended, and a new one does
the rest. Everything has a deadline, and the processes end with this one.
"""

import ctypes
import datetime
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import REDUCE_GRAD, _PipelineScheduleRuntime

RANKS, STEPS, RATE = 2, 3, 0.5
BLOCKS, WIDTH, SAMPLES = 8, 6, 2  # of the model; SAMPLES of one microbatch
CASE_DEADLINE, START_DEADLINE = 10, 30  # seconds
KILL_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def model():
    """Doubles: rounding stays far below the tolerance, so what differs is wrong."""
    torch.manual_seed(20260)
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)]).double()


def data(microbatches):
    generator = torch.Generator().manual_seed(microbatches)
    shape = (microbatches * SAMPLES, WIDTH)
    return (torch.randn(shape, generator=generator, dtype=torch.float64), torch.randn(shape, generator=generator, dtype=torch.float64))


def trained_alone(microbatches):
    """After each step: the losses of the microbatches, and gradient and value of each parameter by name."""
    whole = model()
    optimizer = torch.optim.SGD(whole.parameters(), lr=RATE)
    inputs, targets = (torch.tensor_split(tensor, microbatches) for tensor in data(microbatches))
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = [nn.functional.mse_loss(whole(x), y) for x, y in zip(inputs, targets)]
        (sum(losses) / microbatches).backward()
        optimizer.step()
        history.append((torch.stack(losses).detach(), snapshot(whole)))
    return history


def snapshot(module):
    return {name: (parameter.grad.clone(), parameter.detach().clone()) for name, parameter in module.named_parameters()}


class WithinRank(PipelineStage):
    """A stage that leaves out the numbers sent before the first step: Gloo cannot send within a rank."""

    def _get_init_p2p_neighbors_ops(self):
        return []


def trained_in_pipeline(schedule, modules, microbatches):
    """The same of this rank's stages; losses only where the last one is. Messages alone (no REDUCE_GRAD in the file) leave summed gradients."""
    optimizer = torch.optim.SGD([p for module in modules.values() for p in module.parameters()], lr=RATE)
    inputs, targets = data(microbatches)
    reduces = any(a.computation_type == REDUCE_GRAD for a in schedule.pipeline_order_with_comms[dist.get_rank()])
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = []
        schedule.step(*([inputs] if 0 in modules else []), target=targets, losses=losses)
        if not reduces:
            for module in modules.values():
                for parameter in module.parameters():
                    parameter.grad /= microbatches
        optimizer.step()
        history.append((torch.stack(losses).detach() if losses else None, [snapshot(module) for module in modules.values()]))
    return history


def compare(ours, alone, stages):
    """Raises AssertionError where a pipeline's history differs from that of one process. `stages`: first block of each stage here."""
    for step, ((losses, shots), (expected_losses, expected)) in enumerate(zip(ours, alone, strict=True)):
        if losses is not None:
            close(losses, expected_losses, f"step {step}: losses")
        for first, shot in zip(stages, shots, strict=True):
            for name, tensors in shot.items():
                block, rest = name.split(".", 1)
                whole_name = f"{int(block) + first}.{rest}"
                for what, tensor, wanted in zip(("gradient", "value"), tensors, expected[whole_name], strict=True):
                    close(tensor, wanted, f"step {step}: {what} of {whole_name}")


def close(tensor, wanted, what):
    if not torch.allclose(tensor, wanted, rtol=1e-5, atol=1e-12):
        raise AssertionError(f"{what} {tensor.flatten()[:4].tolist()} differ from {wanted.flatten()[:4].tolist()}")


def run_case(folder, case, alone):
    """Loads and trains; returns what was done, in words."""
    file, form, stages, microbatches = case.split()
    rank_of, microbatches = [int(rank) for rank in stages.split(",")], int(microbatches)
    size = BLOCKS // len(rank_of)
    within = any(a == b for a, b in zip(rank_of, rank_of[1:]))
    whole = model()
    modules = {s: whole[s * size:(s + 1) * size] for s, rank in enumerate(rank_of) if rank == dist.get_rank()}
    # A slice of a Sequential keeps the numbers of the whole; count from 0 in each stage.
    modules = {s: nn.Sequential(*module) for s, module in modules.items()}
    make = WithinRank if within else PipelineStage
    pieces = [make(module, s, len(rank_of), torch.device("cpu")) for s, module in modules.items()]
    schedule = _PipelineScheduleRuntime(pieces, microbatches, loss_fn=nn.functional.mse_loss)
    schedule._load_csv(os.path.join(folder, file), format=form)
    if [schedule.stage_index_to_group_rank[s] for s in range(len(rank_of))] != rank_of:
        raise AssertionError(f"torch infers the stages on ranks {schedule.stage_index_to_group_rank}")
    if microbatches not in alone:
        alone[microbatches] = trained_alone(microbatches)
    history = trained_in_pipeline(schedule, modules, microbatches)
    if len(rank_of) - 1 in modules and any(losses is None for losses, _ in history):
        raise AssertionError("no losses where the last stage is")
    compare(history, alone[microbatches], [s * size for s in modules])
    return "mean losses " + " ".join(f"{losses.mean():.6f}" for losses, _ in alone[microbatches])


def rank_main(rank, folder, store, cases, pipe):
    """One of the two processes: sends (case, what was done, error) after each case."""
    ctypes.CDLL(None).prctl(KILL_WITH_PARENT, signal.SIGKILL)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=CASE_DEADLINE))
    pipe.send(("", "", ""))
    alone = {}
    for case in cases:
        try:
            pipe.send((case, run_case(folder, case, alone), ""))
            dist.barrier()
        except Exception as error:  # pylint: disable=broad-except; told to the test, and this pair ends
            pipe.send((case, "", f"rank {rank}: {type(error).__name__}: " + " ".join(str(error).split())[:600]))
            return


def receive(pipes, deadline, what):
    """The next message of each rank, as long as none has failed; a list of errors if one has, or is late."""
    messages, waiting = {}, dict(enumerate(pipes))
    while waiting:
        left = deadline - time.monotonic()
        ready = multiprocessing.connection.wait(list(waiting.values()), max(0.0, left))
        if not ready:
            return messages, [f"rank {rank}: {what} did not end in time" for rank in waiting]
        for rank in [rank for rank, pipe in waiting.items() if pipe in ready]:
            try:
                messages[rank] = waiting.pop(rank).recv()
            except EOFError:
                return messages, [f"rank {rank}: its process ended"]
        errors = [message[2] for message in messages.values() if message[2]]
        if errors:
            return messages, errors
    return messages, []


def do_cases(folder, store, cases):
    """Cases done by one pair of processes: prints a line for each and returns their number; the last one may have failed."""
    ends = [multiprocessing.Pipe(duplex=False) for _ in range(RANKS)]
    pipes = [reader for reader, _ in ends]
    context = multiprocessing.get_context("fork")  # torch is imported once
    processes = [context.Process(target=rank_main, args=(rank, folder, store, cases, ends[rank][1]), daemon=True) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for _, writer in ends:
        writer.close()
    try:
        _, errors = receive(pipes, time.monotonic() + START_DEADLINE, "the start")
        for number, case in enumerate(cases):
            file = case.split()[0]
            messages, errors = ({}, errors) if errors else receive(pipes, time.monotonic() + CASE_DEADLINE, "the case")
            if errors:
                print(f"failed {file}: {'; '.join(errors)}", flush=True)
                return number + 1
            print(f"ok {file}: {messages[0][1]}", flush=True)
        return len(cases)
    finally:
        for process in processes:
            process.kill()
            process.join()


def main(folder):
    cases = pathlib.Path(folder, "cases.txt").read_text().splitlines()
    pair = 0
    while cases:
        done = do_cases(folder, os.path.join(folder, f"store{pair}"), cases)
        cases, pair = cases[done:], pair + 1


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
