"""The examples of torch's note on distributed autograd, with changed imports."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="remote calls need torch")

import rpc_workers  # noqa: E402

SCRIPT = pathlib.Path(__file__).with_name("dist_autograd_simple.py")


def test_the_end_to_end_example_runs_as_a_script():
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(rpc_workers.free_port())}
    path = os.pathsep.join(each for each in sys.path if each)
    ended = subprocess.run(
        [sys.executable, SCRIPT], env={**os.environ, **place, "PYTHONPATH": path}, capture_output=True, text=True, timeout=rpc_workers.DEADLINE_S
    )
    assert ended.returncode == 0, ended.stderr


def run_end_to_end(rank, world_size):
    """The tensors that this worker made, before and after."""
    import dist_autograd_simple as example

    made = []
    original = example.random_tensor

    @functools.wraps(original)
    def random_tensor():
        tensor = original()
        made.append((tensor, tensor.detach().clone()))
        return tensor

    example.random_tensor = random_tensor
    example.run_process(rank, world_size)
    return [(before, tensor.detach()) for tensor, before in made]


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_end_to_end_example_takes_one_step_of_sgd_on_all_owners(world_size, tmp_path):
    for made in rpc_workers.run(tmp_path, run_end_to_end, world_size):
        assert len(made) == 2
        for before, after in made:  # the loss is the sum of all elements: each gradient is 1
            torch.testing.assert_close(after, before - 0.05, rtol=1e-6, atol=0)


def run_first_example(rank, world_size):
    import note_first_example

    from pipewright import rpc

    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    tensors, gradients = note_first_example.on_worker_0() if rank == 0 else ((), {})
    rpc.shutdown()
    return [(each.detach(), gradients[each]) for each in tensors], len(gradients)


def test_the_first_example_gives_the_gradients_of_a_product_with_a_sum(tmp_path):
    (first, second, factor), count = rpc_workers.run(tmp_path, run_first_example, 2)[0]
    assert count == 3
    assert torch.equal(first[1], factor[0]) and torch.equal(second[1], factor[0])
    assert torch.equal(factor[1], first[0] + second[0])
