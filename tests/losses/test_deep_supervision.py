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


def test_an_online_threshold_is_that_of_the_final_output():
    """The side outputs are biased, and would move it elsewhere and five times as fast."""
    loss = ke.AdjustedLoss(ke.BCELoss(), ke.OnlineThreshold(warm_up=0, speed=1.0))
    alone = ke.AdjustedLoss(ke.BCELoss(), ke.OnlineThreshold(warm_up=0, speed=1.0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        target = (torch.rand(2, 1, 8, 8, generator=generator) < 0.3).float()
        final = torch.randn(2, 1, 8, 8, generator=generator) + 2 * target
        alone(final, target)
        ke.DeepSupervisionLoss(loss)([final + 3, final - 2, final], target)
    assert int(loss.threshold.batches) == 3
    assert torch.equal(loss.threshold.value, alone.threshold.value)


def test_a_loss_of_torch_needs_no_mask():
    loss = ke.DeepSupervisionLoss(PLAIN, side_loss=torch.nn.BCEWithLogitsLoss())
    assert torch.isfinite(loss(OUTPUTS, TARGET.reshape(OUTPUTS[0].shape)))


def test_no_outputs_and_no_weights():
    with pytest.raises(TypeError, match="got none"):
        ke.DeepSupervisionLoss(PLAIN)([], TARGET)
    with pytest.raises(ValueError, match="one entry per output, got 0 for 3"):
        ke.DeepSupervisionLoss(PLAIN, weights=())(OUTPUTS, TARGET)
