#!/usr/bin/env python3
"""All that only a GPU can show, in one go and with one report: `./dev gpu-check`, or in a folder of `./dev gpu-pack` on another machine

    python3 check.py [--out report.md] [--only PART ...]

That machine needs an NVIDIA driver and a Python with the torch that Pipewright was built against, nothing else. Exit status 1 where something failed;
a part that cannot run is reported with its reason and counts as failed. The report is written after each part, so that what was found stays.
"""

import argparse
import concurrent.futures
import contextlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKED = (HERE / "bin" / "pipewright").exists()
ROOT = HERE if PACKED else HERE.parents[1]
BIN = ROOT / "bin" if PACKED else ROOT / "build" / "bin"
RESOURCES = ROOT / "resources"
MODELS = RESOURCES / "models"
RUNS = 5
STEPS, WARM_UP = 14, 4  # graphs are recorded in the first steps
MPS_CONTROL = "nvidia-cuda-mps-control"
MEASURING = re.compile(r"GpuTracing\.|GpuDevice\.MeasuresItsRates")  # alone on the machine
TEST_LIMIT = 600  # s
MOST_TESTS = 5  # at a time: the kernels of LibTorch take memory of each of their ranks
RUNNING = set()  # processes that `call` waits for, on any thread


def variables_of_ours():
    """For programs of ours: the wheel's libraries of this machine before those of the machine that built; the packed ones last."""
    torch = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    folders = [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
    if PACKED:
        folders.append(ROOT / "libraries")
    path = ":".join(str(folder) for folder in folders) + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": path, "PIPEWRIGHT_RESOURCES": str(RESOURCES)}


class Report:
    def __init__(self, path):
        self.path, self.lines, self.verdicts = pathlib.Path(path), [], []

    def part(self, title, run):
        print(f"{title} …", file=sys.stderr, flush=True)
        begin, lines = time.monotonic(), []
        try:
            good = run(lines.append)
        except Exception as problem:  # a part that breaks must not end the others
            good = False
            lines.append(f"{type(problem).__name__}: {problem}")
        except (KeyboardInterrupt, SystemExit):
            self.add(title, False, "\n".join([*lines, "interrupted"]), time.monotonic() - begin)
            raise
        self.add(title, good, "\n".join(lines), time.monotonic() - begin)

    def add(self, title, good, text, seconds):
        self.verdicts.append((title, good, seconds))
        self.lines += [f"## {title}: {'ok' if good else 'FAILED'} ({seconds:.0f} s)", "", "```", text.rstrip(), "```", ""]
        self.path.write_text(self.text(), encoding="utf-8")
        print(f"  {'ok' if good else 'FAILED'}, {seconds:.0f} s", file=sys.stderr, flush=True)

    def text(self):
        table = [f"| {title} | {'ok' if good else '**failed**'} | {seconds:.0f} s |" for title, good, seconds in self.verdicts]
        head = [f"# GPU check, {time.strftime('%Y-%m-%d %H:%M')}, {platform.node()}", "", "| part | result | time |", "|---|---|---|", *table, ""]
        return "\n".join(head + self.lines)


def end(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def call(*command, timeout=600, check=True, more=None):
    """Of a program of ours, or with `more` in place of its variables; what it started ends with it."""
    words = [str(c) for c in command]
    ours = pathlib.Path(words[0]).parent == BIN
    variables = {**os.environ, **(variables_of_ours() if ours else {}), **(more or {})}
    process = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    RUNNING.add(process)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        end(process)
        process.wait()
        raise
    finally:
        RUNNING.discard(process)
    if check and process.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: {(out + err)[-2000:]}")
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def pipewright(*arguments, timeout=600):
    return call(BIN / "pipewright", *arguments, timeout=timeout).stdout


def sample(name):
    """A model of resources, or one that ./dev exports; a pack leaves that to this machine."""
    for folder in (MODELS, ROOT / ".deps" / "models"):
        if (folder / f"{name}.pt2").exists():
            return folder / f"{name}.pt2"
    return export(name, MODELS / f"{name}.pt2")


def export(name, out, *options):
    call(sys.executable, "-B", RESOURCES / "export_model.py", f"{RESOURCES / 'sample_models.py'}:{name}", *options, "--out", out, timeout=1200)
    return out


def machine(say):
    import torch  # noqa: PLC0415, the machine's own

    say(pipewright("devices"))
    say(f"torch {torch.__version__}, CUDA {torch.version.cuda}")
    if smi := shutil.which("nvidia-smi"):
        say(subprocess.run([smi], capture_output=True, text=True, timeout=60).stdout)
    return torch.cuda.is_available()


def tests(say):
    """Each test in a process of its own, so that one that hangs takes no other's results: side by side, but those that measure."""
    sample("gpt_25m")  # which they look for
    suite, names = "", []
    for line in call(BIN / "gpu_test", "--gtest_list_tests").stdout.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith(" "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    apart = [name for name in names if MEASURING.match(name)]
    good = True
    for workers, chosen in ((min(max(1, (os.cpu_count() or 1) // 3), MOST_TESTS), [name for name in names if name not in apart]), (1, apart)):
        pool = concurrent.futures.ThreadPoolExecutor(workers)
        try:
            for done in concurrent.futures.as_completed([pool.submit(run_test, name) for name in chosen]):
                passed, lines = done.result()
                good = good and passed
                say("\n".join(lines))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(RUNNING):
                end(process)
            raise
        pool.shutdown()
    return good


def run_test(name):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "tests.json"
        try:
            result = call(BIN / "gpu_test", f"--gtest_filter={name}", f"--gtest_output=json:{out}", timeout=TEST_LIMIT, check=False)
            [test] = [test for suite in json.loads(out.read_text())["testsuites"] for test in suite["testsuite"]]
        except subprocess.TimeoutExpired as problem:
            return False, [f"{'failed':10} {name}: not done after {problem.timeout:.0f} s"]
        except (OSError, ValueError):  # it ended before it could write
            return False, [f"{'failed':10} {name}: {(result.stdout + result.stderr)[-4000:]}"]
    outcome = "failed" if test.get("failures") else test["result"].lower()
    lines = [f"{outcome:10} {name} {test['time']}"]
    lines += [f"{'':10} {key}: {value}" for key, value in test.items() if key.endswith("]")]
    if result.returncode != 0:
        lines.append((result.stdout + result.stderr)[-4000:])
    lines += sorted({f"skipped: {reason.splitlines()[0]}" for reason in result.stdout.split(": Skipped\n")[1:]})
    return result.returncode == 0 and (outcome != "skipped" or name.endswith(".SaysWhyItCannotBeUsed")), lines


def plan(folder, model, name, *options):
    """Of estimated times, unless the options say where others come from: nothing here goes by them."""
    path = pathlib.Path(folder) / f"{name}.json"
    costs = () if "--profile" in options else ("--cluster", "h100-nvlink")
    pipewright("plan", model, *options, *costs, "--out", path)
    return path


def sanitizer(say):
    """Recorded actions, messages and sums between two ranks, and operators by themselves with an allocation each, where overruns show."""
    tool = shutil.which("compute-sanitizer") or next((str(p) for p in pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)
    if tool is None:
        say("compute-sanitizer is not on this machine; it comes with the CUDA toolkit.")
        return False
    ours = variables_of_ours()
    # Not the whole of LibTorch's kernels: the tool takes minutes for them. Calls that ask whether something is done answer `not ready`, which is no error.
    more = {"CUDA_MODULE_LOADING": "LAZY", "PIPEWRIGHT_RESOURCES": ours["PIPEWRIGHT_RESOURCES"]}
    start = ["env", f"LD_LIBRARY_PATH={ours['LD_LIBRARY_PATH']}", BIN / "pipewright", "run"]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        two = plan(folder, MODELS / "gpt_small.pt2", "two", "--ranks", 2, "--microbatches", 2)
        tied = plan(folder, MODELS / "hf_gpt2.pt2", "tied", "--ranks", 2, "--microbatches", 2, "--share", "transmit")
        for path, options, extra in (
            (two, ["--steps", 4, "--clip-norm", 1], {}),
            (tied, ["--steps", 2, "--clip-norm", 1, "--no-graphs"], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
        ):
            result = call(tool, "--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", 9, *start, path, "--backend", "nccl", *options,
                          timeout=1200, check=False, more={**more, **extra})
            output = result.stdout + result.stderr
            summaries = re.findall(r"ERROR SUMMARY: (\d+) error", output)  # one of all processes
            good = good and result.returncode == 0 and bool(summaries) and all(count == "0" for count in summaries)
            say(f"{path.stem}, {' '.join(str(o) for o in options)}\n{output[-1500:]}")
    return good


def rates(say):
    found = json.loads(pipewright("devices", "--measure", "--json"))
    shown = [gpu for gpu in found["gpus"] if gpu["cuda_index"] is not None]
    good = bool(shown)
    for gpu in shown:
        measured = gpu["measured"] or {}
        good = good and all(rate > 0 for rate in measured.values()) and measured.get("bf16_flops_per_s", 0) > measured.get("float32_flops_per_s", 0)
        say(f"GPU {gpu['index']}, {gpu['name']}")
        for what, rate in measured.items():
            say(f"  {what:28} {rate:.4g}")
    say("all are positive, and bfloat16 is faster than float32" if good else "a GPU was not measured, or a rate cannot be")
    return good


def step_times(path, *options, more=None):
    result = json.loads(call(BIN / "pipewright", "run", path, "--backend", "nccl", "--steps", STEPS, "--json", *options, more=more).stdout)
    return [step["makespan_ns"] * 1e-6 for step in result["steps"]][WARM_UP:]


def eager_times(model, microbatches, samples):
    """Steps of the same model, microbatches and loss in PyTorch itself; in a process of its own."""
    script = f"""
import json, time, torch
from torch.export.passes import move_to_device_pass
program = move_to_device_pass(torch.export.load({str(model)!r}), 'cuda')
module = program.module()
parameters = [p for p in module.parameters() if p.requires_grad]
inputs = [n.meta['val'] for n in program.graph.nodes if n.op == 'placeholder' and n.name in program.graph_signature.user_inputs]
batch = [torch.zeros([d if isinstance(d, int) else {samples} for d in v.shape], dtype=v.dtype, device='cuda') for v in inputs]
positional, named = torch.utils._pytree.tree_unflatten(batch, program.call_spec.in_spec)
times = []
for step in range({STEPS}):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for p in parameters:
        p.grad = None
    for _ in range({microbatches}):
        logits = module(*positional, **named)
        logits = logits[0] if isinstance(logits, (tuple, list)) else logits
        target = torch.zeros(logits.shape[:-1], dtype=torch.long, device='cuda')
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), reduction='sum') / target.numel() / {microbatches}
        loss.backward()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - begin) * 1e3)
print(json.dumps(times[{WARM_UP}:]))
"""
    return json.loads(call(sys.executable, "-c", script).stdout)


def against_eager(say):
    say("step time of one rank, median of the runs' medians [ms]; forwards and backwards without the optimizer\n")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, samples in (("gpt_small", 8), ("gpt_25m", 8)):
            model = sample(name)
            path = plan(folder, model, name, "--ranks", 1, "--microbatches", 4, "--microbatch", samples)
            graphs, single, theirs = [], [], []
            for _ in range(RUNS):  # in turn
                graphs.append(statistics.median(step_times(path)))
                single.append(statistics.median(step_times(path, "--no-graphs")))
                theirs.append(statistics.median(eager_times(model, 4, samples)))
            a, b, c = (statistics.median(times) for times in (graphs, single, theirs))
            good = good and a <= 1.03 * c
            say(f"{name:12} by graphs {a:8.2f}   operator by operator {b:8.2f}   torch eager {c:8.2f}   ratios {a / c:.3f} (≤ 1.03), {b / c:.3f}")
    return good


def prediction(say):
    """Medians of runs in turn with profiles. Operator by operator (a model with dropout) a step takes as long as the host enqueues, which varies."""
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in ("gpt_small", "hf_gpt2", "resnet18_narrow"):
            profile = pathlib.Path(folder) / f"{name}.profile.json"
            predictions, graphs, single = [], [], []
            for _ in range(RUNS):
                pipewright("profile", MODELS / f"{name}.pt2", "--device", "cuda", "--out", profile)
                path = plan(folder, MODELS / f"{name}.pt2", name, "--ranks", 1, "--microbatches", 8, "--profile", profile)
                predictions.append(json.loads(pipewright("simulate", path, "--json"))["makespan_ns"] * 1e-6)
                graphs.append(statistics.median(step_times(path)))
                single.append(statistics.median(step_times(path, "--no-graphs")))
            predicted, measured = statistics.median(predictions), statistics.median(graphs)
            error = measured / predicted - 1
            good = good and abs(error) <= 0.05
            say(f"{name:16} predicted {predicted:8.2f} ms   measured {measured:8.2f} ms   {error:+.1%} (± 5 %)")
            say(f"{'':16} operator by operator {statistics.median(single):8.2f} ms")
    return good


@contextlib.contextmanager
def mps(folder, gpu):
    """NVIDIA's Multi-Process Service on one GPU, for programs with these variables alone."""
    variables = {f"CUDA_MPS_{what}_DIRECTORY": str(pathlib.Path(folder) / what.lower()) for what in ("PIPE", "LOG")}
    for path in variables.values():
        os.makedirs(path)
    try:
        subprocess.run([MPS_CONTROL, "-d"], env={**os.environ, **variables, "CUDA_VISIBLE_DEVICES": gpu}, check=True, capture_output=True, text=True, timeout=60)
        yield {**variables, "CUDA_VISIBLE_DEVICES": "0"}  # the daemon's first, whatever its number elsewhere
    finally:
        subprocess.run([MPS_CONTROL], input="quit\n", env={**os.environ, **variables}, text=True, capture_output=True, timeout=60)


def shared(say):
    """Two ranks on one GPU: in turns, and at the same time on a half each."""
    if shutil.which(MPS_CONTROL) is None:
        say(f"{MPS_CONTROL} is not on this machine; it comes with NVIDIA's driver.")
        return False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # the daemon may be about to remove its own
        path = plan(folder, sample("gpt_25m"), "plan", "--ranks", 2, "--microbatches", 8, "--microbatch", 8, "--schedule", "1f1b")
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        alone = {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_MPS_PIPE_DIRECTORY": folder}  # no daemon there
        with mps(folder, gpu) as variables:
            note = call(BIN / "pipewright", "run", path, "--backend", "nccl", more=variables).stderr
            turns, halves = [], []
            for _ in range(RUNS):
                turns.append(statistics.median(step_times(path, more=alone)))
                halves.append(statistics.median(step_times(path, more=variables)))
    a, b = statistics.median(turns), statistics.median(halves)
    say(f"{note.strip()}\nin turns {a:8.2f} ms   on halves {b:8.2f} ms   {a / b:.2f} times as fast (> 1)")
    return "multiprocessors of its own" in note and b < a


def billion(say):
    """A GPT of about a billion parameters, exported without weights, in bf16."""
    with tempfile.TemporaryDirectory() as folder:
        model = export("gpt_1b", pathlib.Path(folder) / "gpt_1b.pt2", "--meta")
        path = plan(folder, model, "plan", "--ranks", 1, "--microbatches", 4, "--schedule", "1f1b", "--precision", "bf16")
        say(pipewright("run", path, "--backend", "nccl", "--init", "random", "--precision", "bf16", "--steps", 5, timeout=1200))
    return True


PARTS = {
    "machine": ("Machine", machine),
    "tests": ("Tests", tests),
    "rates": ("Rates", rates),
    "eager": ("One rank against PyTorch eager", against_eager),
    "prediction": ("Predicted and measured steps", prediction),
    "shared": ("Two ranks on one GPU, in turns and on halves", shared),
    "billion": ("A GPT of a billion parameters in bf16", billion),
    "sanitizer": ("Memory errors (compute-sanitizer)", sanitizer),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="gpu-report.md")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts; all without it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what runs is ended, and the report written
    report = Report(options.out)
    for name in options.only:
        report.part(*PARTS[name])
    print(f"written to {options.out}", file=sys.stderr)
    return 0 if all(good for _, good, _ in report.verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
