"""A pair of processes of torch.distributed.rpc for remote.py: remote_torch.py PORT. The second is started by the first.

Each line from stdin gives a line of JSON with times [us]: `call BYTES COUNT` and `round COUNT`, as of remote_calls_bench.cpp."""

import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc


def identity(value):
    return value


def call(size):
    value = torch.ones(3, 3) if size == 36 else torch.ones(size // 4)
    return lambda: rpc.rpc_sync("worker1", identity, args=(value,))


def rounds():
    t1, t2, t4 = (torch.rand(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def once():
        with dist_autograd.context() as context:
            t3 = rpc.rpc_sync("worker1", torch.add, args=(t1, t2))
            dist_autograd.backward(context, [(t3 * t4).sum()])
            assert len(dist_autograd.get_gradients(context)) == 3

    return once


def main():
    port, rank = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    peer = subprocess.Popen([sys.executable, __file__, port, "1"], stdin=subprocess.DEVNULL) if rank == 0 else None
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        for line in sys.stdin:
            what, *numbers = line.split()
            once = call(int(numbers[0])) if what == "call" else rounds()
            times = []
            for _ in range(int(numbers[-1])):
                start = time.perf_counter()
                once()
                times.append(1e6 * (time.perf_counter() - start))
            print(json.dumps(times), flush=True)
    rpc.shutdown()
    return peer.wait() if peer else 0


if __name__ == "__main__":
    sys.exit(main())
