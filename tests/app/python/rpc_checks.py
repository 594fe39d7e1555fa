"""What remote calls of Python do: each function here is a check that worker 0 of three runs, and its name says what holds."""

import pickle
import threading
from collections import OrderedDict, namedtuple

import pytest
import torch

import pipewright
from pipewright import autograd, futures, rpc

PATIENCE_S = 60
MOST_RUNNING = 4
"""Places for calls on each worker."""
here = threading.local()
gate = threading.Event()
Point = namedtuple("Point", "x y")


class OddError(Exception):
    """Takes what no text can give."""

    def __init__(self, code, *, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


# What the workers run.


def echo(*args, **kwargs):
    return args, kwargs


def raise_of(name):
    kinds = {
        "value": ValueError("no such value"),
        "key": KeyError("absent"),
        "os": FileNotFoundError(2, "No such file", "nowhere"),
        "odd": OddError(3, reason="odd"),
        "unicode": UnicodeDecodeError("utf-8", b"x", 0, 1, "bad byte"),
        "system": SystemExit(4),
        "made here": type("Unheard", (Exception,), {"__module__": "somewhere.else"})("only here"),
    }
    raise kinds[name]


def raise_behind(name):
    rpc.rpc_sync("worker2", raise_of, (name,))


def lock():
    return threading.Lock()


def wait_for_gate():
    assert gate.wait(PATIENCE_S)
    return "passed"


def open_gate():
    gate.set()


def counts():
    from pipewright import _remote_job

    return _remote_job.worker().counts()


def go_down(depth):
    name = rpc.get_worker_info().name
    return [name] if depth == 0 else [name, *rpc.rpc_sync(depth % 3, go_down, (depth - 1,))]


class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    @rpc.functions.async_execution
    def add_later(self, worker):
        return rpc.rpc_async(worker, int, ("5",)).then(lambda done: self.add(done.wait()))

    @staticmethod
    @rpc.functions.async_execution
    def of_torch(value):
        future = torch.futures.Future()
        threading.Thread(target=future.set_result, args=(value,)).start()
        return future


waiting = []


@rpc.functions.async_execution
def meet(number):
    """The sum of all, when as many have come."""
    mine = futures.Future()
    with gate_lock:
        waiting.append((mine, number))
        met = list(waiting) if len(waiting) == 5 * MOST_RUNNING else []
    for future, _ in met:
        future.set_result(sum(value for _, value in met))
    return mine


gate_lock = threading.Lock()


@rpc.functions.async_execution
def no_future():
    return 7


def hold(rref):
    Counter.kept = rref


def use_held(amount):
    rref, Counter.kept = Counter.kept, None
    return rref.rpc_sync().add(amount)


def describe(x):
    return type(x).__name__, x.requires_grad, x.is_leaf


def describe_module(module):
    return [describe(each) for each in module.parameters()], module(torch.ones(2)).detach()


def same(a, b, rest):
    return a is b and rest["a"] is a


def try_shutdown():
    rpc.shutdown()


parameters = {}


def shared():
    return parameters.setdefault("shared", torch.full((3,), 2.0, requires_grad=True))


def scaled(x):
    return x * shared()


def value_of(rref):
    return rref.local_value().detach().clone()


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")


class Ascent:
    """An optimizer of a program's own."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = parameters, lr

    def step(self):
        for each in self.parameters:
            each.data += self.lr * each.grad


# The checks.


def an_exception_has_its_type_text_and_worker():
    for name, kind, text in (
        ("value", ValueError, "no such value"),
        ("key", KeyError, "'absent'"),
        ("os", FileNotFoundError, "[Errno 2] No such file: 'nowhere'"),
        ("odd", OddError, "3: odd"),
        ("unicode", UnicodeDecodeError, "bad byte"),
    ):
        with pytest.raises(kind) as raised:
            rpc.rpc_sync("worker1", raise_of, (name,))
        error = raised.value
        assert isinstance(error, rpc.RemoteError) and isinstance(error, pipewright.Error)
        assert error.text.endswith(text) and error.worker == "worker1"
        assert error.type.rpartition(".")[2] == kind.__name__
        assert str(error) == f"{error.text} ({error.type} on worker1)"
        assert "in raise_of" in "".join(error.__notes__)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)


def an_exception_of_a_nested_call_names_the_worker_that_raised_it():
    with pytest.raises(KeyError) as raised:
        rpc.rpc_sync("worker1", raise_behind, ("key",))
    assert raised.value.worker == "worker2"
    assert "in raise_of" in "".join(raised.value.__notes__)


def an_exception_of_an_unknown_type_is_a_remote_error_with_its_name():
    with pytest.raises(rpc.RemoteError) as raised:
        rpc.rpc_sync("worker1", raise_of, ("made here",))
    assert type(raised.value) is rpc.RemoteError
    assert (raised.value.type, raised.value.text) == ("somewhere.else.Unheard", "only here")
    with pytest.raises(rpc.RemoteError) as raised:
        rpc.rpc_sync("worker1", raise_of, ("system",))
    assert raised.value.type == "SystemExit"
    assert rpc.rpc_sync("worker1", int, ("7",)) == 7


def what_cannot_be_pickled_is_refused_on_either_side():
    with pytest.raises((pickle.PicklingError, AttributeError)):
        rpc.rpc_sync("worker1", lambda: 1)
    with pytest.raises(TypeError):
        rpc.rpc_sync("worker1", echo, (threading.Lock(),))
    with pytest.raises(TypeError) as raised:
        rpc.rpc_sync("worker1", lock)
    assert raised.value.worker == "worker1"
    with pytest.raises(pipewright.UsageError, match="function"):
        rpc.rpc_sync("worker1", 7)


def objects_come_back_as_they_were():
    values = [None, True, -7, 1 << 80, 2.5, "naïve", b"\0\1", [1, [2, (3,)]], {1: {"a": {2}}}, Point(1, "y"), OrderedDict(b=1), range(3), int, echo]
    assert rpc.rpc_sync("worker1", echo, values, {"key": values}) == (tuple(values), {"key": values})
    tensors = [torch.tensor(3), torch.rand(0, 2), torch.tensor([True]), torch.arange(6).reshape(2, 3).t(), torch.ones(2, dtype=torch.bfloat16)]
    (found,), _ = rpc.rpc_sync("worker1", echo, ({"in": [tensors]},))
    for one, other in zip(found["in"][0], tensors, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)
    x = torch.ones(2)
    assert rpc.rpc_sync("worker1", same, (x, x, {"a": x}))


def a_worker_is_called_by_name_rank_or_info():
    for to in ("worker1", 1, rpc.WorkerInfo("worker1", 1), rpc.get_worker_info("worker1")):
        assert rpc.rpc_sync(to, rpc.get_worker_info) == ("worker1", 1)
    assert rpc.get_worker_info() == rpc.WorkerInfo("worker0", 0)
    for to in ("worker7", 7, -1):
        with pytest.raises(pipewright.UsageError, match="worker0, worker1, worker2"):
            rpc.rpc_sync(to, int)


def a_late_result_ends_the_call_with_the_worker_named():
    late = rpc.remote("worker1", wait_for_gate)
    for wait in (
        lambda: rpc.rpc_sync("worker1", wait_for_gate, timeout=0.2),
        lambda: late.to_here(timeout=0.2),
        lambda: late.rpc_sync(timeout=0.2).strip(),
    ):
        with pytest.raises(pipewright.Error, match=r"worker1 did not answer.*0\.(2|1\d*) s"):
            wait()
    rpc.rpc_sync("worker1", open_gate)
    assert late.to_here() == "passed" and rpc.rpc_sync("worker1", wait_for_gate, timeout=0) == "passed"
    with pytest.raises(pipewright.UsageError, match="timeout"):
        rpc.rpc_sync("worker1", int, timeout=-2)


def a_reference_knows_its_owner_and_its_value():
    mine, theirs = rpc.RRef(counter := Counter()), rpc.remote("worker1", Counter, (5,))
    assert mine.is_owner() and mine.local_value() is counter and mine.to_here() is counter
    assert not theirs.is_owner() and theirs.owner() == ("worker1", 1) and theirs.owner_name() == "worker1"
    assert theirs.confirmed_by_owner() and "worker1" in repr(theirs)
    assert theirs.to_here().value == 5
    with pytest.raises(pipewright.UsageError, match="worker1.*to_here"):
        theirs.local_value()
    with pytest.raises(pickle.PicklingError, match="RRef"):
        pickle.dumps(theirs)
    x = torch.ones(2)
    assert rpc.RRef(x).local_value() is x
    with pytest.raises(ValueError, match="no such value"):
        rpc.remote("worker1", raise_of, ("value",)).to_here()


def methods_run_on_the_owner():
    counter = rpc.remote("worker1", Counter, (5,))
    assert counter.rpc_sync().add() == 6
    assert counter.rpc_async().add(amount=2).wait() == 8
    assert counter.remote().add(3).to_here() == 11
    assert counter.rpc_sync().add_later("worker2") == 16
    assert counter.rpc_sync().of_torch("x") == "x"
    assert counter.to_here().value == 16
    with pytest.raises(AttributeError, match="subtract"):
        counter.rpc_sync().subtract()


def a_user_hands_a_reference_on_and_its_value_stays():
    counter = rpc.remote("worker1", Counter, (5,))
    rpc.rpc_sync("worker2", hold, (counter,))
    del counter
    assert rpc.rpc_sync("worker2", use_held, (2,)) == 7


def nothing_stays_when_nobody_has_a_reference():
    for round in range(PATIENCE_S * 1000):  # what goes gives its share back by a message of its own
        left = [rpc.rpc_sync(worker, counts) for worker in range(3)]
        if all(each["owned"] == 0 and each["held"] == 0 for each in left):
            return
    raise AssertionError(left)


def calls_nest_deeper_than_there_are_places():
    assert rpc.rpc_sync("worker1", go_down, (40,)) == ["worker1", *(f"worker{depth % 3}" for depth in range(40, 0, -1))]


def async_functions_hold_no_place_while_they_wait():
    calls = [rpc.rpc_async("worker1", meet, (number,)) for number in range(5 * MOST_RUNNING)]
    assert futures.wait_all(calls) == [sum(range(5 * MOST_RUNNING))] * (5 * MOST_RUNNING)
    with pytest.raises(TypeError, match="Future"):
        rpc.rpc_sync("worker1", no_future)


def futures_have_values_callbacks_and_exceptions():
    future = rpc.rpc_async("worker1", int, ("7",))
    chained = future.then(lambda done: done.value() + 1).then(lambda done: rpc.rpc_sync("worker2", int, (done.wait(),)))
    assert chained.wait() == 8 and future.done() and future.value() == 7 and future.wait() is future.wait()
    failed = rpc.rpc_async("worker1", int, ("x",))
    for wait in (failed.wait, failed.then(lambda done: done.wait()).wait, lambda: futures.wait_all([future, failed])):
        with pytest.raises(ValueError, match="invalid literal"):
            wait()
    seen = threading.Event()
    failed.add_done_callback(lambda done: seen.set())
    assert seen.wait(PATIENCE_S)
    assert futures.collect_all([future, failed]).wait() == [future, failed]
    own = futures.Future()
    with pytest.raises(pipewright.UsageError, match="wait"):
        own.value()
    own.set_exception(problem := OddError(1, reason="own"))
    with pytest.raises(OddError) as raised:
        own.wait()
    assert raised.value is problem
    with pytest.raises(pipewright.UsageError, match="once"):
        own.set_result(1)


def tensors_need_gradients_there_as_here():
    x, parameter = torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))
    for value in (x, parameter):
        assert rpc.rpc_sync("worker1", describe, (value,)) == ("Tensor", True, True)
    assert rpc.rpc_sync("worker1", describe, (torch.ones(2),))[1] is False
    with autograd.context():
        assert rpc.rpc_sync("worker1", describe, (parameter,)) == ("Tensor", True, False)
        module = torch.nn.Linear(2, 2)
        described, result = rpc.rpc_sync("worker1", describe_module, (module,))
        assert described == [("Parameter", True, True)] * 2 and torch.equal(result, module(torch.ones(2)))


def a_parameter_that_is_an_argument_gets_its_gradient():
    parameter = torch.nn.Parameter(torch.ones(3))
    with autograd.context() as context:
        autograd.backward(context, [rpc.rpc_sync("worker1", scaled, (parameter,)).sum()])
        assert torch.equal(autograd.get_gradients(context)[parameter], torch.full((3,), 2.0))
        assert parameter.grad is None


def contexts_of_several_threads_keep_their_gradients_apart():
    problems = []
    together = threading.Barrier(8, timeout=PATIENCE_S)

    def work(factor):
        try:
            x = torch.full((3,), float(factor), requires_grad=True)
            together.wait()
            for _ in range(5):
                with autograd.context() as context:
                    loss = rpc.rpc_sync("worker1", scaled, (rpc.rpc_sync("worker2", scaled, (x,)),)).sum()
                    autograd.backward(context, [loss])
                    assert torch.equal(autograd.get_gradients(context)[x], torch.full((3,), 4.0))
                    found = rpc.rpc_sync("worker1", gradient_of_shared, (context,))
                    assert torch.equal(found, torch.full((3,), 2.0 * factor))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert problems == []


def gradient_of_shared(context):
    return autograd.get_gradients(context)[shared()].clone()


def steps_of_several_optimizers_on_one_parameter_all_count():
    from pipewright.optim import DistributedOptimizer

    start = torch.full((3,), 1.0)
    target = rpc.remote("worker1", torch.full, ((3,), 1.0), {"requires_grad": True})
    kinds = [(torch.optim.SGD, {"lr": 0.5}), (Ascent, {"lr": 0.5})] * 3  # the engine's, and one of Python's
    problems = []
    together = threading.Barrier(len(kinds), timeout=PATIENCE_S)

    def work(number):
        try:
            optimizer = DistributedOptimizer(kinds[number][0], [target], **kinds[number][1])
            together.wait()
            for _ in range(4):
                with autograd.context() as context:
                    autograd.backward(context, [(target.to_here() * float(1 << number)).sum()])
                    optimizer.step(context)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert problems == []
    moved = sum((4 * 0.5 * (1 << number)) * (-1 if number % 2 == 0 else 1) for number in range(len(kinds)))
    assert torch.equal(rpc.rpc_sync("worker1", value_of, (target,)), start + moved)


def a_graph_that_is_kept_can_be_passed_again():
    x = torch.ones(3, requires_grad=True)
    with autograd.context() as context:
        loss = rpc.rpc_sync("worker1", scaled, (x,)).sum()
        autograd.backward(context, [loss], retain_graph=True)
        autograd.backward(context, loss)
        assert torch.equal(autograd.get_gradients(context)[x], torch.full((3,), 4.0))


def a_reference_runs_a_backward_pass_on_its_owner():
    x = torch.ones(3, requires_grad=True)
    with autograd.context() as context:
        loss = rpc.remote("worker2", torch.sum, (rpc.rpc_sync("worker1", scaled, (x,)),))
        loss.backward(context)
        assert torch.equal(autograd.get_gradients(context)[x], torch.full((3,), 2.0))
    own = rpc.RRef((x * 3).sum())
    own.backward()
    assert torch.equal(x.grad, torch.full((3,), 3.0))


def a_backward_pass_that_cannot_run_says_why():
    x = torch.ones(3, requires_grad=True)
    with autograd.context() as context:
        y = rpc.rpc_sync("worker1", scaled, (x,))
        for roots, word in (([y], "one|scalar"), ([torch.ones(())], "grad"), ([], "root")):
            with pytest.raises(pipewright.UsageError, match=word):
                autograd.backward(context, roots)
        with pytest.raises(pipewright.UsageError, match="fast, smart, auto"):
            autograd.backward(context, [y.sum()], mode="clever")
        broken = rpc.rpc_sync("worker1", Broken.apply, (x,))
        with pytest.raises(rpc.RemoteError, match="no gradient today") as raised:
            autograd.backward(context, [broken.sum()])
        assert raised.value.worker == "worker1"
    for use in (lambda: autograd.backward(context, [y.sum()]), lambda: autograd.get_gradients(context)):
        with pytest.raises(pipewright.UsageError, match="not open"):
            use()


def a_call_cannot_end_the_worker_that_runs_it():
    with pytest.raises(pipewright.UsageError, match="shutdown"):
        rpc.rpc_sync("worker1", try_shutdown)
    with pytest.raises(pipewright.UsageError, match="shutdown"):
        rpc.rpc_async("worker1", int).then(lambda done: rpc.shutdown()).wait()


CHECKS = {
    each.__name__: each
    for each in (
        an_exception_has_its_type_text_and_worker,
        an_exception_of_a_nested_call_names_the_worker_that_raised_it,
        an_exception_of_an_unknown_type_is_a_remote_error_with_its_name,
        what_cannot_be_pickled_is_refused_on_either_side,
        objects_come_back_as_they_were,
        a_worker_is_called_by_name_rank_or_info,
        a_late_result_ends_the_call_with_the_worker_named,
        a_reference_knows_its_owner_and_its_value,
        methods_run_on_the_owner,
        a_user_hands_a_reference_on_and_its_value_stays,
        calls_nest_deeper_than_there_are_places,
        async_functions_hold_no_place_while_they_wait,
        futures_have_values_callbacks_and_exceptions,
        tensors_need_gradients_there_as_here,
        a_parameter_that_is_an_argument_gets_its_gradient,
        contexts_of_several_threads_keep_their_gradients_apart,
        steps_of_several_optimizers_on_one_parameter_all_count,
        a_graph_that_is_kept_can_be_passed_again,
        a_reference_runs_a_backward_pass_on_its_owner,
        a_backward_pass_that_cannot_run_says_why,
        a_call_cannot_end_the_worker_that_runs_it,
        nothing_stays_when_nobody_has_a_reference,
    )
}
