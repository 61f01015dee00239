"""Deep supervision: every output counts, with its weight, and the adjuster where it is asked."""

import pytest
import torch

import knifeedge as ke

OUTPUTS = [torch.full((1, 1, 4, 4), z).requires_grad_() for z in (-1.0, 0.5, 2.0)]
TARGET = torch.eye(4)[None, None]
ADJUSTED, PLAIN = ke.AdjustedLoss(ke.WBCELoss()), ke.WBCELoss()


def test_every_output_counts():
    got = ke.DeepSupervisionLoss(ADJUSTED, weights=(0.5, 2.0, 3.0))(OUTPUTS, TARGET)
    want = sum(w * ADJUSTED(z, TARGET) for w, z in zip((0.5, 2.0, 3.0), OUTPUTS, strict=True))
    torch.testing.assert_close(got, want)
    grads = torch.autograd.grad(got, OUTPUTS)
    assert all(g.abs().sum() > 0 for g in grads)


def test_the_adjuster_on_the_last_only():
    got = ke.DeepSupervisionLoss(ADJUSTED, side_loss=PLAIN)(OUTPUTS, TARGET)
    want = PLAIN(OUTPUTS[0], TARGET) + PLAIN(OUTPUTS[1], TARGET) + ADJUSTED(OUTPUTS[2], TARGET)
    torch.testing.assert_close(got, want)


def test_the_mask_reaches_every_output():
    mask = torch.zeros(1, 1, 4, 4)
    assert ke.DeepSupervisionLoss(ADJUSTED)(OUTPUTS, TARGET, mask=mask) == 0


def test_compiles_without_a_graph_break():
    torch._dynamo.reset()
    loss = ke.DeepSupervisionLoss(ADJUSTED, weights=(1, 1, 1.1), side_loss=PLAIN)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(OUTPUTS, TARGET)
    want = loss(OUTPUTS, TARGET)
    torch.testing.assert_close(compiled, want)
    for got, expected in zip(
        torch.autograd.grad(compiled, OUTPUTS), torch.autograd.grad(want, OUTPUTS), strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_bad_input():
    with pytest.raises(ValueError, match="one entry per output, got 2 for 3"):
        ke.DeepSupervisionLoss(PLAIN, weights=(1, 1))(OUTPUTS, TARGET)
    with pytest.raises(ValueError, match="weights must be >= 0"):
        ke.DeepSupervisionLoss(PLAIN, weights=(1, -1))
    with pytest.raises(TypeError, match="list of outputs"):
        ke.DeepSupervisionLoss(PLAIN)(OUTPUTS[0], TARGET)
