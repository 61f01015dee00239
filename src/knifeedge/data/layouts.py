"""Where each public data set keeps its images and labels, as it is published.

| data set | images | labels |
| --- | --- | --- |
| BSDS500 | images/{train,val,test}/*.jpg | groundTruth/{train,val,test}/*.mat |
| BRIND | those of BSDS500, beside it or inside | train_gt, test_gt (PNG); mat, testgt/KIND (MAT) |
| UDED | imgs/*.png | gt/*.png |
| BIPED2 | edges/imgs/{train/rgbr/real,test/rgbr}/*.jpg | edges/edge_maps/..., *.png |

A set may also lie in the folders its archive unpacks to, such as BSR/BSDS500/data. It is looked for
in the folder given, else in $KNIFEEDGE_DATA/NAME, else in ./data/NAME.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from knifeedge.data.annotations import Annotator
from knifeedge.data.splits import load_splits
from knifeedge.errors import DataError

ENVIRONMENT = "KNIFEEDGE_DATA"


@dataclass(frozen=True)
class Layout:
    """A public data set: its folders, which may lie under any of the anchors, and its facts."""

    name: str
    about: str
    page: str
    splits: str
    images: tuple[str, ...]
    labels: tuple[str, ...]
    anchors: tuple[str, ...] = (".",)
    image_anchors: tuple[str, ...] = ()
    annotator: Annotator = 0
    several: bool = False
    left_out: tuple[str, ...] = ()

    def folders(self, root: Path) -> tuple[list[Path], list[Path]]:
        """The image and the label folders that exist under a root; either list may be empty."""
        images = _existing(root, (*self.anchors, *self.image_anchors), self.images)
        return images, _existing(root, self.anchors, self.labels)


_PARTS = ("train", "val", "test")
_KINDS = ("depth", "normal", "reflectance", "illumination")
_BSDS_ANCHORS = (".", "data", "BSR/BSDS500/data", "BSDS500/data")
_BIPED_PARTS = ("train/rgbr/real", "test/rgbr")

LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout(
            name="BSDS500",
            about="500 photographs, several annotators each; the first one's boundaries",
            page="https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/"
            "resources.html",
            splits="bsds500",
            anchors=_BSDS_ANCHORS,
            images=tuple(f"images/{part}" for part in _PARTS),
            labels=tuple(f"groundTruth/{part}" for part in _PARTS),
        ),
        Layout(
            name="BRIND",
            about="the 500 of BSDS500 labelled again, four kinds of edges, all merged",
            page="https://github.com/MengyangPu/RINDNet (or /xavysp/BRIND: merged PNG labels)",
            splits="bsds500",
            anchors=(".", "BRIND-main", "BSDS-RIND"),
            image_anchors=tuple(f"../BSDS500/{anchor}" for anchor in _BSDS_ANCHORS),
            images=tuple(f"images/{part}" for part in _PARTS),
            labels=(
                *("train_gt/gt", "train_gt/gt_all", "train_gt", "test_gt", "mat"),
                *(f"testgt/{kind}" for kind in _KINDS),
            ),
            annotator="merged",
            several=True,
        ),
        Layout(
            name="UDED",
            about="30 images of other data sets, edges of one annotator; 2 under 320 left out",
            page="https://github.com/xavysp/UDED",
            splits="uded",
            anchors=(".", "UDED-main"),
            images=("imgs",),
            labels=("gt",),
            left_out=("14-comic", "23-img_011_SRF_2_HR"),
        ),
        Layout(
            name="BIPED2",
            about="250 street scenes of 1280 x 720, second version; edges of one annotator",
            page="https://www.kaggle.com/datasets/xavysp/biped (its folder BIPEDv2)",
            splits="biped2",
            anchors=(".", "BIPED", "BIPEDv2", "BIPEDv2/BIPED"),
            images=tuple(f"edges/imgs/{part}" for part in _BIPED_PARTS),
            labels=tuple(f"edges/edge_maps/{part}" for part in _BIPED_PARTS),
        ),
    )
}
FOLDER_IMAGES = ("images", "imgs")
FOLDER_LABELS = ("labels", "gt", "edges", "masks")


def find_root(name: str, root: str | Path | None = None) -> Path:
    """The folder of a public data set.

    Args:
        name: BSDS500, BRIND, UDED or BIPED2.
        root: The folder, if it is known; nowhere else is looked then.

    Returns:
        A folder that exists.

    Raises:
        DataError: There is none; it says where was looked and how to download.

    >>> find_root("UDED", "nowhere")
    Traceback (most recent call last):
    knifeedge.errors.DataError: UDED is not in nowhere; get it with ...
    """
    places = search_places(name, root)
    for place in places:
        if place.is_dir():
            return place
    looked = " nor in ".join(map(str, places))
    raise DataError(
        f"{name} is not in {looked}; get it with knifeedge data download {name},"
        f" or say where it is: root (--root), or {ENVIRONMENT} for the folder that holds {name}"
    )


def search_places(name: str, root: str | Path | None = None) -> list[Path]:
    """Where `find_root` looks, in its order.

    >>> search_places("UDED", "here") == [Path("here")]
    True
    """
    if root is not None:
        return [Path(root)]
    shared = os.environ.get(ENVIRONMENT)
    return [*([Path(shared) / name] if shared else []), Path("data") / name]


def detect_layout(root: str | Path) -> Layout | None:
    """The public data set whose folders, and some of whose images, a folder has; or None.

    >>> detect_layout("nowhere") is None
    True
    """
    for layout in LAYOUTS.values():
        images, labels = layout.folders(Path(root))
        known = {name for names in load_splits(layout.splits).lists.values() for name in names}
        stems = (path.stem for folder in images for path in folder.iterdir())
        if labels and not known.isdisjoint(stems):  # imgs and gt alone could be anybody's
            return layout
    return None


def own_folders(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    labels: str | Path | None = None,
) -> tuple[Path, Path]:
    """The image and the label folder of an own set: given, or found in a root by their names.

    Args:
        root: A folder with images (or imgs) and labels (or gt, edges, masks).
        images: The image folder itself.
        labels: The label folder itself.

    Returns:
        Two folders; whether they can be read is seen when they are.

    >>> own_folders(images="a", labels="b") == (Path("a"), Path("b"))
    True
    """
    return (
        _own("images", root, images, FOLDER_IMAGES),
        _own("labels", root, labels, FOLDER_LABELS),
    )


def _own(
    what: str, root: str | Path | None, given: str | Path | None, known: Sequence[str]
) -> Path:
    if given is not None:
        return Path(given)
    if root is None:
        raise DataError(f"a folder set needs root, or {what}: the folder of its {what}")
    for name in known:
        if (Path(root) / name).is_dir():
            return Path(root) / name
    raise DataError(
        f"{root} holds no folder of {what} ({', '.join(known)}); name it with {what} (--{what})"
    )


def _existing(root: Path, anchors: Sequence[str], parts: Sequence[str]) -> list[Path]:
    """The folders under the first anchor that has any."""
    for anchor in anchors:
        found = [root / anchor / part for part in parts if (root / anchor / part).is_dir()]
        if found:
            return found
    return []
