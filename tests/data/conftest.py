"""What the tests of reading and of data sets share."""

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture
def malformed():
    """Damaged files: cut short, with flipped bits, overwritten, or of another type altogether."""
    return _malformed


def _malformed(data: bytes, *, count: int, seed: int = 0) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        content = bytearray(data)
        kind = number % 5
        if kind == 0:
            content = content[: rng.integers(len(data))]
        elif kind == 1:
            for at in rng.integers(len(data), size=rng.integers(1, 5)):
                content[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:  # in the header
            content[rng.integers(min(len(data), 200))] = int(rng.integers(256))
        elif kind == 3:
            at, length = int(rng.integers(len(data))), int(rng.integers(1, 30))
            content[at : at + length] = rng.bytes(length)
        else:  # the head of one type, the body of none
            content = bytearray(data[: rng.integers(1, 40)] + rng.bytes(int(rng.integers(400))))
        yield bytes(content)
