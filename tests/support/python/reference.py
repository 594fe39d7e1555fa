#!/usr/bin/env python3
"""Trains a `.pt2` archive in plain PyTorch on one process: the numbers the executor must reproduce.

    reference.py MODEL.pt2 --inputs DIR --out DIR --loss cross_entropy|mse|sum|output:NAME --microbatches M
                 [--steps N] [--lr X]

A tensor folder (`--inputs`, `--out`) holds raw little-endian row-major files and `index.json`, a list of
`{"name", "dtype", "shape", "file"}`. Inputs: one entry per model input under its name in the trace, batch first, and
`target` where the loss needs one. Output: `grad:FQN` (step 0, summed over microbatches), `param:FQN` (after the last
step), `result.json` `{"losses": [...]}`, each step's loss before its update. Every step uses the same inputs.

The batch is cut like numpy.array_split (sizes as equal as possible, larger first). A microbatch's loss is
  cross_entropy  sum over its targets / number of targets of the whole batch that are not -100
  mse            sum of squared differences / number of output elements of the whole batch
  sum            sum of the output / samples of the whole batch
  output:NAME    that output * samples of the microbatch / samples of the whole batch
NAME is the output's key where the model returns a dict, else its name in the trace. Exit status: 0 done, 2 bad input.
"""

import argparse
import json
import os
import sys

import numpy
import torch
import torch.distributed.pipelining  # noqa: F401 - registers the operator of pipe_split() marks

DTYPES = {
    "float32": numpy.float32, "float64": numpy.float64, "float16": numpy.float16, "int64": numpy.int64,
    "int32": numpy.int32, "int16": numpy.int16, "int8": numpy.int8, "uint8": numpy.uint8, "bool": numpy.bool_,
}
IGNORED_TARGET = -100


class InputError(Exception):
    """One sentence for the caller."""


def read_tensors(folder):
    """A tensor folder to {name: torch.Tensor}."""
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    tensors = {}
    for entry in index:
        if entry["dtype"] not in DTYPES:
            raise InputError(f"'{entry['name']}' in '{folder}' has the unknown dtype '{entry['dtype']}'.")
        values = numpy.fromfile(os.path.join(folder, entry["file"]), dtype=DTYPES[entry["dtype"]])
        tensors[entry["name"]] = torch.from_numpy(values.reshape(entry["shape"]))
    return tensors


def write_tensors(folder, tensors):
    """{name: torch.Tensor} to a tensor folder, files numbered in order."""
    os.makedirs(folder, exist_ok=True)
    index = []
    for number, (name, tensor) in enumerate(tensors.items()):
        values = tensor.detach().contiguous().numpy()
        values.tofile(os.path.join(folder, f"{number}.bin"))
        index.append({"name": name, "dtype": str(values.dtype), "shape": list(values.shape), "file": f"{number}.bin"})
    with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)


def split(tensors, microbatches):
    """{name: tensor} to a list of {name: part} along dimension 0, larger parts first."""
    sizes = {tensor.shape[0] for tensor in tensors.values()}
    if len(sizes) != 1:
        raise InputError(f"the inputs have batch sizes {sorted(sizes)} in dimension 0; give all the same.")
    if microbatches < 1 or microbatches > min(sizes):
        raise InputError(f"a batch of {min(sizes)} samples cannot be cut into {microbatches} microbatches.")
    parts = {name: torch.tensor_split(tensor, microbatches) for name, tensor in tensors.items()}
    return [{name: parts[name][m] for name in tensors} for m in range(microbatches)]


class Archive:
    """An exported program as a callable of named inputs with named outputs."""

    def __init__(self, path):
        program = torch.export.load(path)
        self.module = program.module(check_guards=False)
        self.inputs = list(program.graph_signature.user_inputs)
        self.traced_outputs = list(program.graph_signature.user_outputs)
        self.in_spec = program.call_spec.in_spec
        self.parameters = dict(self.module.named_parameters(remove_duplicate=False))
        # Tied parameters load as several tensors on one storage: each group is updated once, by its first member.
        groups = {}
        for value in self.parameters.values():
            group = groups.setdefault((value.data_ptr(), value.shape, value.stride()), [])
            if not any(value is member for member in group):
                group.append(value)
        self.groups = list(groups.values())

    def __call__(self, tensors):
        missing = [name for name in self.inputs if name not in tensors]
        if missing:
            raise InputError(f"the inputs lack '{missing[0]}'; the model takes {', '.join(self.inputs)}.")
        args, kwargs = torch.utils._pytree.tree_unflatten([tensors[name] for name in self.inputs], self.in_spec)
        result = self.module(*args, **kwargs)
        leaves = torch.utils._pytree.tree_leaves(result)
        outputs = dict(zip(self.traced_outputs, leaves))
        if isinstance(result, dict):
            outputs.update((key, value) for key, value in result.items() if isinstance(value, torch.Tensor))
        return leaves, outputs

    def gather_tied_gradients(self):
        """Adds the gradients of tied parameters into their group's first member and clears the others."""
        for first, *others in self.groups:
            for other in others:
                if other.grad is not None:
                    first.grad = other.grad if first.grad is None else first.grad + other.grad
                    other.grad = None

    def gradients(self):
        """{FQN: gradient}, every name of a tied parameter included; names without a gradient are left out."""
        first = {id(member): group[0] for group in self.groups for member in group}
        values = {name: first[id(value)].grad for name, value in self.parameters.items()}
        return {name: value.clone() for name, value in values.items() if value is not None}


def loss_normaliser(loss, batch, sample_output):
    """What a microbatch's summed loss is divided by; `sample_output` is one microbatch's first output."""
    samples = next(iter(batch.values())).shape[0]
    if loss == "cross_entropy":
        return int((batch["target"] != IGNORED_TARGET).sum())
    if loss == "mse":
        return samples * (sample_output.numel() // sample_output.shape[0])
    return samples


def summed_loss(loss, part, leaves, outputs):
    """The sum-reduced loss of one microbatch (for output:NAME the output times the microbatch's samples)."""
    if loss == "cross_entropy":
        logits = leaves[0].reshape(-1, leaves[0].shape[-1])
        return torch.nn.functional.cross_entropy(logits, part["target"].reshape(-1), reduction="sum",
                                                 ignore_index=IGNORED_TARGET)
    if loss == "mse":
        return torch.nn.functional.mse_loss(leaves[0], part["target"], reduction="sum")
    if loss == "sum":
        return leaves[0].sum()
    name = loss.partition(":")[2]
    if name not in outputs:
        raise InputError(f"the model has no output '{name}'; it has {', '.join(outputs)}.")
    return outputs[name] * next(iter(part.values())).shape[0]


def run_step(archive, batch, loss, microbatches):
    """Forward and backward of one step; gradients add up in `.grad`. Returns the step's loss."""
    total = 0.0
    for part in split(batch, microbatches):
        leaves, outputs = archive(part)
        value = summed_loss(loss, part, leaves, outputs) / loss_normaliser(loss, batch, leaves[0])
        value.backward()
        total += value.item()
    return total


def train(archive, batch, loss, microbatches, steps, rate):
    """N steps of SGD; returns (losses, {grad:FQN of step 0 and param:FQN at the end})."""
    optimizer = torch.optim.SGD([group[0] for group in archive.groups], lr=rate)
    losses, tensors = [], {}
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        losses.append(run_step(archive, batch, loss, microbatches))
        archive.gather_tied_gradients()
        if step == 0:
            tensors.update((f"grad:{name}", value) for name, value in archive.gradients().items())
        optimizer.step()
    tensors.update((f"param:{name}", value) for name, value in archive.parameters.items())
    return losses, tensors


def parse(arguments):
    """Command line to options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.pt2")
    parser.add_argument("--inputs", required=True, metavar="DIR")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--loss", required=True, metavar="cross_entropy|mse|sum|output:NAME")
    parser.add_argument("--microbatches", type=int, required=True)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random operators (dropout)")
    return parser.parse_args(arguments)


def check_loss(loss, batch):
    """Refuses an unknown loss and a missing target."""
    if loss not in ("cross_entropy", "mse", "sum") and not (loss.startswith("output:") and len(loss) > 7):
        raise InputError(f"the loss '{loss}' is not one of cross_entropy, mse, sum, output:NAME.")
    if loss in ("cross_entropy", "mse") and "target" not in batch:
        raise InputError(f"the loss {loss} needs an input named 'target'.")


def main(arguments=None):
    """Runs the reference; returns the exit status."""
    options = parse(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    try:
        batch = read_tensors(options.inputs)
        check_loss(options.loss, batch)
        archive = Archive(options.model)
        losses, tensors = train(archive, batch, options.loss, options.microbatches, options.steps, options.lr)
    except (InputError, OSError) as error:
        print(f"reference: {error}", file=sys.stderr)
        return 2
    write_tensors(options.out, tensors)
    with open(os.path.join(options.out, "result.json"), "w", encoding="utf-8") as file:
        json.dump({"losses": losses}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
