"""Sample models for `export_model.py`, the tests and the benches.

Every function returns `(model, example_inputs)`: a fresh `torch.nn.Module` with random weights drawn from
torch's global generator (seed it first) and a tuple or dict of example tensors, batch first, batch size 2.
Hugging Face and torchvision are imported only by the functions that need them (requirements-samples.txt).
"""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal self-attention, [batch, length, width] to the same shape."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    """Two linear layers with GELU between, four times as wide inside."""

    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """Decoder-only GPT: token ids int64 [batch, length] to logits [batch, length, vocabulary].

    `split_before` names blocks before which a `pipe_split()` marker is traced. No dropout, head not tied.
    """

    def __init__(self, vocabulary, length, width, layers, heads, split_before=()):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.split_before = tuple(split_before)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.position(positions)
        for index, block in enumerate(self.blocks):
            if index in self.split_before:
                pipe_split()
            x = block(x)
        return self.head(self.norm(x))


def pipe_split():
    """Puts torch's own stage marker (`pippy::_pipe_split`) into the trace."""
    from torch.distributed.pipelining import pipe_split as mark

    mark()


def token_ids(vocabulary, length, batch=2):
    """Random token ids, int64 [batch, length]."""
    return torch.randint(0, vocabulary, (batch, length))


def gpt_small():
    """4-layer GPT of width 64 (0.2 million parameters) for tests."""
    return Gpt(vocabulary=256, length=32, width=64, layers=4, heads=4), {"tokens": token_ids(256, 32)}


def gpt_25m(length=128):
    """8-layer GPT of width 384 (20.5 million parameters) for benches; `length` is the sequence length."""
    model = Gpt(vocabulary=8192, length=length, width=384, layers=8, heads=6)
    return model, {"tokens": token_ids(8192, length)}


def gpt_1b(length=1024):
    """18-layer GPT of width 2048 (1.04 billion parameters); export it with --meta, as its weights take 4 GB."""
    model = Gpt(vocabulary=32768, length=length, width=2048, layers=18, heads=16)
    return model, {"tokens": token_ids(32768, length)}


def gpt_split():
    """4-layer GPT of width 32 with a `pipe_split()` mark between `blocks.1` and `blocks.2`."""
    model = Gpt(vocabulary=256, length=32, width=32, layers=4, heads=4, split_before=(2,))
    return model, {"tokens": token_ids(256, 32)}


def hf_gpt2():
    """Hugging Face GPT-2: dropout 0.1, head tied to the embedding, returns logits."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=3, n_head=4, use_cache=False,
                        bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
    return GPT2LMHeadModel(config), {"input_ids": token_ids(256, 32)}


def hf_llama():
    """Hugging Face Llama with grouped key/value heads; takes labels, returns its own loss and logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=160, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
                         use_cache=False, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")
    return LlamaForCausalLM(config), {"input_ids": token_ids(256, 32), "labels": token_ids(256, 32)}


def hf_bert():
    """Hugging Face BERT sequence classifier, 3 classes, dropout 0.1, with an attention mask."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=256, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                        intermediate_size=256, max_position_embeddings=32, num_labels=3, use_cache=False,
                        attn_implementation="sdpa")
    mask = torch.ones(2, 32, dtype=torch.int64)
    mask[1, 24:] = 0
    return BertForSequenceClassification(config), {"input_ids": token_ids(256, 32), "attention_mask": mask}


def resnet18_narrow():
    """torchvision's ResNet-18 with an eighth of the width, for 32x32 images and 10 classes.

    Batch norm and in-place ReLU are kept; the first convolution is 3x3 with stride 1 as for small images.
    """
    from torchvision.models.resnet import BasicBlock, ResNet

    class NarrowResNet(ResNet):
        def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
            if planes == 64:
                self.inplanes = 8
            return super()._make_layer(block, planes // 8, blocks, stride, dilate)

    model = NarrowResNet(BasicBlock, [2, 2, 2, 2], num_classes=10)
    model.conv1 = nn.Conv2d(3, 8, kernel_size=3, padding=1, bias=False)
    model.bn1 = nn.BatchNorm2d(8)
    model.fc = nn.Linear(64, 10)
    return model, {"x": torch.randn(2, 3, 32, 32)}


def vit_small():
    """torchvision's VisionTransformer, 4 layers of width 64, 32x32 images in 8x8 patches, no dropout."""
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(image_size=32, patch_size=8, num_layers=4, num_heads=4, hidden_dim=64,
                              mlp_dim=128, num_classes=10, dropout=0.0, attention_dropout=0.0)
    nn.init.normal_(model.heads.head.weight, std=0.1)  # zero in torchvision: every other gradient would be 0
    return model, {"x": torch.randn(2, 3, 32, 32)}


class ExampleCode(nn.Module):
    """Three stages by `pipe_split()` with a value that skips the middle stage; float32 [batch, 512]."""

    def __init__(self):
        super().__init__()
        self.mm_param = nn.Parameter(torch.randn(512, 512) / 512**0.5)
        self.mm_param2 = nn.Parameter(torch.randn(512, 512) / 512**0.5)
        self.lin = nn.Linear(512, 512)

    def forward(self, x):
        x = x @ self.mm_param
        skip = x
        x = torch.relu(x)
        pipe_split()
        x = self.lin(x @ self.mm_param)
        pipe_split()
        x = torch.relu(x) + skip
        x = self.lin(x @ self.mm_param2)
        return x


def example_code():
    """`ExampleCode`: `mm_param` and `lin` are each used by two stages."""
    return ExampleCode(), {"x": torch.randn(2, 512)}


class PartA(nn.Module):
    """First half of a model exported as two archives: token ids to hidden values [batch, length, 32]."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.block = Block(32, 2)

    def forward(self, tokens):
        return self.block(self.embed(tokens))


class PartB(nn.Module):
    """Second half: hidden values [batch, length, 32] to logits [batch, length, 64]."""

    def __init__(self):
        super().__init__()
        self.block = Block(32, 2)
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 64)

    def forward(self, hidden):
        return self.head(self.norm(self.block(hidden)))


def two_part_a():
    """Embedding and block; its output is the input of `two_part_b`."""
    return PartA(), {"tokens": token_ids(64, 16)}


def two_part_b():
    """Block, norm and head, fed by `two_part_a`."""
    return PartB(), {"hidden": torch.randn(2, 16, 32)}
