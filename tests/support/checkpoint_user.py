"""What a user of PyTorch does with the files of `pipewright run`.

    checkpoint_user.py data FILE SAMPLES                    token ids and targets for gpt_small, by torch.save
    checkpoint_user.py evaluate CHECKPOINT DATA OUTPUTS...

`evaluate` loads the checkpoint into the module of sample_models.py, strictly, and prints JSON, one entry for each file of outputs: the loss over
as many samples of DATA as the file has, and the largest difference of the module's logits from the file's, relative to the largest logit.
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


def evaluate(checkpoint, data_file, *output_files):
    module, _ = sample_models.gpt_small()
    module.load_state_dict(torch.load(checkpoint), strict=True)
    module.eval()
    batch = torch.load(data_file)
    results = []
    for path in output_files:
        (written,) = torch.load(path).values()
        with torch.no_grad():
            logits = module(batch["tokens"][: len(written)])
        assert written.shape == logits.shape and written.dtype == logits.dtype, (written.shape, written.dtype)
        loss = F.cross_entropy(logits.flatten(0, -2), batch["target"][: len(written)].flatten())
        difference = (written - logits).abs().max() / logits.abs().max()
        results.append({"samples": len(written), "loss": loss.item(), "difference": difference.item()})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    data(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "data" else evaluate(*sys.argv[2:])
