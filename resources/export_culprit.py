"""Finds what in a model torch.export drops, and where in its source: part of `export_model.py`."""

import contextlib
import linecache
import os
import sys


class Watched:
    """Python functions and hooks found during one eager run: (kind, name, module path, source position, class)."""

    def __init__(self):
        self.functions, self.hooks, self.stack, self.seen = {}, [], [], set()

    def module(self):
        return f"module `{self.stack[-1]}`" if self.stack and self.stack[-1] else "the model itself"

    def note_functions(self, result):
        """Attributes to the module that just ended the Python functions in its result's graph that no inner module had.

        Also finds those whose `apply` the model stored before it was observed (`flip = Flip.apply`).
        """
        import torch
        from torch.utils import _pytree as pytree

        pending = [leaf.grad_fn for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        while pending:
            node = pending.pop()
            if node is None or node in self.seen:
                continue
            self.seen.add(node)
            kind = getattr(type(node), "_forward_cls", None)
            if kind is not None:
                code = getattr(kind.forward, "__code__", None)
                self.functions.setdefault(kind, (self.module(), f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""))
            pending += [following for following, _ in node.next_functions]


@contextlib.contextmanager
def watching(model):
    """Records which module calls which autograd.Function and registers which hook, while the model runs."""
    import torch
    from torch.nn.modules import module as modules

    watched = Watched()
    paths = {module: name for name, module in model.named_modules()}

    def left(module, arguments, result):  # returns None: a hook's value would replace the module's result
        watched.note_functions(result)
        watched.stack.pop()

    enter = modules.register_module_forward_pre_hook(lambda m, a: watched.stack.append(paths.get(m, "")))
    leave = modules.register_module_forward_hook(left, always_call=True)
    original = torch.autograd.Function.__dict__["apply"]
    hooks = {name: getattr(torch.Tensor, name) for name in ("register_hook", "register_post_accumulate_grad_hook")}

    def apply(cls, *args, **kwargs):
        watched.functions.setdefault(cls, (watched.module(), position()))
        return original.__func__(cls, *args, **kwargs)

    def recorder(name):
        def register(tensor, *args, **kwargs):
            watched.hooks.append((name, watched.module(), position()))
            return hooks[name](tensor, *args, **kwargs)
        return register

    torch.autograd.Function.apply = classmethod(apply)
    for name in hooks:
        setattr(torch.Tensor, name, recorder(name))
    try:
        yield watched
    finally:
        enter.remove()
        leave.remove()
        torch.autograd.Function.apply = original
        for name, method in hooks.items():
            setattr(torch.Tensor, name, method)


def position(frame=None):
    """`file.py:12` of the innermost caller outside torch and this file; empty without one."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_users(file):
    """Whether a source file belongs to the user: not to torch, Python or the exporter."""
    import torch

    own = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.__file__) + os.sep)
    packages = "site-packages" in file or "dist-packages" in file
    return not (file.startswith(own[0]) or file.startswith("<") or os.path.dirname(file) == os.path.dirname(os.path.abspath(__file__))
                and os.path.basename(file).startswith("export_") or file.startswith(own[1]) and not packages)


def source_of(error):
    """(`file.py:12`, that line's text) of the innermost position outside torch in an exception's traceback."""
    found = ("", "")
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if is_users(file):
                found = (f"{os.path.basename(file)}:{trace.tb_lineno}", linecache.getline(file, trace.tb_lineno).strip())
            trace = trace.tb_next
        if found[0]:
            break
        error = error.__cause__ or error.__context__
    return found


def culprit(name, watched, execution):
    """A clause that begins with `: torch.export does not keep …`, or nothing."""
    model = execution.module
    parameter = dict(model.named_parameters(remove_duplicate=False))[name]
    lost = "torch.export does not keep"
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        return f": {lost} the hook on this parameter; compute what it does in forward"
    for path, module in model.named_modules():
        if (module._backward_hooks or module._backward_pre_hooks) and (name.startswith(path + ".") or not path or reaches(execution.total, parameter, "BackwardHookFunction")):
            return f": {lost} the backward hook of {f'module `{path}`' if path else 'the model itself'}; compute what it does in forward"
    for function, (where, place) in watched.functions.items():
        if function.__name__ not in ("BackwardHookFunction", "CheckpointFunction") and reaches(execution.total, parameter, function):
            return (f": {lost} the backward of the autograd.Function `{function.__name__}`, which {where} calls{f' ({place})' if place else ''}; "
                    "write it with differentiable operators, for example y.detach() + (x - x.detach())")
    for kind, where, place in watched.hooks:
        return f": {lost} the hook that {where} registers on a tensor ({kind}{f', {place}' if place else ''}); compute what it does in forward"
    return ""


def reaches(total, parameter, function):
    """Whether the backward of `total` passes a node of this autograd.Function (or of this name) on its way to the parameter."""
    if total is None or total.grad_fn is None:
        return False
    seen, pending = set(), [(total.grad_fn, False)]
    while pending:
        node, passed = pending.pop()
        if node is None or (node, passed) in seen:
            continue
        seen.add((node, passed))
        kind = getattr(type(node), "_forward_cls", None)
        passed = passed or kind is not None and (kind is function or kind.__name__ == function)
        if passed and getattr(node, "variable", None) is parameter:
            return True
        pending += [(following, passed) for following, _ in node.next_functions]
    return False
