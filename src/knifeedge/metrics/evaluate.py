"""Scoring a set of edge maps: arrays or folders in, `EdgeScores` out.

Each image is scored alone by a pure function and put back in its place, so that the result is the
same, bit for bit, for any number of workers and on a cluster. Files are read by the worker that
scores them: at any time only the images being worked on are in memory.

Workers are threads: an image spends its time in kernels that release the interpreter's lock, and
threads need neither copies of the arrays nor a start-up of their own.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.counts import check_map, match_counts
from knifeedge.metrics.curves import Counts
from knifeedge.metrics.inputs import GroundTruths, Image, Maps, Reader, pair
from knifeedge.metrics.nms import suppress, surviving_share
from knifeedge.metrics.protocols import Protocol, get_protocol
from knifeedge.metrics.scores import EdgeScores, LeftOut, score
from knifeedge.metrics.values import LABEL_THRESHOLD, Annotators, Scale

CONNECT_SECONDS = 10


def evaluate(
    maps: Maps,
    ground_truths: GroundTruths,
    *,
    protocol: str | Protocol = "paper-strict",
    names: Sequence[str] | None = None,
    scale: Scale = "unit",
    annotators: Annotators = "all",
    label_threshold: float = LABEL_THRESHOLD,
    skip_bad: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EdgeScores:
    """Score edge maps against ground truths.

    Args:
        maps: A folder; or an array (H, W), a list of such (or an array (N, H, W)), or a dict of
            such by name. Probabilities in [0,1].
        ground_truths: Of the same kind: a folder, whose files are paired with the maps' by stem;
            or as many entries as maps, each (H, W) or several annotators' (A, H, W).
        protocol: A name from `PROTOCOLS`, or a record.
        names: Names for a list of maps; their numbers if none are given.
        scale: "unit"; "255" for maps in 0..255; "stretch" takes each map from its own minimum and
            maximum to 0 and 1, after which a threshold means something else in every image.
        annotators: "all"; "first"; "merged", an edge where any annotator marked one.
        label_threshold: A ground truth that is not 0 and 1 already has edges above this fraction
            of its full scale.
        skip_bad: Leave out images that cannot be scored, and list them in the result.
        jobs: Number of workers; all cores if none is given.
        cluster: Address of a Dask scheduler, to work there. Its workers need knifeedge, and the
            folders under the same paths.
        progress: Called as progress(done, total) after each image.

    Returns:
        The scores, the protocol in full, and how the images were read.

    Raises:
        DataError: Some images cannot be scored; all of them are named, with the reasons.

    >>> edges = np.zeros((8, 8), dtype=bool)
    >>> edges[4] = True
    >>> evaluate(edges * 0.6, edges).at(0.5).f
    1.0
    """
    chosen = get_protocol(protocol)
    reader = Reader(scale, annotators, label_threshold)
    images, unpaired = pair(maps, ground_truths, names)
    bad = [LeftOut(name, reason) for name, reason in unpaired.items()]
    results: list[_Result] = []

    def tasks() -> Iterator[Any]:
        for image in images:
            # Once an image has failed the others are only read, to name all bad ones soon.
            scoring = skip_bad or not (bad or any(result.error for result in results))
            yield joblib.delayed(_process)(image, reader, chosen, scoring)

    with workers(jobs, cluster):
        for result in joblib.Parallel(return_as="generator")(tasks()):
            results.append(result)
            if progress is not None:
                progress(len(results), len(images))
    bad += [LeftOut(result.name, result.error) for result in results if result.error]
    scored = [result for result in results if result.counts is not None]
    if not scored or (bad and not skip_bad):
        raise DataError(_complaint(bad, len(images) + len(unpaired), skip_bad))
    return score(
        np.stack([result.counts for result in scored if result.counts is not None]),
        protocol=chosen,
        crispness=[result.crispness for result in scored],
        names=[result.name for result in scored],
        options={"scale": scale, "annotators": annotators, "label_threshold": label_threshold},
        left_out=bad,
    )


def score_image(
    prob: npt.NDArray[Any],
    ground_truths: Sequence[npt.NDArray[np.bool_]],
    *,
    protocol: str | Protocol = "paper-strict",
) -> tuple[Counts, float]:
    """Match counts and crispness of one image.

    Args:
        prob: (H, W) in [0,1].
        ground_truths: Boolean (H, W) arrays, one an annotator.
        protocol: A name from `PROTOCOLS`, or a record.

    Returns:
        int64 (99, 4) as `match_counts` gives it, and the share of the map that survives NMS.

    >>> edges = np.zeros((8, 8), dtype=bool)
    >>> edges[4] = True
    >>> score_image(edges * 1.0, [edges])[0][0].tolist()
    [8, 8, 8, 8]
    """
    chosen = get_protocol(protocol)
    checked = check_map(prob, "prob")
    suppressed = suppress(checked)
    counts = match_counts(
        suppressed if chosen.nms else checked,
        list(ground_truths),
        max_dist=chosen.max_dist,
        unit=chosen.unit,
        thin=chosen.thin,
    )
    return counts, surviving_share(suppressed, checked)


@dataclass(frozen=True)
class _Result:
    """What a worker sends back: counts, or what is wrong with the image; neither if only read."""

    name: str
    counts: Counts | None = None
    crispness: float = 0.0
    error: str = ""


def _process(image: Image, reader: Reader, protocol: Protocol, scoring: bool) -> _Result:
    """Read and score one image; what a user can get wrong becomes part of the result."""
    try:
        prob, truths = reader.load(image)
        if not scoring:
            return _Result(image.name)
        # A tolerance may be too wide for this image, though not for others.
        return _Result(image.name, *score_image(prob, truths, protocol=protocol))
    except (DataError, ValueError, TypeError, OSError) as error:
        return _Result(image.name, error=" ".join(str(error).split()))


@contextlib.contextmanager
def workers(jobs: int | None, cluster: str | None) -> Iterator[None]:
    """Where joblib runs what follows: this process's threads, or a Dask cluster."""
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}; leave it out to use all cores")
    n_jobs = -1 if jobs is None else jobs
    if cluster is None:
        with joblib.parallel_config(backend="threading", n_jobs=n_jobs):
            yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(
            "cluster needs Dask, which is not installed; pip install 'knifeedge[dask]'"
        ) from error
    # Of any other Dask would try for a while, and speak of it again at the end.
    if not re.fullmatch(r"inproc://.+|\w+://.+:\d+", cluster):
        raise ConfigError(f"cluster must be an address such as tcp://host:8786, got {cluster!r}")
    try:
        client = Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {cluster!r} ({error}); start one with `dask scheduler` "
            "and give its address, tcp://host:port"
        ) from error
    with client, joblib.parallel_config(backend="dask", n_jobs=n_jobs, client=client):
        yield


def _complaint(bad: Sequence[LeftOut], total: int, skip_bad: bool) -> str:
    """Every image that cannot be scored, a reason once, and what to do."""
    if not bad:
        return "there are no images to score"
    names: dict[str, list[str]] = {}
    for item in bad:
        names.setdefault(item.reason, []).append(item.name)
    reasons = "; ".join(f"{', '.join(those)}: {reason}" for reason, those in names.items())
    remedy = (
        "nothing is left to score"
        if skip_bad
        else "mend these, or leave them out with skip_bad (--skip-bad)"
    )
    return f"{len(bad)} of {total} images cannot be scored: {reasons}; {remedy}"
