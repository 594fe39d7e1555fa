"""Adjustments before and after torch.export for some libraries: part of `export_model.py`."""

import contextlib

GROUPED = "transformers::grouped_mm_fallback"
GROUPED_BYTES = 16  # ATen's grouped product wants rows of a multiple of this


def native_experts(program):
    """Replaces transformers' operator for mixtures of experts by ATen operators; returns how many were replaced.

    While tracing, transformers 5 uses its own operator, whose kernel is Python code. Eager runs ATen's grouped matrix product,
    which is what stays here: rows [offs[e-1], offs[e]) of `input` times `weight[e]`. Where that cannot be (float64, or rows that are not
    a multiple of 16 bytes) each row is multiplied with a copy of its expert's matrix, as transformers' "batched_mm" does.
    """
    import torch

    changed = 0
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.op == "call_function" and getattr(node.target, "_name", "").startswith(GROUPED):
                replace_grouped(module.graph, node)
                changed += 1
        module.recompile()
    return changed


def replace_grouped(graph, node):
    import torch

    aten = torch.ops.aten
    arguments = dict(zip(("input", "weight", "offs"), node.args)) | dict(node.kwargs)
    rows, weight, offs = (arguments[name] for name in ("input", "weight", "offs"))
    meta = weight.meta["val"]
    sizes = [int(size) * meta.element_size() % GROUPED_BYTES for size in meta.shape[1:]]
    if meta.dtype != torch.float64 and not any(sizes):
        node.target, node.args, node.kwargs = aten._grouped_mm.default, (rows, weight, offs), {}
        return
    mode = next(value.fake_mode for value in (meta,))

    def add(target, *args, **kwargs):
        new = graph.call_function(target, args, kwargs)
        with mode:
            new.meta = {**node.meta, "val": target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]), **kwargs)}
        return new

    with graph.inserting_before(node):
        count = graph.call_function(aten.sym_size.int, (rows, 0))
        count.meta = {**node.meta, "val": rows.meta["val"].shape[0]}
        index = add(aten.arange.default, count, device=meta.device)
        expert = add(aten.bucketize.Tensor, index, offs, right=True)
        own = add(aten.index_select.default, weight, 0, expert)
        product = add(aten.squeeze.dim, add(aten.bmm.default, add(aten.unsqueeze.default, rows, 1), own), 1)
    node.replace_all_uses_with(product)
    graph.erase_node(node)


@contextlib.contextmanager
def lstm_shapes():
    """While tracing, nn.LSTM's last states have the shapes that they have in eager: torch 2.11 traces h_n and c_n of a layer as [1, B, D]
    instead of [B, D], so that everything computed from them has a dimension too many."""
    from torch._decomp import decompositions

    name = "one_layer_lstm"
    original = getattr(decompositions, name, None)
    if original is None:
        yield
        return

    def with_shapes(inp, hidden, *args, **kwargs):
        out, states = original(inp, hidden, *args, **kwargs)
        return out, tuple(state.reshape(given.shape) for state, given in zip(states, hidden))

    setattr(decompositions, name, with_shapes)
    try:
        yield
    finally:
        setattr(decompositions, name, original)


class Never:
    """Stands for a probability of 0 in `random_tensor < probability`, so that tracing needs no tensor's value."""

    def __gt__(self, other):
        return False

    def __repr__(self):
        return "0.0"


@contextlib.contextmanager
def without_layerdrop(model):
    """While the model is traced, a `layerdrop` of 0 (BART, Whisper) needs no comparison of tensors."""
    held = [(module, module.layerdrop) for module in model.modules()
            if isinstance(getattr(module, "layerdrop", None), (int, float)) and module.layerdrop == 0]
    for module, _ in held:
        module.layerdrop = Never()
    try:
        yield
    finally:
        for module, value in held:
            module.layerdrop = value


def has_cumulative_average(model):
    import torch

    norms = (torch.nn.modules.batchnorm._NormBase,)
    return any(isinstance(module, norms) and module.momentum is None and module.track_running_stats for module in model.modules())


def cure_of(error, line, static_batch, model):
    """How to fix a failed export of `model`; `line` is the source line where the trace ended."""
    text = f"{type(error).__name__} {error}".lower()
    if "layerdrop" in line.lower():
        return ("a trace cannot drop layers at random: set layerdrop to 0 in the model's configuration (encoder_layerdrop=0, "
                "decoder_layerdrop=0 in Hugging Face's)")
    if "_ctc_loss" in text:
        return ("torch.export cannot trace ctc_loss, of which what it keeps for the backward has a size that depends on the lengths: return the "
                "log-probabilities and train on another loss, or train this model in PyTorch")
    if "view size is not compatible" in text or "cannot view a tensor with" in text:
        return "use .reshape() there, or give example inputs that are contiguous (.contiguous()), as those of a run are"
    if "data-dependent" in text or "datadependent" in text or "control flow" in text:
        if has_cumulative_average(model):
            return "a batch norm with momentum=None reads its counter as a number: give it a momentum, such as 0.1"
        return "what it does depends on a tensor's value: use torch.where or torch.cond there, or take the decision outside forward"
    if "constraints violated" in text:
        return ("the model fixes the size of what is taken for the batch: if the batch is another dimension, name it with --batch-dim NAME=1; if "
                "Python reads the size as a number (len(x)), write x.shape[0]; else use --static-batch")
    cure = "remove control flow that depends on tensor values"
    return cure if static_batch else "if the model needs a fixed batch, use --static-batch, else " + cure
