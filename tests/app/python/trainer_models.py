"""Small models of the three families that the trainer is compared with the plain loop on."""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "resources"))
from sample_models import Gpt  # noqa: E402


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6))


class LlamaLayer(nn.Module):
    """Rotary positions, two query heads for each key head, a gated feed-forward; no biases."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.attention_norm, self.feed_norm = RmsNorm(width), RmsNorm(width)

    def rotated(self, x):
        angles = torch.arange(x.shape[2])[:, None] / 100 ** (torch.arange(self.size // 2) / (self.size // 2))
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def forward(self, x):
        batch, length, width = x.shape
        h = self.attention_norm(x)
        query = self.query(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        key, value = self.key_value(h).view(batch, length, 2, self.heads // 2, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        key, value = (one.repeat_interleave(2, 1) for one in (self.rotated(key), value))
        mixed = F.scaled_dot_product_attention(self.rotated(query), key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        h = self.feed_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Takes labels and computes its own loss, with the head tied to the embedding."""

    def __init__(self, vocabulary=64, width=32, layers=2, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


class ResidualBlock(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


def gpt():
    model = Gpt(vocabulary=64, length=12, width=32, layers=2, heads=2)

    def batches(steps):
        return [((torch.randint(64, (8, 12)),), torch.randint(64, (8, 12))) for _ in range(steps)]

    return model, batches, lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()), {"loss": "cross_entropy", "microbatches": 4}


def llama():
    def batches(steps):
        made = [({"tokens": torch.randint(64, (8, 12)), "labels": torch.randint(64, (8, 12))}, None) for _ in range(steps)]
        for number, (batch, _) in enumerate(made):
            batch["labels"][0, number:] = -100  # samples that count differently
        return made

    return Llama(), batches, lambda out, target: out[0], {"loss": "output:0", "loss_count": "auto", "microbatches": 2}


def resnet():
    def batches(steps):
        return [((torch.randn(8, 3, 8, 8),), torch.randint(10, (8,))) for _ in range(steps)]

    # One microbatch: batch norm sees the whole batch, as in the plain loop.
    return ResNet(), batches, F.cross_entropy, {"loss": "cross_entropy", "microbatches": 1}


MODELS = {"gpt": gpt, "llama": llama, "resnet": resnet}
