"""Processes as workers of a job, for tests. They are forked from a server that has imported torch, which takes seconds."""

import faulthandler
import multiprocessing
import os
import pathlib
import pickle
import socket
import sys
import time
import traceback

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "pipewright.rpc", "pipewright.autograd", "pipewright.optim"])
DEADLINE_S = 120.0
"""For all that a group of workers does; on a busy machine too."""


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Group:
    """Processes that run ``function(rank, world_size, *args)``, and what it returned for each rank."""

    def __init__(self, folder, function, world_size, *args):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
        self.processes = [
            CONTEXT.Process(target=_run, args=(str(self.folder), function, place, rank, world_size, args), daemon=True) for rank in range(world_size)
        ]
        for process in self.processes:
            process.start()

    def join(self):
        """Waits for all; returns what they returned, by rank. Fails with what they wrote where one did not end well, and ends all in any case."""
        until = time.monotonic() + DEADLINE_S
        try:
            for process in self.processes:
                process.join(max(0.0, until - time.monotonic()))
        finally:
            late = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
            for process in self.processes:
                process.kill()
                process.join(10)
        output = "\n".join(f"--- rank {rank}\n{self._text(rank)}" for rank in range(len(self.processes)))
        assert not late, f"ranks {late} did not end in time:\n{output}"
        return [self._result(rank, output) for rank in range(len(self.processes))]

    def _text(self, rank):
        path = self.folder / f"{rank}.log"
        return path.read_text() if path.exists() else ""

    def _result(self, rank, output):
        path = self.folder / f"{rank}.pickle"
        if self.processes[rank].exitcode == -9 and not path.exists():
            return None  # the test killed it
        assert path.exists(), f"rank {rank} failed:\n{output}"
        return pickle.loads(path.read_bytes())


def run(folder, function, world_size, *args):
    """What ``function(rank, world_size, *args)`` returns on each of so many workers."""
    return Group(folder, function, world_size, *args).join()


def _run(folder, function, place, rank, world_size, args):
    log = open(os.path.join(folder, f"{rank}.log"), "w")
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.dump_traceback_later(DEADLINE_S * 0.9, exit=False)
    os.environ.update(place)
    try:
        result = function(rank, world_size, *args)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    partial = os.path.join(folder, f"{rank}.part")
    with open(partial, "wb") as file:
        pickle.dump(result, file)
    os.replace(partial, os.path.join(folder, f"{rank}.pickle"))
