"""Nothing is shifted: upsampling puts features back where they came from, to the pixel."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from knifeedge.models import create_model, model_names
from knifeedge.models.dexined import UpBlock
from knifeedge.models.geometry import (
    _bilinear,
    _grow_by_places,
    _resample,
    bilinear_kernel,
    double_cornered,
    grow,
    upsample_centred,
    upsample_cornered,
)
from knifeedge.models.selector import Selector


def ramp(values: torch.Tensor) -> torch.Tensor:
    """A map that rises along its width, and along its height the other way."""
    values = values.float()
    return torch.stack([values.expand(len(values), -1), -values.expand(len(values), -1).T])[None]


@pytest.mark.parametrize("factor", [2, 4, 8, 16])
class TestRamp:
    """A map whose features hold the place they sit on gives every pixel its own place."""

    def test_centred(self, factor):
        centres = torch.arange(6) * factor + (factor - 1) / 2
        got = upsample_centred(ramp(centres), factor)
        want = ramp(torch.arange(6 * factor))
        inside = slice(factor, -factor)
        torch.testing.assert_close(got[..., inside, inside], want[..., inside, inside])

    def test_cornered(self, factor):
        got = upsample_cornered(ramp(torch.arange(6) * factor), factor)
        assert got.shape[-2:] == (6 * factor + 1, 6 * factor + 1)
        last = 5 * factor + 1
        torch.testing.assert_close(got[..., :last, :last], ramp(torch.arange(last)))

    def test_transposed_bilinear_kernel_is_the_interpolation(self, factor):
        x = torch.randn(1, 1, 5, 7, generator=torch.Generator().manual_seed(0))
        kernel = bilinear_kernel(factor)[None, None]
        got = F.conv_transpose2d(x, kernel, stride=factor, padding=factor // 2)
        inside = slice(factor, -factor)
        want = upsample_centred(x, factor)
        torch.testing.assert_close(got[..., inside, inside], want[..., inside, inside])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("factor", [2, 4, 8, 16])
def test_products_with_matrices_are_the_interpolation(factor, channels):
    """As on a CUDA device: the values, and the way back."""
    x = torch.randn(2, channels, 5, 7, dtype=torch.float64, requires_grad=True)
    for plain, shift, more in ((upsample_centred, (factor - 1) / 2, 0), (upsample_cornered, 0, 1)):
        want = plain(x, factor)
        sizes = (factor * 5 + more, factor * 7 + more)
        up, across = (
            _bilinear(n, size, factor, shift, x) for n, size in zip((5, 7), sizes, strict=True)
        )
        got = _resample(x, up, across)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
        slope = torch.randn_like(want)
        pair = (torch.autograd.grad(y, x, slope)[0] for y in (got, want))
        torch.testing.assert_close(*pair, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [(14, 18), (13, 17), (13, 18)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_doubling_equals_torch_bicubic(size, dtype):
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    around = F.pad(x.float(), (4, 4, 4, 4), mode="replicate")
    want = F.interpolate(around, size=(29, 33), mode="bicubic", align_corners=True)
    want = want[..., 8 : 8 + size[0], 8 : 8 + size[1]]
    got = double_cornered(x, size)
    assert got.dtype == dtype
    torch.testing.assert_close(got.float(), want, rtol=0, atol=1e-5 if dtype.itemsize > 2 else 0.03)


@pytest.mark.parametrize("size", [(33, 47), (48, 41), (321, 481), (17, 17), (31, 100)])
def test_images_are_continued_by_their_mirror_image_to_whole_cells(size):
    x = torch.randn(2, 3, *size)
    whole = [max(32, math.ceil(n / 16) * 16) for n in size]
    around = [(0, 0), (0, 0), *((0, w - n) for n, w in zip(size, whole, strict=True))]
    want = np.pad(x.numpy(), around, mode="reflect")
    for continued in (grow(x), _grow_by_places(x)):
        assert np.array_equal(continued.numpy(), want)


def test_whole_cells_are_left_as_they_are():
    x = torch.randn(1, 3, 48, 320)
    assert grow(x) is x
    assert torch.equal(_grow_by_places(x), x)


def test_what_no_mirror_image_fills_goes_on_with_the_first_row():
    x = torch.randn(1, 3, 5, 48)
    grown = grow(x)
    assert grown.shape == (1, 3, 32, 48)
    assert torch.equal(grown[..., :9, :], x[..., [0, 1, 2, 3, 4, 3, 2, 1, 0], :])
    assert torch.equal(grown[..., 9:, :], x[..., :1, :].expand(-1, -1, 23, -1))


@pytest.mark.parametrize("name", [*model_names(), "selector"])
@torch.no_grad()
def test_a_network_sees_whole_cells_alone(name):
    """As in training: in half a cell a window lies half outside, and a border becomes an edge."""
    torch.manual_seed(0)
    model = (Selector(8) if name == "selector" else create_model(name)).eval()
    images = torch.randn(1, 3, 33, 47)
    continued = F.pad(images, (0, 1, 0, 15), mode="reflect")
    want, got = (
        outputs if isinstance(outputs, list) else [outputs]
        for outputs in (model(continued), model(images))
    )
    for whole, part in zip(want, got, strict=True):
        torch.testing.assert_close(part, whole[..., :33, :47])


def lively(model: nn.Module) -> nn.Module:
    """He weights in double precision, so that every path counts and nothing is lost."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, generator=generator)
    return model.double().eval()


def mirrored(model: nn.Module) -> nn.Module:
    """The same model with every kernel mirrored left to right."""
    other = copy.deepcopy(model)
    for module in other.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.weight.data = module.weight.data.flip(-1)
    return other


def bare_dexined() -> nn.Module:
    """DexiNed's blocks without the upsampling, whose kernels are even; see `TestUpBlock`."""
    model = create_model("dexined")
    model.ups = nn.ModuleList(nn.Identity() for _ in model.ups)
    return model


# The model, and a size that is symmetric on its grid: whole windows for centred features, a
# feature on the first and on the last pixel for cornered ones.
SYMMETRIC = {
    "hed": (lambda: create_model("hed"), (48, 64)),
    "bdcn": (lambda: create_model("bdcn"), (48, 64)),
    "bdcn-21": (lambda: create_model("bdcn", side_channels=21), (32, 48)),
    "dexined": (bare_dexined, (33, 49)),
    "selector": (lambda: Selector(12), (33, 49)),
    "tiny": (lambda: create_model("tiny"), (33, 49)),
}


@pytest.mark.parametrize("name", SYMMETRIC)
@torch.no_grad()
def test_a_mirrored_image_gives_the_mirrored_maps(name):
    """A shift by any part of a pixel would show doubled."""
    build, size = SYMMETRIC[name]
    model = lively(build())
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1)).double()
    call = "maps" if name in ("dexined", "selector", "tiny") else "forward"
    want = getattr(model, call)(images)
    got = getattr(mirrored(model), call)(images.flip(-1))
    pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
    for flipped, plain in pairs:
        torch.testing.assert_close(flipped.flip(-1), plain)


# How far left and right of it a pixel's value depends on the image.
REACH = {"hed": 128, "bdcn": 256, "dexined": 400, "selector": 176, "tiny": 96}


@pytest.mark.parametrize("name", REACH)
@torch.no_grad()
def test_translation_and_odd_sizes(name):
    """Moving the image moves the maps as far; cutting it short on the right changes nothing left.

    The second is what stretching a map to the size of the image breaks.
    """
    torch.manual_seed(0)
    model = (Selector(8) if name == "selector" else create_model(name)).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    reach = REACH[name]
    images = torch.randn(1, 3, 17, 2 * reach + 48)
    whole, moved, cut = (model(x) for x in (images, images[..., 16:], images[..., :-5]))
    if name == "selector":
        whole, moved, cut = [whole], [moved], [cut]
    for a, b, c in zip(whole, moved, cut, strict=True):
        tolerance = {"rtol": 0, "atol": 1e-4 * float(a.abs().max())}
        middle = slice(reach + 16, reach + 32)
        torch.testing.assert_close(b[..., reach : reach + 16], a[..., middle], **tolerance)
        torch.testing.assert_close(c[..., middle], a[..., middle], **tolerance)
        # And it is not because the map is the same everywhere.
        assert (a[..., middle] - a[..., reach : reach + 16]).abs().max() > tolerance["atol"] * 10


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("side_channels", [1, 21])
@torch.no_grad()
def test_up_blocks_are_centred_within_half_a_pixel(steps, side_channels):
    """An even kernel cannot do better; the features sit at multiples of the stride."""
    block = UpBlock(1, steps, side_channels)
    for parameter in block.parameters():
        nn.init.constant_(parameter, 1.0 if parameter.ndim > 1 else 0.0)
    x = torch.zeros(1, 1, 17, 17)
    x[..., 8, 8] = 1
    got = block(x)[0, 0].double()
    assert got.shape == (17 * 2**steps, 17 * 2**steps)
    place = (got.sum(dim=0) * torch.arange(got.shape[1])).sum() / got.sum()
    assert abs(abs(float(place) - 8 * 2**steps) - 0.5) < 1e-3
