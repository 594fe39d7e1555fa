"""A pair of processes of torch.distributed.rpc for remote.py: remote_torch.py PORT. The second is started by the first."""

import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed.rpc as rpc


def identity(value):
    return value


def main():
    port, rank = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    peer = subprocess.Popen([sys.executable, __file__, port, "1"], stdin=subprocess.DEVNULL) if rank == 0 else None
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    if rank == 0:
        for line in sys.stdin:
            size, count = map(int, line.split())
            value = torch.ones(3, 3) if size == 36 else torch.ones(size // 4)
            times = []
            for _ in range(count):
                start = time.perf_counter()
                rpc.rpc_sync("worker1", identity, args=(value,))
                times.append(1e6 * (time.perf_counter() - start))
            print(json.dumps(times), flush=True)
    rpc.shutdown()
    return peer.wait() if peer else 0


if __name__ == "__main__":
    sys.exit(main())
