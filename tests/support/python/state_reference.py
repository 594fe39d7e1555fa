"""What PyTorch itself says about checkpoints and optimizers.

    state_reference.py optimizers FOLDER   per case a file: first values, gradients of 20 steps, last values and state
    state_reference.py save FOLDER         files of torch.save in the forms users have
    state_reference.py check FOLDER        loads FOLDER/written.pt as users would; a sentence on stdout where it is not as expected
"""

import collections
import os
import sys

import torch

STEPS, SIZE = 20, 1003  # not a multiple of any vector's width

CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.02}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_decay": (torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.02}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01}),
    "rmsprop_momentum": (torch.optim.RMSprop, {"lr": 0.01, "alpha": 0.9, "momentum": 0.8, "weight_decay": 0.02}),
}


def optimizers(folder):
    for number, (name, (make, options)) in enumerate(CASES.items()):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            torch.manual_seed(number)
            first = torch.randn(SIZE).to(dtype)
            gradients = torch.randn(STEPS, SIZE).to(dtype)
            tensors = {"first": first, "gradients": gradients}
            kinds = {"plain": {"foreach": False}, "fused": {"fused": True}}
            if make is torch.optim.RMSprop:
                kinds["fused"] = kinds["plain"]  # there is no other
            if dtype.itemsize == 2:
                del kinds["fused"]  # wrong in torch 2.11: SGD leaves most parameters as they were
            for kind, extra in kinds.items():
                parameter = torch.nn.Parameter(first.clone())
                optimizer = make([parameter], **options, **extra)
                for step in range(STEPS):
                    parameter.grad = gradients[step].clone()
                    optimizer.step()
                tensors[kind] = parameter.detach()
                for key, value in optimizer.state[parameter].items():
                    if key != "step":
                        tensors[f"{kind}_{key}"] = value
            torch.save(tensors, os.path.join(folder, f"{name}_{str(dtype).split('.')[1]}.pt"))


class Tied(torch.nn.Module):
    """Two names of one parameter, buffers, a parameter of 16 bits."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.small = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16))
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def counted(model):
    """The model with the numbers 0, 1, 2, ... in each tensor."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
    return model


def save(folder):
    def write(name, value, **options):
        torch.save(value, os.path.join(folder, name + ".pt"), **options)

    model = counted(Tied())
    write("state_dict", model.state_dict())
    write("parameters", dict(model.named_parameters()))
    write("protocol4", model.state_dict(), pickle_protocol=4)
    table = torch.arange(24.0).reshape(4, 6)
    write("views", {"turned": table.t(), "column": table[:, 2], "part": table[1:3, 2:4], "empty": torch.empty(0, 3), "number": torch.tensor(7)})
    write("mixed", {"step": 3, "rate": 0.5, "big": 2**80, "name": "run", "list": [torch.ones(2)], "w": torch.arange(3), "config": {"a": torch.ones(1)}})
    write("nested", {"model": model.state_dict(), "optimizer": {"lr": 0.1}})
    write("list", [torch.ones(2)])
    write("tensor", torch.ones(2))
    write("class", collections.Counter("aab"))
    write("legacy", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
    write("unsigned", {"w": torch.arange(3), "u": torch.ones(2, dtype=torch.uint16)})


def check(folder):
    path = os.path.join(folder, "written.pt")
    for options in ({}, {"mmap": True}, {"weights_only": False}):
        state = torch.load(path, **options)
        want = counted(Tied()).state_dict()
        if sorted(state) != sorted(want):
            return f"names {sorted(state)}"
        for name, tensor in want.items():
            if state[name].dtype != tensor.dtype or not torch.equal(state[name], tensor):
                return f"{name} is {state[name]}"
        if state["embed.weight"].untyped_storage().data_ptr() != state["head.weight"].untyped_storage().data_ptr():
            return "tied names have two storages"
        model = Tied()
        model.load_state_dict(state, strict=True)
        if not torch.equal(model.head.weight, want["embed.weight"]) or model.norm.num_batches_tracked != 0:
            return "load_state_dict took other values"
    return ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    problem = {"optimizers": optimizers, "save": save, "check": check}[sys.argv[1]](sys.argv[2])
    if problem:
        sys.exit(problem)
