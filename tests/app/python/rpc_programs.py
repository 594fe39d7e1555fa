"""Programs of distributed autograd, written once for what answers to the names of torch.distributed.rpc: this package, torch itself, and one
process without workers (rpc_local). Each computes a loss on worker 0 of three, of parameters that all workers have."""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import torch

import rpc_local

WORKERS = 3
SIZE = 3


class World:
    """The modules that this process uses, and its workers' parameters."""

    rpc = rpc_local
    autograd = None
    parameters = {}
    lock = threading.Lock()


def use(rpc, autograd):
    World.rpc, World.autograd = rpc, autograd
    World.parameters = {}


def here():
    return World.rpc.get_worker_info().name


def parameter(number):
    """A parameter of the worker that runs this: the same values in each world."""
    key = (here(), number)
    with World.lock:
        if key not in World.parameters:
            values = torch.Generator().manual_seed(100 * int(key[0].removeprefix("worker")) + number)
            World.parameters[key] = torch.rand((SIZE, SIZE), generator=values).sub_(0.5).requires_grad_()
        return World.parameters[key]


def gradients_here(context):
    """Those of this worker's parameters, by number."""
    gradients = World.autograd.get_gradients(context)
    return {number: gradients[value].clone() for (_, number), value in World.parameters.items() if value in gradients}


def all_gradients(context):
    return {f"worker{i}": World.rpc.rpc_sync(f"worker{i}", gradients_here, (context,)) for i in range(WORKERS)}


def distributed(name, **options):
    """Loss and gradients of a program on workers; called on worker 0."""
    with World.autograd.context() as context:
        loss = PROGRAMS[name]()
        World.autograd.backward(context, [loss], **options)
        return loss.item(), all_gradients(context)


def alone(name):
    """The same in one process, by PyTorch's own autograd."""
    use(rpc_local, None)
    loss = PROGRAMS[name]()
    loss.backward()
    found = {f"worker{i}": {} for i in range(WORKERS)}
    for (worker, number), value in World.parameters.items():
        if value.grad is not None:
            found[worker][number] = value.grad
    return loss.item(), found


def call(worker, function, *args, **kwargs):
    return World.rpc.rpc_sync(f"worker{worker}", function, args, kwargs)


# What the workers run.


def layer(x):
    return parameter(0) @ x + torch.tanh(x)


def fetch_and_layer(rref):
    return layer(rref.to_here())


def route(x, way):
    """On to the next worker of the list, if there is one left, and through this one's layer."""
    return layer(call(way[0], route, x, way[1:]) if way else x)


def shrink(x):
    """Until the value is small, which only the data says."""
    rounds = 0
    while x.square().sum().item() > 0.05 and rounds < 10:
        x = call(2 if here() == "worker1" else 1, half, x)
        rounds += 1
    return x * parameter(3)


def half(x):
    return x * 0.5 * torch.tanh(parameter(4))


class Pair(NamedTuple):
    sum: torch.Tensor
    rest: list


@dataclass
class Both:
    first: torch.Tensor
    second: dict


def pair(x):
    return {"sum": x + parameter(1), "all": [x * parameter(2), 7, {"deep": (x.t(), None, "text")}]}


def named(x, *, scale):
    return Pair(x * scale * parameter(1), [Both(x + parameter(2), {"three": parameter(3)})])


def first(x, _):
    return x * parameter(5)


def wasteful(x):
    """Has worker 2 compute from its own value twice, and uses one."""
    y = x * parameter(5)
    call(2, layer, y)
    return call(2, layer, y)


def fail(x):
    raise ValueError("no value today")


def fail_behind(x):
    return call(2, fail, x)


class Square(torch.autograd.Function):
    """A function of Python's with a backward of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def square(x):
    return Square.apply(x) * parameter(1)


class Model:
    """State that stays on its worker."""

    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x @ parameter(6) * self.scale * self.calls


def fork(rref):
    """Hands a reference on, from one user to another."""
    return World.rpc.remote("worker2", fetch_and_layer, (rref,))


def from_two(references):
    return sum(each.to_here() for each in references) * parameter(1)


# The programs.


def one_call():
    return call(1, layer, parameter(10)).sum()


def notes_first_example():
    t3 = World.rpc.rpc_sync("worker1", torch.add, args=(parameter(11), parameter(12)))
    return torch.mul(t3, parameter(13)).sum()


def nested_calls():
    return call(1, route, parameter(10), [2]).sum()


def circle_of_workers():
    return call(1, route, parameter(10), [2, 0, 1, 2, 0]).sum()


def worker_calls_itself():
    return call(0, layer, parameter(10)).sum()


def callee_calls_itself():
    return call(1, route, parameter(10), [1, 1]).sum()


def one_tensor_to_two_workers_and_back():
    x = parameter(10) * 1
    return (call(1, layer, x) * call(2, layer, x)).sum()


def one_tensor_twice_in_a_call():
    return call(1, torch.mul, parameter(10), parameter(10)).sum()


def shared_parameters():
    x = parameter(10)
    for _ in range(4):
        x = call(1, layer, x)
    return x.sum()


def parameter_fetched_by_two():
    reference = World.rpc.remote("worker1", parameter, (0,))
    return (reference.to_here() * call(2, fetch_and_layer, reference)).sum()


def references_through_three_workers():
    a = World.rpc.remote("worker1", layer, (parameter(10),))
    b = World.rpc.remote("worker2", fetch_and_layer, (a,))
    return World.rpc.remote("worker0", fetch_and_layer, (b,)).to_here().sum()


def reference_of_its_own_worker():
    return call(1, fetch_and_layer, World.rpc.remote("worker1", parameter, (6,))).sum()


def reference_handed_on():
    mine = World.rpc.RRef(parameter(10) * 2)
    return call(1, fork, mine).to_here().sum()


def references_in_a_list():
    references = [World.rpc.remote(f"worker{i}", layer, (parameter(10),)) for i in range(WORKERS)]
    return call(1, from_two, references).sum()


def dicts_and_lists():
    both = call(1, pair, parameter(10))
    return (both["sum"] * both["all"][0] + both["all"][2]["deep"][0]).sum()


def objects_and_keywords():
    made = call(2, named, x=parameter(10), scale=3)
    return (made.sum * made.rest[0].first * made.rest[0].second["three"]).sum()


def calls_at_the_same_time():
    futures = [World.rpc.rpc_async(f"worker{i % WORKERS}", layer, args=(parameter(10 + i % 2),)) for i in range(8)]
    product = futures[0].wait()
    for future in futures[1:]:
        product = product * future.wait()
    return product.sum()


def loop_of_unknown_length():
    return call(1, shrink, parameter(10)).sum()


def branch_by_value():
    y = call(1, layer, parameter(10))
    return (call(2, layer, y) if y.sum().item() > 0 else torch.tanh(y)).sum()


def transposed_tensors():
    return call(1, layer, parameter(10).t()).t()[1:].sum()


def methods_of_an_object():
    model = World.rpc.remote("worker1", Model, (2.0,))
    x = model.rpc_sync().forward(parameter(10))
    x = model.rpc_async().forward(x).wait()
    return model.remote().forward(x).to_here().sum()


def function_with_its_own_backward():
    return call(1, square, parameter(10)).sum()


def nothing_remote_in_the_loss():
    return (parameter(10) * call(1, torch.ones, [SIZE, SIZE])).sum()


def unused_exception_that_is_caught():
    x = call(1, layer, parameter(10))
    for function in (fail, fail_behind):
        try:
            call(1, function, x)
        except ValueError as error:
            assert "no value today" in str(error)
        else:
            raise AssertionError("the exception did not arrive")
    return call(2, layer, x).sum()


def unused_half_of_a_dict():
    return call(1, pair, parameter(10))["sum"].sum()


def unused_result():
    call(1, layer, parameter(10))
    return call(1, layer, parameter(10)).sum()


def unused_product_of_the_note():
    d = World.rpc.rpc_sync("worker1", torch.add, args=(parameter(11), parameter(12)))
    World.rpc.rpc_sync("worker1", torch.mul, args=(parameter(12), parameter(13)))
    return d.sum()


def unused_argument():
    y = call(2, layer, parameter(10))
    return (call(1, first, parameter(10), y) * call(1, first, y, parameter(10))).sum()


def unused_deep_in_a_chain():
    y = call(1, route, parameter(10), [2, 0])
    call(2, route, y, [1, 0, 1])
    World.rpc.remote("worker2", layer, (y,))
    return (y + call(2, layer, y)).sum()


def unused_on_the_callee():
    return call(1, wasteful, parameter(10)).sum()


def unused_behind_unused():
    y = call(1, layer, parameter(10))
    z = call(2, layer, y)
    call(0, layer, call(1, layer, z))
    return (y * z).sum()


PROGRAMS = {
    each.__name__: each
    for each in (
        one_call,
        notes_first_example,
        nested_calls,
        circle_of_workers,
        worker_calls_itself,
        callee_calls_itself,
        one_tensor_to_two_workers_and_back,
        one_tensor_twice_in_a_call,
        shared_parameters,
        parameter_fetched_by_two,
        references_through_three_workers,
        reference_of_its_own_worker,
        reference_handed_on,
        references_in_a_list,
        dicts_and_lists,
        objects_and_keywords,
        calls_at_the_same_time,
        loop_of_unknown_length,
        branch_by_value,
        transposed_tensors,
        methods_of_an_object,
        function_with_its_own_backward,
        nothing_remote_in_the_loss,
        unused_exception_that_is_caught,
        unused_half_of_a_dict,
        unused_result,
        unused_product_of_the_note,
        unused_argument,
        unused_deep_in_a_chain,
        unused_on_the_callee,
        unused_behind_unused,
    )
}
EVERY_MESSAGE_USED = [name for name in PROGRAMS if not name.startswith("unused")]
"""Those that FAST, and so torch's own distributed autograd, can run."""
