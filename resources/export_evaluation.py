"""Compares a model in eval() with what an evaluation computes of its trace: part of `export_model.py`.

A trace is of train(): what forward does behind `if self.training` is in it as training does it. An evaluation (`run --eval`) switches
dropout off and lets norms take the statistics that they keep, as `setEvaluation` in backends/torch/program/steps.cpp does; the same is done
here to the trace's own program, which then runs once on the example inputs, as the model does in eval(), with the same random numbers.
"""

import copy

from export_check import Difference, demand, seed_all


def difference(model, program, args, kwargs, seed):
    """A clause that says what differs; None where outputs agree, or where the model does not run in eval().

    `program` must have its own tensors, as for `export_check.compare`. The model stays as it is, also one whose train() does more than to
    set a mode: a copy of it runs.
    """
    try:
        copied = copy.deepcopy(model).eval()
        want = outputs_of(copied, args, kwargs, seed)
    except Exception:
        return None
    try:
        found = outputs_of(in_evaluation(program.module(check_guards=False)), args, kwargs, seed)
    except Exception as error:
        return f"the trace does not run in an evaluation ({type(error).__name__})"
    return first_difference(want, found)


def first_difference(want, found):
    """Of the outputs that both have: training may return more after them, as Inception's auxiliary ones."""
    import torch

    for (name, value), (_, traced) in zip(want, found):
        if not isinstance(value, torch.Tensor):
            continue
        try:
            demand(f"output `{name}`", value, traced, 0.0)
        except Difference as gap:
            return str(gap)
    return None


def outputs_of(module, args, kwargs, seed):
    """The outputs by name, without gradients."""
    import torch
    from torch.utils import _pytree as pytree

    seed_all(seed)
    copies = pytree.tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, (args, kwargs))
    with torch.no_grad():
        leaves, _ = pytree.tree_flatten_with_path(module(*copies[0], **copies[1]))
    return [(pytree.keystr(path).strip("[].'\"") or "output", value) for path, value in leaves]


def in_evaluation(module):
    """The traced program with dropout off, and norms by the statistics that they keep."""
    import torch

    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                evaluate(node)
        part.recompile()
    return module


def evaluate(node):
    arguments = node.target._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, node.args)} | dict(node.kwargs)
    takes_statistics = any(argument.name == "running_mean" for argument in arguments)
    has_statistics = given.get("running_mean") is not None
    for position, argument in enumerate(arguments):
        name = argument.name
        if name in ("train", "training") and isinstance(given.get(name), bool) and (has_statistics or not takes_statistics):
            put(node, position, name, False)
        elif name in ("dropout_p", "dropout") and name in given:
            put(node, position, name, 0.0)
        elif name == "use_input_stats" and has_statistics:
            put(node, position, name, False)


def put(node, position, name, value):
    if position < len(node.args):
        node.update_arg(position, value)
    else:
        node.update_kwarg(name, value)
