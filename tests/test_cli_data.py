"""The verbs of `knifeedge data`, as its own application; `cli` only hangs it in."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from knifeedge.cli.data import app
from knifeedge.errors import DataError


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def folder(tmp_path):
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
        for name in "ab":
            pixels = np.zeros((20, 30), np.uint8)
            pixels[:, 3] = 255
            Image.fromarray(pixels).save(tmp_path / part / f"{name}.png")
    return tmp_path


def test_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KNIFEEDGE_DATA", raising=False)
    (tmp_path / "data" / "UDED").mkdir(parents=True)
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert list(rows) == ["BSDS500", "BRIND", "UDED", "BIPED2", "folder", "synthetic"]
    assert rows["UDED"]["where"] == "data/UDED"
    assert rows["UDED"]["splits"]["train"] == 20
    assert rows["BSDS500"]["where"] is None
    assert rows["BSDS500"]["looked"] == ["data/BSDS500"]
    for name in rows:
        assert name in run("list")


def test_check(folder):
    assert "usable" in run("check", folder)
    report = json.loads(run("check", folder, "--json"))
    assert report["usable"] is True
    assert report["pairs"] == 2
    assert report["edge_share"][1] == pytest.approx(1 / 30)
    (folder / "labels" / "b.png").unlink()
    output = run("check", "--images", folder / "images", "--labels", folder / "labels", code=1)
    assert "unpaired" in output
    with pytest.raises(DataError, match="there is no folder"):
        run("check", folder / "nothing")


def test_labels_that_are_black_on_white(folder, tmp_path):
    for path in (folder / "labels").iterdir():
        Image.fromarray(255 - np.asarray(Image.open(path).convert("L"))).save(path)
    assert "inverted" in run("check", folder, code=1)
    report = json.loads(run("check", folder, "--data-option", "invert=true", "--json"))
    assert not [p for p in report["problems"] if p["kind"] == "inverted"]
    sheet = tmp_path / "sheet.png"
    run("show", folder, "--out", sheet, "--data-option", "invert=true")
    assert sheet.is_file()


def test_ignored_pixels_are_not_judged(folder):
    labels = np.zeros((20, 30), np.uint8)
    labels[:, 3], labels[:, 10:] = 1, 255
    Image.fromarray(labels).save(folder / "labels" / "a.png")
    report = json.loads(run("check", folder, "--json", code=1))
    assert [p["kind"] for p in report["problems"]] == ["inverted", "values"]
    report = json.loads(run("check", folder, "--data-option", "ignore=255", "--json"))
    # Of b nothing but zeros is left, whose edges are 255.
    assert [(p["name"], p["kind"]) for p in report["problems"]] == [("b", "empty")]
    assert report["edge_share"][2] == pytest.approx(1 / 30)


def test_an_image_without_an_edge_can_be_used(tmp_path):
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
        for name in "ab":
            Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(tmp_path / part / f"{name}.png")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "labels" / "a.png")
    report = json.loads(run("check", tmp_path, "--json"))
    assert report["usable"]
    assert [p["kind"] for p in report["problems"]] == ["empty"]
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "labels" / "b.png")
    run("check", tmp_path, code=1)  # none has


def size(path):
    with Image.open(path) as picture:
        return picture.size


def test_show(folder, tmp_path):
    out = tmp_path / "sheet.png"
    assert "2 of 2 samples of folder" in run("show", folder, "--out", out, "--cell", 40)
    assert size(out) == (2 * 44 + 4, 2 * 40 + 8 + 12 + 4)
    run("show", "synthetic", "--split", "test", "--count", 3, "--columns", 2, "--out", out)
    assert size(out)[0] == 2 * 164 + 4
    images = ("--images", folder / "images", "--labels", folder / "labels")
    run("show", "folder", *images, "--out", out)
    with pytest.raises(DataError, match="cannot be written"):
        run("show", folder, "--out", tmp_path / "no" / "sheet.png")


def test_download_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match="BRIND has no direct address"):
        run("download", "BRIND", "--root", tmp_path)


@pytest.mark.parametrize("verb", ["list", "check", "show", "download"])
def test_help_has_an_example(verb):
    assert f"knifeedge data {verb}" in run(verb, "--help")
