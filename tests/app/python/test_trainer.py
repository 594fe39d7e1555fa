"""Training from a script equals the plain loop of PyTorch."""

import difflib
import json
import math
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import warnings

import pipewright as pw
import pytest

torch = pytest.importorskip("torch")

from pipewright._optimizers import NAMES, kind_of, make_optimizer, numbers_of  # noqa: E402

HERE = pathlib.Path(__file__).parent
STEPS = 5
DEADLINE_S = 240


def job(script, *arguments, ranks=2, cwd=None):
    """A job of torchrun that has ended."""
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH") or str(HERE.parents[2] / "build" / "python")])])
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script), *map(str, arguments)]
    return subprocess.run(call, env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, cwd=cwd, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """What each rank of a job of two says of each model."""
    path = tmp_path_factory.mktemp("trainer") / "result"
    done = job(HERE / "trainer_job.py", path, "gpt", "llama", "resnet")
    assert done.returncode == 0, done.stderr
    return [json.loads(pathlib.Path(f"{path}.{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", ["gpt", "llama", "resnet"])
def test_five_steps_equal_the_plain_loop(compared, name):
    first, second = (rank[name] for rank in compared)
    assert first["losses"] == second["losses"], "every rank knows the loss"
    assert first["losses"] == pytest.approx(first["expected"], rel=1e-5)
    assert first["losses"][0] != pytest.approx(first["losses"][-1], rel=1e-3), "it trains"
    # A step changes a parameter by up to lr = 2e-2; see OPTIMIZER in trainer_job.py for what rounding makes of it.
    for rank in (first, second):
        assert rank["difference"][0] < 1e-5 and rank["updated"][0] < 1e-5, rank["difference"]
        assert rank["untouched"] == 0, "the module itself is not changed until update()"
    assert "2 ranks" in first["decision"] and first["decision"] == second["decision"]


@pytest.mark.parametrize("name", ["gpt", "llama", "resnet"])
def test_the_callback_sees_each_step_on_rank_zero(compared, name):
    first, second = (rank[name] for rank in compared)
    assert second["steps"] == []
    assert [step[0] for step in first["steps"]] == list(range(STEPS))
    assert [step[1] for step in first["steps"]] == first["losses"]
    for _, _, rate, norm, bubble, step_ns, ranks in first["steps"]:
        assert 0 < rate <= 2e-2 and norm > 0 and math.isfinite(norm)
        assert 0 <= bubble < 1 and step_ns > 0 and ranks == 2


def test_the_trainer_changes_at_most_five_lines_of_a_script(tmp_path):
    plain, split = (HERE / "scripts" / name for name in ("plain.py", "split.py"))
    written = [line for line in difflib.unified_diff(plain.read_text().splitlines(), split.read_text().splitlines(), n=0, lineterm="")
               if line.startswith("+") and not line.startswith("+++")]
    assert len(written) <= 5, written
    alone = subprocess.run([sys.executable, plain, tmp_path / "plain.pt"], text=True, capture_output=True, check=True, timeout=DEADLINE_S)
    done = job(split, tmp_path / "split.pt")
    assert done.returncode == 0, done.stderr
    expected = [float(line) for line in alone.stdout.split()]
    printed = [float(number) for number in re.findall(r"\d+\.\d{6}", done.stdout)]  # torchrun mixes what both ranks print
    assert len(expected) == 6 and sorted(printed) == pytest.approx(sorted(2 * expected), rel=1e-5, abs=2e-6)  # both ranks print 6 decimals
    one, other = torch.load(tmp_path / "plain.pt"), torch.load(tmp_path / "split.pt")
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-5, atol=1e-5)  # see OPTIMIZER in trainer_job.py for eps


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """What each rank of a job of two says of the cases that end well."""
    folder = tmp_path_factory.mktemp("cases")
    done = job(HERE / "trainer_cases.py", folder, "refused_batches", "paused", "sharded", "decided", "recorded", "begun_badly", "grouped")
    assert done.returncode == 0, done.stderr
    return folder, [json.loads((folder / f"result.{rank}").read_text()) for rank in range(2)]


def test_an_unusable_batch_is_refused_on_all_ranks_and_changes_nothing(cases):
    first, second = (rank["refused_batches"] for rank in cases[1])
    sentences = [sentence for kind, sentence in first["answers"] if kind == "UsageError"]
    assert len(sentences) == len(first["answers"]) == 10
    assert second["answers"] == first["answers"]
    words = ["6 samples", "float64", "[8, 5]", "target", "class 5|class 4|class 3", "2 tensors", "Rank 1 has another batch than rank 0 in step 1",
             "6 samples", "learning rate", "closed"]
    for sentence, expected in zip(sentences, words):
        assert any(word in sentence for word in expected.split("|")), (sentence, expected)
    assert first["losses"] == second["losses"] == first["expected"]


def test_a_paused_training_goes_on_as_if_it_had_not_been(cases):
    first, second = (rank["paused"] for rank in cases[1])
    assert first == second
    assert all("nowhere" in sentence for kind, sentence in first["missing"]), first["missing"]
    assert first["losses"] == first["expected"][:3] and first["resumed"] == first["expected"][2:] and first["equal"]
    assert first["again"] == first["expected"][:2], "new weights begin a new training"
    assert first["names"] == [f"{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias")]


def test_zero1_continues_also_where_its_state_was_read_before_the_first_step(cases):
    first, second = (rank["sharded"] for rank in cases[1])
    assert first == second
    assert first["losses"] == pytest.approx(first["expected"], rel=1e-6)


def test_unasked_it_takes_what_is_predicted_to_be_faster(cases):
    first, second = (rank["decided"] for rank in cases[1])
    assert first == second and first["ranks"] * first["replicas"] == 2
    times = [float(part) for part in re.findall(r"([\d.e+-]+) ms", first["decision"])]
    assert (first["ranks"] == 2) == (times[1] < times[0]), first["decision"]
    assert math.isfinite(first["loss"])


def test_a_store_keeps_the_steps(cases):
    folder, (first, second) = cases
    run = pw.Store(folder / "runs.db")[1]
    assert run.state == "completed" and run.losses == pytest.approx(first["recorded"]["losses"], rel=1e-12)
    assert second["recorded"]["losses"] == first["recorded"]["losses"]
    assert first["recorded"]["failure"][0] == second["recorded"]["failure"][0] == "Error"
    assert [one.state for one in pw.Store(folder / "runs.db")] == ["completed", "failed", "failed"], "one run each, whatever rank fails"
    assert len((folder / "log.csv").read_text().splitlines()) == 1 + 3


def test_a_training_that_fails_while_it_begins_leaves_nothing_running(cases):
    folder, results = cases
    first, second = (rank["begun_badly"] for rank in results)
    assert first["answer"][0] == second["answer"][0] == "Error"
    assert first["answer"][1].startswith("Cannot write the loss log") and "rank 0" in second["answer"][1].lower()
    for rank in (first, second):
        assert rank["after"] <= rank["before"], "threads"
        assert rank["loss"] == rank["expected"]
    run, = pw.Store(folder / "bad.db")
    assert run.state == "failed"


def test_groups_of_parameters_are_those_of_torch_in_training_and_checkpoint(cases):
    first, second = (rank["grouped"] for rank in cases[1])
    assert first == second
    assert first["groups"] == [[[3e-2, 0.0, 3], [1e-2, 0.5, 3]]] * 2
    assert max(first["differences"]) < 1e-6, "of weights of which a step changes some by 2e-2"
    assert first["refused"][0] == "UsageError" and "differ in eps" in first["refused"][1]
    assert first["differs"][0] == "UsageError" and "other settings of the optimizer" in first["differs"][1]


def apart(folder, case):
    """The two ranks of a job without torchrun, which would end the other rank itself: what they said and returned, and the first's result."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(2):
        where = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([sys.executable, HERE / "trainer_cases.py", folder, case], env={**os.environ, **where}, text=True,
                                      stderr=subprocess.PIPE, cwd=folder))
    try:
        complaints = [rank.communicate(timeout=DEADLINE_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert ranks[0].returncode == 0, complaints[0]
    return json.loads((folder / "result.0").read_text())[case], ranks[1].returncode, complaints[1]


def test_a_rank_that_ends_is_named_to_the_others(tmp_path):
    left, _, _ = apart(tmp_path, "left")
    assert left["answer"][0] == "Error" and "rank 1" in left["answer"][1].lower(), left
    assert left["after"][0] == "Error" and "has ended" in left["after"][1]


@pytest.mark.parametrize("call, name", [("step", "step 1"), ("state_dict", "state_dict")])
def test_a_rank_that_exits_is_named_to_the_others_in_their_next_call(tmp_path, call, name):
    exited, status, complaint = apart(tmp_path, f"exited_before_{call}")
    assert status == 1
    assert exited["answer"][0] == "Error" and f"rank 1 has come to the end and rank 0 to {name};" in exited["answer"][1], exited
    assert "the training did not shut down cleanly" in complaint


def test_alone_a_process_trains_the_whole_model(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text((HERE / "scripts" / "split.py").read_text().replace(", ranks=2", ', cluster="cpu-workstation"'))
    paths = os.environ.get("PYTHONPATH") or str(HERE.parents[2] / "build" / "python")
    alone = [subprocess.run([sys.executable, one, tmp_path / "alone.pt"], env={**os.environ, "PYTHONPATH": paths}, text=True,
                            capture_output=True, check=True, timeout=DEADLINE_S).stdout for one in (script, HERE / "scripts" / "plain.py")]
    assert [float(x) for x in alone[0].split()] == pytest.approx([float(x) for x in alone[1].split()], rel=1e-5)


@pytest.mark.parametrize("made, kind, numbers", [
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0}),
    (lambda p: torch.optim.AdamW(p, betas=(0.8, 0.9)), "adamw", {"lr": 1e-3, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8, "weight_decay": 1e-2}),
    (lambda p: torch.optim.Adam(p, weight_decay=0.1, decoupled_weight_decay=True), "adamw", {"weight_decay": 0.1}),
    (lambda p: torch.optim.RMSprop(p, alpha=0.5), "rmsprop", {"lr": 1e-2, "alpha": 0.5, "eps": 1e-8, "momentum": 0}),
])
def test_an_optimizer_is_read_as_it_is(made, kind, numbers):
    optimizer = made([torch.nn.Parameter(torch.zeros(2))])
    assert kind_of(optimizer) == kind
    found = numbers_of(optimizer)
    assert {name: found[name] for name in numbers} == numbers


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_of_the_engine_is_one_of_torch_by_name_and_class(name):
    made = getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(2))], lr=0.5)
    assert kind_of(made) == NAMES[name] and numbers_of(made)["lr"] == 0.5
    assert type(make_optimizer(NAMES[name], [torch.nn.Parameter(torch.zeros(2))], {})) is type(made)


def test_groups_of_parameters_are_read_by_name():
    one, other = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.AdamW([{"params": [other], "weight_decay": 0.0}, {"params": [one]}], lr=0.1, weight_decay=0.2)
    numbers = numbers_of(optimizer, {id(one): "one", id(other): "other"})
    assert numbers["groups"] == [(0.1, 0.0, ["other"]), (0.1, 0.2, ["one"])] and numbers["weight_decay"] == 0
    assert "groups" not in numbers_of(torch.optim.AdamW([one, other]), {id(one): "one", id(other): "other"})


def after_a_step(optimizer):
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones(2)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("made, words", [
    (lambda p: torch.optim.Adagrad(p), "Adagrad"),
    (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
    (lambda p: torch.optim.SGD([{"params": p[:1], "momentum": 0.1}, {"params": p[1:]}], lr=0.1), "differ in momentum"),
    (lambda p: "adamax", "adamax"),
    (lambda p: torch.optim.SGD(p[:1], lr=0.1), "leaves out"),
    (lambda p: torch.optim.SGD([*p, torch.nn.Parameter(torch.zeros(2))], lr=0.1), "not the model's"),
    (lambda p: after_a_step(torch.optim.Adam(p)), "state"),
])
def test_an_optimizer_that_the_engine_does_not_have_is_refused(made, words):
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))]
    with pytest.raises(pw.UsageError, match=words):
        make_optimizer(made(parameters), parameters, {})


def test_parameters_that_stay_as_they_are_may_be_left_out_of_an_optimizer():
    trained, frozen = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    optimizer = torch.optim.SGD([trained], lr=0.1)
    assert make_optimizer(optimizer, [trained, frozen], {}) is optimizer


def test_an_export_leaves_the_random_numbers_of_its_caller(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
    torch.manual_seed(7)
    random.seed(7)
    expected = torch.rand(3), random.random()
    torch.manual_seed(7)
    random.seed(7)
    pw.export(model, (torch.ones(2, 4),), tmp_path / "model.pt2")
    assert torch.initial_seed() == 7
    assert torch.equal(torch.rand(3), expected[0]) and random.random() == expected[1]


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x), self.unused(x)


@pytest.mark.parametrize("decay, told", [(0.1, True), (0.0, False)])
def test_a_parameter_without_a_gradient_that_weight_decay_changes_is_named(decay, told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pw.Trainer(TwoHeads(), torch.ones(4, 4), optimizer="adamw", weight_decay=decay, loss="cross_entropy", cluster="cpu-workstation").close()
    named = [str(one.message) for one in caught if "unused.weight and 1 parameter more" in str(one.message)]
    assert len(named) == told, [str(one.message) for one in caught]


def test_what_would_be_trained_in_another_way_than_it_says_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    with pytest.raises(pw.UsageError, match="schedule.*plan="):
        pw.Trainer(model, torch.ones(4, 4), optimizer="sgd", lr=0.1, plan="plan.json", schedule="zbv")
    model[1].eval()
    with pytest.raises(pw.UsageError, match="1 is in eval"):
        pw.Trainer(model, torch.ones(4, 4), optimizer="sgd", lr=0.1, cluster="cpu-workstation")
