"""Calls, references, futures and exceptions between three workers; rpc_checks.py says what holds."""

import gc
import traceback

import pytest

torch = pytest.importorskip("torch", reason="remote calls need torch")

import rpc_checks  # noqa: E402
import rpc_workers  # noqa: E402

from pipewright import rpc  # noqa: E402


def run_checks(rank, world_size):
    """What each check raised, as a text; empty: nothing."""
    options = rpc.RpcBackendOptions(num_worker_threads=rpc_checks.MOST_RUNNING, rpc_timeout=rpc_checks.PATIENCE_S)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options)
    found = {}
    for name, check in rpc_checks.CHECKS.items() if rank == 0 else ():
        try:
            check()
            found[name] = ""
        except BaseException as error:
            found[name] = traceback.format_exc()
            traceback.clear_frames(error.__traceback__)
        gc.collect()
    rpc.shutdown()
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return rpc_workers.run(tmp_path_factory.mktemp("checks"), run_checks, 3)[0]


@pytest.mark.parametrize("name", rpc_checks.CHECKS)
def test_between_three_workers(found, name):
    assert not found[name], found[name]
