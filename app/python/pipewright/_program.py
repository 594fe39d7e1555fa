"""The program ``pipewright`` that came with this package: what ranks are."""

from __future__ import annotations

import importlib.util
import os
import sys

from ._pipewright import is_installed


def environment() -> dict[str, str]:
    """The environment for the program: it uses this Python and its torch, unless PIPEWRIGHT_PYTHON and PIPEWRIGHT_TORCH name others."""
    variables = dict(os.environ)
    if sys.executable:
        variables.setdefault("PIPEWRIGHT_PYTHON", sys.executable)
    folder = torch_folder()
    if folder:
        variables.setdefault("PIPEWRIGHT_TORCH", folder)
    return variables


def use_own_torch() -> None:
    """Says to what this process starts where this Python's torch is, unless PIPEWRIGHT_TORCH says it."""
    folder = torch_folder()
    if folder:
        os.environ.setdefault("PIPEWRIGHT_TORCH", folder)


def torch_folder() -> str | None:
    """The folder of this Python's torch, which is not imported; None where there is none, or where the program needs no help."""
    if not is_installed():  # built in its folder, and knows the torch that it was built with
        return None
    try:
        found = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    folders = list(found.submodule_search_locations or []) if found else []
    return folders[0] if folders else None
