"""Networks of torchvision, with few channels where their constructors allow it."""

import torch
from torch import nn

from catalogue import model


def image(batch, size=32):
    return {"x": torch.randn(batch, 3, size, size)}


def without_dropout(net):
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return net


def named(name, batch, size=32, **settings):
    import torchvision

    return without_dropout(getattr(torchvision.models, name)(weights=None, num_classes=5, **settings)), image(batch, size)


@model("torchvision", loss="cross_entropy")
def resnet(batch=2):
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5), image(batch)


@model("torchvision", loss="cross_entropy")
def resnet_group_norm(batch=2):
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=5, width_per_group=16, norm_layer=lambda c: nn.GroupNorm(4, c)), image(batch)


@model("torchvision", loss="cross_entropy")
def densenet(batch=2):
    from torchvision.models import DenseNet

    return DenseNet(growth_rate=4, block_config=(2, 2, 2, 2), num_init_features=8, num_classes=5), image(batch)


@model("torchvision", loss="cross_entropy")
def mobilenet_v3(batch=2):
    return named("mobilenet_v3_small", batch, width_mult=0.25)


@model("torchvision", loss="cross_entropy")
def shufflenet(batch=2):
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([1, 2, 1], [8, 16, 32, 64, 64], num_classes=5), image(batch)


@model("torchvision", loss="cross_entropy")
def squeezenet(batch=2):
    return named("squeezenet1_1", batch)


@model("torchvision", loss="cross_entropy")
def vgg(batch=2):
    from torchvision.models.vgg import VGG, make_layers

    net = VGG(make_layers([8, "M", 16, "M", 16, "M"], batch_norm=True), num_classes=5)
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)
    return net, image(batch)


@model("torchvision", loss="cross_entropy")
def swin(batch=2):
    from torchvision.models import SwinTransformer

    return (SwinTransformer(patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], stochastic_depth_prob=0.0, num_classes=5),
            image(batch))


@model("torchvision", loss="cross_entropy")
def torchvision_vit(batch=2):
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=5), image(batch)


@model("torchvision", loss="cross_entropy")
def efficientnet(batch=2):
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    settings = [MBConvConfig(1, 3, 1, 8, 8, 1, 1.0, 1.0), MBConvConfig(4, 3, 2, 8, 16, 2, 1.0, 1.0)]
    return EfficientNet(settings, dropout=0.0, stochastic_depth_prob=0.0, num_classes=5, last_channel=32), image(batch)


@model("torchvision", loss="cross_entropy")
def convnext(batch=2):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], stochastic_depth_prob=0.0, num_classes=5), image(batch)


@model("torchvision")
def segmentation(batch=2):
    """Two outputs in a dict; the first is trained."""
    from torchvision.models import ResNet
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.resnet import BasicBlock
    from torchvision.models.segmentation.fcn import FCN, FCNHead

    body = IntermediateLayerGetter(ResNet(BasicBlock, [1, 1, 1, 1]), {"layer4": "out", "layer3": "aux"})
    return without_dropout(FCN(body, FCNHead(512, 3), None)), {"x": torch.randn(batch, 3, 32, 32)}
