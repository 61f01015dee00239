"""Readers of maps and ground truths: values, pairing, and every way a file can be wrong."""

import io
import math
import os
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from PIL import Image as Picture

from knifeedge.errors import DataError
from knifeedge.mat import parse_mat
from knifeedge.metrics.files import find_pairs, read_ground_truths, read_map
from knifeedge.metrics.inputs import Image, Reader
from knifeedge.metrics.values import Scale
from shared_data import data_dir

RNG = np.random.default_rng(3)
GREY = RNG.integers(0, 256, (7, 9), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (7, 9), dtype=np.uint16)
EDGES = RNG.random((7, 9)) > 0.7


def save_png(path: Path, array: np.ndarray, **options: object) -> Path:
    Picture.fromarray(array).save(path, **options)
    return path


def save_npy(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def cell(*annotators: np.ndarray) -> np.ndarray:
    """The cell array of structs in which BSDS500 keeps its annotators."""
    out = np.empty((1, len(annotators)), dtype=object)
    for i, boundaries in enumerate(annotators):
        out[0, i] = {"Segmentation": np.ones(boundaries.shape, np.uint16), "Boundaries": boundaries}
    return out


def save_mat(path: Path, *annotators: np.ndarray) -> Path:
    scipy.io.savemat(path, {"groundTruth": cell(*annotators)}, do_compression=True)
    return path


# --- values ---------------------------------------------------------------------------------------


def test_png_maps_are_read_by_their_bit_depth(tmp_path: Path) -> None:
    eight = read_map(save_png(tmp_path / "8.png", GREY))
    sixteen = read_map(save_png(tmp_path / "16.PNG", DEEP))
    one = read_map(save_png(tmp_path / "1.png", EDGES))
    assert eight.dtype == sixteen.dtype == one.dtype == np.float32
    np.testing.assert_array_equal(eight, GREY / np.float32(255))
    np.testing.assert_array_equal(sixteen, DEEP / np.float32(65535))
    np.testing.assert_array_equal(one, EDGES)


def test_two_and_four_bit_png_reach_full_scale(tmp_path: Path) -> None:
    for bits in (2, 4):
        top = 2**bits - 1
        values = np.arange(4).reshape(1, 4) % (top + 1)
        row = sum(int(v) << (8 - bits * (i + 1)) for i, v in enumerate(values[0, : 8 // bits]))
        width = 8 // bits
        path = tmp_path / f"{bits}.png"
        path.write_bytes(png_bytes(width, 1, depth=bits, colour=0, rows=bytes([0, row])))
        np.testing.assert_allclose(read_map(path), values[:, :width] / top, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", ">f8", bool])
@pytest.mark.parametrize("ending", ["npy", "npz", "mat"])
def test_array_maps_come_back_as_saved(tmp_path: Path, dtype: str, ending: str) -> None:
    array = np.asfortranarray(RNG.random((5, 6)) > 0.5 if dtype is bool else RNG.random((5, 6)))
    array = array.astype(dtype)
    path = tmp_path / f"a.{ending}"
    if ending == "mat":
        if dtype == np.float16:
            pytest.skip("MATLAB has no half precision")
        scipy.io.savemat(path, {"edge": array, "comment": "not a matrix"})
    else:
        np.save(path, array) if ending == "npy" else np.savez_compressed(path, array)
    values = read_map(path)
    wide = np.dtype(dtype).itemsize == 8
    assert values.dtype == (np.float64 if wide else np.float32)
    assert values.dtype.isnative
    assert values.flags.c_contiguous
    np.testing.assert_array_equal(values, array)


def test_a_double_matrix_of_whole_numbers_is_no_integer_matrix(tmp_path: Path) -> None:
    # MATLAB stores such a matrix in one byte a number; the class is in a header.
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"edge": np.array([[0.0, 1.0]])})
    assert read_map(path).tolist() == [[0.0, 1.0]]


def test_scale(tmp_path: Path) -> None:
    as_bytes = save_npy(tmp_path / "bytes.npy", GREY)
    as_floats = save_npy(tmp_path / "floats.npy", GREY.astype(np.float64))
    png = save_png(tmp_path / "a.png", GREY)
    np.testing.assert_array_equal(read_map(as_bytes, scale="255"), read_map(png))
    np.testing.assert_array_equal(read_map(as_floats, scale="255"), GREY / 255)
    np.testing.assert_array_equal(read_map(png, scale="255"), read_map(png))
    narrow = save_npy(tmp_path / "narrow.npy", np.array([[-3.0, 0.0, 1.0]]))
    assert read_map(narrow, scale="stretch").tolist() == [[0.0, 0.75, 1.0]]
    constant = save_npy(tmp_path / "constant.npy", np.full((2, 2), 0.4, np.float32))
    assert not read_map(constant, scale="stretch").any()
    for path in (png, as_bytes):
        stretched = read_map(path, scale="stretch")
        assert (stretched.min(), stretched.max()) == (0, 1)


def test_ground_truth_of_pngs_and_arrays(tmp_path: Path) -> None:
    soft = np.array([[0, 127, 128, 255]], np.uint8)
    path = save_png(tmp_path / "soft.png", soft)
    assert read_ground_truths(path)[0].tolist() == [[False, False, True, True]]
    at = read_ground_truths(path, label_threshold=0.0)[0]
    assert at.tolist() == [[False, True, True, True]]
    # 153/255 is 0.6 exactly: greater than, not equal.
    fine = save_png(tmp_path / "fine.png", np.array([[153, 154]], np.uint8))
    assert read_ground_truths(fine, label_threshold=0.6)[0].tolist() == [[False, True]]
    for i, labels in enumerate(
        (
            *(EDGES, EDGES.astype(np.uint8), EDGES.astype(np.uint8) * 255),
            *(EDGES.astype(np.uint16) * value for value in (1, 255, 65535)),
        )
    ):
        (truth,) = read_ground_truths(save_png(tmp_path / f"{i}.png", labels))
        assert truth.dtype == bool
        np.testing.assert_array_equal(truth, EDGES)
    for i, array in enumerate((EDGES, EDGES.astype(int), EDGES * 0.9, EDGES.astype(np.int8))):
        (truth,) = read_ground_truths(save_npy(tmp_path / f"{i}.npy", array))
        np.testing.assert_array_equal(truth, EDGES)


def test_an_empty_ground_truth_is_no_error(tmp_path: Path) -> None:
    assert not read_ground_truths(save_png(tmp_path / "a.png", np.zeros_like(GREY)))[0].any()


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.float64])
def test_annotators(tmp_path: Path, dtype: type) -> None:
    first, second = EDGES, EDGES[::-1]
    stack = np.stack([first, second]).astype(dtype)
    for path in (
        save_mat(tmp_path / "cells.mat", *stack),
        save_npy(tmp_path / "stack.npy", stack),
    ):
        both = read_ground_truths(path)
        assert len(both) == 2
        for got, expected in zip(both, (first, second), strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.flags.c_contiguous
        (only,) = read_ground_truths(path, annotators="first")
        np.testing.assert_array_equal(only, first)
        (merged,) = read_ground_truths(path, annotators="merged")
        np.testing.assert_array_equal(merged, first | second)


def test_ground_truth_as_a_struct_array_and_as_a_column(tmp_path: Path) -> None:
    structs = np.empty((1, 2), dtype=[("Boundaries", object)])
    structs[0, 0]["Boundaries"], structs[0, 1]["Boundaries"] = EDGES, EDGES[::-1]
    for name, value in {"structs": structs, "column": cell(EDGES, EDGES[::-1]).T}.items():
        path = tmp_path / f"{name}.mat"
        scipy.io.savemat(path, {"groundTruth": value})
        both = read_ground_truths(path)
        np.testing.assert_array_equal(both, [EDGES, EDGES[::-1]])


def test_a_stack_in_0_255_keeps_one_scale_for_all_annotators(tmp_path: Path) -> None:
    stack = np.array([[[0, 255]], [[0, 1]]], np.uint8)
    got = read_ground_truths(save_npy(tmp_path / "a.npy", stack))
    assert np.array(got).tolist() == [[[False, True]], [[False, False]]]


def test_npz_names(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, map=EDGES * 0.25, ground_truth=EDGES, image=GREY)
    np.testing.assert_array_equal(read_map(path), EDGES * 0.25)
    np.testing.assert_array_equal(read_ground_truths(path)[0], EDGES)


def test_only_the_named_array_of_an_npz_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, map=EDGES * 0.25, meta={"epoch": 3}, allow_pickle=True)
    np.testing.assert_array_equal(read_map(path), EDGES * 0.25)


def test_the_mat_reader_agrees_with_scipy(tmp_path: Path) -> None:
    matrices = {
        f"{np.dtype(kind).name}_{order}": np.asarray(RNG.integers(0, 99, (3, 4)), kind, order=order)
        for kind in ("f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
        for order in "CF"
    }
    matrices |= {"empty": np.zeros((0, 3)), "cube": RNG.random((2, 3, 4)), "a": np.array([[7.0]])}
    for compressed in (False, True):
        path = tmp_path / "a.mat"
        scipy.io.savemat(path, matrices, do_compression=compressed)
        theirs, ours = scipy.io.loadmat(path, mat_dtype=True), parse_mat(path.read_bytes())
        assert list(ours) == list(matrices)
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name])
            assert value.dtype == theirs[name].dtype


def test_the_mat_reader_names_what_it_does_not_read() -> None:
    others = {"c": np.ones((2, 2)) * 1j, "s": scipy.sparse.csc_array(np.eye(3)), "t": "text"}
    assert parse_mat(encoded(scipy.io.savemat, others)) == {
        "c": "complex",
        "s": "sparse",
        "t": "char",
    }


def test_the_mat_reader_knows_both_byte_orders() -> None:
    header = b"MATLAB 5.0 MAT-file, by hand".ljust(124) + b"\x01\x00MI"
    body = struct.pack(">II2I", 6, 8, 6, 0) + struct.pack(">II2i", 5, 8, 1, 2)
    body += struct.pack(">HH4s", 1, 1, b"a") + struct.pack(">II2d", 9, 16, 0.25, 1.0)
    got = parse_mat(header + struct.pack(">II", 14, len(body)) + body)
    np.testing.assert_array_equal(got["a"], [[0.25, 1.0]])


@pytest.mark.parametrize("damaged", ["flags", "shape", "width"])
def test_the_mat_reader_refuses_sizes_that_are_no_whole_numbers(damaged: str) -> None:
    def whole(name: str, kind: int, code: str, *values: int) -> bytes:
        if name == damaged:
            return struct.pack(f"<II{len(values)}d", 9, 8 * len(values), *[math.inf] * len(values))
        return struct.pack(f"<II{len(values)}{code}", kind, 4 * len(values), *values)

    header = b"MATLAB 5.0 MAT-file, by hand".ljust(124) + b"\x00\x01IM"
    body = whole("flags", 6, "I", 2, 0) + whole("shape", 5, "i", 1, 1)
    body += struct.pack("<HH4s", 1, 1, b"a") + whole("width", 5, "i", 1).ljust(16, b"\0")
    with pytest.raises(ValueError, match="float64 where whole numbers were expected"):
        parse_mat(header + struct.pack("<II", 14, len(body)) + body)


def test_the_mat_reader_refuses_to_swell_or_to_dig(monkeypatch: pytest.MonkeyPatch) -> None:
    nested: object = np.zeros((1, 1))
    for _ in range(20):
        nested = np.array([[nested, 0]], object)
    with pytest.raises(ValueError, match="deep"):
        parse_mat(encoded(scipy.io.savemat, {"a": nested}))
    monkeypatch.setattr("knifeedge.mat.MAX_BYTES", 1000)
    big = encoded(scipy.io.savemat, {"a": np.zeros((99, 99))}, do_compression=True)
    with pytest.raises(ValueError, match="1 GiB"):
        parse_mat(big)


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["f2", "<f4", ">f4", "f8", "longdouble", "?", "u1", ">u2", "i4", "i8", "c8", "U1"]
)
@pytest.mark.parametrize("scale", ["unit", "255", "stretch"])
def test_an_array_means_what_its_file_means(tmp_path: Path, dtype: str, scale: Scale) -> None:
    reader = Reader(scale=scale)
    for array in (EDGES, RNG.random((7, 9)), 255 * EDGES, 300.0 * EDGES - 7):
        with np.errstate(invalid="ignore"):
            array = array.astype(dtype)
        path = save_npy(tmp_path / "a.npy", array)
        found = [outcome(reader, path, path), outcome(reader, array, array)]
        assert found[0] == found[1]


def test_a_stack_means_what_its_file_means(tmp_path: Path) -> None:
    # The second annotator alone would be taken for labels 0 and 1.
    stack = np.stack([EDGES * np.uint8(255), EDGES[::-1] * np.uint8(1)])
    path = save_npy(tmp_path / "a.npy", stack)
    for annotators in ("all", "first", "merged"):
        reader = Reader(annotators=annotators)
        _, from_file = reader.load(Image("a", EDGES, path))
        _, from_array = reader.load(Image("a", EDGES, stack))
        np.testing.assert_array_equal(from_array, from_file)
        assert sum(truth.sum() for truth in from_array) == EDGES.sum()


def outcome(reader: Reader, *image: Path | np.ndarray) -> object:
    """The bytes of the map and of the ground truth, or what is wrong without the name."""
    try:
        prob, truths = reader.load(Image("a", *image))
    except DataError as error:
        return re.sub(r"^(the map|the ground truth|\S+\.npy) ", "", str(error))
    assert prob.dtype.isnative
    return prob.dtype, prob.tobytes(), [truth.tobytes() for truth in truths]


# --- pairing --------------------------------------------------------------------------------------


def folders(tmp_path: Path, maps: str, truths: str) -> tuple[Path, Path]:
    for name, files in (("maps", maps), ("truths", truths)):
        (tmp_path / name).mkdir()
        for file in files.split():
            (tmp_path / name / file).write_bytes(b"")
    return tmp_path / "maps", tmp_path / "truths"


def test_pairs_are_found_by_stem(tmp_path: Path) -> None:
    both = folders(tmp_path, "b.png a.1.npy 10.PNG .hidden.png notes.txt", "10.npz b.mat a.1.png")
    (tmp_path / "maps" / "folder.png").mkdir()
    pairs, unpaired = find_pairs(*both)
    assert not unpaired
    assert [pair.name for pair in pairs] == ["10", "a.1", "b"]
    assert [pair.map.name for pair in pairs] == ["10.PNG", "a.1.npy", "b.png"]
    assert [pair.ground_truth.name for pair in pairs] == ["10.npz", "a.1.png", "b.mat"]


def test_everything_without_a_partner_is_listed_at_once(tmp_path: Path) -> None:
    lonely_maps = [f"m{i:02}.png" for i in range(30)]
    lonely_truths = [f"t{i:02}.mat" for i in range(30)]
    both = folders(tmp_path, " ".join(["a.png", *lonely_maps]), " ".join(["a.png", *lonely_truths]))
    pairs, unpaired = find_pairs(*both)
    assert [pair.name for pair in pairs] == ["a"]
    assert len(unpaired) == 60
    assert "no ground truth" in unpaired["m00"]
    assert "no map" in unpaired["t00"]


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    both = folders(tmp_path, "a.png a.npy b.png", "a.png b.png b.mat")
    pairs, unpaired = find_pairs(*both)
    assert not pairs
    assert re.match(r"a\.npy, a\.png in .* have the same name", unpaired["a"])
    assert re.match(r"b\.mat, b\.png in .* have the same name", unpaired["b"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"no files.*\.png, \.npy, \.npz, \.mat"),
        (["a.jpg", "b.txt"], r"only \.jpg, \.txt"),
        ([".png"], "no files"),
    ],
)
def test_a_folder_without_usable_files(tmp_path: Path, content: list[str], message: str) -> None:
    both = folders(tmp_path, " ".join(content), "a.png")
    with pytest.raises(DataError, match=message):
        find_pairs(*both)


def test_what_is_no_folder(tmp_path: Path) -> None:
    maps, truths = folders(tmp_path, "a.png", "a.png")
    with pytest.raises(DataError, match="is a file; give the folder"):
        find_pairs(maps / "a.png", truths)
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file"):
        find_pairs(maps, tmp_path / "nowhere")


# --- bad files ------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bytes(width: int, height: int, *, depth: int, colour: int, rows: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def encoded(save: Callable[..., None], *args: object, **options: object) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


def encoded_png(mode: str) -> bytes:
    image = Picture.fromarray(GREY).convert(mode)
    return encoded(image.save, format="PNG")


GOOD_PNG = encoded_png("L")
PLAIN_PNG = encoded(Picture.fromarray(GREY).save, format="PNG", compress_level=0)
GOOD_NPY = encoded(np.save, GREY / 255)
GOOD_NPZ = encoded(np.savez_compressed, GREY / 255)
GOOD_MAT = encoded(scipy.io.savemat, {"edge": GREY / 255}, do_compression=True)
PLAIN_MAT = encoded(scipy.io.savemat, {"edge": GREY / 255})
GOOD_CELLS = encoded(scipy.io.savemat, {"groundTruth": cell(EDGES, EDGES)}, do_compression=True)
PLAIN_CELLS = encoded(scipy.io.savemat, {"groundTruth": cell(EDGES, EDGES)})

BAD_MAPS = {
    "rgb.png": (encoded_png("RGB"), "colour PNG; convert it to grey"),
    "rgba.png": (encoded_png("RGBA"), "colour-with-alpha PNG"),
    "la.png": (encoded_png("LA"), "grey-with-alpha PNG"),
    "p.png": (encoded_png("P"), "palette PNG"),
    "cut.png": (GOOD_PNG[:-30], "damaged"),
    "flipped.png": (GOOD_PNG[:60] + bytes([GOOD_PNG[60] ^ 1]) + GOOD_PNG[61:], "damaged"),
    "tail.png": (GOOD_PNG[:-10], "damaged"),
    "pixel.png": (PLAIN_PNG[:-40] + bytes([PLAIN_PNG[-40] ^ 1]) + PLAIN_PNG[-39:], "damaged"),
    "jpeg.png": (encoded(Picture.fromarray(GREY).save, format="JPEG"), "not a PNG"),
    "empty.png": (b"", "not a PNG"),
    "bomb.png": (png_bytes(60000, 60000, depth=1, colour=0, rows=b""), "60000 x 60000 pixels"),
    "zero.png": (png_bytes(0, 4, depth=8, colour=0, rows=b""), "damaged"),
    "empty.npy": (b"", "damaged"),
    "cut.npy": (GOOD_NPY[:-30], "damaged"),
    "pickle.npy": (encoded(np.save, np.array([[{}]]), allow_pickle=True), "allow_pickle"),
    "nan.npy": (encoded(np.save, np.array([[0.5, np.nan]])), "NaN"),
    "inf.npy": (encoded(np.save, np.array([[0.5, np.inf]])), "infinite"),
    "high.npy": (encoded(np.save, np.array([[0.5, 1.01]])), r"in \[0,1\], got 0.5 to 1.01"),
    "low.npy": (
        encoded(np.save, np.array([[0.5, -0.01]])),
        r"in \[0,1\], got -0.01 to 0.5",
    ),
    "bytes.npy": (encoded(np.save, GREY), r"integers \(uint8\).*--scale 255"),
    "line.npy": (encoded(np.save, np.zeros(5)), r"shape \(5,\)"),
    "cube.npy": (encoded(np.save, np.zeros((2, 3, 4))), r"shape \(2, 3, 4\)"),
    "none.npy": (encoded(np.save, np.zeros((0, 4))), r"shape \(0, 4\)"),
    "complex.npy": (encoded(np.save, np.zeros((2, 2), complex)), "complex128 and not real"),
    "text.npy": (encoded(np.save, np.array([["a"]])), "not real numbers"),
    "two.npz": (encoded(np.savez, a=GREY, b=GREY), r"2 arrays \(a, b\).*name it 'map'"),
    "empty.npz": (encoded(np.savez), "0 arrays"),
    "pickle.npz": (encoded(np.savez, np.array([[{}]]), allow_pickle=True), "allow_pickle"),
    "cut.npz": (GOOD_NPZ[:-30], "damaged"),
    "cut.mat": (GOOD_MAT[:-30], "damaged"),
    "empty.mat": (b"", "damaged"),
    "two.mat": (encoded(scipy.io.savemat, {"a": GREY, "b": GREY}), r"2 numeric.*\(a, b\)"),
    "none.mat": (encoded(scipy.io.savemat, {"a": "text"}), "0 numeric matrices"),
    "v4.mat": (encoded(scipy.io.savemat, {"a": GREY / 255}, format="4"), "with -v7"),
    "v73.mat": (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF", "with -v7"),
    "a.jpg": (encoded(Picture.fromarray(GREY).save, format="JPEG"), r"is none of \.png"),
}
BAD_TRUTHS = {
    "other.mat": (GOOD_MAT, "no variable groundTruth but edge"),
    "v73.mat": BAD_MAPS["v73.mat"],
    "matrix.mat": (encoded(scipy.io.savemat, {"groundTruth": GREY}), "no cell array"),
    "cells.mat": (
        encoded(scipy.io.savemat, {"groundTruth": np.array([[GREY, EDGES]], object)}),
        "an entry of groundTruth has no Boundaries",
    ),
    "nobody.mat": (
        encoded(scipy.io.savemat, {"groundTruth": np.empty((1, 0), object)}),
        "groundTruth is empty",
    ),
    "shapes.mat": (
        encoded(scipy.io.savemat, {"groundTruth": cell(EDGES, EDGES.T)}),
        r"\(7, 9\), \(9, 7\)",
    ),
    "text.mat": (
        encoded(scipy.io.savemat, {"groundTruth": cell(np.array(["abc"]))}),
        "Boundaries is a char array and not real numbers",
    ),
    "sparse.mat": (
        encoded(scipy.io.savemat, {"groundTruth": cell(scipy.sparse.csc_array(EDGES * 1.0))}),
        r"Boundaries is a sparse array and not real numbers; .* full\(Boundaries\)",
    ),
    "nested.mat": (
        encoded(scipy.io.savemat, {"groundTruth": cell(cell(EDGES, EDGES.T))}),
        "Boundaries is a cell or struct array and not real numbers",
    ),
    "cut.mat": (GOOD_CELLS[:-30], "damaged"),
    "rgb.png": BAD_MAPS["rgb.png"],
    "cut.png": BAD_MAPS["cut.png"],
    "nan.npy": BAD_MAPS["nan.npy"],
    "high.npy": (encoded(np.save, np.array([[0, 2]])), r"\(int64\) must be in \[0,1\], got 0 to 2"),
    "low.npy": (encoded(np.save, np.array([[0, -1]])), "-1 to 0"),
    "4d.npy": (encoded(np.save, np.zeros((1, 2, 3, 4))), r"shape \(1, 2, 3, 4\)"),
    "none.npy": (encoded(np.save, np.zeros((0, 3, 4))), r"shape \(0, 3, 4\)"),
    "two.npz": (encoded(np.savez, a=GREY, b=GREY), "name it 'ground_truth'"),
}


@pytest.mark.parametrize("name", BAD_MAPS)
def test_bad_maps(tmp_path: Path, name: str) -> None:
    data, message = BAD_MAPS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_map(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("name", BAD_TRUTHS)
def test_bad_ground_truths(tmp_path: Path, name: str) -> None:
    data, message = BAD_TRUTHS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read_ground_truths(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_out_of_range_for_the_chosen_scale(tmp_path: Path) -> None:
    high = save_npy(tmp_path / "a.npy", np.array([[0.0, 256.0]]))
    with pytest.raises(DataError, match=r"must be in \[0,255\], got 0 to 256"):
        read_map(high, scale="255")
    wide = save_npy(tmp_path / "b.npy", np.array([[-1e308, 1e308]]))
    with pytest.raises(DataError, match="too far apart"):
        read_map(wide, scale="stretch")


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_npy(tmp_path / "a.npy", GREY / 255)
    with pytest.raises(DataError, match=r"gone\.npy cannot be read: No such file"):
        read_map(tmp_path / "gone.npy")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    # Root may read everything, so that the mode bits alone would not show this.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    for read in (read_map, read_ground_truths):
        with pytest.raises(DataError, match=r"a\.npy cannot be read: Permission denied"):
            read(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user without rights")
def test_mode_bits(tmp_path: Path) -> None:
    path = save_npy(tmp_path / "a.npy", GREY / 255)
    path.chmod(0)
    with pytest.raises(DataError, match="Permission denied"):
        read_map(path)


def test_options_are_checked(tmp_path: Path) -> None:
    path = save_png(tmp_path / "a.png", GREY)
    with pytest.raises(ValueError, match="scale must be one of unit, 255, stretch, got 'byte'"):
        read_map(path, scale="byte")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="annotators must be one of all, first, merged, got 'two'"):
        read_ground_truths(path, annotators="two")  # type: ignore[arg-type]
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="label_threshold must be in"):
            read_ground_truths(path, label_threshold=value)


SEEDS = {
    "grey.png": GOOD_PNG,
    "deep.png": encoded(Picture.fromarray(DEEP).save, format="PNG"),
    "bits.png": encoded(Picture.fromarray(EDGES).save, format="PNG"),
    "a.npy": GOOD_NPY,
    "a.npz": GOOD_NPZ,
    "plain.npz": encoded(np.savez, GREY / 255),
    "a.mat": GOOD_MAT,
    "plain.mat": PLAIN_MAT,
    "cells.mat": GOOD_CELLS,
    "plain_cells.mat": PLAIN_CELLS,
}


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_give_a_data_error_or_an_array(tmp_path: Path, name: str) -> None:
    """300 cut or altered copies a format; no other exception, and no array of a wrong kind."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    path = tmp_path / name
    refused = 0
    for i in range(300):
        data = bytearray(SEEDS[name])
        if i % 3 == 0:
            del data[rng.integers(len(data)) :]
        else:
            for at in rng.integers(len(data), size=i % 3 + i % 2):
                data[at] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        try:
            values = read_map(path, scale=("unit", "255", "stretch")[i % 3])
        except DataError:
            refused += 1
        else:
            assert values.ndim == 2
            assert values.size > 0
            assert values.min() >= 0
            assert values.max() <= 1
        try:
            truths = read_ground_truths(path)
        except DataError:
            pass
        else:
            assert truths
            assert all(truth.ndim == 2 and truth.dtype == bool for truth in truths)
    # A third are cut short, and a cut file is never taken for a whole one.
    assert refused >= 90


# --- real data ------------------------------------------------------------------------------------


def test_bsds500_is_read_as_scipy_reads_it() -> None:
    folder = data_dir("BSDS500") / "groundTruth" / "test"
    for path in sorted(folder.glob("*.mat"))[:5]:
        cells = scipy.io.loadmat(path)["groundTruth"][0]
        expected = [entry["Boundaries"][0, 0] == 1 for entry in cells]
        np.testing.assert_array_equal(read_ground_truths(path), expected)


def test_uded_is_read_above_127() -> None:
    for path in sorted((data_dir("UDED") / "gt").glob("*.png"))[:5]:
        expected = np.asarray(Picture.open(path)) > 127
        np.testing.assert_array_equal(read_ground_truths(path), [expected])


def test_overlays_beside_the_maps_are_passed_over(tmp_path: Path) -> None:
    """As `predict --overlay` writes them."""
    for folder, names in (("maps", ("a.png", "a.overlay.png")), ("truths", ("a.png",))):
        (tmp_path / folder).mkdir()
        for name in names:
            save_png(tmp_path / folder / name, np.zeros((2, 3), np.uint8))
    pairs, unpaired = find_pairs(tmp_path / "maps", tmp_path / "truths")
    assert ([pair.name for pair in pairs], unpaired) == (["a"], {})
