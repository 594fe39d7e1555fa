#!/usr/bin/env python3
"""Makes the dumps in tests/data/torch_hangs: processes of torch on Gloo that hang, each for a known reason.

    .deps/venv/bin/python tests/support/python/torch_hangs.py [FOLDER] [CASE...]

ProcessGroupGloo enters only collectives into torch's Flight Recorder (torch 2.11: `_dump_fr_trace_json()` of a process that sends and
receives has no entry for either). So `Recorder` wraps send and recv of the real process group and keeps the recorder's entries for them, in
its JSON; collectives are the real recorder's. A rank writes its dump when a wait of its own fails, and all waits have a deadline, as with
TORCH_NCCL_DUMP_ON_TIMEOUT; a killed or stopped rank writes none. In cases that say "always" a rank writes after each change, as a recorder
in shared memory would.

Each folder has one dump for each rank that wrote one, `schedule.csv` with what the ranks were meant to do. `truths.json` has the rank
and action that hang in each, which follow from how the case is made and not from a dump.
"""
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

WAIT = 3.0  # seconds that a wait may take
SIZE = 64  # floats of a message

# case: (schedule as meant, rows as run where they differ, what happens). Rows are torch's cells.
GPIPE3 = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
    "1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_B0 1B0 1SEND_B0 1RECV_B1 1B1 1SEND_B1",
    "2RECV_F0 2F0 2RECV_F1 2F1 2B0 2SEND_B0 2B1 2SEND_B1",
]
PAIR = [
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
    "1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1",
]
CASES = {
    # 1F1B on 3 ranks with 2 microbatches, whose first rank warms up with as many forwards as there are stages, 3: the third has no peer.
    "few_microbatches": {
        "schedule": GPIPE3,
        "rows": ["0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1", GPIPE3[1], GPIPE3[2]],
        # Nobody takes the third; rank 1 then waits for rank 0 to take the gradient.
        "truth": {"verdict": "missing_message", "rank": 0, "action": "0SEND_F2", "cause_rank": 0, "cause_action": "0RECV_B0"},
    },
    # Both wait for the other's message before they send their own.
    "inverted_order": {
        "schedule": [
            "0F0 0SEND_F0 0F1 0RECV_B0 0B0 0SEND_F1 0RECV_B1 0B1",
            PAIR[1],
        ],
        "truth": {"verdict": "cycle", "action_of": {"0": "0RECV_B0", "1": "1RECV_F1"}, "check_would_catch": True},
    },
    "missing_send": {
        "schedule": PAIR,
        "rows": ["0F0 0SEND_F0 0F1 0RECV_B0 0B0 0RECV_B1 0B1", PAIR[1]],
        "truth": {"verdict": "missing_message", "rank": 1, "action": "1RECV_F1", "cause_rank": 0, "cause_action": "0SEND_F1"},
    },
    "wrong_size": {
        "schedule": PAIR,
        "sizes": {"1RECV_F1": SIZE // 2},
        "always": True,  # Gloo ends the receiver
        "truth": {"verdict": "size_mismatch", "rank": 1, "action": "1RECV_F1", "cause_rank": 0, "cause_action": "0SEND_F1"},
    },
    "killed": {
        "schedule": GPIPE3,
        "ends": {"rank": 2, "at": "2F1", "signal": "SIGKILL"},
        "truth": {"verdict": "silent_rank", "rank": 1, "action": "1RECV_B0", "silent": 2, "next": "2F1"},
    },
    "killed_with_dump": {
        "schedule": GPIPE3,
        "ends": {"rank": 2, "at": "2F1", "signal": "SIGKILL"},
        "always": True,
        "truth": {"verdict": "silent_rank", "rank": 1, "action": "1RECV_B0", "silent": 2, "next": "2F1"},
    },
    "stopped_with_dump": {
        "schedule": GPIPE3,
        "ends": {"rank": 1, "at": "1F1", "signal": "SIGSTOP"},
        "always": True,
        "truth": {"verdict": "silent_rank", "action_of": {"0": "0RECV_B0", "2": "2RECV_F1"}, "silent": 1, "next": "1F1"},
    },
    "stopped": {
        "schedule": GPIPE3,
        "ends": {"rank": 1, "at": "1B0", "signal": "SIGSTOP"},
        "truth": {"verdict": "silent_rank", "rank": 0, "action": "0RECV_B0", "silent": 1, "next": "1B0"},
    },
}


def new_entry(entries, sends, rank, peer, tensor, timeout):
    """An entry of torch's Flight Recorder for a message of a group of all ranks, as ProcessGroupNCCL makes it."""
    sizes, types = [list(tensor.shape)], [{"float32": "Float", "int64": "Long", "uint8": "Byte"}[str(tensor.dtype).split(".")[1]]]
    entries.append({
        "record_id": len(entries), "pg_id": 0, "process_group": ["0", "default_pg"], "thread_name": "python", "thread_id": "0",
        "collective_seq_id": 0, "p2p_seq_id": len(entries) + 1, "op_id": len(entries) + 1,
        "profiling_name": f"gloo:send {rank}->{peer}" if sends else f"gloo:recv {rank}<-{peer}",
        "time_created_ns": time.time_ns(), "input_sizes": sizes, "input_dtypes": types,
        "output_sizes": sizes, "output_dtypes": types, "state": "scheduled", "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0, "retired": False, "timeout_ms": int(timeout * 1000), "is_p2p": True,
    })
    return entries[-1]


def complete(entry):
    entry.update(state="completed", retired=True, time_discovered_completed_ns=time.time_ns())


def write_dump(path, ranks, entries):
    from torch._C._distributed_c10d import _dump_fr_trace_json

    text = json.loads(_dump_fr_trace_json())
    text["entries"] = entries
    text["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": str(ranks)}}
    whole = path.with_suffix(".part")  # a process that dies meanwhile leaves the one before
    whole.write_text(json.dumps(text, separators=(",", ":")) + "\n")
    whole.replace(path)


class Recorder:
    """Sends and receives of a process group, with an entry of torch's Flight Recorder for each."""

    def __init__(self, group_ranks, path, always):
        import torch.distributed as dist

        self.dist, self.ranks, self.path, self.always, self.entries = dist, group_ranks, path, always, []

    def message(self, sends, tensor, peer):
        entry = new_entry(self.entries, sends, self.dist.get_rank(), peer, tensor, WAIT)
        if self.always:
            self.dump()
        work = self.dist.isend(tensor, peer) if sends else self.dist.irecv(tensor, peer)
        work.wait(datetime.timedelta(seconds=WAIT))
        complete(entry)
        if self.always:
            self.dump()

    def dump(self):
        write_dump(self.path, self.ranks, self.entries)


def peer_of(cell):
    stage = int("".join(c for c in cell.split("SEND")[0].split("RECV")[0] if c.isdigit()))
    step = 1 if ("SEND_F" in cell or "RECV_B" in cell) else -1
    return stage + step


def work(name, rank, folder, store):
    import torch
    import torch.distributed as dist

    case = CASES[name]
    rows = case.get("rows", case["schedule"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=len(rows), timeout=datetime.timedelta(seconds=60))
    dist.barrier()
    recorder = Recorder(list(range(len(rows))), pathlib.Path(folder) / f"nccl_trace_rank_{rank}.json", case.get("always", False))
    ends = case.get("ends", {})
    try:
        for cell in rows[rank].split():
            if ends.get("rank") == rank and ends["at"] == cell:
                time.sleep(0.3)  # the others come to their waits
                os.kill(os.getpid(), getattr(signal, ends["signal"]))
            if "SEND" in cell or "RECV" in cell:
                size = case.get("sizes", {}).get(cell, SIZE)
                recorder.message("SEND" in cell, torch.zeros(size), peer_of(cell))
            else:
                time.sleep(0.01)
        time.sleep(2 * WAIT)
    except RuntimeError as error:
        print(f"{name}, rank {rank}: {str(error)[:120]}", file=sys.stderr)
    recorder.dump()
    time.sleep(WAIT)  # an end of this process would be news to the others
    os._exit(0)


def make(name, root):
    case, folder = CASES[name], pathlib.Path(root) / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    store = tempfile.mktemp()
    children = [subprocess.Popen([sys.executable, __file__, "--rank", name, str(rank), str(folder), store])
                for rank in range(len(case["schedule"]))]
    stopped = case["ends"]["rank"] if "ends" in case else -1
    for rank, child in enumerate(children):
        if rank != stopped:
            child.wait(120)
    if stopped >= 0:
        children[stopped].kill()
        children[stopped].wait()
    (folder / "schedule.csv").write_text("".join(row.replace(" ", ",") + "\r\n" for row in case["schedule"]))


def main(arguments):
    if arguments[:1] == ["--rank"]:
        work(arguments[1], int(arguments[2]), arguments[3], arguments[4])
    root = arguments[0] if arguments else pathlib.Path(__file__).parents[2] / "data" / "torch_hangs"
    for name in arguments[1:] or CASES:
        make(name, root)
        print(name)
    truths = {name: case["truth"] for name, case in CASES.items()}
    (pathlib.Path(root) / "truths.json").write_text(json.dumps(truths, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
