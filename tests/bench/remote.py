"""./dev bench remote: our message channel, remote calls and distributed autograd over UCX between two processes, against
torch.distributed.rpc and torch.distributed.autograd, alternately."""

import json
import os
import socket
import subprocess
import sys

import bench_tools as tools

ROUNDS = 7
# (what, words of the command, times per round)
SIZES = (("3 x 3 floats", 36, 200), ("1 KB", 1 << 10, 200), ("1 MB", 1 << 20, 20), ("64 MB", 64 << 20, 4))
CONTEXTS = 1000


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Side:
    """A pair of processes: a line of words to the first gives a line of JSON."""

    def __init__(self, *words):
        words = [*map(str, words), str(free_port())]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        if self.process.wait(timeout=60) != 0:
            raise SystemExit(f"one side ended with {self.process.returncode}")


def quarter(values):
    return sorted(values)[len(values) // 4], sorted(values)[3 * len(values) // 4]


def compare(name, ours, torch, count):
    """Both sides in turns; `ours` and `torch`: a pair of processes and the words of its command, without the count."""
    times = ([], [])
    for side, words in (ours, torch):
        side.ask(*words, max(3, count // 4))  # warm up
    for _ in range(ROUNDS):
        for (side, words), all_times in zip((ours, torch), times):
            all_times += side.ask(*words, count)
    cells = [(tools.median(values), "{:.0f} to {:.0f}".format(*quarter(values))) for values in times]
    ratio = cells[1][0] / cells[0][0]
    print(f"{name:>28}  {cells[0][0]:>10.1f}  {cells[0][1]:>18}  {cells[1][0]:>10.1f}  {cells[1][1]:>18}  {ratio:>6.1f}", flush=True)


def main():
    print(f"machine: {tools.machine()}")
    channel = Side(tools.ROOT / "build/bin/remote_bench")
    calls = Side(tools.ROOT / "build/bin/remote_calls_bench")
    torch = Side(tools.VENV / "python", tools.ROOT / "tests/bench/remote_torch.py")
    print(f"{'medians [us]':>28}  {'ours':>10}  {'(quartiles)':>18}  {'torch':>10}  {'(quartiles)':>18}  {'ratio':>6}")
    for name, size, count in SIZES:
        compare(f"message, {name}", (channel, (size,)), (torch, ("call", size)), count)
    for name, size, count in SIZES:
        compare(f"call, {name}", (calls, ("call", size)), (torch, ("call", size)), count)
    compare("call, pass and gradients", (calls, ("round",)), (torch, ("round",)), 100)
    before, after, left = calls.ask("contexts", CONTEXTS)
    print(f"{CONTEXTS} contexts: {left} things left, resident memory of both processes {(after - before) / 1024:+.0f} KiB")
    for side in (channel, calls, torch):
        side.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
