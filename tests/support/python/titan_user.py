"""What torchtitan does with an exported plan, for a small model with the modules of its models.

    torchrun --nproc-per-node R titan_user.py FOLDER MODEL.pt2 DATA.pt STEPS LR      prints {"losses": [...]} on rank 0

The model is gpt_small of sample_models.py with torchtitan's names (tok_embeddings, layers, norm, lm_head) and the archive's weights. Modules
are split by `module_fqns_per_model_part`, placed and scheduled as torchtitan/distributed/pipeline_parallel.py does.
"""

import argparse
import copy
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleDualPipeV, ScheduleZBVZeroBubble, _PipelineScheduleRuntime, get_schedule_class
from torch.nn import functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "resources"))
import sample_models  # noqa: E402


class Embedding(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.embed, self.position = model.embed, model.position

    def forward(self, tokens):
        return self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))


class TitanGpt(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.tok_embeddings, self.layers, self.norm, self.lm_head = Embedding(model), model.blocks, model.norm, model.head

    def forward(self, x):
        x = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x) if self.norm is not None else x
        return self.lm_head(x) if self.lm_head is not None else x


def split(model, names):
    """The part of the model with these modules; torchtitan's `_split_module` for lists of layers."""
    part = copy.deepcopy(model)
    for name, child in part.named_children():
        if isinstance(child, nn.ModuleList):
            kept = {int(n.split(".", 1)[1]) for n in names if n.startswith(f"{name}.")}
            setattr(part, name, nn.ModuleList(layer for i, layer in enumerate(child) if i in kept))
        elif name not in names:
            setattr(part, name, None)
    return part


def parse(folder):
    parser = argparse.ArgumentParser()
    for name in ("pipeline_parallel_degree", "pipeline_parallel_microbatch_size", "data_parallel_replicate_degree"):
        parser.add_argument(f"--parallelism.{name}", dest=name, type=int)
    parser.add_argument("--parallelism.pipeline_parallel_schedule", dest="schedule")
    parser.add_argument("--parallelism.pipeline_parallel_schedule_csv", dest="csv")
    parser.add_argument("--parallelism.module_fqns_per_model_part", dest="modules", nargs="*", type=lambda text: text.split(","))
    for name in ("local_batch_size", "global_batch_size", "seq_len"):
        parser.add_argument(f"--training.{name}", dest=name, type=int)
    parser.add_argument("--training.mixed_precision_param", dest="precision")
    with open(os.path.join(folder, "arguments.txt"), encoding="utf-8") as file:
        return parser.parse_args(file.read().split())


def stages_of(rank, options):
    ranks, stages = options.pipeline_parallel_degree, len(options.modules)
    if get_schedule_class(options.schedule) in (ScheduleZBVZeroBubble, ScheduleDualPipeV):
        return [rank, stages - 1 - rank]
    return list(range(rank, stages, ranks))


def main(folder, archive, data_file, steps, rate):
    options = parse(folder)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model, _ = sample_models.gpt_small()
    model.load_state_dict(torch.export.load(archive).state_dict, strict=True)
    model = TitanGpt(model)
    count = len(options.modules)
    stages = [PipelineStage(split(model, options.modules[s]), s, count, torch.device("cpu"), group=dist.group.WORLD) for s in stages_of(rank, options)]
    for stage in stages:
        stage._get_init_p2p_neighbors_ops = list  # the greeting is for NCCL
    batch = options.local_batch_size
    losses = []

    def loss_of(logits, target):
        return F.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="sum") / (batch * target.shape[1])

    schedule = _PipelineScheduleRuntime(stages, n_microbatches=batch // options.pipeline_parallel_microbatch_size, loss_fn=loss_of, scale_grads=False)
    schedule._load_csv(options.csv)
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=rate)
    data = torch.load(data_file)
    for step in range(steps):
        rows = torch.arange(step * batch, (step + 1) * batch) % len(data["tokens"])
        parts = []
        optimizer.zero_grad()
        arguments = [data["tokens"][rows]] if any(stage.is_first for stage in stages) else []
        keywords = {"target": data["target"][rows], "losses": parts} if any(stage.is_last for stage in stages) else {}
        schedule.step(*arguments, **keywords)
        optimizer.step()
        loss = torch.stack([part.detach() for part in parts]).sum() if parts else torch.zeros(())
        dist.all_reduce(loss)
        losses.append(loss.item())
    if rank == 0:
        print(json.dumps({"losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
