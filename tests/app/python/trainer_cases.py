"""A rank of the trainer's tests: what a user may do right and wrong in a job of two. Each case returns what the test compares.

    … trainer_cases.py FOLDER CASE…
"""

import json
import os
import sys

import torch
from torch import nn

import pipewright as pw

RANK = int(os.environ.get("RANK", "0"))


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def batches(count, seed=5):
    drawn = torch.Generator().manual_seed(seed)
    return [(torch.randn(8, 6, generator=drawn), torch.randint(3, (8,), generator=drawn)) for _ in range(count)]


def trainer(model, **how):
    how = {"optimizer": "adamw", "lr": 1e-2, "loss": "cross_entropy", "ranks": 2, "cluster": "cpu-workstation", "timeout": 60, **how}
    return pw.Trainer(model, batches(1)[0][0], **how)


def refusal(work):
    """The kind and sentence of the package's error."""
    try:
        work()
    except pw.Error as problem:
        return [type(problem).__name__, str(problem)]
    return None


def refused_batches(folder):
    """Each unusable batch is refused on all ranks, and the training continues as if it had not been offered."""
    (x, y), *others = batches(3)
    answers = []
    with trainer(network()) as one:
        losses = [one.step(x, y)]
        answers.append(refusal(lambda: one.step(x[:6], y[:6])))
        answers.append(refusal(lambda: one.step(x.double(), y)))
        answers.append(refusal(lambda: one.step(x[:, :5], y)))
        answers.append(refusal(lambda: one.step(x)))
        answers.append(refusal(lambda: one.step(x, y + 3)))
        answers.append(refusal(lambda: one.step((x, x), y)))
        answers.append(refusal(lambda: one.step(*batches(1, seed=5 + RANK)[0])))
        if RANK == 1:  # this rank alone offers one that is too small
            answers.append(refusal(lambda: one.step(x[:6], y[:6])))
        else:
            answers.append(refusal(lambda: one.step(x, y)))
        one.optimizer.param_groups[0]["lr"] = 1e-2 * (1 + RANK)
        answers.append(refusal(lambda: one.step(x, y)))
        one.optimizer.param_groups[0]["lr"] = 1e-2
        losses += [one.step(*batch) for batch in others]
    answers.append(refusal(lambda: one.step(x, y)))
    with trainer(network()) as other:
        expected = [other.step(*batch) for batch in [(x, y), *others]]
    return {"answers": answers, "losses": losses, "expected": expected}


def paused(folder):
    """A training that resumes from a checkpoint is the one that was not interrupted."""
    data = batches(5)
    path = os.path.join(folder, "paused.pt")
    with trainer(network()) as whole:
        expected = [whole.step(*batch) for batch in data]
        state = whole.state_dict()
    with trainer(network()) as first:
        losses = [first.step(*batch) for batch in data[:2]]
        first.save(path)
        missing = [refusal(lambda: first.save(os.path.join(folder, "nowhere", "paused.pt"))),
                   refusal(lambda: first.load(os.path.join(folder, "nowhere.pt")))]
        first.step(*data[4])
        first.load(path)
        losses += [first.step(*batch) for batch in data[2:3]]
    with trainer(network(), resume=path) as second:
        resumed = [second.step(*batch) for batch in data[2:]]
        ends = second.state_dict()
        second.load_state_dict(network().state_dict())
        again = [second.step(*batch) for batch in data[:2]]
    return {"expected": expected, "losses": losses, "resumed": resumed, "again": again,
            "equal": all(torch.equal(state[name], ends[name]) for name in state), "names": list(state), "missing": missing}


def sharded(folder):
    """With ZeRO-1: a checkpoint that is written before the first step of a resumed training changes nothing."""
    data = batches(4)
    path, copy = (os.path.join(folder, name) for name in ("sharded.pt", "copy.pt"))
    how = {"ranks": 1, "microbatches": 1, "zero1": True}
    with trainer(network(), **how) as first:
        for batch in data[:2]:
            first.step(*batch)
        first.save(path)
        expected = [first.step(*batch) for batch in data[2:]]
    with trainer(network(), resume=path, **how) as second:
        second.save(copy)
        losses = [second.step(*batch) for batch in data[2:]]
    return {"expected": expected, "losses": losses}


def decided(folder):
    """Not asked, the trainer takes the plan that is predicted to take less time."""
    with trainer(network(), ranks=None, microbatches=2) as one:
        loss = one.step(*batches(1)[0])
        return {"decision": one.decision, "ranks": one.plan.ranks, "replicas": one.plan.replicas, "loss": loss}


def recorded(folder):
    """With a store the run and its steps are kept."""
    store = os.path.join(folder, "runs.db")
    with trainer(network(), store=store, log=os.path.join(folder, "log.csv")) as one:
        losses = [one.step(*batch) for batch in batches(3)]
    x, y = batches(1)[0]
    broken = trainer(network(), store=store)
    failure = refusal(lambda: broken.step(x / 0, y))  # on both ranks
    broken.close()
    try:
        with trainer(network(), store=store) as one:
            one.step(x, y)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return {"losses": losses, "failure": failure}


def begun_badly(folder):
    """A training that fails while it begins, on rank 0 after its record was begun, leaves nothing running, and another one can begin."""
    def threads():
        return len(os.listdir("/proc/self/task"))

    def whole():
        store, log = os.path.join(folder, "bad.db"), os.path.join(folder, "nowhere", "log.csv")
        with trainer(network(), store=store, log=log) as one:
            one.step(*batches(1)[0])

    with trainer(network(), store=os.path.join(folder, "good.db")) as one:  # what a process starts once
        expected = one.step(*batches(1)[0])
    before = threads()
    answer = refusal(whole)
    after = threads()
    with trainer(network()) as one:
        return {"answer": answer, "before": before, "after": after, "expected": expected, "loss": one.step(*batches(1)[0])}


def grouped(folder):
    """A checkpoint of groups of parameters is one of torch.optim: both continue alike."""
    data = batches(4)
    path = os.path.join(folder, "grouped.pt")

    def optimizer_of(model):
        weights, biases = ([p for p in model.parameters() if (p.dim() > 1) == decays] for decays in (True, False))
        return torch.optim.AdamW([{"params": biases, "weight_decay": 0.0, "lr": 3e-2}, {"params": weights, "weight_decay": 0.5}], lr=1e-2, eps=1e-4)

    model = network()
    optimizer = optimizer_of(model)
    with pw.Trainer(model, data[0][0], optimizer=optimizer, loss="cross_entropy", ranks=2, cluster="cpu-workstation", timeout=60) as one:
        for batch in data[:2]:
            one.step(*batch)
        one.save(path)
        one.save(path + ".d/")
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["weight_decay"] = 2e-2, 0.25
        for batch in data[2:]:
            one.step(*batch)
        trained = one.state_dict()
        optimizer.param_groups[1]["eps"] = 1e-5
        refused = refusal(lambda: one.step(*data[0]))
        optimizer.param_groups[1]["eps"] = 1e-4
        if RANK == 1:
            optimizer.param_groups[1]["weight_decay"] = 0.3
        differs = refusal(lambda: one.step(*data[0]))
    groups, differences = [], []
    for reads in (reads_file, reads_folder):
        other = network()
        theirs = optimizer_of(other)
        reads(other, theirs, path)
        groups.append([(group["lr"], group["weight_decay"], len(group["params"])) for group in theirs.param_groups])
        theirs.param_groups[0]["lr"], theirs.param_groups[1]["weight_decay"] = 2e-2, 0.25
        for x, y in data[2:]:
            theirs.zero_grad()
            nn.functional.cross_entropy(other(x), y).backward()
            theirs.step()
        differences.append(max(float((trained[name] - value).abs().max()) for name, value in other.state_dict().items()))
    return {"groups": groups, "differences": differences, "refused": refused, "differs": differs}


def reads_file(model, optimizer, path):
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved)
    optimizer.load_state_dict(saved.optimizer)


def reads_folder(model, optimizer, path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=path + ".d", no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def left(folder):
    """Rank 1 ends in the middle: rank 0 hears of it."""
    one = trainer(network(), timeout=20)
    one.step(*batches(1)[0])
    if RANK == 1:
        os._exit(0)
    return {"answer": refusal(lambda: one.step(*batches(1)[0])), "after": refusal(lambda: one.step(*batches(1)[0]))}


def exited_before_step(folder):
    """Rank 1 leaves the program by itself: rank 0 hears of it in its next call."""
    return exited(lambda one: one.step(*batches(1)[0]))


def exited_before_state_dict(folder):
    return exited(lambda one: one.state_dict())


def exited(call):
    one = trainer(network())
    one.step(*batches(1)[0])
    if RANK == 1:
        sys.exit(1)
    return {"answer": refusal(lambda: call(one))}


def main(folder, names):
    cases = {case.__name__: case for case in (refused_batches, paused, sharded, decided, recorded, begun_badly, grouped, left, exited_before_step,
                                              exited_before_state_dict)}
    results = {name: cases[name](folder) for name in names}
    with open(os.path.join(folder, f"result.{RANK}"), "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
