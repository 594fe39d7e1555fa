"""What a user of PyTorch does with the files of `pipewright run`.

    checkpoint_user.py data FILE SAMPLES                    token ids and targets for gpt_small, by torch.save
    checkpoint_user.py faulty FILE SAMPLES                  data for `faulty` of odd_models.py that is good
    checkpoint_user.py evaluate CHECKPOINT DATA OUTPUTS...
    checkpoint_user.py continue CHECKPOINT DATA BATCH STEP COUNT   losses of COUNT further steps in Python, from batch STEP of DATA on
    checkpoint_user.py load-folder FOLDER DATA BATCH STEP COUNT    the same from a folder of torch.distributed.checkpoint
    checkpoint_user.py save-folder FOLDER DATA BATCH STEP COUNT    trains STEP steps on two ranks that share parameters and state (fully_shard), saves such
                                                                   a folder, continues, and prints the losses of COUNT further steps
    checkpoint_user.py keys CHECKPOINT                             names of `faulty`'s state dict that a strict load finds; values of its buffers

`evaluate` loads the checkpoint into the module of sample_models.py, strictly, and prints JSON, one entry for each file of outputs: the loss over
as many samples of DATA as the file has, and the largest difference of the module's logits from the file's, relative to the largest logit.
"""

import json
import os
import sys
import tempfile

import torch
from torch.nn import functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "resources"))
import odd_models  # noqa: E402
import sample_models  # noqa: E402


def data(path, samples):
    torch.manual_seed(7)
    torch.save({"tokens": torch.randint(0, 256, (samples, 32)), "target": torch.randint(0, 256, (samples, 32))}, path)


def faulty(path, samples):
    torch.manual_seed(7)
    torch.save({"x": torch.randn(samples, 8), "level": torch.full((samples,), 3.0), "gate": torch.ones(samples), "target": torch.ones(samples, 4)}, path)


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


def optimizer_of(module, group):
    """One of other numbers than the checkpoint's, which `load_state_dict` brings."""
    if "nesterov" in group:
        return torch.optim.SGD(module.parameters(), lr=7.0, momentum=0.1)
    if "alpha" in group:
        return torch.optim.RMSprop(module.parameters(), lr=7.0)
    return (torch.optim.AdamW if group["decoupled_weight_decay"] else torch.optim.Adam)(module.parameters(), lr=7.0)


def train(module, optimizer, data_file, batch, step, count):
    every = torch.load(data_file)
    losses = []
    for number in range(step, step + count):
        rows = slice(number * batch, (number + 1) * batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(module(every["tokens"][rows]).flatten(0, -2), every["target"][rows].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def go_on(checkpoint, data_file, batch, step, count):
    state = torch.load(checkpoint, weights_only=True)
    module, _ = sample_models.gpt_small()
    module.load_state_dict(state, strict=True)
    optimizer = optimizer_of(module, state.optimizer["param_groups"][0])
    optimizer.load_state_dict(state.optimizer)
    json.dump(train(module, optimizer, data_file, int(batch), int(step), int(count)), sys.stdout)


def load_folder(folder, data_file, batch, step, count):
    """As the recipe of torch.distributed.checkpoint does it: into the state of an optimizer of other numbers."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    module, _ = sample_models.gpt_small()
    optimizer = torch.optim.AdamW(module.parameters(), lr=7.0)
    model, state = get_state_dict(module, optimizer)
    dcp.load({"model": model, "optimizer": state}, checkpoint_id=folder, no_dist=True)
    missing = set_state_dict(module, optimizer, model_state_dict=model, optim_state_dict=state)
    assert not missing.missing_keys and not missing.unexpected_keys, missing
    json.dump(train(module, optimizer, data_file, int(batch), int(step), int(count)), sys.stdout)


def save_folder(folder, data_file, batch, step, count):
    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(save_folder_on, (os.path.join(meeting, "store"), folder, data_file, int(batch), int(step), int(count)), nprocs=2)


def save_folder_on(rank, store, folder, data_file, batch, step, count):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    module, _ = sample_models.gpt_small()
    fully_shard(module, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    train(module, optimizer, data_file, batch, 0, step)
    model, state = get_state_dict(module, optimizer)
    dcp.save({"model": model, "optimizer": state, "note": "of no use to others"}, checkpoint_id=folder)
    losses = train(module, optimizer, data_file, batch, step, count)
    if rank == 0:
        json.dump(losses, sys.stdout)
        sys.stdout.flush()
    torch.distributed.destroy_process_group()


def keys(checkpoint):
    state = torch.load(checkpoint, weights_only=True)
    module, _ = odd_models.faulty()
    module.load_state_dict(state, strict=True)
    assert module.middle.weight is module.enter.weight and torch.equal(state["middle.weight"], state["enter.weight"])
    torch.optim.AdamW(module.parameters()).load_state_dict(state.optimizer)
    shapes = {i: parameter.shape for i, parameter in enumerate(module.parameters()) if parameter is not module.unused.weight and parameter is not module.unused.bias}
    assert {i: one["exp_avg"].shape for i, one in state.optimizer["state"].items()} == shapes
    buffers = {name: value.flatten().tolist() for name, value in module.named_buffers()}
    json.dump({"keys": sorted(state), "buffers": buffers, "unused": state["unused.weight"].abs().sum().item()}, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] in ("data", "faulty"):
        {"data": data, "faulty": faulty}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        {"evaluate": evaluate, "continue": go_on, "load-folder": load_folder, "save-folder": save_folder, "keys": keys}[sys.argv[1]](*sys.argv[2:])
