"""The weights that ship: how they are found, how they are made, and their card."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

import knifeedge as ke
from knifeedge.data import load_dataset, load_splits
from knifeedge.data.datasets import FileSet
from knifeedge.data.pairing import Pair
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.data.synthetic import synthetic_scene
from knifeedge.engine import shipped
from knifeedge.engine.checkpoint import load_model, read_info
from knifeedge.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def weights():
    return importlib.import_module("weights")


@pytest.fixture
def images():
    return importlib.import_module("shipping.images")


@pytest.fixture
def scoring():
    return importlib.import_module("shipping.scoring")


@pytest.fixture
def card():
    return importlib.import_module("shipping.card")


# --- the file -------------------------------------------------------------------------------------


def test_a_package_without_weights(monkeypatch):
    monkeypatch.setattr(shipped, "SHIPPED", "none.safetensors")
    with pytest.raises(ConfigError, match="no weights are named; give a run's folder or a file"):
        shipped.shipped_weights()


def test_the_benchmark_writes_where_the_package_looks(card):
    package = Path(shipped.__file__).relative_to(ROOT).parent
    assert str(package / shipped.SHIPPED) == card.WEIGHTS


def test_the_weights_of_the_package():
    try:
        path = shipped.shipped_weights()
    except ConfigError:
        pytest.skip("this package has no weights yet")
    assert path.stat().st_size <= 1_000_000
    info = read_info(path)
    assert info.model.name == "tiny"
    assert 0 < info.threshold < 1
    for name in ("bsds500", "uded"):
        tested = load_splits(name).names("test")
        assert not {image.split("/")[1] for image in info.trained_on} & set(tested)
    network, _ = load_model(path)
    image = np.full((64, 64, 3), 40, np.uint8)
    image[:, 32:] = 200
    prob = ke.predict(network, image)
    assert prob[16:48, 31:33].max(axis=1).min() > 0.5  # the one edge there is
    assert prob[16:48, 8:24].max() < 0.2


def test_the_border_of_a_picture_is_no_edge():
    """Of any size: the last row and column are judged as when they come first."""
    network, _ = load_model(shipped.shipped_weights())
    for size in ((97, 129), (90, 107)):
        last, first = [], []
        for number in range(6):
            scene, _ = synthetic_scene(0, number, size)
            prob, turned = (ke.predict(network, x) for x in (scene, scene[::-1, ::-1].copy()))
            last += [prob[-1].mean(), prob[:, -1].mean()]
            first += [turned[0].mean(), turned[:, 0].mean()]
        assert np.mean(last) < 1.1 * np.mean(first)


def test_the_card_is_that_of_the_record(card):
    record = ROOT / card.RECORD
    if not record.is_file():
        pytest.skip("the weights have not been made yet")
    content = json.loads(record.read_text())
    folds = json.loads((ROOT / card.FOLDS).read_text())
    others = json.loads((ROOT / card.REFERENCE).read_text())["detectors"]
    assert (ROOT / card.CARD).read_text() == card.card(content, folds, others)
    assert (ROOT / card.CARD).read_text().count("`baa") >= len(folds)
    assert (ROOT / card.WEIGHTS).stat().st_size == content["bytes"]
    assert read_info(ROOT / card.WEIGHTS).threshold == content["threshold"]


def test_the_command_of_the_card_gives_the_settings_of_the_record(weights, card, monkeypatch):
    page = (ROOT / card.CARD).read_text()
    command = re.search(r"^python benchmarks/weights.py (.*)$", page, re.MULTILINE)
    words = shlex.shlex(command[1], posix=True, punctuation_chars=True)
    words.whitespace_split = True  # as a shell does it, to which a bare bracket is no word
    monkeypatch.setattr(sys, "argv", ["weights.py", *words])
    record = json.loads((ROOT / card.RECORD).read_text())
    assert weights.kept(weights.arguments()) == record["settings"]


# --- the images -----------------------------------------------------------------------------------


class Pictures(EdgeSet):
    def __init__(self, name: str, *pictures: np.ndarray) -> None:
        self.name, self.pictures = name, pictures
        self.names = tuple(f"{name}-{number}" for number in range(len(pictures)))

    def __getitem__(self, index: int) -> Sample:
        image = self.pictures[index]
        return Sample(self.names[index], image, np.zeros(image.shape[:2], np.uint8))

    def size(self, index: int) -> tuple[int, int]:
        return self.pictures[index].shape[:2]


def scene(number: int) -> np.ndarray:
    return load_dataset("synthetic", "all", count=8, size=96)[number].image


def test_a_picture_is_known_at_any_size_and_turn(images):
    changed = np.rot90(scene(3))[:, ::-1]
    larger = np.asarray(Image.fromarray(np.ascontiguousarray(changed)).resize((150, 120)))
    one = Pictures("one", *(scene(number) for number in range(6)))
    other = Pictures("other", scene(6), larger, scene(7), np.full((9, 9, 3), 7, np.uint8))
    left, right = images.thumbnails(one), images.thumbnails(other)
    assert images.same_pictures(left, right) == [(3, 1)]
    assert images.same_pictures(right, left) == [(1, 3)]


def splits(name: str, pretrain, validation, train, test) -> dict[str, EdgeSet]:
    parts = {"pretrain": pretrain, "validation": validation, "train": train, "test": test}
    return {split: Pictures(name, *map(scene, numbers)) for split, numbers in parts.items()}


def test_test_images_are_not_trained_on(images):
    sets = {"A": splits("A", [0], [1], [0, 1], [2]), "B": splits("B", [3], [4], [3, 2], [5])}
    with pytest.raises(DataError, match="B-1 of B to train on is the picture A-0 of A to test on"):
        images.separated(sets)


def test_images_to_validate_on_are_not_pre_trained_on(images):
    """As two of UDED's are in the other set, and the other way round."""
    sets = {"A": splits("A", [0, 4], [1], [0, 1], [2]), "B": splits("B", [3], [4], [3, 4], [5])}
    found = images.separated(sets)
    assert found["A"]["pretrain"].names == ("A-0",)
    assert np.array_equal(found["A"]["pretrain"][0].image, scene(0))
    assert found["A"]["pretrain"].size(0) == (96, 96)
    assert [len(found["A"][split]) for split in ("validation", "train", "test")] == [1, 2, 1]
    assert len(found["B"]["pretrain"]) == 1


def test_a_batch_has_its_share_of_both(images, given):
    """One set is all dark, the other all light; the smaller one begins again."""
    dark = Pictures("dark", *[np.zeros((40, 40, 3), np.uint8)] * 3)
    light = Pictures("light", np.full((40, 40, 3), 255, np.uint8))
    given.batch_size, given.share, given.noiseless = 8, 0.25, False
    mixture = images.Mixture([dark, light], given, torch.device("cpu"))
    assert mixture.samples == 4 * 8
    for step in (0, 5, 11):
        image, target = mixture.batch(step)
        assert target.shape == (8, 1, 32, 32)
        assert (image.mean(dim=(1, 2, 3)) > 0).tolist() == [False] * 6 + [True] * 2


def test_jitter_changes_the_light_and_not_the_edges(images):
    draws = torch.Generator()
    ramp = torch.linspace(-2, 2, 64).expand(4, 3, 64, 64).contiguous()
    assert torch.equal(images.jittered(ramp, 0.0, draws.manual_seed(1)), ramp)
    one, again = (images.jittered(ramp, 0.5, draws.manual_seed(1)) for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, images.jittered(ramp, 0.5, draws.manual_seed(2)))
    assert len({round(float(x.mean()), 4) for x in one}) == 4  # each image in its own way
    rises = one[..., -8:].mean(dim=(1, 2, 3)) - one[..., :8].mean(dim=(1, 2, 3))
    assert 1 < rises.min() < rises.max() < 8  # still dark on the left, light on the right


# --- training -------------------------------------------------------------------------------------


@pytest.fixture
def given(weights, tmp_path, monkeypatch):
    options = "--steps 3 --crop 32 --batch-size 4 --accelerator cpu --precision 32-true --out"
    monkeypatch.setattr(sys, "argv", ["weights.py", *options.split(), str(tmp_path)])
    return weights.arguments()


def test_the_learning_rate_rises_and_falls_to_nothing(weights):
    rates = [weights.learning_rate(step, 200, 0.5) for step in range(200)]
    assert max(rates) == pytest.approx(0.5)
    peak = int(np.argmax(rates))
    assert np.diff(rates[: peak + 1]).min() > 0 > np.diff(rates[peak + 1 :]).max()
    assert 0 < rates[0] <= 0.05
    assert 0 < rates[-1] < 1e-4
    assert weights.learning_rate(200, 200, 0.5) == pytest.approx(0)
    assert weights.learning_rate(0, 1, 0.5) == 0.5


def test_the_learning_rate_is_set_in_place_where_it_is_a_tensor(weights):
    """A captured step knows the tensor, and not the group it is in."""
    place = torch.tensor(1.0)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    weights.set_learning_rate(optimiser, 0.25)
    assert optimiser.param_groups[0]["lr"] == 0.25
    optimiser.param_groups[0]["lr"] = place
    weights.set_learning_rate(optimiser, 0.125)
    assert place.item() == 0.125


@pytest.fixture
def small_data(images, monkeypatch):
    """Both sets as drawings, of another seed each."""

    def load(name: str, split: str, **_: object) -> EdgeSet:
        return load_dataset("synthetic", split, count=8, size=48, seed=images.SETS.index(name))

    monkeypatch.setattr(images, "load_dataset", load)


def test_everything_is_made(weights, card, given, small_data, tmp_path, capsys):
    weights.main()
    assert "threshold" in capsys.readouterr().out
    record = json.loads((tmp_path / card.RECORD).read_text())
    network, info = load_model(tmp_path / card.WEIGHTS)
    assert info.threshold == record["threshold"]
    assert sum(p.numel() for p in network.parameters()) == record["parameters"]
    assert {name.split("/")[0] for name in info.trained_on} == {"synthetic"}
    assert record["steps"] == 3
    for name in ("BSDS500", "UDED"):
        assert record["scores"]["tiny"][name].keys() == {
            *("paper-strict", "paper-relaxed", "bsds[nms=False]"),
        }
    page = (tmp_path / card.CARD).read_text()
    others = json.loads((ROOT / card.REFERENCE).read_text())["detectors"]
    assert page == card.card(record, (), others)
    assert all(f"| {name} | {other['parameters']:,} |" in page for name, other in others.items())
    assert str(tmp_path) not in page + json.dumps(record)
    for kind, found in record["scores"].items():
        row = [found["UDED"][p]["ods"] for p in card.SHOWN]
        numbers = " | ".join(f"{value:.3f}" for value in row)
        assert f"| {numbers} |" in page, kind
    rows = [line.count("|") for line in page.splitlines() if line.startswith("|")]
    assert set(rows) <= {3, 6, 7, 8, 10}
    assert "--steps 3 --learning-rate 0.002" in page
    links = re.findall(r"\]\(([^)#]+)", page)
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)


def test_a_part_alone(weights, card, given, small_data, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "arguments", lambda: given)
    given.parts = ["train", "card"]
    with pytest.raises(SystemExit, match=r"has no scores yet: `python benchmarks/weights.py score"):
        weights.main()
    trained = json.loads((tmp_path / card.RECORD).read_text())
    given.parts = ["score", "card"]
    weights.main()
    record = json.loads((tmp_path / card.RECORD).read_text())
    assert trained.items() < record.items()
    assert "| tiny, these weights |" in (tmp_path / card.CARD).read_text()


def test_a_loss_that_needs_a_threshold_takes_the_calibrated_one(
    weights, given, small_data, monkeypatch
):
    trained = []
    monkeypatch.setattr(
        weights,
        "fit",
        lambda sets, loss, *rest, fit=weights.fit: (
            trained.append(str(loss)) or fit(sets, loss, *rest)
        ),
    )
    given.loss = "baa-sa"
    record = weights.make(given)
    assert trained == ["wbce", f"baa-{record['threshold']:g}"]


def test_a_setting_replaces_itself_but_not_what_an_older_version_gave(
    weights, card, given, small_data, monkeypatch
):
    given.folds, path = 2, given.out / card.FOLDS
    for version, ods in (("0.1.0", 0.6), ("0.2.0", 0.7), ("0.2.0", 0.8)):
        found = {"UDED": {"ods": ods}, "BSDS500": {"ods": 0.3}}
        monkeypatch.setattr(weights, "VERSION", version)
        monkeypatch.setattr(weights, "cross_validate", lambda *_, found=found: found)
        weights.try_setting(given)
    kept = [(one["version"], one["UDED"]["ods"]) for one in json.loads(path.read_text())]
    assert kept == [("0.2.0", 0.8), ("0.1.0", 0.6)]


@pytest.mark.parametrize(
    "options",
    ["--images 3", "--batch-size 1", "--share 0", "--share 1", "--precision 16", "'scare'"],
)
def test_wrong_options(weights, monkeypatch, capsys, options):
    monkeypatch.setattr(sys, "argv", ["weights.py", *options.replace("'", "").split()])
    with pytest.raises(SystemExit):
        weights.arguments()
    assert options.split()[0] in capsys.readouterr().err


# --- scores ---------------------------------------------------------------------------------------


def test_sobel_is_1_at_the_strongest_edge(scoring):
    image = np.full((40, 60, 3), 100, np.uint8)
    image[:, 20:] = 140
    image[:, 40:] = 150
    found = scoring.sobel(image)
    assert found.shape == (40, 60)
    assert found.max() == 1
    assert set(found.argmax(axis=1)) <= {19, 20}
    assert found[20, 39:41].max() == pytest.approx(0.25, rel=0.05)
    assert scoring.sobel(np.zeros((9, 9, 3), np.uint8)).max() == 0


def test_several_annotators_are_all_asked(scoring, card, tmp_path, monkeypatch):
    """The paper asks the first alone, the field all: here the second drew two more lines."""
    drawn = np.zeros((2, 48, 64), np.uint8)
    drawn[:, 24], drawn[1, 8], drawn[1, 40] = 1, 1, 1
    truth = np.empty((1, 2), object)
    for number, boundaries in enumerate(drawn):
        truth[0, number] = {"Boundaries": boundaries}
    scipy.io.savemat(tmp_path / "a.mat", {"groundTruth": truth})
    Image.fromarray(drawn[0] * 255).save(tmp_path / "a.png")
    images = FileSet("two", [Pair("a", tmp_path / "a.png", (tmp_path / "a.mat",))])
    scores = scoring.score(lambda image: (image[..., 0] / 255).astype(np.float32), images, 0.5)
    assert set(scores) == {*scoring.SHOWN, scoring.EVERYBODY} <= set(card.TITLES)
    found = scores[scoring.EVERYBODY]["at"]
    assert scores["paper-strict"]["at"]["recall"] == 1
    # NMS takes the ends of the one line, at the border, and so a few of its 64 pixels.
    assert (found["precision"], found["recall"]) == (1, pytest.approx(1 / 2, abs=0.1))
    scenes = load_dataset("synthetic", "all", count=2, size=32)
    assert scoring.all_labels_of(scenes) == {}
    seen, calibrate = [], scoring.calibrate
    monkeypatch.setattr(
        scoring,
        "calibrate",
        lambda maps, labels, **o: seen.append(labels) or calibrate(maps, labels, **o),
    )
    scoring.find_threshold(ke.create_model("tiny"), {"two": images, "one": scenes})
    assert np.array_equal(seen[0]["a"], drawn == 1)
    assert seen[1][scenes.names[0]].ndim == 2


def test_hed_is_quoted_from_the_records_there_are(scoring, tmp_path):
    assert scoring.quoted_hed(tmp_path) is None
    for seed, ods in enumerate((0.7, 0.8)):
        losses = [
            {"loss": loss, "scores": {"paper-strict": {"ods": value}}}
            for loss, value in (("wbce", 0.1), ("baa-0.7", ods))
        ]
        record = {"version": f"0.{seed}.0", "losses": losses}
        (tmp_path / f"uded-hed-{seed}.json").write_text(json.dumps(record))
    found = scoring.quoted_hed(tmp_path)
    assert found["ods"] == {"paper-strict": pytest.approx(0.75)}
    assert (found["seeds"], found["parameters"]) == (2, 14_716_171)
    assert found["versions"] == ["0.0.0", "0.1.0"]


def test_the_threshold_serves_both_sets(scoring, monkeypatch):
    """One set's best is 0.3, where the other is lost; the mean of both is best at 0.5."""
    from knifeedge.calibration import Calibration
    from knifeedge.metrics import PROTOCOLS, THRESHOLDS

    curves = iter(
        [
            np.interp(THRESHOLDS, [0, 0.3, 0.5, 1], [0, 0.9, 0.8, 0]),
            np.interp(THRESHOLDS, [0.3, 0.5, 0.7, 1], [0, 0.7, 0.75, 0]),
        ]
    )

    def calibrate(*_, **__):
        curve = next(curves)
        best = int(curve.argmax())
        return Calibration(float(THRESHOLDS[best]), curve[best], curve, PROTOCOLS["bsds"], 1.0)

    monkeypatch.setattr(scoring, "calibrate", calibrate)
    sets = {name: load_dataset("synthetic", "all", count=2, size=32) for name in "AB"}
    threshold, own = scoring.find_threshold(ke.create_model("tiny"), sets)
    assert threshold == 0.5
    assert own["A"] == {"threshold": 0.3, "f": pytest.approx(0.9), "f_at": pytest.approx(0.8)}
    assert own["B"]["threshold"] == 0.7
