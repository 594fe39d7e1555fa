"""What a user of PyTorch does with the files of `pipewright run`.

    checkpoint_user.py data FILE SAMPLES             token ids and targets for gpt_small, by torch.save
    checkpoint_user.py evaluate STATE DATA OUTPUTS   STATE: a checkpoint or the model archive

`evaluate` loads the state into the module of sample_models.py, strictly, and prints JSON: the loss over all samples of DATA, and the largest
difference of its logits from those in OUTPUTS, relative to the largest logit.
"""

import json
import os
import sys

import torch
from torch.nn import functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "resources"))
import sample_models  # noqa: E402


def data(path, samples):
    torch.manual_seed(7)
    torch.save({"tokens": torch.randint(0, 256, (samples, 32)), "target": torch.randint(0, 256, (samples, 32))}, path)


def evaluate(state, batch, outputs):
    module, _ = sample_models.gpt_small()
    values = torch.export.load(state).state_dict if state.endswith(".pt2") else torch.load(state)
    module.load_state_dict(values, strict=True)
    batch = torch.load(batch)
    with torch.no_grad():
        logits = module.eval()(batch["tokens"])
    loss = F.cross_entropy(logits.flatten(0, -2), batch["target"].flatten())
    written = torch.load(outputs)
    assert len(written) == 1, list(written)
    (written,) = written.values()
    assert written.shape == logits.shape and written.dtype == logits.dtype, (written.shape, written.dtype)
    json.dump({"loss": loss.item(), "difference": ((written - logits).abs().max() / logits.abs().max()).item()}, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    data(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "data" else evaluate(*sys.argv[2:])
