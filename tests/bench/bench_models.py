"""Models of the benches beside gpt_25m of resources/sample_models.py."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "resources"))
import sample_models  # noqa: E402


def _mlp(width):
    """Four linear layers, 64 samples."""
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]), (torch.randn(64, width),)


def mlp_16():
    return _mlp(16)


def mlp_256():
    return _mlp(256)


def mlp_1024():
    return _mlp(1024)


def gpt_heavy_head():
    """A GPT whose head (32,768 words) weighs as much as many of its blocks: equal halves by layers are far from equal work."""
    model = sample_models.Gpt(vocabulary=32768, length=64, width=256, layers=8, heads=4)
    return model, {"tokens": sample_models.token_ids(32768, 64)}


def gpt_350m():
    """24 blocks of width 1,024: about 350 million parameters."""
    model = sample_models.Gpt(vocabulary=50304, length=64, width=1024, layers=24, heads=16)
    return model, {"tokens": sample_models.token_ids(50304, 64)}


def gpt_70b():
    """80 blocks of width 8,192 and 4,096 tokens, 65 billion parameters: exported with --meta, without weights."""
    model = sample_models.Gpt(vocabulary=50304, length=4096, width=8192, layers=80, heads=64)
    return model, {"tokens": sample_models.token_ids(50304, 4096)}
