"""./dev bench messages: one-way times of messages between two processes, UCX against Gloo in one run, and what waiting costs."""

import json
import sys

import bench_tools as tools

BENCH = tools.ROOT / "build/bin/messages_bench"
TARGET_BYTES, TARGET_RATIO = 1 << 20, 4.0
MOST_WAITING = 0.02


def quarter(values):
    return sorted(values)[len(values) // 4], sorted(values)[3 * len(values) // 4]


def main():
    print(f"machine: {tools.machine()}")
    failed = False
    print(f"{'message':>10}  {'UCX [us]':>10}  {'(quartiles)':>19}  {'Gloo [us]':>10}  {'(quartiles)':>19}  {'Gloo / UCX':>10}")
    for row in json.loads(tools.call(BENCH, "pair")):
        ucx, gloo = row["microseconds"]["ucx"], row["microseconds"]["gloo"]
        ratio = tools.median(gloo) / tools.median(ucx)
        size = f"{row['bytes'] >> 10} KB" if row["bytes"] < 1 << 20 else f"{row['bytes'] >> 20} MB"
        cells = [f"{tools.median(v):>10.1f}  {'{:.1f} to {:.1f}'.format(*quarter(v)):>19}" for v in (ucx, gloo)]
        print(f"{size:>10}  {cells[0]}  {cells[1]}  {ratio:>10.1f}")
        if row["bytes"] == TARGET_BYTES and ratio < TARGET_RATIO:
            print(f"the aim is {TARGET_RATIO:g} times at {size}")
            failed = True
    waiting = json.loads(tools.call(BENCH, "waiting"))
    print("CPU of a rank that waits, 4 ranks on 2 cores, most of 3 ranks: " + ", ".join(f"{n} {100 * s:.2f} % of a core" for n, s in waiting.items()))
    return 1 if failed or waiting["ucx"] > MOST_WAITING else 0


if __name__ == "__main__":
    sys.exit(main())
