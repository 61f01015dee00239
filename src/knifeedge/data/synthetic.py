"""A made-up data set without end: overlapping shapes whose edges are known exactly.

A scene is a background with polygons, ellipses, blobs and bars over it, larger ones behind. Each
region has a colour, a shading and mostly a texture; some hardly differ from what is behind them.
Light falls unevenly, then all is blurred and made noisy. The label is where the visible region
changes, and nothing else: stripes, checks, spots, shading and shadows are no edges. A gradient
filter finds all of those and misses the faint borders, so it does not come far; and as some borders
drown in the noise, nothing reaches F 1.

Image i is a pure function of (seed, i, size), for one version of NumPy.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from knifeedge.data.regions import ellipse_mask, polygon_mask, region_edges
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.errors import ConfigError

# Shapes are measured in the image's shorter side, but at most this: a large image has more of them.
LARGEST_UNIT = 256
LARGEST, SMALLEST = 0.38, 0.18  # radius of the largest, of the unit; of the smallest, of that
REACH = 1.5  # times its radius: no shape goes beyond
# The images of a test set, far from those of any training set.
TEST_START = 2**30

_Floats = npt.NDArray[np.float32]
_Rng = np.random.Generator


@dataclass(frozen=True)
class Difficulty:
    """What makes a scene hard; the defaults are the data set, other values are another one.

    Args:
        faint: Share of regions that nearly have the colour behind them.
        faint_step: Smallest and largest difference of those, of 1.
        textured: Share of regions with a texture.
        texture: Weakest and strongest texture, of 1.
        blur: Least and greatest sigma, in pixels.
        noise: Least and greatest sigma, of 1.
    """

    faint: float = 0.35
    faint_step: tuple[float, float] = (0.04, 0.10)
    textured: float = 0.65
    texture: tuple[float, float] = (0.03, 0.16)
    blur: tuple[float, float] = (0.5, 1.3)
    noise: tuple[float, float] = (0.01, 0.05)


def synthetic_scene(
    seed: int,
    index: int,
    size: int | tuple[int, int] = 192,
    difficulty: Difficulty | None = None,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Draw one scene.

    Args:
        seed: Of the data set.
        index: Number of the image, 0 or more, without end.
        size: Side, or (height, width), at least 16.
        difficulty: See `Difficulty`.

    Returns:
        Image (H, W, 3) and label (H, W), 255 on an edge.

    >>> image, label = synthetic_scene(seed=0, index=5, size=(48, 64))
    >>> image.shape, label.shape, np.unique(label)
    ((48, 64, 3), (48, 64), array([  0, 255], dtype=uint8))
    """
    height, width = _check_size(size)
    if seed < 0 or index < 0:
        raise ValueError(f"seed and index must be >= 0, got {seed} and {index}")
    how = difficulty or Difficulty()
    rng = np.random.default_rng([seed, index])
    y = np.arange(height, dtype=np.float32)[:, None]
    x = np.arange(width, dtype=np.float32)[None, :]
    unit = float(min(height, width, LARGEST_UNIT))
    count = max(3, round(rng.integers(8, 18) * height * width / unit**2))
    radii = np.sort(unit * LARGEST * SMALLEST ** rng.random(count))[::-1]
    regions = np.zeros((height, width), np.intp)
    surface = np.empty((height, width), np.float32)
    surface[:] = _surface(rng, y, x, float(max(height, width)), how)
    colours = np.empty((count + 1, 3), np.float32)
    colours[0] = _colour(rng)
    for number, radius in enumerate(radii, start=1):
        colours[number] = _draw(rng, number, float(radius), y, x, regions, surface, colours, how)
    tints = rng.uniform(0.6, 1.4, (count + 1, 3)).astype(np.float32)
    light = _light(rng, y, x, unit)
    scene = np.empty((3, height, width), np.float32)  # planes: three times faster than pixels
    for plane, colour, tint in zip(scene, colours.T, tints.T, strict=True):
        plane[:] = (surface * tint.take(regions) + colour.take(regions)) * light
    scene = _blur(scene, rng.uniform(*how.blur))
    sigma = rng.uniform(*how.noise)
    scene += rng.standard_normal(scene.shape, dtype=np.float32) * np.float32(sigma)
    image = np.clip(scene * 255 + 0.5, 0, 255).astype(np.uint8)
    label = region_edges(regions).astype(np.uint8) * np.uint8(255)
    return np.ascontiguousarray(image.transpose(1, 2, 0)), label


class SyntheticSet(EdgeSet):
    """Scenes as a data set.

    Args:
        split: train (or all): the first `count` images; pretrain and validation: the first three
            quarters of these and the rest; test: count / 4 others.
        count: Images to train on.
        size: Side, or (height, width).
        seed: Of the data set.
        difficulty: See `Difficulty`.

    >>> scenes = SyntheticSet("validation", count=8, size=32)
    >>> scenes.names
    ('synthetic-0-6', 'synthetic-0-7')
    """

    def __init__(
        self,
        split: str = "train",
        *,
        count: int = 200,
        size: int | tuple[int, int] = 192,
        seed: int = 0,
        difficulty: Difficulty | None = None,
    ) -> None:
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a whole number, at least 1, got {count!r}")
        part = count - count // 4
        ranges = {
            "train": range(count),
            "pretrain": range(part),
            "validation": range(part, count),
            "test": range(TEST_START, TEST_START + max(1, count // 4)),
            "all": range(count),
        }
        if split not in ranges:
            raise ConfigError(f"synthetic has no split {split!r}; it has {', '.join(ranges)}")
        self.name, self.seed, self.difficulty = "synthetic", seed, difficulty
        self.shape = _check_size(size)
        self.indices = ranges[split]
        self.names = tuple(f"synthetic-{seed}-{i}" for i in self.indices)

    def __getitem__(self, index: int) -> Sample:
        """Draw one scene."""
        image, label = synthetic_scene(self.seed, self.indices[index], self.shape, self.difficulty)
        return Sample(self.names[index], image, label)

    def size(self, index: int) -> tuple[int, int]:
        """See `EdgeSet.size`."""
        return self.shape


def _check_size(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
        raise ValueError(f"size must be a whole number, or height and width, got {size!r}")
    height, width = sides
    if min(height, width) < 16:
        raise ValueError(f"size must be at least 16, got {size}")
    return height, width


def _colour(rng: _Rng) -> _Floats:
    """A grey with some colour in it."""
    return np.clip(rng.uniform(0.12, 0.88) + rng.normal(0, 0.12, 3), 0.05, 0.95).astype(np.float32)


def _draw(
    rng: _Rng,
    number: int,
    radius: float,
    y: _Floats,
    x: _Floats,
    regions: npt.NDArray[np.intp],
    surface: _Floats,
    colours: _Floats,
    how: Difficulty,
) -> _Floats:
    """Put one shape over what is there; return its colour."""
    height, width = regions.shape
    row, column = rng.uniform(0, height), rng.uniform(0, width)
    behind = colours[regions[int(row), int(column)]]
    colour = _colour(rng)
    if rng.random() < how.faint:
        step = rng.uniform(*how.faint_step) * rng.choice((-1, 1))
        colour = np.clip(behind + step + rng.normal(0, 0.02, 3), 0, 1).astype(np.float32)
    reach = REACH * radius
    top, left = max(0, int(row - reach)), max(0, int(column - reach))
    part = np.s_[top : int(row + reach) + 2, left : int(column + reach) + 2]
    near_y, near_x = y[part[0]] - np.float32(row), x[:, part[1]] - np.float32(column)
    mask = _shape(rng, near_y, near_x, radius)
    np.copyto(regions[part], number, where=mask)
    np.copyto(surface[part], _surface(rng, near_y, near_x, radius, how), where=mask)
    return colour


def _shape(rng: _Rng, y: _Floats, x: _Floats, radius: float) -> npt.NDArray[np.bool_]:
    """A random shape around the origin."""
    kind = rng.random()
    turn = rng.uniform(0, 2 * np.pi)
    if kind < 0.3:
        return ellipse_mask(y, x, radii=(radius, radius * rng.uniform(0.35, 1)), angle=turn)
    if kind < 0.45:  # a bar
        thin = radius * rng.uniform(0.08, 0.25)
        corners = np.array([[-thin, -1.4], [-thin, 1.4], [thin, 1.4], [thin, -1.4]])
        corners[:, 1] *= radius
        cos, sin = np.cos(turn), np.sin(turn)
        return polygon_mask(y, x, corners @ np.array([[cos, sin], [-sin, cos]]))
    if kind < 0.65:  # a smooth blob
        steps = np.linspace(0, 2 * np.pi, 40, endpoint=False)
        wave = sum(
            rng.uniform(0, 0.35) / k * np.cos(k * steps + rng.uniform(0, 2 * np.pi))
            for k in (2, 3, 5)
        )
        distance = radius * (0.85 + wave)
    else:
        corners_count = int(rng.integers(3, 9))
        steps = (
            turn
            + 2
            * np.pi
            * (np.arange(corners_count) + rng.uniform(-0.3, 0.3, corners_count))
            / corners_count
        )
        distance = radius * rng.uniform(0.55, 1.2, corners_count)
    return polygon_mask(y, x, np.stack([distance * np.sin(steps), distance * np.cos(steps)], 1))


def _surface(rng: _Rng, y: _Floats, x: _Floats, radius: float, how: Difficulty) -> _Floats:
    """Shading and texture of a region, to be added to its colour."""
    turn = rng.uniform(0, 2 * np.pi)
    slope = rng.uniform(0, 0.15) / max(radius, 1.0)
    grey = x * np.float32(np.cos(turn) * slope) + y * np.float32(np.sin(turn) * slope)
    if rng.random() < how.textured:
        grey += _texture(rng, y, x) * np.float32(rng.uniform(*how.texture))
    return grey


def _texture(rng: _Rng, y: _Floats, x: _Floats) -> _Floats:
    """A pattern in about -1 .. 1."""
    kind = rng.integers(4)
    if kind == 3:  # grain, of squares of 1 to 3 pixels
        side = int(rng.integers(1, 4))
        rows, columns = -(-y.size // side), -(-x.size // side)
        grain = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.6)
        return np.repeat(np.repeat(grain, side, 0), side, 1)[: y.size, : x.size]
    period = rng.uniform(4, 16)
    turn, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi)
    step = 2 * np.pi / period
    cos, sin = np.float32(np.cos(turn) * step), np.float32(np.sin(turn) * step)
    wave: _Floats = np.sin(x * cos + y * sin + np.float32(phase))
    if kind > 0:  # checks or spots: two waves across each other
        wave = wave * np.sin(y * cos - x * sin)
    sharp = np.float32(rng.uniform(1, 5))
    if kind == 2:
        wave = wave - np.float32(0.35)
    pattern: _Floats = np.clip(wave * sharp, -1, 1)
    return pattern


def _light(rng: _Rng, y: _Floats, x: _Floats, unit: float) -> _Floats:
    """Uneven light: a slope, and a soft shadow across the scene."""
    turn = rng.uniform(0, 2 * np.pi)
    along = (x - x.mean()) * np.float32(np.cos(turn)) + (y - y.mean()) * np.float32(np.sin(turn))
    along /= np.float32(unit)
    place, soft = rng.uniform(-0.4, 0.4), rng.uniform(0.03, 0.15)
    shadow = rng.uniform(0, 0.35) / (1 + np.exp((along - np.float32(place)) / np.float32(soft)))
    light: _Floats = 1 + np.float32(rng.uniform(-0.2, 0.2)) * along - shadow
    return light


def _blur(image: _Floats, sigma: float) -> _Floats:
    """A Gaussian blur of planes (3, H, W); the borders are repeated."""
    reach = max(1, round(3 * sigma))
    taps = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    taps = (taps / (2 * taps.sum() - taps[0])).astype(np.float32)
    for axis in (1, 2):
        pad = [(0, 0)] * 3
        pad[axis] = (reach, reach)
        padded = np.moveaxis(np.pad(image, pad, mode="edge"), axis, 0)
        length = image.shape[axis]
        blurred = padded[reach : reach + length] * taps[0]
        for k in range(1, reach + 1):
            low, high = reach - k, reach + k
            blurred += (padded[low : low + length] + padded[high : high + length]) * taps[k]
        image = np.moveaxis(blurred, 0, axis)
    return image
