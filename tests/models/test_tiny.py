"""The small model: small, folded in evaluation, and able to learn on a CPU."""

import torch
import torch.nn.functional as F
from torch import nn

from knifeedge.models import create_model
from knifeedge.models.tiny import ConvNorm


def test_has_fewer_than_100_000_parameters():
    assert sum(p.numel() for p in create_model("tiny").parameters()) < 100_000


@torch.no_grad()
def test_evaluation_folds_the_norm_into_the_convolution():
    torch.manual_seed(0)
    layer = ConvNorm(4, 8, 3, stride=2, groups=2)
    nn.init.normal_(layer.norm.weight)
    nn.init.normal_(layer.norm.bias)
    for _ in range(3):
        layer(3 + 2 * torch.randn(4, 4, 9, 9))
    layer.eval()
    x = torch.randn(2, 4, 9, 11)
    torch.testing.assert_close(layer(x), layer.norm(layer.conv(x)))


@torch.no_grad()
def test_the_final_logit_lies_between_the_side_logits():
    torch.manual_seed(0)
    *sides, final = create_model("tiny").eval()(torch.randn(1, 3, 40, 40))
    sides = torch.cat(sides, dim=1)
    assert (final <= sides.amax(dim=1, keepdim=True) + 1e-6).all()
    assert (final >= sides.amin(dim=1, keepdim=True) - 1e-6).all()


def test_learns_two_images_by_heart():
    torch.manual_seed(0)
    y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    inside = torch.stack([(x - 30) ** 2 + (y - 34) ** 2 < 300, (x + y > 50) & (x < 45)])
    images = 0.8 * inside[:, None] + 0.3 * torch.randn(2, 3, 64, 64)
    grown = F.max_pool2d(inside[:, None].float(), 3, stride=1, padding=1)
    target = grown - inside[:, None].float()

    model = create_model("tiny")
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.binary_cross_entropy_with_logits(
            model(images)[-1], target, pos_weight=torch.tensor(10.0)
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    decided = model(images)[-1] > 0
    hits = (decided & (target > 0)).sum()
    f = 2 * hits / (decided.sum() + target.sum())
    assert f > 0.75
