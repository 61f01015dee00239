"""Two processes with half a batch each give the gradient of one process with all of it."""

import warnings
from functools import partial

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import knifeedge as ke
from forking import first_rank_of

RANKS = 2
LOSSES = {
    "bce": ke.BCELoss,
    "wbce": ke.WBCELoss,
    "swbce": ke.SWBCELoss,
    "ebt": partial(ke.EBTLoss, radius=1),
    "focal": ke.FocalLoss,
    "baa-wbce": lambda: ke.AdjustedLoss(ke.WBCELoss()),
    "baa-swbce": lambda: ke.AdjustedLoss(ke.SWBCELoss()),
    # It moves with this batch: the counts must be those of all ranks.
    "baa-online": lambda: ke.AdjustedLoss(
        ke.WBCELoss(), ke.OnlineThreshold(warm_up=0, speed=1.0, tolerance=1)
    ),
}


def batch():
    """Unequal halves: the first has few edges and a masked corner, the second many edges."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 1, 6, 7, generator=generator, dtype=torch.float64)
    noise = torch.rand(8, 1, 6, 7, generator=generator, dtype=torch.float64)
    share = torch.tensor([0.05] * 4 + [0.5] * 4, dtype=torch.float64).reshape(8, 1, 1, 1)
    mask = torch.ones(8, 1, 6, 7, dtype=torch.bool)
    mask[:3, :, :4] = False
    return images, (noise < share).double(), mask


def model():
    torch.manual_seed(3)
    return torch.nn.Conv2d(1, 1, 3, padding=1, dtype=torch.float64)


def gradients(network, part, masked):
    result = {}
    images, target, mask = (x[part] for x in batch())
    for name, build in LOSSES.items():
        network.zero_grad()
        build()(network(images), target, mask=mask if masked else None).backward()
        result[name] = torch.cat([p.grad.flatten() for p in network.parameters()])
    return result


def compiled_gradient(network, part):
    images, target, mask = (x[part] for x in batch())
    loss = torch.compile(ke.AdjustedLoss(ke.SWBCELoss()), fullgraph=True, backend="aot_eager")
    network.zero_grad()
    with warnings.catch_warnings():
        # torch's compiler looks at the gradient of what is no leaf, and warns itself of it
        warnings.filterwarnings("ignore", ".*not a leaf Tensor", UserWarning)
        loss(network(images), target, mask=mask).backward()
    return torch.cat([p.grad.flatten() for p in network.parameters()])


def work(rank):
    part = slice(4 * rank, 4 * rank + 4)
    network = DistributedDataParallel(model())
    result = {masked: gradients(network, part, masked) for masked in (False, True)}
    result["compiled"] = compiled_gradient(network, part)
    if rank == 0:
        with torch.no_grad():  # nothing is exchanged: one rank alone may validate
            ke.wbce_loss(torch.zeros(3), torch.ones(3))
    return result


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return first_rank_of(RANKS, work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_two_ranks_of_four_are_one_of_eight(two_ranks, name, masked):
    alone = gradients(model(), slice(None), masked)[name]
    torch.testing.assert_close(
        two_ranks[masked][name], alone, atol=1e-6 * alone.abs().max(), rtol=0
    )


def test_compiled_ranks_agree(two_ranks):
    torch.testing.assert_close(two_ranks["compiled"], two_ranks[True]["baa-swbce"])
