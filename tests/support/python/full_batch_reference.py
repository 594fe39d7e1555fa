"""Exports small models and trains each on a whole batch in plain PyTorch: what a pipeline must reproduce from microbatches.

    full_batch_reference.py OUT BATCH STEPS LR

Per model a folder OUT/<name>: `model.pt2`, `data.pt` (the batch, as `run --data` takes it), and the tensor folder of reference.py: gradients of
step 0, parameters after the last step, the outputs of the model as it was (`out:NAME`), losses. The batch is not cut.

sequence_first: [T, B, D] and [B].  flattened: [T, B] tokens to logits [T * B, classes].  token_mean: a loss over targets that are not -100, two
samples without any.  masked_mean: a quotient of two sums; masked_…: the last two
samples have a mask of zeros.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
import reference  # noqa: E402

CLASSES = 11


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.mix, self.out = nn.Linear(6, 8), nn.MultiheadAttention(8, 2), nn.Linear(8, CLASSES)
        self.recur = nn.LSTM(8, 8)

    def forward(self, x, scale):
        h = self.into(x) * scale.unsqueeze(-1)
        h = h + self.mix(h, h, h, need_weights=False)[0]
        return self.out(h + self.recur(h)[0])


class Flattened(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.recur, self.out = nn.Embedding(CLASSES, 8), nn.LSTM(8, 8), nn.Linear(8, CLASSES)

    def forward(self, tokens):
        return self.out(self.recur(self.embed(tokens))[0]).view(-1, CLASSES)


class TokenMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.out = nn.Embedding(CLASSES, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, tokens, labels):
        logits = self.out(torch.tanh(self.up(self.embed(tokens))))
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        return {"loss": F.cross_entropy(logits.view(-1, CLASSES), labels.view(-1)), "logits": logits}


def quietly(count, samples):
    with torch.no_grad():
        return count.clamp(min=1)


class Region:
    """Divides in a region of its own what is clamped outside."""

    def __call__(self, count, samples):
        return count.clamp(min=1)

    def quotient(self, total, count):
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            return total / count


class MaskedMean(nn.Module):
    def __init__(self, divisor=lambda count, samples: count.clamp(min=1)):
        super().__init__()
        self.divisor = divisor
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x, mask):
        error = ((self.down(torch.tanh(self.up(x))) - x) ** 2).mean(-1)
        quotient = self.divisor.quotient if isinstance(self.divisor, Region) else torch.div
        return {"loss": quotient((error * mask).sum(), self.divisor(mask.sum(), x.shape[0])), "error": error}


def models(batch):
    """(name, model, example inputs, dynamic dimensions, the batch by name, loss of the model's outputs and the batch)."""
    b = Dim("batch")
    tokens = torch.randint(0, CLASSES, (batch, 7))
    labels = tokens.clone()
    for sample in range(batch):
        labels[sample, : 1 + sample] = -100
    labels[-2:] = -100
    mask = (torch.rand(batch, 5) < torch.linspace(0.2, 1, batch).unsqueeze(1)).float()
    hidden = mask.clone()
    hidden[-2:] = 0
    divisors = {
        "masked_least": lambda count, samples: count.clamp(min=1),
        "masked_many": lambda count, samples: torch.clamp(count * 2, min=9) + 0.5,
        "masked_plus": lambda count, samples: count + 1,
        "masked_samples": lambda count, samples: count + samples,
        "masked_quiet": quietly,
        "masked_region": Region(),
        "masked_all": lambda count, samples: count,
    }
    own = lambda outputs, _: outputs["loss"]  # noqa: E731
    cross = lambda out, data: F.cross_entropy(out.reshape(-1, CLASSES), data["target"].reshape(-1))  # noqa: E731
    return [
        ("sequence_first", SequenceFirst(), {"x": 1, "scale": 0}, b, cross,
         {"x": torch.randn(5, batch, 6), "scale": torch.rand(batch), "target": torch.randint(0, CLASSES, (5, batch))}),
        ("flattened", Flattened(), {"tokens": 1}, b, cross,
         {"tokens": torch.randint(0, CLASSES, (5, batch)), "target": torch.randint(0, CLASSES, (5 * batch,))}),
        ("token_mean", TokenMean(), {"tokens": 0, "labels": 0}, b, own, {"tokens": tokens, "labels": labels}),
        ("masked_mean", MaskedMean(), {"x": 0, "mask": 0}, b, own, {"x": torch.randn(batch, 5, 6), "mask": mask}),
    ] + [
        (name, MaskedMean(divisor), {"x": 0, "mask": 0}, b, own, {"x": torch.randn(batch, 5, 6), "mask": hidden})
        for name, divisor in divisors.items()
    ]


def main():
    out, batch, steps, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    torch.set_num_threads(1)
    torch.manual_seed(3)
    for name, model, dimensions, symbol, loss_of, data in models(batch):
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        inputs = {key: data[key] for key in dimensions}
        examples = tuple(value.narrow(dimensions[key], 0, 2).contiguous() for key, value in inputs.items())
        program = torch.export.export(model.train(), examples, dynamic_shapes=tuple({d: symbol} for d in dimensions.values()), strict=False)
        torch.export.save(program, os.path.join(folder, "model.pt2"))
        torch.save(data, os.path.join(folder, "data.pt"))
        with torch.no_grad():
            result = model(*inputs.values())
        tensors = {f"out:{key}": value for key, value in (result if isinstance(result, dict) else {"result": result}).items()}
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=rate), []
        for step in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model(*inputs.values()), data)
            loss.backward()
            losses.append(loss.item())
            if step == 0:
                tensors.update((f"grad:{key}", value.grad.clone()) for key, value in model.named_parameters())
            optimizer.step()
        tensors.update((f"param:{key}", value) for key, value in model.named_parameters())
        reference.write_tensors(folder, tensors)
        with open(os.path.join(folder, "result.json"), "w", encoding="utf-8") as file:
            json.dump({"losses": losses}, file)


if __name__ == "__main__":
    main()
