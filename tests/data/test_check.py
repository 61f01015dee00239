import numpy as np
import pytest
from PIL import Image

from knifeedge.data.check import check_folder
from knifeedge.data.samples import Sample
from knifeedge.data.sheet import contact_sheet, write_sheet
from knifeedge.data.synthetic import SyntheticSet
from knifeedge.errors import DataError
from shared_data import data_dir


def put(path, array):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(np.asarray(array)).save(path)


EDGE = np.zeros((10, 20), np.uint8)
EDGE[:, 3] = 255


@pytest.fixture
def folder(tmp_path):
    """Everything that can be wrong, once."""
    for name in ("fine", "empty", "inverted", "size", "colour", "soft", "broken", "alone"):
        put(tmp_path / "images" / f"{name}.png", np.zeros((10, 20, 3), np.uint8))
        put(tmp_path / "labels" / f"{name}.png", EDGE)
    put(tmp_path / "labels" / "empty.png", EDGE * 0)
    put(tmp_path / "labels" / "inverted.png", 255 - EDGE)
    put(tmp_path / "labels" / "size.png", EDGE[:, :19])
    put(tmp_path / "labels" / "colour.png", np.repeat(EDGE[..., None], 3, 2))
    put(tmp_path / "labels" / "soft.png", EDGE // 2)
    put(tmp_path / "images" / "colour.png", np.full((10, 20, 4), 200, np.uint8))
    (tmp_path / "images" / "broken.png").write_bytes(b"not a picture")
    (tmp_path / "labels" / "alone.png").unlink()
    (tmp_path / "labels" / "broken.png").write_bytes(b"nor this")
    put(tmp_path / "labels" / "other.png", EDGE)
    return tmp_path


def test_every_problem_at_once(folder):
    report = check_folder(folder)
    assert [(p.name, p.kind) for p in report.problems] == [
        ("alone", "unpaired"),
        ("broken", "unreadable"),
        ("broken", "unreadable"),
        ("colour", "mode"),
        ("colour", "mode"),
        ("empty", "empty"),
        ("inverted", "inverted"),
        ("other", "unpaired"),
        ("size", "size"),
    ]
    assert not report.usable
    assert report.layout == "folder"
    assert report.pairs == 7
    assert report.soft == 1
    assert report.annotators == {1: 6}
    assert report.sizes == ((10, 20), (10, 20))
    assert report.edge_share == (0.0, 0.05, 0.95)


def test_a_set_in_order(tmp_path):
    put(tmp_path / "a" / "1.png", np.zeros((10, 20, 3), np.uint8))
    put(tmp_path / "b" / "1.png", EDGE)
    calls = []
    report = check_folder(
        images=tmp_path / "a", labels=tmp_path / "b", progress=lambda *c: calls.append(c)
    )
    assert report.usable
    assert not report.problems
    assert calls == [(1, 1)]


@pytest.mark.parametrize(("value", "remark"), [(1, False), (2, True), (8, True), (9, False)])
def test_labels_that_look_like_classes_are_remarked_on(tmp_path, value, remark):
    put(tmp_path / "images" / "a.png", np.zeros((10, 20, 3), np.uint8))
    put(tmp_path / "labels" / "a.png", EDGE // 255 * value)
    report = check_folder(tmp_path)
    assert report.usable
    assert [problem.kind for problem in report.problems] == ["values"] * remark
    # Beside white, ones are no edges either: white may be what is to be ignored.
    label = EDGE // 255
    label[:, 9] = 255
    put(tmp_path / "labels" / "a.png", label)
    (problem,) = check_folder(tmp_path).problems
    assert "has no grey values but 0 to 1 and 255: are these classes?" in problem.message


def test_what_cannot_be_checked(tmp_path):
    with pytest.raises(
        DataError, match=r"there is no folder .*nowhere; give one with images and labels"
    ):
        check_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no folder of images"):
        check_folder(tmp_path)


def test_an_empty_set_is_not_usable(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    report = check_folder(tmp_path)
    assert report.pairs == 0
    assert not report.usable


def test_the_real_uded():
    report = check_folder(data_dir("UDED"))
    assert report.layout == "UDED"
    assert report.pairs == 30
    assert report.usable
    assert [(p.name, p.kind) for p in report.problems] == [("10-196062", "mode")]
    assert report.annotators == {1: 30}


def test_the_real_bsds500():
    report = check_folder(data_dir("BSDS500"))
    assert report.layout == "BSDS500"
    assert report.pairs == 500
    assert {p.kind for p in report.problems} <= {"empty"}
    assert sum(report.annotators.values()) == 500
    assert min(report.annotators) >= 4


def test_a_sheet_shows_images_over_labels():
    sheet = contact_sheet(SyntheticSet(count=5, size=(40, 60)), columns=3, cell=60)
    pixels = np.asarray(sheet)
    assert sheet.size == (3 * 64 + 4, 2 * (2 * 60 + 8 + 12) + 4)
    label = pixels[4 + 40 + 4 : 4 + 40 + 4 + 40, 4:64]
    np.testing.assert_array_equal(label[..., 0], SyntheticSet(count=1, size=(40, 60))[0].label)


def test_ignored_pixels_are_red_and_long_names_are_cut(tmp_path):
    mask = np.ones((20, 20), bool)
    mask[:10] = False
    sample = Sample("n" * 99, np.zeros((20, 20, 3), np.uint8), np.zeros((20, 20), np.uint8), mask)
    sheet = contact_sheet([sample], cell=20)
    assert sheet.width == 28
    np.testing.assert_array_equal(np.asarray(sheet)[32, 10], [200, 60, 60])
    write_sheet(sheet, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as written:
        assert written.size == sheet.size


def test_nothing_to_show():
    with pytest.raises(DataError, match="nothing to show"):
        contact_sheet([])
    with pytest.raises(ValueError, match="columns"):
        contact_sheet([], columns=0)
