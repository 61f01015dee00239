import io

import numpy as np
import pytest
import scipy.io
from PIL import Image

from knifeedge.data.annotations import check_annotator, choose_annotator, read_annotations
from knifeedge.errors import DataError
from shared_data import data_dir

FIRST, SECOND = np.eye(5, 7, dtype=np.uint8), np.eye(5, 7, 2, dtype=np.uint8)


def bsds(*boundaries):
    truth = np.empty((1, len(boundaries)), object)
    for number, array in enumerate(boundaries):
        truth[0, number] = {"Segmentation": array, "Boundaries": array}
    return {"groundTruth": truth}


def rind(planes):
    cell = np.empty((1, 1), object)
    cell[0, 0] = planes
    return {"gtStruct": {"gt_theta": cell}}


def mat(path, content, **options):
    scipy.io.savemat(path, content, **options)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_bsds_annotators(tmp_path, compressed):
    path = mat(tmp_path / "a.mat", bsds(FIRST, SECOND), do_compression=compressed)
    first, second = read_annotations(path)
    np.testing.assert_array_equal(first, FIRST * 255)
    np.testing.assert_array_equal(second, SECOND * 255)


@pytest.mark.parametrize("background", [0, 1])
def test_the_four_kinds_of_rind(tmp_path, background):
    planes = np.zeros((5, 7, 4 + background))
    planes[..., :background] = 1
    planes[..., background] = FIRST
    planes[..., -1] = SECOND
    labels = read_annotations(mat(tmp_path / "a.mat", rind(planes)))
    assert len(labels) == 4
    np.testing.assert_array_equal(choose_annotator(labels, "merged", "a"), (FIRST | SECOND) * 255)


def test_choice():
    labels = [FIRST * 255, SECOND * 255]
    assert choose_annotator(labels, 1, "a") is labels[1]
    with pytest.raises(DataError, match=r"a\.mat has no annotator 2; it has 0 to 1, or 'merged'"):
        choose_annotator(labels, 2, "a.mat")
    for wrong in (-1, True, "first", 0.0):
        with pytest.raises(ValueError, match="annotator must be 0"):
            check_annotator(wrong)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"edges": FIRST}, "holds no groundTruth cells .* its variables: edges"),
        ({"groundTruth": FIRST}, "holds no groundTruth cells"),
        (bsds(FIRST, np.zeros((3, 3))), r"labels of shapes \[\(3, 3\), \(5, 7\)\]"),
        (bsds(np.zeros((0, 0))), "one .H, W. is needed"),
        (rind(np.zeros((5, 7, 2))), "holds no groundTruth cells"),
        ({"gtStruct": FIRST}, "holds no groundTruth cells"),
    ],
)
def test_other_mat_files(tmp_path, content, reason):
    with pytest.raises(DataError, match=reason):
        read_annotations(mat(tmp_path / "a.mat", content))


def test_what_is_no_mat_file(tmp_path):
    (tmp_path / "folder.mat").mkdir()
    (tmp_path / "hdf.mat").write_bytes(b"MATLAB 7.3 MAT-file" + b" " * 200)
    for name, reason in (
        ("missing.mat", "No such file"),
        ("folder.mat", "is not a file"),
        ("hdf.mat", "no MAT file of version 5 to 7"),
    ):
        with pytest.raises(DataError, match=reason):
            read_annotations(tmp_path / name)


def test_a_picture_is_one_annotator(tmp_path):
    Image.fromarray(FIRST * 100).save(tmp_path / "a.png")
    (label,) = read_annotations(tmp_path / "a.png")
    np.testing.assert_array_equal(label, FIRST * 100)


@pytest.mark.parametrize(
    "content", [bsds(FIRST, SECOND), rind(np.ones((5, 7, 5)))], ids=["bsds", "rind"]
)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_malformed_mat_files_are_refused_or_read_as_labels(
    tmp_path, malformed, content, compressed
):
    data = io.BytesIO()
    scipy.io.savemat(data, content, do_compression=compressed)
    path = tmp_path / "a.mat"
    messages = []
    for damaged in malformed(data.getvalue(), count=400):
        path.write_bytes(damaged)
        try:
            labels = read_annotations(path)
        except DataError as error:
            messages.append(str(error))
        else:
            assert len({label.shape for label in labels}) == 1
            assert all(label.dtype == np.uint8 and label.ndim == 2 for label in labels)
    assert len(messages) > 100
    assert all("a.mat" in message for message in messages)


def test_real_bsds_files_against_scipy():
    for path in sorted((data_dir("BSDS500") / "groundTruth" / "val").glob("*.mat"))[:5]:
        cells = scipy.io.loadmat(path)["groundTruth"].flat
        expected = [cell["Boundaries"].item() > 0 for cell in cells]
        found = read_annotations(path)
        assert len(found) == len(expected)
        for label, truth in zip(found, expected, strict=True):
            np.testing.assert_array_equal(label, truth * np.uint8(255))
