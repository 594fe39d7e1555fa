"""./dev bench remote: there and back between two processes: our message channel over UCX against torch.distributed.rpc, alternately."""

import json
import socket
import subprocess
import sys

import bench_tools as tools

ROUNDS = 7
# (what, bytes, times per round); both sides send them there and back
SIZES = (("3 x 3 floats", 36, 200), ("1 KB", 1 << 10, 200), ("1 MB", 1 << 20, 20), ("64 MB", 64 << 20, 4))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Side:
    """A pair of processes: a line `BYTES COUNT` to the first gives a line with the times [us]."""

    def __init__(self, *words):
        self.process = subprocess.Popen([*map(str, words), str(free_port())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def times(self, size, count):
        self.process.stdin.write(f"{size} {count}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        if self.process.wait(timeout=60) != 0:
            raise SystemExit(f"one side ended with {self.process.returncode}")


def quarter(values):
    return sorted(values)[len(values) // 4], sorted(values)[3 * len(values) // 4]


def main():
    print(f"machine: {tools.machine()}")
    ours = Side(tools.ROOT / "build/bin/remote_bench")
    torch = Side(tools.VENV / "python", tools.ROOT / "tests/bench/remote_torch.py")
    print(f"{'there and back':>14}  {'channel [us]':>12}  {'(quartiles)':>20}  {'torch rpc [us]':>14}  {'(quartiles)':>20}  {'ratio':>6}")
    for name, size, count in SIZES:
        times = ([], [])
        for side in (ours, torch):
            side.times(size, max(3, count // 4))  # warm up
        for _ in range(ROUNDS):
            for side, all_times in zip((ours, torch), times):
                all_times += side.times(size, count)
        cells = [(tools.median(values), "{:.0f} to {:.0f}".format(*quarter(values))) for values in times]
        print(f"{name:>14}  {cells[0][0]:>12.1f}  {cells[0][1]:>20}  {cells[1][0]:>14.1f}  {cells[1][1]:>20}  {cells[1][0] / cells[0][0]:>6.1f}")
    ours.end()
    torch.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
