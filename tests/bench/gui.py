#!/usr/bin/env python3
"""Times of the desktop app, offscreen and in software: `./dev bench gui`. Everything is in the page cache. Not a test.

    gui.py [--quick]

1. gui_bench: frames of a tour of pans and zooms at 1 and 10 million tasks; new times of the same tasks filled in and painted.
2. drag_bench: from a moved split over the background prediction to the painted timeline, in the whole window.
3. Cold start to the first painted window, and a Chrome trace of 1,000,000 events to its first frame, medians of RUNS processes, with the process's
   peak memory; Python's json reads the same file for comparison.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
RUNS = 10
RANKS, EVENTS = 8, 1_000_000
OFFSCREEN = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QT_LOGGING_RULES": "*=false"}


def write_trace(path):
    """What torch.profiler writes of a pipeline of 8 ranks: a forward and a backward of each microbatch, with arguments as Kineto has them."""
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}, "traceEvents": [\n')
        per_rank = EVENTS // RANKS
        for i in range(per_rank):
            microbatch, backward = i // 2, i % 2
            for rank in range(RANKS):
                start = 30.0 * i + 10 * rank
                name = f"PP:{rank}{'B' if backward else 'F'}{microbatch}"
                end = "" if i + 1 == per_rank and rank + 1 == RANKS else ","
                file.write(f'{{"ph":"X","cat":"user_annotation","name":"{name}","pid":{rank},"tid":{rank},"ts":{start:.3f},"dur":9.500,'
                           f'"args":{{"Ev Idx":{i * RANKS + rank}}}}}{end}\n')
        file.write("]}\n")


def first_frame(*arguments):
    """Medians of first-frame time [ms] and peak memory [MiB]."""
    times, memory = [], []
    for _ in range(RUNS):
        result = subprocess.run([BIN / "pipewright-gui", "--time-first-frame", *arguments], env=OFFSCREEN, capture_output=True, text=True, timeout=300, check=True)
        figures = json.loads(result.stdout)
        times.append(figures["first_frame_ms"])
        memory.append(figures["peak_kib"] / 1024)
    return statistics.median(times), max(times), statistics.median(memory)


def report(what, figures, limit, limit_mib=None):
    median, worst, memory = figures
    verdict = "ok" if median <= limit and (limit_mib is None or memory <= limit_mib) else "MISSED"
    bounds = f"≤ {limit} ms" + (f", ≤ {limit_mib} MiB" if limit_mib else "")
    print(f"{what:44} median {median:7.0f} ms   worst {worst:7.0f} ms   {memory:5.0f} MiB   {verdict} ({bounds})", flush=True)


def main(arguments):
    subprocess.run([BIN / "gui_bench", *arguments], env=OFFSCREEN, check=True)
    subprocess.run([BIN / "drag_bench", ROOT / "resources" / "models" / "gpt_small.pt2"], env=OFFSCREEN, check=True)
    report("cold start to first painted window", first_frame(), 500)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        write_trace(path)
        report(f"{path.stat().st_size / 1e6:.0f} MB Chrome trace, {EVENTS:,} events", first_frame(path), 1000, 350)
        begin = time.perf_counter()
        with open(path, encoding="utf-8") as file:
            json.load(file)
        print(f"Python's json alone: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
