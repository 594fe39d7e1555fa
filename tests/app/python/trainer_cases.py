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
    """Each unusable batch is refused on all ranks, and the training goes on as if it had not been offered."""
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
    """A training that goes on from a checkpoint is the one that was not interrupted."""
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


def left(folder):
    """Rank 1 ends in the middle: rank 0 hears of it."""
    one = trainer(network(), timeout=20)
    one.step(*batches(1)[0])
    if RANK == 1:
        os._exit(0)
    return {"answer": refusal(lambda: one.step(*batches(1)[0])), "after": refusal(lambda: one.step(*batches(1)[0]))}


def main(folder, names):
    cases = {case.__name__: case for case in (refused_batches, paused, decided, recorded, left)}
    results = {name: cases[name](folder) for name in names}
    with open(os.path.join(folder, f"result.{RANK}"), "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
