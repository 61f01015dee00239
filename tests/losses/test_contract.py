"""What holds for every pixel loss, plain and adjusted: one class, run for each of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

import knifeedge as ke
import loss_twin as twin
from waiting import no_waiting

SHAPE = (2, 1, 5, 6)
THRESHOLD = 0.7


class Case(NamedTuple):
    module: Callable[..., ke.PixelLoss]
    function: Callable[..., torch.Tensor] | None  # an adjusted loss has none
    twin: Callable


def adjusted(base):
    def build(**options):
        logits = options.get("from_logits", True)
        return ke.AdjustedLoss(base(from_logits=logits), THRESHOLD, **options)

    return build


def online(**options):
    """Adjusted at a threshold that is not moved yet."""
    threshold = ke.OnlineThreshold(start=THRESHOLD, warm_up=10**9)
    base = ke.WBCELoss(from_logits=options.get("from_logits", True))
    return ke.AdjustedLoss(base, threshold, **options)


CASES = {
    "bce": Case(ke.BCELoss, ke.bce_loss, twin.bce),
    "wbce": Case(ke.WBCELoss, ke.wbce_loss, twin.wbce),
    "swbce": Case(ke.SWBCELoss, ke.swbce_loss, twin.swbce),
    "ebt": Case(
        lambda **o: ke.EBTLoss(radius=1, **o),
        lambda *a, **o: ke.ebt_loss(*a, radius=1, **o),
        lambda p, y: twin.ebt(p, y, radius=1),
    ),
    "focal": Case(ke.FocalLoss, ke.focal_loss, twin.focal),
    "baa-bce": Case(adjusted(ke.BCELoss), None, twin.adjusted(twin.bce)),
    "baa-wbce": Case(adjusted(ke.WBCELoss), None, twin.adjusted(twin.wbce)),
    "baa-swbce": Case(adjusted(ke.SWBCELoss), None, twin.adjusted(twin.swbce)),
    "baa-ebt": Case(
        adjusted(lambda **o: ke.EBTLoss(radius=1, **o)),
        None,
        twin.adjusted(lambda p, y: twin.ebt(p, y, radius=1)),
    ),
    "baa-focal": Case(adjusted(ke.FocalLoss), None, twin.adjusted(twin.focal)),
    "baa-online": Case(online, None, twin.adjusted(twin.wbce, threshold=float(np.float32(0.7)))),
}


def make_logits(seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Logits whose probabilities keep away from the adjuster's two kinks for hard labels."""
    prob = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    prob = 0.02 + 0.96 * prob
    for kink in (THRESHOLD - 0.2, THRESHOLD, THRESHOLD + 0.2):
        prob = torch.where((prob - kink).abs() < 1e-3, kink + 2e-3, prob)
    return torch.logit(prob).to(dtype)


def make_target(kind: str, seed: int = 1) -> torch.Tensor:
    noise = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if kind == "hard":
        return (noise < 0.3).double()
    return torch.where(noise < 0.5, 0.0, noise)


@pytest.mark.parametrize("name", CASES)
class TestContract:
    @pytest.mark.parametrize("labels", ["hard", "soft"])
    @pytest.mark.parametrize("from_logits", [True, False])
    def test_equals_the_float64_twin_in_value_and_gradient(self, name, labels, from_logits):
        case, target = CASES[name], make_target(labels)
        pred = make_logits() if from_logits else make_logits().sigmoid()
        x, y = pred.numpy(), target.numpy()
        reference = case.twin
        if from_logits:
            reference = lambda z, y: case.twin(twin.sigmoid(z), y)  # noqa: E731
        pred.requires_grad_()
        loss = case.module(from_logits=from_logits)(pred, target)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(reference(x, y).mean(), rel=1e-9)
        np.testing.assert_allclose(pred.grad, twin.gradient(reference, x, y), atol=1e-8)

    @pytest.mark.parametrize("labels", ["hard", "soft"])
    def test_float32_agrees_with_the_twin(self, name, labels):
        case, target = CASES[name], make_target(labels)
        pred = make_logits(dtype=torch.float32).requires_grad_()
        x, y = pred.detach().double().numpy(), target.numpy()
        reference = lambda z, y: case.twin(twin.sigmoid(z), y)  # noqa: E731
        loss = case.module()(pred, target)
        loss.backward()
        assert loss.item() == pytest.approx(reference(x, y).mean(), abs=1e-6)
        np.testing.assert_allclose(pred.grad, twin.gradient(reference, x, y), atol=1e-6)

    @pytest.mark.parametrize("labels", ["hard", "soft"])
    def test_gradcheck(self, name, labels):
        loss, target = CASES[name].module(), make_target(labels)[:1, :, :3, :4]
        pred = make_logits()[:1, :, :3, :4].requires_grad_()
        assert torch.autograd.gradcheck(lambda p: loss(p, target), (pred,))

    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    def test_module_equals_function(self, name, reduction):
        case = CASES[name]
        if case.function is None:
            pytest.skip("an adjusted loss is a Module; its function is adjuster_weight")
        pred, target = make_logits(), make_target("soft")
        mask = make_target("hard", seed=5) == 0
        module = case.module(reduction=reduction)(pred, target, mask=mask)
        assert torch.equal(module, case.function(pred, target, mask=mask, reduction=reduction))

    def test_reductions_agree(self, name):
        pred, target = make_logits(), make_target("hard")
        values = CASES[name].module(reduction="none")(pred, target)
        assert values.shape == pred.shape
        torch.testing.assert_close(CASES[name].module()(pred, target), values.mean())
        total = CASES[name].module(reduction="sum")(pred, target)
        torch.testing.assert_close(total, values.sum())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("fill", [0.0, 1.0, None])
    def test_extreme_logits_are_finite(self, name, dtype, fill):
        pred = torch.tensor([-1e4, -30.0, 0.0, 30.0, 1e4] * 12, dtype=dtype).reshape(SHAPE)
        target = make_target("hard") if fill is None else torch.full(SHAPE, fill)
        pred.requires_grad_()
        loss = CASES[name].module()(pred, target)
        loss.backward()
        assert loss.dtype == torch.float32
        assert loss.isfinite()
        assert pred.grad.isfinite().all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_an_empty_mask_gives_zero(self, name, dtype):
        pred = make_logits(dtype=dtype).requires_grad_()
        loss = CASES[name].module()(pred, make_target("hard"), mask=torch.zeros(SHAPE))
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(pred.grad, torch.zeros_like(pred))

    def test_masked_elements_leave_counts_sum_and_mean(self, name):
        """Masking the second image is having the first alone, whatever the second holds."""
        pred, target = make_logits(), make_target("hard")
        mask = torch.ones(SHAPE, dtype=torch.bool)
        mask[1] = False
        alone = pred[:1].clone().requires_grad_()
        want = CASES[name].module()(alone, target[:1])
        want.backward()
        pred[1], target[1] = torch.nan, 255
        pred.requires_grad_()
        loss = CASES[name].module()(pred, target, mask=mask)
        loss.backward()
        torch.testing.assert_close(loss, want)
        torch.testing.assert_close(pred.grad[:1], alone.grad)
        assert torch.equal(pred.grad[1], torch.zeros_like(pred.grad[1]))

    def test_a_channel_of_one_may_be_left_out(self, name):
        pred, target = make_logits(), make_target("hard")
        loss = CASES[name].module()
        torch.testing.assert_close(loss(pred, target.squeeze(1)), loss(pred, target))
        torch.testing.assert_close(loss(pred.squeeze(1), target), loss(pred, target))

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
    def test_labels_of_any_dtype(self, name, dtype):
        pred, target = make_logits(), make_target("hard")
        loss = CASES[name].module()
        torch.testing.assert_close(loss(pred, target.to(dtype)), loss(pred, target))

    def test_compiles_without_a_graph_break(self, name):
        torch._dynamo.reset()
        loss, target = CASES[name].module(), make_target("soft")
        mask = make_target("hard", seed=5) == 0
        eager, compiled = (make_logits().requires_grad_() for _ in range(2))
        loss(eager, target, mask=mask).backward()
        result = torch.compile(loss, fullgraph=True, backend="aot_eager")(
            compiled, target, mask=mask
        )
        result.backward()
        torch.testing.assert_close(result, loss(eager, target, mask=mask))
        torch.testing.assert_close(compiled.grad, eager.grad)

    def test_autocast_does_not_reach_the_loss(self, name):
        pred, target = make_logits(dtype=torch.float32), make_target("hard").float()
        for from_logits in (True, False):
            given = pred if from_logits else pred.sigmoid()
            loss = CASES[name].module(from_logits=from_logits)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                inside = loss(given, target)
            assert torch.equal(inside, loss(given, target))


@pytest.mark.parametrize("name", ["baa-wbce", "baa-ebt"])
def test_the_compiled_kernel_agrees(name):
    """The real compiler, on the loss of the paper and on the one with a pooling in it."""
    torch._dynamo.reset()
    loss, target = CASES[name].module(), make_target("soft").float()
    eager, compiled = (make_logits(dtype=torch.float32).requires_grad_() for _ in range(2))
    want = loss(eager, target)
    want.backward()
    result = torch.compile(loss, fullgraph=True)(compiled, target)
    (3 * result).backward()
    torch.testing.assert_close(result, want)
    torch.testing.assert_close(compiled.grad, 3 * eager.grad)


def test_bce_is_torchs():
    pred, target = make_logits(), make_target("soft")
    torch.testing.assert_close(
        ke.bce_loss(pred, target),
        torch.nn.functional.binary_cross_entropy_with_logits(pred, target),
    )
    torch.testing.assert_close(
        ke.bce_loss(pred.sigmoid(), target, from_logits=False),
        torch.nn.functional.binary_cross_entropy(pred.sigmoid(), target),
    )


def test_probabilities_at_the_ends_keep_a_gradient():
    """A prediction of exactly 0 or 1 on the wrong side is pushed back, with a finite force."""
    pred = torch.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = ke.bce_loss(pred, torch.tensor([1.0, 0.0, 0.0, 1.0]), from_logits=False)
    loss.backward()
    assert loss.isfinite()
    assert pred.grad.isfinite().all()
    assert pred.grad[0] < -1e5
    assert pred.grad[1] > 1e5


@pytest.mark.parametrize("shape", [(7,), (7, 3), (2, 3, 4, 5)])
def test_any_shape(shape):
    pred = torch.linspace(-3, 3, int(np.prod(shape)), dtype=torch.float64).reshape(shape)
    target = (pred.sin() > 0).double()
    want = twin.adjusted(twin.wbce)(twin.sigmoid(pred.numpy()), target.numpy()).mean()
    assert ke.AdjustedLoss(ke.WBCELoss())(pred, target).item() == pytest.approx(want)


class TestBadInput:
    @pytest.mark.parametrize(
        ("pred", "target", "error", "says"),
        [
            (torch.zeros(2, 3), torch.zeros(3, 2), ValueError, r"\(2, 3\) and \(3, 2\)"),
            (torch.zeros(2, 3, 4), torch.zeros(2, 2, 3, 4), ValueError, "channel dimension of 1"),
            (torch.zeros(3, dtype=torch.int64), torch.zeros(3), TypeError, "int64"),
            (torch.zeros(3), torch.full((3,), 255.0), ValueError, "divided by 255"),
            (torch.zeros(3), torch.tensor([0.0, -0.1, 1.0]), ValueError, "target must lie in"),
            (torch.zeros(3), torch.tensor([0.0, torch.nan, 1.0]), ValueError, "target must lie"),
        ],
    )
    def test_inputs(self, pred, target, error, says):
        with pytest.raises(error, match=says):
            ke.wbce_loss(pred, target)

    @pytest.mark.parametrize("loss", [ke.wbce_loss, ke.dice_loss, ke.AdjustedLoss(ke.BCELoss())])
    def test_what_is_no_tensor(self, loss):
        """A network's list of outputs, above all: those here return one."""
        x, y = torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)
        with pytest.raises(
            TypeError, match=r"pred must be a tensor, got list; .* such as the last"
        ):
            loss([x, x], y)
        with pytest.raises(TypeError, match="target must be a tensor, got ndarray"):
            loss(x, y.numpy())
        with pytest.raises(TypeError, match="mask must be a tensor, got ndarray"):
            loss(x, y, mask=np.ones((1, 1, 4, 4), bool))

    def test_what_is_no_tensor_and_would_move_a_threshold(self):
        with pytest.raises(TypeError, match="pred must be a tensor, got tuple"):
            ke.AdjustedLoss(ke.BCELoss(), threshold="online")((torch.zeros(2),), torch.zeros(2))
        with pytest.raises(TypeError, match="target must be a tensor, got list"):
            ke.adjuster_weight(torch.zeros(2), [0.0, 1.0])

    def test_mask_of_another_shape(self):
        with pytest.raises(ValueError, match="pred and mask must have equal shapes"):
            ke.wbce_loss(torch.zeros(3), torch.zeros(3), mask=torch.ones(4))

    @pytest.mark.parametrize("value", [-0.01, 1.2, torch.nan])
    def test_probabilities_out_of_range(self, value):
        with pytest.raises(ValueError, match=r"pred must lie in \[0, 1\].*from_logits=True"):
            ke.wbce_loss(torch.tensor([0.5, value]), torch.zeros(2), from_logits=False)

    @pytest.mark.parametrize(
        ("build", "says"),
        [
            (lambda: ke.BCELoss(reduction="avg"), "reduction must be one of"),
            (lambda: ke.WBCELoss(balance=0), "balance must be > 0"),
            (lambda: ke.FocalLoss(gamma=-1), "gamma must be >= 0"),
            (lambda: ke.FocalLoss(alpha=2), r"alpha must lie in \[0, 1\]"),
            (lambda: ke.EBTLoss(radius=-1), "radius must be >= 0"),
            (lambda: ke.EBTLoss(class_weights=(1, 2)), "class_weights must be three"),
            (lambda: ke.ebt_loss(torch.zeros(4, 2), torch.zeros(4, 2)), "take wbce_loss"),
        ],
    )
    def test_settings(self, build, says):
        with pytest.raises(ValueError, match=says):
            build()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_nothing_waits_and_values_agree(name):
    loss, target = CASES[name].module(), make_target("soft")
    here, there = make_logits().requires_grad_(), make_logits().cuda().requires_grad_()
    want = loss(here, target)
    want.backward()
    loss, target = loss.cuda(), target.cuda()
    with no_waiting():
        result = loss(there, target)
        result.backward()
    torch.testing.assert_close(result.cpu(), want)
    torch.testing.assert_close(there.grad.cpu(), here.grad)
