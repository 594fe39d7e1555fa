"""How waits and workers end: Ctrl-C, workers that die, processes that are no workers."""

import logging
import os
import signal
import socket
import threading
import types

import pytest

torch = pytest.importorskip("torch", reason="remote calls need torch")

import rpc_workers  # noqa: E402

from pipewright import Error, UsageError, _pipewright_torch, _remote_job, _trainer, autograd, futures, rpc  # noqa: E402

released = threading.Event()


def interrupt():
    """As Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


def hold():
    """Has the caller interrupted, then waits until it says so."""
    rpc.rpc_sync("worker0", interrupt)
    assert released.wait(rpc_workers.DEADLINE_S)


def release():
    released.set()


class Holding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        hold()
        return gradient


def is_interrupted(wait):
    try:
        wait()
    except KeyboardInterrupt:
        return True
    return False


def interrupt_waits(rank, world_size):
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    found = {}
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        found["call"] = is_interrupted(lambda: rpc.rpc_sync("worker1", hold))
        found["reference"] = is_interrupted(lambda: rpc.remote("worker1", hold).to_here())
        with autograd.context() as context:
            loss = rpc.rpc_sync("worker1", Holding.apply, (torch.ones((), requires_grad=True),))
            found["backward"] = is_interrupted(lambda: autograd.backward(context, [loss]))
        rpc.rpc_sync("worker1", release)
        found["after"] = rpc.rpc_sync("worker1", int, ("7",))
    rpc.shutdown()
    return found


def test_an_interrupt_ends_each_wait_and_the_worker_goes_on(tmp_path):
    found = rpc_workers.run(tmp_path, interrupt_waits, 2)[0]
    assert found == {"call": True, "reference": True, "backward": True, "after": 7}


def interrupt_shutdown(rank, world_size):
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        rpc.rpc_async("worker1", hold)
        return is_interrupted(rpc.shutdown), is_no_worker()
    release_after_loss = threading.Thread(target=wait_for_loss)
    release_after_loss.start()
    with pytest.raises(Error, match="worker0"):
        rpc.shutdown()
    release_after_loss.join()
    return is_no_worker()


def wait_for_loss():
    """Until calls of worker 0 end with an error."""
    while not released.is_set():
        try:
            rpc.rpc_sync("worker0", int)
        except Error as error:
            print(f"lost: {error}", flush=True)  # of interest where the test fails
            release()


def is_no_worker():
    try:
        rpc.get_worker_info()
    except UsageError as error:
        return "init_rpc" in str(error)
    return False


def test_an_interrupt_ends_a_shutdown_and_the_others_hear_of_it(tmp_path):
    assert rpc_workers.run(tmp_path, interrupt_shutdown, 2) == [(True, True), True]


def interrupt_start(rank, world_size):
    """Alone where two are to come: rank 0 is interrupted when it serves the meeting, rank 1 when it has found somebody who does not answer."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt_server():
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))).close()
                return interrupt()
            except OSError:
                continue

    threading.Thread(target=interrupt_server, daemon=True).start()
    found = is_interrupted(lambda: rpc.init_rpc("worker0", rank=0, world_size=2)), is_no_worker()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.environ.update(RANK="1", WORLD_SIZE="2", MASTER_PORT=str(listener.getsockname()[1]))
        accepted = []

        def interrupt_visitor():
            accepted.append(listener.accept())
            interrupt()

        threading.Thread(target=interrupt_visitor, daemon=True).start()
        return *found, is_interrupted(lambda: _pipewright_torch.join_job(rpc_workers.DEADLINE_S))


def test_an_interrupt_ends_the_wait_for_the_others_of_calls_and_of_a_training(tmp_path):
    assert rpc_workers.run(tmp_path, interrupt_start, 1) == [(True, True, True)]


class Logged(logging.Handler):
    def __init__(self):
        super().__init__()
        self.came, self.raised = threading.Event(), None

    def emit(self, record):
        self.raised = record.exc_info[0]
        self.came.set()


def leave_with_callbacks(rank, world_size):
    """What a callback raises is logged; what waits for one that is not called any more ends with an error."""
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=33)
    rpc.init_rpc(f"worker{rank}", rpc.BackendType.TENSORPIPE, rank=rank, world_size=world_size, rpc_backend_options=options)
    assert rpc.get_rpc_timeout() == 33
    logged = Logged()
    logging.getLogger("pipewright").addHandler(logged)
    early = futures.Future()
    early.add_done_callback(lambda done: 1 / 0)
    early.set_result(7)
    assert logged.came.wait(rpc_workers.DEADLINE_S) and logged.raised is ZeroDivisionError
    late = futures.Future()
    following = late.then(lambda done: done.wait())
    rpc.shutdown()
    late.set_result(7)
    with pytest.raises(Error, match="ended"):
        following.wait()
    return True


def test_what_a_callback_raises_is_logged_and_none_is_waited_for_after_the_end(tmp_path):
    assert rpc_workers.run(tmp_path, leave_with_callbacks, 1) == [True]


begun = threading.Event()


@rpc.functions.async_execution
def forsake():
    """Gives a future that nobody sets."""
    begun.set()
    return futures.Future()


def leave_forsaken(rank, world_size):
    """Two jobs: calls that wait in vain end with their caller's wait, and with the worker."""
    rpc.init_rpc("worker0", rank=0, world_size=1)
    with pytest.raises(Error, match="worker0"):
        rpc.rpc_sync("worker0", forsake, timeout=0.2)
    rpc.shutdown()  # waits for all calls
    begun.clear()
    rpc.init_rpc("worker0", rank=0, world_size=1)
    _kept = rpc.remote("worker0", forsake)
    assert begun.wait(rpc_workers.DEADLINE_S)
    rpc.shutdown(graceful=False)
    return is_no_worker()


def test_a_future_that_nobody_sets_keeps_no_worker_from_ending(tmp_path):
    assert rpc_workers.run(tmp_path, leave_forsaken, 1) == [True]


class Slow:
    """Goes only when the worker hears `release`."""

    def __del__(self):
        was_released.append(released.wait(rpc_workers.DEADLINE_S / 4))
        gone.set()


was_released, gone = [], threading.Event()


def how_it_went():
    assert gone.wait(rpc_workers.DEADLINE_S / 2)
    return was_released


def drop_slowly(rank, world_size):
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    found = None
    if rank == 0:
        slow = rpc.remote("worker1", Slow)
        rpc.rpc_sync("worker1", rpc.RRef.is_owner, (slow,))
        del slow
        rpc.rpc_sync("worker1", release)
        found = rpc.rpc_sync("worker1", how_it_went)
    rpc.shutdown()
    return found


def test_a_value_that_goes_slowly_holds_no_message_up(tmp_path):
    assert rpc_workers.run(tmp_path, drop_slowly, 2)[0] == [True]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def begin_late(rank, world_size):
    """Worker 1 is made only after a call has come to it."""
    came = threading.Event()
    begin, wait_for_begin = _remote_job.begin, _remote_job.wait_for_begin
    if rank == 1:
        _remote_job.wait_for_begin = lambda: (came.set(), wait_for_begin())
        _remote_job.begin = lambda *started: (came.wait(rpc_workers.DEADLINE_S), begin(*started))
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    found = rpc.rpc_sync("worker1", rpc.get_worker_info).name if rank == 0 else came.is_set()
    rpc.shutdown()
    return found


def test_a_call_that_comes_before_the_worker_is_made_waits_for_it(tmp_path):
    assert rpc_workers.run(tmp_path, begin_late, 2) == ["worker1", True]


def lose_a_worker(rank, world_size):
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    found = {}
    if rank == 0:
        with autograd.context() as context:
            loss = rpc.rpc_sync("worker2", torch.mul, (torch.ones((), requires_grad=True), 2))
            waiting = [rpc.rpc_async(to, function, args) for to, function, args in (("worker2", die, ()), ("worker1", through, ("worker2",)))]
            for name, wait in (
                ("call", waiting[0].wait),
                ("nested", waiting[1].wait),
                ("later", lambda: rpc.rpc_sync("worker2", int)),
                ("backward", lambda: autograd.backward(context, [loss])),
            ):
                with pytest.raises(Error) as raised:
                    wait()
                found[name] = "worker2" in str(raised.value)
        found["others"] = rpc.rpc_sync("worker1", int, ("7",))
    if rank < 2:
        with pytest.raises(Error, match="worker2"):
            rpc.shutdown()
    else:
        rpc.shutdown()
    return found


def through(to):
    """A call that cannot end but by the loss."""
    rpc.rpc_sync(to, wait_in_vain)


def wait_in_vain():
    threading.Event().wait(rpc_workers.DEADLINE_S)


def test_a_worker_that_dies_ends_what_waits_for_it_and_is_named(tmp_path):
    found = rpc_workers.run(tmp_path, lose_a_worker, 3)[0]
    assert found == {"call": True, "nested": True, "later": True, "backward": True, "others": 7}


def work_twice(rank, world_size):
    """One job after the other in the same processes, the second over Gloo."""
    sums = []
    for transport in ("ucx", "gloo"):
        rpc.init_rpc(f"worker{rank}", backend=transport, rank=rank, world_size=world_size)
        with pytest.raises(UsageError, match="already"):
            rpc.init_rpc("again", rank=0, world_size=1)
        sums.append(rpc.rpc_sync(1 - rank, torch.add, (torch.ones(2), 1)).sum().item())
        rpc.shutdown()
    return sums, is_no_worker()


def test_a_process_can_be_a_worker_of_one_job_after_the_other(tmp_path):
    assert rpc_workers.run(tmp_path, work_twice, 2) == [([4.0, 4.0], True)] * 2


def work_twice_under_an_agent(rank, world_size):
    """As torchrun has it, whose store outlives a job."""
    port = int(os.environ["MASTER_PORT"])
    store = torch.distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False) if rank == 0 else None
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    found = work_twice(rank, world_size)
    return found, store is not None


def test_a_process_of_torchrun_can_be_a_worker_of_one_job_after_the_other(tmp_path):
    found = rpc_workers.run(tmp_path, work_twice_under_an_agent, 2)
    assert [each for each, _ in found] == [([4.0, 4.0], True)] * 2


def test_names_are_imported_as_from_torch():
    from pipewright.rpc.functions import async_execution

    assert async_execution is rpc.functions.async_execution
    for name in ("BackendType", "is_available", "get_rpc_timeout"):
        assert hasattr(torch.distributed.rpc, name) and hasattr(rpc, name)
    assert rpc.is_available() and autograd.is_available()


def test_without_init_rpc_the_sentence_says_what_to_call():
    for use in (lambda: rpc.rpc_sync("worker1", int), lambda: rpc.RRef(1), autograd.context().__enter__, rpc.shutdown):
        with pytest.raises(UsageError, match="init_rpc"):
            use()


def test_options_that_mean_nothing_are_refused(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29999")
    with pytest.raises(UsageError, match="rank"):
        rpc.init_rpc("worker0")
    for options, word in (
        ({"transport": "pigeon"}, "ucx or gloo"),
        ({"transport": "nccl"}, "ucx or gloo"),
        ({"init_method": "file:///tmp/x"}, "tcp://"),
        ({"rpc_timeout": -3}, "timeout"),
    ):
        with pytest.raises(UsageError, match=word):
            rpc.init_rpc("worker0", rank=0, world_size=1, rpc_backend_options=rpc.RpcBackendOptions(**options))


def test_a_meeting_place_that_a_trainer_keeps_is_refused_at_once(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(_trainer, "_joined", [types.SimpleNamespace(size=2)])
    with pytest.raises(UsageError, match="tcp://host:port"):
        rpc.init_rpc("worker0", rank=0, world_size=2)


def run_forked(rank, world_size):
    rpc.init_rpc("worker0", rank=0, world_size=1)
    child = os.fork()
    if child == 0:
        try:
            rpc.rpc_sync("worker0", int)
        except UsageError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    rpc.shutdown()
    return status


def test_a_process_that_a_worker_forked_is_no_worker(tmp_path):
    assert rpc_workers.run(tmp_path, run_forked, 1) == [0]


def end_without_shutdown(rank, world_size):
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    if rank == 0:
        rpc.shutdown(graceful=False)
        return True
    with pytest.raises(Error, match="worker0"):
        rpc.shutdown()
    return True


def test_a_worker_that_leaves_at_once_is_named_by_the_others(tmp_path):
    assert rpc_workers.run(tmp_path, end_without_shutdown, 2) == [True, True]
