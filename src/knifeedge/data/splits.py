"""Who trains and who tests: named, versioned lists of images, and seeded ones for own folders.

The paper's section 4.1.2 gives counts: BSDS500 and BRIND 400 / 100, UDED 20 / 7, BIPED2 200 / 50 to
train and test, and of the training images 300 / 100, 15 / 5 and 150 / 50 to pre-train and validate.
The lists are in `split_files/`, one a data set, each with a version that grows when it changes.
For cross-validation the images of a set are divided anew into folds, each of which tests once.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from knifeedge.errors import ConfigError, closest

# Of an own folder: 4/5 train and 1/5 tests; of the former 3/4 pre-train, as in the paper.
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.25
# Of cross-validation: the order of the images is shuffled by this seed, always the same.
FOLDS, FOLD_SEED = 4, 0


@dataclass(frozen=True)
class Splits:
    """Names of images for train, pretrain, validation and test; pretrain + validation = train."""

    name: str
    version: int
    source: str
    lists: dict[str, tuple[str, ...]]

    def names(self, split: str) -> tuple[str, ...]:
        """The images of one split; an unknown one is answered with the known ones."""
        if split not in self.lists:
            raise ConfigError(
                f"{self.name} has no split {split!r}; it has {', '.join(self.lists)} and all"
            )
        return self.lists[split]


def load_splits(name: str) -> Splits:
    """Read a split file of the package.

    Args:
        name: uded, bsds500 (BRIND's too) or biped2, in any case.

    Returns:
        The lists.

    Raises:
        ConfigError: There are no lists so named.

    >>> splits = load_splits("uded")
    >>> {split: len(names) for split, names in splits.lists.items()}
    {'train': 20, 'pretrain': 15, 'validation': 5, 'test': 7, 'unused': 3}
    """
    files = resources.files("knifeedge.data") / "split_files"
    known = sorted(file.name.removesuffix(".json") for file in files.iterdir())
    if name.lower() not in known:
        raise ConfigError(
            f"there are no splits {name!r}{closest(name.lower(), known)}; there are those of"
            f" {', '.join(known)}"
        )
    content = json.loads((files / f"{name.lower()}.json").read_text("utf-8"))
    lists = {split: tuple(names) for split, names in content["splits"].items()}
    return Splits(content["name"], content["version"], content["source"], lists)


def seeded_splits(
    names: Iterable[str],
    *,
    seed: int = 0,
    test_share: float = TEST_SHARE,
    validation_share: float = VALIDATION_SHARE,
) -> Splits:
    """Divide the images of an own folder by a seed, whatever order they are given in.

    Args:
        names: All images.
        seed: 0 or more; the same names and seed give the same lists.
        test_share: Part of all that tests, in [0, 1), rounded to whole images.
        validation_share: Part of the training images that validates.

    Returns:
        The lists, each in the order of the names.

    >>> seeded_splits("abcdefghij", seed=1).names("test")
    ('d', 'j')
    """
    for share, what in ((test_share, "test_share"), (validation_share, "validation_share")):
        if not 0 <= share < 1:
            raise ValueError(f"{what} must be in [0, 1), got {share}")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    mixed = _mixed(names, seed)
    train, test = _cut(mixed, test_share)
    return _divided(f"folder-{seed}", "seeded", train, test, validation_share)


def fold_splits(splits: Splits, fold: int, *, left_out: Iterable[str] = ()) -> Splits:
    """Divide all images of a set for cross-validation: each tests in one fold and trains in others.

    The images are shuffled by a fixed seed and dealt into `FOLDS` parts of equal size, or sizes
    that differ by one. In a fold its part tests and the rest trains; a quarter of the rest
    validates, taken from the part before, so that the folds validate on different images.

    Args:
        splits: Of the set; the images of all its lists are divided, unused ones too.
        fold: From 0.
        left_out: Images that are not usable.

    Returns:
        The lists, each in the order of the names.

    >>> first = fold_splits(load_splits("uded"), 0, left_out=("14-comic", "23-img_011_SRF_2_HR"))
    >>> {split: len(names) for split, names in first.lists.items()}
    {'train': 21, 'pretrain': 16, 'validation': 5, 'test': 7}
    """
    if isinstance(fold, bool) or not isinstance(fold, int) or not 0 <= fold < FOLDS:
        raise ValueError(f"fold must be a whole number from 0 to {FOLDS - 1}, got {fold!r}")
    usable = {name for names in splits.lists.values() for name in names} - set(left_out)
    mixed = _mixed(usable, FOLD_SEED)
    parts = [mixed[start::FOLDS] for start in range(FOLDS)]
    test, *others = parts[fold:] + parts[:fold]
    train = [name for part in others for name in part]
    source = f"the images of {splits.name} {splits.version}, shuffled by seed {FOLD_SEED}"
    return _divided(f"{splits.name}-fold-{fold}", source, train, test, VALIDATION_SHARE)


def _divided(
    name: str, source: str, train: Sequence[str], test: Sequence[str], validation_share: float
) -> Splits:
    """Splits of these training and test images; the last ones to train validate."""
    pretrain, validation = _cut(train, validation_share)
    lists = {"train": train, "pretrain": pretrain, "validation": validation, "test": test}
    return Splits(name, 1, source, {k: tuple(sorted(v)) for k, v in lists.items()})


def _mixed(names: Iterable[str], seed: int) -> list[str]:
    """The names shuffled, whatever order they are given in."""
    ordered = sorted(names)
    # The raw stream of a bit generator never changes between versions of NumPy.
    keys = np.random.Philox(np.random.SeedSequence(seed)).random_raw(len(ordered))
    return [ordered[i] for i in np.argsort(keys, kind="stable")]


def _cut(names: Sequence[str], share: float) -> tuple[Sequence[str], Sequence[str]]:
    """All but the last share of them, and that share."""
    keep = len(names) - round(share * len(names))
    return names[:keep], names[keep:]
