"""Networks of timm, tiny."""

import torch

from catalogue import model


def image(batch, size=32):
    return {"x": torch.randn(batch, 3, size, size)}


def build(name, batch, size=32, **settings):
    import timm

    return timm.create_model(name, pretrained=False, num_classes=5, **settings), image(batch, size)


@model("timm", loss="cross_entropy")
def deit(batch=2):
    return build("deit_tiny_patch16_224", batch, img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)


@model("timm", loss="cross_entropy")
def timm_mixer(batch=2):
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=5, img_size=32, patch_size=8, num_blocks=2, embed_dim=16), image(batch)


@model("timm", loss="cross_entropy")
def resmlp(batch=2):
    from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock

    return MlpMixer(num_classes=5, img_size=32, patch_size=8, num_blocks=2, embed_dim=16, mlp_ratio=4, block_layer=ResBlock, norm_layer=Affine), image(batch)


@model("timm", loss="cross_entropy")
def convmixer(batch=2):
    from timm.models.convmixer import ConvMixer

    return ConvMixer(dim=16, depth=2, kernel_size=3, patch_size=4, num_classes=5), image(batch)


@model("timm", loss="cross_entropy")
def poolformer(batch=2):
    """In float64: its largest gradients are so much larger than their parameters that float32's rounding alone is more than 1e-6 of these."""
    from timm.models.metaformer import MetaFormer

    return MetaFormer(depths=(1, 1, 1, 1), dims=(8, 8, 16, 16), num_classes=5).double(), {"x": image(batch)["x"].double()}


@model("timm", loss="cross_entropy")
def timm_convnext(batch=2):
    return build("convnext_atto", batch, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16))


@model("timm", loss="cross_entropy")
def regnet(batch=2):
    return build("regnetx_002", batch)


@model("timm", loss="cross_entropy")
def cait(batch=2):
    return build("cait_xxs24_224", batch, img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)


@model("timm", loss="cross_entropy")
def xcit(batch=2):
    return build("xcit_nano_12_p16_224", batch, img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2)


@model("timm", loss="cross_entropy")
def mobilevit(batch=2):
    return build("mobilevitv2_050", batch, size=64)


@model("timm", loss="cross_entropy")
def eva(batch=2):
    """Rotary positions in two dimensions."""
    return build("eva02_tiny_patch14_224", batch, img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)
