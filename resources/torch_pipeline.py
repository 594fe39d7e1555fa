#!/usr/bin/env python3
"""Runs an exported Pipewright plan with torch.distributed.pipelining (torch 2.11).

    torchrun --nproc-per-node RANKS run.py [--steps 5] [--data F.pt] [--device cuda] [--trace FOLDER]

Next to this script are pipeline.json (model, split points, placement, loss), schedule.csv (what each rank does, in torch's
notation) and stages.py (what is done to torch's stages). The traced model is loaded, cut before the named nodes, and its stages run in the schedule's order.
Rank 0 prints one JSON line: {"losses": [...], "steps_s": [...]}; a loss is the mean over the samples of a step (over the
targets that are not ignored, for cross_entropy), before the update. Data, losses and updates are those of `pipewright run`
with the same options, so losses are equal up to rounding where the model draws no random numbers. Without --data, inputs
are random. A data file is a dict saved by torch.save: one tensor for each input under its name, batch first, and `target`;
steps take its samples in order, and the first ones again after the last; an input without a batch is the same in all. With --trace every rank
records torch.profiler's trace, which Pipewright opens.
"""

import argparse
import inspect
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import pipe_split, pipeline  # noqa: F401  (registers the operator below)
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.utils._pytree import tree_leaves, tree_unflatten

from stages import (
    cut,
    expect_contiguous,
    give_late_inputs,
    join_copies,
    name_attributes,
    outline_all,
    reshape_views,
    send_every_gradient,
    sendable,
    take_inputs_flat,
    take_late_inputs,
)

HERE = os.path.dirname(os.path.abspath(__file__))


def parse(arguments, optimizers):
    """Command line to options; `optimizers`: their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--optimizer", default="sgd", choices=tuple(optimizers))
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--betas", type=lambda text: tuple(map(float, text.split(","))), default=(0.9, 0.999), metavar="B1,B2")
    parser.add_argument("--alpha", type=float, default=0.99, help="RMSprop's smoothing constant")
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--warmup", type=int, default=0, metavar="STEPS", help="steps over which the learning rate rises linearly")
    parser.add_argument("--decay-steps", type=int, default=0, metavar="STEP", help="step at which a cosine has lowered the rate to --final-rate")
    parser.add_argument("--final-rate", type=float, default=0.0, help="final fraction of the learning rate")
    parser.add_argument("--clip-norm", type=float, default=0.0, help="largest norm of the whole model's gradient")
    parser.add_argument("--precision", choices=("traced", "bf16", "fp16"), help="by autocast; fp16 scales the loss (default: the plan's)")
    parser.add_argument("--data", metavar="F.pt", help="inputs and target instead of random ones")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (then one device for each local rank)")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads of each rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", metavar="FOLDER", help="record the last step with torch.profiler")
    options = parser.parse_args(arguments)
    if options.final_rate and options.decay_steps <= 0:
        parser.error("--final-rate is what remains of the learning rate at --decay-steps; add --decay-steps, or omit it")
    return options


def names_of(graph, settings):
    """The model's inputs in this graph: node to name. Names differ where torch renames what Python has itself, such as `input`."""
    nodes = [node.name for node in graph.nodes if node.op == "placeholder"]
    return dict(zip(nodes, [spec["name"] for spec in settings["inputs"]], strict=True))


def index_range(module, node):
    """How many values an integer input may have: rows of the embedding, or classes of the loss, that it selects from; otherwise 0."""
    aten = torch.ops.aten
    carriers = {node}
    for node in module.graph.nodes:
        if not any(argument.name in carriers for argument in node.all_input_nodes):
            continue
        if node.target is aten.embedding.default and node.args[1].name in carriers:
            return module.get_parameter(node.args[0].target).shape[0]
        if node.target in (aten.cross_entropy_loss.default, aten.nll_loss.default, aten.nll_loss_nd.default) and node.args[1].name in carriers:
            scores = node.args[0].meta["val"]
            return scores.shape[1 if scores.dim() > 1 else 0]
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point:
            carriers.add(node.name)
    return 0


def random_values(shape, dtype, choices, seed):
    """Normal numbers, or integers below `choices` (ones if that is 0): the same that `pipewright run` draws from this seed."""
    generator = torch.Generator().manual_seed(seed % 2**64)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(choices, shape, generator=generator, dtype=dtype) if choices else torch.ones(shape, dtype=dtype)


def random_input(spec, module, samples, seed):
    """A tensor of `samples` rows like the model's input; one without a batch as it is."""
    shape = spec["shape"] if spec["whole"] else [samples, *spec["shape"][1:]]
    dtype = getattr(torch, spec["dtype"])
    whole = not dtype.is_floating_point and dtype is not torch.bool
    return random_values(shape, dtype, index_range(module, spec["node"]) if whole else 0, seed)


class Loss:
    """A microbatch's part of the step's loss: all parts sum to its mean over the whole batch, of all replicas."""

    def __init__(self, settings):
        self.kind, self.position = settings["loss"], settings["loss_output"]
        self.batch = settings["replicas"] * settings["microbatches"] * settings["microbatch"]
        self.samples = settings["microbatch"]
        self.count = self.batch
        self.scale = 1.0  # fp16's
        self.parts = []

    def begin(self, target):
        """A step begins; `target`: of the whole batch."""
        self.parts = []
        if self.kind == "cross_entropy":
            self.count = int((target != -100).sum())  # of none the loss is NaN, as PyTorch's
        elif self.kind == "mse":
            self.count = target.numel()

    def __call__(self, outputs, target):
        output = tree_leaves(outputs)[self.position]
        with torch.autocast(output.device.type, enabled=False):
            if self.kind == "cross_entropy":
                loss = torch.nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1), reduction="sum") / self.count
            elif self.kind == "mse":
                loss = torch.nn.functional.mse_loss(output, target, reduction="sum") / self.count
            elif self.kind == "sum":
                loss = output.sum() / self.count
            else:
                loss = output * (self.samples / self.count)
            self.parts.append(loss.detach().double())
            return loss * self.scale


class Batches:
    """The data of each step: all inputs, and the target, of the whole batch."""

    def __init__(self, settings, module, options):
        self.settings = settings
        self.samples = settings["replicas"] * settings["microbatches"] * settings["microbatch"]
        needs_target = settings["loss"] in ("cross_entropy", "mse")
        if options.data:
            data = torch.load(options.data, weights_only=True)
            self.inputs = [self.take(data, spec["name"], options.data) for spec in settings["inputs"]]
            self.target = self.take(data, "target", options.data) if needs_target else None
        else:
            seeds = iter(range(options.seed * 1000003 + 1, options.seed * 1000003 + len(settings["inputs"]) + 2))
            self.inputs = [random_input(spec, module, self.samples, next(seeds)) for spec in settings["inputs"]]
            shape = [self.samples, *settings["output_shape"][1:]]
            classes = settings["loss"] == "cross_entropy"
            self.target = None
            if needs_target:
                self.target = random_values(shape[:-1] if classes else shape, torch.int64 if classes else torch.float32, shape[-1] if shape else 0, next(seeds))
        rows = [tensor for spec, tensor in zip(settings["inputs"], self.inputs) if not spec["whole"]]
        counts = {tensor.shape[0] for tensor in [*rows, *([self.target] if needs_target else [])]} or {self.samples}
        if len(counts) != 1 or min(counts) < self.samples:
            raise SystemExit(f"run.py: {options.data} holds tensors of {sorted(counts)} samples; all need the same, and at least {self.samples}.")
        self.held = counts.pop()
        if self.target is None:
            self.target = torch.zeros(self.held)

    @staticmethod
    def take(data, name, path):
        if name not in data:
            raise SystemExit(f"run.py: {path} lacks the tensor {name}; name its tensors after the model's inputs, and target.")
        return data[name]

    def at(self, step):
        """Inputs and target of a step, of all replicas; from the first sample again after the last."""
        rows = torch.arange(step * self.samples, (step + 1) * self.samples) % self.held
        inputs = [tensor if spec["whole"] else tensor[rows] for spec, tensor in zip(self.settings["inputs"], self.inputs)]
        return inputs, self.target[rows]


def learning_rate(options, step):
    """As in `pipewright run`: linear warm-up, then half a cosine."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    if options.decay_steps <= 0:
        return options.lr
    length = options.decay_steps - options.warmup
    passed = min(1.0, (step - options.warmup) / length) if length > 0 else 1.0
    return options.lr * (options.final_rate + (1 - options.final_rate) * (1 + math.cos(math.pi * passed)) / 2)


def optimizer_of(options, parameters, class_name):
    """The optimizer of torch.optim, with those of the options that its class has."""
    kind = getattr(torch.optim, class_name)
    known = inspect.signature(kind).parameters
    names = ("lr", "momentum", "nesterov", "betas", "alpha", "weight_decay")
    return kind(parameters, **{name: getattr(options, name) for name in names if name in known})


class LossScale:
    """Keeps small float16 gradients from vanishing: torch.amp.GradScaler's defaults, the same on all ranks."""

    def __init__(self, wanted):
        self.wanted, self.value, self.good = wanted, 65536.0 if wanted else 1.0, 0

    def update(self, overflowed):
        if not self.wanted:
            return
        self.good = 0 if overflowed else self.good + 1
        if overflowed:
            self.value = max(1.0, self.value / 2)
        elif self.good == 2000:
            self.value, self.good = self.value * 2, 0


def shared_gradients(settings, held, rank, groups):
    """Parameters of this rank that other ranks hold too, each with the group of its ranks, and whether this rank is the first of them."""
    found = []
    for number, shared in enumerate(settings["shared"]):
        ranks = [settings["stage_to_rank"][stage] for stage in shared["stages"]]
        if rank not in ranks:
            continue
        if shared["names"][0] not in held:
            raise SystemExit(f"run.py: stage {shared['stages'][ranks.index(rank)]} lacks its copy of {shared['names'][0]}.")
        if len(set(ranks)) > 1:
            found.append((held[shared["names"][0]], groups[number], rank == settings["stage_to_rank"][min(shared["stages"])]))
    return found


def connect(settings, options):
    """Joins the job torchrun describes; returns device, replica, rank within it, and the groups."""
    ranks, replicas = settings["ranks"], settings["replicas"]
    if int(os.environ.get("WORLD_SIZE", "0")) != ranks * replicas:
        raise SystemExit(f"run.py: the plan needs {ranks * replicas} ranks; start it with torchrun --nproc-per-node {ranks * replicas} run.py.")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device(options.device, local) if options.device == "cuda" else torch.device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    replica, rank = divmod(dist.get_rank(), ranks)
    # Every rank creates every group, in the same order.
    pipelines = [dist.new_group(list(range(d * ranks, (d + 1) * ranks))) for d in range(replicas)]
    copies = [dist.new_group([d * ranks + r for d in range(replicas)]) for r in range(ranks)]
    holders = [sorted({settings["stage_to_rank"][stage] for stage in shared["stages"]}) for shared in settings["shared"]]
    shared = [[dist.new_group([d * ranks + r for r in group]) for group in holders] for d in range(replicas)]
    return device, replica, rank, pipelines[replica], copies[rank], shared[replica]


def build(settings, options, device, rank, group):
    """Loads and cuts the model; returns it whole, this rank's stages by number, their parameters by name, the names of the first stage's inputs where it is
    here, and the late inputs of the others."""
    program = torch.export.load(settings["model"])
    module = program.module(check_guards=False)
    for spec, node in zip(settings["inputs"], names_of(module.graph, settings), strict=True):
        spec["node"] = node
    example = [random_input(spec, module, settings["microbatch"], options.seed) for spec in settings["inputs"]]
    call = program.module_call_graph[0].signature.in_spec  # which inputs are positional, which named
    positional, named = tree_unflatten(example, call)
    outline_all()
    marked = cut(module, settings["begins"], settings["recomputed"], settings["precision"])
    pipe = pipeline(marked, mb_args=positional, mb_kwargs=named, split_policy=name_attributes)
    if pipe.num_stages != len(settings["stage_to_rank"]):
        raise SystemExit(f"run.py: torch cut the model into {pipe.num_stages} stages, not {len(settings['stage_to_rank'])}.")
    expect_contiguous(pipe)
    mine = [stage for stage, owner in enumerate(settings["stage_to_rank"]) if owner == rank]
    stages = {stage: pipe.build_stage(stage, device, group) for stage in mine}
    with open(os.path.join(HERE, "schedule.csv"), encoding="ascii") as file:
        splits_backward = "I" in file.read()
    held = join_copies(module, settings, stages)
    names = names_of(pipe.split_gm.graph, settings)
    first = [names[node.name] for node in stages[0].node.args] if 0 in stages else []
    late = {index: take_late_inputs(stage, index, names) for index, stage in stages.items()}
    for stage in stages.values():
        take_inputs_flat(stage.submod)
        reshape_views(stage.submod)
        sendable(stage.submod, splits_backward)
        send_every_gradient(stage)
    if device.type == "cpu":  # the greeting between neighbours is for NCCL; Gloo cannot send to its own rank, as a V would
        for stage in stages.values():
            stage._get_init_p2p_neighbors_ops = list
    return module, stages, held, first, late


class Update:
    """The end of a step: sums of gradients, their norm, the optimizer."""

    def __init__(self, settings, options, stages, device, group, copies, shared):
        self.options, self.stages, self.device, self.group, self.copies, self.shared = options, stages, device, group, copies, shared
        self.replicas = settings["replicas"]
        self.parameters = list({id(p): p for stage in stages.values() for p in stage.submod.parameters()}.values())
        self.optimizer = optimizer_of(options, self.parameters, settings["optimizers"][options.optimizer])
        self.scale = LossScale(options.precision == "fp16")

    def sum_gradients(self):
        for parameter, holders, _ in self.shared:
            if parameter.grad is None:  # this stage's use has no gradient, another one's has
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=holders)
        if self.replicas > 1:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad, group=self.copies)

    def norm(self):
        """The norm of the whole model's gradient, each parameter counted once."""
        elsewhere = {id(parameter) for parameter, _, first in self.shared if not first}
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for parameter in self.parameters:
            if parameter.grad is not None and id(parameter) not in elsewhere:
                squares += parameter.grad.double().square().sum()
        dist.all_reduce(squares, group=self.group)
        return float(squares.sqrt())

    def __call__(self, step):
        self.sum_gradients()
        factor, norm = 1 / self.scale.value, 0.0
        if self.scale.wanted or self.options.clip_norm > 0:
            norm = self.norm() * factor
            if self.options.clip_norm > 0:
                factor *= min(1.0, self.options.clip_norm / (norm + 1e-6))
        self.scale.update(not math.isfinite(norm))
        if not math.isfinite(norm):
            return
        if factor != 1:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad *= factor
        for part in self.optimizer.param_groups:
            part["lr"] = learning_rate(self.options, step)
        self.optimizer.step()


def run(settings, options):
    """All steps; returns losses and times, on every rank."""
    device, replica, rank, group, copies, shared_groups = connect(settings, options)
    module, stages, held, first, late = build(settings, options, device, rank, group)
    loss = Loss(settings)
    whole = {spec["name"] for spec in settings["inputs"] if spec["whole"]}
    cuts = [_Replicate() if name in whole else TensorChunkSpec(0) for name in first]
    schedule = _PipelineScheduleRuntime(
        list(stages.values()), settings["microbatches"], loss_fn=loss, args_chunk_spec=tuple(cuts) or None, scale_grads=False
    )
    schedule._load_csv(os.path.join(HERE, "schedule.csv"))
    update = Update(settings, options, stages, device, group, copies, shared_gradients(settings, held, rank, shared_groups))
    batches = Batches(settings, module, options)
    last = len(settings["stage_to_rank"]) - 1 in stages
    types = {"bf16": torch.bfloat16, "fp16": torch.float16}
    rows = slice(replica * settings["microbatches"] * settings["microbatch"], (replica + 1) * settings["microbatches"] * settings["microbatch"])
    sums, times = [], []

    def step(number):
        inputs, target = batches.at(number)
        loss.begin(target)
        loss.scale = update.scale.value
        tensors = {spec["name"]: (tensor if spec["whole"] else tensor[rows]).to(device) for spec, tensor in zip(settings["inputs"], inputs)}
        give_late_inputs(stages, late, tensors, whole, settings["microbatch"])
        update.optimizer.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        arguments = {"target": target[rows].to(device), "losses": [], "return_outputs": False} if last else {}
        with torch.autocast(device.type, dtype=types.get(options.precision), enabled=options.precision in types):
            schedule.step(*[tensors[name] for name in first], **arguments)  # named, every stage of the rank would get them
        update(number)
        seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64, device=device)
        total = torch.stack(loss.parts).sum() if loss.parts else torch.zeros((), dtype=torch.float64, device=device)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        dist.all_reduce(total)
        sums.append(float(total))
        times.append(float(seconds))

    for number in range(options.steps):
        if not options.trace or number + 1 < options.steps:
            step(number)
            continue
        with torch.profiler.profile() as profiler:
            step(number)
        os.makedirs(options.trace, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(options.trace, f"rank_{dist.get_rank()}.json"))
    return sums, times


def main(arguments=None):
    """Runs the plan next to this script."""
    with open(os.path.join(HERE, "pipeline.json"), encoding="utf-8") as file:
        settings = json.load(file)
    options = parse(arguments, settings["optimizers"])
    options.precision = options.precision or settings.get("precision", "traced")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    try:
        losses, times = run(settings, options)
        if dist.get_rank() == 0:
            print(json.dumps({"losses": losses, "steps_s": times}), flush=True)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
