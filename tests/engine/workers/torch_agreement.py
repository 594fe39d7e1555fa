"""Compares distributed autograd with torch's own: torch_agreement.py REMOTE_CHILD.

Runs the programs of tests/engine/autograd whose values are all used in a job of remote_child, then the same programs with
torch.distributed.autograd on the same parameters, and compares loss and all gradients. Starts a job by torchrun, too."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

WORKERS = 3
RTOL, ATOL = 1e-9, 1e-12
DEADLINE = 240  # [s]

parameters = {}  # of this process, by number


def call(worker, function, *arguments):
    return rpc.rpc_sync(f"worker{worker}", function, args=arguments)


def keep(worker, function, *arguments):
    return rpc.remote(f"worker{worker}", function, args=arguments)


def layer(x):
    return parameters[0].matmul(x) + x.tanh()


def parameter(number):
    return parameters[number]


def fetch_and_layer(reference):
    return layer(reference.to_here())


def pair(x):
    return {"sum": x + parameters[1], "all": [x * parameters[2], 7]}


def route(x, way):
    return layer(call(way[0], route, x, way[1:]) if way else x)


def shrink(x):
    rounds = 0
    while (x * x).sum().item() > 0.05 and rounds < 10:
        rounds += 1
        x = call(2 if rpc.get_worker_info().id == 1 else 1, half, x)
    return x * parameters[3]


def half(x):
    return 0.5 * x * parameters[4].tanh()


def calls_at_the_same_time(x):
    calls = [rpc.rpc_async(f"worker{i % 3}", layer, args=(x(10 + i % 2),)) for i in range(8)]
    product = calls[0].wait()
    for other in calls[1:]:
        product = product * other.wait()
    return product


def shared_parameters(x):
    value = x()
    for _ in range(4):
        value = call(1, layer, value)
    return value


def parameter_fetched_by_two(_):
    reference = keep(1, parameter, 0)
    return reference.to_here() * call(2, fetch_and_layer, reference)


def through_three_workers(x):
    return keep(0, fetch_and_layer, keep(2, fetch_and_layer, keep(1, layer, x()))).to_here()


def dicts_and_lists(x):
    both = call(1, pair, x())
    return both["sum"] * both["all"][0]


def branch_by_value(x):
    y = call(1, layer, x())
    return call(2, layer, y) if y.sum().item() > 0 else y.tanh()


# Name: the sum of this is the loss, on worker 0; `x(n)` is its parameter n.
PROGRAMS = {
    "OneCall": lambda x: call(1, layer, x()),
    "NestedCalls": lambda x: call(1, route, x(), [2]),
    "CircleOfWorkers": lambda x: call(1, route, x(), [2, 0, 1, 2, 0]),
    "WorkerCallsItself": lambda x: call(0, layer, x()),
    "CalleeCallsItself": lambda x: call(1, route, x(), [1, 1]),
    "OneTensorToTwoWorkersAndBack": lambda x: call(1, layer, x()) * call(2, layer, x()),
    "OneTensorTwiceInACall": lambda x: call(1, torch.mul, x(), x()),
    "SharedParameters": shared_parameters,
    "ParameterFetchedByTwo": parameter_fetched_by_two,
    "ReferenceThroughThreeWorkers": through_three_workers,
    "ReferenceOfItsOwnWorker": lambda _: call(1, fetch_and_layer, keep(1, parameter, 6)),
    "DictsAndLists": dicts_and_lists,
    "CallsAtTheSameTime": calls_at_the_same_time,
    "LoopOfUnknownLength": lambda x: call(1, shrink, x()),
    "BranchByValue": branch_by_value,
    "TransposedTensors": lambda x: call(1, layer, x().t()).t(),
}


def gradients(context):
    try:
        found = dist_autograd.get_gradients(context)
    except RuntimeError:  # the context was never here
        return {}
    return {number: found[tensor].flatten().tolist() for number, tensor in parameters.items() if tensor in found}


def work(rank, path):
    """One process of the job of torch; worker 0 writes what it found beside the parameters."""
    torch.set_num_threads(1)
    for key, values in json.loads(path.read_text()).items():
        worker, number = map(int, key.split("/"))
        if worker == rank:
            parameters[number] = torch.tensor(values, dtype=torch.float64).view(3, 3).requires_grad_()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=WORKERS)
    if rank == 0:
        found = {}
        for name, program in PROGRAMS.items():
            with dist_autograd.context() as context:
                loss = program(lambda number=10: parameters[number]).sum()
                dist_autograd.backward(context, [loss])
                found[f"{name}/loss"] = [loss.item()]
                for worker in range(WORKERS):
                    for number, values in call(worker, gradients, context).items():
                        found[f"{name}/{worker}/{number}"] = values
        path.with_suffix(".found").write_text(json.dumps(found))
    rpc.shutdown()


def run_job(words_of, workers):
    """Processes as the ranks of a job; what they print, together."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    job = {**os.environ, "WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    job |= {"PIPEWRIGHT_JOB_TOKEN": secrets.token_hex(16)}
    processes = [
        subprocess.Popen(words_of(rank), env={**job, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True) for rank in range(workers)
    ]
    try:
        printed = "".join(process.communicate(timeout=DEADLINE)[0] for process in processes)
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        raise SystemExit(f"the job ended with {[process.returncode for process in processes]}")
    return printed


def starts_by_torchrun(child):
    """Whether the note's examples run where torchrun starts the workers, whose store its agent serves."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    result = subprocess.run([*torchrun, child, "note", "ucx"], capture_output=True, text=True, timeout=DEADLINE)
    works = result.returncode == 0 and len(result.stdout.splitlines()) == 2 * 5
    print(f"torchrun: {'the examples of the note run' if works else result.stdout + result.stderr}")
    return works


def close(mine, others):
    one, other = (torch.tensor(values, dtype=torch.float64) for values in (mine, others))
    return one.shape == other.shape and torch.allclose(one, other, rtol=RTOL, atol=ATOL)


def main():
    if len(sys.argv) == 3:
        return work(int(os.environ["RANK"]), pathlib.Path(sys.argv[2]))
    printed = run_job(lambda _: [sys.argv[1], "programs", "ucx", "fast", "1", "0"], WORKERS)
    ours = {name: [float(value) for value in values] for name, *values in map(str.split, printed.splitlines())}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "parameters.json"
        given = {name.removeprefix("parameter/"): values for name, values in ours.items() if name.startswith("parameter/")}
        path.write_text(json.dumps(given))
        run_job(lambda _: [sys.executable, __file__, "work", str(path)], WORKERS)
        torchs = json.loads(path.with_suffix(".found").read_text())
    faults = 0 if starts_by_torchrun(sys.argv[1]) else 1
    for name in PROGRAMS:
        mine = {key: values for key, values in ours.items() if key.startswith(name + "/")}
        others = {key: values for key, values in torchs.items() if key.startswith(name + "/")}
        same = f"{name}/loss" in mine and mine.keys() == others.keys() and all(close(mine[key], others[key]) for key in mine)
        faults += not same
        print(f"{name}: {len(mine) - 1} gradients {'agree' if same else f'differ: {mine} and {others}'}")
    return faults != 0


if __name__ == "__main__":
    sys.exit(main())
