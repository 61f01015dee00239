"""The exact score of a network while it is being trained."""

import torch
from torch import nn

from knifeedge.data.samples import EdgeSet
from knifeedge.edge_metric import EdgeMetric
from knifeedge.engine.devices import Fabric
from knifeedge.engine.predict import predict_sample, to_bytes


def validate(
    fabric: Fabric, network: nn.Module, dataset: EdgeSet, protocol: str
) -> tuple[float, float]:
    """ODS and its threshold on a set, its images shared among the processes; all must call it."""
    metric = EdgeMetric(protocol)
    if isinstance(metric, nn.Module):  # torchmetrics': its states travel from where it is
        metric.to(fabric.device)
    for index in range(fabric.global_rank, len(dataset), fabric.world_size):
        sample = dataset[index]
        with fabric.autocast():
            prob = predict_sample(network, sample)
        edges = torch.from_numpy(sample.label > 127)
        metric.update(torch.from_numpy(to_bytes(prob) / 255), edges, [str(index)])
    scores = metric.scores()
    return scores.ods, scores.threshold
