"""The exporter as a function."""

import warnings

import numpy as np
import pipewright as pw
import pytest

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.frozen = torch.nn.Dropout(0.5).eval()
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def test_a_module_becomes_a_model(tmp_path):
    net = Net().eval()
    net.first.train()
    file = tmp_path / "net.pt2"
    record = pw.export(net, (torch.randn(4, 8),), file, seed=np.int64(3))
    assert record["check"] == "equal" and record["torch"].startswith("2.11")
    assert (net.training, net.first.training, net.last.training) == (False, True, False)
    found = pw.inspect(file)
    assert found["symbolic_batch"] and found["trace_check"]
    parameters = sum(p.numel() for p in net.parameters())
    assert next(m for m in found["modules"] if m["depth"] == 0)["parameters"] == parameters == 8 * 16 + 16 + 16 * 4 + 4


def test_a_fixed_batch(tmp_path):
    pw.export(Net(), {"x": torch.randn(4, 8)}, tmp_path / "net.pt2", static_batch=True)
    assert not pw.inspect(tmp_path / "net.pt2")["symbolic_batch"]


def test_another_batch_dimension(tmp_path):
    class Transposed(Net):
        def forward(self, x):
            return super().forward(x.transpose(0, 1))

    pw.export(Transposed(), (torch.randn(8, 4),), tmp_path / "net.pt2", batch_dim={"x": 1})
    assert pw.inspect(tmp_path / "net.pt2")["inputs"][0]["batch_dimension"] == 1


def test_a_mixing_batch_warns(tmp_path):
    class Mixes(Net):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    with pytest.warns(UserWarning, match="not independent samples"):
        pw.export(Mixes(), (torch.randn(4, 8),), tmp_path / "net.pt2")


def test_what_cannot_be_exported_is_refused_with_its_place(tmp_path):
    class Jumps(Net):
        def forward(self, x):
            return x if x.sum() > 0 else super().forward(x)

    with pytest.raises(pw.UsageError, match="Jumps"):
        pw.export(Jumps(), (torch.randn(4, 8),), tmp_path / "net.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module, inputs, name, words", [
    (Net(), (torch.randn(4, 8),), "net.pt", "pt2"),
    (Net(), (torch.randn(4, 8),), "no/folder/net.pt2", "folder"),
    (Net(), (), "net.pt2", "inputs"),
    (Net(), (1,), "net.pt2", "tensor"),
    (5, (torch.randn(4, 8),), "net.pt2", "Module"),
])
def test_unusable_exports(tmp_path, module, inputs, name, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pw.UsageError, match=words) as caught:
            pw.export(module, inputs, tmp_path / name)
    assert "--" not in str(caught.value)


def test_from_module_to_loss(tmp_path):
    class WithLoss(Net):
        def forward(self, x):
            return super().forward(x).square().mean()

    file = tmp_path / "net.pt2"
    pw.export(WithLoss(), (torch.randn(4, 8),), file)
    plan = pw.plan(file, ranks=2, microbatches=2, splits=["last"], cluster="cpu-workstation")
    result = pw.run(plan, steps=2, lr=0.1)
    assert result.losses[1] < result.losses[0]
