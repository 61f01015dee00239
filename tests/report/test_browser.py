"""The page in a real browser: the explorer shows the recorded scores, whatever the names are."""

import json
import math
import re

import numpy as np
import pytest
from PIL import Image

from knifeedge.metrics.curves import precision_recall_f
from knifeedge.metrics.pictures import match_picture
from knifeedge.metrics.scores import EdgeScores
from knifeedge.report import write_report
from report.chromium import Chromium, find_chromium
from report.conftest import HOSTILE_LOSS
from report.fake_runs import HOSTILE, make_experiment

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="there is no chromium here; install it, or set CHROME"
)

READY = "document.getElementById('judged').dataset.shown"


@pytest.fixture(scope="module")
def browser():
    with Chromium(find_chromium()) as started:
        yield started


@pytest.fixture
def tab(browser, page):
    tab = browser.open(page)
    tab.wait(READY)
    yield tab
    assert tab.problems() == []
    assert tab.requests() == [page.resolve().as_uri()]


@pytest.fixture(scope="module")
def recorded(run):
    """The scores on disk, a loss each."""
    result = json.loads((run / "result.json").read_text())
    files = [run / entry["run"] / "scores-one-pixel.json" for entry in result["losses"]]
    return [EdgeScores.from_dict(json.loads(path.read_text())) for path in files]


def shown(tab, where):
    """The numbers that the explorer shows."""
    names = ("precision", "recall", "f", "hits", "false-alarms", "misses")
    return [
        float(tab.evaluate(f"document.getElementById('{where}-{name}').dataset.value"))
        for name in names
    ]


def expected(counts):
    """The same numbers from recorded counts."""
    matched_gt, gt, matched_map, in_map = counts.tolist()
    scores = [float(value) for value in precision_recall_f(counts)]
    return [*scores, matched_map, in_map - matched_map, gt - matched_gt]


def check(tab, recorded, *, image, loss, level):
    """All that the explorer shows, against the scores on disk."""
    tab.wait(f"{READY} === '0 {image} {loss} {level}'")
    scores = recorded[loss]
    own = scores.counts[scores.names.index(HOSTILE[image]), level - 1]
    assert shown(tab, "image") == expected(own)
    assert shown(tab, "all") == expected(scores.counts[:, level - 1].sum(axis=0))
    at = scores.at(level / 100)
    assert shown(tab, "all")[:3] == [at.precision, at.recall, at.f]
    text = tab.evaluate("document.getElementById('all-f').textContent")
    assert float(text) == pytest.approx(at.f, abs=5e-5)
    drawn = tab.evaluate("({...document.getElementById('judged').dataset})")
    assert [int(drawn["hits"]), int(drawn["falseAlarms"])] == [own[2], own[3] - own[2]]


def test_it_starts_at_the_fixed_threshold(tab, recorded):
    assert tab.evaluate("document.getElementById('threshold').value") == "61"
    check(tab, recorded, image=0, loss=0, level=61)


def test_keys_move_the_slider(tab, recorded):
    tab.evaluate("document.getElementById('threshold').focus()")
    for key, times, level in (("ArrowRight", 3, 64), ("Home", 1, 1), ("End", 1, 99)):
        tab.key(key, times)
        check(tab, recorded, image=0, loss=0, level=level)
    tab.key("ArrowLeft", 60)
    check(tab, recorded, image=0, loss=0, level=39)
    text = tab.evaluate("document.getElementById('threshold').getAttribute('aria-valuetext')")
    assert text.startswith("0.39; F of this image 0.")


def test_dragging_moves_everything_at_once(tab, run, recorded):
    before = tab.evaluate("document.querySelector('#live-curve circle.of-all').outerHTML")
    tab.drag("#threshold", 0.5, 0.3)
    level = int(tab.evaluate("document.getElementById('threshold').value"))
    assert level == pytest.approx(30, abs=2)
    check(tab, recorded, image=0, loss=0, level=level)
    after = tab.evaluate("document.querySelector('#live-curve circle.of-all').outerHTML")
    assert after != before
    left, top, wide, tall = map(
        float, tab.evaluate("document.getElementById('live-curve').dataset.plot").split()
    )
    at = recorded[0].at(level / 100)
    x, y = (float(value) for value in re.findall(r'c[xy]="(.*?)"', after))
    assert x == pytest.approx(left + at.recall * wide, abs=0.01)
    assert y == pytest.approx(top + (1 - at.precision) * tall, abs=0.01)
    np.testing.assert_array_equal(
        canvas(tab), match_picture(*files(run, "wbce"), threshold=level / 100, protocol="one-pixel")
    )


def canvas(tab):
    """The explorer's picture; what is not drawn is white."""
    width, height, values = tab.evaluate(
        "(c => [c.width, c.height,"
        " Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)])"
        "(document.getElementById('judged'))"
    )
    pixels = np.array(values, dtype=np.uint8).reshape(height, width, 4)
    return np.where(pixels[..., 3:] == 0, 255, pixels[..., :3])


def files(run, loss):
    """Map and label of the first image, from their files."""
    with Image.open(run / loss / "predictions" / f"{HOSTILE[0]}.png") as picture:
        prob = np.asarray(picture).astype(np.float32) / 255
    with Image.open(run / "gallery" / f"{HOSTILE[0]}.label.png") as picture:
        return prob, np.asarray(picture) > 127


def test_images_and_losses_are_picked_by_keyboard_and_mouse(tab, recorded):
    tab.evaluate("document.querySelector('#images input:checked').focus()")
    tab.key("ArrowRight")
    check(tab, recorded, image=1, loss=0, level=61)
    tab.click("#losses label:nth-of-type(3)")
    check(tab, recorded, image=1, loss=2, level=61)
    tab.key("ArrowLeft")
    check(tab, recorded, image=1, loss=1, level=61)
    tab.click("#to-fixed")
    check(tab, recorded, image=1, loss=1, level=70)
    tab.click("#images label:nth-of-type(3)")
    check(tab, recorded, image=2, loss=1, level=70)


def test_the_best_of_an_image_is_its_score(tab, recorded):
    tab.click("#to-image")
    best = recorded[0].images[recorded[0].names.index(HOSTILE[0])]
    check(tab, recorded, image=0, loss=0, level=round(best.threshold * 100))
    assert shown(tab, "image")[2] == best.f


def test_the_gallery_leads_to_the_explorer(tab, recorded):
    tab.click("button[data-explore='0 2']")
    check(tab, recorded, image=2, loss=0, level=61)
    tab.click("#explorer input[value=image]")
    assert tab.evaluate("!document.getElementById('backdrop').hidden")
    tab.key("ArrowRight")  # to the map
    source = tab.evaluate("document.getElementById('backdrop').src")
    assert source == tab.evaluate("document.getElementById('picture-0-2-map-0').src")


def test_the_curve_under_the_slider_can_be_pulled(tab, recorded):
    tab.drag("#strip", 0.2, 0.5)
    check(tab, recorded, image=0, loss=0, level=50)


def test_hostile_names_stay_text(tab):
    labels = tab.evaluate("[...document.querySelectorAll('#losses span')].map(e => e.textContent)")
    assert labels == ["wbce", "baa-0.7", HOSTILE_LOSS]
    names = tab.evaluate("[...document.querySelectorAll('#images span')].map(e => e.textContent)")
    assert names == list(HOSTILE)
    assert tab.evaluate("document.getElementById('image-name').textContent") == HOSTILE[0]
    assert tab.evaluate("document.scripts.length") == 2
    foreign = "[...document.images].filter(i => i.src && !i.src.startsWith('data:')).length"
    assert tab.evaluate(foreign) == 0
    assert '"><script>alert(3)</script>' in tab.evaluate("document.title")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(browser, page, width, dark):
    tab = browser.open(page, width=width, height=800, dark=dark)
    tab.wait(READY)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    too_wide = """[...document.querySelectorAll('main *')].filter(e =>
        !e.closest('.scroll, .sheet, svg') && e.getBoundingClientRect().right > innerWidth
    ).map(e => e.outerHTML.slice(0, 80))"""
    assert tab.evaluate(too_wide) == []
    luminance = brightness(tab)
    assert luminance < 60 if dark else luminance > 200
    tab.click("#theme")
    assert brightness(tab) > 200 if dark else brightness(tab) < 60
    assert tab.problems() == []


def brightness(tab):
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    return math.fsum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_without_its_handler_the_slider_does_nothing(browser, page, tmp_path):
    """Proof that the tests above see the handler at work."""
    text = page.read_text()
    handler = 'slider.addEventListener("input", show); // the slider\'s handler'
    assert text.count(handler) == 1
    text = re.sub(r"<meta http-equiv=.*?>", "", text.replace(handler, ""))  # else nothing runs
    (tmp_path / "broken.html").write_text(text)
    tab = browser.open(tmp_path / "broken.html")
    tab.wait(READY)
    before = shown(tab, "image"), shown(tab, "all")
    tab.evaluate("document.getElementById('threshold').focus()")
    tab.key("ArrowRight", 5)
    tab.drag("#threshold", 0.5, 0.3)
    assert tab.evaluate("document.getElementById('threshold').value") != "61"
    assert (shown(tab, "image"), shown(tab, "all")) == before
    tab.click("#losses label:nth-of-type(2)")  # the rest of the page is alive
    assert (shown(tab, "image"), shown(tab, "all")) != before


def test_a_changed_script_is_not_run(browser, page, tmp_path):
    text = page.read_text().replace("chooseView(0);", "chooseView(0); alert(1);")
    (tmp_path / "changed.html").write_text(text)
    tab = browser.open(tmp_path / "changed.html")
    (problem,) = tab.problems()
    assert "Content Security Policy" in problem


def test_runs_and_protocols_are_chosen(browser, tmp_path):
    make_experiment(
        tmp_path / "grid", images=1, size=48, scoring=("one-pixel", "bsds"), losses=("wbce",)
    )
    tab = browser.open(write_report([tmp_path / "grid"], tmp_path / "report.html"))
    tab.wait(READY)
    tab.evaluate("document.getElementById('view').focus()")
    tab.key("ArrowDown", 3)
    tab.wait(f"{READY} === '3 0 0 61'")
    below = tmp_path / "grid" / "runs" / "tiny-synthetic-1" / "wbce" / "scores-bsds.json"
    scores = EdgeScores.from_dict(json.loads(below.read_text()))
    assert shown(tab, "all") == expected(scores.counts[:, 60].sum(axis=0))
    assert tab.evaluate("document.getElementById('explorer-protocol').textContent") == "bsds"
    assert tab.problems() == []
