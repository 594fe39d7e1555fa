"""Estimated times against torch's own count of FLOPs."""

import json

import pipewright as pw
import pytest

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

PEAK = 1e9  # FLOP/s; memory and launches take next to no time


@pytest.fixture
def flops_alone(root, tmp_path):
    """A cluster whose devices take a nanosecond for each FLOP."""
    cluster = json.loads((root / "resources/clusters/a100-nvlink.json").read_text())
    device = cluster["device"]
    device.update(peak_flops={"fp32": PEAK}, efficiency={"default": [[1.0, 1.0]]}, memory_bytes_per_s=1e18, launch_overhead_ns=0)
    path = tmp_path / "flops.json"
    path.write_text(json.dumps(cluster))
    return path


class Lora(torch.nn.Module):
    """W x + B A x, W frozen (arXiv 2106.09685)."""

    def __init__(self, width, rank):
        super().__init__()
        self.frozen = torch.nn.Linear(width, width).requires_grad_(False)
        self.down = torch.nn.Linear(width, rank, bias=False)
        self.up = torch.nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


class Sequence(torch.nn.Module):
    """(x W) B C, as one operator of three factors."""

    def __init__(self):
        super().__init__()
        self.enter = torch.nn.Linear(64, 64)
        self.b, self.c = torch.nn.Parameter(torch.randn(64, 64)), torch.nn.Parameter(torch.randn(64, 64))

    def forward(self, x):
        return torch.einsum("ij,jk,kl->il", self.enter(x), self.b, self.c)


def frozen(module):
    return module.requires_grad_(False)


def bias_only(module):
    module.weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    "model, shape",
    [
        (torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)), (8, 64)),
        (torch.nn.Sequential(Lora(64, 4), torch.nn.ReLU(), Lora(64, 4)), (8, 64)),
        (torch.nn.Sequential(torch.nn.Linear(64, 64), frozen(torch.nn.Linear(64, 64)), torch.nn.Linear(64, 8)), (8, 64)),
        (torch.nn.Sequential(torch.nn.Linear(64, 64), bias_only(torch.nn.Linear(64, 64))), (8, 64)),
        (torch.nn.Sequential(frozen(torch.nn.Linear(64, 64)), torch.nn.Linear(64, 64)), (8, 64)),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), frozen(torch.nn.Conv2d(8, 8, 3)), torch.nn.Conv2d(8, 4, 3)), (4, 3, 12, 12)),
        (Sequence(), (8, 64)),
    ],
    ids=["mlp", "lora", "frozen", "bias", "frozen first", "convolutions", "einsum"],
)
def test_a_backward_takes_what_its_flops_take(model, shape, flops_alone, tmp_path):
    x = torch.randn(*shape)
    with FlopCounterMode(display=False) as counter:
        output = model(x)
        forward = counter.get_total_flops()
        output.sum().backward()
        backward = counter.get_total_flops() - forward
    pw.export(model, (x,), tmp_path / "model.pt2")
    costs = json.loads(pw.profile(tmp_path / "model.pt2", microbatch=shape[0], cluster=flops_alone, loss="sum").to_json())
    assert sum(node[0] for node in costs["nodes"]) == pytest.approx(forward, rel=1e-3)
    assert sum(node[1] for node in costs["nodes"]) == pytest.approx(backward, rel=1e-3)
    assert costs["backward_flops"] == backward
    plan = pw.plan(tmp_path / "model.pt2", ranks=1, microbatches=2, microbatch=shape[0], cluster=flops_alone, loss="sum")
    predicted = pw.simulate(plan)
    assert predicted.mfu == pytest.approx(2 * (forward + backward) / (PEAK * predicted.step_ns * 1e-9))
