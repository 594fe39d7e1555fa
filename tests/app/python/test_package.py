"""The package itself: types, stubs, imports, the program."""

import ast
import importlib
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pipewright as pw
import pytest

PACKAGE = pathlib.Path(pw.__file__).parent


def python(*arguments, **variables):
    return subprocess.run([sys.executable, "-B", *arguments], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **variables})


def test_mypy_passes(root):
    done = python("-m", "mypy", "--strict", "--cache-dir", os.devnull, str(root / "app" / "python" / "pipewright"))
    assert done.returncode == 0, done.stdout


def test_a_typed_call_is_checked(tmp_path):
    file = tmp_path / "user.py"
    file.write_text("import pipewright as pw\nreveal_type(pw.simulate(pw.schedule('zbv', ranks=4)).bubble)\npw.schedule('zbv', ranks='4')\n")
    done = python("-m", "mypy", "--strict", "--cache-dir", os.devnull, str(file))
    assert re.search('Revealed type is "(builtins.)?float"', done.stdout) and "arg-type" in done.stdout


@pytest.mark.parametrize("module", ["_pipewright", "_pipewright_torch"])
def test_the_stub_is_of_the_module(module):
    if module == "_pipewright_torch":
        pytest.importorskip("torch", reason="it needs torch")
    native = importlib.import_module(f"pipewright.{module}")
    tree = ast.parse((PACKAGE / f"{module}.pyi").read_text())
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    public = {name for name in vars(native) if not name.startswith("_")}
    assert public == set(classes) | functions
    for name, node in classes.items():
        promised = {n.name for n in node.body if isinstance(n, ast.FunctionDef)} | \
            {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
        bound = vars(getattr(native, name))
        there = {n for n in bound if not n.startswith("_") or n in ("_repr_html_", "_html_part", "_cut")}
        assert there == {n for n in promised if not n.startswith("__")}, name


@pytest.mark.parametrize("name", [n for n in pw.__all__ if inspect.isclass(getattr(pw, n))])
def test_help_explains_classes(name):
    assert inspect.getdoc(vars(pw)[name]) and len(vars(pw)[name].__doc__) > 15


def test_help_explains_properties():
    assert pw.Candidate.microbatch.__doc__ == "Samples in a microbatch."


@pytest.mark.parametrize("name", [n for n in pw.__all__ if inspect.isfunction(getattr(pw, n))])
def test_functions_explain_their_arguments(name):
    function = getattr(pw, name)
    assert function.__doc__ and len(function.__doc__.splitlines()[0]) > 20
    signature = inspect.signature(function)
    assert all(p.annotation is not p.empty for p in signature.parameters.values()) and signature.return_annotation


def test_all_that_is_promised_is_there():
    assert all(hasattr(pw, name) for name in pw.__all__) and len(set(pw.__all__)) == len(pw.__all__)
    assert pw.__version__ == "0.1.0"


def test_the_part_without_torch_needs_no_torch(gpt):
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'pandas'): sys.modules[name] = None\n"
        "import pipewright as pw\n"
        "print(round(pw.simulate(pw.schedule('zbv', ranks=4, microbatches=8), forward='1ms').bubble, 6))\n"
        f"plan = pw.plan({str(gpt)!r}, ranks=2, microbatches=4, cluster='cpu-workstation')\n"
        "print(plan.ranks, len(plan._repr_html_()) > 1000)\n"
        "try: pw.export(None, (), 'x.pt2')\n"
        "except pw.Error as e: print(e)\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{3 / 51:.6f}", "2 True", "exporting needs torch in this process; install torch 2.11"]


def test_importing_is_quick_and_loads_no_torch():
    done = python("-c", "import sys, pipewright; print(any(m in sys.modules for m in ('torch', 'numpy', 'pandas')))")
    assert done.stdout.strip() == "False", done.stderr


def test_python_m_is_the_program():
    done = python("-m", "pipewright", "--version")
    assert done.returncode == 0 and done.stdout.strip() == f"pipewright {pw.__version__}"
    refused = python("-m", "pipewright", "schedule", "1f1c")
    assert refused.returncode == 2 and "1f1b" in refused.stderr


def test_python_and_program_say_the_same():
    done = python("-m", "pipewright", "schedule", "zbv", "--ranks", "4", "--microbatches", "8")
    assert done.stdout == pw.schedule("zbv", ranks=4, microbatches=8).to_csv().replace("\r\n", "\n")


def test_docstring_examples_are_true():
    assert pw.simulate(pw.schedule("1f1b", ranks=4, microbatches=8), forward="1ms").bubble == pytest.approx(0.2727272727272727)
