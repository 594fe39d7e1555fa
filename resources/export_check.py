"""Compares a model with its trace: part of `export_model.py`.

torch.export traces what forward computes. It drops the backward of an autograd.Function, hooks on tensors, module
backward hooks, and all other side effects of Python. Here both run once on the example inputs, in train mode and with the
same random numbers: outputs, gradients of all parameters, and buffers must agree.

What is backpropagated is one number: the model's loss, where an output is a floating-point scalar, plus the sum of every
differentiable output times fixed random weights, so that each output contributes to each gradient it can reach.
Tensors agree when no element differs by more than TOLERANCE of their dtype times the largest magnitude in either; a
gradient is measured against at least a thousandth of the model's largest one, below which rounding noise begins.
"""

import random
import warnings

from export_culprit import culprit, watching

# The trace runs the operators that eager runs, so both are usually equal to the last bit; this leaves room for kernels
# that sum in another order. A lost hook or backward changes a gradient by a visible part of its size.
TOLERANCE = {"float64": 1e-10, "complex128": 1e-10, "float32": 1e-5, "complex64": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}
NOISE = 1e-3  # of the largest gradient


class Difference(Exception):
    """One clause: what differs and why, where that is found."""

    def __init__(self, clause, parameter=""):
        super().__init__(clause)
        self.parameter = parameter  # whose gradient differs


class Unchecked(Exception):
    """The comparison itself was not possible. One clause."""


def compare(model, program, args, kwargs, seed):
    """Raises Difference or Unchecked; returns {"outputs": n, "gradients": n, "buffers": n} for what was equal.

    `program` must have its own tensors, for example loaded from the archive: hooks on the model's parameters would
    act on a trace that shares them. The model's parameters and buffers are restored afterwards.
    """
    kept = snapshot(model)
    try:
        names = names_of_parameters(model)
        found = results(execute(model, args, kwargs, seed, "the model"), names, model)
        traced = execute(trace_module(program), args, kwargs, seed, "the trace")
        want = results(traced, names, traced.module)
        try:
            return equal(found, want, names)
        except Difference as difference:
            restore(kept)
            explain(difference, model, (args, kwargs, seed), found, names)
    finally:
        restore(kept)


def explain(difference, model, call, found, names):
    """Runs the model again under observation and raises the difference with its cause, or Unchecked if this run differs, too."""
    try:
        with watching(model) as watched:
            execution = execute(model, *call, "the model")
    except Unchecked:  # an eager torch.cond compiles its branches and does not stand being watched
        raise difference from None
    try:
        equal(found, results(execution, names, model), names)
    except Difference as change:
        raise Unchecked(f"the model gives different results when called twice with the same random numbers ({change}); "
                        "remove what depends on time, on a counter or on other state") from None
    if difference.parameter:
        raise Difference(f"{difference}{culprit(difference.parameter, watched, execution)}") from None
    raise difference


def trace_module(program):
    module = program.module(check_guards=False)
    for parameter in module.parameters():
        parameter.grad = None
    return module


def snapshot(model):
    """Parameters and buffers with their values and gradients, and where they are."""
    import torch

    kept, seen = [], set()
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                if isinstance(tensor, torch.Tensor):
                    value = None if id(tensor) in seen else tensor.detach().clone()
                    kept.append((table, key, tensor, value, tensor.grad))
                    seen.add(id(tensor))
    return kept


def restore(kept):
    """Undoes what a step changed in a model."""
    import torch

    with torch.no_grad():
        for table, key, tensor, value, gradient in kept:
            table[key] = tensor
            if value is not None:
                tensor.copy_(value)
            tensor.grad = gradient


class Execution:
    """The results of one forward and backward: the module, its outputs by name, and the number that was backpropagated."""

    def __init__(self, module, outputs, total):
        self.module, self.outputs, self.total = module, outputs, total


def execute(module, args, kwargs, seed, who):
    """One forward and backward with seeded random numbers."""
    import torch
    from torch.utils import _pytree as pytree

    for parameter in module.parameters():
        parameter.grad = None
    seed_all(seed)
    copies = pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (args, kwargs))
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            outputs = module(*copies[0], **copies[1])
            leaves, _ = pytree.tree_flatten_with_path(outputs)
            named = [(pytree.keystr(path).strip("[].'\"") or "output", value) for path, value in leaves]
            total = backpropagated([value for _, value in named])
            if total is not None:
                total.backward()
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise Unchecked(f"running {who} on the example failed with {type(error).__name__}: {lines[0] if lines else ''}") from error
    return Execution(module, named, total)


def seed_all(seed):
    import numpy
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def backpropagated(values):
    """The loss plus a fixed random projection of all differentiable outputs; None if there is none."""
    import torch

    generator = torch.Generator().manual_seed(20)
    terms = []
    for value in values:
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        flat = (torch.view_as_real(value) if value.is_complex() else value).double().reshape(-1)
        weights = torch.randn(flat.numel(), generator=generator, dtype=torch.float64)
        terms.append((flat * weights).sum() / max(1, flat.numel()) ** 0.5)
        if value.dim() == 0 and value.is_floating_point():
            terms.append(value.double())
    return sum(terms) if terms else None


def names_of_parameters(model):
    """Groups of names, in the model's order: tied parameters are one group, whose gradients are summed."""
    groups = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return list(groups.values())


def results(execution, groups, module):
    """{"outputs": {...}, "gradients": {...}, "values": {...}}: detached copies by name."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    gradients = {}
    for group in groups:
        seen, total = set(), None
        for name in group:
            parameter = parameters.get(name)
            if parameter is None or id(parameter) in seen or parameter.grad is None:
                continue
            seen.add(id(parameter))
            gradient = parameter.grad.detach()
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            total = gradient.clone() if total is None else total + gradient
        gradients[group[0]] = total
    values = {name: value.detach().clone() for name, value in [*parameters.items(), *module.named_buffers(remove_duplicate=False)]}
    buffers = [name for name, _ in module.named_buffers()]
    return {"outputs": execution.outputs, "gradients": gradients, "values": values, "buffers": buffers}


def equal(eager, trace, groups):
    """Counts of what agrees; raises Difference at the first output, gradient or buffer that does not."""
    import torch

    if len(eager["outputs"]) != len(trace["outputs"]):
        raise Difference(f"the model returns {len(eager['outputs'])} values, the trace {len(trace['outputs'])}")
    tensors = 0
    for (name, value), (_, traced) in zip(eager["outputs"], trace["outputs"]):
        if isinstance(value, torch.Tensor):
            tensors += 1
            demand(f"output `{name}`", value, traced, 0.0)
        elif value != traced and not (value is None or traced is None):
            raise Difference(f"output `{name}` is {describe(value)} in the model and {describe(traced)} in the trace")
    largest = max((float(g.abs().max()) for g in eager["gradients"].values() if g is not None and g.numel() > 0), default=0.0)
    compared = 0
    for group in groups:
        name = group[0]
        value, traced = eager["gradients"][name], trace["gradients"][name]
        if value is None and traced is None:
            continue
        value, traced = (torch.zeros_like(other) if mine is None else mine for mine, other in ((value, traced), (traced, value)))
        compared += 1
        demand(f"the gradient of `{name}`", value, traced, NOISE * largest, name)
    buffers = 0
    for name, value in eager["values"].items():
        if name in trace["values"]:
            demand(f"`{name}` after a step", value, trace["values"][name], 0.0)
            buffers += name in eager["buffers"]
    return {"outputs": tensors, "gradients": compared, "buffers": buffers}


def demand(what, eager, trace, floor, parameter=""):
    """Raises Difference if two tensors do not agree."""
    import torch

    if not isinstance(trace, torch.Tensor) or eager.shape != trace.shape or eager.dtype != trace.dtype:
        raise Difference(f"{what} is {describe(eager)} in the model and {describe(trace)} in the trace", parameter)
    eager, trace = eager.detach(), trace.detach()
    if torch.equal(eager, trace) or eager.numel() == 0:
        return
    if not eager.is_floating_point() and not eager.is_complex():
        raise Difference(f"{what} differs between the model and its trace", parameter)
    tolerance = TOLERANCE.get(str(eager.dtype).removeprefix("torch."), 1e-2)
    wide = torch.complex128 if eager.is_complex() else torch.float64
    eager, trace = eager.to(wide), trace.to(wide)
    same = (eager == trace) | (eager.isnan() & trace.isnan())
    gap = torch.where(same, 0.0, (eager - trace).abs())
    finite = [float(t.abs()[t.abs().isfinite()].max()) if bool(t.abs().isfinite().any()) else 0.0 for t in (eager, trace)]
    scale = max(*finite, floor)
    if bool(gap.isnan().any()) or float(gap.max()) > tolerance * scale:
        worst = float(gap.max()) / scale if scale > 0 else float("inf")
        raise Difference(f"{what} differs between the model and its trace by {worst:.2g} of its size", parameter)


def describe(value):
    import torch

    if not isinstance(value, torch.Tensor):
        return f"{value!r:.60}"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
