"""The stages that torch.distributed.pipelining cuts of a model, made right: for run.py, beside which it is."""

import operator
import re

import torch
from torch._export.passes._node_metadata_hook import _EMPTY_NN_MODULE_STACK_KEY
from torch.distributed.pipelining import _IR
from torch.distributed.pipelining._backward import _get_grad_fn_or_grad_acc, construct_reverse_graph, reverse_closure
from torch.utils._pytree import tree_flatten, tree_unflatten


def source_of(node):
    """The operator whose list result contains `node`, or the node itself."""
    while node.target is operator.getitem:
        node = node.args[0]
    return node


def compute_again(module, first, last, names):
    """Gives the stage from node `first` to before `last` its own copies of the nodes with these names, which are of earlier stages: torch sends no integers.
    Returns the stage's first node."""
    graph, nodes, copies = module.graph, {node.name: node for node in module.graph.nodes}, {}

    def copied(node):
        if node not in copies and node.op == "get_attr":
            copies[node] = graph.node_copy(node)
        return copies.get(node, node)

    order = list(graph.nodes)
    stage = order[order.index(first) : order.index(last) if last is not None else len(order)]
    with graph.inserting_before(first):
        for name in names:
            for node in dict.fromkeys([source_of(nodes[name]), nodes[name]]):
                if node not in copies:
                    copies[node] = graph.node_copy(node, copied)
    for node in stage:
        for used in node.all_input_nodes:
            if used.op != "get_attr" and used in copies:
                node.replace_input_with(used, copies[used])
    return next(iter(copies.values()), first)


def cut(module, begins, recomputed, precision):
    """Marks the nodes with these names as the first nodes of stages, instead of those that the model marks itself; `recomputed`: by stage, names of nodes of
    earlier ones that it computes for itself."""
    for node in [node for node in module.graph.nodes if node.target is torch.ops.pippy._pipe_split.default]:
        module.graph.erase_node(node)
    nodes = {node.name: node for node in module.graph.nodes}
    for name in begins:
        if name not in nodes:
            raise SystemExit(f"run.py: the model has no node {name}; export the plan again from this model.")
    firsts = [source_of(nodes[name]) for name in begins]
    firsts = [compute_again(module, first, last, names) for first, last, names in zip(firsts, [*firsts[1:], None], recomputed[1:])]
    for first in firsts:
        with module.graph.inserting_before(first):
            module.graph.call_function(torch.ops.pippy._pipe_split.default)
    inline_regions(module, precision)
    copy_changing_buffers(module)
    module.recompile()
    return module


def copy_changing_buffers(module):
    """Lets operators read copies of the buffers that the forward changes: their backward may come after the next microbatch has changed them."""
    shown, changed = {}, set()  # by node the buffer whose memory it shows
    for node in module.graph.nodes:
        if node.op == "get_attr" and not getattr(operator.attrgetter(node.target)(module), "requires_grad", True):
            shown[node] = node.target
        for argument in aliased_arguments(node):
            if argument not in shown:
                continue
            schema = getattr(node.target, "_schema", None)  # operator.getitem has none: it shows what its list does
            if schema is None or schema.returns and schema.returns[0].alias_info is not None:
                shown[node] = shown[argument]
            if schema is not None and schema.is_mutable:
                changed.add(shown[argument])
    for node in [node for node in shown if shown[node] in changed]:
        for user in [user for user in node.users if user.op != "output" and node not in aliased_arguments(user)]:
            with module.graph.inserting_before(user):
                copy = module.graph.call_function(torch.ops.aten.clone.default, (node,))
            copy.meta = {key: user.meta[key] for key in ("nn_module_stack", "stack_trace") if key in user.meta}
            user.replace_input_with(node, copy)


def aliased_arguments(node):
    """What an operator writes into or returns views of, and the list that `operator.getitem` takes apart."""
    if node.target is operator.getitem:
        return [node.args[0]]
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    given = zip(node.target._schema.arguments, node.args)
    named = ((argument, node.kwargs.get(argument.name)) for argument in node.target._schema.arguments)
    return [value for argument, value in [*given, *named] if argument.alias_info is not None and isinstance(value, torch.fx.Node)]


def detached(module, value):
    """What a no_grad region takes for this argument: buffers as they are, which it may change in place."""
    if not isinstance(value, torch.fx.Node):
        return value
    tensor = operator.attrgetter(value.target)(module) if value.op == "get_attr" else value.meta.get("val")
    if not isinstance(tensor, torch.Tensor) or value.op == "get_attr" and not tensor.requires_grad:
        return value
    result = module.graph.call_function(torch.ops.aten.detach.default, (value,))
    result.meta = {**value.meta, "val": tensor.detach()}
    return result


def inline_regions(module, precision):
    """Puts the body of each no_grad region into the graph, what it takes detached, and of each region without autocast: torch's cut does not carry them."""
    ops, graph = torch.ops.higher_order, module.graph
    pending = [node for node in graph.nodes if node.target in (ops.wrap_with_set_grad_enabled, ops.wrap_with_autocast)]
    while pending:
        region = pending.pop()
        grad = region.target is ops.wrap_with_set_grad_enabled
        if not grad and (region.args[2] or precision != "traced"):
            raise SystemExit("run.py: torch cannot cut a model with an autocast region of its own; run the plan with pipewright.")
        body, arguments = (region.args[1], region.args[2:]) if grad else (region.args[4], region.args[5:])
        part = operator.attrgetter(body.target)(module)
        with graph.inserting_before(region):
            taken = [detached(module, value) for value in arguments] if grad and not region.args[0] else arguments
            values = dict(zip((node for node in part.graph.nodes if node.op == "placeholder"), taken))
            for node in part.graph.nodes:
                if node.op == "get_attr":
                    name = f"{region.name}_{node.target}".replace(".", "_")
                    setattr(module, name, operator.attrgetter(node.target)(part))
                    values[node] = graph.get_attr(name)
                elif node.op == "output":
                    results = torch.fx.map_arg(node.args[0], lambda used: values[used])
                elif node.op != "placeholder":
                    values[node] = graph.node_copy(node, lambda used: values[used])
                    if node.target in (ops.wrap_with_set_grad_enabled, ops.wrap_with_autocast):
                        pending.append(values[node])
        for user in list(region.users):  # all take one of its results
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(region)


def name_attributes(module):
    """Gives parameters and buffers the names that they get in torch's cut graph, which finds them by name; an operator may have had it, as `mean` of a buffer
    `mean`. Returns the module."""
    cut_graph = torch.fx.Graph()
    kept = {
        node: (cut_graph.placeholder(node.target) if node.op == "placeholder" else cut_graph.get_attr(node.target)).name
        for node in module.graph.nodes
        if node.op in ("placeholder", "get_attr")
    }
    names = set(kept.values())
    for node in module.graph.nodes:
        if node not in kept and node.name in names:
            node._rename(f"{node.name}_result")
    for node, name in kept.items():
        node.name = name
    return module


def outline_all():
    """torch outlines the modules of a stage only where its inputs come before its parameters and every operator knows its module: makes both so before."""
    plain = _IR._outline_submodules

    def outline(graph):
        for node in reversed([node for node in graph.nodes if node.op == "placeholder"]):
            first = next(iter(graph.nodes))
            if node is not first:
                first.prepend(node)
        for node in graph.nodes:
            if node.op not in ("placeholder", "output") and not node.meta.get("nn_module_stack"):
                node.meta["nn_module_stack"] = {_EMPTY_NN_MODULE_STACK_KEY: ("", "")}  # that of the node before
        return plain(graph)

    _IR._outline_submodules = outline


def one_name(name, known):
    """A parameter's name in the model: torch's cut makes copies `block@1.weight`, `block@2.weight` of a module that is called several times."""
    plain = re.sub(r"@\d+(?=\.|$)", "", name)
    return plain if plain in known and name not in known else name


def join_copies(module, settings, stages):
    """Makes each parameter of the model one parameter in all stages of this rank, whose gradient sums those of all its uses; returns them by a name."""
    alias = {name: shared["names"][0] for shared in settings["shared"] for name in shared["names"]}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        alias.setdefault(name, f"#{id(parameter)}")  # tied within a stage
    held = {}
    for stage in stages.values():
        for name, parameter in list(stage.submod.named_parameters(remove_duplicate=False)):
            plain = one_name(name, alias)
            kept = held.setdefault(alias.get(plain, plain), parameter)
            if kept is not parameter:
                path, _, leaf = name.rpartition(".")
                setattr(stage.submod.get_submodule(path), leaf, kept)
    return held


def expect_contiguous(pipe):
    """torch compares what stages exchange with the traced tensors, which may be views; what is sent is contiguous (`sendable`)."""
    for _, module in pipe.split_gm.named_children():
        for node in module.graph.nodes if hasattr(module, "graph") else []:
            for sent in [node] if node.op == "placeholder" else node.all_input_nodes if node.op == "output" else []:
                if isinstance(sent.meta.get("val"), torch.Tensor):
                    sent.meta["val"] = sent.meta["val"].contiguous()


def sendable(module, splits_backward):
    """Makes a stage return its outputs in the types they were traced with, contiguous, as Gloo needs them, and as copies before a split backward: torch then
    detaches them in place, which views and saved tensors refuse."""
    (result,) = [node for node in module.graph.nodes if node.op == "output"]
    types = [node.meta["val"].dtype if isinstance(node.meta.get("val"), torch.Tensor) else None for node in result.all_input_nodes]

    def hook(_module, _inputs, outputs):
        leaves, form = tree_flatten(outputs)
        for i, value in enumerate(leaves):
            if not isinstance(value, torch.Tensor):
                continue
            value = value.to(types[i]) if len(types) == len(leaves) and types[i] is not None else value
            leaves[i] = value.clone(memory_format=torch.contiguous_format) if splits_backward and value.requires_grad else value.contiguous()
        return tree_unflatten(leaves, form)

    module.register_forward_hook(hook)


def splits_rightly(outputs, inputs, parameters):
    """Whether torch's split backward is right for a stage with these outputs (or loss) and inputs. Its W starts from the operators where the ways of the
    parameters meet those of the inputs. It takes each for one operator with one result, counts twice what a parameter gives to two of them, and leaves out
    what reaches the outputs otherwise; its I needs a way from every output to every input."""
    if not all(output.requires_grad for output in outputs):
        return False
    roots = [_get_grad_fn_or_grad_acc(output) for output in outputs]
    users = construct_reverse_graph(roots)
    edges = {(output.grad_fn, output.output_nr) for output in outputs}
    edges |= {edge for node in {*roots, *users} for edge in node.next_functions}
    sources = [_get_grad_fn_or_grad_acc(value) for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if any(source not in users for source in sources):
        return False
    ways, _ = reverse_closure(sources, set(), users)
    for parameter in parameters:
        source = _get_grad_fn_or_grad_acc(parameter) if parameter.requires_grad else None
        if source not in users:
            continue
        way, met = reverse_closure([source], ways, users)
        if len(met) != 1 or not way.isdisjoint(roots) or any((node, number) in edges for node in met for number in range(1, len(node._input_metadata))):
            return False
    return True


def send_every_gradient(stage):
    """What leaves a stage backward: contiguous, as Gloo needs it, and zeros for an input that the loss does not depend on, for which torch has no gradient.
    Where torch cannot split a backward, I computes everything and W nothing."""
    plain, plain_weight, complete = stage.backward_one_chunk, stage.backward_weight_one_chunk, set()

    def backward(chunk, loss=None, full_backward=True, last_backward=False):
        outputs, inputs = stage.fwd_cache[chunk]
        if not full_backward and not stage.is_first and not splits_rightly([loss] if stage.is_last else outputs, inputs, stage.submod.parameters()):
            complete.add(chunk)
            full_backward = True
        plain(chunk, loss, full_backward, last_backward)
        if not stage.is_first and chunk in stage.bwd_cache:
            pairs = zip(stage.bwd_cache[chunk], inputs, strict=True)
            stage.bwd_cache[chunk] = tuple(torch.zeros_like(tensor) if gradient is None else gradient.contiguous() for gradient, tensor in pairs)

    def backward_weight(chunk, last_backward=False):
        if chunk in complete:
            complete.remove(chunk)
        else:
            plain_weight(chunk, last_backward)

    stage.backward_one_chunk, stage.backward_weight_one_chunk = backward, backward_weight


def take_late_inputs(stage, index, names):
    """Inputs of the model that a stage after the first reads: torch only passes inputs to the first, so this one takes them from an attribute. Returns the
    inputs' names and their attributes; `names`: the model's inputs, node to name."""
    if index == 0:
        return {}
    graph, late, received = stage.submod.graph, {}, []
    for node, source in zip([node for node in graph.nodes if node.op == "placeholder"], stage.node.args, strict=True):
        if source.op != "placeholder":
            received.append(source)
            continue
        attribute = late[names[source.name]] = f"model_input_{source.name}"
        stage.submod.register_buffer(attribute, torch.empty(0), persistent=False)
        with graph.inserting_before(next(first for first in graph.nodes if first.op != "placeholder")):
            node.replace_all_uses_with(graph.get_attr(attribute))
        graph.erase_node(node)
    stage.node.args = tuple(received)
    stage.submod.recompile()
    return late


def give_late_inputs(stages, late, inputs, whole, samples):
    """Makes each stage find its microbatch of the model's inputs, by name, in its attributes; `late`: of take_late_inputs, `whole`: inputs that
    all microbatches get alike."""
    for index, stage in stages.items():
        if not late[index]:
            continue

        def forward(chunk, *arguments, stage=stage, names=late[index], plain=type(stage).forward_one_chunk, **options):
            for name, attribute in names.items():
                tensor = inputs[name]
                setattr(stage.submod, attribute, tensor if name in whole else tensor[chunk * samples : (chunk + 1) * samples])
            return plain(stage, chunk, *arguments, **options)

        stage.forward_one_chunk = forward


def take_inputs_flat(module):
    """torch's first stage wants the model's inputs as the model nests them, of which it may have some only; it gets those that it reads one by one."""
    if isinstance(module, torch.fx.GraphModule):
        module.graph.set_codegen(torch.fx.graph.CodeGen())
        module.recompile()


def reshape_views(module):
    """A received tensor is contiguous where the traced one was not, and the other way round: a traced `view` may need a copy."""
    for part in module.modules():
        if not hasattr(part, "graph"):
            continue
        for node in part.graph.nodes:
            if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
                node.target = torch.ops.aten.reshape.default
        if isinstance(part, torch.fx.GraphModule):
            part.recompile()
