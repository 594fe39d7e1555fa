"""Speed of Pipewright's simulator on one thread, and of torch.distributed.pipelining's own on the same schedules.

Three tables: passes over compiled schedules of 65,536 to 10 million compute actions; every other function on about 100,000; and, in turn,
torch's `_simulate_comms_compute` and ours on the same CSV files with messages. Times are CPU times and medians; an action is a compute action (F,
B, I, W), with messages or without. Fails when `execute` allocates.
"""

import argparse
import contextlib
import io
import json
import pathlib

import bench_tools as tools
import torch_simulator

RANKS = 8
PEERS = [("1f1b", 1, 128), ("interleaved-1f1b", 2, 64), ("zbv", 2, 48)]  # name, chunks, microbatches: a few thousand actions, torch is slow
REFUSED = [("dualpipev", 2, 48, "torch"), ("1f1b", 1, 128, "torch-runtime")]


def ours(options, *arguments, seconds, repetitions):
    """Medians by name: (CPU nanoseconds, compute actions, relative spread)."""
    out = tools.WORK / "simulator_bench.json"
    tools.call(options.bin / "simulator_bench", f"--benchmark_min_time={seconds}", f"--benchmark_repetitions={repetitions}",
               "--benchmark_report_aggregates_only=true", f"--benchmark_out={out}", *arguments)
    runs = {}
    for run in json.loads(out.read_text())["benchmarks"]:
        if run.get("error_occurred"):
            raise SystemExit(f"{run['name']}: {run['error_message']}")
        runs.setdefault(run["run_name"], {})[run["aggregate_name"]] = run
    return {name: (run["median"]["cpu_time"], run["median"]["actions"], run["stddev"]["cpu_time"] / run["mean"]["cpu_time"]) for name, run in runs.items()}


def print_passes(results):
    print(f"\n{'one pass over a compiled schedule (execute)':<44}{'actions':>12}{'ms':>10}{'ns/action':>11}{'M actions/s':>13}{'spread':>8}")
    for name, (time, actions, spread) in results.items():
        if name.startswith("execute/"):
            _, schedule, costs = name.split("/")
            print(f"{schedule + ', ' + costs:<44}{actions:>12,.0f}{time / 1e6:>10.2f}{time / actions:>11.2f}{actions / time * 1e3:>13.0f}{spread:>8.1%}")
    print("no pass allocated memory; peaks of memory come with compile, for they do not depend on times")


def print_functions(results):
    functions = [(name.split("/"), result) for name, result in results.items() if not name.startswith("execute/")]
    schedules = list(dict.fromkeys(schedule for (_, schedule), _ in functions))
    by_function = {}
    for (function, schedule), result in functions:
        by_function.setdefault(function, {})[schedule] = result
    print(f"\n{'R=8, 100,000 to compute':<26}" + "".join(f"{schedule + ' ms':>14}{'ns/action':>11}{'spread':>8}" for schedule in schedules))
    for function, row in by_function.items():
        cells = (row[schedule] for schedule in schedules)
        print(f"{function:<26}" + "".join(f"{time / 1e6:>14.2f}{time / actions:>11.1f}{spread:>8.1%}" for time, actions, spread in cells))


def write_csv(options, name, chunks, microbatches, lowered):
    path = tools.WORK / f"{name}_{lowered}.csv"
    tools.call(options.bin / "pipewright", "schedule", name, "--ranks", RANKS, "--chunks", chunks, "--microbatches", microbatches, "--lowered", lowered, "--out", path)
    return path


def compare(options, path):
    """Both sides in turn, changing who is first; prints medians and ratios."""
    theirs = torch_simulator.TorchSchedule(path)
    whole, passes, torch_times = [], [], []
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            if side == 0:
                result = ours(options, path, seconds=0.02, repetitions=3)
                whole.append(result[f"compile and execute file/{path.stem}"][0])
                passes.append(result[f"execute file/{path.stem}"][0])
            else:
                torch_times.append(theirs.simulate())
    torch_time, whole_time, pass_time = map(tools.median, (torch_times, whole, passes))
    n = theirs.compute_actions
    print(f"{path.stem.removesuffix('_torch'):<20}{n:>9,}{theirs.actions:>9,}{torch_time / n:>12,.0f}{whole_time / n:>15,.1f}{pass_time / n:>11,.1f}"
          f"{torch_time / whole_time:>15,.0f}{torch_time / pass_time:>11,.0f}", flush=True)


def print_refusal(options, path):
    with contextlib.redirect_stdout(io.StringIO()):
        refusal = torch_simulator.TorchSchedule(path).refusal()
    time, actions, _ = ours(options, path, "--benchmark_filter=compile and execute", seconds=0.02, repetitions=3)[f"compile and execute file/{path.stem}"]
    print(f"{path.stem}: torch {'refuses, ' + refusal if refusal else 'takes it'}; ours {time / actions:.1f} ns per compute action (compile+pass)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of the comparison with torch")
    parser.add_argument("--repetitions", type=int, default=5, help="of our own measurements")
    parser.add_argument("--bin", type=pathlib.Path, default=tools.PIPEWRIGHT.parent, help="where the programs are")
    options = parser.parse_args()
    if not (options.bin / "simulator_bench").exists():
        raise SystemExit(f"there is no {options.bin}/simulator_bench: it needs Google Benchmark (Debian: libbenchmark-dev) when the tree is configured.")
    tools.WORK.mkdir(parents=True, exist_ok=True)
    print(f"machine: {tools.machine()}; one thread, CPU times, medians of {options.repetitions} repetitions of at least 0.1 s", flush=True)
    results = ours(options, "--benchmark_filter=-^split", seconds=0.1, repetitions=options.repetitions)
    print_passes(results)
    print_functions(results)

    print(f"\nsimulating a schedule with its messages: R={RANKS}, the same CSV file, in turn, medians of {options.rounds} rounds\n"
          f"{'':<38}{'ns per compute action':^38}{'torch / ours':^26}\n"
          f"{'':<20}{'compute':>9}{'all':>9}{'torch':>12}{'compile+pass':>15}{'pass':>11}{'compile+pass':>15}{'pass':>11}")
    for name, chunks, microbatches in PEERS:
        compare(options, write_csv(options, name, chunks, microbatches, "torch"))
    for name, chunks, microbatches, lowered in REFUSED:
        print_refusal(options, write_csv(options, name, chunks, microbatches, lowered))


if __name__ == "__main__":
    main()
