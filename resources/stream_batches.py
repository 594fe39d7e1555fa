"""Gives the batches of a Python function to a rank of `pipewright run --data module:function`, which starts this and reads its stdout.

    stream_batches.py MODULE:FUNCTION FIRST SEED INPUT…

Calls the function, which returns an iterable of batches, leaves out the first FIRST ones, and writes each as it is wanted: `PWB1`, the length of
a header (4 bytes, little-endian), the header (JSON), and the bytes of its tensors. A header is {"batch": [{"name", "dtype", "shape"}, …]}, at
the end {"end": batches}, and {"error": sentence} where it fails. What the function prints goes to stderr.
"""

import collections.abc
import importlib
import json
import os
import random
import select
import signal
import struct
import sys
import traceback


class Refused(Exception):
    """What the user of `--data` can mend, as one sentence."""


def main(name, first, seed, inputs):
    os.setpgrp()  # the rank ends it with all processes that it started
    end_together()
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    try:
        count = 0
        for count, batch in enumerate(batches_of(name, seed), start=1):
            if count > first:
                write(out, name, named(name, batch, inputs))
        header(out, {"end": count})
    except Refused as problem:
        header(out, {"error": str(problem)})
    except BrokenPipeError:
        os._exit(0)  # the rank has ended


def end_together():
    """Starts a process that ends the group when this one has ended, also where a rank that was killed takes this one with it: what the
    function started (workers of a DataLoader, decoders) would go on."""
    try:
        watched = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):  # before Linux 5.3, or not allowed: then a rank that is killed may leave some
        return
    parent = os.fork()
    if parent > 0:
        os.close(watched)
        os.waitpid(parent, 0)
        return
    if os.fork() > 0:  # so that a function which waits for all its children does not wait for this one
        os._exit(0)
    for descriptor in (0, 1):  # the rank waits for the end of the pipe
        os.close(descriptor)
    select.select([watched], [], [])
    os.killpg(0, signal.SIGKILL)


def batches_of(name, seed):
    """The iterable; shuffles that take no seed of their own are the same on all ranks."""
    module_name, _, function_name = name.partition(":")
    sys.path.insert(0, os.getcwd())
    random.seed(seed)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not (module_name + ".").startswith(missing.name + "."):
            raise Refused(failure(name, missing)) from missing
        raise Refused(f"There is no module {module_name} for --data {name}; start where {module_name.replace('.', '/')}.py is, or set PYTHONPATH.") from missing
    except Exception as problem:
        raise Refused(failure(name, problem)) from problem
    seed_libraries(seed)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise Refused(f"The module {module_name} has no function {function_name} for --data {name}; define it, without arguments.")
    try:
        iterator = iter(function())
    except TypeError as problem:
        raise Refused(failure(name, problem) if problem.__traceback__.tb_next else f"{name} does not return an iterable of batches; return a list, a DataLoader or a generator.") from problem
    except Exception as problem:
        raise Refused(failure(name, problem)) from problem
    return guarded(name, iterator)


def seed_libraries(seed):
    """Also those that the function has yet to import."""
    for library, seeding, number in (("torch", "manual_seed", seed), ("numpy.random", "seed", seed % 2**32)):
        try:
            getattr(importlib.import_module(library), seeding)(number)
        except ImportError:  # then the function does not draw from it
            continue


def guarded(name, iterator):
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as problem:
            raise Refused(failure(name, problem)) from problem
        yield batch


def failure(name, problem):
    """The last place in the user's own code is the one to look at."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename != __file__ and "importlib" not in frame.filename]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(problem).split())
    return f"{name} of --data failed: {type(problem).__name__}: {text}{place}."


def named(name, batch, inputs):
    """The tensors of a batch by name: of a dict, or of (inputs…, target) in the model's order."""
    if isinstance(batch, collections.abc.Mapping):
        return {str(key): value for key, value in batch.items()}
    parts = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if len(parts) == 2 and isinstance(parts[0], collections.abc.Mapping):
        return {**{str(key): value for key, value in parts[0].items()}, "target": parts[1]}
    if len(parts) == 2 and isinstance(parts[0], (tuple, list)):
        parts = [*parts[0], parts[1]]
    if len(parts) not in (len(inputs), len(inputs) + 1):
        raise Refused(f"A batch of {name} has {len(parts)} parts, but the model takes {', '.join(inputs)}; give these and the target, or a dict by name.")
    return dict(zip([*inputs, "target"], parts))


def write(out, name, tensors):
    described, contents = [], []
    for key, value in tensors.items():
        if type(value).__module__.split(".")[0] == "numpy":
            import torch

            value = torch.from_numpy(value)
        if not all(hasattr(value, what) for what in ("detach", "dtype", "shape")):
            raise Refused(f"{key} of a batch of {name} is a {type(value).__name__}, not a tensor; make it a torch.Tensor.")
        tensor = value.detach().cpu().contiguous()
        described.append({"name": key, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)})
        contents.append(bytes_of(tensor))
    header(out, {"batch": described})
    for content in contents:
        write_all(out, content)


def bytes_of(tensor):
    import torch

    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else memoryview(b"")


def header(out, what):
    text = json.dumps(what).encode()
    write_all(out, memoryview(b"PWB1" + struct.pack("<I", len(text)) + text))


def write_all(out, view):
    while len(view):
        view = view[out.write(view):]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
