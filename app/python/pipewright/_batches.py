"""Batches as a trainer takes them: a tensor, a tuple, or a dict by argument names."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._export import export
from ._pipewright import UsageError

if TYPE_CHECKING:
    import torch

    Batch = torch.Tensor | tuple[Any, ...] | list[Any] | dict[str, Any]


def export_example(model: torch.nn.Module, inputs: Batch, archive: str, batch_dim: Mapping[str, int | None] | None, seed: int) -> None:
    """Traces the model with two samples, which is faster than with a batch, where the samples are dimension 0 of all inputs."""
    import torch
    from torch.utils._pytree import tree_map

    example = by_name(inputs)
    leaves = leaves_of(example)
    sizes = {leaf.shape[0] if leaf.dim() > 0 else 0 for leaf in leaves}
    few = not batch_dim and len(sizes) == 1 and sizes.pop() > 2
    example = tree_map(lambda leaf: (leaf[:2] if few else leaf).detach().cpu() if isinstance(leaf, torch.Tensor) else leaf, example)
    on_gpu = any(tensor.is_cuda for tensor in [*model.parameters(), *model.buffers()])
    export(copy.deepcopy(model).cpu() if on_gpu else model, example, archive, batch_dim=batch_dim, seed=seed)


def samples_of(model: torch.nn.Module, inputs: Batch, batch_dim: Mapping[str, int | None] | None) -> int:
    """The samples of the example. ``batch_dim`` names positional inputs by their place or by the parameter of forward."""
    example, dims = by_name(inputs), batch_dim or {}
    parameters = list(inspect.signature(model.forward).parameters)
    named = example.items() if isinstance(example, dict) else ((str(i), part) for i, part in enumerate(example))
    for name, part in named:
        place = int(name) if name.isdigit() else len(parameters)
        dim = dims[name] if name in dims else dims.get(parameters[place], 0) if place < len(parameters) else 0
        leaves = leaves_of(part)
        if dim is not None and leaves and leaves[0].dim() > dim:
            return int(leaves[0].shape[dim])
    raise UsageError("inputs has no tensor with a batch dimension; give an example batch")


def by_name(batch: Batch) -> tuple[Any, ...] | dict[str, Any]:
    """As the exporter takes inputs: positional ones in a tuple, or by name."""
    import torch

    if isinstance(batch, torch.Tensor):
        return (batch,)
    if isinstance(batch, Mapping):
        return dict(batch)
    if isinstance(batch, (tuple, list)):
        return tuple(batch)
    raise UsageError(f"A batch is a tensor, a tuple or a dict of them, not {type(batch).__name__}")


def leaves_of(batch: Any) -> list[torch.Tensor]:
    """The tensors in the exporter's order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
