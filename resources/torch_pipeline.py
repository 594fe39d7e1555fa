#!/usr/bin/env python3
"""Runs an exported Pipewright plan with torch.distributed.pipelining (torch 2.11).

    torchrun --nproc-per-node RANKS run.py [--steps 5] [--data F.pt] [--device cuda] [--trace FOLDER]

Beside this script lie pipeline.json (model, split points, placement, loss) and schedule.csv (what each rank does, in
torch's notation). The traced model is loaded, cut before the named nodes, and its stages run in the schedule's order.
Rank 0 prints one JSON line: {"losses": [...], "steps_s": [...]}; a loss is the mean over the step's microbatches, before
the update. Without --data, inputs are random. A data file is a dict saved by torch.save: one tensor for each input under
its name, batch first, and `target`. With --trace every rank records torch.profiler's trace, which Pipewright opens.
"""

import argparse
import json
import operator
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import pipe_split, pipeline  # noqa: F401  (registers the operator below)
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

HERE = os.path.dirname(os.path.abspath(__file__))


def parse(arguments):
    """Command line to options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adam", "adamw"))
    parser.add_argument("--data", metavar="F.pt", help="inputs and target instead of random ones")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (then one device for each local rank)")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads of each rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", metavar="FOLDER", help="record the last step with torch.profiler")
    return parser.parse_args(arguments)


def source_of(node):
    """The operator whose list result `node` is an element of, or the node itself."""
    while node.target is operator.getitem:
        node = node.args[0]
    return node


def cut(module, begins):
    """Marks the nodes of these names as begins of stages."""
    nodes = {node.name: node for node in module.graph.nodes}
    for name in begins:
        if name not in nodes:
            raise SystemExit(f"run.py: the model has no node {name}; export the plan again from this model.")
        with module.graph.inserting_before(source_of(nodes[name])):
            module.graph.call_function(torch.ops.pippy._pipe_split.default)
    module.recompile()
    return module


def index_range(module, name):
    """How many values an integer input may take: rows of the embedding it selects from, else 1."""
    carriers = {name}
    for node in module.graph.nodes:
        if not any(argument.name in carriers for argument in node.all_input_nodes):
            continue
        if node.target is torch.ops.aten.embedding.default and node.args[1].name in carriers:
            return module.get_parameter(node.args[0].target).shape[0]
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.dtype.is_floating_point:
            carriers.add(node.name)
    return 1


def random_input(spec, module, samples, generator):
    """A tensor of `samples` rows like the model's input."""
    shape = [samples, *spec["shape"][1:]] if spec["shape"] else []
    dtype = getattr(torch, spec["dtype"])
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, index_range(module, spec["name"]), shape, generator=generator).to(dtype)


def loss_of(settings):
    """Loss of one microbatch, from the last stage's outputs and the target."""
    kind, position = settings["loss"], settings["loss_output"]

    def loss(outputs, target):
        leaves = tree_leaves(outputs)
        output = leaves[position]
        if kind == "cross_entropy":
            return torch.nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())
        if kind == "mse":
            return torch.nn.functional.mse_loss(output, target)
        return output.sum() if kind == "sum" else output
    return loss


def random_target(settings, samples, generator):
    """Classes or values for the loss; zeros, one for each sample, where it needs none."""
    shape = [samples, *settings["output_shape"][1:]]
    if settings["loss"] == "cross_entropy":
        return torch.randint(0, shape[-1], shape[:-1], generator=generator)
    return torch.randn(shape, generator=generator) if settings["loss"] == "mse" else torch.zeros(samples)


def batch_of(settings, module, options, replica):
    """All inputs and the target of one replica's step."""
    samples = settings["microbatches"] * settings["microbatch"]
    if options.data:
        data = torch.load(options.data, weights_only=True)
        rows = slice(replica * samples, (replica + 1) * samples)
        inputs = [data[spec["name"]][rows] for spec in settings["inputs"]]
        target = data["target"][rows] if "target" in data else torch.zeros(samples)
        if any(tensor.shape[0] != samples for tensor in [*inputs, target]):
            raise SystemExit(f"run.py: {options.data} holds too few samples; {samples} for each of {settings['replicas']} replicas are needed.")
        return inputs, target
    generator = torch.Generator().manual_seed(options.seed + 1 + replica)
    inputs = [random_input(spec, module, samples, generator) for spec in settings["inputs"]]
    return inputs, random_target(settings, samples, generator)


def shared_gradients(settings, stages, groups):
    """Parameters of this rank that other stages hold too, each with the group of its ranks."""
    found = []
    for number, shared in enumerate(settings["shared"]):
        for index, stage in stages.items():
            if index not in shared["stages"]:
                continue
            parameters = dict(stage.submod.named_parameters(remove_duplicate=False))
            name = next((name for name in shared["names"] if name in parameters), None)
            if name is None:
                raise SystemExit(f"run.py: stage {index} lacks its copy of {shared['names'][0]}.")
            found.append((parameters[name], groups[number]))
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


def own_outputs(_module, _inputs, outputs):
    """Copies a stage's outputs: after a split backward torch detaches them in place, which views and saved tensors refuse."""
    return tree_map(lambda value: value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value, outputs)


def build(settings, options, device, rank, group):
    """Loads and cuts the model; returns it whole, and this rank's stages by number."""
    program = torch.export.load(settings["model"])
    module = program.module(check_guards=False)
    generator = torch.Generator().manual_seed(options.seed)
    example = [random_input(spec, module, settings["microbatch"], generator) for spec in settings["inputs"]]
    call = program.module_call_graph[0].signature.in_spec  # which inputs are positional, which named
    positional, named = tree_unflatten(example, call)
    pipe = pipeline(cut(module, settings["begins"]), mb_args=positional, mb_kwargs=named)
    if pipe.num_stages != len(settings["stage_to_rank"]):
        raise SystemExit(f"run.py: torch cut the model into {pipe.num_stages} stages, not {len(settings['stage_to_rank'])}.")
    mine = [stage for stage, owner in enumerate(settings["stage_to_rank"]) if owner == rank]
    stages = {stage: pipe.build_stage(stage, device, group) for stage in mine}
    with open(os.path.join(HERE, "schedule.csv"), encoding="ascii") as file:
        splits_backward = "I" in file.read()
    for stage in stages.values() if splits_backward else ():
        stage.submod.register_forward_hook(own_outputs)
    if device.type == "cpu":  # the greeting between neighbours is for NCCL; Gloo cannot send to its own rank, as a V would
        for stage in stages.values():
            stage._get_init_p2p_neighbors_ops = list
    return module, stages


def first_inputs(settings, stages, inputs):
    """What the first stage takes, in its order; nothing on other ranks. Named inputs would reach every stage of the rank."""
    if 0 not in stages:
        return []
    tensors = {spec["name"]: tensor for spec, tensor in zip(settings["inputs"], inputs)}
    return [tensors[node.name] for node in stages[0].submod.graph.nodes if node.op == "placeholder"]


def run(settings, options):
    """All steps; returns losses and times, on every rank."""
    device, replica, rank, group, copies, shared_groups = connect(settings, options)
    module, stages = build(settings, options, device, rank, group)
    schedule = _PipelineScheduleRuntime(list(stages.values()), settings["microbatches"], loss_fn=loss_of(settings))
    schedule._load_csv(os.path.join(HERE, "schedule.csv"))
    parameters = list({id(p): p for stage in stages.values() for p in stage.submod.parameters()}.values())
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    optimizer = kinds[options.optimizer](parameters, lr=options.lr)
    shared = shared_gradients(settings, stages, shared_groups)
    inputs, target = batch_of(settings, module, options, replica)
    inputs, target = first_inputs(settings, stages, [tensor.to(device) for tensor in inputs]), target.to(device)
    last = len(settings["stage_to_rank"]) - 1 in stages
    means, times = [], []

    def step():
        losses = []
        optimizer.zero_grad(set_to_none=True)
        begin = time.perf_counter()
        loss_arguments = {"target": target, "losses": losses, "return_outputs": False} if last else {}
        schedule.step(*inputs, **loss_arguments)
        for parameter, holders in shared:
            dist.all_reduce(parameter.grad, group=holders)
        if settings["replicas"] > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad, group=copies)
                    parameter.grad /= settings["replicas"]
        optimizer.step()
        seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64, device=device)
        mean = torch.stack(losses).mean().detach().double() if losses else torch.zeros((), dtype=torch.float64, device=device)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        dist.all_reduce(mean)
        means.append(float(mean) / settings["replicas"])
        times.append(float(seconds))

    for number in range(options.steps):
        if not options.trace or number + 1 < options.steps:
            step()
            continue
        with torch.profiler.profile() as profiler:
            step()
        os.makedirs(options.trace, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(options.trace, f"rank_{dist.get_rank()}.json"))
    return means, times


def main(arguments=None):
    """Runs the plan beside this script."""
    options = parse(arguments)
    with open(os.path.join(HERE, "pipeline.json"), encoding="utf-8") as file:
        settings = json.load(file)
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
