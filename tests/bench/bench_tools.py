"""What the benches share: where things are, how programs are called, medians."""

import json
import os
import pathlib
import platform
import statistics
import subprocess
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIPEWRIGHT = ROOT / "build/bin/pipewright"
VENV = ROOT / ".deps/venv/bin"
MODEL = ROOT / ".deps/models/gpt_25m.pt2"
WORK = ROOT / "build/bench"


def call(*words, env=None):
    """Runs a program and returns its stdout; its failure ends the bench with what it said."""
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=1800)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def pipewright(*words):
    return call(PIPEWRIGHT, *words)


def last_json(text):
    """The JSON document in the last line that holds one."""
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def prepare():
    """Exports the bench's model on first use."""
    WORK.mkdir(parents=True, exist_ok=True)
    exported("gpt_25m")


def exported(name, *options):
    """The archive of a model of resources/sample_models.py or tests/bench/bench_models.py, exported on first use with these options."""
    shipped, made = ROOT / f"resources/models/{name}.pt2", MODEL.parent / f"{name}.pt2"
    if shipped.exists():
        return shipped
    if not made.exists():
        MODEL.parent.mkdir(parents=True, exist_ok=True)
        source = "resources/sample_models.py" if name == "gpt_25m" else "tests/bench/bench_models.py"
        call(VENV / "python", ROOT / "resources/export_model.py", f"{ROOT}/{source}:{name}", "--out", made, *options)
    return made


def ran(plan, store, steps):
    """The median step after the first, which warms up, of a run that is recorded."""
    result = json.loads(pipewright("run", plan, "--steps", steps, "--store", store, "--json"))
    return median([s["step_ns"] for s in result["steps"][1:]])


class Calibrated(typing.NamedTuple):
    profile: pathlib.Path
    report: dict  # what `calibrate` says
    plan: pathlib.Path  # of the runs
    step: float  # their median [ns]


def calibrated_profile(model, runs, steps, size=()):
    """A profile of the model on 2 ranks, calibrated by so many runs of gpipe with 4 microbatches."""
    archive = exported(model)
    measured, calibrated, store = (WORK / f"calibration_{model}.{what}" for what in ("profile.json", "calibrated.json", "past.db"))
    for left in WORK.glob(store.name + "*"):
        left.unlink()
    pipewright("profile", archive, "--ranks", 2, *size, "--out", measured)
    plan = WORK / f"calibration_{model}_gpipe.json"
    pipewright("plan", archive, "--profile", measured, "--ranks", 2, "--microbatches", 4, "--schedule", "gpipe", *size, "--out", plan)
    step = median([ran(plan, store, steps) for _ in range(runs)])
    report = json.loads(pipewright("calibrate", "--store", store, "--out", calibrated, "--json"))
    return Calibrated(calibrated, report, plan, step)


def median(values):
    return statistics.median(values)


def machine():
    name = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}"
