#!/usr/bin/env python3
"""Export a PyTorch model to a `.pt2` archive that `pipewright` reads.

    export_model.py MODULE:FUNCTION --out model.pt2 [--seed 0] [--static-batch] [--batch-dim NAME=1 ...] [--meta]
                    [--unchecked] [--set KEY=VALUE ...]

MODULE is a Python file or an importable module. FUNCTION returns `(model, example_inputs)`; example_inputs is a
tuple (positional) or a dict from argument name of tensors, or of tuples and dicts of tensors. The batch is dimension 0
of every input, unless --batch-dim says otherwise, and becomes one dynamic dimension, so the example batch must be 2 or
more. The model is exported in train() mode as plain ATen operators, so that dropout and batch norm stay and every
operator can be differentiated.

    def tiny():
        return torch.nn.Linear(8, 4), (torch.randn(2, 8),)

    export_model.py my_model.py:tiny --out tiny.pt2

The archive is then compared with the model on the example (see export_check.py): outputs, gradients, buffers. A
difference is refused unless --unchecked is given; the archive records which it was.

Paths in the trace are stored relative to the site-packages folder, the working folder or the model's folder; the
example inputs are not stored. The same call writes the same bytes. Exit status: 0 written, 2 unusable input.
"""

import argparse
import ast
import contextlib
import importlib
import importlib.util
import io
import json
import logging
import os
import re
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_check  # noqa: E402
import export_culprit  # noqa: E402
import export_evaluation  # noqa: E402
import export_inputs  # noqa: E402
import export_rewrite  # noqa: E402

RECORD = "extra/pipewright.json"  # torch.export.load offers it as an extra file and ignores it otherwise


class ExportError(Exception):
    """One sentence for the user: what, where, cure."""


def main(arguments=None):
    """Runs one export; returns the exit status."""
    options = parse(arguments)
    try:
        check_output(options.out)
        model, inputs = build(options.model, options.seed, dict(options.set), options.meta)
        record, warning = export_archive(model, inputs, options)
    except ExportError as error:
        print(f"export_model: {error}", file=sys.stderr)
        return 2
    print(summary(record))
    if warning:
        print(f"export_model: warning: {warning}.", file=sys.stderr)
    return 0


def export_archive(model, inputs, options):
    """Exports a model in train mode to `options.out`; returns what the archive records, and a warning (a sentence) or None.

    Of the options it reads model (whose folder paths are relative to), out, batch_dim, static_batch, unchecked, meta and seed.
    """
    dims = None if options.static_batch else batch_dims(model, inputs, options.batch_dim)
    program = export(model, inputs, dims)
    record = new_record(program, dims)
    write(program, options.out, known_folders(options.model), lambda archive: check(archive, model, inputs, record, options))
    sentences = [mixing(model, inputs, dims) if dims is not None and not options.meta else None, unlike_eval(model, record)]
    return record, "; ".join(filter(None, sentences)) or None


def parse(arguments):
    """Command line to options; argparse itself exits with status 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODULE:FUNCTION", help="file.py:function or package.module:function")
    parser.add_argument("--out", required=True, metavar="FILE.pt2", help="archive to write")
    parser.add_argument("--seed", type=int, default=0, help="torch.manual_seed before FUNCTION is called (default 0)")
    parser.add_argument("--static-batch", action="store_true", help="keep the example's batch size fixed")
    parser.add_argument("--batch-dim", action="append", default=[], metavar="NAME=N", type=batch_dim,
                        help="the batch is dimension N of input NAME (a name, or the position of a positional input; "
                        "none: the input has no batch); may be repeated (default 0 for all)")
    parser.add_argument("--unchecked", action="store_true",
                        help="write the archive even if it does not compute the same as the model; the archive records that")
    parser.add_argument("--meta", action="store_true", help="export on the meta device: graph and shapes, no weights")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", type=key_value,
                        help="keyword argument for FUNCTION (a Python literal or a string); may be repeated")
    return parser.parse_args(arguments)


def key_value(text):
    """`KEY=VALUE` to (key, value); VALUE is parsed as a Python literal, or kept as a string."""
    key, separator, value = text.partition("=")
    if not separator or not key.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def batch_dim(text):
    try:
        return export_inputs.parse_batch_dim(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def check_output(path):
    """Refuses an output name that cannot be written, before any work is done."""
    if not path.endswith(".pt2"):
        raise ExportError(f"'{path}' does not end in .pt2; name the archive like model.pt2.")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ExportError(f"the folder '{folder}' of --out does not exist; create it first.")
    if not os.access(folder, os.W_OK):
        raise ExportError(f"the folder '{folder}' of --out is not writable; choose another.")


def load_function(name):
    """`MODULE:FUNCTION` to the function object."""
    module_name, separator, function_name = name.rpartition(":")
    if not separator or not module_name or not function_name:
        raise ExportError(f"'{name}' is not MODULE:FUNCTION; write it like my_model.py:build.")
    module = load_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ExportError(f"'{module_name}' has no function '{function_name}'; check the name after the colon.")
    return function


def load_module(name):
    """Imports a Python file (its folder joins the import path) or an importable module."""
    is_file = name.endswith(".py")
    if is_file and not os.path.isfile(name):
        raise ExportError(f"the model file '{name}' does not exist; check the path before the colon.")
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(name)) if is_file else os.getcwd())
    try:
        if not is_file:
            return importlib.import_module(name)
        stem = os.path.splitext(os.path.basename(name))[0]
        spec = importlib.util.spec_from_file_location(stem, os.path.abspath(name))
        module = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        spec.loader.exec_module(module)
        return module
    except Exception as error:
        raise ExportError(f"importing '{name}' failed with {brief(error)}; fix the module or install what it "
                          "imports.") from error


def build(name, seed, settings, meta):
    """Calls FUNCTION; returns the model in train mode and its checked example inputs."""
    function = load_function(name)
    import torch

    torch.manual_seed(seed)
    try:
        with torch.device("meta" if meta else "cpu"):
            result = function(**settings)
    except Exception as error:
        cure = "check it and the --set values"
        if meta:
            cure += ", and that it creates its tensors without reading their values (--meta)"
        raise ExportError(f"calling '{name}' failed with {brief(error)}; {cure}.") from error
    model, inputs = check_result(name, result)
    if meta:
        model, inputs = to_meta(model, inputs)
    return model.train(), inputs


def check_result(name, result):
    """Refuses anything but (Module, tuple or dict of tensors, or of tuples, lists and dicts of tensors)."""
    import torch

    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], torch.nn.Module):
        raise ExportError(f"'{name}' did not return (model, example_inputs); return a torch.nn.Module and a tuple or "
                          "dict of tensors.")
    model, inputs = result
    if isinstance(inputs, list):
        inputs = tuple(inputs)
    if not isinstance(inputs, (tuple, dict)) or not inputs:
        raise ExportError(f"'{name}' returned example inputs that are not a tuple or dict of tensors; return at least "
                          "one tensor.")
    for label, value in export_inputs.leaves_of(inputs):
        if not isinstance(value, torch.Tensor):
            raise ExportError(f"example input {label} of '{name}' is not a tensor but {type(value).__name__}; pass "
                              "constants to the model's constructor instead.")
    return model, inputs


def to_meta(model, inputs):
    """Moves model and inputs to the meta device (shapes only)."""
    from torch.utils import _pytree as pytree

    return model.to("meta"), pytree.tree_map(lambda value: value.to("meta"), inputs)


def batch_dims(model, inputs, settings):
    """The batch's dimension of each input, in order; None for an input without a batch."""
    try:
        dims = export_inputs.batch_dims(model, inputs, settings)
        export_inputs.dynamic_shapes(inputs, dims)  # refuses sizes that do not fit together
        return dims
    except ValueError as error:
        raise ExportError(str(error)) from error


def export(model, inputs, dims):
    """Traces the model as training IR, with native operators only where it can; returns torch's ExportedProgram.

    `dims` holds the batch's dimension of each input; None keeps the example's batch size.
    """
    import torch

    shapes = None if dims is None else export_inputs.dynamic_shapes(inputs, dims)
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, None)
    if isinstance(inputs, tuple) and shapes is not None:
        shapes = shapes_by_position(model, shapes)
    try:
        with quiet(), export_rewrite.without_layerdrop(model), export_rewrite.lstm_shapes():
            program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        place, line = export_culprit.source_of(error)
        where = f" at {place}" + (f" (`{line}`)" if line else "") if place else ""
        cure = export_rewrite.cure_of(error, line, dims is None, model)
        raise ExportError(f"torch.export of {type(model).__name__} failed{where} with {brief(error)}; {cure}.") from error
    export_rewrite.native_experts(program)
    return program


def new_record(program, dims):
    """What the archive records about the export; `check` adds its result."""
    import torch

    record = {"format": 1, "torch": torch.__version__.split("+")[0], "check": "none", "batch_dims": {}}
    for name, dim in zip(program.graph_signature.user_inputs, dims or []):
        if dim is not None:
            record["batch_dims"][str(name)] = dim
    return record


def check(archive, model, inputs, record, options):
    """Compares the archive just written with the model; returns `record` with the result. Refuses a difference."""
    import torch

    if options.meta:
        record["check"] = "meta"
        return record
    if options.unchecked:
        record["check"] = "unchecked"
        return record
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    try:
        with quiet():
            counts = export_check.compare(model, read_back(archive), args, kwargs, options.seed)
    except export_check.Difference as difference:
        raise ExportError(f"{type(model).__name__}'s trace does not compute what the model computes: {difference}; or export it as it is "
                          "with --unchecked, and it trains as the trace does.") from difference
    except export_check.Unchecked as problem:
        raise ExportError(f"the archive could not be compared with {type(model).__name__}: {problem}; mend that, or export without the "
                          "comparison by --unchecked.") from problem
    record.update({"check": "equal", **counts})
    with quiet():
        differs = export_evaluation.difference(model, read_back(archive), args, kwargs, options.seed)
    if differs:
        record["eval_differs"] = differs
    return record


def read_back(archive):
    """The program of torch's own archive. torch 2.11 refuses those with a torch.no_grad() block that gives nothing back."""
    import torch

    try:
        with open(archive, "rb") as file:
            return torch.export.load(file)
    except Exception as error:
        block = "set_grad_enabled" in str(error)
        cure = ("a `with torch.no_grad():` block of the model only changes buffers: leave the block out and .detach() what goes into them"
                if block else "mend that")
        raise ExportError(f"torch cannot read back what it exported ({brief(error)}); {cure}, or export without the comparison by "
                          "--unchecked.") from error


def summary(record):
    """One line for the terminal."""
    if record["check"] == "equal":
        return f"exported and checked against eager: {counted(record['outputs'], 'output')}, " \
               f"{counted(record['gradients'], 'gradient')}, {counted(record['buffers'], 'buffer')}"
    return "exported without weights: not checked against eager" if record["check"] == "meta" else \
        "exported, NOT checked against eager (--unchecked)"


def unlike_eval(model, record):
    """A sentence if an evaluation of the trace is not what the model computes in eval(), else None."""
    if "eval_differs" not in record:
        return None
    return (f"{type(model).__name__} does in eval() what its trace, of train(), cannot: {record['eval_differs']}; it can be trained, and "
            "`run --eval` refuses it")


def counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def mixing(model, inputs, dims):
    """A sentence if the assumed batch dimension does not look like samples, else None."""
    with quiet():
        mixed = export_inputs.mixes(model, inputs, dims)
        better = export_inputs.other_dimension(model, inputs, dims) if mixed else None
    if not mixed:
        return None
    names = [label for (label, _), dim in zip(export_inputs.leaves_of(inputs), dims) if dim is not None]
    taken = ", ".join(f"{dim} of `{label}`" for (label, _), dim in zip(export_inputs.leaves_of(inputs), dims) if dim is not None)
    cure = "export again with " + " ".join(f"--batch-dim {name}={better}" for name in names) if better is not None else \
        "if the batch is another dimension, name it with --batch-dim NAME=1; if the model mixes samples, microbatches change its results"
    return (f"slices along dimension {taken} are not independent samples: one changes what another gives in output `{mixed}`; {cure}")


@contextlib.contextmanager
def quiet():
    """Suppresses torch's warnings and graph print-outs; only the error is shown."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), \
                contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def shapes_by_position(model, shapes):
    """Wraps the shapes of positional inputs that a `*args` parameter of forward collects."""
    import inspect

    parameters = list(inspect.signature(model.forward).parameters.values())
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return (*shapes[:index], tuple(shapes[index:]))
    return shapes


def brief(error):
    """An exception as `Type: first line`, at most 300 characters."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    reasons = [line.lstrip("- ").partition(". If you're using")[0] for line in lines[1:] if line.startswith("- ")]  # of a dynamic dimension that cannot be
    text = f"{type(error).__name__}: {reasons[0] if reasons else lines[0]}" if lines else type(error).__name__
    return text[:300].rstrip(".;: ")


def known_folders(name):
    """Folders that paths in the trace are made relative to, longest first."""
    folders = [os.getcwd(), *sys.path]
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        folders.append(os.path.dirname(os.path.abspath(module)))
    both = {path for folder in folders for path in (os.path.abspath(folder), os.path.realpath(folder))}
    return sorted((folder for folder in both if folder != "/"), key=lambda folder: (not is_packages(folder), -len(folder)))


def is_packages(folder):
    """True for a site-packages folder: its paths win over an enclosing working folder."""
    return os.path.basename(folder) in ("site-packages", "dist-packages")


def relative(path, folders):
    """A source path relative to the first of `folders` that holds it, else its file name alone."""
    if not os.path.isabs(path):
        return path
    if not any(is_packages(folder) and path.startswith(folder + os.sep) for folder in folders):
        folders = sorted(folders, key=lambda folder: folder != os.getcwd())
    for folder in folders:
        if path.startswith(folder + os.sep):
            return path[len(folder) + 1:]
    return os.path.basename(path)


def without_absolute_paths(value, folders):
    """A JSON value in which every string's absolute source paths are relative."""
    if isinstance(value, dict):
        return {key: without_absolute_paths(item, folders) for key, item in value.items()}
    if isinstance(value, list):
        return [without_absolute_paths(item, folders) for item in value]
    if not isinstance(value, str) or "/" not in value:
        return value
    value = re.sub(r'File "([^"]+)"', lambda match: f'File "{relative(match[1], folders)}"', value)
    for folder in folders:
        value = value.replace(folder + os.sep, "")
    return value


def with_plain_outputs(model):
    """Turns an output class of another package (Hugging Face's ModelOutput) into a dict with the same keys.

    Without this the archive could only be loaded by Python where that package is imported.
    """
    for call in model["graph_module"]["module_call_graph"]:
        signature = call.get("signature")
        if signature and signature.get("out_spec"):
            version, spec = json.loads(signature["out_spec"])
            signature["out_spec"] = json.dumps([version, plain_spec(spec)])
    return model


def plain_spec(spec):
    """One tree spec with `transformers.…` nodes as builtin dicts; their context is already the list of keys."""
    if spec is None:
        return None
    children = [plain_spec(child) for child in spec["children_spec"]]
    kind, context = spec["type"], spec["context"]
    if kind and kind.startswith("transformers."):
        keys = json.loads(context)
        if isinstance(keys, list) and len(keys) == len(children):
            kind = "builtins.dict"
    return {**spec, "type": kind, "context": context, "children_spec": children}


def rewrite(name, data, folders):
    """The bytes stored under `name` (folder of the archive removed)."""
    if name.startswith("models/"):
        model = with_plain_outputs(without_absolute_paths(json.loads(data), folders))
        return json.dumps(model, separators=(",", ":")).encode()
    if name.startswith("data/sample_inputs/"):
        return b""  # torch.export.load wants the entry and takes an empty one
    return data


def meta_weights(config, tensors):
    """Gives the entries of a meta export one file name per storage, tied ones sharing it; returns the names.

    torch gives all meta tensors one file because their addresses are all 0; that would read as "all tied".
    """
    storages, files = {}, []
    for name, entry in config["config"].items():
        prefix = entry["path_name"].rstrip("0123456789")
        number = storages.setdefault(tensors[name].untyped_storage()._cdata, len(storages))
        entry["path_name"] = f"{prefix}{number}"
        if number == len(files):
            files.append(entry["path_name"])
    return files


def rewritten_records(reader, program, folders, record):
    """Yields (name, bytes) of every entry to store, one at a time so that only one weight is in memory."""
    names = reader.get_all_records()
    tensors = {**program.state_dict, **program.constants}
    separate = {}
    for config in (name for name in names if name.endswith("_config.json")):
        entries = json.loads(reader.get_record(config))
        devices = {getattr(getattr(tensors[name], "device", None), "type", None) for name in entries["config"]}
        if devices == {"meta"}:
            separate[os.path.dirname(config)] = (config, entries, meta_weights(entries, tensors))
    for name in names:
        if name == "byteorder" or name.startswith(".data/"):
            continue  # torch's writer adds its own
        folder = separate.get(os.path.dirname(name))
        if folder is None:
            yield name, rewrite(name, reader.get_record(name), folders)
        elif name == folder[0]:
            yield from ((f"{os.path.dirname(name)}/{file}", b"") for file in folder[2])
            yield name, json.dumps(folder[1]).encode()
    yield RECORD, json.dumps(record, separators=(",", ":")).encode()


def write(program, path, folders, record_of):
    """Saves the program at `path` in one step (a failed call leaves no half archive).

    `record_of` is called with torch's own archive before it is rewritten and returns what to store of it.

    torch's own writer keeps every entry uncompressed and 64-byte aligned, so that weights can be mapped. Needs free
    space for two copies while it works.
    """
    import torch

    try:
        folder = os.path.dirname(os.path.abspath(path))
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export") as temporary:
            original = os.path.join(temporary, "original")
            copy = os.path.join(temporary, os.path.basename(path))
            with quiet(), open(original, "wb") as file:
                torch.export.save(program, file)
            record = record_of(original)
            writer = torch._C.PyTorchFileWriter(copy)
            writer.set_min_version(6)
            for name, data in rewritten_records(torch._C.PyTorchFileReader(original), program, folders, record):
                writer.write_record(name, data, len(data))
            writer.write_end_of_file()
            os.replace(copy, path)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"writing '{path}' failed with {brief(error)}; check the free space and that torch.export."
                          "save supports the model.") from error


if __name__ == "__main__":
    sys.exit(main())
