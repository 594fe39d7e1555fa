"""Docstrings of the extension module's classes for ``help``: those of its stub, where they are written."""

from __future__ import annotations

import ast
import pathlib
from types import ModuleType


def take_from_stub(module: ModuleType) -> None:
    """Gives classes and their properties the docstrings that they have in the stub beside this file."""
    stub = pathlib.Path(__file__).with_name(f"{module.__name__.rpartition('.')[2]}.pyi")
    for part in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(part, ast.ClassDef):
            continue
        described = getattr(module, part.name)
        described.__doc__ = ast.get_docstring(part)
        for member in part.body:
            attribute = vars(described).get(getattr(member, "name", ""))
            if isinstance(member, ast.FunctionDef) and isinstance(attribute, property):
                attribute.__doc__ = ast.get_docstring(member)
