"""Programs of distributed autograd give the gradients of one process, in each mode, and those of torch.distributed.autograd."""

import traceback

import pytest

torch = pytest.importorskip("torch", reason="remote calls need torch")

import rpc_programs as programs  # noqa: E402
import rpc_workers  # noqa: E402

MODES = ("auto", "smart", "fast")


def run_programs(rank, world_size, torch_port):
    """All programs in each mode, then by torch; what they gave, or the text of what was raised."""
    results = {}
    from pipewright import autograd, rpc

    programs.use(rpc, autograd)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    if rank == 0:
        for mode in MODES:
            names = programs.EVERY_MESSAGE_USED if mode == "fast" else programs.PROGRAMS
            results.update({(mode, name): outcome(name, mode=mode) for name in names})
    rpc.shutdown()

    import torch.distributed.autograd
    import torch.distributed.rpc

    programs.use(torch.distributed.rpc, torch.distributed.autograd)
    torch.distributed.rpc.init_rpc(
        f"worker{rank}",
        rank=rank,
        world_size=world_size,
        rpc_backend_options=torch.distributed.rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{torch_port}"),
    )
    if rank == 0:
        results.update({("torch", name): outcome(name) for name in programs.EVERY_MESSAGE_USED})
    torch.distributed.rpc.shutdown()
    return results


def outcome(name, **options):
    try:
        return programs.distributed(name, **options)
    except BaseException:
        return traceback.format_exc()


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return rpc_workers.run(tmp_path_factory.mktemp("programs"), run_programs, programs.WORKERS, rpc_workers.free_port())[0]


def check(found, expected):
    assert not isinstance(found, str), found
    assert not isinstance(expected, str), expected
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    assert {worker: sorted(gradients) for worker, gradients in found[1].items()} == {
        worker: sorted(gradients) for worker, gradients in expected[1].items()
    }
    for worker, gradients in expected[1].items():
        for number, gradient in gradients.items():
            torch.testing.assert_close(found[1][worker][number], gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_gradients_are_those_of_one_process(results, name):
    expected = programs.alone(name)
    assert any(expected[1].values())
    for mode in MODES:
        if (mode, name) in results:
            check(results[mode, name], expected)


@pytest.mark.parametrize("name", programs.EVERY_MESSAGE_USED)
def test_gradients_are_those_of_torch(results, name):
    check(results["auto", name], results["torch", name])
