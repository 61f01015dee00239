"""`knifeedge evaluate`: its outputs, its one-line errors, and what a killed run leaves."""

import contextlib
import importlib
import inspect
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.io
from PIL import Image
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

from knifeedge import cli, metrics
from knifeedge.metrics.pictures import match_picture
from knifeedge.metrics.protocols import PROTOCOLS
from knifeedge.metrics.scores import EdgeScores


class Run(NamedTuple):
    code: int
    out: str
    err: str


def without_status(text: str) -> str:
    """Less the line that a first run prints while it compiles."""
    return "".join(line for line in text.splitlines(True) if "compiling the" not in line)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call the command line in this process, with main()'s handling of errors."""

    def call(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["knifeedge", "evaluate", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Run(ended.value.code or 0, out, without_status(err))

    return call


def smooth_map(seed: int) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(seed).random((30, 40)), 2)
    return (noise - noise.min()) / (noise.max() - noise.min())


def some_edges(seed: int) -> np.ndarray:
    return np.abs(smooth_map(seed) - 0.5) < 0.03


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Three maps of three kinds, and their ground truths."""
    maps, truths = tmp_path / "maps", tmp_path / "truths"
    maps.mkdir()
    truths.mkdir()
    Image.fromarray((smooth_map(0) * 255).astype(np.uint8)).save(maps / "a.png")
    Image.fromarray((smooth_map(1) * 65535).astype(np.uint16)).save(maps / "b.png")
    np.save(maps / "c.npy", smooth_map(2))
    for i, name in enumerate("ab"):
        Image.fromarray(some_edges(i)).save(truths / f"{name}.png")
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = {"Boundaries": some_edges(2)}, {"Boundaries": some_edges(3)}
    scipy.io.savemat(truths / "c.mat", {"groundTruth": cell})
    return maps, truths


# --- results --------------------------------------------------------------------------------------


def test_the_table(run, folders) -> None:
    result = run(*folders, "--at", 0.5)
    scores = metrics.evaluate(*folders)
    assert result.code == 0
    assert result.err == ""
    for value in (scores.ods, scores.ois, scores.ois_mean, scores.ap, scores.r50, scores.crispness):
        assert f"{value:.4f}" in result.out
    assert f"at {scores.threshold:.4f}" in result.out
    assert f"{scores.at(0.5).f:.4f}" in result.out
    assert "F at 0.5" in result.out
    assert "paper-strict: 3 images" in result.out
    assert "within 0.003 of the diagonal, thinned" in result.out
    assert "F at" not in run(*folders).out


def test_json_is_all_there_is_on_stdout(run, folders, tmp_path: Path) -> None:
    path = tmp_path / "new" / "scores.json"
    result = run(*folders, "--protocol", "bsds", "--json", "--out", path, "--at", 0.3)
    assert result.code == 0
    assert result.err == ""
    assert result.out == path.read_text()
    record = json.loads(result.out)
    assert EdgeScores.from_dict(record).ods == record["ods"]
    expected = metrics.evaluate(*folders, protocol="bsds")
    assert record["at"] == expected.at(0.3)._asdict()
    assert {key: value for key, value in record.items() if key != "at"} == expected.to_dict()


def test_every_option_reaches_the_scores(run, folders) -> None:
    def record(*options: object) -> dict:
        return json.loads(run(*folders, "--json", *options).out)

    base = record()
    assert base["protocol"] == PROTOCOLS["paper-strict"].to_dict()
    assert base["options"] == {"scale": "unit", "annotators": "all", "label_threshold": 0.5}
    pixel = record("--max-dist", "1.5px", "--nms", "--no-thin")["protocol"]
    assert (pixel["max_dist"], pixel["unit"], pixel["nms"], pixel["thin"]) == (
        1.5,
        "pixel",
        True,
        False,
    )
    share = record("--protocol", "one-pixel", "--max-dist", "0.02")["protocol"]
    assert (share["max_dist"], share["unit"]) == (0.02, "diagonal")
    bsds = record("--protocol", "bsds", "--no-nms")["protocol"]
    assert (bsds["max_dist"], bsds["nms"], bsds["thin"]) == (0.0075, False, True)
    # Image c has two annotators: twice the ground truth of either.
    gt = {kind: record("--annotators", kind)["counts"][2][0][1] for kind in ("all", "first")}
    assert gt["all"] == some_edges(2).sum() + some_edges(3).sum()
    assert gt["first"] == some_edges(2).sum()
    merged = record("--annotators", "merged")["counts"][2][0][1]
    assert merged == (some_edges(2) | some_edges(3)).sum()
    assert record("--scale", "stretch")["options"]["scale"] == "stretch"
    assert record("--label-threshold", 0.9)["options"]["label_threshold"] == 0.9
    assert record("--jobs", 1) == base


def test_maps_in_0_255_and_soft_labels(run, folders) -> None:
    maps, truths = folders
    np.save(maps / "c.npy", smooth_map(2) * 255)
    assert "--scale 255" in run(maps, truths).err
    assert run(maps, truths, "--scale", "255").code == 0
    soft = np.where(some_edges(0), 100, 0).astype(np.uint8)
    Image.fromarray(soft).save(truths / "a.png")
    record = json.loads(run(maps, truths, "--scale", "255", "--json").out)
    assert record["counts"][0][0][1] == 0
    options = ("--scale", "255", "--label-threshold", 0.3, "--json")
    record = json.loads(run(maps, truths, *options).out)
    assert record["counts"][0][0][1] == some_edges(0).sum()


def test_all_outputs(run, folders, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(
        *folders,
        *("--out", out / "scores.json"),
        *("--benchmark-files", out / "text"),
        *("--pictures", out / "pictures"),
        *("--at", 0.4),
    )
    assert result.code == 0
    assert "ODS" in result.out
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert written == [
        *(f"pictures/{name}.png" for name in "abc"),
        "scores.json",
        *(f"text/{name}_ev1.txt" for name in "abc"),
        "text/eval_bdry.txt",
        "text/eval_bdry_img.txt",
        "text/eval_bdry_thr.txt",
    ]
    expected = match_picture(
        smooth_map(2), [some_edges(2), some_edges(3)], threshold=0.4, protocol="paper-strict"
    )
    np.testing.assert_array_equal(np.asarray(Image.open(out / "pictures/c.png")), expected)
    overall = np.loadtxt(out / "text/eval_bdry.txt")
    assert overall[3] == pytest.approx(json.loads((out / "scores.json").read_text())["ods"], 1e-5)


def test_the_progress_bar_is_for_terminals_and_on_stderr(run, folders, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich's way to be told that it writes to a terminal
    result = run(*folders, "--json")
    assert "3/3" in result.err
    assert json.loads(result.out)["images"]


def test_a_compilation_is_told_on_stderr(run, folders, monkeypatch) -> None:
    told: list = []
    monkeypatch.setattr("knifeedge.metrics.kernels.on_compile", told.append)
    evaluated = run(*folders, "--json")
    assert evaluated.err == ""
    with contextlib.redirect_stderr(io.StringIO()) as err:
        told[0]("a while")
    assert err.getvalue() == "knifeedge: a while\n"


def test_help_has_an_example_and_the_protocols() -> None:
    result = CliRunner().invoke(cli.app, ["evaluate", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Example: knifeedge evaluate" in result.output
    for name in PROTOCOLS:
        assert name in result.output


def test_defaults_are_those_of_the_function() -> None:
    command = inspect.signature(cli.evaluate).parameters
    function = inspect.signature(metrics.evaluate).parameters
    shared = sorted(set(command) & set(function) - {"maps"})
    assert shared == sorted(
        ["annotators", "cluster", "jobs", "label_threshold", "protocol", "scale", "skip_bad"]
    )
    for name in shared:
        assert command[name].default == function[name].default, name


# --- bad input ------------------------------------------------------------------------------------


def broken_png() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((30, 40), np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()[:-20]


def spoil(kind: str, maps: Path, truths: Path) -> tuple[list[str], list[str]]:
    """Break the folders; return what the error must name, and the names that are left out."""
    match kind:
        case "unpaired":
            np.save(maps / "lonely_map.npy", smooth_map(5))
            np.save(truths / "lonely_truth.npy", some_edges(5))
            wanted = [f"lonely_map: no ground truth in {truths}", f"lonely_truth: no map in {maps}"]
            return wanted, ["lonely_map", "lonely_truth"]
        case "twins":
            np.save(maps / "a.npy", smooth_map(5))
            return ["a.npy", "a.png"], ["a"]
        case "shapes":
            Image.fromarray(some_edges(0).T.copy()).save(truths / "a.png")
            return ["a:", "(30, 40)", "(40, 30)"], ["a"]
        case "nan":
            np.save(maps / "c.npy", np.full((30, 40), np.nan))
            return ["c.npy", "NaN"], ["c"]
        case "range":
            np.save(maps / "c.npy", smooth_map(2) * 2 - 0.5)
            return ["c.npy", "-0.5 to 1.5", "[0,1]"], ["c"]
        case "colour":
            Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(maps / "a.png")
            return ["a.png", "colour", "grey"], ["a"]
        case "corrupt":
            (maps / "a.png").write_bytes(broken_png())
            (truths / "b.png").write_bytes(broken_png())
            return [f"{maps / 'a.png'} is damaged", f"{truths / 'b.png'} is damaged"], ["a", "b"]
        case "mat":
            scipy.io.savemat(truths / "c.mat", {"edges": some_edges(2)})
            return ["c.mat", "no variable groundTruth but edges"], ["c"]
        case _:
            raise AssertionError(kind)


KINDS = ["unpaired", "twins", "shapes", "nan", "range", "colour", "corrupt", "mat"]


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_is_one_line_or_left_out(run, folders, tmp_path: Path, kind: str) -> None:
    wanted, left_out = spoil(kind, *folders)
    out = tmp_path / "out"
    outputs = ("--out", out / "scores.json", "--benchmark-files", out, "--pictures", out)
    result = run(*folders, *outputs)
    assert result.code == 1
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert result.err.startswith("knifeedge: ")
    assert "Traceback" not in result.err
    for text in wanted:
        assert text in result.err
    assert not out.exists()
    skipped = run(*folders, "--skip-bad", "--json")
    assert skipped.code == 0
    record = json.loads(skipped.out)
    assert sorted(item["name"] for item in record["left_out"]) == left_out
    reasons = " ".join(f"{item['name']}: {item['reason']}" for item in record["left_out"])
    for text in wanted:
        assert text in reasons
    kept = [image["name"] for image in record["images"]]
    assert kept == sorted(set("abc") - set(left_out))
    table = run(*folders, "--skip-bad", *outputs)
    assert table.code == 0
    assert len(table.err.splitlines()) == len(left_out)
    assert all(line.startswith("left out: ") for line in table.err.splitlines())
    assert sorted(path.stem for path in out.glob("*.png")) == kept


def test_several_faults_are_told_at_once(run, folders) -> None:
    wanted = [text for kind in ("unpaired", "nan", "colour") for text in spoil(kind, *folders)[0]]
    error = run(*folders).err
    for text in wanted:
        assert text in error


def test_nothing_left(run, folders) -> None:
    maps, truths = folders
    for path in maps.iterdir():
        path.write_bytes(b"damaged")
    result = run(maps, truths, "--skip-bad")
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    for name in ("a.png", "b.png", "c.npy"):
        assert name in result.err


def test_folders_that_are_none(run, folders, tmp_path: Path) -> None:
    maps, truths = folders
    (tmp_path / "empty").mkdir()
    for first, second, message in (
        (tmp_path / "empty", truths, "holds nothing to read"),
        (maps, tmp_path / "empty", "holds nothing to read"),
        (tmp_path / "nowhere", truths, "No such file"),
        (maps / "a.png", truths, "is a file"),
    ):
        result = run(first, second, "--skip-bad")
        assert result.code == 1
        assert message in result.err
        assert len(result.err.splitlines()) == 1


def test_an_unreadable_file(run, folders, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "a.png":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    # Patched, because mode bits do not bind root.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    result = run(*folders)
    assert result.code == 1
    assert f"{folders[0] / 'a.png'} cannot be read: Permission denied" in result.err


def test_a_ground_truth_without_edges_is_scored(run, folders) -> None:
    Image.fromarray(np.zeros((30, 40), np.uint8)).save(folders[1] / "a.png")
    record = json.loads(run(*folders, "--json").out)
    assert record["images"][0]["f"] == 0
    assert record["left_out"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--protocol", "strict"], "unknown protocol 'strict'; the known ones are paper-strict"),
        (["--max-dist", "one"], "--max-dist must be a share of the diagonal"),
        (["--max-dist", "7"], "at most 1, got 7.0"),
        (["--max-dist=-1px"], "max_dist must be finite and >= 0"),
        (["--max-dist", "600px"], "max_dist must be at most 512 pixels, got 600.0\n"),
        (["--scale", "256"], "scale must be one of unit, 255, stretch, got '256'"),
        (["--annotators", "second"], "annotators must be one of all, first, merged"),
        (["--label-threshold", "1"], "label_threshold must be in [0,1)"),
    ],
)
def test_wrong_values_are_one_line(run, folders, options: list[str], message: str) -> None:
    result = run(*folders, *options)
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_a_cluster_that_does_not_answer(run, folders, monkeypatch) -> None:
    pytest.importorskip("distributed")
    module = importlib.import_module("knifeedge.metrics.evaluate")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    result = run(*folders, "--cluster", "tcp://127.0.0.1:9")
    assert result.code == 1
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--at", "1.5"], "--at"), (["--jobs", "0"], "--jobs"), (["--tolerance", "1"], "--tolerance")],
)
def test_usage_errors_name_the_option(run, folders, options: list[str], message: str) -> None:
    result = run(*folders, *options)
    assert result.code == 2
    assert message in result.err
    assert "Traceback" not in result.err


def test_places_that_cannot_be_written_are_told_before_the_work(run, folders, monkeypatch) -> None:
    module = importlib.import_module("knifeedge.metrics.evaluate")
    monkeypatch.setattr(module, "evaluate", None)  # a call would fail
    maps, truths = folders
    for options, message in (
        (("--out", maps), "is a folder; name a file in it"),
        (("--pictures", maps / "a.png"), "is a file; name a folder"),
        (("--pictures", maps), "holds what is scored"),
        (("--pictures", truths), "holds what is scored"),
        (("--benchmark-files", maps / "a.png" / "x"), "cannot be written"),
    ):
        result = run(maps, truths, *options)
        assert result.code == 1
        assert message in result.err


# --- other processes ------------------------------------------------------------------------------


def start(*arguments: object, code: str | None = None) -> subprocess.CompletedProcess[str]:
    entry = ["-m", "knifeedge"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *entry, "evaluate", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        check=False,
    )


def test_a_real_run(folders, tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    result = start(*folders, "--json", "--out", path)
    assert result.returncode == 0, result.stderr
    expected = metrics.evaluate(*folders).to_dict()
    assert json.loads(result.stdout) == json.loads(path.read_text()) == expected


def test_a_real_failure(folders) -> None:
    (folders[0] / "a.png").write_bytes(broken_png())
    result = start(*folders)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(without_status(result.stderr).splitlines()) == 1
    assert "a.png is damaged" in result.stderr


def test_torch_is_not_imported(folders) -> None:
    code = (
        "import sys; from knifeedge.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules, file=sys.stderr)"
    )
    result = start(*folders, code=code)
    assert result.returncode == 0
    assert without_status(result.stderr).strip() == "False"


KILLED_WHILE_SCORING = """
import importlib, os, signal
module = importlib.import_module("knifeedge.metrics.evaluate")
process, calls = module.score_image, []
def kill_at_second(*args, **options):
    calls.append(1)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return process(*args, **options)
module.score_image = kill_at_second
from knifeedge.cli import main
main()
"""
KILLED_WHILE_WRITING = """
import os, signal
from pathlib import Path
from knifeedge.metrics import outputs
replace, calls = Path.replace, []
def kill_at_sixth(path, target):
    calls.append(1)
    if len(calls) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(path, target)
Path.replace = kill_at_sixth
from knifeedge.cli import main
main()
"""


@pytest.mark.parametrize("code", [KILLED_WHILE_SCORING, KILLED_WHILE_WRITING])
def test_a_killed_run_leaves_nothing_half_written(run, folders, tmp_path: Path, code: str) -> None:
    out = tmp_path / "out"
    arguments = ("--out", out / "scores.json", "--benchmark-files", out, "--pictures", out)
    result = start(*folders, *arguments, code=code)
    assert result.returncode == -signal.SIGKILL
    left = {path: path.read_bytes() for path in out.glob("[!.]*")}
    if code is KILLED_WHILE_SCORING:
        assert not out.exists()
    else:
        assert len(left) == 5
    # scores.json comes last; whatever came before it is whole.
    assert not (out / "scores.json").exists()
    assert run(*folders, *arguments).code == 0
    assert all(path.read_bytes() == data for path, data in left.items())
