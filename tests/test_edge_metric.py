import copy
import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from forking import free_port
from knifeedge.edge_metric import EdgeMetric
from knifeedge.errors import DataError
from knifeedge.metrics.evaluate import evaluate
from knifeedge.metrics.protocols import PROTOCOLS

WITHOUT = "import sys; sys.modules['torchmetrics'] = None\n"


def batch(n_images, seed=0, shape=(24, 32)):
    """Soft maps with their edges, (N, 1, H, W)."""
    rng = np.random.default_rng(seed)
    target = np.zeros((n_images, 1, *shape), dtype=np.float32)
    for image in target[:, 0]:
        image[rng.integers(5, 18), 3:28] = 1
        image[4:20, rng.integers(5, 28)] = 1
    soft = ndimage.gaussian_filter(target, (0, 0, 1, 1)) + 0.2 * rng.random(target.shape)
    return torch.from_numpy((soft / soft.max()).astype(np.float32)), torch.from_numpy(target)


def expected(prob, target, protocol="paper-strict"):
    return evaluate(list(prob[:, 0].numpy()), list(target[:, 0].numpy()), protocol=protocol)


def numbers(scores):
    record = scores.to_dict()
    return {
        name: value for name, value in record.items() if name not in ("images", "counts", "options")
    }


@pytest.mark.parametrize("protocol", ["paper-strict", "bsds"])
def test_equals_evaluate_in_batches_of_any_size(protocol) -> None:
    prob, target = batch(5)
    metric = EdgeMetric(protocol)
    metric.update(prob[:3], target[:3])
    metric.update(prob[3:, 0], target[3:])
    assert numbers(metric.scores()) == numbers(expected(prob, target, protocol))
    np.testing.assert_array_equal(metric.scores().counts, expected(prob, target, protocol).counts)


def test_compute_gives_scalar_tensors() -> None:
    prob, target = batch(2)
    metric = EdgeMetric()
    metric.update(prob, target)
    values = metric.compute()
    full = expected(prob, target)
    assert set(values) >= {"ods", "threshold", "ois", "ois_mean", "ap", "r50", "crispness"}
    for name, value in values.items():
        assert value.shape == ()
        assert value.item() == pytest.approx(getattr(full, name), rel=1e-6)


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[:, 0], lambda t: t[0, 0]])
def test_takes_batches_with_and_without_a_channel_and_single_maps(view) -> None:
    prob, target = batch(1)
    metric = EdgeMetric()
    metric.update(view(prob), view(target))
    assert metric.scores().ods == expected(prob, target).ods


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float64])
def test_targets_of_any_kind(dtype) -> None:
    prob, target = batch(2)
    metric = EdgeMetric()
    metric.update(prob, target.to(dtype))
    assert metric.scores().ods == expected(prob, target).ods


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_gradients(dtype) -> None:
    prob, target = batch(2)
    half = prob.to(dtype).requires_grad_()
    metric = EdgeMetric()
    metric.update(half, target)
    assert metric.scores().ods == expected(half.detach().float(), target).ods


def test_reset_forgets() -> None:
    (prob, target), (other, other_target) = batch(2), batch(2, seed=1)
    metric = EdgeMetric()
    metric.update(prob, target)
    metric.compute()
    metric.reset()
    metric.update(other, other_target)
    assert metric.scores().ods == expected(other, other_target).ods
    assert len(metric.scores().images) == 2


def test_a_named_image_counts_once() -> None:
    prob, target = batch(3)
    metric = EdgeMetric()
    metric.update(prob, target, names=["a", "b", "ü" * 60])
    metric.update(prob[:1], target[:1], names=["a"])
    assert metric.scores().names == ("a", "b", "ü" * 60)
    assert metric.scores().ods == expected(prob, target).ods
    metric.update(prob[1:2], target[1:2])
    metric.update(prob[1:2], target[1:2])
    metric.update(prob[1:2], target[1:2], names=["1"])  # a name, so that no number may be the same
    assert metric.scores().names == ("a", "b", "ü" * 60, "0", "2", "1")


def test_unnamed_images_are_numbered_and_all_count() -> None:
    prob, target = batch(1)
    metric = EdgeMetric()
    for _ in range(3):
        metric.update(prob, target)
    assert metric.scores().names == ("0", "1", "2")


def test_a_bad_batch_leaves_no_trace() -> None:
    prob, target = batch(3)
    metric = EdgeMetric()
    metric.update(prob, target)
    logits = prob.clone()
    logits[2] = 3.0
    with pytest.raises(DataError, match=r"must be in \[0,1\], got .* apply a sigmoid"):
        metric.update(logits, target)
    assert len(metric.scores().images) == 3


@pytest.mark.parametrize(
    ("prob_shape", "target_shape", "names", "message"),
    [
        ((2, 3, 8, 8), (2, 3, 8, 8), None, r"prob must be \(N, 1, H, W\).*got \(2, 3, 8, 8\)"),
        ((8,), (8,), None, "prob must be"),
        ((2, 1, 8, 8), (2, 1, 8, 9), None, r"same size, got \(2, 1, 8, 8\) and \(2, 1, 8, 9\)"),
        ((2, 8, 8), (1, 8, 8), None, "same size"),
        ((2, 8, 8), (2, 8, 8), ["a"], "names must be one an image, got 1 for 2"),
        ((1, 8, 8), (1, 8, 8), ["a" * 200], "at most 128 bytes, got 200"),
    ],
)
def test_wrong_arguments_are_refused(prob_shape, target_shape, names, message) -> None:
    with pytest.raises(ValueError, match=message):
        EdgeMetric().update(torch.zeros(prob_shape), torch.zeros(target_shape), names=names)


def test_nothing_to_score_is_an_error() -> None:
    with pytest.raises(ValueError, match="call update first"):
        EdgeMetric().scores()


def test_is_a_torchmetrics_metric() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    prob, target = batch(3)
    metric = EdgeMetric(PROTOCOLS["one-pixel"])
    assert isinstance(metric, torchmetrics.Metric)
    collection = torchmetrics.MetricCollection({"edges": metric}, prefix="val/")
    collection.update(prob, target)
    assert collection.compute()["val/ods"] == expected(prob, target, "one-pixel").ods
    # Called, it scores the batch alone and goes on counting.
    metric.reset()
    metric.update(prob[:2], target[:2])
    assert metric(prob[2:], target[2:])["ods"] == expected(prob[2:], target[2:], "one-pixel").ods
    assert metric.compute()["ods"] == expected(prob, target, "one-pixel").ods
    for copied in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert copied.compute()["ods"] == metric.compute()["ods"]


def test_without_torchmetrics_the_same() -> None:
    code = WITHOUT + (
        "import json, torch, test_edge_metric as t\n"
        "prob, target = t.batch(4)\n"
        "metric = t.EdgeMetric('bsds')\n"
        "metric.update(prob, target); metric.compute(); metric.reset()\n"
        "metric.update(prob[:1], target[:1]); metric.update(prob[1:], target[1:])\n"
        "assert metric.compute()['ods'] == torch.tensor(metric.scores().ods)\n"
        "assert len(metric.scores().images) == 4\n"
        "try: t.EdgeMetric(compute_on_cpu=True)\n"
        "except TypeError as error: assert 'knifeedge[metrics]' in str(error)\n"
        "else: raise SystemExit('an option of torchmetrics was taken')\n"
        "print(json.dumps(t.numbers(metric.scores())))\n"
    )
    assert finished(started(code)) == [numbers(expected(*batch(4), "bsds"))]


def started(code):
    """A Python process of its own that runs the code, with this file's folder to import from."""
    paths = [str(Path(__file__).parent), *sys.path]
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def finished(process):
    """The JSON lines the process printed."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines()]


SHARES = {
    # Image 0 comes twice, as from a sampler that evens out the ranks; named, it counts once.
    "named": [[3, 1], [4, 0, 2, 0]],
    "second rank without images": [[4, 3, 2, 1, 0], []],
    "first rank without images": [[], [0, 1, 2, 3, 4]],
}


def rank_main(rank, port):
    """One of two ranks: score its share of the images and print what all ranks get together."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    prob, target = batch(5)
    metric = EdgeMetric("paper-strict")
    for case, shares in SHARES.items():
        for image in shares[rank]:
            chosen = slice(image, image + 1)
            names = [f"{image}"] if case == "named" else None
            metric.update(prob[chosen], target[chosen], names=names)
        for _ in range(2):  # gathering must leave each rank's own images alone
            scores = metric.scores()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The ``compute`` method", UserWarning)
                ods = metric.compute()["ods"].item()
            print(json.dumps([numbers(scores), sorted(scores.names), ods]))
        metric.reset()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("plain", [False, True], ids=["torchmetrics", "plain"])
def test_two_ranks_score_as_one(plain) -> None:
    if not plain:
        pytest.importorskip("torchmetrics")
    port = free_port()
    code = (WITHOUT if plain else "") + "import test_edge_metric as t; t.rank_main({}, {})"
    ranks = [started(code.format(rank, port)) for rank in range(2)]
    single = expected(*batch(5))
    wanted = [numbers(single), list("01234"), torch.tensor(single.ods).item()]
    try:
        for process in ranks:
            assert finished(process) == [wanted] * 2 * len(SHARES)
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
