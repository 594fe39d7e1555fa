"""A rank of the trainer's tests: trains each model by the plain loop and by the trainer, and says what came of both.

    torchrun … trainer_job.py RESULT.json MODEL…
"""

import copy
import json
import os
import sys
import warnings

import torch
from trainer_models import MODELS

import pipewright as pw

STEPS = 5
CLIP = 0.5
# Adam divides by the root of the mean square: where a gradient is zero but for rounding (the bias of keys), a small eps makes a step of the
# noise. With this one an error of 1e-7 in a gradient changes a parameter by 1e-3 * lr.
OPTIMIZER = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-4}


def optimizer_of(model, grouped):
    """Grouped: matrices decay, all else does not and learns more slowly."""
    if not grouped:
        return torch.optim.AdamW(model.parameters(), **OPTIMIZER)
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) == decays] for decays in (True, False))
    assert matrices and others
    return torch.optim.AdamW([{"params": others, "weight_decay": 0.0}, {"params": matrices}], **OPTIMIZER)


def schedule_of(optimizer):
    rates = [1e-2, 2e-2][-len(optimizer.param_groups):]
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rates, total_steps=STEPS + 1)  # changes the betas, too


def plain(model, batches, loss_of, grouped):
    optimizer = optimizer_of(model, grouped)
    schedule = schedule_of(optimizer)
    losses = []
    for batch, target in batches:
        loss = loss_of(model(**batch) if isinstance(batch, dict) else model(*batch), target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def trained(model, batches, seen, grouped, **how):
    optimizer = optimizer_of(model, grouped)
    schedule = schedule_of(optimizer)
    losses = []
    with pw.Trainer(model, batches[0][0], optimizer=optimizer, clip_norm=CLIP, cluster="cpu-workstation", on_step=seen.append,
                    **how) as trainer:
        for batch, target in batches:
            losses.append(trainer.step(batch, target))
            schedule.step()
        return losses, trainer.state_dict(), trainer.update(copy.deepcopy(model)), trainer.decision


def difference(one, other):
    """The largest difference of two states, and the parameter it is in."""
    assert list(one) == list(other), set(one) ^ set(other)
    return max((float((one[name].double() - other[name].double()).abs().max()), name) for name in one)


def compare(name):
    torch.manual_seed(1)
    model, batches_of, loss_of, how = MODELS[name]()
    batches = batches_of(STEPS)
    before = copy.deepcopy(model.state_dict())
    reference = copy.deepcopy(model)
    grouped = name != "gpt"
    expected = plain(reference, batches, loss_of, grouped)
    seen = []
    losses, state, updated, decision = trained(model, batches, seen, grouped, ranks=2, **how)
    return {"expected": expected, "losses": losses, "difference": difference(state, reference.state_dict()),
            "updated": difference(updated.state_dict(), reference.state_dict()), "untouched": difference(model.state_dict(), before)[0],
            "steps": [[s.number, s.loss, s.lr, s.gradient_norm, s.bubble, s.step_ns, s.trace.ranks] for s in seen], "decision": decision}


def main(path, names):
    rank = int(os.environ["RANK"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        results = {name: compare(name) for name in names}
    with open(f"{path}.{rank}", "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
