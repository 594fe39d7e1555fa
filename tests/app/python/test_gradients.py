"""Trained parameters equal PyTorch's where a model uses them in ways that need care: detached, in part, twice, changed in place."""

import copy
import json
import subprocess

import pipewright as pw
import pytest
from pipewright._pipewright import program
from pipewright._program import environment

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

STEPS, BATCH, RATE = 3, 4, 0.2


class Uses(nn.Module):
    """Each parameter is used in a way of its own."""

    def __init__(self):
        super().__init__()
        self.enter, self.detached, self.clamped, self.leave = (nn.Linear(8, 8) for _ in range(4))
        self.complex = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64) / 3)
        self.windows = nn.Parameter(torch.randn(6) / 3)
        self.diagonals = nn.Parameter(torch.randn(64) / 3)
        self.turned = nn.Parameter(torch.randn(8, 8) / 3)
        self.only_detached = nn.Parameter(torch.randn(8))

    def forward(self, x):
        h = self.enter(x)
        with torch.no_grad():
            h.mul_(0.5)
        h = self.detached(h) + F.linear(h, self.detached.weight.detach())
        with torch.no_grad():
            self.clamped.weight.clamp_(-0.2, 0.2)
        h = torch.tanh(self.clamped(h)) + self.only_detached.detach()
        h = F.linear(h, self.complex.real) * F.linear(h, self.complex.imag) + F.linear(h, self.turned.t().detach().t())
        h = h + F.linear(h, self.turned.t()) + F.linear(h, self.diagonals.as_strided((8, 8), (1, 1)))
        h = h + F.pad(F.linear(h[:, :3], self.windows.unfold(0, 3, 2)), (0, 6))
        return self.leave(torch.tanh(h))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uses")
    torch.manual_seed(0)
    model, data = Uses(), {"x": torch.randn(STEPS * BATCH, 8), "target": torch.randn(STEPS * BATCH, 8)}
    pw.export(copy.deepcopy(model), (data["x"][:BATCH],), folder / "uses.pt2")
    torch.save(data, folder / "data.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for x, target in zip(data["x"].split(BATCH), data["target"].split(BATCH)):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return folder, model.state_dict(), losses


# The microbatches of a step share a weight that is changed in place, so that there is one; a split at the module after such a change.
@pytest.mark.parametrize("ranks, schedule", [(1, "gpipe"), (2, "1f1b"), (2, "zb-h1")])
def test_trained_parameters_equal_pytorchs(exported, ranks, schedule, tmp_path):
    folder, expected, losses = exported
    plan = pw.plan(
        folder / "uses.pt2",
        ranks=ranks,
        microbatches=1,
        microbatch=BATCH,
        schedule=schedule,
        loss="mse",
        cluster="cpu-workstation",
        splits=["detached"] if ranks > 1 else (),
    )
    result = pw.run(plan, steps=STEPS, data=folder / "data.pt", lr=RATE, save=tmp_path / "trained.pt", verify=True)
    assert result.losses == pytest.approx(losses, rel=1e-5)
    trained = torch.load(tmp_path / "trained.pt", weights_only=False)
    for name, value in expected.items():
        torch.testing.assert_close(trained[name], value, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


class LastState(nn.Module):
    """The usual classifier by an LSTM; torch 2.11 traces its last state with a dimension too many."""

    def __init__(self):
        super().__init__()
        self.recur, self.mix, self.leave = nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.leave(torch.tanh(self.mix(self.recur(x)[1][0][-1])))


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_last_state_of_an_lstm_trains_as_in_pytorch(ranks, tmp_path):
    torch.manual_seed(0)
    model = LastState()
    data = {"x": torch.randn(BATCH, 5, 6), "target": torch.randint(0, 3, (BATCH,))}
    torch.save(data, tmp_path / "data.pt")
    pw.export(copy.deepcopy(model), (data["x"][:2],), tmp_path / "last.pt2")
    plan = pw.plan(
        tmp_path / "last.pt2", ranks=ranks, microbatches=2, batch=BATCH, loss="cross_entropy", cluster="cpu-workstation",
        splits=["mix"] if ranks > 1 else (),
    )
    result = pw.run(plan, data=tmp_path / "data.pt", verify=True)
    assert result.losses == pytest.approx([F.cross_entropy(model(data["x"]), data["target"]).item()], rel=1e-5)


def test_an_lstm_whose_states_were_traced_wrong_is_refused(tmp_path):
    model, x = LastState(), torch.randn(2, 5, 6)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "plain.pt2")
    with pytest.raises(pw.UsageError, match="last states of an nn.LSTM.*export the model with"):
        pw.inspect(tmp_path / "plain.pt2")


def test_batch_norm_without_running_statistics_evaluates_by_those_of_the_batch(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3))
    data = {"input": torch.randn(BATCH, 6), "target": torch.randint(0, 3, (BATCH,))}
    torch.save(data, tmp_path / "data.pt")
    pw.export(copy.deepcopy(model), (data["input"],), tmp_path / "norm.pt2")
    plan = pw.plan(tmp_path / "norm.pt2", ranks=1, microbatches=1, batch=BATCH, loss="cross_entropy", cluster="cpu-workstation")
    plan.save(tmp_path / "plan.json")
    command = ["run", tmp_path / "plan.json", "--eval", "--data", tmp_path / "data.pt", "--json"]
    done = subprocess.run([program(), *command], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss"] == pytest.approx(F.cross_entropy(model.eval()(data["input"]), data["target"]).item(), rel=1e-5)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x, mask):
        error = ((self.leave(torch.tanh(self.enter(x))) - x) ** 2).mean(-1)
        return {"loss": (error * mask).sum() / (mask.sum() + x.shape[0]).clamp(min=1)}


def test_a_fixed_batch_is_counted_as_in_pytorch(tmp_path):
    torch.manual_seed(0)
    model, data = Masked(), {"x": torch.randn(BATCH, 5, 6), "mask": (torch.rand(BATCH, 5) > 0.5).float()}
    torch.save(data, tmp_path / "data.pt")
    pw.export(copy.deepcopy(model), tuple(data.values()), tmp_path / "fixed.pt2", static_batch=True)
    plan = pw.plan(tmp_path / "fixed.pt2", ranks=1, microbatches=1, loss="output:loss", cluster="cpu-workstation")
    result = pw.run(plan, data=tmp_path / "data.pt", loss_count="auto")
    assert result.losses == pytest.approx([model(**data)["loss"].item()], rel=1e-5)
