"""The engine's own costs: split backward, time per action, running against replaying, predicted against measured memory, memory of a large model."""

import argparse
import json

import bench_tools as tools

BENCH = tools.ROOT / "build/bin/engine_bench"


def split():
    print("\nsplit backward: (I + W) / B, at most 1.10 wanted")
    for model, loss in (("mlp_16", "mse"), ("mlp_256", "mse"), ("mlp_1024", "mse"), ("gpt_small", "cross_entropy"), ("gpt_25m", "cross_entropy")):
        r = tools.last_json(tools.call(BENCH, "split", tools.exported(model), loss))
        print(f"  {model:10} B {r['B_ns'] / 1e3:10.1f} us   I {r['I_ns'] / 1e3:10.1f} us   W {r['W_ns'] / 1e3:10.1f} us   ratio {r['ratio']:.3f}", flush=True)


def overhead():
    print("\nengine beside the work: two ranks over UCX, empty stages, a message of 1 KB for each action; at most 20 us an action wanted")
    for r in json.loads(tools.call(BENCH, "overhead")):
        print(f"  {r['schedule']:5} {r['ns_per_action'] / 1e3:.2f} us an action ({r['actions']} actions)")


def memory_and_replay():
    print("\ngpt_25m on 2 ranks, 4 microbatches of 2: peak memory predicted and measured (within 5 % wanted), makespan measured / replayed (at most 1.03 wanted)")
    profile = tools.WORK / "engine_profile.json"
    tools.pipewright("profile", tools.MODEL, "--microbatch", 2, "--out", profile)
    for schedule in ("gpipe", "1f1b", "zbv"):
        for recompute in ("none", "full"):
            plan, store = tools.WORK / "engine_plan.json", tools.WORK / "engine.db"
            store.unlink(missing_ok=True)
            tools.pipewright("plan", tools.MODEL, "--ranks", 2, "--microbatches", 4, "--schedule", schedule, "--recompute", recompute, "--profile", profile, "--out", plan)
            predicted = json.loads(tools.pipewright("simulate", plan, "--json"))["ranks"]
            run = json.loads(tools.pipewright("run", plan, "--steps", 5, "--store", store, "--json"))
            compared = json.loads(tools.pipewright("compare", "--store", store, "--json"))
            words = []
            for p, m in zip(predicted, run["steps"][-1]["ranks"]):
                words.append(f"{p['peak_bytes'] / 2**20:7.2f} / {m['peak_bytes'] / 2**20:7.2f} MiB ({100 * (m['peak_bytes'] / p['peak_bytes'] - 1):+.1f} %)")
            replayed = compared["measured_makespan_ns"] / compared["replayed_makespan_ns"]
            print(f"  {schedule:6} recompute {recompute:5} {'   '.join(words)}   measured / replayed {replayed:.3f}", flush=True)


def large():
    print("\ngpt_350m on 4 ranks: a process' resident memory beyond its tensors (at most 250 MB wanted), start to rank 0's first action (at most 3 s wanted)")
    plan = tools.WORK / "engine_large.json"
    tools.pipewright("plan", tools.exported("gpt_350m"), "--ranks", 4, "--microbatches", 4, "--microbatch", 1, "--cluster", "cpu-workstation", "--balance", "parameters", "--out", plan)
    run = json.loads(tools.pipewright("run", plan, "--json"))
    for process, rank in zip(run["processes"], run["steps"][0]["ranks"]):
        beyond = process["resident_peak_bytes"] - rank["peak_bytes"]
        print(f"  rank {rank['rank']}: resident {process['resident_peak_bytes'] / 1e6:.0f} MB, tensors {rank['peak_bytes'] / 1e6:.0f} MB, beyond {beyond / 1e6:.0f} MB, "
              f"first action after {process['start_to_first_action_ns'] / 1e9:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="the 350 million parameters too (exports 1.6 GB on first use)")
    options = parser.parse_args()
    tools.prepare()
    print("machine:", tools.machine())
    split()
    overhead()
    memory_and_replay()
    if options.large:
        large()


if __name__ == "__main__":
    main()
