"""Trains dropout-free sample archives in plain PyTorch and writes what the executor must reproduce.

    python_reference.py OUT MICROBATCHES STEPS LR [OPERATORS.so...] MODEL.pt2=LOSS...

Per model a folder OUT/<stem> with `data.pt` (inputs and target as `run --data` takes them; batch = 2 x MICROBATCHES) and the tensor
folder of reference.py: gradients of step 0, parameters after the last step, losses.
"""

import json
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import reference  # noqa: E402


def inputs_of(path, batch, loss, archive):
    """Seeded inputs of the sizes at export with `batch` samples; integers stay below 10, the fewest classes of any sample."""
    program = torch.export.load(path)
    names = set(program.graph_signature.user_inputs)
    tensors = {}
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in names:
            continue
        value = node.meta["val"]
        shape = [batch] + [int(size) for size in value.shape[1:]]
        tensors[node.name] = torch.randint(0, 2 if value.dtype == torch.bool else 10, shape, dtype=value.dtype) if not value.dtype.is_floating_point else torch.randn(shape, dtype=value.dtype)
    if loss in ("cross_entropy", "mse"):
        with torch.no_grad():
            output = archive(tensors)[0][0]
        tensors["target"] = torch.randn(output.shape) if loss == "mse" else torch.randint(0, 10, output.shape[:-1])
    return tensors


def main():
    out, microbatches, steps, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    for library in (argument for argument in sys.argv[5:] if argument.endswith(".so")):
        torch.ops.load_library(library)
    for number, argument in enumerate(argument for argument in sys.argv[5:] if not argument.endswith(".so")):
        path, loss = argument.split("=", 1)
        torch.manual_seed(number)
        batch = inputs_of(path, 2 * microbatches, loss, reference.Archive(path))
        folder = os.path.join(out, os.path.splitext(os.path.basename(path))[0])
        os.makedirs(folder, exist_ok=True)
        torch.save(batch, os.path.join(folder, "data.pt"))
        archive = reference.Archive(path)  # batch norm's statistics moved above
        losses, tensors = reference.train(archive, batch, loss, microbatches, steps, rate)
        reference.write_tensors(folder, tensors)
        with open(os.path.join(folder, "result.json"), "w", encoding="utf-8") as file:
            json.dump({"losses": losses}, file)


if __name__ == "__main__":
    main()
