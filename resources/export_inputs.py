"""Example inputs and their batch dimension: part of `export_model.py`.

Inputs are a tuple or a dict of tensors, tuples, lists and dicts of tensors; a leaf's name is its path, `batch.tokens` or `0.mask`.
"""

import re

NONE = "none"


def leaves_of(inputs):
    """Pairs of (name, tensor or other leaf), in the order in which torch flattens them."""
    from torch.utils import _pytree as pytree

    return [(".".join(part for part in re.split(r"[\[\].'\"]+", pytree.keystr(path)) if part), value)
            for path, value in pytree.tree_flatten_with_path(inputs)[0]]


def parse_batch_dim(text):
    """`NAME=1` or `NAME=none` to (name, dimension or None); ValueError otherwise."""
    name, separator, value = text.partition("=")
    if not separator or not name or not (value == NONE or value.isdigit()):
        raise ValueError(f"'{text}' is not NAME=DIMENSION or NAME=none")
    return name, None if value == NONE else int(value)


def batch_dims(model, inputs, settings):
    """One dimension, or None for no batch, per leaf. Raises ValueError with a sentence for the user."""
    names = positional_names(model) if isinstance(inputs, tuple) else []
    dims, used = [], set()
    leaves = leaves_of(inputs)
    for label, value in leaves:
        dim = 0 if value.dim() > 0 else None
        head, _, rest = label.partition(".")
        aliases = {label}
        if head.isdigit() and int(head) < len(names):
            aliases.add(".".join(part for part in (names[int(head)], rest) if part))
        for name, wanted in settings:
            if any(alias == name or alias.startswith(name + ".") for alias in aliases):
                used.add(name)
                dim = wanted
        if dim is not None and dim >= value.dim():
            raise ValueError(f"--batch-dim {label}={dim} names a dimension that input `{label}` with {value.dim()} dimensions lacks; "
                             f"give a number below {value.dim()}, or none.")
        dims.append(dim)
    for name, _ in settings:
        if name not in used:
            raise ValueError(f"--batch-dim names '{name}', which is not an input; the inputs are {', '.join(label for label, _ in leaves)}.")
    return dims


def positional_names(model):
    import inspect

    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind in kinds]


def dynamic_shapes(inputs, dims):
    """torch.export's `dynamic_shapes`: the chosen dimension of every leaf is the one dynamic dimension `batch`."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = leaves_of(inputs)
    sizes = {label: int(value.shape[dim]) for (label, value), dim in zip(leaves, dims) if dim is not None}
    if len(set(sizes.values())) != 1:
        told = ", ".join(f"{label}: {size}" for label, size in sizes.items())
        raise ValueError(f"the example inputs have different batch sizes ({told}); give all the same, name the batch's dimension with "
                         "--batch-dim NAME=1 (or none for an input without a batch), or use --static-batch." if sizes else
                         "no example input has a batch dimension; use --static-batch.")
    if next(iter(sizes.values())) < 2:
        raise ValueError("the example batch has fewer than 2 samples, which torch.export takes as a fixed size; use a batch of 2 or more, "
                         "or --static-batch.")
    batch = torch.export.Dim("batch")
    spec = pytree.tree_flatten(inputs)[1]
    return pytree.tree_unflatten([None if dim is None else {dim: batch} for dim in dims], spec)


# Checks that slices along the chosen dimension are samples: changing one must not affect the results of the others.


def mixes(model, inputs, dims):
    """Name of a result in which one slice along `dims` affects the result of another, or nothing.

    Checked in eval() mode, where dropout is off and batch norm does not mix. A result that carries the batch in a
    dimension is compared slice by slice; any other result must be a sum over the batch (a mean loss): changing slice 0
    must change it by the same amount for any slice 1. Nothing if the model does not run.
    """
    import torch
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(inputs)
    size = next(int(leaf.shape[dim]) for leaf, dim in zip(leaves, dims) if dim is not None)
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            first = {who: run(model, changed(leaves, dims, who), spec) for who in ((), (0,), (1,), (0, 1))}
        for index, (name, base) in enumerate(first[()]):
            if not isinstance(base, torch.Tensor) or base.is_complex() or base.dtype == torch.bool:
                continue
            values = {who: result[index][1].double() for who, result in first.items()}
            if any(value.shape != base.shape for value in values.values()):
                return name
            scale = float((values[(0,)] - values[()]).abs().max())
            places = [dim for dim in range(base.dim()) if base.shape[dim] == size]
            if places and not any(separate(values, place, scale) for place in places):
                return name
            if not places and base.is_floating_point():
                mixed = values[(0, 1)] - values[(0,)] - values[(1,)] + values[()]
                if float(mixed.abs().max()) > 1e-3 * scale + 1e-6 * float(base.double().abs().max()):
                    return name
    except Exception:
        return ""
    finally:
        for module, training in was_training:
            module.training = training
    return ""


def separate(values, place, scale):
    """Whether slice 1 along `place` is unchanged when slice 0 changes, and vice versa."""
    for who, other in (((0,), 1), ((1,), 0)):
        gap = (values[who].select(place, other) - values[()].select(place, other)).abs()
        if float(gap.max() if gap.numel() else 0) > 1e-4 * scale:
            return False
    return True


def run(model, leaves, spec):
    import warnings

    import torch
    from torch.utils import _pytree as pytree

    inputs = pytree.tree_unflatten(leaves, spec)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    return [(pytree.keystr(path).strip("[].'\"") or "output", value) for path, value in pytree.tree_flatten_with_path(outputs)[0]]


def changed(leaves, dims, who):
    """The leaves with the slices `who` replaced: floats by other numbers, integers by their elements in another order."""
    import torch

    result = []
    for leaf, dim in zip(leaves, dims):
        copy = leaf.detach().clone()
        for index in (() if dim is None else who):
            part = copy.select(dim, index)
            if leaf.is_floating_point():
                part.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64).to(leaf.dtype))
            elif part.dim() > 0 and leaf.dtype != torch.bool:
                order = torch.randperm(part.numel(), generator=torch.Generator().manual_seed(index))
                part.copy_(part.reshape(-1)[order].reshape(part.shape))
        result.append(copy)
    return result


def other_dimension(model, inputs, dims):
    """A dimension along which slices do not mix although those along `dims` do: 1, 2 or None."""
    leaves = [value for _, value in leaves_of(inputs)]
    for dim in (1, 2):
        moved = [None if old is None else dim for old in dims]
        if any(new is not None and new >= leaf.dim() for new, leaf in zip(moved, leaves)):
            break
        sizes = {int(leaf.shape[new]) for new, leaf in zip(moved, leaves) if new is not None}
        if len(sizes) == 1 and sizes != {1} and not mixes(model, inputs, moved):
            return dim
    return None
