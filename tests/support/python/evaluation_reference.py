"""Outputs of archives in evaluation mode (dropout off, norms by their running statistics) in plain PyTorch.

    evaluation_reference.py OUT BATCH MODEL.pt2...

Per model a folder OUT/<stem> with `data.pt` (inputs, and a target for mse) and the tensor folder of reference.py: the first output as `output`.
An archive's operators have their training flag as a constant, so the graph is edited: what `module.eval()` would have exported.
"""

import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import python_reference  # noqa: E402
import reference  # noqa: E402


def evaluating(archive):
    """Sets dropout off and norms to their running statistics in the archive's graph."""
    for node in archive.module.graph.nodes:
        if node.op != "call_function" or not hasattr(node.target, "_schema"):
            continue
        for position, argument in enumerate(node.target._schema.arguments):
            if argument.name in ("train", "training"):
                value = False
            elif argument.name == "use_input_stats" and node.args[3] is not None:
                value = False
            elif argument.name == "dropout_p":
                value = 0.0
            else:
                continue
            if position < len(node.args):
                node.update_arg(position, value)
            elif argument.name in node.kwargs:
                node.update_kwarg(argument.name, value)
    archive.module.recompile()
    return archive


def main():
    out, batch = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    for number, path in enumerate(sys.argv[3:]):
        torch.manual_seed(number)
        inputs = python_reference.inputs_of(path, batch, "mse", reference.Archive(path))
        folder = os.path.join(out, os.path.splitext(os.path.basename(path))[0])
        os.makedirs(folder, exist_ok=True)
        torch.save(inputs, os.path.join(folder, "data.pt"))
        with torch.no_grad():
            leaves, _ = evaluating(reference.Archive(path))(inputs)
        reference.write_tensors(folder, {"output": leaves[0]})


if __name__ == "__main__":
    main()
