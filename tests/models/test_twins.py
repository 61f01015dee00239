"""HED and BDCN against slow, obvious twins in the terms of their papers."""

import torch
import torch.nn.functional as F
from torch import nn

from knifeedge.models import create_model
from knifeedge.models.geometry import bilinear_kernel

# The crop offsets of HED's caffe model for strides 2 to 16, and of BDCN's five stages.
HED_CROPS = {2: 1, 4: 2, 8: 4, 16: 8}
BDCN_CROPS = (0, 1, 2, 4, 0)
MARGIN = 16  # the twins fade to 0 this close to the border


def lively(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = create_model(name).double().eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
            nn.init.normal_(module.bias, std=0.1)
    return model


def compare(got: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    inside = slice(MARGIN, -MARGIN)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a[..., inside, inside], b[..., inside, inside])


def pool(x: torch.Tensor, stride: int = 2) -> torch.Tensor:
    return F.max_pool2d(x, 2, stride=stride, ceil_mode=True)


@torch.no_grad()
def test_hed():
    model = lively("hed")
    images = torch.randn(1, 3, 80, 96, dtype=torch.float64)
    x, sides, stride = images, [], 1
    for stage, score in zip(model.trunk, model.scores, strict=True):
        for conv in stage.convs:
            x = F.conv2d(x, conv.weight, conv.bias, padding=1).relu()
        side = score(x)
        if stride > 1:
            kernel = bilinear_kernel(stride).double()[None, None]
            crop = HED_CROPS[stride]
            side = F.conv_transpose2d(side, kernel, stride=stride)[..., crop:, crop:]
        sides.append(side[..., :80, :96])
        x, stride = pool(x), stride * 2
    compare(model(images), [*sides, model.fuse(torch.cat(sides, dim=1))])


@torch.no_grad()
def test_bdcn():
    model = lively("bdcn")
    images = torch.randn(1, 3, 80, 96, dtype=torch.float64)
    x, maps = images, []
    for i, (trunk, stage) in enumerate(zip(model.trunk, model.stages, strict=True)):
        if i:
            x = pool(x, 1 if i == 4 else 2)
        total = 0
        for conv, enhance, reduce in zip(trunk.convs, stage.enhance, stage.reduce, strict=True):
            dilation = 2 if i == 4 else 1
            x = F.conv2d(x, conv.weight, conv.bias, padding=dilation, dilation=dilation).relu()
            first = enhance.conv(x).relu()
            parts = [
                F.conv2d(first, c.weight, c.bias, padding=d, dilation=d).relu()
                for c, d in zip(enhance.dilated, (4, 8, 12), strict=True)
            ]
            total = total + reduce(first + sum(parts))
        pair = []
        for score in stage.score(total).split(1, dim=1):
            if stage.up is not None:
                stride, crop = stage.up.stride[0], BDCN_CROPS[i]
                score = F.conv_transpose2d(score, stage.up.weight, stride=stride)
                score = score[..., crop:, crop:]
            pair.append(score[..., :80, :96])
        maps.append(pair)
    down, up = zip(*maps, strict=True)
    sides = [sum(down[: i + 1]) for i in range(5)] + [sum(up[i:]) for i in range(5)]
    compare(model(images), [*sides, model.fuse(torch.cat(sides, dim=1))])


def test_bdcn_cascades_pass_gradients_to_their_own_stage_alone():
    model = lively("bdcn")
    images = torch.randn(1, 3, 40, 40, dtype=torch.float64)
    outputs = model(images)
    for index in range(10):
        grads = torch.autograd.grad(
            outputs[index].sum(),
            [stage.score.weight for stage in model.stages],
            retain_graph=True,
            allow_unused=True,
        )
        reached = [i for i, g in enumerate(grads) if g is not None and g.any()]
        assert reached == [index % 5]


def test_bdcn_starts_as_in_the_paper():
    torch.manual_seed(0)
    model = create_model("bdcn", side_channels=21)
    convs = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    heads = {model.fuse, *model.heads}
    for conv in convs:
        assert not conv.bias.any()
        if conv in heads:
            assert (conv.weight == 0.08).all()
        else:
            assert abs(conv.weight.std() - 0.01) < 2e-3
    up = model.stages[2].up.weight
    assert torch.equal(up[3, 3], bilinear_kernel(4))
    assert not up[3, 4].any()
