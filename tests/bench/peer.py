"""Step time of the same plan with torch.distributed.pipelining and with Pipewright, in turn.

Both train the 20–30 M GPT on 2 ranks over Gloo with one thread each: same split, schedule, microbatches, loss, optimizer.
Prints the ratio ours / theirs of the median step times, pair by pair, and its median. Below 1 Pipewright is faster.
"""

import argparse

import bench_tools as tools


def ours(plan, steps):
    result = tools.last_json(tools.pipewright("run", plan, "--steps", steps + 2, "--json").replace("\n", ""))
    return tools.median([s["step_ns"] for s in result["steps"][2:]])


def theirs(options, steps):
    out = tools.call(tools.VENV / "torchrun", "--nproc-per-node", 2, "--master-port", 29511, tools.ROOT / "tests/bench/peer_torch.py", "--split", options.split,
                     "--schedule", options.schedule, "--microbatches", options.microbatches, "--microbatch", options.microbatch,
                     "--steps", steps, "--warmup", 2, "--threads", 1, env={"OMP_NUM_THREADS": "1"})
    result = tools.last_json(out)
    return result["median_step_ns"], result["plan"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--split", default="blocks.4")
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--microbatch", type=int, default=2)
    options = parser.parse_args()
    tools.prepare()
    plan = tools.WORK / "peer_plan.json"
    print("machine:", tools.machine())
    print("Pipewright's plan:\n" + tools.pipewright("plan", tools.MODEL, "--ranks", 2, "--split", options.split, "--schedule", options.schedule,
                                                    "--microbatches", options.microbatches, "--microbatch", options.microbatch, "--out", plan))
    ratios, ours_all, theirs_all, peer_plan = [], [], [], None
    for round_number in range(options.rounds):
        pair = {}
        for side in (("ours", "theirs") if round_number % 2 == 0 else ("theirs", "ours")):
            if side == "ours":
                pair[side] = ours(plan, options.steps)
            else:
                pair[side], peer_plan = theirs(options, options.steps)
        ours_all.append(pair["ours"])
        theirs_all.append(pair["theirs"])
        ratios.append(pair["ours"] / pair["theirs"])
        print(f"round {round_number + 1}: pipewright {pair['ours'] / 1e6:8.1f} ms   torch {pair['theirs'] / 1e6:8.1f} ms   ratio {ratios[-1]:.3f}", flush=True)
    print("torch's plan:", peer_plan)
    print(f"median step: pipewright {tools.median(ours_all) / 1e6:.1f} ms, torch.distributed.pipelining {tools.median(theirs_all) / 1e6:.1f} ms")
    print(f"ratio pipewright / torch.distributed.pipelining: {tools.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f}; at most 1.00 wanted)")


if __name__ == "__main__":
    main()
