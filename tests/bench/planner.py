"""How long people wait for a plan: whole processes of the program, medians.

1. `plan` of a table of 100,000 layers for 64 ranks, with and without a memory limit; and of that the search for the 64 stages alone, on one
   thread.
2. `schedule auto` for 8 ranks and 32 microbatches with uneven costs: the order that the app shows first (0.02 s of search).
3. `search` of a model of 65 billion parameters, 80 layers, on 64 ranks of 80 GB.
"""

import argparse
import json
import random
import statistics
import time

import bench_tools

REPEATS = 5


def timed(*words, repeats=REPEATS):
    """Median seconds of a command, and its last output."""
    seconds, output = [], ""
    for _ in range(repeats):
        began = time.monotonic()
        output = bench_tools.pipewright(*words)
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds), output


def show(what, seconds, wanted):
    print(f"{what:<66} {seconds:7.3f} s  {'within' if seconds <= wanted else 'ABOVE'} {wanted:g} s", flush=True)


def partitions():
    numbers = random.Random(5)
    rows = ["name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes"]
    for layer in range(100_000):
        forward = numbers.randint(900, 1_100)
        rows.append(f"l{layer},{forward},{forward},{int(forward * 0.9)},80000,{numbers.randint(15_000, 25_000)},3200")
    table = bench_tools.WORK / "planner.csv"
    table.write_text("\n".join(rows) + "\n")
    shape = ["--layers", table, "--ranks", 64, "--microbatches", 64]
    show("plan: 100,000 layers, 64 ranks", timed("plan", *shape, "--schedule", "1f1b")[0], 1)
    seconds, output = timed("plan", *shape, "--schedule", "1f1b", "--json")
    peaks = [rank["peak_bytes"] for rank in json.loads(output)["ranks"]]
    limit = (max(peaks) + 3 * sum(peaks) // len(peaks)) // 4  # balanced by time alone the first ranks do not fit
    show("the same within a memory limit", timed("plan", *shape, "--schedule", "1f1b", "--memory-limit", f"{limit}B")[0], 1)


def splits():
    program = bench_tools.PIPEWRIGHT.parent / "simulator_bench"
    if not program.exists():
        raise SystemExit(f"there is no {program}: it needs Google Benchmark (Debian: libbenchmark-dev) when the tree is configured.")
    out = bench_tools.WORK / "planner_splits.json"
    bench_tools.call(program, "--benchmark_filter=^split", f"--benchmark_repetitions={REPEATS}", "--benchmark_report_aggregates_only=true",
                     f"--benchmark_out={out}")
    for run in json.loads(out.read_text())["benchmarks"]:
        if run["aggregate_name"] == "median":
            show(f"{run['run_name'].split('/')[1]}: 64 stages of 100,000 layers, alone", run["real_time"] / 1e9, 1)


def first_order():
    numbers = random.Random(7)
    costs = {"ranks": 8, "microbatches": 32, "place": list(range(8)), "latency_ns": [50] * 7, "limit": [800] * 8, "activation": [100] * 8}
    for kind in ("forward_ns", "input_ns", "weight_ns"):
        costs[kind] = [numbers.randint(700, 1_300) for _ in range(8)]
    file = bench_tools.WORK / "planner.json"
    file.write_text(json.dumps(costs))
    seconds, output = timed("simulate", "--costs", file, "--schedule", "auto", "--seconds", 0.02, "--json", repeats=11)
    show(f"first order, 8 ranks × 32 microbatches (gap {100 * json.loads(output)['gap']:.1f} %)", seconds, 0.15)


def large_search():
    model = bench_tools.exported("gpt_70b", "--meta")
    words = ["search", model, "--ranks", 64, "--cluster", "h100-nvlink", "--precision", "bf16", "--microbatches", 128, 256, "--memory-limit", "80GB",
             "--optimizer", "adamw", "--json"]
    seconds, output = timed(*words, repeats=1)
    found = json.loads(output)
    best = found["best"][0]
    show(f"search: 65 B on 64 ranks ({best['schedule']}, step {best['step_ns'] / 1e9:.2f} s)", seconds, 30)


PARTS = {"partitions": partitions, "splits": splits, "first": first_order, "search": large_search}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    options = parser.parse_args()
    bench_tools.WORK.mkdir(parents=True, exist_ok=True)
    print(bench_tools.machine())
    for part in options.only:
        PARTS[part]()


if __name__ == "__main__":
    main()
