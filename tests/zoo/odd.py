"""Models with what torch.export and pipelines find hard: parametrisations, custom functions, hooks, control flow, inputs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils import checkpoint

from catalogue import model


class Body(nn.Module):
    """Four linear layers; `between` is called with the state after the second."""

    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def between(self, x):
        return x

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if index == 1:
                x = self.between(x)
        return x


@model("torch", quick=True)
def lora(batch=2):
    class Lora(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(2, base.in_features)), nn.Parameter(torch.zeros(base.out_features, 2))

        def forward(self, x):
            return self.base(x) + x @ self.a.t() @ self.b.t()

    body = Body()
    body.layers = nn.ModuleList([Lora(layer) for layer in body.layers])
    return body, (torch.randn(batch, 8),)


@model("torch", quick=True)
def weight_norm(batch=2):
    body = Body()
    for layer in body.layers:
        parametrizations.weight_norm(layer)
    return body, (torch.randn(batch, 8),)


@model("torch")
def spectral_norm(batch=2):
    body = Body()
    for layer in body.layers:
        parametrizations.spectral_norm(layer)
    return body, (torch.randn(batch, 8),)


@model("torch")
def orthogonal(batch=2):
    body = Body()
    parametrizations.orthogonal(body.layers[1], orthogonal_map="cayley")
    return body, (torch.randn(batch, 8),)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class Flip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@model("torch")
def function_with_its_derivative(batch=2):
    class Net(Body):
        def between(self, x):
            return Square.apply(x)

    return Net(), (torch.randn(batch, 8),)


@model("torch", quick=True, refused="torch.export does not keep the backward of the autograd.Function `Flip`")
def gradient_reversal(batch=2):
    class Net(Body):
        def between(self, x):
            return Flip.apply(x)

    return Net(), (torch.randn(batch, 8),)


@model("torch", refused="torch.export does not keep the hook that the model itself registers on a tensor")
def tensor_hook(batch=2):
    class Net(Body):
        def between(self, x):
            if x.requires_grad:
                x.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
            return x

    return Net(), (torch.randn(batch, 8),)


@model("torch", refused="torch.export does not keep the hook on this parameter")
def parameter_hook(batch=2):
    body = Body()
    body.layers[0].weight.register_hook(lambda g: g * (torch.arange(8) > 3))
    return body, (torch.randn(batch, 8),)


@model("torch", refused="torch.export does not keep the backward hook of module `layers.2`")
def module_backward_hook(batch=2):
    body = Body()
    body.layers[2].register_full_backward_hook(lambda module, inside, outside: tuple(g * 2 for g in inside))
    return body, (torch.randn(batch, 8),)


@model("torch")
def forward_hook(batch=2):
    body = Body()
    body.layers[2].register_forward_hook(lambda module, inputs, output: output * 2)
    return body, (torch.randn(batch, 8),)


@torch.library.custom_op("zoo::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_fake(lambda x: torch.empty_like(x))
cube.register_autograd(lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


@model("torch", refused="give the library that defines it with --load-library", measured=True)
def custom_operator(batch=2):
    class Net(Body):
        def between(self, x):
            return cube(x)

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def cond(batch=2):
    class Net(Body):
        def between(self, x):
            return torch.cond(x.sum() > 0, lambda y: torch.sin(y) * 2, lambda y: torch.cos(y), (x,))

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def cond_with_parameters(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

        def between(self, x):
            return torch.cond(x.mean() > 0, lambda y: self.left(y), lambda y: self.right(y), (x,))

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def while_loop(batch=2):
    class Net(Body):
        def between(self, x):
            from torch._higher_order_ops.while_loop import while_loop as loop

            steps = loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), (torch.tensor(0), x.detach()))[1]
            return x + steps

    return Net(), (torch.randn(batch, 8),)


@model("torch", quick=True)
def nested_inputs(batch=2):
    class Net(Body):
        def forward(self, batch):
            return super().forward(batch["x"] + batch["more"]["y"]) * batch["weight"]

    return Net(), {"batch": {"x": torch.randn(batch, 8), "more": {"y": torch.randn(batch, 8)}, "weight": torch.rand(batch, 1)}}


@model("torch")
def tuple_inputs(batch=2):
    class Net(Body):
        def forward(self, pair, scale):
            return super().forward(pair[0] - pair[1]) * scale

    return Net(), ((torch.randn(batch, 8), torch.randn(batch, 8)), torch.rand(batch, 1))


@model("torch", loss="output:loss", quick=True)
def own_loss(batch=2):
    class Net(Body):
        def forward(self, x, y):
            out = super().forward(x)
            return {"loss": F.mse_loss(out, y), "out": out}

    return Net(), {"x": torch.randn(batch, 8), "y": torch.randn(batch, 8)}


@model("torch", quick=True)
def complex_parameters(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

        def between(self, x):
            return torch.view_as_real(torch.view_as_complex(x.view(-1, 4, 2)) * self.turn).reshape(-1, 8)

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def experts_by_index(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)

        def forward(self, x):
            weights, chosen = self.gate(x).softmax(-1).max(-1)
            out = torch.zeros_like(x)
            for index, layer in enumerate(self.layers):
                rows = torch.where(chosen == index)[0]
                out = out.index_add(0, rows, layer(x[rows]) * weights[rows, None])
            return out

    return Net(), (torch.randn(batch, 8),)


@model("torch", quick=True)
def early_view_of_a_parameter(batch=2):
    """The view is made in the first stage and used in the last, so that it crosses between stages instead of the parameter."""

    class Net(Body):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.rand(8))

        def forward(self, x):
            scale = self.scale.float()[None]
            return super().forward(x) * scale

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def experts_dense(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)

        def forward(self, x):
            weights = self.gate(x).softmax(-1)
            return sum(weights[:, i : i + 1] * torch.tanh(layer(x)) for i, layer in enumerate(self.layers))

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def checkpointed(batch=2):
    class Net(Body):
        def forward(self, x):
            for layer in self.layers:
                x = checkpoint.checkpoint(lambda y, f=layer: torch.tanh(f(y)), x, use_reentrant=False)
            return x

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def straight_through(batch=2):
    class Net(Body):
        def between(self, x):
            return x + (torch.round(x * 4) / 4 - x).detach()

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def frozen_and_no_grad(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.layers[0].requires_grad_(False)
            self.target = nn.Linear(8, 8)

        def between(self, x):
            with torch.no_grad():
                guide = self.target(x)
            return x * torch.sigmoid(guide)

    return Net(), (torch.randn(batch, 8),)


@model("torch", quick=True)
def counter_buffer(batch=2):
    class Net(Body):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.register_buffer("mean", torch.zeros(8))

        def between(self, x):
            self.calls.add_(1)
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return (x - self.mean) * self.calls

    return Net(), (torch.randn(batch, 8),)


@model("torch")
def unused_parameter(batch=2):
    body = Body()
    body.extra = nn.Linear(3, 3)
    return body, (torch.randn(batch, 8),)


@model("torch", refused="depends on a tensor's value")
def python_branch(batch=2):
    class Net(Body):
        def between(self, x):
            return x * 2 if x.sum() > 0 else x

    return Net(), (torch.randn(batch, 8),)


@model("torch", refused="different results when called twice")
def python_counter(batch=2):
    class Net(Body):
        calls = 0

        def between(self, x):
            Net.calls += 1
            return x * Net.calls

    return Net(), (torch.randn(batch, 8),)


@model("torch", loss="output:loss")
def contrastive(batch=2):
    class Net(Body):
        def forward(self, x, y):
            a, b = F.normalize(super().forward(x), dim=-1), F.normalize(super().forward(y), dim=-1)
            return {"loss": F.cross_entropy(a @ b.t() * 5, torch.arange(a.shape[0]))}

    return Net(), {"x": torch.randn(batch, 8), "y": torch.randn(batch, 8)}


@model("torch")
def double_precision(batch=2):
    return Body().double(), (torch.randn(batch, 8, dtype=torch.float64),)
