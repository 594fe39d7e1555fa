"""Training from a script equals the plain loop of PyTorch."""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent
STEPS = 5
DEADLINE_S = 240


def job(script, *arguments, ranks=2, cwd=None):
    """A job of torchrun that has ended."""
    paths = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH") or str(HERE.parents[2] / "build" / "python")])])
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script), *map(str, arguments)]
    return subprocess.run(call, env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}, cwd=cwd, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """What each rank of a job of two says of each model."""
    path = tmp_path_factory.mktemp("trainer") / "result"
    done = job(HERE / "trainer_job.py", path, "gpt", "llama", "resnet")
    assert done.returncode == 0, done.stderr
    return [json.loads(pathlib.Path(f"{path}.{rank}").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", ["gpt", "llama", "resnet"])
def test_five_steps_equal_the_plain_loop(compared, name):
    first, second = (rank[name] for rank in compared)
    assert first["losses"] == second["losses"], "every rank knows the loss"
    assert first["losses"] == pytest.approx(first["expected"], rel=1e-5)
    assert first["losses"][0] != pytest.approx(first["losses"][-1], rel=1e-3), "it trains"
    # A step changes a parameter by up to lr = 2e-2; see OPTIMIZER in trainer_job.py for what rounding makes of it.
    for rank in (first, second):
        assert rank["difference"][0] < 1e-5 and rank["updated"][0] < 1e-5, rank["difference"]
        assert rank["untouched"] == 0, "the module itself is not changed until update()"
    assert "2 ranks" in first["decision"] and first["decision"] == second["decision"]


@pytest.mark.parametrize("name", ["gpt", "llama", "resnet"])
def test_the_callback_sees_each_step_on_rank_zero(compared, name):
    first, second = (rank[name] for rank in compared)
    assert second["steps"] == []
    assert [step[0] for step in first["steps"]] == list(range(STEPS))
    assert [step[1] for step in first["steps"]] == first["losses"]
    for _, _, rate, norm, bubble, step_ns, ranks in first["steps"]:
        assert 0 < rate <= 2e-2 and norm > 0 and math.isfinite(norm)
        assert 0 <= bubble < 1 and step_ns > 0 and ranks == 2
