#!/usr/bin/env python3
"""Runs cells of Python as a notebook does; `regenerate.py` calls this with the Python that the package was built for.

    cells.py < CELLS      CELLS: a JSON list of sources; prints a JSON list of what each printed, its last expression's value included
"""

import ast
import contextlib
import io
import json
import sys
import types


def run(source, names):
    """What a cell prints; names are the notebook's variables."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(last, "<cell>", "eval"), names) if last else None
        if value is not None:
            print(repr(value))
    return printed.getvalue()


if __name__ == "__main__":
    sys.modules["__main__"] = notebook = types.ModuleType("__main__")  # where processes that a cell starts find its functions
    print(json.dumps([run(source, vars(notebook)) for source in json.load(sys.stdin)]))
