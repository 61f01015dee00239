import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.evaluate import evaluate, score_image
from knifeedge.metrics.files import read_ground_truths
from knifeedge.metrics.nms import crispness, suppress
from knifeedge.metrics.protocols import PROTOCOLS
from knifeedge.metrics.scores import LeftOut, score
from knifeedge.metrics.thinning import thin
from shared_data import data_dir


def one_image(seed, shape=(40, 56)):
    """A soft 8-bit map and two annotators' edges that agree in part."""
    rng = np.random.default_rng(seed)
    field = ndimage.gaussian_filter(rng.random(shape), 3)
    edges = thin(np.abs(field - np.median(field)) < 0.006)
    other = thin(ndimage.binary_dilation(edges)) & (rng.random(shape) < 0.9)
    soft = ndimage.gaussian_filter(edges.astype(float), 1) + 0.1 * rng.random(shape)
    return np.round(255 * soft / soft.max()).astype(np.uint8), [edges, other]


@pytest.fixture(scope="module")
def images():
    return {f"im{seed}": one_image(seed) for seed in range(6)}


@pytest.fixture(scope="module")
def maps(images):
    return {name: (soft / 255).astype(np.float32) for name, (soft, _) in images.items()}


@pytest.fixture(scope="module")
def truths(images):
    return {name: edges for name, (_, edges) in images.items()}


@pytest.fixture
def folders(images, tmp_path):
    for name, (soft, edges) in images.items():
        save(tmp_path / "maps" / f"{name}.png", soft)
        save(tmp_path / "truths" / f"{name}.npy", np.stack(edges))
    return tmp_path / "maps", tmp_path / "truths"


def save(path, array):
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".png":
        Image.fromarray(array).save(path)
    else:
        np.save(path, array)


def record(scores):
    return json.dumps(scores.to_dict(), allow_nan=False)


def test_each_image_is_scored_by_the_kernels_and_summed(maps, truths) -> None:
    result = evaluate(maps, truths, protocol="paper-strict")
    pairs = [score_image(maps[name], truths[name], protocol="paper-strict") for name in maps]
    expected = score(
        np.stack([counts for counts, _ in pairs]),
        protocol=PROTOCOLS["paper-strict"],
        crispness=[crisp for _, crisp in pairs],
        names=list(maps),
        options={"scale": "unit", "annotators": "all", "label_threshold": 0.5},
    )
    assert record(result) == record(expected)
    assert 0.3 < result.ods < 1
    assert 0 < result.crispness < 1


def test_score_image_suppresses_where_the_protocol_says_so(maps, truths) -> None:
    bsds = PROTOCOLS["bsds"]
    prob, edges = maps["im0"], truths["im0"]
    counts, crisp = score_image(prob, edges, protocol=bsds)
    by_hand, _ = score_image(suppress(prob), edges, protocol=bsds.replace(nms=False))
    np.testing.assert_array_equal(counts, by_hand)
    assert crisp == crispness(prob)
    assert not np.array_equal(counts, score_image(prob, edges, protocol=bsds.replace(nms=False))[0])


def test_folders_lists_and_dicts_score_alike(maps, truths, folders) -> None:
    by_name = record(evaluate(maps, truths, protocol="bsds"))
    assert record(evaluate(*folders, protocol="bsds")) == by_name
    assert record(evaluate(str(folders[0]), str(folders[1]), protocol="bsds")) == by_name
    as_lists = evaluate(
        list(maps.values()), list(truths.values()), names=list(maps), protocol="bsds"
    )
    assert record(as_lists) == by_name
    stacked = evaluate(
        np.stack(list(maps.values())),
        np.stack([np.stack(edges) for edges in truths.values()]),
        protocol="bsds",
    )
    np.testing.assert_array_equal(stacked.counts, as_lists.counts)
    assert stacked.names == tuple("012345")


def test_a_single_image_may_have_several_annotators(maps, truths) -> None:
    several = evaluate(maps["im1"], truths["im1"])
    np.testing.assert_array_equal(several.counts[0], score_image(maps["im1"], truths["im1"])[0])
    stacked = evaluate(maps["im1"], np.stack(truths["im1"]))
    np.testing.assert_array_equal(stacked.counts, several.counts)
    first = evaluate(maps["im1"], truths["im1"][0])
    np.testing.assert_array_equal(
        first.counts, evaluate(maps["im1"], truths["im1"], annotators="first").counts
    )
    merged = evaluate(maps["im1"], truths["im1"], annotators="merged")
    np.testing.assert_array_equal(
        merged.counts, evaluate(maps["im1"], truths["im1"][0] | truths["im1"][1]).counts
    )
    assert merged.options["annotators"] == "merged"


def test_scales_of_maps(images, maps, truths) -> None:
    plain = evaluate(maps["im2"], truths["im2"])
    in_255 = evaluate(images["im2"][0], truths["im2"], scale="255")
    np.testing.assert_array_equal(in_255.counts, plain.counts)
    unit = np.round(maps["im2"] * 128) / 128  # fractions that survive the stretch exactly
    unit[0, :2] = 0, 1
    stretched = evaluate(0.25 + unit / 2, truths["im2"], scale="stretch")
    np.testing.assert_array_equal(stretched.counts, evaluate(unit, truths["im2"]).counts)
    assert stretched.options["scale"] == "stretch"
    assert evaluate(np.full((9, 9), 0.7), np.eye(9), scale="stretch").counts[0, :, 3].max() == 0


def test_soft_labels_have_a_threshold(maps, truths) -> None:
    soft = np.where(truths["im0"][0], 0.8, 0.3)
    expected = evaluate(maps["im0"], truths["im0"][0]).counts
    np.testing.assert_array_equal(evaluate(maps["im0"], soft).counts, expected)
    in_255 = (soft * 255).astype(np.uint8)
    np.testing.assert_array_equal(evaluate(maps["im0"], in_255).counts, expected)
    none = evaluate(maps["im0"], soft, label_threshold=0.8)
    assert none.counts[0, :, 1].max() == 0


@pytest.mark.parametrize("protocol", ["paper-strict", "bsds"])
def test_the_number_of_workers_changes_no_bit(folders, protocol) -> None:
    alone = record(evaluate(*folders, protocol=protocol, jobs=1))
    for jobs in (1, 2, 5, None):
        assert record(evaluate(*folders, protocol=protocol, jobs=jobs)) == alone


def test_a_dask_cluster_gives_the_same(folders, maps, truths) -> None:
    distributed = pytest.importorskip("distributed")
    seen = []
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        address = cluster.scheduler_address
        result = evaluate(
            *folders,
            protocol="bsds",
            cluster=address,
            progress=lambda done, total: seen.append((done, total)),
        )
        from_arrays = evaluate(maps, truths, protocol="bsds", cluster=address)
        (folders[0] / "im3.png").write_bytes(b"no picture")
        with pytest.raises(DataError, match=r"1 of 6 images .*im3\.png"):
            evaluate(*folders, protocol="bsds", cluster=address)
    local = record(evaluate(maps, truths, protocol="bsds"))
    assert record(result) == local
    assert record(from_arrays) == local
    assert seen == [(i, 6) for i in range(1, 7)]


def test_without_dask_the_error_names_the_extra(maps, truths, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'knifeedge\[dask\]'"):
        evaluate(maps, truths, cluster="tcp://127.0.0.1:8786")


@pytest.mark.parametrize("address", ["nonsense", "tcp://localhost", "localhost:8786"])
def test_what_is_no_address_is_refused_at_once(maps, truths, address) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ConfigError, match="cluster must be an address such as tcp://host:8786"):
        evaluate(maps, truths, cluster=address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9"])
def test_an_address_where_nobody_answers(maps, truths, monkeypatch, address) -> None:
    pytest.importorskip("distributed")
    module = sys.modules["knifeedge.metrics.evaluate"]
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.3)
    with pytest.raises(ConfigError, match=f"no Dask scheduler answers at '{address}'"):
        evaluate(maps, truths, cluster=address)


def test_workers_are_threads_that_run_at_once(maps, truths, monkeypatch) -> None:
    module = sys.modules["knifeedge.metrics.evaluate"]
    meeting = threading.Barrier(2, timeout=20)
    real = module.score_image

    def waiting(*args, **options):
        meeting.wait()  # broken after the time-out, unless two are here at once
        return real(*args, **options)

    monkeypatch.setattr(module, "score_image", waiting)
    evaluate(maps, truths, jobs=2)


def spy(monkeypatch, module, name, calls):
    """Note each call of a function in `calls`."""
    real = getattr(sys.modules[module], name)

    def noting(*args, **options):
        calls.append(name)
        return real(*args, **options)

    monkeypatch.setattr(sys.modules[module], name, noting)


def test_images_are_read_when_their_turn_comes(folders, monkeypatch) -> None:
    calls = []
    spy(monkeypatch, "knifeedge.metrics.inputs", "read_map", calls)
    spy(monkeypatch, "knifeedge.metrics.evaluate", "score_image", calls)
    evaluate(*folders, jobs=1)
    assert calls == ["read_map", "score_image"] * 6


def test_progress_counts_every_image(maps, truths) -> None:
    seen = []
    evaluate(maps, truths, jobs=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]


def spoil(folders):
    """Every kind of trouble at once."""
    maps, truths = folders
    save(maps / "only-map.png", np.zeros((4, 4), dtype=np.uint8))
    save(truths / "only-truth.npy", np.zeros((4, 4), dtype=bool))
    save(maps / "im0.png", np.zeros((8, 9), dtype=np.uint8))
    (maps / "im1.png").unlink()
    save(maps / "im1.npy", np.full((40, 56), np.nan))
    (maps / "im2.png").unlink()
    save(maps / "im2.npy", np.full((40, 56), 7.0))
    (maps / "im3.png").write_bytes((maps / "im3.png").read_bytes()[:60])


BAD = {
    "only-map": "no ground truth in",
    "only-truth": "no map in",
    "im0": r"shape \(8, 9\), its ground truth \(40, 56\)",
    "im1": "NaN",
    "im2": r"\[0,1\]",
    "im3": "im3.png",
}


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_bad_images_are_named_at_once(folders, jobs) -> None:
    spoil(folders)
    with pytest.raises(DataError, match=r"^6 of 8 images cannot be scored: ") as caught:
        evaluate(*folders, jobs=jobs)
    for name, reason in BAD.items():
        caught.match(f"{name}: [^;]*{reason}")
    caught.match("skip_bad")


def test_tensors_are_taken_as_arrays(maps, truths) -> None:
    stacked = [np.stack([one["im0"], one["im1"]]) for one in (maps, truths)]
    for given in (stacked, [one[0] for one in stacked]):
        expected = evaluate(*given)
        for found in (
            evaluate(*map(torch.tensor, given)),
            evaluate(given[0], torch.tensor(given[1])),
        ):
            np.testing.assert_array_equal(found.counts, expected.counts)
    with pytest.raises(TypeError, match=r"maps must be a folder, an array, .* got NoneType"):
        evaluate(None, truths["im0"])
    with pytest.raises(TypeError, match=r"ground_truths must be .* got generator"):
        evaluate([maps["im0"]], (truths[name] for name in ["im0"]))


def test_a_reason_is_told_once_for_all_its_images(maps, truths, tmp_path) -> None:
    """Two folders that have nothing to do with each other: one short line, not 200 long ones."""
    for folder, arrays in (("maps", maps), ("truths", truths)):
        (tmp_path / folder).mkdir()
        for name, array in arrays.items():
            np.save(tmp_path / folder / f"{folder}-{name}.npy", array)
    with pytest.raises(DataError) as caught:
        evaluate(tmp_path / "maps", tmp_path / "truths")
    told = str(caught.value)
    assert told.count(str(tmp_path)) == 2
    assert all(f"{folder}-{name}" in told for folder in ("maps", "truths") for name in maps)


def test_skip_bad_goes_on_and_lists_what_it_left_out(folders, maps, truths) -> None:
    spoil(folders)
    result = evaluate(*folders, skip_bad=True)
    good = ["im4", "im5"]
    expected = evaluate({n: maps[n] for n in good}, {n: truths[n] for n in good})
    np.testing.assert_array_equal(result.counts, expected.counts)
    assert result.names == ("im4", "im5")
    assert {item.name for item in result.left_out} == set(BAD)
    assert result.to_dict()["left_out"][0]["reason"]
    assert result.ods == expected.ods


def test_skip_bad_with_nothing_left_is_an_error(maps, truths) -> None:
    with pytest.raises(DataError, match="nothing is left to score"):
        evaluate({"a": maps["im0"] + 2}, {"a": truths["im0"]}, skip_bad=True)


def test_after_a_failure_the_rest_is_only_read(maps, truths, monkeypatch) -> None:
    calls = []
    spy(monkeypatch, "knifeedge.metrics.evaluate", "score_image", calls)
    spoiled = {"first": maps["im0"] * np.nan, **maps}
    with pytest.raises(DataError, match="1 of 7 images"):
        evaluate(spoiled, {"first": truths["im0"], **truths}, jobs=1)
    assert len(calls) <= 1


def test_bad_arrays_are_data_errors_by_name(maps, truths) -> None:
    spoiled = {**maps, "im1": maps["im1"][:-1], "im4": (maps["im4"] * 255).astype(np.uint8)}
    with pytest.raises(DataError, match=r"2 of 6 .*im1: .*shape.*; im4: .*255"):
        evaluate(spoiled, truths)
    with pytest.raises(DataError, match=r"im0: .*\[0,1\], got 0 to 3"):
        evaluate({"im0": maps["im0"]}, {"im0": 3.0 * truths["im0"][0]})
    with pytest.raises(DataError, match=r"im0: .*no ground truth"):
        evaluate({"im0": maps["im0"]}, {"im0": []})


def test_a_tolerance_too_wide_for_one_image_is_told_with_its_name(maps, truths) -> None:
    wide = np.zeros((400, 400), dtype=np.float32)
    with pytest.raises(DataError, match=r"1 of 2 .*wide: max_dist must be at most 512 pixels"):
        evaluate(
            {"wide": wide, "im0": maps["im0"]},
            {"wide": wide, "im0": truths["im0"]},
            protocol=PROTOCOLS["bsds"].replace(max_dist=0.95),
        )


def test_unpaired_names_of_dicts(maps, truths) -> None:
    with pytest.raises(DataError, match=r"2 of 7 .*im5: no ground truth; x: no map"):
        evaluate(maps, {**{n: truths[n] for n in maps if n != "im5"}, "x": truths["im5"]})
    left = evaluate(maps, {"im0": truths["im0"]}, skip_bad=True).left_out
    assert left[0] == LeftOut("im1", "no ground truth")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"jobs": 0}, ValueError, "jobs must be at least 1, got 0"),
        ({"scale": "256"}, ValueError, "scale must be one of unit, 255, stretch, got '256'"),
        ({"annotators": "last"}, ValueError, "annotators must be one of all, first, merged"),
        ({"label_threshold": 1.0}, ValueError, r"label_threshold must be in \[0,1\), got 1.0"),
        ({"protocol": "strict"}, ConfigError, "unknown protocol 'strict'"),
        ({"names": ["a"]}, ValueError, "a dict has them"),
    ],
)
def test_options_that_do_not_exist(maps, truths, options, error, message) -> None:
    with pytest.raises(error, match=message):
        evaluate(maps, truths, **options)


def test_inputs_that_do_not_go_together(maps, truths, folders) -> None:
    with pytest.raises(TypeError, match="two folders, two dicts or arrays, got PosixPath and dict"):
        evaluate(folders[0], truths)
    with pytest.raises(DataError, match="as many, got 6, 5 and 6"):
        evaluate(list(maps.values()), list(truths.values())[:5])
    with pytest.raises(DataError, match="names must differ"):
        evaluate([maps["im0"]] * 2, [truths["im0"]] * 2, names=["a", "a"])
    with pytest.raises(ValueError, match="named by their stem"):
        evaluate(*folders, names=["a"])
    with pytest.raises(DataError, match="no images"):
        evaluate([], [])


def test_a_ground_truth_without_edges_scores_0(maps) -> None:
    result = evaluate(maps["im0"], np.zeros((40, 56), dtype=bool))
    assert (result.ods, result.ois, result.ois_mean) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("protocol", ["paper-strict", "one-pixel"])
def test_a_map_scored_against_itself_is_exactly_1(protocol) -> None:
    edges = one_image(1)[1][0]
    result = evaluate(edges, edges, protocol=protocol)
    assert (result.ods, result.ois, result.ois_mean) == (1.0, 1.0, 1.0)
    thick = ndimage.binary_dilation(edges)
    assert evaluate(thick, thick, protocol=PROTOCOLS[protocol].replace(thin=False)).ods == 1.0


def test_the_benchmark_never_imports_torch() -> None:
    code = (
        "import sys, numpy as np, knifeedge.metrics as m; m.evaluate(np.eye(9), np.eye(9) > 0);"
        "import knifeedge.metrics.files, knifeedge.calibration;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_people_agree_with_each_other_and_with_themselves() -> None:
    folder = data_dir("BSDS500") / "groundTruth" / "test"
    binary = PROTOCOLS["bsds"].replace(nms=False)
    firsts, others = {}, {}
    for path in sorted(folder.glob("*.mat"))[::20]:
        everyone = read_ground_truths(path)
        firsts[path.stem], others[path.stem] = everyone[0], everyone[1:]
    result = evaluate(firsts, others, protocol=binary)
    # People reach about 0.8 on this benchmark as its authors count it.
    assert 0.65 < result.ods < 0.95
    assert evaluate(firsts, firsts, protocol=binary.replace(thin=False)).ods == 1.0
    thinned = {name: thin(edges) for name, edges in firsts.items()}
    assert evaluate(thinned, thinned, protocol=binary).ods == 1.0
