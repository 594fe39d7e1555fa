"""Small models that use weights in every way the engine has a rule for, and in ways it has none for; archives in tests/data are made of them by

    resources/export_model.py tests/support/python/weight_models.py:NAME --out tests/data/weights_NAME.pt2

products: matrix products on either side, sums, elementwise products, views of weights, frozen and unused ones, one weight in two places.
convolutions: one to three dimensions, paddings by name, groups, transposed.  embeddings: padding, scaled by frequency, tied to the head.
norms: layer, RMS, group, instance and batch norm, with frozen parts and with statistics that are not updated.
"""

import torch
import torch.nn.functional as F
from torch import nn


def weight(*shape, trained=True):
    return nn.Parameter(torch.randn(*shape) * 0.3, requires_grad=trained)


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)  # again at the end, in another stage
        self.mm, self.addmm, self.addmm_bias = weight(8, 8), weight(8, 8), weight(8)
        self.bmm, self.left_bmm, self.left_mm = weight(6, 8, 8), weight(6, 8, 8), weight(8, 8)
        self.matmul, self.vector, self.left_matmul = weight(8, 8), weight(8), weight(8, 8)
        self.factor, self.left_factor, self.bias, self.left_bias = weight(8), weight(6, 1), weight(6, 8), weight(1)
        self.doubled, self.subtracted, self.own_square, self.sine = weight(8), weight(8), weight(8, 8), weight(8, 8)
        self.turned, self.viewed, self.sliced, self.broad = weight(8, 8), weight(4, 16), weight(16, 8), weight(1, 8)
        self.frozen_weight, self.trained_bias = weight(8, 8, trained=False), weight(8)
        self.trained_weight, self.frozen_bias = weight(8, 8), weight(8, trained=False)
        self.twice, self.unused = nn.Linear(8, 8), weight(8)

    def forward(self, x):
        x = self.first(x)
        flat = x.reshape(-1, 8)
        flat = torch.tanh(torch.mm(flat, self.mm))
        flat = torch.tanh(torch.addmm(self.addmm_bias, flat, self.addmm))
        flat = torch.tanh(torch.mm(self.left_mm, flat.t()).t())
        x = x + flat.reshape(x.shape)
        turned = x.transpose(0, 1)
        x = x + torch.bmm(turned, self.bmm).transpose(0, 1)
        x = x + torch.bmm(self.left_bmm, turned.transpose(1, 2)).permute(2, 0, 1)
        x = torch.tanh(x @ self.matmul) + (x @ self.vector).unsqueeze(-1)
        x = x + (self.left_matmul @ x.transpose(1, 2)).transpose(1, 2)
        x = x * self.factor + self.left_factor * x
        x = x + self.bias
        x = torch.tanh(self.left_bias + x)
        x = torch.add(x, self.doubled, alpha=2) - self.subtracted
        x = x @ (self.own_square * self.own_square) + torch.tanh(x @ self.sine) @ torch.sin(self.sine)
        x = torch.tanh(x)
        x = F.linear(x, self.turned.t()) + x @ self.turned
        x = torch.tanh(x) @ self.viewed.view(8, 8) + x @ self.viewed.reshape(16, 4)[:8].repeat(1, 2)
        x = torch.tanh(x) @ self.sliced[4:12] + self.broad.expand(6, 8)
        x = torch.tanh(F.linear(x, self.frozen_weight, self.trained_bias))
        x = torch.tanh(F.linear(x, self.trained_weight, self.frozen_bias))
        side = (x * self.unused).sum(-1)
        x = self.twice(torch.tanh(self.twice(x)))
        return self.first(x), side


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.valid = nn.Conv1d(4, 8, 3, padding="same", dilation=2), nn.Conv1d(8, 8, 3, padding="valid", bias=False)
        self.uneven, self.groups = nn.Conv1d(8, 8, 4, padding="same"), nn.Conv1d(8, 8, 3, padding=1, stride=2, groups=4)
        self.up = nn.ConvTranspose1d(8, 8, 2, stride=2)
        self.flat, self.flat_same = nn.Conv2d(2, 4, (3, 1), padding=(1, 0), groups=2), nn.Conv2d(4, 4, 3, padding="same")
        self.transposed, self.transposed_bias = weight(4, 2, 3, 3), weight(4)
        self.deep = nn.Conv3d(1, 2, (1, 3, 3), padding=(0, 1, 1))
        self.deep.weight.requires_grad_(False)
        self.one = nn.Conv1d(8, 4, 1)

    def forward(self, x):
        x = self.valid(torch.tanh(self.same(x)))
        x = torch.tanh(self.uneven(x))
        x = self.up(self.groups(x))
        image = self.flat(torch.tanh(x).reshape(x.shape[0], 2, 4, -1))
        image = torch.tanh(self.flat_same(image))
        image = torch.convolution(image, self.transposed, self.transposed_bias, [2, 1], [1, 1], [1, 1], True, [1, 0], 2)
        solid = self.deep(torch.tanh(image).reshape(image.shape[0], 1, 4, 8, -1))
        return self.one(torch.tanh(solid).reshape(image.shape[0], 8, -1))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.padded = nn.Embedding(12, 8), nn.Embedding(12, 8, padding_idx=3)
        self.scaled, self.position = nn.Embedding(12, 8, scale_grad_by_freq=True), nn.Embedding(6, 8)
        self.turned, self.mix = weight(8, 12), nn.Linear(8, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.plain.weight

    def forward(self, tokens):
        x = self.plain(tokens) + self.padded(tokens) + self.scaled(tokens)
        x = x + self.position(torch.arange(6)) + F.embedding(tokens, self.turned.t())
        return self.head(torch.tanh(self.mix(x)))


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.no_bias, self.frozen = nn.LayerNorm(8), nn.LayerNorm((6, 8), bias=False), nn.LayerNorm(8)
        self.frozen.weight.requires_grad_(False)
        self.rms, self.rms_fixed, self.group = nn.RMSNorm(8), nn.RMSNorm(8, eps=1e-3), nn.GroupNorm(2, 6)
        self.batch, self.image, self.still = nn.BatchNorm1d(6), nn.BatchNorm2d(6), nn.BatchNorm1d(6)
        self.instance, self.free = nn.InstanceNorm1d(6, affine=True, track_running_stats=True), nn.BatchNorm1d(6, affine=False)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        for module in self.modules():
            for name, value in module.named_parameters(recurse=False):
                if "Norm" in type(module).__name__:
                    nn.init.normal_(value, 1.0 if name == "weight" else 0.0, 0.3)
        nn.init.normal_(self.still.running_mean, 0, 0.3)
        nn.init.uniform_(self.still.running_var, 0.5, 2)

    def forward(self, x):
        x = self.layer(self.a(x))
        x = self.rms(torch.tanh(self.no_bias(x)))
        x = self.group(self.rms_fixed(self.frozen(x)))
        x = self.batch(torch.tanh(x))
        x = self.image(x.reshape(x.shape[0], 6, 2, 4)).reshape(x.shape)
        x = self.still(torch.tanh(x))
        return self.b(self.free(self.instance(x)))

    def train(self, mode=True):
        super().train(mode)
        self.still.eval()
        return self


def products():
    return Products(), (torch.randn(2, 6, 8),)


def convolutions():
    return Convolutions(), (torch.randn(2, 4, 18),)


def embeddings():
    return Embeddings(), (torch.randint(0, 12, (2, 6)),)


def norms():
    return Norms(), (torch.randn(2, 6, 8),)
