"""What plans say of their ranks' memory, and what the ranks allocate: the samples × schedules × recomputation, two ranks each.

    memory.sh [--models NAME...]

Of each rank the most bytes of tensors in a step after the first against the prediction (1 % wanted), and of its process what is resident
(3 % wanted).
"""

import argparse
import json

import bench_tools

SAMPLES = ["gpt_small", "gpt_split", "hf_gpt2", "hf_llama", "hf_bert", "resnet18_narrow", "vit_small", "example_code"]
SCHEDULES = ["gpipe", "1f1b", "zbv", "auto"]
RANKS = 2
MIB = 2**20


def measured(model, schedule, recompute):
    """By rank: predicted and allocated bytes, predicted and measured bytes of the process. Nothing where the model cannot be recomputed so."""
    plan = bench_tools.WORK / "memory.json"
    archive = bench_tools.ROOT / "resources" / "models" / f"{model}.pt2"
    try:
        bench_tools.pipewright("plan", archive, "--ranks", RANKS, "--microbatches", 4, "--schedule", schedule, "--recompute", recompute, "--out", plan)
    except SystemExit as refused:  # an operator in place, for example
        print(f"{model:16} {schedule:6} {recompute:5} refused: {str(refused).splitlines()[-1][:90]}")
        return None
    ranks = json.loads(bench_tools.pipewright("simulate", plan, "--json"))["ranks"]
    predicted, whole = [rank["peak_bytes"] for rank in ranks], [rank["resident_bytes"] for rank in ranks]
    run = json.loads(bench_tools.pipewright("run", plan, "--steps", 3, "--json"))
    allocated = [max(step["ranks"][rank]["peak_bytes"] for step in run["steps"][1:]) for rank in range(RANKS)]
    return predicted, allocated, whole, [process["resident_peak_bytes"] for process in run["processes"]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=SAMPLES)
    options = parser.parse_args()
    bench_tools.WORK.mkdir(parents=True, exist_ok=True)
    errors, residents = [], []
    for model in options.models:
        for schedule in SCHEDULES:
            for recompute in ("none", "full"):
                found = measured(model, schedule, recompute)
                if found is None:
                    continue
                cells = []
                for predicted, allocated, whole, resident in zip(*found):
                    errors.append(allocated / predicted - 1)
                    residents.append(resident / whole - 1)
                    cells.append(f"{predicted / MIB:7.2f} {allocated / MIB:7.2f} MiB {100 * errors[-1]:+6.2f} % {whole / MIB:6.1f} {resident / MIB:6.1f} MiB "
                                 f"{100 * residents[-1]:+5.1f} %")
                print(f"{model:16} {schedule:6} {recompute:5} {'   '.join(cells)}", flush=True)
    print(bench_tools.machine())
    for what, found, wanted in ("tensors", errors, 0.01), ("processes", residents, 0.03):
        close = sum(abs(error) <= wanted for error in found)
        print(f"{what}: {close} of {len(found)} ranks within {100 * wanted:.0f} % of the prediction; {100 * min(found):+.1f} % to {100 * max(found):+.1f} %")


if __name__ == "__main__":
    main()
