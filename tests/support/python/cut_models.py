"""Writes small models, each with something that torch.distributed.pipelining alone gets wrong when it is cut, and data for them: FOLDER/NAME.pt2, NAME.pt.

    cut_models.py FOLDER

shared: one module called in every layer, as ALBERT's.  late: an input that only the last layers read.
aux: an output beside the loss that crosses the cut.  decoder: attention to another sequence, whose views the cut makes impossible.
named: inputs in a tuple and one called as a function of Python; a buffer called as an operator, which a no_grad region changes
with a parameter and which is a factor.
apart: a buffer that the forward changes and takes apart, and one that it changes and gives in a list.
early: a value of parameters alone crosses the cut between two stages in the middle.
recurrent: an operator that uses its weights once for each step of a sequence.
strided: a view that is not contiguous crosses the cut.  marked: torch's own marks, where the plan does not cut.
table: inputs without a batch, one on both sides of the cut.  masked: a mask of an input, on both sides of the cut.  rotary: what a no_grad region computes of an input, on both sides, as HF Llama's.
"""

import os
import sys

import torch
from torch import nn
from torch.distributed.pipelining import pipe_split
from torch.export import Dim
from torch.utils._pytree import tree_leaves, tree_map

WIDTH = 16


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.layer, self.out = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(4)])

    def forward(self, x):
        x = self.enter(x)
        for norm in self.norms:
            x = x + torch.tanh(self.layer(norm(x)))
        return self.out(x)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x, w):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))) * w)


class Aux(Late):
    def forward(self, x):
        first = torch.tanh(self.a(x))
        aux = first.pow(2).mean(-1)
        second = torch.tanh(self.b(first))
        return self.c(second), aux + second.mean(-1)


class Named(Late):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH, WIDTH))

    def forward(self, pair, input):
        with torch.no_grad():
            torch.div(self.a.weight @ self.a.weight.t(), 2, out=self.mean)
        first = torch.tanh(self.a(pair[0] - pair[1])) @ self.mean
        return self.c(torch.tanh(self.b(first)) + first.mean(-1, keepdim=True)) * input


class Apart(Late):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.linspace(0.5, 1.5, 2 * WIDTH).reshape(2, WIDTH))
        self.register_buffer("turn", torch.eye(WIDTH))

    def forward(self, x):
        self.state.mul_(0.9)
        self.turn.mul_(0.9)
        scale, shift = self.state.unbind(0)
        first = torch.einsum("bi,ij->bj", torch.tanh(self.a(x)) * scale + shift, self.turn)
        return self.c(torch.tanh(self.b(first)))


class Early(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.size = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        second = torch.tanh(self.b(torch.tanh(self.a(x))))
        size = self.size.exp()
        return self.d(torch.tanh(self.c(second)) * size)


class Marked(Late):
    def forward(self, x):
        first = torch.tanh(self.a(x))
        pipe_split()
        return self.c(torch.tanh(self.b(first)))


class Strided(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.b, self.out = nn.Linear(6, WIDTH), nn.Linear(5, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.b(torch.tanh(self.enter(x)).transpose(1, 2)[:, :, :5])))


class Masked(Late):
    def forward(self, x, keep):
        unseen = keep.eq(0).unsqueeze(-1)
        first = torch.tanh(self.a(x)).masked_fill(unseen, 0.0)
        return self.c(torch.tanh(self.b(first)).masked_fill(unseen, 0.0))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.LSTM(6, WIDTH, batch_first=True), nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.c(self.b(self.a(x)[0])[0])


class Table(Late):
    def forward(self, x, table, share):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)) + table)) * table * share)


class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pace", torch.arange(1.0, WIDTH + 1))

    @torch.no_grad()
    def forward(self, places):
        return (places.unsqueeze(-1) * self.pace).cos(), (places.unsqueeze(-1) * self.pace).sin()


class Rotary(Late):
    def __init__(self):
        super().__init__()
        self.angles = Angles()

    def forward(self, x, places):
        first = torch.tanh(self.a(x))
        cos, sin = self.angles(places)
        return self.c(torch.tanh(self.b(first * cos + first.roll(1, -1) * sin)) * cos)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.b = nn.Linear(6, WIDTH), nn.TransformerDecoderLayer(WIDTH, 2, WIDTH, dropout=0.0, batch_first=True)
        self.embed, self.out = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x, y):
        return self.out(self.b(self.embed(y), torch.tanh(self.enter(x))))


def main():
    torch.manual_seed(0)
    rows, batch = 32, Dim("batch")
    x, target = torch.randn(rows, 6), torch.randn(rows, 3)
    models = {
        "shared": (Shared(), {"x": x}, target),
        "late": (Late(), {"x": x, "w": torch.randn(rows, 1)}, target),
        "aux": (Aux(), {"x": x}, target),
        "named": (Named(), {"pair": (x, torch.randn(rows, 6)), "input": torch.randn(rows, 1)}, target),
        "apart": (Apart(), {"x": x}, target),
        "early": (Early(), {"x": x}, target),
        "decoder": (Decoder(), {"x": torch.randn(rows, 7, 6), "y": torch.randn(rows, 5, 4)}, torch.randn(rows, 5, 3)),
        "masked": (Masked(), {"x": x, "keep": torch.randint(0, 2, (rows,))}, target),
        "recurrent": (Recurrent(), {"x": torch.randn(rows, 7, 6)}, torch.randn(rows, 7, 3)),
        "table": (Table(), {"x": x, "table": torch.randn(WIDTH), "share": torch.tensor(0.7)}, target),
        "rotary": (Rotary(), {"x": x, "places": torch.randn(rows)}, target),
        "marked": (Marked(), {"x": x}, target),
        "strided": (Strided(), {"x": torch.randn(rows, 7, 6)}, torch.randn(rows, WIDTH, 3)),
    }
    for name, (model, inputs, wanted) in models.items():
        whole = {"table", "share"}
        example = tuple(value if given in whole else tree_map(lambda tensor: tensor[:2], value) for given, value in inputs.items())
        dynamic = tuple(None if given in whole else tree_map(lambda _: {0: batch}, value) for given, value in inputs.items())
        program = torch.export.export(model.train(), example, dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, os.path.join(sys.argv[1], f"{name}.pt2"))
        flat = {f"{given}_{i}" if isinstance(value, tuple) else given: tensor for given, value in inputs.items() for i, tensor in enumerate(tree_leaves(value))}
        torch.save({**flat, "target": wanted}, os.path.join(sys.argv[1], f"{name}.pt"))


if __name__ == "__main__":
    main()
