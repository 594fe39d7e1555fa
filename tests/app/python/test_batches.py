"""Batches of a Python function in `run`: `--data module:function`."""

import json
import math
import os
import random
import select
import subprocess
import sys
import textwrap

import pipewright as pw
import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

STEPS = 3


@pytest.fixture(scope="module")
def plan(gpt):
    return pw.plan(gpt, ranks=2, microbatches=2, batch=8, cluster="cpu-workstation")


@pytest.fixture
def batches(tmp_path, monkeypatch):
    """Writes the module `my_batches` into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "my_batches.py").write_text("import torch\n" + textwrap.dedent(text))

    return write


DRAWN = """
    def drawn():
        drawn = torch.Generator().manual_seed(4)
        return [(torch.randint(256, (8, 32), generator=drawn), torch.randint(256, (8, 32), generator=drawn)) for _ in range(3)]
"""


def test_batches_of_a_function_train_as_those_of_a_file(plan, batches, tmp_path):
    batches(DRAWN + """
    def as_dicts():
        print("to stderr, not among the batches")
        for tokens, target in drawn():
            yield {"target": target, "tokens": tokens}

    def as_mappings():
        import collections
        return [collections.UserDict(target=target, tokens=tokens) for tokens, target in drawn()]

    def as_loader():
        tokens, target = (torch.cat(parts) for parts in zip(*drawn()))
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens, target), batch_size=8)
    """)
    names = {}
    exec("import torch\n" + textwrap.dedent(DRAWN), names)
    tokens, target = (torch.cat(parts) for parts in zip(*names["drawn"]()))
    torch.save({"tokens": tokens, "target": target}, tmp_path / "data.pt")
    expected = pw.run(plan, steps=STEPS, data=tmp_path / "data.pt", lr=0.1).losses
    assert len(set(expected)) == STEPS
    for function in ("as_dicts", "as_mappings", "as_loader"):
        assert pw.run(plan, steps=STEPS, data=f"my_batches:{function}", lr=0.1).losses == expected, function


def test_a_resumed_run_takes_the_batches_that_come_next(plan, batches, tmp_path):
    batches(DRAWN)
    whole = pw.run(plan, steps=STEPS, data="my_batches:drawn", lr=0.1).losses
    pw.run(plan, steps=1, data="my_batches:drawn", lr=0.1, save=tmp_path / "first.pt")
    assert pw.run(plan, steps=STEPS - 1, data="my_batches:drawn", lr=0.1, resume=tmp_path / "first.pt").losses == whole[1:]


def streamed(root, function, seed):
    """The tensors of the first batch, in order, as the process writes them."""
    done = subprocess.run([sys.executable, root / "resources" / "stream_batches.py", function, "0", str(seed), "tokens"], capture_output=True,
                          check=True)
    length = int.from_bytes(done.stdout[4:8], "little")
    described = json.loads(done.stdout[8:8 + length])["batch"]
    values, at = [], 8 + length
    for part in described:
        assert part["dtype"] == "float64"
        values.append(numpy.frombuffer(done.stdout, numpy.float64, count=math.prod(part["shape"]), offset=at).tolist())
        at += 8 * math.prod(part["shape"])
    return values


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 7, 2**64 - 1])
def test_all_generators_of_a_function_begin_at_the_seed(root, batches, seed):
    """Of Python, torch and numpy: imported by the module, or only where the function draws."""
    batches("""
    import random
    def drawn():
        import numpy
        yield {"python": torch.tensor([random.random()], dtype=torch.float64), "torch": torch.rand(2, dtype=torch.float64),
               "numpy": numpy.random.rand(3)}
    """)
    expected = [[random.Random(seed).random()], torch.rand(2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).tolist(),
                numpy.random.RandomState(seed % 2**32).rand(3).tolist()]
    assert streamed(root, "my_batches:drawn", seed) == expected


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is all cores")
def test_a_rank_is_bound_to_its_cores_and_the_process_of_its_batches_is_not(plan, batches, tmp_path):
    batches(DRAWN + """
    import os
    import pathlib
    import time
    def seen():
        own, until = os.sched_getaffinity(0), time.monotonic() + 20
        while os.sched_getaffinity(os.getppid()) == own and time.monotonic() < until:
            time.sleep(0.01)
        pathlib.Path("cores." + os.environ["RANK"]).write_text(repr((own, os.sched_getaffinity(os.getppid()))))
        return drawn()
    """)
    pw.run(plan, steps=STEPS, data="my_batches:seen")
    everywhere = os.sched_getaffinity(0)
    (own0, first), (own1, second) = (eval((tmp_path / f"cores.{rank}").read_text()) for rank in range(2))
    assert own0 == own1 == everywhere
    assert first | second == everywhere and max(first) < min(second), "in the order of ranks"
    assert len(second) - len(first) in (0, 1)


def test_unseeded_batches_are_the_same_on_all_ranks(plan, batches):
    batches("""
    def shuffled():
        while True:
            yield torch.randint(256, (8, 32)), torch.randint(256, (8, 32))
    """)
    result = pw.run(plan, steps=2, data="my_batches:shuffled", verify=True)
    assert result.to_dict()["verification"]["equal"]


@pytest.mark.parametrize("function, words", [
    ("no_module:batches", "There is no module no_module"),
    ("my_batches:raises", r"my_batches:raises of data failed: LookupError: no such sample \(my_batches.py, line \d+\)"),
    ("my_batches:two", "my_batches:two ended after 2 batches, and step 2 needs another"),
    ("my_batches:smaller", "batch 0 of my_batches:smaller holds 6 samples"),
    ("my_batches:differs", "Rank 1 has another batch than rank 0 in step 0"),
    ("my_batches:dies", "exited without an error message"),
])
def test_an_unusable_function_is_refused_in_one_sentence(plan, batches, function, words):
    batches(DRAWN + """
    import os
    def raises():
        yield drawn()[0]
        raise LookupError("no such sample")
    def two():
        return drawn()[:2]
    def smaller():
        return [(tokens[:6], target[:6]) for tokens, target in drawn()]
    def differs():
        return [(torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(os.getpid())), drawn()[0][1])] * 3
    def dies():
        os._exit(3)
    """)
    with pytest.raises(pw.Error, match=words):
        pw.run(plan, steps=STEPS, data=function)


def test_an_evaluation_refuses_batches_that_differ_between_ranks(plan, batches, tmp_path):
    batches(DRAWN + """
    import os
    def differs():
        return [(torch.randint(256, (8, 32), generator=torch.Generator().manual_seed(os.getpid())), drawn()[0][1])]
    """)
    plan.save(tmp_path / "plan.json")
    call = [pw._pipewright.program(), "run", tmp_path / "plan.json", "--eval", "--json", "--data"]
    here = {**os.environ, "PIPEWRIGHT_PYTHON": sys.executable}
    same, other = (subprocess.run([*call, f"my_batches:{name}"], env=here, text=True, capture_output=True, timeout=300) for name in ("drawn", "differs"))
    assert same.returncode == 0, same.stderr
    assert other.returncode == 2 and "Rank 1 has another batch than rank 0" in other.stderr, other.stderr


@pytest.mark.parametrize("function, words", [
    ("my_batches:nothing", "my_batches has no function nothing"),
    ("my_batches:number", "my_batches:number does not return an iterable"),
    ("my_batches:lists", "tokens of a batch of my_batches:lists is a list, not a tensor"),
    ("my_batches:triples", "has 3 parts, but the model takes tokens"),
    ("my_batches:wrong", "my_batches:wrong of --data failed: TypeError: .* (my_batches.py, line"),
    ("broken_batches:any", "broken_batches:any of --data failed: ModuleNotFoundError: No module named 'not_there'"),
])
def test_the_process_says_what_is_wrong_with_a_function(root, batches, tmp_path, function, words):
    batches("""
    def number():
        return 7
    def lists():
        return [{"tokens": [1, 2]}]
    def triples():
        return [(torch.zeros(1), torch.zeros(1), torch.zeros(1))]
    def wrong():
        return len(5)
    """)
    (tmp_path / "broken_batches.py").write_text("import not_there\n")
    done = subprocess.run([sys.executable, root / "resources" / "stream_batches.py", function, "0", "0", "tokens"], capture_output=True, check=True)
    assert done.stdout.startswith(b"PWB1") and int.from_bytes(done.stdout[4:8], "little") == len(done.stdout) - 8
    sentence = json.loads(done.stdout[8:])["error"]
    assert all(part in sentence for part in words.split(".*")), sentence


def test_no_python_process_is_left_behind(plan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_batches.py").write_text(textwrap.dedent("""
        import os
        import pathlib
        import time
        pathlib.Path(f"pid.{os.getpid()}").touch()
        def slow():
            time.sleep(1000)
    """))
    with pytest.raises(pw.Error, match="slow_batches:slow gave no batch for step 0 within 15 s"):
        pw.run(plan, steps=2, data="slow_batches:slow", timeout=20)
    left = [int(file.suffix[1:]) for file in tmp_path.glob("pid.*")]
    assert len(left) == 2  # of the first and the last stage
    for pid in left:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([process], [], [], 60)  # it was killed, but may not be gone yet
        os.close(process)
        assert ended, f"process {pid} still runs"
