"""The page as a file: whole, self-contained, escaped, small, the same every time."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.scores import EdgeScores
from knifeedge.report import page as page_module, write_report
from knifeedge.report.classes import unpack_classes
from report.conftest import HOSTILE_LOSS
from report.fake_runs import HOSTILE, make_experiment, make_protocol, make_training

VOID = {"meta", "img", "input", "link", "br", "wbr"}


class Checker(HTMLParser):
    """Collects elements, attributes and texts, and checks that elements nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def parsed(page):
    return Checker(page.read_text())


@pytest.fixture(scope="module")
def data(page):
    text = page.read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))


def test_elements_nest_and_have_unique_ids(parsed):
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    sections = [attributes.get("id") for attributes in parsed.all("section")]
    assert sections == ["scores", "explorer", "curves", "gallery", "settings"]


def test_everything_is_inside(parsed):
    for _, attributes in parsed.elements:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "href", "action", "data", "poster", "srcset", "background"):
                assert value.startswith(("data:image/", "#"))
    style = parsed.words[parsed.words.index(next(w for w in parsed.words if "--paper" in w))]
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_names_stay_text(parsed):
    words = "".join(parsed.words)
    for name in (*HOSTILE, HOSTILE_LOSS, '"><script>alert(3)</script>'):
        assert name in words
    assert len(parsed.all("script")) == 2
    assert not [a for a in parsed.all("img") if not a.get("src", "data:").startswith("data:")]
    assert not parsed.all("b") or all("onerror" not in a for a in parsed.all("b"))


def test_only_its_own_script_may_run(page):
    text = page.read_text()
    script = re.search(r"<script>(.*?)</script>", text, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_pictures_have_text_alternatives(parsed):
    assert all("alt" in attributes for attributes in parsed.all("img"))
    for attributes in parsed.all("svg"):
        assert attributes.get("aria-hidden") or attributes["aria-label"]
    table_boxes = [a for a in parsed.all("div") if a.get("class") == "scroll"]
    assert all(box.get("aria-label") for box in table_boxes if box.get("role"))


def test_the_explorer_has_the_recorded_counts(run, data):
    (view,) = data["views"]
    assert [image["name"] for image in view["images"]] == list(HOSTILE)
    assert [loss["name"] for loss in view["losses"]] == ["wbce", "baa-0.7", HOSTILE_LOSS]
    assert [loss["fixed"] for loss in view["losses"]] == [61, 70, 61]
    result = json.loads((run / "result.json").read_text())
    for number, entry in enumerate(result["losses"]):
        record = json.loads((run / entry["run"] / "scores-one-pixel.json").read_text())
        scores = EdgeScores.from_dict(record)
        assert entry["scores"]["one-pixel"]["ods"] == scores.ods
        assert columns(view["losses"][number]) == scores.counts.sum(axis=0).tolist()
        for image in view["images"]:
            judged = image["losses"][number]
            recorded = scores.counts[scores.names.index(image["name"])]
            assert columns(judged) == recorded.tolist()
            classes = unpack_classes(judged["packed"], (image["height"], image["width"]))
            np.testing.assert_array_equal((classes == 1).sum(axis=(1, 2)), recorded[:, 2])
            np.testing.assert_array_equal(np.isin(classes, (1, 2)).sum(axis=(1, 2)), recorded[:, 3])


def columns(entry):
    rows = zip(entry["matched_gt"], entry["matched_map"], entry["map"], strict=True)
    return [[gt, entry["gt"], matched, in_map] for gt, matched, in_map in rows]


def test_the_same_runs_give_the_same_bytes(run, page, tmp_path):
    assert write_report([run], tmp_path / "other.html").read_bytes() == page.read_bytes()


def test_what_does_not_fit_is_left_out_and_counted(tmp_path, monkeypatch):
    make_protocol(tmp_path / "run", images=3, size=128, losses=("wbce",))

    def report(limit):
        monkeypatch.setattr(page_module, "LARGEST", limit + page_module.SPARE)
        text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
        views = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))["views"]
        return text, text.count("<article>"), sum(len(view["images"]) for view in views)

    whole, pictures, explored = report(10_000_000)
    assert (pictures, explored) == (3, 3)
    assert "left out" not in whole
    # first the explorer has fewer, then the gallery; the page is never larger than allowed
    found = set()
    for share in np.linspace(0.95, 0.0, 20):
        limit = int(share * len(whole))
        text, pictures, explored = report(limit)
        found.add((pictures, explored))
        assert len(text.encode()) <= limit or pictures == 0
        if explored < pictures:
            assert f"{pictures - explored} of {pictures} images are left out of the expl" in text
        if pictures < 3:
            assert f"{3 - pictures} of 3 images are left out" in text
        assert ('id="threshold"' in text) == (explored > 0)
    assert {(3, 2), (3, 1), (3, 0), (0, 0)} <= found
    assert not any(explored for pictures, explored in found if pictures < 3)


def test_curves_that_do_not_fit_are_left_out(tmp_path, monkeypatch):
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0, 1))
    whole = write_report([tmp_path / "grid"], tmp_path / "page.html").read_text()
    curves = whole[whole.index('<section id="curves">') : whole.index('<section id="gallery">')]
    monkeypatch.setattr(page_module, "MOST_CURVES", len(curves) * 2 // 3)
    text = write_report([tmp_path / "grid"], tmp_path / "page.html").read_text()
    assert "The curves of 1 more run are left out" in text


def test_several_protocols_and_runs(tmp_path):
    make_experiment(
        tmp_path / "grid",
        images=1,
        size=48,
        scoring=("one-pixel", "bsds"),
        seeds=(0, 1),
        losses=("wbce", "baa-0.7"),
    )
    text = write_report([tmp_path / "grid"], tmp_path / "page.html").read_text()
    Checker(text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert [view["title"] for view in data["views"]] == [
        "tiny on synthetic, seed 0, one-pixel",
        "tiny on synthetic, seed 0, bsds",
        "tiny on synthetic, seed 1, one-pixel",
        "tiny on synthetic, seed 1, bsds",
    ]
    assert "the loss became NaN at step 12" in text
    assert "Losses on made-up scenes" in text


def test_a_training_run_alone(tmp_path):
    make_training(tmp_path / "run", validation=True)
    text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text()
    Checker(text)
    assert "Loss while training" in text
    assert "Validation ODS while training" in text
    assert 'id="threshold"' not in text


def test_a_bad_target_or_format(run, tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        write_report([run], tmp_path)
    with pytest.raises(ConfigError, match="format must be one of html, md, got 'pdf'"):
        write_report([run], tmp_path / "a.pdf", format="pdf")
