"""How far the predicted step time is from the measured one: 20–30 M GPT, 2 ranks, 8 microbatches, 20 steps, 1F1B and GPipe.

Each round profiles, plans and runs anew; the error is (measured median − predicted) / predicted. At most 10 % is wanted.
"""

import argparse

import bench_tools as tools


def one(schedule, steps):
    plan = tools.WORK / f"accuracy_{schedule}.json"
    tools.pipewright("plan", tools.MODEL, "--ranks", 2, "--microbatches", 8, "--schedule", schedule, "--out", plan)
    result = tools.last_json(tools.pipewright("run", plan, "--steps", steps, "--json").replace("\n", ""))
    measured = tools.median([s["step_ns"] for s in result["steps"][1:]])
    return result["predicted_step_ns"], measured


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    tools.prepare()
    print("machine:", tools.machine())
    for schedule in ("1f1b", "gpipe"):
        errors = []
        for _ in range(options.rounds):
            predicted, measured = one(schedule, options.steps)
            errors.append(measured / predicted - 1)
            print(f"{schedule:6} predicted {predicted / 1e6:8.1f} ms   measured {measured / 1e6:8.1f} ms   error {100 * errors[-1]:+.1f} %", flush=True)
        print(f"{schedule:6} median error {100 * tools.median(errors):+.1f} % (at most ±10 % wanted)")


if __name__ == "__main__":
    main()
