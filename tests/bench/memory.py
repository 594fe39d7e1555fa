"""What plans say of their ranks' memory, and what the ranks allocate: the samples × schedules × recomputation, two ranks each.

    memory.sh [--models NAME...]

Of each rank the most bytes of tensors in a step after the first against the prediction (1 % wanted), and what the process holds beside them.
"""

import argparse
import json

import bench_tools

SAMPLES = ["gpt_small", "gpt_split", "hf_gpt2", "hf_llama", "hf_bert", "resnet18_narrow", "vit_small", "example_code"]
SCHEDULES = ["gpipe", "1f1b", "zbv", "auto"]
RANKS = 2
MIB = 2**20


def measured(model, schedule, recompute):
    """By rank: predicted bytes, allocated bytes, bytes of the process. Nothing where the model cannot be recomputed so."""
    plan = bench_tools.WORK / "memory.json"
    archive = bench_tools.ROOT / "resources" / "models" / f"{model}.pt2"
    try:
        bench_tools.pipewright("plan", archive, "--ranks", RANKS, "--microbatches", 4, "--schedule", schedule, "--recompute", recompute, "--out", plan)
    except SystemExit as refused:  # an operator in place, for example
        print(f"{model:16} {schedule:6} {recompute:5} refused: {str(refused).splitlines()[-1][:90]}")
        return None
    predicted = [rank["peak_bytes"] for rank in json.loads(bench_tools.pipewright("simulate", plan, "--json"))["ranks"]]
    run = json.loads(bench_tools.pipewright("run", plan, "--steps", 3, "--json"))
    allocated = [max(step["ranks"][rank]["peak_bytes"] for step in run["steps"][1:]) for rank in range(RANKS)]
    return predicted, allocated, [process["resident_peak_bytes"] for process in run["processes"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=SAMPLES)
    options = parser.parse_args()
    bench_tools.WORK.mkdir(parents=True, exist_ok=True)
    errors, beside = [], []
    for model in options.models:
        for schedule in SCHEDULES:
            for recompute in ("none", "full"):
                found = measured(model, schedule, recompute)
                if found is None:
                    continue
                cells = []
                for predicted, allocated, resident in zip(*found):
                    errors.append(allocated / predicted - 1)
                    beside.append((resident - allocated) / MIB)
                    cells.append(f"{predicted / MIB:8.2f} {allocated / MIB:8.2f} MiB {100 * errors[-1]:+6.2f} %")
                print(f"{model:16} {schedule:6} {recompute:5} {'   '.join(cells)}", flush=True)
    close = sum(abs(error) <= 0.01 for error in errors)
    print(f"{bench_tools.machine()}: {close} of {len(errors)} ranks within 1 % of the prediction; {100 * min(errors):+.1f} % to "
          f"{100 * max(errors):+.1f} %; a process holds {min(beside):.0f} to {max(beside):.0f} MiB beside its tensors")


if __name__ == "__main__":
    main()
