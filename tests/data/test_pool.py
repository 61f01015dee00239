import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from knifeedge.data.datasets import load_dataset
from knifeedge.data.plan import CropSettings
from knifeedge.data.pool import DEVIATION, MEAN, CropDataset, CropPool, normalise
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.data.synthetic import SyntheticSet
from shared_data import data_dir

SETTINGS = CropSettings(crop=24, batch_size=5, halve_at=50)


class Made(EdgeSet):
    """Images of several sizes, some below the crop, with what each test asks for."""

    def __init__(self, *, soft=False, mask=False):
        rng = np.random.default_rng(0)
        self.name, self.has_mask, self.samples = "made", mask, []
        for number, size in enumerate([(40, 31), (24, 24), (13, 30), (55, 60)]):
            label = rng.integers(0, 256, size, np.uint8)
            if not soft:
                label = np.where(label > 220, np.uint8(255), np.uint8(0))
            image = rng.integers(0, 256, (*size, 3), np.uint8)
            valid = rng.random(size) < 0.9 if mask and number else None
            self.samples.append(Sample(str(number), image, label, valid))
        self.names = tuple(sample.name for sample in self.samples)

    def __getitem__(self, index):
        return self.samples[index]

    def size(self, index):
        return self.samples[index].label.shape


def assert_same(batch, items):
    for plane, singles in zip(batch, zip(*items, strict=True), strict=True):
        assert torch.equal(plane, torch.stack(singles))


@pytest.mark.parametrize("mask", [False, True], ids=["", "mask"])
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_pool_and_items_are_the_same_to_the_bit(soft, mask):
    dataset = Made(soft=soft, mask=mask)
    pool, items = CropPool(dataset, SETTINGS), CropDataset(dataset, SETTINGS)
    assert len(pool) == len(items) == (3 + 4) * 16
    for epoch in (0, 7):
        for step in range(pool.steps):
            batch = pool.batch(epoch, step)
            assert len(batch) == 2 + mask
            keys = [(epoch, int(number)) for number in pool.plan.batch(epoch, step)]
            assert_same(batch, [items[key] for key in keys])


def test_a_batch_is_what_a_network_takes():
    image, target = CropPool(Made(soft=True), SETTINGS).batch(0, 0)
    assert image.shape == (5, 3, 24, 24)
    assert target.shape == (5, 1, 24, 24)
    assert image.dtype == target.dtype == torch.float32
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert 0 <= target.min() < target.max() <= 1


def test_normalisation_is_the_usual_one():
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).repeat(1, 1, 1, 3)
    expected = (pixels.double() / 255 - torch.tensor(MEAN).double()) / torch.tensor(
        DEVIATION
    ).double()
    torch.testing.assert_close(
        normalise(pixels), expected.permute(0, 3, 1, 2).float(), rtol=0, atol=1e-6
    )


def denormalise(image):
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    return ((image * deviation + mean) * 255).round()


def test_noiseless_samples_show_their_own_target():
    pool = CropPool(Made(soft=True), SETTINGS)
    half = len(pool) // 2
    image, target = pool.samples(2, range(half, len(pool)))
    torch.testing.assert_close(denormalise(image), (target * 255).expand(-1, 3, -1, -1))
    large = [i for i in range(half) if pool.plan.pieces[i // 8][0] in (0, 1)]  # not enlarged
    _, soft = pool.samples(2, large)
    image, target = pool.samples(2, [i + half for i in large])
    assert set(target.unique().tolist()) == {0.0, 1.0}
    assert set(soft.unique().tolist()) != {0.0, 1.0}


def test_one_piece_without_augmentation_is_the_image():
    dataset = Made()
    settings = CropSettings(crop=24, turns=False, noiseless=False, batch_size=1, halve_at=1000)
    pool = CropPool(dataset, settings)
    image, target = pool.samples(0, [1])  # 24 x 24: there is one crop
    sample = dataset[1]
    assert torch.equal(
        denormalise(image)[0].permute(1, 2, 0).byte(), torch.from_numpy(sample.image)
    )
    assert torch.equal((target[0, 0] * 255).byte(), torch.from_numpy(sample.label))


def test_batches_do_not_depend_on_those_before():
    pool = CropPool(Made(), SETTINGS)
    expected = list(pool.epoch(4, start=10))
    pool.batch(1, 3)
    for step, batch in zip(range(10, pool.steps), expected, strict=True):
        for plane, again in zip(batch, CropPool(Made(), SETTINGS).batch(4, step), strict=True):
            assert torch.equal(plane, again)


def test_a_loader_with_workers_gives_the_pools_batches():
    dataset = SyntheticSet(count=3, size=64)
    settings = CropSettings(crop=32, batch_size=8, seed=5)
    pool, items = CropPool(dataset, settings), CropDataset(dataset, settings)
    start, stop = 4, 8  # over the end of an epoch of 6 steps
    loader = DataLoader(items, batch_sampler=items.sampler(start, stop), num_workers=2)
    for step, batch in zip(range(start, stop), loader, strict=True):
        for plane, again in zip(batch, pool.batch(*divmod(step, pool.steps)), strict=True):
            assert torch.equal(plane, again)


def test_a_number_alone_is_of_the_first_epoch():
    items = CropDataset(Made(), SETTINGS)
    for one, other in zip(items[9], items[(0, 9)], strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_the_pool_on_a_gpu_is_the_same_to_the_bit():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    dataset = Made(soft=True, mask=True)
    host, device = CropPool(dataset, SETTINGS), CropPool(dataset, SETTINGS, device="cuda")
    for step in range(host.steps):
        for plane, other in zip(host.batch(3, step), device.batch(3, step), strict=True):
            assert other.is_cuda
            assert torch.equal(plane, other.cpu())


def test_the_real_uded_gives_432_samples_and_54_steps():
    dataset = load_dataset("UDED", root=data_dir("UDED"))
    pool, items = CropPool(dataset), CropDataset(dataset)
    assert len(pool) == len(items) == 432
    assert pool.steps == 54
    image, target = pool.batch(0, 53)
    assert image.shape == (8, 3, 320, 320)
    keys = [(0, int(number)) for number in pool.plan.batch(0, 53)]
    assert_same((image, target), [items[key] for key in keys])
