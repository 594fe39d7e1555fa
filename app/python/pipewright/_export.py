"""The exporter as a function; it needs torch in this process."""

from __future__ import annotations

import contextlib
import operator
import os
import random
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._models import Path
from ._pipewright import Error, UsageError, resource_folder, spelled

if TYPE_CHECKING:
    import torch


def export(
    module: torch.nn.Module,
    inputs: tuple[Any, ...] | dict[str, Any],
    path: Path,
    *,
    batch_dim: Mapping[str, int | None] | None = None,
    static_batch: bool = False,
    unchecked: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Exports a module to a ``.pt2`` archive that plans are made of, and compares the archive with the module.

    :param module: in any mode; it is exported in ``train()`` mode, and left in the mode it was in.
    :param inputs: example inputs: a tuple (positional) or dict (by name) of tensors, or of tuples and dicts of tensors. The batch is their
        dimension 0, of size 2 or more, and becomes dynamic.
    :param path: of the archive; ends in ``.pt2``.
    :param batch_dim: the batch's dimension by input (name, or position as a text), where it is not 0; None: the input has no batch.
    :param static_batch: keep the example's batch size.
    :param unchecked: write the archive even if it computes something else than the module; the archive records that.
    :param seed: of the comparison.
    :returns: what the archive records of the export: ``check`` (``equal`` or ``unchecked``), ``torch``, ``batch_dims``, ….
    :raises UsageError: where the module cannot be exported, with the place in its source and a cure.
    """
    exporter = _exporter()
    name = type(module).__name__
    options = types.SimpleNamespace(model=f"{type(module).__module__}:{name}", out=os.fspath(path), batch_dim=list((batch_dim or {}).items()),
                                    static_batch=static_batch, unchecked=unchecked, meta=False, seed=operator.index(seed))
    record: dict[str, Any]
    modes: list[tuple[Any, bool]] = []
    try:
        exporter.check_output(options.out)
        exporter.check_result(name, (module, inputs))
        modes = [(part, part.training) for part in module.modules()]
        with _own_random_numbers():
            record, warning = exporter.export_archive(module.train(), inputs, options)
    except exporter.ExportError as problem:
        raise UsageError(spelled(str(problem))) from problem
    finally:
        for part, training in modes:
            part.training = training
    if warning:
        warnings.warn(spelled(warning), stacklevel=2)
    return record


@contextlib.contextmanager
def _own_random_numbers() -> Iterator[None]:
    """What is drawn or seeded within leaves the caller's random numbers as they were."""
    import torch

    plain = random.getstate()
    numpy = sys.modules.get("numpy")
    arrays = numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(plain)
        if numpy:
            numpy.random.set_state(arrays)


def _exporter() -> Any:
    """The module ``export_model`` of the package's resources."""
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        raise Error("exporting needs torch in this process; install torch 2.11") from missing
    folder = resource_folder()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import export_model  # type: ignore[import-not-found,unused-ignore]

    return export_model
