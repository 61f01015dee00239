"""Tiles: they cover an image, their maps average to it, and they go together by size."""

from itertools import pairwise

import torch
from hypothesis import given, settings, strategies as st

from knifeedge.engine.tiles import TiledImage, TileQueue, tile_spans


@given(st.integers(1, 2000), st.integers(1, 400), st.data())
def test_tiles_cover_everything_and_overlap_enough(length, tile, data):
    overlap = data.draw(st.integers(0, tile // 2))
    spans = tile_spans(length, tile, overlap)
    grid = 16 if tile - overlap >= 16 else 1
    assert spans[0].start == 0
    assert spans[-1].stop == length
    for before, after in pairwise(spans):
        assert before.start < after.start <= before.stop - overlap
        assert before.stop < after.stop
    for span in spans:
        assert span.start % grid == 0
        assert min(length, tile - grid + 1) <= span.stop - span.start < 2 * tile + grid
    # All are of one size, but the last.
    assert len({span.stop - span.start for span in spans[:-1]}) <= 1


def test_nothing_is_seen_twice_but_the_overlap():
    for length in range(1, 5000):
        spans = tile_spans(length)
        seen = sum(span.stop - span.start for span in spans)
        # The grid costs less than a step of it a tile.
        assert seen < length + (len(spans) - 1) * 32 + len(spans) * 16
        assert (len(spans) == 1) == (length < 608)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 15), st.data())
def test_averaged_tiles_of_a_map_are_the_map(height, width, tile, data):
    overlap = data.draw(st.integers(0, tile // 2))
    whole = torch.rand(height, width)
    image = TiledImage(whole, tile=tile, overlap=overlap)
    for part in image.tiles():
        assert not image.is_complete
        assert part.pixels().shape == part.size
        image.add(part, part.pixels())
    assert image.is_complete
    assert torch.allclose(image.map, whole, atol=1e-6)


def test_a_tile_says_less_towards_its_border():
    """Each tile's map is its own number: from one to the other it goes evenly."""
    image = TiledImage(torch.zeros(3, 3), tile=2, overlap=1)
    for number, tile in enumerate(image.tiles()):
        image.add(tile, torch.full(tile.size, float(number)))
    assert image.map.tolist() == [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]]
    image = TiledImage(torch.zeros(1, 77), tile=32, overlap=16)
    for number, tile in enumerate(image.tiles()):
        image.add(tile, torch.full(tile.size, float(number)))
    # The second begins at 32, and the first ends at 48.
    expected = torch.cat([torch.zeros(32), torch.arange(1, 17) / 17, torch.ones(29)])
    assert torch.allclose(image.map[0], expected)


def test_a_border_that_is_wrong_hardly_shows():
    """As a network's map is where it sees nothing of what is beyond."""
    image = TiledImage(torch.zeros(1000, 700))
    for tile in image.tiles():
        prob = torch.zeros(tile.size)
        for side, length in ((0, 1000), (1, 700)):
            part = (tile.rows, tile.columns)[side]
            if part.start > 0:
                prob.narrow(side, 0, 1).fill_(1)
            if part.stop < length:
                prob.narrow(side, -1, 1).fill_(1)
        image.add(tile, prob)
    assert 0 < image.map.max() < 0.07  # the plain average has 1/2 there


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=9),
    st.integers(1, 5),
    st.integers(16, 40),
)
def test_every_tile_is_handed_out_once_among_its_equals(sizes, batch_size, tile):
    queue = TileQueue(batch_size, pixels=batch_size * (2 * tile + 16) ** 2)
    images = [TiledImage(torch.rand(size), tile=tile, overlap=0) for size in sizes]

    def run(batch):
        assert len(batch) <= batch_size
        assert len({part.size for part in batch}) == 1
        for part in batch:
            part.image.add(part, part.pixels())

    for image in images:
        for batch in queue.put(image):
            assert len(batch) == batch_size
            run(batch)
    for image in images:
        for batch in queue.take(image):
            assert any(part.image is image for part in batch)
            run(batch)
        assert image.is_complete
        assert torch.allclose(image.map, image.pixels)


def test_a_batch_has_so_many_pixels_at_most():
    """Whole images are tiles of any size: two of 100 pixels in 250, but one of 1000 too."""
    queue = TileQueue(8, pixels=250)

    def put(side: int, width: int) -> list[int]:
        image = TiledImage(torch.zeros(side, width), tile=100, overlap=0)
        return [len(batch) for batch in queue.put(image)]

    assert [put(10, 10) for _ in range(4)] == [[], [2], [], [2]]
    assert put(10, 100) == [1]
