"""Images and labels of two listings, paired by stem, never by position."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from knifeedge.data.annotations import LABEL_ENDINGS
from knifeedge.data.images import IMAGE_ENDINGS
from knifeedge.errors import DataError


@dataclass(frozen=True)
class Pair:
    """An image and its label files: one, or several that are merged."""

    name: str
    image: Path
    labels: tuple[Path, ...]


@dataclass(frozen=True)
class Pairing:
    """What was found: the pairs in the order of their names, and each name that has none."""

    pairs: tuple[Pair, ...]
    problems: dict[str, str]


def find_pairs(images: Sequence[Path], labels: Sequence[Path], *, several: bool = False) -> Pairing:
    """Pair the pictures of some folders with the labels of others.

    Args:
        images: Folders of images.
        labels: Folders of labels.
        several: A name may have a label in each of several folders.

    Returns:
        The pairs, and for each other name what is missing or double.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("images/a.jpg", "images/b.jpg", "labels/a.png"):
    ...     (folder / name).parent.mkdir(exist_ok=True)
    ...     (folder / name).touch()
    >>> found = find_pairs([folder / "images"], [folder / "labels"])
    >>> [pair.name for pair in found.pairs], found.problems
    (['a'], {'b': 'image b.jpg has no label'})
    """
    pictures, marks = _by_stem(images, IMAGE_ENDINGS), _by_stem(labels, LABEL_ENDINGS)
    pairs, problems = [], {}
    for name in sorted(pictures.keys() | marks.keys()):
        found, truths = pictures.get(name, []), marks.get(name, [])
        if not truths:
            problems[name] = f"image {found[0].name} has no label"
        elif not found:
            problems[name] = f"label {truths[0].name} has no image"
        elif len(found) > 1 or (len(truths) > 1 and not several):
            twins = found if len(found) > 1 else truths
            problems[name] = f"{' and '.join(map(str, twins))} have the same name"
        else:
            pairs.append(Pair(name, found[0], tuple(truths)))
    return Pairing(tuple(pairs), problems)


def choose_pairs(found: Pairing, names: Iterable[str], *, where: str) -> tuple[Pair, ...]:
    """The pairs of these names, in their order.

    Args:
        found: From `find_pairs`.
        names: The names of a split.
        where: The data set and its folder, for the error.

    Returns:
        One pair a name.

    Raises:
        DataError: Some name has no pair; all of them are listed.

    >>> choose_pairs(Pairing((), {"b": "image b.jpg has no label"}), ["b"], where="UDED in here")
    Traceback (most recent call last):
    knifeedge.errors.DataError: 1 of 1 images cannot be used, UDED in here: image b.jpg has no label
    """
    names = list(names)
    by_name = {pair.name: pair for pair in found.pairs}
    unusable = [name for name in names if name not in by_name]
    if unusable:
        reasons = [found.problems[name] for name in unusable if name in found.problems]
        if absent := [name for name in unusable if name not in found.problems]:
            reasons.append(f"there is no {', '.join(absent)}")
        raise DataError(
            f"{len(unusable)} of {len(names)} images cannot be used, {where}: {'; '.join(reasons)}"
        )
    return tuple(by_name[name] for name in names)


def list_files(folder: Path, endings: Sequence[str]) -> list[Path]:
    """The files of a folder with these endings, by name; hidden ones are passed over.

    >>> list_files(Path("nowhere"), (".png",))
    Traceback (most recent call last):
    knifeedge.errors.DataError: folder nowhere cannot be read: No such file or directory
    """
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix.lower() in endings and not path.name.startswith(".") and path.is_file()
        )
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}") from error


def _by_stem(folders: Sequence[Path], endings: Sequence[str]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for folder in folders:
        for path in list_files(folder, endings):
            files.setdefault(path.stem, []).append(path)
    return files
