"""Small models whose graphs depend on data, branch, nest their inputs or use complex numbers and custom operators. Archives in tests/data are made by

    python tests/support/python/data_models.py NAME tests/data/NAME.pt2 [custom_ops.so]

experts: three experts that index their tokens, a boolean mask, a number read by item().  branches: torch.cond, one in the other, and a
while_loop with gradients.  complex_weights: spectral layers, complex values between modules, conjugation.  complex_numbers: complex numbers
as operands.  nested: dicts and tuples in and out.  custom: an operator of tests/support/custom_ops.cpp, which must be loaded first.
"""

import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

BATCH = torch.export.Dim("batch")


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class ExpertBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(8, 3), nn.ModuleList(Expert() for _ in range(3))

    def forward(self, x):
        tokens = x.reshape(-1, 8)
        weights, chosen = self.router(tokens).softmax(-1).topk(2)
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(chosen == number)
            mixed = mixed.index_add(0, token, expert(tokens[token]) * weights[token, place, None])
        return x + mixed.reshape(x.shape)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.blocks, self.head = nn.Linear(8, 8), nn.ModuleList([ExpertBlock()]), nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        positive = x.sum(-1) > 0
        x = x.masked_scatter(positive[..., None].expand_as(x), self.inner(x[positive]))
        with torch.no_grad():
            scale = x.abs().mean().item()
        return self.head(x) * (scale / x.shape[0] ** 0.5)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def inside(self, x):
        return torch.cond(x.mean() > 0, lambda y: self.second(y) / y.shape[0], lambda y: y.sin(), (x,))

    def forward(self, x):
        x = self.first(x)
        x = torch.cond(x.sum() > 0, self.inside, lambda y: self.third(y).tanh(), (x,))
        rounds = (x.detach()[0, 0] * 0 + 3).to(torch.int64)
        _, _, x = torch.while_loop(lambda i, n, y: i < n, lambda i, n, y: (i + 1, n.clone(), self.third(y).tanh()), (torch.tensor(0), rounds, x))
        return self.head(x)


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat) * 0.3)
        self.gain = nn.Parameter(torch.randn(5, dtype=torch.cfloat) * 0.3)

    def forward(self, x):
        return torch.einsum("bix,iox->box", x, self.weight) + x * self.gain.conj()


class ComplexWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.first, self.second, self.mix, self.drop = nn.Conv1d(1, 4, 1), Spectral(), Spectral(), nn.Conv1d(4, 4, 1), nn.Conv1d(4, 1, 1)

    def forward(self, x):
        x = self.lift(x)
        modes = torch.fft.rfft(x)[..., :5]
        modes = self.second(self.first(modes).conj())
        return self.drop(F.gelu(torch.fft.irfft(F.pad(modes, (0, 4)), n=16) + self.mix(x)))


class ComplexNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x):
        turned = torch.fft.fft(self.first(x) * 1j) * (0.5 - 2j) + 1j
        return self.second(torch.view_as_real(turned).flatten(1))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, batch, pair):
        hidden = self.a(batch["x"]) + self.b(batch["more"]["y"])
        hidden = hidden + pair[0] * pair[1]
        return {"out": self.head(hidden), "states": (hidden, {"last": hidden[:, -1]})}


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.ops.pipewright_test.scaled_square(self.first(x), 0.5)
        return self.head(torch.ops.pipewright_test.scaled_square(self.second(x), 0.25))


def experts():
    return Experts(), (torch.randn(4, 3, 8),), ({0: BATCH},)


def branches():
    return Branches(), (torch.randn(4, 8),), ({0: BATCH},)


def complex_weights():
    return ComplexWeights(), (torch.randn(4, 1, 16),), ({0: BATCH},)


def complex_numbers():
    return ComplexNumbers(), (torch.randn(4, 8),), ({0: BATCH},)


def nested():
    rows = {0: BATCH}
    inputs = ({"x": torch.randn(4, 8), "more": {"y": torch.randn(4, 4)}}, (torch.randn(4, 8), torch.randn(4, 8)))
    return Nested(), inputs, ({"x": rows, "more": {"y": rows}}, (rows, rows))


def custom():
    return Custom(), (torch.randn(4, 8),), ({0: BATCH},)


def main():
    name, path = sys.argv[1], sys.argv[2]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(here, "..", "..", "..", "resources"))
    import export_model

    for library in sys.argv[3:]:
        torch.ops.load_library(library)
        torch.library.register_fake("pipewright_test::scaled_square")(lambda x, scale: torch.empty_like(x))
    torch.manual_seed(0)
    model, inputs, shapes = globals()[name]()
    program = torch.export.export(model.train(), inputs, dynamic_shapes=shapes, strict=False)
    export_model.write(program, path, export_model.known_folders(os.path.join(here, "data_models.py") + ":" + name),
                       lambda archive: export_model.new_record(program, None))


if __name__ == "__main__":
    main()
