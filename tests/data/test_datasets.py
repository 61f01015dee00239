import warnings

import numpy as np
import pytest
import scipy.io
from PIL import Image

from knifeedge.data.datasets import FileSet, LabelRule, load_dataset, open_folder
from knifeedge.data.images import read_image
from knifeedge.data.layouts import LAYOUTS, detect_layout
from knifeedge.data.splits import load_splits
from knifeedge.errors import ConfigError, DataError
from shared_data import data_dir

SIZE = (12, 4)


def picture(path, value=0, size=SIZE):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)


def edge(path, column=1, size=SIZE):
    label = np.zeros(size[::-1], np.uint8)
    label[:, column] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(label).save(path)


def mat(path, *columns):
    truth = np.empty((1, len(columns)), object)
    for number, column in enumerate(columns):
        boundaries = np.zeros(SIZE[::-1], np.uint8)
        boundaries[:, column] = 1
        truth[0, number] = {"Boundaries": boundaries}
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {"groundTruth": truth})


def columns(label):
    return np.flatnonzero(label.any(axis=0)).tolist()


def uded(root, left_out=()):
    lists = load_splits("uded").lists
    for name in {name for names in lists.values() for name in names} - set(left_out):
        picture(root / "imgs" / f"{name}.png")
        edge(root / "gt" / f"{name}.png")
    return root


@pytest.mark.parametrize("inner", [".", "UDED-main"])
def test_uded(tmp_path, inner):
    uded(tmp_path / inner)
    train = load_dataset("uded", root=tmp_path)
    assert train.names == load_splits("uded").names("train")
    assert columns(train[0].label) == [1]
    assert train[0].image.shape == (4, 12, 3)
    assert train.size(0) == (4, 12)
    everything = load_dataset("UDED", "all", root=tmp_path)
    assert len(everything) == 28
    assert not set(LAYOUTS["UDED"].left_out) & set(everything.names)
    assert detect_layout(tmp_path).name == "UDED"


def test_over_the_folds_of_uded_every_image_tests_once(tmp_path):
    uded(tmp_path)
    everything = load_dataset("UDED", "all", root=tmp_path)
    tested = []
    for fold in range(4):
        sets = {
            split: load_dataset("UDED", split, root=tmp_path, fold=fold).names
            for split in ("train", "pretrain", "validation", "test")
        }
        assert not set(sets["test"]) & {*sets["train"], *sets["pretrain"], *sets["validation"]}
        assert sorted(sets["train"] + sets["test"]) == sorted(everything.names)
        tested += sets["test"]
    assert sorted(tested) == sorted(everything.names)
    assert load_dataset("UDED", "all", root=tmp_path, fold=1).names == everything.names
    with pytest.raises(ValueError, match="fold must be a whole number from 0 to 3, got 4"):
        load_dataset("UDED", "test", root=tmp_path, fold=4)
    with pytest.raises(ConfigError, match=r"no split 'unused'; it has train, .* test and all"):
        load_dataset("UDED", "unused", root=tmp_path, fold=0)


@pytest.mark.parametrize("inner", [".", "BSR/BSDS500/data"])
def test_bsds500_and_its_annotators(tmp_path, inner):
    for number, name in enumerate(load_splits("bsds500").names("validation")):
        part = ("train", "val", "test")[number % 3]
        picture(tmp_path / inner / "images" / part / f"{name}.jpg")
        mat(tmp_path / inner / "groundTruth" / part / f"{name}.mat", 1, 3)
    for annotator, expected in ((None, [1]), (0, [1]), (1, [3]), ("merged", [1, 3])):
        options = {} if annotator is None else {"annotator": annotator}
        opened = load_dataset("BSDS500", "validation", root=tmp_path, **options)
        assert len(opened) == 100
        assert columns(opened[7].label) == expected
    with pytest.raises(DataError, match="has no annotator 2; it has 0 to 1"):
        load_dataset("BSDS500", "validation", root=tmp_path, annotator=2)[0]
    with pytest.raises(ConfigError, match="annotator must be a whole number or 'merged', got 'b"):
        load_dataset("BSDS500", "validation", root=tmp_path, annotator="best")


@pytest.mark.parametrize("inside", [True, False], ids=["images inside", "images of BSDS500"])
def test_brind_merges_all_annotations(tmp_path, inside):
    root = tmp_path / "BRIND"
    images = (root if inside else tmp_path / "BSDS500") / "images" / "train"
    names = load_splits("bsds500").names("test")
    for number, name in enumerate(names):
        picture(images / f"{name}.jpg")
        if number % 2:  # as RINDNet publishes it
            for column, kind in enumerate(("depth", "normal", "reflectance", "illumination")):
                mat(root / "testgt" / kind / f"{name}.mat", column, column + 1)
        else:  # merged, as LDC's author publishes it
            edge(root / "test_gt" / f"{name}.png", 2)
    test = load_dataset("brind", "test", root=root)
    assert test.names == names
    assert columns(test[0].label) == [2]
    assert columns(test[1].label) == [0, 1, 2, 3, 4]
    assert detect_layout(root).name == "BRIND"


@pytest.mark.parametrize("inner", [".", "BIPEDv2/BIPED"])
def test_biped2(tmp_path, inner):
    splits = load_splits("biped2")
    for split, part in (("train", "train/rgbr/real"), ("test", "test/rgbr")):
        for name in splits.names(split):
            picture(tmp_path / inner / "edges" / "imgs" / part / f"{name}.jpg")
            edge(tmp_path / inner / "edges" / "edge_maps" / part / f"{name}.png")
    assert [len(load_dataset("BIPED2", s, root=tmp_path)) for s in splits.lists] == [
        200,
        150,
        50,
        50,
    ]
    assert columns(load_dataset("BIPED2", "test", root=tmp_path)[0].label) == [1]
    assert detect_layout(tmp_path).name == "BIPED2"


def test_everything_missing_is_named_at_once(tmp_path):
    first, second = load_splits("UDED").names("train")[:2]
    uded(tmp_path, left_out=[first, second])
    (tmp_path / "gt" / "12-cameraman.png").unlink()
    with pytest.raises(DataError) as error:
        load_dataset("UDED", root=tmp_path)
    assert "3 of 20 images cannot be used, UDED in" in str(error.value)
    assert f"there is no {first}, {second}" in str(error.value)
    assert "image 12-cameraman.png has no label" in str(error.value)
    assert len(load_dataset("UDED", "test", root=tmp_path)) == 7


def test_where_data_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KNIFEEDGE_DATA", raising=False)
    with pytest.raises(
        DataError, match="UDED is not in data/UDED; get it with knifeedge data download"
    ):
        load_dataset("UDED")
    uded(tmp_path / "data" / "UDED")
    assert len(load_dataset("UDED")) == 20
    monkeypatch.setenv("KNIFEEDGE_DATA", str(tmp_path / "shared"))
    assert len(load_dataset("UDED")) == 20  # not there, so ./data
    (tmp_path / "data" / "UDED").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"UDED is not in .*shared/UDED nor in data/UDED"):
        load_dataset("UDED")
    uded(tmp_path / "shared" / "UDED", left_out=["16-tire"])
    with pytest.raises(DataError, match="16-tire"):
        load_dataset("UDED")
    with pytest.raises(DataError, match="UDED is not in nowhere; "):  # a root is the only place
        load_dataset("UDED", root="nowhere")


def test_a_folder_of_something_else(tmp_path):
    (tmp_path / "imgs").mkdir()
    with pytest.raises(DataError, match="has no labels of UDED: none of gt is there; get it with"):
        load_dataset("UDED", root=tmp_path)
    (tmp_path / "gt").mkdir()
    assert detect_layout(tmp_path) is None


def test_an_unknown_name_is_answered_with_the_known_ones():
    known = "BSDS500, BRIND, UDED, BIPED2, folder, synthetic"
    with pytest.raises(ConfigError, match=f"no data set 'NYUD'; there are {known}"):
        load_dataset("NYUD")
    with pytest.raises(ConfigError, match="no split 'val'"):
        load_dataset("UDED", "val")
    with pytest.raises(ConfigError, match="no folder; leave root"):
        load_dataset("synthetic", root="here")


def own(root, values, size=SIZE):
    """One image for each list of label rows."""
    for number, value in enumerate(values):
        picture(root / "images" / f"{number}.jpg", size=size)
        (root / "labels").mkdir(exist_ok=True)
        Image.fromarray(np.asarray(value, np.uint8)).save(root / "labels" / f"{number}.png")
    return root


def test_the_rule_for_own_labels(tmp_path):
    row = [[0, 60, 127, 128, 200, 255]] * 4
    own(tmp_path, [row], size=(6, 4))
    kept = open_folder(root=tmp_path)[0]
    np.testing.assert_array_equal(kept.label, row)
    assert kept.mask is None
    hard = open_folder(root=tmp_path, threshold=0.5, ignore=200)
    assert hard.has_mask
    np.testing.assert_array_equal(hard[0].label[0], [0, 0, 0, 255, 0, 255])
    np.testing.assert_array_equal(hard[0].mask[0], [1, 1, 1, 1, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        turned = open_folder(root=tmp_path, invert=True, ignore=0)[0]
    np.testing.assert_array_equal(turned.label[0], [0, 195, 128, 127, 55, 0])


@pytest.mark.parametrize("row", [[0, 1, 0, 1], [0, 1, 255, 1], [0, 0, 255, 0], [0, 255, 7, 0]])
@pytest.mark.parametrize("ignore", [255, 7])
def test_labels_of_ones_with_pixels_to_ignore(tmp_path, row, ignore):
    """What is ignored is told by the value in the file; ones are edges beside zeros alone."""
    own(tmp_path, [[row] * 4], size=(4, 4))
    sample = open_folder(root=tmp_path, ignore=ignore)[0]
    np.testing.assert_array_equal(sample.mask[0], np.array(row) != ignore)
    left = {value for value in row if value != ignore}
    white = 255 if left <= {0, 1} else 1
    expected = [0 if value == ignore else value * white if value == 1 else value for value in row]
    np.testing.assert_array_equal(sample.label[0], expected)


def test_ones_are_made_white_before_a_rule_turns_them(tmp_path):
    own(tmp_path, [[[1, 1, 1, 0, 255]] * 4], size=(5, 4))
    sample = open_folder(root=tmp_path, ignore=255, invert=True, threshold=0.5)[0]
    np.testing.assert_array_equal(sample.label[0], [0, 0, 0, 255, 0])


@pytest.mark.parametrize("wrong", [{"threshold": 1}, {"ignore": 256}, {"annotator": -1}])
def test_wrong_rules(tmp_path, wrong):
    own(tmp_path, [np.zeros((4, 12))])
    with pytest.raises(ValueError, match=next(iter(wrong))):
        open_folder(root=tmp_path, **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"invert": "False"}, "invert must be true or false, got 'False'"),
        ({"invert": 0}, "invert must be true or false, got 0"),
        ({"ignore": "abc"}, "ignore must be a whole number, got 'abc'"),
        ({"ignore": 128.5}, "ignore must be a whole number, got 128.5"),
        ({"threshold": "abc"}, "threshold must be a number, got 'abc'"),
        ({"test_share": "abc"}, "test_share must be a number, got 'abc'"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": True}, "seed must be a whole number, got True"),
        ({"images": 2024}, "images must be text or a path, got 2024"),
        ({"annotator": 1.0}, "annotator must be a whole number or 'merged', got 1.0"),
    ],
)
def test_options_of_another_type(tmp_path, wrong, message):
    own(tmp_path, [np.zeros((4, 12))])
    with pytest.raises(ConfigError, match=message):
        load_dataset("folder", "all", root=tmp_path, **wrong)
    rule = {name: value for name, value in wrong.items() if name in LabelRule.__annotations__}
    if rule:
        with pytest.raises(ConfigError, match=message):
            LabelRule(**rule)


def test_options_of_the_made_up_set():
    for wrong, message in (
        ({"count": True}, "count must be a whole number, got True"),
        ({"size": (32, 48.0)}, "size must be a whole number or a list of 2, each a whole number"),
        ({"seed": None}, "seed must be a whole number, got None"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset("synthetic", **wrong)
    assert load_dataset("synthetic", size=[32, 48]).size(0) == (32, 48)


def test_own_folders_by_name_or_given(tmp_path):
    own(tmp_path / "a", [np.zeros((4, 12))] * 10)
    (tmp_path / "a" / "images").rename(tmp_path / "pictures")
    with pytest.raises(
        DataError, match=r"holds no folder of images \(images, imgs\); name it with"
    ):
        open_folder(root=tmp_path / "a")
    opened = open_folder(root=tmp_path / "a", images=tmp_path / "pictures")
    assert len(opened) == 10
    places = {"root": tmp_path / "a", "images": tmp_path / "pictures"}
    splits = ("train", "test", "pretrain", "validation")
    parts = [load_dataset("folder", split, seed=3, **places) for split in splits]
    assert [len(part) for part in parts] == [8, 2, 6, 2]
    assert sorted(parts[0].names + parts[1].names) == sorted(opened.names)
    with pytest.raises(DataError, match="needs root, or images"):
        open_folder()
    with pytest.raises(DataError, match=r"folder .*nothing cannot be read"):
        open_folder(images=tmp_path / "nothing", labels=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there is nothing to read"):
        open_folder(images=tmp_path / "empty", labels=tmp_path / "empty")


def test_names_not_positions_make_the_pairs(tmp_path):
    for name, value in (("a", 10), ("b", 20), ("c", 30)):
        picture(tmp_path / "images" / f"{name}.png", value)
    for name in ("b", "c", "d"):
        edge(tmp_path / "labels" / f"{name}.png")
    picture(tmp_path / "images" / "c.jpg")
    (tmp_path / "images" / ".hidden.png").touch()
    (tmp_path / "images" / "notes.txt").touch()
    with pytest.raises(DataError) as error:
        open_folder(root=tmp_path)
    for text in ("3 of 4", "image a.png has no label", "label d.png has no image", "same name"):
        assert text in str(error.value)


def test_sizes_must_agree(tmp_path):
    own(tmp_path, [np.zeros((4, 12))], size=(12, 5))
    with pytest.raises(DataError, match=r"0\.jpg is 12 x 5 but its label .*0\.png is 12 x 4"):
        open_folder(root=tmp_path)[0]


def test_a_label_that_is_mostly_white_warns(tmp_path):
    half = np.zeros((4, 12))
    half[:2] = 255
    more = half.copy()
    more[2, 0] = 255
    own(tmp_path, [half, more])
    opened = open_folder(root=tmp_path)
    opened[0]
    with pytest.warns(UserWarning, match=r"1\.png has 52% .* inverted, black on white"):
        opened[1]


def test_the_real_uded(monkeypatch):
    monkeypatch.setenv("KNIFEEDGE_DATA", str(data_dir("UDED").parent))
    everything = load_dataset("UDED", "all")
    assert len(everything) == 28
    sample = everything[0]
    assert sample.image.shape[:2] == sample.label.shape == everything.size(0)
    assert isinstance(everything, FileSet)
    np.testing.assert_array_equal(sample.image, read_image(everything.pairs[0].image))


def test_the_real_bsds500(monkeypatch):
    monkeypatch.setenv("KNIFEEDGE_DATA", str(data_dir("BSDS500").parent))
    for split, count in (("train", 400), ("test", 100), ("pretrain", 300), ("validation", 100)):
        opened = load_dataset("BSDS500", split)
        assert len(opened) == count
        first, merged = opened[0], load_dataset("BSDS500", split, annotator="merged")[0]
        assert {first.label.shape, first.image.shape[:2]} <= {(321, 481), (481, 321)}
        assert np.all(merged.label >= first.label)


def test_rule_defaults_keep_everything():
    label = np.arange(256, dtype=np.uint8).reshape(16, 16)
    kept, mask = LabelRule().apply(label)
    np.testing.assert_array_equal(kept, label)
    assert mask is None
