"""Networks in plain torch: recurrent, convolutional, attention, diffusion, graphs, operators on functions."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from catalogue import model


def stack(*sizes, activation=nn.Tanh):
    layers = []
    for first, second in zip(sizes, sizes[1:]):
        layers += [nn.Linear(first, second), activation()]
    return nn.Sequential(*layers[:-1])


@model("torch", quick=True)
def mlp(batch=2):
    return stack(8, 16, 16, 16, 4), (torch.randn(batch, 8),)


class Recurrent(nn.Module):
    def __init__(self, cell, batch_first=True):
        super().__init__()
        self.embed, self.cell = nn.Linear(6, 8), cell(8, 8, num_layers=2, batch_first=batch_first)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cell(self.embed(x))[0])


@model("torch", quick=True)
def lstm(batch=2):
    return Recurrent(nn.LSTM), {"x": torch.randn(batch, 5, 6)}


@model("torch")
def gru(batch=2):
    return Recurrent(nn.GRU), {"x": torch.randn(batch, 5, 6)}


@model("torch", options=("--batch-dim", "x=1"), batch_dims={"x": 1, "target": 1})
def lstm_time_first(batch=2):
    return Recurrent(nn.LSTM, batch_first=False), {"x": torch.randn(5, batch, 6)}


@model("torch")
def transformer_encoder(batch=2):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), (torch.randn(batch, 5, 16),)


@model("torch", options=("--batch-dim", "source=1", "--batch-dim", "target_=1"), batch_dims={"source": 1, "target_": 1, "target": 1})
def transformer_time_first(batch=2):
    class Translate(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0)

        def forward(self, source, target_):
            return self.net(source, target_)

    return Translate(), {"source": torch.randn(5, batch, 16), "target_": torch.randn(4, batch, 16)}


@model("torch")
def seq2seq(batch=2):
    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.net, self.head = nn.Embedding(20, 16), nn.Transformer(16, 2, 2, 2, 32, dropout=0.0, batch_first=True), nn.Linear(16, 20)

        def forward(self, source, decoded):
            mask = nn.Transformer.generate_square_subsequent_mask(decoded.shape[1])
            return self.head(self.net(self.embed(source), self.embed(decoded), tgt_mask=mask, tgt_is_causal=True))

    return Seq2Seq(), {"source": torch.randint(0, 20, (batch, 6)), "decoded": torch.randint(0, 20, (batch, 4))}


def wave_embedding(t, width):
    frequencies = torch.exp(-math.log(1000.0) * torch.arange(width // 2) / (width // 2))
    angles = t[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)


class ResBlock(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, 2 * outside)
        self.norm2, self.conv2 = nn.GroupNorm(2, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, 1)
        return self.skip(x) + self.conv2(F.silu(self.norm2(h) * (1 + scale) + shift))


class SpatialAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(2, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, c, h * w).transpose(2, 3).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, c, h, w))


@model("torch")
def diffusion_unet(batch=2):
    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = stack(16, 32, 32, activation=nn.SiLU)
            self.enter = nn.Conv2d(3, 8, 3, padding=1)
            self.down = nn.ModuleList([ResBlock(8, 8, 32), ResBlock(8, 16, 32)])
            self.shrink = nn.ModuleList([nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)])
            self.middle, self.attention = ResBlock(16, 16, 32), SpatialAttention(16)
            self.up = nn.ModuleList([ResBlock(32, 8, 32), ResBlock(16, 8, 32)])
            self.leave = nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1))

        def forward(self, x, t):
            t = self.time(wave_embedding(t, 16))
            x, kept = self.enter(x), []
            for block, shrink in zip(self.down, self.shrink):
                x = block(x, t)
                kept.append(x)
                x = shrink(x)
            x = self.attention(self.middle(x, t))
            for block in self.up:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
                x = block(torch.cat([x, kept.pop()], 1), t)
            return self.leave(x)

    return Unet(), {"x": torch.randn(batch, 3, 16, 16), "t": torch.rand(batch)}


@model("torch")
def dit(batch=2):
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.mlp, self.modulate = stack(width, 2 * width, width, activation=nn.GELU), nn.Linear(width, 6 * width)

        def forward(self, x, c):
            shift1, scale1, gate1, shift2, scale2, gate2 = self.modulate(F.silu(c))[:, None].chunk(6, -1)
            h = self.norm1(x) * (1 + scale1) + shift1
            x = x + gate1 * self.attention(h, h, h, need_weights=False)[0]
            return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)

    class Dit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.time, self.label = nn.Conv2d(3, 16, 4, 4), stack(16, 16, 16, activation=nn.SiLU), nn.Embedding(5, 16)
            self.place = nn.Parameter(torch.randn(1, 16, 16) / 10)
            self.blocks = nn.ModuleList([Block(16) for _ in range(3)])
            self.out = nn.Linear(16, 48)

        def forward(self, x, t, y):
            c = self.time(wave_embedding(t, 16)) + self.label(y)
            h = self.patch(x).flatten(2).transpose(1, 2) + self.place
            for block in self.blocks:
                h = block(h, c)
            return self.out(h).view(-1, 4, 4, 4, 4, 3).permute(0, 5, 1, 3, 2, 4).reshape(-1, 3, 16, 16)

    return Dit(), {"x": torch.randn(batch, 3, 16, 16), "t": torch.rand(batch), "y": torch.randint(0, 5, (batch,))}


@model("torch")
def graph_convolution(batch=2):
    class Gcn(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)])

        def forward(self, nodes, edges):
            source, target = edges[..., 0], edges[..., 1]
            for layer in self.layers:
                sent = layer(nodes).gather(1, source[..., None].expand(-1, -1, layer.out_features))
                summed = torch.zeros(nodes.shape[0], nodes.shape[1], layer.out_features)
                nodes = torch.tanh(summed.scatter_add(1, target[..., None].expand_as(sent), sent))
            return nodes

    return Gcn(), {"nodes": torch.randn(batch, 7, 6), "edges": torch.randint(0, 7, (batch, 12, 2))}


@model("torch")
def graph_attention(batch=2):
    class Gat(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.source, self.target = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)
            self.head = nn.Linear(8, 3)

        def forward(self, nodes, adjacency):
            h = self.value(nodes)
            scores = F.leaky_relu(self.source(h) + self.target(h).transpose(1, 2))
            return self.head(F.elu(scores.masked_fill(~adjacency, -1e9).softmax(-1) @ h)).mean(1)

    return Gat(), {"nodes": torch.randn(batch, 7, 6), "adjacency": torch.rand(batch, 7, 7) > 0.5}


class SpectralConv(nn.Module):
    """Fourier layer; its weight is complex, or a real tensor viewed as complex."""

    def __init__(self, width, modes, is_complex):
        super().__init__()
        weight = torch.randn(width, width, modes, 2) / width
        self.weight = nn.Parameter(torch.view_as_complex(weight) if is_complex else weight)
        self.modes = modes

    def forward(self, x):
        weight = self.weight if self.weight.is_complex() else torch.view_as_complex(self.weight)
        low = torch.fft.rfft(x)[..., : self.modes]
        mixed = torch.einsum("bim,iom->bom", low, weight)
        return torch.fft.irfft(F.pad(mixed, (0, x.shape[-1] // 2 + 1 - self.modes)), n=x.shape[-1])


class Fno(nn.Module):
    def __init__(self, is_complex):
        super().__init__()
        self.enter, self.leave = nn.Conv1d(2, 8, 1), nn.Conv1d(8, 1, 1)
        self.spectral = nn.ModuleList([SpectralConv(8, 4, is_complex) for _ in range(2)])
        self.local = nn.ModuleList([nn.Conv1d(8, 8, 1) for _ in range(2)])

    def forward(self, x):
        x = self.enter(x)
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.leave(x)


@model("torch")
def fno(batch=2):
    return Fno(False), (torch.randn(batch, 2, 16),)


@model("torch")
def fno_complex(batch=2):
    return Fno(True), (torch.randn(batch, 2, 16),)


@model("torch", loss="cross_entropy")
def residual_batch_norm(batch=2):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)) for _ in range(2))

        def forward(self, x):
            return F.relu_(x + self.b(F.relu_(self.a(x))))

    return nn.Sequential(nn.Conv2d(3, 8, 3), Block(), Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), (torch.randn(batch, 3, 10, 10),)


@model("torch")
def instance_norm(batch=2):
    norm = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.SiLU(), nn.Conv2d(8, 4, 3), nn.Tanh()), (torch.randn(batch, 3, 10, 10),)


@model("torch", loss="cross_entropy")
def tied_language_model(batch=2):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.head = nn.Embedding(30, 16), stack(16, 32, 16), nn.Linear(16, 30, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.body(self.embed(tokens)))

    return Tied(), (torch.randint(0, 30, (batch, 6)),)


@model("torch")
def mlp_mixer(batch=2):
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.channels, self.norm1, self.norm2 = stack(6, 12, 6), stack(8, 16, 8), nn.LayerNorm(8), nn.LayerNorm(8)

        def forward(self, x):
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    return nn.Sequential(Mixer(), Mixer()), (torch.randn(batch, 6, 8),)


@model("torch")
def wavenet(batch=2):
    class Wavenet(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv1d(1, 8, 1)
            self.layers = nn.ModuleList([nn.Conv1d(8, 16, 2, dilation=d) for d in (1, 2, 4)])
            self.out = nn.Conv1d(8, 2, 1)

        def forward(self, x):
            x = self.enter(x)
            for layer in self.layers:
                a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
                x = x + torch.tanh(a) * torch.sigmoid(b)
            return self.out(x)

    return Wavenet(), (torch.randn(batch, 1, 20),)


@model("torch")
def selective_scan(batch=2):
    class Scan(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.gate, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)
            self.decay = nn.Parameter(torch.rand(8))

        def forward(self, x):
            state, states = torch.zeros(x.shape[0], 8), []
            for t in range(x.shape[1]):
                step = F.softplus(self.gate(x[:, t]))
                state = torch.exp(-step * self.decay) * state + step * self.enter(x[:, t])
                states.append(state)
            return self.out(torch.stack(states, 1))

    return Scan(), (torch.randn(batch, 6, 4),)


@model("torch")
def neural_ode(batch=2):
    class Ode(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate, self.head = stack(4, 16, 4), nn.Linear(4, 2)

        def forward(self, y):
            for _ in range(3):
                a = self.rate(y)
                b = self.rate(y + a / 4)
                c = self.rate(y + b / 4)
                y = y + (a + 2 * b + 2 * c + self.rate(y + c / 2)) / 12
            return self.head(y)

    return Ode(), (torch.randn(batch, 4),)


@model("torch")
def point_net(batch=2):
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.point, self.head = stack(3, 16, 16), stack(16, 16, 5)

        def forward(self, points):
            return self.head(self.point(points).amax(1))

    return PointNet(), (torch.randn(batch, 9, 3),)


@model("torch")
def recommender(batch=2):
    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList([nn.EmbeddingBag(20, 8, mode="sum") for _ in range(2)])
            self.dense, self.top = stack(5, 16, 8), stack(11, 16, 1)

        def forward(self, dense, sparse):
            parts = torch.stack([self.dense(dense)] + [table(sparse[:, i]) for i, table in enumerate(self.tables)], 1)
            pairs = (parts @ parts.transpose(1, 2))[:, [0, 0, 1], [1, 2, 2]]
            return self.top(torch.cat([parts[:, 0], pairs], 1))

    return Dlrm(), {"dense": torch.randn(batch, 5), "sparse": torch.randint(0, 20, (batch, 2, 3))}
