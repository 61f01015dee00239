"""Reading, pairing, splitting and cutting training data; a made-up set; and downloads.

A name is imported when it is first used, so that listing data sets never waits for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knifeedge.data.check import check_folder as check_folder
    from knifeedge.data.datasets import (
        FileSet as FileSet,
        LabelRule as LabelRule,
        load_dataset as load_dataset,
        open_folder as open_folder,
    )
    from knifeedge.data.downloads import download as download
    from knifeedge.data.images import read_image as read_image, read_label as read_label
    from knifeedge.data.plan import CropPlan as CropPlan, CropSettings as CropSettings
    from knifeedge.data.pool import (
        CropDataset as CropDataset,
        CropPool as CropPool,
        normalise as normalise,
    )
    from knifeedge.data.samples import EdgeSet as EdgeSet, Sample as Sample
    from knifeedge.data.sheet import contact_sheet as contact_sheet
    from knifeedge.data.splits import load_splits as load_splits, seeded_splits as seeded_splits
    from knifeedge.data.synthetic import (
        Difficulty as Difficulty,
        SyntheticSet as SyntheticSet,
        synthetic_scene as synthetic_scene,
    )

_HOME_OF = {
    "CropDataset": "pool",
    "CropPlan": "plan",
    "CropPool": "pool",
    "CropSettings": "plan",
    "Difficulty": "synthetic",
    "EdgeSet": "samples",
    "FileSet": "datasets",
    "LabelRule": "datasets",
    "Sample": "samples",
    "SyntheticSet": "synthetic",
    "check_folder": "check",
    "contact_sheet": "sheet",
    "download": "downloads",
    "load_dataset": "datasets",
    "load_splits": "splits",
    "normalise": "pool",
    "open_folder": "datasets",
    "read_image": "images",
    "read_label": "images",
    "seeded_splits": "splits",
    "synthetic_scene": "synthetic",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"knifeedge.data.{_HOME_OF[name]}"), name)
    raise AttributeError(f"knifeedge.data has no name {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
