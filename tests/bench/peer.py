"""Step time with torch.distributed.pipelining and with Pipewright, in turn, on 2 ranks with one thread each.

1. The same plan on both sides (split, 1F1B, microbatches, loss, optimizer): the 20–30 M GPT, and the small one.
2. Our best plan against their equal split with 1F1B, on a GPT with a heavy head: R = 2, M = 4. What can be won is bounded by the imbalance and the
   bubble of their plan: the bound is printed beside the ratio.
Each row is a ratio ours / theirs of the median step times, pair by pair, and its median. Below 1 Pipewright is faster.
"""

import argparse
import json

import bench_tools as tools

BEST_OF = ("1f1b", "gpipe", "zb-h1", "zbv", "v-half")


def ours(plan, steps):
    result = tools.last_json(tools.pipewright("run", plan, "--steps", steps + 2, "--json").replace("\n", ""))
    return tools.median([s["step_ns"] for s in result["steps"][2:]])


def theirs(model, split, microbatches, microbatch, steps):
    out = tools.call(tools.VENV / "torchrun", "--nproc-per-node", 2, "--master-port", 29511, tools.ROOT / "tests/bench/peer_torch.py", "--model", model, "--split", split,
                     "--schedule", "1f1b", "--microbatches", microbatches, "--microbatch", microbatch,
                     "--steps", steps, "--warmup", 2, "--threads", 1, env={"OMP_NUM_THREADS": "1"})
    result = tools.last_json(out)
    return result["median_step_ns"], result["plan"]


def planned(model, name, *words):
    """Writes a plan; returns its path, its prediction and the plan."""
    path = tools.WORK / f"{name}.json"
    prediction = json.loads(tools.pipewright("plan", tools.exported(model), "--ranks", 2, "--json", "--out", path, *words))
    return path, prediction, json.loads(path.read_text())


def compare(title, plan, model, split, microbatches, microbatch, options, wanted):
    ratios, ours_all, theirs_all, peer_plan = [], [], [], None
    print(f"\n{title}", flush=True)
    for round_number in range(options.rounds):
        pair = {}
        for side in (("ours", "theirs") if round_number % 2 == 0 else ("theirs", "ours")):
            if side == "ours":
                pair[side] = ours(plan, options.steps)
            else:
                pair[side], peer_plan = theirs(model, split, microbatches, microbatch, options.steps)
        ours_all.append(pair["ours"])
        theirs_all.append(pair["theirs"])
        ratios.append(pair["ours"] / pair["theirs"])
        print(f"round {round_number + 1}: pipewright {pair['ours'] / 1e6:8.1f} ms   torch {pair['theirs'] / 1e6:8.1f} ms   ratio {ratios[-1]:.3f}", flush=True)
    print("torch's plan:", peer_plan)
    print(f"median step: pipewright {tools.median(ours_all) / 1e6:.1f} ms, torch.distributed.pipelining {tools.median(theirs_all) / 1e6:.1f} ms")
    print(f"ratio: {tools.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}; at most {wanted:.2f} wanted)", flush=True)


def same_plan(model, split, microbatches, microbatch, options, wanted):
    plan, _, _ = planned(model, f"peer_{model}", "--split", split, "--schedule", "1f1b", "--microbatches", microbatches, "--microbatch", microbatch)
    compare(f"{model}, the same plan: split {split}, 1f1b, {microbatches} microbatches of {microbatch}", plan, model, split, microbatches, microbatch, options, wanted)


def best_plan(options):
    model, microbatches, microbatch = "gpt_heavy_head", 4, 2
    size = ("--microbatches", microbatches, "--microbatch", microbatch)
    _, equal, plan = planned(model, "peer_equal", "--split", "blocks.4", "--schedule", "1f1b", *size)
    profile = tools.WORK / "peer_profile.json"
    profile.write_text(json.dumps(plan["profile"]))  # one measurement for all plans
    candidates = {name: planned(model, f"peer_{name}", "--schedule", name, "--profile", profile, *size) for name in BEST_OF}
    best = min(candidates, key=lambda name: candidates[name][1]["makespan_ns"])
    path, prediction, chosen = candidates[best]
    work = sum(r["busy_ns"] for r in equal["ranks"])
    for name, (_, p, _) in candidates.items():
        print(f"predicted {name}: {p['makespan_ns'] / 1e6:.1f} ms, split {candidates[name][2]['splits']}")
    print(f"predicted equal split with 1f1b: {equal['makespan_ns'] / 1e6:.1f} ms; chosen: {best}, split {chosen['splits']}")
    print(f"bound of the ratio (all work, no bubble, on both ranks): {work / 2 / equal['makespan_ns']:.3f}; predicted ratio {prediction['makespan_ns'] / equal['makespan_ns']:.3f}")
    compare(f"{model}: our best plan ({best}) against the equal split with 1f1b", path, model, "blocks.4", microbatches, microbatch, options, 0.85)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", choices=("large", "small", "best"))
    options = parser.parse_args()
    tools.prepare()
    print("machine:", tools.machine())
    if options.only in (None, "large"):
        same_plan("gpt_25m", "blocks.4", 8, 2, options, 1.00)
    if options.only in (None, "small"):
        same_plan("gpt_small", "blocks.2", 8, 2, options, 0.95)
    if options.only in (None, "best"):
        best_plan(options)


if __name__ == "__main__":
    main()
