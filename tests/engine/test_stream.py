"""Images in, maps out: full batches, a bounded number of images, and nothing leaks between maps."""

import os

import numpy as np
import pytest
import torch
from torch import nn

from forking import fork
from knifeedge.engine.predict import predict, predict_many
from knifeedge.engine.stream import CPU_BATCH, HELD_PIXELS, Stream
from knifeedge.errors import ConfigError, DataError
from waiting import no_waiting


class Brightness(nn.Module):
    """The logit is the brightness; it remembers the shapes of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.batches: list[tuple[int, ...]] = []

    def forward(self, images):
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert not self.training
        assert torch.is_inference_mode_enabled()
        self.batches.append((len(images), *images.shape[2:]))
        return [images.mean(dim=1, keepdim=True) * self.scale]


def images(*sizes: tuple[int, int]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


def test_equal_tiles_of_several_images_go_together():
    """The reason for all this: 321 x 700 has two tiles of two sizes."""
    model = Brightness()
    maps = list(predict_many(model, images(*[(321, 700)] * 6), batch_size=4))
    # Three of them have as many pixels as four of 320 x 320.
    assert sorted(model.batches) == sorted([(3, 321, 368), (3, 321, 364)] * 2)
    for prob, image in zip(maps, images(*[(321, 700)] * 6), strict=True):
        np.testing.assert_allclose(prob, predict(model, image), atol=1e-6)


def test_maps_come_in_order_and_as_soon_as_they_can():
    """The third image waits for nobody: it fills the batch of the first, but comes after both."""
    asked = []

    def source():
        for number, image in enumerate(images((8, 8), (9, 9), (8, 8), (9, 9), (7, 7))):
            asked.append(number)
            yield image

    shapes = []
    for prob in predict_many(Brightness(), source(), batch_size=2):
        shapes.append((prob.shape[0], max(asked)))
    assert shapes == [(8, 2), (9, 3), (8, 3), (9, 3), (7, 4)]


def test_an_image_of_its_own_size_does_not_wait_for_ever():
    """Sixteen sizes, batches of 2: four images are held; the first is done when a fifth comes."""
    asked, held = [], []

    def source():
        for number, image in enumerate(images(*[(side, 5) for side in range(5, 21)])):
            asked.append(number)
            yield image

    for done, prob in enumerate(predict_many(Brightness(), source(), batch_size=2)):
        assert prob.shape == (done + 5, 5)
        held.append(len(asked) - done)
    assert max(held) == 2 * 2 + 1


def test_large_images_are_held_one_by_one(monkeypatch):
    monkeypatch.setattr(Stream.maps.__globals__["Shelf"].__init__, "__defaults__", (99,))
    asked = []

    def source():
        for image in images(*[(10, 5 + number) for number in range(6)]):
            asked.append(image)
            yield image

    for done, _ in enumerate(predict_many(Brightness(), source(), batch_size=8)):
        assert len(asked) - done <= 2  # it, and the one that there is no room for


def test_memory_does_not_grow_with_the_number_of_large_images():
    """Seven of 3000 x 5990, each larger than a shelf, take less than one more than three do.

    At that size some tiles wait for those of other images: without a bound all would be held.
    Three is the least that are there at once: one in work, one finished, one just made.
    """
    pixels = 3000 * 5990
    assert pixels > HELD_PIXELS

    def peak() -> int:
        with open("/proc/self/status") as file:
            return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) * 1024

    def work() -> None:
        torch.set_num_threads(1)
        peaks = {}
        for count in (3, 7):
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            source = (np.full((3000, 5990, 3), number, np.uint8) for number in range(count))
            for prob in predict_many(Brightness(), source):
                del prob
            peaks[count] = peak()
        grown = peaks[7] - peaks[3]
        if grown > (3 + 4) * pixels:  # one image and its map
            raise MemoryError(f"{grown / 1e6:.0f} MB more for four images more")

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 0


def test_nothing_leaks_between_maps():
    """While maps are taken, the caller's modes are its own: gradients, autocast, training."""
    model = Brightness().train()
    for _ in predict_many(model, images((8, 8), (9, 9), (8, 8)), precision="bf16-mixed"):
        assert model.training
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()
    prob = torch.from_numpy(predict(model, images((8, 8))[0]))
    assert (prob * model.scale).sum().requires_grad  # a map is an ordinary array


def test_whole_images_go_together_as_far_as_tiles_would():
    model = Brightness()
    list(predict_many(model, images(*[(20, 20)] * 5), whole=True, tile=16, batch_size=4))
    assert model.batches == [(2, 20, 20), (2, 20, 20), (1, 20, 20)]  # 4 tiles of 256 pixels
    model.batches.clear()
    list(predict_many(model, images((99, 40), (99, 40)), whole=True, tile=16, batch_size=4))
    assert model.batches == [(1, 99, 40), (1, 99, 40)]


def test_a_batch_on_a_cpu_is_small():
    model = Brightness()
    list(predict_many(model, images(*[(8, 8)] * 8)))
    assert model.batches == [(CPU_BATCH, 8, 8)] * 2


def test_mistakes():
    model, (image,) = Brightness(), images((8, 8))
    with pytest.raises(ConfigError, match="batch_size must be at least 1, got 0"):
        predict_many(model, [image], batch_size=0)
    with pytest.raises(ValueError, match="overlap must be"):
        predict_many(model, [image], tile=16, overlap=16)
    with pytest.raises(DataError, match="must be uint8"):
        list(predict_many(model, [image, image / 255]))
    assert list(predict_many(model, [])) == []


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_on_a_cuda_device(precision):
    """The maps are those of the CPU, although nobody waits for them before they are asked for."""
    import knifeedge as ke

    torch.manual_seed(0)
    model = ke.create_model("tiny").eval()
    given = images(*[(321, 481), (481, 321), (40, 50), (700, 600)] * 6)
    expected = [predict(model, image) for image in given]
    found = list(predict_many(model.cuda(), iter(given), precision=precision))
    for prob, exact in zip(found, expected, strict=True):
        assert prob.dtype == np.float32
        assert np.abs(prob - exact).max() < (5e-3 if precision == "32-true" else 0.05)  # TF32
        assert np.abs(prob - exact).mean() < (5e-4 if precision == "32-true" else 0.005)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_cuda_device_is_not_waited_for():
    """Any call that would wait for the device is an error in this mode; the events are none."""
    model = Brightness().cuda()
    given = images(*[(321, 481), (481, 321)] * 16)
    stream = Stream(model, batch_size=4)
    waiting = list(stream.maps(given))  # once, for what is made for a size and kept
    with no_waiting():
        waiting = list(stream.maps(given))
    for prediction, image in zip(waiting, given, strict=True):
        assert np.allclose(prediction.result(), predict(model, image), atol=1e-6)
