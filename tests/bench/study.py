"""Studies: points a second, and a study that is killed repeatedly.

1. 10,000 plans of a table of 160 layers on 8 ranks with 32 microbatches are predicted, stored and ranked; the median of five times.
2. A study of 204,800 points of a small GPT is killed ten times and then ended: its store has every point once, and random points are what
   `plan` predicts.
"""

import json
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "bin" / "pipewright"
KILLS = 10
COMPARED = 40


def ten_thousand(folder: pathlib.Path) -> float:
    """Seconds for 10,000 plans, the median of five times."""
    numbers = random.Random(3)
    rows = ["name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes"]
    for layer in range(160):
        forward = numbers.randint(900_000, 1_100_000)
        rows.append(f"l{layer},{forward},{forward},{int(forward * 0.9)},800000000,200000000,32000000")
    (folder / "layers.csv").write_text("\n".join(rows) + "\n")
    study = {
        "version": 1, "model": "layers.csv", "cluster": ["h100-nvlink", "a100-nvlink", "h200-nvlink", "b200-nvlink", "mi300x"],
        "ranks": 8, "microbatches": 32, "schedule": ["1f1b", "gpipe", "zbv", "interleaved-1f1b", "zb-h1"],
        "balance": ["time", "memory", "parameters", "layers"], "replicas": [1, 2, 3, 4, 5], "optimizer": ["sgd", "adamw"],
        "zero1": [False, True], "memory_limit": ["20GB", "40GB", "60GB", "80GB", "100GB"]}
    (folder / "many.json").write_text(json.dumps(study))
    seconds = []
    for _ in range(5):
        (folder / "many.db").unlink(missing_ok=True)
        began = time.monotonic()
        subprocess.run([PROGRAM, "search", "--study", folder / "many.json", "--top", "1", "--progress", "json"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds)


def killed(folder: pathlib.Path) -> tuple[int, int, int]:
    """Points, kills that came before the end, and points that `plan` predicts otherwise."""
    model = ROOT / "resources" / "models" / "gpt_small.pt2"
    study = {
        "version": 1, "model": str(model), "cluster": ["h100-nvlink", "a100-nvlink", "b200-nvlink", "mi300x"], "ranks": [2, 3, 4, 6, 8],
        "replicas": [1, 2, 4, 8], "microbatches": {"from": 1, "to": 32},
        "schedule": ["1f1b", "gpipe", "zbv", "interleaved-1f1b", "zb-h1"], "recompute": ["none", "full"], "balance": ["time", "memory"],
        "memory_limit": ["1MiB", "2MiB", "4MiB", "64MiB"]}
    file, store = folder / "killed.json", folder / "killed.db"
    file.write_text(json.dumps(study))
    call = [PROGRAM, "search", "--study", file, "--progress", "json"]
    came = 0
    for _ in range(KILLS):
        process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(random.uniform(0.2, 1.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            came += 1
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    points = sqlite3.connect(store)
    points.row_factory = sqlite3.Row
    count, distinct = points.execute("SELECT count(*), count(DISTINCT number) FROM point").fetchone()
    if count != distinct or count != 4 * 5 * 4 * 32 * 5 * 2 * 2 * 4:
        sys.exit(f"the store has {count} rows and {distinct} points")
    others = 0
    for _ in range(COMPARED):
        row = points.execute("SELECT * FROM point WHERE number = ?", (random.randrange(count),)).fetchone()
        plan = subprocess.run(
            [PROGRAM, "plan", model, "--ranks", str(row["ranks"]), "--replicas", str(row["replicas"]), "--microbatches",
             str(row["microbatches"]), "--schedule", row["schedule"], "--cluster", row["cluster"], "--recompute", row["recompute"],
             "--balance", row["balance"], "--memory-limit", f"{row['memory_limit']}B", "--json"], capture_output=True, text=True)
        predicted = json.loads(plan.stdout)
        peak = max(rank["peak_bytes"] for rank in predicted["ranks"])
        others += (predicted["step_ns"], predicted["makespan_ns"], peak) != (row["step_ns"], row["makespan_ns"], row["peak_bytes"])
    return count, came, others


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        seconds = ten_thousand(folder)
        print(f"10,000 plans of 160 layers, 8 ranks x 32 microbatches: {seconds:.2f} s, stored and ranked (median of 5)")
        count, came, others = killed(folder)
        print(f"{count} points, killed {came} times before the end: every point once; {others} of {COMPARED} differ from `plan`")
        if others:
            sys.exit(1)


main()
