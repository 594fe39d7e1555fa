"""Exports small models about which `inspect --report` says different things, to OUT/<name>.pt2:

    verdict_models.py OUT

plain: a step is the same with any microbatch size.  dropout: apart from random draws.  counter: a buffer counts calls.  instance_norm: running statistics.
spectral_norm: power iteration in each forward.  token_mean: a loss over targets that are not -100.  root: a loss that is the root of a mean.
total: a loss that is a sum.  experts: tokens picked by data.  noise: random numbers that cannot be switched off.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim


class Net(nn.Module):
    """A layer, what is special, and another layer."""

    def __init__(self, special=None):
        super().__init__()
        self.a, self.special, self.b = nn.Linear(6, 8), special, nn.Linear(8, 5)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return self.b(h if self.special is None else self.special(h))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class InstanceNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(2, track_running_stats=True)

    def forward(self, x):
        return self.norm(x.unflatten(1, (2, 4))).flatten(1)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 2), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x):
        choice, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            (rows,) = torch.where(choice == i)
            out = out.index_add(0, rows, expert(x[rows]))
        return out


class Loss(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.net, self.of = Net(), of

    def forward(self, x, y):
        return {"loss": self.of(self.net(x), y)}


class TokenMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 8), nn.Linear(8, 9)

    def forward(self, tokens, labels):
        logits = self.out(torch.tanh(self.embed(tokens)))
        return {"loss": F.cross_entropy(logits.view(-1, 9), labels.view(-1)), "logits": logits}


def main():
    out = sys.argv[1]
    torch.manual_seed(0)
    x, tokens = torch.randn(4, 6), torch.randint(0, 9, (4, 10))
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    nn.init.normal_(spectral.parametrizations.weight.original)  # as training does: the vectors, exact at first, are then out of date
    models = {
        "plain": (Net(nn.LayerNorm(8)), (x,)),
        "dropout": (Net(nn.Dropout(0.5)), (x,)),
        "counter": (Net(Counter()), (x,)),
        "instance_norm": (Net(InstanceNorm()), (x,)),
        "spectral_norm": (Net(spectral), (x,)),
        "token_mean": (TokenMean(), (tokens, tokens.clone())),
        "root": (Loss(lambda a, b: F.mse_loss(a, b).sqrt()), (x, torch.randn(4, 5))),
        "total": (Loss(lambda a, b: F.mse_loss(a, b, reduction="sum")), (x, torch.randn(4, 5))),
        "noise": (Net(Noise()), (x,)),
        "experts": (Net(Experts()), (x,)),
    }
    batch = Dim("batch")
    for name, (model, inputs) in models.items():
        shapes = tuple({0: batch} for _ in inputs)
        program = torch.export.export(model.train(), inputs, dynamic_shapes=shapes, strict=False)
        torch.export.save(program, os.path.join(out, f"{name}.pt2"))


if __name__ == "__main__":
    main()
