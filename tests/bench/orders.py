"""How good the orders of `--schedule auto` are: seeded problems, each against the exact solver CP-SAT of OR-tools.

    orders.sh [--problems N] [--first I] [--large] [--prove SECONDS] [--seconds T]
    orders.sh --limits [--problems N] [--first I] [--large] [--seconds T]

Small problems have up to 4 ranks and 8 microbatches; the solver searches for an order faster than ours. It finds one, proves that
there is none, or gives up after --prove seconds. Large ones have 8 ranks and 24 microbatches, too many for the solver: of those the certified
gap counts. --seconds: of work, 2 for small problems, 20 for large ones, which two cores do in ten. --limits makes an order for each problem
with memory limits and for larger limits, one after the other: how often, and by how much, more memory makes it slower (a search that ends
elsewhere).
"""

import argparse
import json
import random
import statistics
import time

from ortools.sat.python import cp_model

import bench_tools

KINDS = ("forward_ns", "input_ns", "weight_ns")


def problem(number, large):
    """Loop, V or a loop of two chunks; equal or uneven stages; slow links; memory for many microbatches or few, a third with the choice to
    recompute; either clock."""
    draw = random.Random(1000 + number)
    ranks, microbatches = (8, 24) if large else (draw.choice([2, 3, 4]), draw.choice([4, 5, 6, 7, 8]))
    there = list(range(ranks))
    place = draw.choice([there, there + there[::-1], there + there])
    base = 1000 if len(place) == ranks else 500
    spread = draw.choice([0, 0.2, 0.6])

    def times(share):
        return [max(1, int(base * share * (1 + draw.uniform(-spread, spread)))) for _ in place]

    shares = (1, draw.choice([0.9, 1.0, 1.3]), draw.choice([0.5, 0.8, 1.0]))
    made = {"ranks": ranks, "microbatches": microbatches, "place": place, **{kind: times(share) for kind, share in zip(KINDS, shares)}}
    latency = base * draw.choice([0, 0.05, 0.3])
    made["latency_ns"] = [int(latency * draw.uniform(0.5, 1.5)) for _ in range(ranks - 1)]
    if draw.random() < 0.3:
        made["latency_ns"][draw.randrange(ranks - 1)] = int(base * draw.uniform(0.5, 2))
    held = made["activation"] = [draw.randint(80, 120) for _ in place]
    if draw.random() < 0.5:
        made["activation_after_input"] = [int(bytes_ * draw.uniform(0.3, 0.7)) for bytes_ in held]
    many = draw.choice([None, [ranks] * ranks, [ranks // 2 + 1] * ranks, [draw.randint(max(1, ranks // 2), 2 * ranks) for _ in there]])
    if many:
        of_rank = [sum(bytes_ for bytes_, r in zip(held, place) if r == rank) for rank in there]
        made["limit"] = [max(whole, int(whole * count * draw.uniform(0.9, 1.1))) for whole, count in zip(of_rank, many)]
    made["objective"] = draw.choice(["flush", "flush", "window"])
    if many and not large and draw.random() < 0.45:
        made["activation_if_recomputed"] = [int(bytes_ * draw.uniform(0.05, 0.4)) for bytes_ in held]
    return made


def faster(p, than, seconds):
    """`none`, `unknown`, or the time of an order that is faster."""
    model = cp_model.CpModel()
    stages, microbatches, place = range(len(p["place"])), range(p["microbatches"]), p["place"]
    latest = than - 1 + (sum(p[KINDS[0]][:p["ranks"]]) + sum(p["latency_ns"]) if p["objective"] == "window" else 0)
    start = {(k, s, m): model.NewIntVar(0, latest, "") for k in KINDS for s in stages for m in microbatches}

    kept = p.get("activation_if_recomputed")
    recomputed = {s: model.NewBoolVar("") for s in stages} if kept else {}
    forward, backward, weight = KINDS

    def duration(k, s):
        return p[k][s] + (recomputed[s] * p[forward][s] if kept and k == backward else 0)

    def end(k, s, m):
        return start[k, s, m] + duration(k, s)

    def interval(k, s, m):
        if not kept or k != backward:
            return model.NewFixedSizeIntervalVar(start[k, s, m], p[k][s], "")
        last_ = model.NewIntVar(0, latest, "")
        model.Add(last_ == end(k, s, m))
        return model.NewIntervalVar(start[k, s, m], duration(k, s), last_, "")

    def latency(a, b):
        return sum(p["latency_ns"][min(place[a], place[b]):max(place[a], place[b])])

    for m in microbatches:
        for s in stages:
            if s:
                model.Add(start[forward, s, m] >= end(forward, s - 1, m) + latency(s - 1, s))
                model.Add(start[backward, s - 1, m] >= end(backward, s, m) + latency(s - 1, s))
            model.Add(start[backward, s, m] >= end(forward, s, m))
            model.Add(start[weight, s, m] >= end(backward, s, m))
            if m:  # microbatches are alike
                for k in KINDS:
                    model.Add(start[k, s, m] >= end(k, s, m - 1))
    after = p.get("activation_after_input", p["activation"])
    time_ = model.NewIntVar(0, than - 1, "")
    last = p["microbatches"] - 1
    for rank in range(p["ranks"]):
        own = [s for s in stages if place[s] == rank]
        model.AddNoOverlap([interval(k, s, m) for k in KINDS for s in own for m in microbatches])
        if "limit" in p:
            events = []  # (time, change, whether it is)
            for s in own:
                held = p["activation"][s]
                for m in microbatches:
                    first = kept[s] if kept else held
                    events += [(start[forward, s, m], first, 1), (end(backward, s, m), after[s] - held, 1), (end(weight, s, m), -after[s], 1)]
                    if kept:
                        events += [(start[forward, s, m], held - first, recomputed[s].Not()), (start[backward, s, m], held - first, recomputed[s])]
            model.AddReservoirConstraintWithActive([t for t, _, _ in events], [c for _, c, _ in events], [a for _, _, a in events], -10**9,
                                                   p["limit"][rank])
        begin = 0
        if p["objective"] == "window":
            # Each rank starts as soon as the first microbatch arrives: stage `rank` is its first.
            begin = sum(p[forward][:rank]) + latency(0, rank)
            model.Add(start[forward, rank, 0] == begin)
        for s in own:
            model.Add(time_ >= end(weight, s, last) - begin)
    model.Minimize(time_)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.Solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return int(solver.ObjectiveValue())
    return "none" if status == cp_model.INFEASIBLE else "unknown"


def found_for(p, options):
    """The answer of `simulate` for this problem."""
    file = bench_tools.WORK / "order.json"
    file.write_text(json.dumps(p))
    return json.loads(bench_tools.pipewright("simulate", "--costs", file, "--schedule", "auto", "--seconds", options.seconds, "--json"))


def time_of(p, found):
    return found["makespan_ns" if p["objective"] == "flush" else "window_ns"]


def larger_limits(options):
    steps, slower, losses = 0, 0, []
    for number in range(options.first, options.first + options.problems):
        p = problem(number, options.large)
        if "limit" not in p:
            continue
        times = []
        for factor in (1, 1.1, 1.25, 1.5, 2, 3):
            larger = {**p, "limit": [int(limit * factor) for limit in p["limit"]]}
            times.append(time_of(p, found_for(larger, options)))
        rises = [after / before - 1 for before, after in zip(times, times[1:]) if after > before]
        steps, slower = steps + len(times) - 1, slower + len(rises)
        losses += rises
        print(f"{number:4} {p['ranks']} ranks {len(p['place'])} stages {p['objective']:6} {times}{'  slower with more memory' if rises else ''}", flush=True)
    print(f"{bench_tools.machine()}: of {steps} steps to a larger limit {slower} made the order slower, by {100 * max(losses, default=0):.2f} % at most")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--prove", type=float, default=20)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--limits", action="store_true")
    options = parser.parse_args()
    options.seconds = options.seconds or (20 if options.large else 2)
    bench_tools.WORK.mkdir(parents=True, exist_ok=True)
    if options.limits:
        return larger_limits(options)
    gaps, above, times, counts = [], [], [], {"optimal": 0, "unknown": 0, "beaten": 0}
    for number in range(options.first, options.first + options.problems):
        p = problem(number, options.large)
        began = time.monotonic()
        found = found_for(p, options)
        times.append(time.monotonic() - began)
        gaps.append(found["gap"])
        ours = time_of(p, found)
        verdict = "none" if found["optimal"] else "unknown" if options.large else faster(p, ours, options.prove)
        counts["optimal" if verdict == "none" else "unknown" if verdict == "unknown" else "beaten"] += 1
        above.append((ours - verdict) / ours if isinstance(verdict, int) else 0)
        print(f"{number:4} {p['ranks']} ranks {len(p['place'])} stages {p['microbatches']} microbatches {p['objective']:6} {ours:8} "
              f"gap {100 * gaps[-1]:5.2f} %  {times[-1]:5.2f} s  {verdict}", flush=True)
    print(f"{bench_tools.machine()}: {counts['optimal']} proven optimal, {counts['unknown']} undecided, {counts['beaten']} beaten, by "
          f"{100 * max(above):.2f} % at most; certified gap {100 * statistics.median(gaps):.2f} % (median), {100 * max(gaps):.2f} % (worst); "
          f"{statistics.median(times):.2f} s (median)")


if __name__ == "__main__":
    main()
