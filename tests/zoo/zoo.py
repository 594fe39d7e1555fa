#!/usr/bin/env python3
"""Trains the zoo's models by `pipewright` and in plain PyTorch, and compares.

    zoo.py [--only NAME,...] [--kind KIND] [--quick] [--jobs N] [--table FILE.md] [--results FILE.json]
           [--bin FOLDER] [--keep FOLDER]

Each model is exported (resources/export_model.py), planned on 2 ranks and run for 3 steps of SGD under 1f1b, zbv and
interleaved-1f1b; the same batch in the same microbatches is trained in plain PyTorch with the Python model itself.
Equal means: each step's loss within 1e-6 of its size, and every entry of the checkpoint within 1e-6 of the largest
magnitude in it (SCALE at least). The only other right outcome is the expected refusal, at export or plan. Exit status: 0 all as
expected, 1 not.
"""

import argparse
import concurrent.futures
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "resources")]

MODULES = {"plain": "torch", "odd": "torch", "language": "transformers", "vision": "torchvision", "pictures": "timm"}
SCHEDULES = ("1f1b", "zbv", "interleaved-1f1b")
MICROBATCHES, SIZE, STEPS = 4, 2, 3
TOLERANCE, SCALE = 1e-6, 1e-2
SECONDS = 240  # for a call


class Refused(Exception):
    """The program ended with status 1 or 2 and one sentence: (at, sentence)."""


def main():
    options = parse()
    entries = chosen(options)
    folder = options.keep or tempfile.mkdtemp(prefix="pipewright-zoo-")
    os.makedirs(folder, exist_ok=True)
    start = time.monotonic()
    results = []
    try:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
            waiting = {pool.submit(examine, module, name, folder, options.bin): name for module, name in entries}
            for done in concurrent.futures.as_completed(waiting):
                try:
                    result = done.result()
                except Exception as error:  # a worker that was killed
                    result = {"name": waiting[done], "kind": "", "outcome": f"the worker ended: {error}", "ok": False, "seconds": 0}
                results.append(result)
                if options.results:
                    merged(options.results, results)
                print(f"{'ok  ' if result['ok'] else 'FAIL'} {result['name']:24} {result['outcome']}  ({result['seconds']:.0f} s)", flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    order = [name for _, name in entries]
    if options.results:
        results = merged(options.results, results)
        order = [r["name"] for r in results]
    results.sort(key=lambda r: order.index(r["name"]))
    bad = [r for r in results if not r["ok"]]
    equal = sum(r.get("equal", False) for r in results)
    print(f"{len(results)} models in {time.monotonic() - start:.0f} s: {equal} equal to PyTorch, {len(results) - equal - len(bad)} refused as they should be, "
          f"{len(bad)} wrong{': ' + ', '.join(r['name'] for r in bad) if bad else ''}")
    if options.table:
        write_table(options.table, results)
    return 1 if bad or not results else 0


def merged(path, results):
    """These results and, of other models, those that the file has of earlier calls; writes them all into the file."""
    names = {r["name"] for r in results}
    earlier = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            earlier = [r for r in json.load(file) if r["name"] not in names]
    modules = list(MODULES.values())
    every = sorted(earlier + results, key=lambda r: (modules.index(r["kind"]) if r["kind"] in modules else len(modules), r["name"]))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(every, file, indent=1)
    return every


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--kind", default="", help="only the models of these libraries: " + ", ".join(sorted(set(MODULES.values()))))
    parser.add_argument("--quick", action="store_true", help="only the ten of ./dev test")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", help="write the results here (Markdown)")
    parser.add_argument("--results", help="keep results here (JSON), and take those of models that this call leaves out from it")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="folder of pipewright")
    parser.add_argument("--keep", help="folder for archives, plans and checkpoints, which then stay")
    return parser.parse_args()


def chosen(options):
    """[(module, name)] in the catalogue's order."""
    import catalogue

    entries = []
    wanted = [name for name in options.only.split(",") if name]
    for module, kind in MODULES.items():
        if options.quick and kind != "torch" or options.kind and kind not in options.kind.split(","):
            continue
        before = set(catalogue.MODELS)
        importlib.import_module(module)
        entries += [(module, name) for name in catalogue.MODELS if name not in before]
    unknown = set(wanted) - {name for _, name in entries}
    if unknown:
        sys.exit(f"zoo: there is no model {', '.join(sorted(unknown))}; there are {', '.join(name for _, name in entries)}.")
    return [(m, n) for m, n in entries if (not wanted or n in wanted) and (not options.quick or catalogue.MODELS[n].quick)]


def examine(module, name, folder, programs):
    """One model from export to comparison, in a process of the pool."""
    import catalogue

    importlib.import_module(module)
    entry = catalogue.MODELS[name]
    import torch

    torch.set_num_threads(1)
    start = time.monotonic()
    place = os.path.join(folder, name)
    os.makedirs(place, exist_ok=True)
    result = {"name": name, "kind": entry.kind, "ok": False}
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"no result after {3 * SECONDS} s")))
    signal.alarm(3 * SECONDS)
    try:
        errors = train_and_compare(entry, place, programs)
        worst = {schedule: max(e) for schedule, e in errors.items()}
        right = all(value <= TOLERANCE for value in worst.values())
        result.update(errors=errors, equal=right, ok=right and not entry.refused,
                      outcome=f"{'equal' if right else 'DIFFERS'}: " + ", ".join(f"{s} loss {e[0]:.0e} parameters {e[1]:.0e}" for s, e in errors.items()))
        if right and entry.refused:
            result["outcome"] += f"; expected a refusal that says '{entry.refused}'"
    except Refused as refusal:
        at, sentence = refusal.args
        result.update(refusal=sentence, at=at, ok=bool(entry.refused) and entry.refused in sentence and at != "run",
                      outcome=f"refused at {at}: {sentence}")
    except Exception as error:
        result["outcome"] = f"{type(error).__name__}: {str(error)[:600]}"
    finally:
        signal.alarm(0)
    result["seconds"] = time.monotonic() - start
    return result


def train_and_compare(entry, place, programs):
    """{schedule: (largest error of a loss, of a parameter or buffer)}, relative."""
    import torch

    archive = os.path.join(place, f"{entry.name}.pt2")
    export(entry, archive)
    data = data_of(entry, archive, programs)
    torch.save(data["named"], os.path.join(place, "data.pt"))
    losses, state = reference(entry, data)
    if not any(not torch.equal(value, data["first"][name]) for name, value in state.items() if name in data["first"]):
        raise RuntimeError("training changed nothing, so the comparison would say nothing; give the model a larger rate")
    errors = {}
    for schedule in SCHEDULES:
        plan, checkpoint = os.path.join(place, f"{schedule}.json"), os.path.join(place, f"{schedule}.pt")
        call("plan", programs, "plan", archive, "--ranks", "2", "--microbatches", str(MICROBATCHES), "--microbatch", str(SIZE), "--schedule", schedule,
             "--loss", entry.loss, "--out", plan, *([] if entry.measured else ["--cluster", "a100-nvlink"]), *entry.plan)
        told = json.loads(call("run", programs, "run", plan, "--steps", str(STEPS), "--lr", repr(entry.rate), "--data", os.path.join(place, "data.pt"),
                               "--save", checkpoint, "--json", "--timeout", "60", place=place))
        errors[schedule] = difference(losses, told["losses"], state, torch.load(checkpoint))
    return errors


def export(entry, archive):
    import export_model

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        status = export_model.main([entry.source, "--out", archive, "--set", f"batch={SIZE}", *entry.options])
    if status != 0:
        raise Refused("export", said.getvalue().strip().removeprefix("export_model: "))


def call(at, programs, *words, place=None):
    """A call of pipewright; its stdout. Refused where it ends with an error, an Exception where that is not one sentence."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([os.path.join(programs, "pipewright"), *words], capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=place)
    if result.returncode == 0:
        return result.stdout
    sentence = result.stderr.strip().removeprefix("pipewright: ")
    if result.returncode not in (1, 2) or not sentence:
        raise RuntimeError(f"{words[0]} ended with status {result.returncode}: {sentence}")
    raise Refused(at, sentence)


def data_of(entry, archive, programs):
    """A batch: inputs as the model takes them, by the names in the trace, and the target."""
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    model, _ = entry.function(batch=SIZE)
    torch.manual_seed(1)
    _, inputs = entry.function(batch=SIZE * MICROBATCHES)
    leaves, spec = pytree.tree_flatten(inputs)
    names = [i["name"] for i in json.loads(call("inspect", programs, "inspect", archive, "--json"))["inputs"]]
    if len(names) != len(leaves):
        raise RuntimeError(f"inspect names the inputs {names}, the model takes {len(leaves)}")
    model.train()
    first = {name: value.detach().clone() for name, value in model.named_parameters()}
    data = {"model": model, "first": first, "leaves": leaves, "spec": spec, "named": dict(zip(names, leaves))}
    data["dims"] = [entry.batch_dims.get(name, entry.batch_dims.get(str(i), 0)) for i, name in enumerate(names)]
    if entry.loss in ("mse", "cross_entropy"):
        kept = {k: v.clone() for k, v in model.state_dict().items()}
        torch.manual_seed(2)
        with torch.no_grad():
            shapes = [first_output(model, part_of(data, m)) for m in range(MICROBATCHES)]
        model.load_state_dict(kept)
        parts = [torch.randn(o.shape, dtype=o.dtype) if entry.loss == "mse" else torch.randint(0, o.shape[-1], o.shape[:-1]) for o in shapes]
        data["target"] = parts
        dim = entry.batch_dims.get("target", 0)
        data["named"]["target"] = torch.cat(parts, dim)
    return data


def part_of(data, microbatch):
    from torch.utils import _pytree as pytree

    first = microbatch * SIZE
    leaves = [leaf if dim is None else leaf.narrow(dim, first, SIZE) for leaf, dim in zip(data["leaves"], data["dims"])]
    return pytree.tree_unflatten(leaves, data["spec"])


def outputs_of(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def first_output(model, inputs):
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(outputs_of(model, inputs))[0]


def loss_of(entry, model, inputs, target):
    """The mean over a microbatch, as `run` defines it."""
    import torch.nn.functional as F
    from torch.utils import _pytree as pytree

    outputs = outputs_of(model, inputs)
    if entry.loss.startswith("output:"):
        key = entry.loss.removeprefix("output:")
        return outputs[key] if isinstance(outputs, dict) or hasattr(outputs, "keys") else pytree.tree_leaves(outputs)[0]
    output = pytree.tree_leaves(outputs)[0]
    if entry.loss == "sum":
        return output.sum() / SIZE
    if entry.loss == "mse":
        return F.mse_loss(output, target)
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def reference(entry, data):
    """Losses and state dict after STEPS steps in plain PyTorch, microbatch by microbatch."""
    import torch

    model = data["model"]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=entry.rate)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for m in range(MICROBATCHES):
            loss = loss_of(entry, model, part_of(data, m), data["target"][m] if "target" in data else None) / MICROBATCHES
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses, {name: value.detach() for name, value in model.state_dict().items()}


def difference(losses, told, state, checkpoint):
    """(largest relative error of a loss, of an entry of the state dict)."""
    import torch

    if len(losses) != len(told):
        raise RuntimeError(f"the run told {len(told)} losses of {len(losses)}")
    loss = max(abs(a - b) / max(abs(a), 1e-3) if a == a and b == b else float("inf") for a, b in zip(losses, told))
    missing = [name for name in state if name not in checkpoint]
    if missing:
        raise RuntimeError(f"the checkpoint lacks `{missing[0]}`{f' and {len(missing) - 1} more' if missing[1:] else ''} of the model's state dict")
    worst = 0.0
    for name, value in state.items():
        other = checkpoint[name]
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            continue
        if value.shape != other.shape or value.dtype != other.dtype:
            raise RuntimeError(f"`{name}` in the checkpoint is {other.dtype} {list(other.shape)}")
        wide = torch.complex128 if value.is_complex() else torch.float64
        gap = float((value.to(wide) - other.to(wide)).abs().max())
        worst = max(worst, gap / max(float(value.abs().max()), SCALE) if gap == gap else float("inf"))
    return loss, worst


def write_table(path, results):
    """Markdown for the guide."""
    rows = ["# Models that were tried", "",
            f"Each model was exported, planned and trained on 2 ranks for {STEPS} steps of SGD under {', '.join(SCHEDULES)}, and in plain PyTorch with the",
            f"Python model, on the same batch in the same microbatches. *Equal*: every loss and every entry of the checkpoint agrees to {TOLERANCE:g} of its size;",
            "the largest error over the schedules stands beside it. Otherwise the sentence with which export or plan refuses the model. Made by",
            "`./dev bench zoo --table resources/docs/models.md`; the models are in `tests/zoo`, the libraries' versions in `resources/requirements-samples.txt`.", "",
            "| model | library | result | loss | parameters |", "|---|---|---|---|---|"]
    for r in results:
        if "errors" in r:
            loss, parameters = (max(e[i] for e in r["errors"].values()) for i in (0, 1))
            rows.append(f"| {r['name']} | {r['kind']} | {'equal' if r['equal'] else '**differs**'} | {loss:.0e} | {parameters:.0e} |")
        else:
            text = (f"refused at {r['at']}: {r['refusal']}" if "refusal" in r else r["outcome"]).replace("|", "\\|").replace("\n", " ")
            rows.append(f"| {r['name']} | {r['kind']} | {'' if r['ok'] else '**wrong** '}{text} | | |")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    sys.exit(main())
