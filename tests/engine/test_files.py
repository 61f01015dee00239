"""Pictures in, maps out: names, forms, and what one bad picture does to the others."""

import os
import shutil
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from knifeedge.disk import write_atomically
from knifeedge.engine import files
from knifeedge.engine.files import draw_over, find_jobs, predict_files
from knifeedge.engine.predict import predict
from knifeedge.errors import ConfigError, DataError


class Brightness(nn.Module):
    """A stand-in for a network: the logit is the brightness, so that a map shows its picture."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.tiles = 0
        self.calls = 0

    def forward(self, images):
        self.tiles += len(images)
        self.calls += 1
        return [images.mean(dim=1, keepdim=True) * self.scale]


@pytest.fixture
def model() -> Brightness:
    return Brightness()


def picture(seed: int = 0, size: tuple[int, int] = (20, 30)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def read(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three pictures, one of them in a folder below, and a text."""
    folder = tmp_path / "photos"
    for number, name in enumerate(("a.png", "b.bmp", "below/a.PNG")):
        save(folder / name, picture(number), format="BMP" if "bmp" in name else "PNG")
    (folder / "notes.txt").write_text("no picture")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# --- what goes where ------------------------------------------------------------------------------


def test_a_folder_keeps_its_folders(model, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "maps"
    written = predict_files(model, [photos], out)
    assert names(out) == ["a.png", "b.png", "below/a.png"]
    assert sorted(written) == sorted(p for p in out.rglob("*") if p.is_file())
    for number, name in enumerate(("a.png", "b.png", "below/a.png")):
        expected = np.rint(predict(model, picture(number)) * 255)
        np.testing.assert_array_equal(read(out / name), expected)


def test_hidden_files_and_folders_with_a_pictures_ending(photos: Path, tmp_path: Path) -> None:
    save(photos / "._a.png", picture())
    save(photos / ".thumbnails" / "a.png", picture())
    save(photos / "sub.jpg" / "c.png", picture())
    (photos / "gone.png").symlink_to("nowhere")
    jobs = find_jobs([photos], tmp_path, ".png")
    found = [str(job.image.relative_to(photos)) for job in jobs]
    assert found == ["a.png", "b.bmp", "below/a.PNG", "gone.png", "sub.jpg/c.png"]
    matched = find_jobs([str(photos / "*.*")], tmp_path, ".png")
    assert [job.image.name for job in matched] == ["a.png", "b.bmp", "gone.png"]


def test_a_folder_that_may_not_be_read_is_told(photos: Path, tmp_path: Path, monkeypatch) -> None:
    scan = os.scandir

    def deny(path):  # patched, because mode bits do not bind root
        if Path(path).name == "below":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(DataError, match=r"folder .*below cannot be read: Permission denied; "):
        find_jobs([photos], tmp_path, ".png")


def test_files_patterns_and_the_same_twice(model, photos: Path, tmp_path: Path) -> None:
    inputs = [photos / "b.bmp", str(photos / "*.*"), str(photos / "b*")]
    assert names(tmp_path / "maps") == []
    predict_files(model, inputs, tmp_path / "maps")
    assert names(tmp_path / "maps") == ["a.png", "b.png"]
    assert model.tiles == 2
    (job,) = find_jobs([str(photos / "**" / "*.PNG")], tmp_path, ".npy")
    assert (job.image, job.target) == (photos / "below" / "a.PNG", tmp_path / "a.npy")


def test_a_pattern_with_brackets_may_be_a_file(photos: Path, tmp_path: Path) -> None:
    save(photos / "c[1].png", picture())
    (job,) = find_jobs([photos / "c[1].png"], tmp_path, ".png")
    assert job.target == tmp_path / "c[1].png"


def test_progress_is_told_for_every_picture(model, photos: Path, tmp_path: Path) -> None:
    told: list = []
    predict_files(model, [photos], tmp_path, progress=lambda *now: told.append(now))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_more_pictures_than_are_read_ahead(model, tmp_path: Path) -> None:
    """Of five sizes, in turn: tiles wait for those of other pictures, and maps stay in order."""
    count = 4 * min(files.MOST_THREADS, os.cpu_count() or 1) + 3
    sizes = [(3 + number % 5, 3) for number in range(count)]
    for number, size in enumerate(sizes):
        save(tmp_path / "in" / f"{number:02}.png", picture(number, size))
    told: list = []
    predict_files(
        model, [tmp_path / "in"], tmp_path / "out", progress=lambda *now: told.append(now)
    )
    assert told == [(number + 1, count) for number in range(count)]
    for number, size in enumerate(sizes):
        expected = np.rint(predict(model, picture(number, size)) * 255)
        np.testing.assert_array_equal(read(tmp_path / "out" / f"{number:02}.png"), expected)


def test_pictures_of_one_size_fill_batches(model, tmp_path: Path) -> None:
    for number in range(6):
        save(tmp_path / "in" / f"{number}.png", picture(number, (33, 41)))
    predict_files(model, [tmp_path / "in"], tmp_path / "out", tile=32, overlap=16, batch_size=3)
    assert (model.tiles, model.calls) == (6, 3)  # a batch has no more than 3 x 32 x 32 pixels


def test_pictures_in_memory_are_few(model, tmp_path: Path, monkeypatch) -> None:
    """While nothing is written, reading ends when all shelves are full: by number, or by pixels."""
    read_image, lock, reads, go = files.read_image, threading.Lock(), [], threading.Event()

    def count(path: Path) -> np.ndarray:
        with lock:
            reads.append(path)
        return read_image(path)

    def wait(path: Path, data: bytes) -> None:
        go.wait(10)
        write_atomically(path, data)

    monkeypatch.setattr(files, "read_image", count)
    monkeypatch.setattr(files, "write_atomically", wait)
    monkeypatch.setattr(files.os, "cpu_count", lambda: 2)
    for number in range(40):
        save(tmp_path / "in" / f"{number:02}.png", picture(number, (4, 4)))

    def most_at_once(out: str) -> int:
        go.clear()
        reads.clear()
        done = threading.Thread(
            target=predict_files,
            args=(model, [tmp_path / "in"], tmp_path / out),
            kwargs={"batch_size": 2},
        )
        done.start()
        before = -1
        while before != len(reads):  # until nothing has been read for a while
            before = len(reads)
            time.sleep(0.3)
        go.set()
        done.join()
        assert len(names(tmp_path / out)) == 40
        return before

    # Two threads read 4 ahead and write 4; the network holds 4, of which 2 are done at a time.
    assert 8 <= most_at_once("by number") <= 4 + 4 + 4 + 2
    monkeypatch.setattr(files.Shelf.__init__, "__defaults__", (20,))  # one of 16 pixels
    assert most_at_once("by pixels") <= 1 + 1 + 1 + 2


def test_warnings_are_as_before(model, tmp_path: Path) -> None:
    for number in range(20):
        save(tmp_path / "in" / f"{number}.png", picture(number, (4, 4)))
    before = list(warnings.filters)
    predict_files(model, [tmp_path / "in"], tmp_path / "out")
    assert warnings.filters == before


# --- forms ----------------------------------------------------------------------------------------


def test_8_bits_16_bits_and_floats_are_the_same_map(model, photos: Path, tmp_path: Path) -> None:
    maps = {}
    for kind, ending in (("png", ".png"), ("png16", ".png"), ("npy", ".npy")):
        (path,) = predict_files(model, [photos / "a.png"], tmp_path / kind, map_format=kind)
        assert path == tmp_path / kind / f"a{ending}"
        maps[kind] = np.load(path) if kind == "npy" else read(path)
    exact = predict(model, picture())
    assert [array.dtype for array in maps.values()] == [np.uint8, np.uint16, np.float32]
    np.testing.assert_array_equal(maps["npy"], exact)
    assert np.abs(maps["png16"] / 65535 - exact).max() <= 0.5001 / 65535
    assert np.abs(maps["png"] / 255 - exact).max() <= 0.5001 / 255
    assert len(np.unique(maps["png16"])) > 256


@pytest.mark.parametrize("kind", ["png", "png16", "npy"])
def test_yes_and_no(model, photos: Path, tmp_path: Path, kind: str) -> None:
    prob = predict(model, picture())
    threshold = float(np.sort(prob, axis=None)[300])  # that of one pixel: "at least" is seen
    (path,) = predict_files(
        model, [photos / "a.png"], tmp_path, map_format=kind, threshold=threshold
    )
    array = np.load(path) if kind == "npy" else read(path)
    white = {"png": 255, "png16": 65535, "npy": 1}[kind]
    np.testing.assert_array_equal(array, (prob >= np.float32(threshold)) * white)


def test_an_overlay_beside_each_map(model, photos: Path, tmp_path: Path) -> None:
    predict_files(model, [photos / "a.png"], tmp_path / "soft", overlay=True, map_format="npy")
    predict_files(model, [photos / "a.png"], tmp_path / "hard", overlay=True, threshold=0.6)
    assert names(tmp_path / "soft") == ["a.npy", "a.overlay.png"]
    prob = predict(model, picture())
    soft, hard = (read(tmp_path / kind / "a.overlay.png") for kind in ("soft", "hard"))
    np.testing.assert_array_equal(soft, draw_over(picture(), prob))
    edges = prob >= np.float32(0.6)
    assert 0 < edges.mean() < 1
    assert (hard[edges] == files.INK).all()
    np.testing.assert_array_equal(hard[~edges], picture()[~edges] // 2 + 128)


def test_pictures_as_they_come(model, tmp_path: Path) -> None:
    colour, grey = picture(size=(5, 9)), picture(size=(5, 9))[..., 0]
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    save(tmp_path / "in" / "turned.png", colour, exif=exif)
    save(tmp_path / "in" / "grey.png", grey)
    alpha = np.dstack([colour, np.zeros_like(grey)])
    alpha[:2, :, 3] = 255
    save(tmp_path / "in" / "alpha.png", alpha)
    save(tmp_path / "in" / "dot.png", picture(size=(1, 1)))
    save(tmp_path / "in" / "line.png", picture(size=(1, 700)))
    save(tmp_path / "in" / "deep.png", grey.astype(np.uint16) * 256)
    predict_files(model, [tmp_path / "in"], tmp_path, map_format="npy")
    maps = {path.stem: np.load(path) for path in tmp_path.glob("*.npy")}
    shapes = {name: array.shape for name, array in maps.items()}
    assert shapes == {
        "turned": (9, 5),
        **dict.fromkeys(("grey", "alpha", "deep"), (5, 9)),
        "dot": (1, 1),
        "line": (1, 700),
    }
    np.testing.assert_allclose(maps["turned"], np.rot90(predict(model, colour), -1), rtol=1e-6)
    np.testing.assert_array_equal(maps["grey"], predict(model, np.dstack([grey] * 3)))
    np.testing.assert_array_equal(maps["deep"], maps["grey"])
    white = colour.copy()
    white[2:] = 255  # what is transparent is white
    np.testing.assert_array_equal(maps["alpha"], predict(model, white))


# --- again ----------------------------------------------------------------------------------------


def test_maps_that_are_there_may_be_skipped(model, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    predict_files(model, [photos / "a.png"], out)
    (out / "a.png").write_bytes(b"kept")
    told: list = []
    written = predict_files(
        model, [photos], out, skip_existing=True, progress=lambda *now: told.append(now)
    )
    assert (out / "a.png").read_bytes() == b"kept"
    assert names(out) == ["a.png", "b.png", "below/a.png"]
    assert len(written) == 3
    assert told == [(2, 3), (3, 3)]
    # A map without the overlay that is asked for is done again.
    predict_files(model, [photos], out, skip_existing=True, overlay=True)
    assert (out / "a.png").read_bytes() != b"kept"
    predict_files(model, [photos / "b.bmp"], out)
    assert model.tiles == 1 + 2 + 3 + 1


# --- what goes wrong ------------------------------------------------------------------------------


def test_one_bad_picture_does_not_stop_the_others(model, photos: Path, tmp_path: Path) -> None:
    (photos / "aa.png").write_bytes((photos / "a.png").read_bytes()[:-30])
    (photos / "c.png").write_bytes(b"")
    os.mkfifo(photos / "pipe.png")  # reading it would never end
    with pytest.raises(DataError) as caught:
        predict_files(model, [photos], tmp_path / "maps")
    message = str(caught.value)
    assert message.startswith("3 of 6 pictures were left out: ")
    assert f"{photos / 'aa.png'} is damaged" in message
    assert f"{photos / 'c.png'} is empty" in message
    assert f"{photos / 'pipe.png'} is not a file" in message
    assert message.index("aa.png") < message.index("c.png") < message.index("pipe.png")
    assert names(tmp_path / "maps") == ["a.png", "b.png", "below/a.png"]


def test_two_pictures_with_one_map(model, photos: Path, tmp_path: Path) -> None:
    save(photos / "a.bmp", picture())
    for inputs in ([photos], [photos / "a.png", photos / "a.bmp"], [str(photos / "a.*")]):
        with pytest.raises(DataError, match=r"a\.bmp.* would both be written to .*a\.png; predict"):
            predict_files(model, inputs, tmp_path / "maps")
    both = [photos / "a.png", photos / "below" / "a.PNG"]
    with pytest.raises(DataError, match=r"different folders \(--out\)"):
        predict_files(model, both, tmp_path / "maps")
    assert not (tmp_path / "maps").exists()


def test_an_overlay_and_a_map_of_one_name(model, tmp_path: Path) -> None:
    for name in ("a.png", "a.overlay.png"):
        save(tmp_path / "in" / name, picture())
    predict_files(model, [tmp_path / "in"], tmp_path / "maps")
    with pytest.raises(DataError, match=r"would both be written to .*a\.overlay\.png"):
        predict_files(model, [tmp_path / "in"], tmp_path / "more", overlay=True)
    with pytest.raises(DataError, match=r"a\.overlay\.png would be written over a picture"):
        predict_files(model, [tmp_path / "in"], tmp_path / "in", overlay=True, map_format="npy")


def test_a_map_over_a_picture(model, photos: Path, tmp_path: Path) -> None:
    before = (photos / "a.png").read_bytes()
    (tmp_path / "link").symlink_to(photos)
    for out in (photos, photos / "below" / "..", tmp_path / "link"):
        with pytest.raises(DataError, match=r"a\.png would be written over a picture; name anothe"):
            predict_files(model, [photos], out)
    assert (photos / "a.png").read_bytes() == before
    predict_files(model, [photos], photos, map_format="npy")
    assert (photos / "a.npy").is_file()


def test_nothing_to_predict(model, photos: Path, tmp_path: Path) -> None:
    (photos / "empty").mkdir()
    for entry, message in (
        (photos / "empty", "there are no pictures in"),
        (photos / "c.png", r"there is no picture, folder or pattern .*c\.png"),
        (photos / "c*", "there is no picture, folder or pattern"),
        (photos / "*.txt", r"\*\.txt matches no pictures but .*notes\.txt"),
    ):
        with pytest.raises(DataError, match=message):
            predict_files(model, [photos, str(entry)], tmp_path / "maps")
    with pytest.raises(DataError, match=r"notes\.txt is no picture that can be read; PNG, "):
        predict_files(model, [photos / "notes.txt"], tmp_path / "maps")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map_format": "jpg"}, "format must be one of png, png16, npy, got 'jpg'"),
        ({"threshold": 0.0}, r"threshold must be in \(0, 1\], got 0"),
        ({"threshold": 1.5}, r"threshold must be in \(0, 1\], got 1\.5"),
        ({"threshold": float("nan")}, "got nan"),
        ({"precision": "16-mixed"}, "precision must be one of 32-true, bf16-mixed, got '16-mixed'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_wrong_options(model, photos: Path, tmp_path: Path, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        predict_files(model, [photos], tmp_path / "maps", **options)
    assert not (tmp_path / "maps").exists()


def test_a_place_that_cannot_be_written(model, photos: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match="is a file; name a folder"):
        predict_files(model, [photos], photos / "a.png")
    monkeypatch.setattr("knifeedge.disk.os.access", lambda *_: False)
    with pytest.raises(DataError, match="may be written to"):
        predict_files(model, [photos], tmp_path / "maps")
    assert model.calls == 0


def test_a_full_disk_ends_it_with_whole_files(model, photos: Path, tmp_path, monkeypatch) -> None:
    count = []

    def fill(path: Path, data: bytes) -> None:
        count.append(path)
        if len(count) == 2:
            raise DataError(f"{path} cannot be written: No space left on device")
        write_atomically(path, data)

    monkeypatch.setattr(files, "write_atomically", fill)
    with pytest.raises(DataError, match="No space left on device"):
        predict_files(model, [photos], tmp_path / "maps")
    for path in (tmp_path / "maps").rglob("*.*"):
        assert read(path).shape == (20, 30)


def test_broken_weights_are_told(photos: Path, tmp_path: Path) -> None:
    broken = Brightness()
    broken.scale.data.fill_(float("nan"))
    with pytest.raises(DataError, match=r"3 of 3 .* no number at some pixels.*broken"):
        predict_files(broken, [photos], tmp_path / "maps")
    assert names(tmp_path / "maps") == []


def test_an_interrupt_leaves_whole_files_only(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / "in" / f"{number:02}.png", picture(number))
    model, interrupt, batch = Brightness(), 6, 4
    threads = set(threading.enumerate())

    def stop(done: int, total: int) -> None:
        if done == interrupt:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_files(model, [tmp_path / "in"], tmp_path / "out", progress=stop, batch_size=batch)
    assert names(tmp_path / "out") == [f"{number:02}.png" for number in range(interrupt)]
    for path in (tmp_path / "out").iterdir():
        assert read(path).shape == (20, 30)
    assert model.tiles == 8  # two batches
    assert {t for t in threading.enumerate() if "ThreadPool" in t.name} <= threads
    # The rest follows, and all of it is what it would have been.
    predict_files(model, [tmp_path / "in"], tmp_path / "out", skip_existing=True)
    assert model.tiles == 8 + 6
    shutil.copytree(tmp_path / "out", tmp_path / "first")
    predict_files(model, [tmp_path / "in"], tmp_path / "out")
    for path in (tmp_path / "first").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_maps_below_the_pictures_are_no_pictures(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / "in" / f"{number}.png", picture(number))
    for _ in range(2):
        maps = predict_files(Brightness(), [tmp_path / "in"], tmp_path / "in" / "maps")
        assert [path.name for path in maps] == ["0.png", "1.png"]
