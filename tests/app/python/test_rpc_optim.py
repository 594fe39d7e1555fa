"""Distributed optimizers take the steps of torch.optim in one process."""

import pytest

torch = pytest.importorskip("torch", reason="remote calls need torch")

import rpc_workers  # noqa: E402

STEPS = 3
CHOICES = {
    "sgd": (torch.optim.SGD, (), {"lr": 0.05}),
    "sgd with its default rate": (torch.optim.SGD, (), {}),
    "sgd with momentum": (torch.optim.SGD, (0.1,), {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd with dampening": (torch.optim.SGD, (), {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    "adam": (torch.optim.Adam, (), {"lr": 0.02, "betas": (0.8, 0.99)}),
    "amsgrad": (torch.optim.Adam, (), {"lr": 0.02, "amsgrad": True}),
    "adamw with its default decay": (torch.optim.AdamW, (), {"lr": 0.02}),
    "rmsprop": (torch.optim.RMSprop, (), {"lr": 0.01, "alpha": 0.9, "momentum": 0.5}),
    "adagrad": (torch.optim.Adagrad, (), {"lr": 0.1}),
}
ENGINES_OWN = {"sgd", "sgd with its default rate", "sgd with momentum", "adam", "adamw with its default decay", "rmsprop"}


def start(number):
    return torch.rand(3, generator=torch.Generator().manual_seed(number)).requires_grad_()


def loss_of(first, second):
    return (first * second.square()).sum() + first.exp().sum()


def values(reference):
    value = reference.local_value()
    return value.detach().clone(), value.grad


def own_gradient(reference):
    reference.local_value().grad = torch.full((3,), 7.0)


def optimize(rank, world_size):
    from pipewright import autograd, optim, rpc

    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    results = {}
    for name, (kind, args, kwargs) in CHOICES.items() if rank == 0 else ():
        references = [rpc.RRef(start(0)), rpc.remote("worker1", start, (1,)), rpc.remote("worker1", start, (2,))]
        rpc.rpc_sync("worker1", own_gradient, (references[1],))
        optimizer = optim.DistributedOptimizer(kind, [*references, references[1]], *args, **kwargs)
        for _ in range(STEPS):
            with autograd.context() as context:
                autograd.backward(context, [loss_of(references[0].to_here(), references[1].to_here())])
                optimizer.step(context)
        results[name] = [rpc.rpc_sync(each.owner(), values, (each,)) for each in references], optimizer._engine is not None
    if rank == 0:
        weight = rpc.RRef(table())
        optimizer = optim.DistributedOptimizer(torch.optim.SGD, [weight], lr=0.1, momentum=0.9)
        for _ in range(STEPS):
            with autograd.context() as context:
                autograd.backward(context, [loss_of_rows(weight.local_value(), sparse=True)])
                optimizer.step(context)
        results["sparse"] = weight.local_value().detach(), optimizer._engine is not None
    rpc.shutdown()
    return results


def table():
    return torch.rand((5, 2), generator=torch.Generator().manual_seed(3)).requires_grad_()


def loss_of_rows(weight, sparse):
    return torch.nn.functional.embedding(torch.tensor([1, 3, 1]), weight, sparse=sparse).square().sum()


@pytest.fixture(scope="module")
def optimized(tmp_path_factory):
    return rpc_workers.run(tmp_path_factory.mktemp("optimizers"), optimize, 2)[0]


@pytest.mark.parametrize("name", CHOICES)
def test_steps_are_those_of_one_process(optimized, name):
    kind, args, kwargs = CHOICES[name]
    first, second, unused = start(0), start(1), start(2)
    optimizer = kind([first, second, unused], *args, **kwargs)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(first, second).backward()
        optimizer.step()
    found, by_engine = optimized[name]
    for (value, _), expected in zip(found, (first, second, unused), strict=True):
        torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=1e-7)
    assert by_engine == (name in ENGINES_OWN)


@pytest.mark.parametrize("name", CHOICES)
def test_a_parameters_own_gradient_stays_as_it_is(optimized, name):
    (_, none), (_, seven), _ = optimized[name][0]
    assert none is None and torch.equal(seven, torch.full((3,), 7.0))


def test_sparse_gradients_of_an_embedding_count_as_dense_ones(optimized):
    weight = table()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of_rows(weight, sparse=False).backward()
        optimizer.step()
    found, by_engine = optimized["sparse"]
    torch.testing.assert_close(found, weight.detach(), rtol=1e-6, atol=1e-7)
    assert by_engine
