"""How close calibrated predictions come: calibrated by runs of gpipe with 4 microbatches, tested on other schedules and numbers of them.

For each model, on 2 ranks of this machine: a profile, --calibrating runs of gpipe, `calibrate`, and then every plan of SCHEDULES × MICROBATCHES
in turn, --rounds times. Between them the calibrating plan runs again: a shared machine gets faster and slower by the minute, which no
prediction can know, so a measured step is divided by how much slower the calibrating plan is just before and after it than when it
calibrated. Shown are, of each plan, the predicted step with its error bar, the median measured one so divided, its error, the error without
that, how much it varies from run to run, and the mean error of the starts of actions as part of the makespan. At the end, over all plans:
the median error, rank correlation of the plans of each model and number of microbatches, how much slower than the best measured one the plan
is that was predicted fastest, and how many runs were within the error bars, which should hold four of five.

Wanted: error at most 3 %, starts at most 2 %, correlation at least 0.9, regret at most 2 %, 70 to 90 % of the runs within.
"""

import argparse
import json

import bench_tools as tools

SCHEDULES = [("1f1b", 1), ("interleaved-1f1b", 2), ("zb-h1", 1), ("zbv", 2), ("auto", 1)]
MICROBATCHES = [8, 16]


def ranks_of(values):
    """Positions in ascending order, ties shared."""
    return [sum(v < value for v in values) + (sum(v == value for v in values) - 1) / 2 for value in values]


def rank_correlation(a, b):
    """Spearman's."""
    a, b = ranks_of(a), ranks_of(b)
    middle = (len(a) - 1) / 2
    product = sum((x - middle) * (y - middle) for x, y in zip(a, b))
    return product / (sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)) ** 0.5


def case(model, options):
    archive = tools.exported(model)
    store, reference = (tools.WORK / f"calibration_{model}.{what}.db" for what in ("runs", "reference"))
    for left in [*store.parent.glob(store.name + "*"), *store.parent.glob(reference.name + "*")]:
        left.unlink()
    size = ["--microbatch", options.microbatch] if options.microbatch else []
    calibrated = tools.calibrated_profile(model, options.calibrating, options.steps, size)
    print(f"{model}: {json.dumps(calibrated.report)}", flush=True)
    plans = []
    for microbatches in MICROBATCHES:
        for schedule, chunks in SCHEDULES:
            out = tools.WORK / f"calibration_{model}_{schedule}_{microbatches}.json"
            words = ["--ranks", 2, "--chunks", chunks, "--microbatches", microbatches, "--schedule", schedule, *size]
            made = json.loads(tools.pipewright("plan", archive, "--profile", calibrated.profile, *words, "--out", out, "--json"))
            plan = {"schedule": schedule, "microbatches": microbatches, "file": out, "predicted": made["step_ns"], "bar": made["uncertainty"]}
            plans.append({**plan, "as_measured": [], "steps": [], "starts": []})

    def slower():
        """How much the machine is slower than when it calibrated."""
        return tools.ran(calibrated.plan, reference, options.steps) / calibrated.step

    before = slower()
    for _ in range(options.rounds):
        for plan in plans:
            plan["as_measured"].append(tools.ran(plan["file"], store, options.steps))
            after = slower()
            plan["steps"].append(plan["as_measured"][-1] * 2 / (before + after))
            before = after
            plan["starts"].append(json.loads(tools.pipewright("compare", "--store", store, "--json"))["action_error"])
    for plan in plans:
        measured = tools.median(plan["steps"])
        plan["error"] = measured / plan["predicted"] - 1
        spread = (max(plan["steps"]) - min(plan["steps"])) / measured
        raw_error = tools.median(plan["as_measured"]) / plan["predicted"] - 1
        half = (plan["bar"]["step_high_ns"] - plan["bar"]["step_low_ns"]) / 2
        print(
            f"  {plan['schedule']:17} M = {plan['microbatches']:2}  predicted {plan['predicted'] / 1e6:8.2f} ± {half / 1e6:6.2f} ms   measured {measured / 1e6:8.2f} ms"
            f"   error {100 * plan['error']:+6.1f} % ({100 * raw_error:+.1f} %)   from run to run {100 * spread:5.1f} %"
            f"   starts {100 * tools.median(plan['starts']):5.2f} %",
            flush=True,
        )
    return plans


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["gpt_25m", "vit_small", "resnet18_narrow"])
    parser.add_argument("--microbatch", type=int, help="samples in a microbatch (default: the model's)")
    parser.add_argument("--calibrating", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=21)
    options = parser.parse_args()
    tools.prepare()
    print("machine:", tools.machine())
    plans, correlations, regrets = [], [], []
    for model in options.models:
        found = case(model, options)
        plans += found
        for microbatches in MICROBATCHES:
            candidates = [p for p in found if p["microbatches"] == microbatches]
            measured = [tools.median(p["steps"]) for p in candidates]
            correlations.append(rank_correlation([p["predicted"] for p in candidates], measured))
            regrets.append(measured[min(range(len(candidates)), key=lambda i: candidates[i]["predicted"])] / min(measured) - 1)
    within = [plan["bar"]["step_low_ns"] <= step <= plan["bar"]["step_high_ns"] for plan in plans for step in plan["steps"]]
    print(f"{len(plans)} plans, {len(within)} runs")
    print(f"median error {100 * tools.median([abs(p['error']) for p in plans]):.1f} % (at most 3), largest {100 * max(abs(p['error']) for p in plans):.1f} %")
    print(f"starts of actions {100 * tools.median([tools.median(p['starts']) for p in plans]):.2f} % of the makespan (at most 2)")
    print("rank correlation", " ".join(f"{c:.2f}" for c in correlations), f"median {tools.median(correlations):.2f} (at least 0.9)")
    print("regret", " ".join(f"{100 * r:.1f} %" for r in regrets), f"median {100 * tools.median(regrets):.1f} % (at most 2)")
    print(f"{100 * sum(within) / len(within):.0f} % of the runs within their error bars (70 to 90)")


if __name__ == "__main__":
    main()
