"""The edge benchmark: numpy and numba, never torch."""

from knifeedge.metrics.counts import THRESHOLDS, match_counts
from knifeedge.metrics.curves import Point
from knifeedge.metrics.evaluate import evaluate, score_image
from knifeedge.metrics.matching import match
from knifeedge.metrics.nms import crispness, suppress
from knifeedge.metrics.protocols import PROTOCOLS, Protocol, get_protocol
from knifeedge.metrics.scores import EdgeScores, ImageScore, score
from knifeedge.metrics.thinning import thin

__all__ = [
    "PROTOCOLS",
    "THRESHOLDS",
    "EdgeScores",
    "ImageScore",
    "Point",
    "Protocol",
    "crispness",
    "evaluate",
    "get_protocol",
    "match",
    "match_counts",
    "score",
    "score_image",
    "suppress",
    "thin",
]
