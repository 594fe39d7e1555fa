"""What the tests of the Python package share."""

import os
import pathlib
import signal
import sys

import pytest

ROOT = pathlib.Path(os.environ.get("PW_SOURCE_DIR") or pathlib.Path(__file__).parents[3])
if "PYTHONPATH" not in os.environ:
    sys.path.insert(0, str(ROOT / "build" / "python"))

import pipewright as pw  # noqa: E402

MS = 1_000_000

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test under nohup ignores it


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def gpt():
    """A small model with its weights."""
    return ROOT / "resources" / "models" / "gpt_small.pt2"


@pytest.fixture(scope="session")
def gpt_plan(gpt):
    """Two ranks, four microbatches, costs estimated: nothing is run."""
    return pw.plan(gpt, ranks=2, microbatches=4, cluster="cpu-workstation")


@pytest.fixture(scope="session")
def rehearsal(gpt_plan, tmp_path_factory):
    """Two runs of the plan without computing, in one store."""
    store = tmp_path_factory.mktemp("store") / "runs.db"
    first = pw.run(gpt_plan, steps=3, synthetic=True, store=store, seed=7)
    pw.run(gpt_plan, steps=2, synthetic=True, store=store)
    return store, first


TABLE = """name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes,sent_ns
a,1,2,1,10,7,3,
b,1,2,1,10,7,3,5
c,1,2,1,10,7,3,
d,1,2,1,10,7,0,
"""


@pytest.fixture
def table(tmp_path):
    """A layer table of four equal layers; half way to its end a message takes 5 ns."""
    path = tmp_path / "four.csv"
    path.write_text(TABLE)
    return path
