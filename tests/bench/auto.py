"""Is an order made for the costs faster where it is predicted to be? Real runs of `auto` and of the best named schedule, in turns.

For each model, on 2 ranks of this machine: profiles, calibrates by a few runs of gpipe, plans every named schedule that fits and `auto`
under several memory limits, and where `auto` is predicted at least --gain faster than the best of them, runs the two plans in turns. Shown is
the median of the ratios of each pair's median steps, with its quartiles. Cases where the gain is smaller are listed, not run.
"""

import argparse
import json
import statistics
import subprocess

import bench_tools as tools

ONE_CHUNK, TWO_CHUNKS = ["gpipe", "1f1b", "zb-h1", "zb-h2"], ["interleaved-1f1b", "interleaved-zb", "looped-bfs", "zbv", "v-half", "v-min"]
FAMILIES = {**dict.fromkeys(ONE_CHUNK, 1), **dict.fromkeys(TWO_CHUNKS, 2)}
# model, microbatches, options of the plan
CASES = [
    ("gpt_25m", 6, []),
    ("gpt_heavy_head", 8, ["--balance", "layers"]),
    ("gpt_small", 8, []),
    ("hf_gpt2", 8, []),
    ("hf_llama", 8, []),
    ("vit_small", 8, []),
]
CALIBRATING = 4  # runs; without them the gain is overrated: ranks that share a machine slow each other down where bubbles are few
# Of what 1f1b needs on the rank that needs the most; of those of a case, the one with the largest gain is run.
LIMITS = [None, 0.95, 0.9, 0.85, 0.8, 0.7]


def planned(model, profile, name, chunks, microbatches, words, out):
    """The prediction of a plan, or nothing where there is no such plan or it does not fit."""
    shape = ["--ranks", 2, "--chunks", chunks, "--microbatches", microbatches, "--schedule", name]
    call = [tools.PIPEWRIGHT, "plan", model, "--profile", profile, *shape, *words, "--out", out, "--json"]
    result = subprocess.run([str(w) for w in call], capture_output=True, text=True, timeout=600)
    return json.loads(result.stdout) if result.returncode == 0 else None


def step(plan, steps):
    result = json.loads(tools.pipewright("run", plan, "--steps", steps, "--json"))
    return tools.median([s["step_ns"] for s in result["steps"][1:]])


def best_of(archive, profile, families, microbatches, words, share):
    """The fastest plan of some schedules with their chunks, as (step, name, file); nothing where none fits."""
    plans = []
    for name, chunks in families:
        out = tools.WORK / f"auto_{name}_{chunks}_{share}.json"
        found = planned(archive, profile, name, chunks, microbatches, words, out)
        if found:
            plans.append((found["step_ns"], f"{name}, {chunks} chunk{'s' * (chunks > 1)}", out))
    return min(plans, default=None)


def compared(model, microbatches, words, options):
    """Of a case: the limit under which `auto` gains most, its title, and the two plans; nothing where no limit lets both make one."""
    archive = tools.exported(model)
    profile = tools.calibrated_profile(model, CALIBRATING, options.steps).profile
    plain = planned(archive, profile, "1f1b", 1, microbatches, words, tools.WORK / "auto_1f1b.json")
    most = max(r["peak_bytes"] for r in plain["ranks"])
    cases = []
    for share in LIMITS:
        limited = [*words, "--memory-limit", f"{int(share * most)}B"] if share else words
        best = best_of(archive, profile, FAMILIES.items(), microbatches, limited, share)
        ours = best_of(archive, profile, [("auto", 1), ("auto", 2)], microbatches, limited, share)
        if best and ours:
            cases.append((1 - ours[0] / best[0], f"{model}, M = {microbatches} {' '.join(map(str, limited))}", ours, best))
    return max(cases, default=None)


def case(model, microbatches, words, options):
    found = compared(model, microbatches, words, options)
    if found is None:
        print(f"{model}: no named schedule fits", flush=True)
        return None
    gain, title, ours, best = found
    print(f"{title}: {best[1]} {best[0] / 1e6:.1f} ms, {ours[1]} {ours[0] / 1e6:.1f} ms predicted, {100 * gain:.1f} % faster", flush=True)
    if gain < options.gain:
        return None
    ratios = []
    for pair in range(options.pairs):
        two = [ours[2], best[2]] if pair % 2 == 0 else [best[2], ours[2]]
        measured = {plan: step(plan, options.steps) for plan in two}
        ratios.append(measured[ours[2]] / measured[best[2]])
    low, middle, high = statistics.quantiles(ratios, n=4)
    faster = [100 * (1 - ratio) for ratio in (middle, high, low)]
    print("    measured: {:+.1f} % faster (quartiles {:+.1f} to {:+.1f}), {} pairs".format(*faster, options.pairs), flush=True)
    return middle


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gain", type=float, default=0.05)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    tools.prepare()
    print("machine:", tools.machine())
    ratios = [r for r in (case(*c, options) for c in CASES) if r is not None]
    slower = sum(r > 1 for r in ratios)
    print(f"{len(ratios)} cases predicted at least {100 * options.gain:g} % faster; measured slower in {slower} of them")


if __name__ == "__main__":
    main()
