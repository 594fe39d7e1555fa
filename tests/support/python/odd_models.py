"""Small models with what the samples lack; archives in tests/data are made of them by

    resources/export_model.py tests/support/python/odd_models.py:NAME --out tests/data/NAME.pt2

recurrent: LSTM (several outputs), group norm.  unet: skip connection, transposed convolution, batch norm, operators in place.
several_inputs: boolean input, frozen parameter, buffer, chunk, dropout, integer outputs.
mixed: in-place addition through a view, a mask filled in place, autocast to bfloat16.  attention: multi-head attention, 1-d convolution.
faulty: NaN in the forward of a sample whose `level` is below 0, in its backward alone where `gate` is 0; parameters and buffers that nothing reads.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(50, 16), nn.LSTM(16, 16, batch_first=True)
        self.norm, self.head = nn.GroupNorm(2, 16), nn.Linear(16, 50)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(self.norm(states.transpose(1, 2)).transpose(1, 2))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.down2 = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 4, 1)

    def forward(self, image):
        fine = self.down1(image)
        return self.out(torch.cat([fine, self.up(self.down2(fine))], 1)).permute(0, 2, 3, 1)


class SeveralInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(4, 16, bias=False), nn.Linear(16, 16)
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)
        self.register_buffer("scale", torch.tensor(2.0))
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, y, flag):
        mixed = torch.where(flag.unsqueeze(-1), self.a(x), self.b(y)) * self.frozen / self.scale
        left, right = mixed.chunk(2, -1)
        out = self.dropout(F.gelu(self.c(torch.cat([right, left], -1))))
        top = out.topk(4, dim=-1)
        return out, top.values, top.indices


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gate = nn.Embedding(64, 16), nn.Linear(16, 2)
        self.experts, self.head = nn.ModuleList([nn.Linear(16, 16) for _ in range(2)]), nn.Linear(16, 64)

    def forward(self, tokens):
        h = self.embed(tokens)
        weights = self.gate(h).softmax(-1)
        h = h + sum(weights[..., i : i + 1] * expert(h) for i, expert in enumerate(self.experts))
        h[:, 0] += 1.0
        mask = torch.zeros(h.shape[1], h.shape[1])
        mask[0] = 1
        mask = mask.masked_fill(torch.triu(torch.ones_like(mask), 1).bool(), float("-inf"))
        attention = (h @ h.transpose(1, 2) / 4 + mask.clamp(min=-1e4)).softmax(-1)
        with torch.autocast("cpu", torch.bfloat16):
            h = attention @ h
        return self.head(h.float())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        y = self.conv(x.transpose(1, 2)).transpose(1, 2)
        y, _ = self.attention(y, y, y)
        return F.adaptive_avg_pool1d(self.layer(y).transpose(1, 2), 1).squeeze(-1)


class Faulty(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.unused, self.frozen = nn.Linear(8, 3), nn.BatchNorm1d(8)
        self.register_buffer("seen", torch.tensor(5))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.middle, self.out = nn.Linear(8, 8), nn.Linear(8, 4)
        self.middle.weight = self.enter.weight

    def forward(self, x, level, gate):
        h = self.enter(x)
        h = h + torch.sqrt((h * gate.unsqueeze(-1)).abs())
        h = self.middle(torch.relu(self.norm(h)))
        h = F.batch_norm(h, self.frozen.running_mean, self.frozen.running_var, self.frozen.weight, self.frozen.bias)
        return self.out(h * torch.log(level).unsqueeze(-1))


def recurrent():
    return Recurrent(), (torch.randint(0, 50, (2, 12)),)


def unet():
    return Unet(), (torch.randn(2, 3, 16, 16),)


def several_inputs():
    return SeveralInputs(), {"x": torch.randn(4, 8), "y": torch.randn(4, 4), "flag": torch.tensor([True, False, True, False])}


def mixed():
    return Mixed(), (torch.randint(0, 64, (2, 10)),)


def attention():
    return Attention(), (torch.randn(2, 12, 8),)


def faulty():
    return Faulty(), {"x": torch.randn(4, 8), "level": torch.full((4,), 3.0), "gate": torch.ones(4)}
