"""The losses of a whole region: each against its formula, and one contract run for all of them."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import knifeedge as ke
from forking import first_rank_of
from knifeedge.losses.ranking import APLoss, LovaszHingeLoss, ap_loss, lovasz_hinge_loss
from knifeedge.losses.regions import (
    REGION_LOSSES,
    DiceLoss,
    TverskyLoss,
    dice_loss,
    tversky_loss,
)
from knifeedge.losses.soft_f1 import AnyLossF1, SoftF1Loss, anyloss_f1, soft_f1_loss
from knifeedge.losses.threshold_f1 import (
    HeavisideF1Loss,
    ScoreOrientedLoss,
    heaviside_f1_loss,
    score_oriented_loss,
)
from loss_twin import sigmoid
from waiting import no_waiting

SHAPE = (2, 1, 5, 6)


# The formulas again, in float64 numpy: of logits z and labels y, one element or pair at a time.


def of_counts(decide, alpha=0.5, beta=0.5, smooth=1.0):
    def loss(z, y):
        q = np.vectorize(decide)(z)
        tp, fp, fn = (q * y).sum(), (q * (1 - y)).sum(), ((1 - q) * y).sum()
        return 1 - (tp + smooth / 2) / (tp + alpha * fp + beta * fn + smooth / 2)

    return loss


def three_lines(p, threshold=0.7, delta=0.1):
    m = min(threshold, 1 - threshold)
    corners = ((0, 0), (threshold - m / 2, delta), (threshold + m / 2, 1 - delta), (1, 1))
    return np.interp(p, *zip(*corners, strict=True))


def raised_cosine(p, mean=0.4, half_width=0.3):
    """The distribution function, from the density (1 + cos(pi u)) / (2 half_width)."""
    grid = np.linspace(mean - half_width, min(max(p, mean - half_width), mean + half_width), 4001)
    density = (1 + np.cos(np.pi * (grid - mean) / half_width)) / (2 * half_width)
    return np.trapezoid(density, grid)


def lovasz_image(z, y):
    def jaccard_loss(wrong):
        kept = y * (1 - wrong)
        return 1 - kept.sum() / (y.sum() + ((1 - y) * wrong).sum())

    error = 1 - z * (2 * y - 1)
    wrong, before, total = np.zeros_like(y), 0.0, 0.0
    for k in np.argsort(-error):
        wrong[k] = 1
        after = jaccard_loss(wrong)
        total += max(error[k], 0) * (after - before)
        before = after
    return total


def lovasz(z, y, per_image=True):
    if not per_image:
        return lovasz_image(z.ravel(), y.ravel())
    return np.mean([lovasz_image(a.ravel(), b.ravel()) for a, b in zip(z, y, strict=True)])


def ap_pairs(z, y, delta=1.0):
    """Value and error-driven update of all pairs."""
    z, y = z.ravel(), y.ravel()
    step = np.clip((z[None, :] - z[:, None]) / (2 * delta) + 0.5, 0, 1)
    np.fill_diagonal(step, 0)
    pairs = y[:, None] * (1 - y)[None, :] * step / (1 + step.sum(1, keepdims=True)) / y.sum()
    return pairs.sum(), pairs.sum(0) - pairs.sum(1)


class Case(NamedTuple):
    module: type
    function: object
    twin: object
    options: dict = {}  # noqa: RUF012
    sums: bool = True  # whether it adds up over ranks

    def build(self, **options):
        return self.module(**self.options, **options)


CASES = {
    "dice": Case(DiceLoss, dice_loss, of_counts(sigmoid)),
    "dice-unsmoothed": Case(
        DiceLoss, dice_loss, of_counts(sigmoid, smooth=0.0), options={"smooth": 0.0}
    ),
    "tversky": Case(TverskyLoss, tversky_loss, of_counts(sigmoid, 0.3, 0.7)),
    "soft-f1": Case(
        SoftF1Loss,
        soft_f1_loss,
        of_counts(lambda z: 1 / (1 + np.exp(-3 * (z - 0.4)))),
        options={"slope": 3.0, "offset": -0.4},
    ),
    "anyloss": Case(
        AnyLossF1, anyloss_f1, of_counts(lambda z: 1 / (1 + np.exp(-73 * (sigmoid(z) - 0.5))))
    ),
    "heaviside": Case(
        HeavisideF1Loss,
        heaviside_f1_loss,
        of_counts(lambda z: three_lines(sigmoid(z))),
        options={"threshold": 0.7},
    ),
    "cosine": Case(
        ScoreOrientedLoss,
        score_oriented_loss,
        of_counts(lambda z: raised_cosine(sigmoid(z))),
        options={"mean": 0.4, "half_width": 0.3},
    ),
    "uniform": Case(
        ScoreOrientedLoss,
        score_oriented_loss,
        of_counts(lambda z: np.clip((sigmoid(z) - 0.1) / 0.6, 0, 1)),
        options={"mean": 0.4, "half_width": 0.3, "distribution": "uniform"},
    ),
    "lovasz": Case(LovaszHingeLoss, lovasz_hinge_loss, lovasz),
    "lovasz-batch": Case(
        LovaszHingeLoss,
        lovasz_hinge_loss,
        partial(lovasz, per_image=False),
        options={"per_image": False},
        sums=False,
    ),
    "ap": Case(APLoss, ap_loss, lambda z, y: ap_pairs(z, y)[0], sums=False),
    "ap-derivative": Case(
        APLoss,
        ap_loss,
        lambda z, y: ap_pairs(z, y)[0],
        options={"error_driven": False},
        sums=False,
    ),
}


def make_logits(seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    prob = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.logit(0.02 + 0.96 * prob).to(dtype)


def make_target(kind: str, seed: int = 1) -> torch.Tensor:
    noise = torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (noise < 0.3).double() if kind == "hard" else torch.where(noise < 0.5, 0.0, noise)


def value_and_gradient(loss, pred, target, **options):
    pred = pred.detach().clone().requires_grad_()
    value = loss(pred, target, **options)
    value.backward()
    return value.detach(), pred.grad


@pytest.mark.parametrize("name", CASES)
class TestContract:
    @pytest.mark.parametrize("labels", ["hard", "soft"])
    @pytest.mark.parametrize("from_logits", [True, False])
    def test_equals_the_formula(self, name, labels, from_logits):
        case, logits, target = CASES[name], make_logits(), make_target(labels)
        want = case.twin(logits.numpy(), target.numpy())
        pred = logits if from_logits else logits.sigmoid()
        got = case.build(from_logits=from_logits)(pred, target)
        assert got.item() == pytest.approx(want, rel=1e-6)
        single = case.build(from_logits=from_logits)(pred.float(), target)
        assert single.item() == pytest.approx(want, rel=1e-4)

    @pytest.mark.parametrize("labels", ["hard", "soft"])
    @pytest.mark.parametrize("from_logits", [True, False])
    def test_gradcheck(self, name, labels, from_logits):
        if name == "ap":
            pytest.skip("an error-driven update is no derivative; see TestAveragePrecision")
        loss, target = CASES[name].build(from_logits=from_logits), make_target(labels)
        pred = (make_logits() if from_logits else make_logits().sigmoid()).requires_grad_()
        assert torch.autograd.gradcheck(lambda p: loss(p, target), (pred,))

    def test_logits_and_probabilities_agree(self, name):
        case, target = CASES[name], make_target("soft")
        logits, probs = make_logits().requires_grad_(), make_logits().requires_grad_()
        case.build()(logits, target).backward()
        case.build(from_logits=False)(probs.sigmoid(), target).backward()
        torch.testing.assert_close(logits.grad, probs.grad)

    def test_module_equals_function(self, name):
        case, pred, target = CASES[name], make_logits(), make_target("soft")
        mask = make_target("hard", seed=5) == 0
        want = case.function(pred, target, mask=mask, **case.options)
        assert torch.equal(case.build()(pred, target, mask=mask), want)
        plain = case.module()(pred, target)
        assert torch.equal(plain, case.function(pred, target))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("fill", [0.0, 1.0, None])
    @pytest.mark.parametrize("from_logits", [True, False])
    def test_extremes_are_finite(self, name, dtype, fill, from_logits):
        if not from_logits and dtype == torch.float16 and name.startswith(("lovasz", "ap")):
            pytest.skip("the slope of the logit at 0 and 1, 1e7, is more than float16 holds")
        pred = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4] * 12, dtype=dtype).reshape(SHAPE)
        target = make_target("hard") if fill is None else torch.full(SHAPE, fill)
        pred = pred if from_logits else pred.sigmoid()
        loss = CASES[name].build(from_logits=from_logits)
        value, gradient = value_and_gradient(loss, pred, target)
        assert value.dtype == torch.float32
        assert value.isfinite()
        assert value >= 0
        assert gradient.isfinite().all()

    @pytest.mark.parametrize("end", [-100.0, 100.0])
    @pytest.mark.parametrize("fill", [0.0, 1.0])
    def test_one_class_and_one_answer_are_finite(self, name, end, fill):
        pred = torch.full(SHAPE, end)
        value, gradient = value_and_gradient(CASES[name].build(), pred, torch.full(SHAPE, fill))
        assert value.isfinite()
        assert gradient.isfinite().all()
        if (end > 0) == (fill > 0):
            assert value == pytest.approx(0, abs=1e-6)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_computed_in_float32(self, name, dtype):
        pred, target = make_logits(dtype=dtype), make_target("hard")
        value, gradient = value_and_gradient(CASES[name].build(), pred, target)
        want, wanted = value_and_gradient(CASES[name].build(), pred.float(), target)
        assert torch.equal(value, want)
        assert torch.equal(gradient, wanted.to(dtype))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_an_empty_mask_gives_zero(self, name, dtype):
        pred, target = make_logits(dtype=dtype), make_target("hard")
        loss = CASES[name].build()
        value, gradient = value_and_gradient(loss, pred, target, mask=torch.zeros(SHAPE))
        assert value == 0
        assert torch.equal(gradient, torch.zeros_like(pred))

    def test_masked_elements_change_nothing(self, name):
        """Masking the second image is having the first alone, whatever the second holds."""
        pred, target = make_logits(), make_target("soft")
        mask = torch.ones(SHAPE, dtype=torch.bool)
        mask[1] = False
        want, wanted = value_and_gradient(CASES[name].build(), pred[:1], target[:1])
        pred[1], target[1] = torch.nan, 255
        value, gradient = value_and_gradient(CASES[name].build(), pred, target, mask=mask)
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(gradient[:1], wanted)
        assert torch.equal(gradient[1], torch.zeros_like(gradient[1]))

    def test_masked_pixels_inside_an_image_change_nothing(self, name):
        pred, target = make_logits(), make_target("hard")
        mask = torch.ones(SHAPE, dtype=torch.bool)
        mask[..., 2:4] = False
        rest = [0, 1, 4, 5]
        want, wanted = value_and_gradient(
            CASES[name].build(), pred[..., rest].contiguous(), target[..., rest]
        )
        pred = pred.masked_fill(~mask, 50.0)
        value, gradient = value_and_gradient(CASES[name].build(), pred, target, mask=mask)
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(gradient[..., rest], wanted)
        assert not gradient[..., 2:4].any()

    def test_the_order_of_pixels_changes_nothing(self, name):
        pred, target = make_logits(), make_target("soft")
        order = torch.randperm(30, generator=torch.Generator().manual_seed(7))
        value, gradient = value_and_gradient(CASES[name].build(), pred, target)
        mixed = [x.reshape(2, 30)[:, order] for x in (pred, target)]
        other, turned = value_and_gradient(CASES[name].build(), *mixed)
        torch.testing.assert_close(other, value)
        torch.testing.assert_close(turned, gradient.reshape(2, 30)[:, order])

    def test_compiles_without_a_graph_break(self, name):
        torch._dynamo.reset()
        loss, pred, target = CASES[name].build(), make_logits(), make_target("soft")
        mask = make_target("hard", seed=5) == 0
        want, wanted = value_and_gradient(loss, pred, target, mask=mask)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        value, gradient = value_and_gradient(compiled, pred, target, mask=mask)
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(gradient, wanted)

    def test_autocast_does_not_reach_the_loss(self, name):
        pred, target = make_logits(dtype=torch.float32), make_target("hard").float()
        loss = CASES[name].build()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = loss(pred, target)
        assert torch.equal(inside, loss(pred, target))

    def test_a_channel_of_one_may_be_left_out(self, name):
        pred, target, loss = make_logits(), make_target("hard"), CASES[name].build()
        torch.testing.assert_close(loss(pred, target.squeeze(1)), loss(pred, target))

    def test_a_step_downhill_lowers_the_loss(self, name):
        """Also of the update that is no derivative."""
        pred, target = make_logits(), make_target("hard")
        value, gradient = value_and_gradient(CASES[name].build(), pred, target)
        moved = pred - 0.01 * gradient / gradient.norm()
        assert CASES[name].build()(moved, target) < value

    def test_an_adjuster_refuses_it(self, name):
        """There are no values per element to weigh."""
        with pytest.raises(ValueError, match=r"one value per element, but .*whole regions"):
            ke.AdjustedLoss(CASES[name].build())(make_logits(), make_target("hard"))


class TestByHand:
    prob = torch.tensor([0.9, 0.6, 0.3, 0.2], dtype=torch.float64)
    target = torch.tensor([1.0, 0.0, 1.0, 0.0])

    def test_dice(self):
        # sum(p y) = 1.2, sum(p) = 2, sum(y) = 2
        got = dice_loss(self.prob, self.target, smooth=0, from_logits=False)
        assert got.item() == pytest.approx(1 - 2.4 / 4)
        got = dice_loss(self.prob, self.target, smooth=1, from_logits=False)
        assert got.item() == pytest.approx(1 - 3.4 / 5)

    def test_tversky(self):
        # tp = 1.2, fp = 0.8, fn = 0.8
        got = tversky_loss(
            self.prob, self.target, alpha=0.25, beta=1.5, smooth=0, from_logits=False
        )
        assert got.item() == pytest.approx(1 - 1.2 / (1.2 + 0.2 + 1.2))

    @pytest.mark.parametrize("smooth", [0.0, 1.0, 20.0])
    def test_tversky_of_halves_is_dice(self, smooth):
        pred, target = make_logits(), make_target("soft")
        halves = tversky_loss(pred, target, alpha=0.5, beta=0.5, smooth=smooth)
        torch.testing.assert_close(halves, dice_loss(pred, target, smooth=smooth))

    def test_soft_f1(self):
        # slope 2, offset 1 on the logits 0 and -1: sigmoid(2) and sigmoid(0)
        got = soft_f1_loss(
            torch.tensor([0.0, -1.0]), torch.tensor([1.0, 0.0]), slope=2, offset=1, smooth=0
        )
        q = 1 / (1 + np.exp(-2))
        assert got.item() == pytest.approx(1 - 2 * q / (2 * q + 0.5 + 1 - q))

    def test_plain_soft_f1_is_dice(self):
        pred, target = make_logits(), make_target("soft")
        torch.testing.assert_close(soft_f1_loss(pred, target), dice_loss(pred, target))

    def test_anyloss(self):
        # 73 (0.52 - 0.5) = 1.46 and 73 (0.5 - 0.5) = 0
        got = anyloss_f1(
            torch.tensor([0.52, 0.5]), torch.tensor([1.0, 0.0]), smooth=0, from_logits=False
        )
        q = 1 / (1 + np.exp(-1.46))
        assert got.item() == pytest.approx(1 - 2 * q / (q + 1 + 0.5), rel=1e-5)

    def test_heaviside(self):
        # t = 0.6, m = 0.4: corners at 0.4 and 0.8; q(0.2) = 0.1, q(0.7) = 0.65, q(0.9) = 0.9
        got = heaviside_f1_loss(
            torch.tensor([0.2, 0.7, 0.9], dtype=torch.float64),
            torch.tensor([0.0, 1.0, 1.0]),
            threshold=0.6,
            delta=0.2,
            smooth=0,
            from_logits=False,
        )
        assert got.item() == pytest.approx(1 - 2 * 1.55 / (1.65 + 2))

    def test_score_oriented(self):
        # u = -1/2: (1 - 1/2 - 1/pi) / 2; u = 1/2 its complement; beyond, 0
        got = score_oriented_loss(
            torch.tensor([0.45, 0.55, 0.1], dtype=torch.float64),
            torch.tensor([0.0, 1.0, 1.0]),
            smooth=0,
            from_logits=False,
        )
        q = 0.75 + 1 / (2 * np.pi)
        assert got.item() == pytest.approx(1 - 2 * q / (1 + 2))

    def test_a_random_threshold_is_expected_counts(self):
        """The soft counts are the mean, over thresholds, of the hard ones."""
        prob, target = make_logits().sigmoid(), make_target("hard")
        thresholds = torch.linspace(0.3, 0.7, 40001, dtype=torch.float64)
        hard = torch.tensor([(target[prob > t]).sum() for t in thresholds[::40]]).mean()
        u = ((prob - 0.5) / 0.2).clamp(-1, 1)
        assert ((1 + u) / 2 * target).sum().item() == pytest.approx(hard.item(), abs=0.02)
        loss = score_oriented_loss(
            prob, target, half_width=0.2, distribution="uniform", smooth=0, from_logits=False
        )
        total = ((1 + u) / 2).sum() + target.sum()
        assert loss.item() == pytest.approx((1 - 2 * hard / total).item(), abs=0.005)

    def test_lovasz(self):
        # errors 1.5 (y=0), 0.5 (y=1), -1 (y=1); J = 1 - 2/3, 1 - 1/3
        z, y = torch.tensor([[0.5, 0.5, 2.0]]), torch.tensor([[0.0, 1.0, 1.0]])
        want = 1.5 * (1 / 3) + 0.5 * (1 / 3)
        assert lovasz_hinge_loss(z, y).item() == pytest.approx(want)
        assert lovasz_hinge_loss(z[0], y[0], per_image=False).item() == pytest.approx(want)

    def test_lovasz_of_one_class(self):
        z = torch.tensor([[0.5, -0.25, -3.0]])
        assert lovasz_hinge_loss(z, torch.zeros(1, 3)).item() == pytest.approx(1.5)
        assert lovasz_hinge_loss(z, torch.ones(1, 3)).item() == pytest.approx(5.75 / 3)

    def test_lovasz_at_the_ends_is_the_jaccard_loss(self):
        """Errors of 1 for wrong and 0 for right decisions: a vertex, where it equals the set's."""
        target = make_target("hard").flatten()
        wrong = make_target("hard", seed=3).flatten()
        z = (1 - wrong) * (2 * target - 1)
        kept = (target * (1 - wrong)).sum()
        union = target.sum() + ((1 - target) * wrong).sum()
        got = lovasz_hinge_loss(z, target, per_image=False)
        torch.testing.assert_close(got, 1 - kept / union)

    @pytest.mark.parametrize("loss", [dice_loss, soft_f1_loss, anyloss_f1, heaviside_f1_loss])
    def test_one_class(self, loss):
        zeros = torch.zeros(6)  # every decision is 1/2: without positives fp = 3, else fn = tp = 3
        assert loss(zeros, torch.zeros(6)).item() == pytest.approx(3 / 4)
        assert loss(zeros, torch.ones(6)).item() == pytest.approx(3 / 10)

    def test_tversky_of_one_class(self):
        zeros = torch.zeros(6)
        assert tversky_loss(zeros, zeros).item() == pytest.approx(0.9 / 1.4)
        assert tversky_loss(zeros, zeros + 1).item() == pytest.approx(2.1 / 5.6)


class TestAveragePrecision:
    @pytest.mark.parametrize("labels", ["hard", "soft"])
    @pytest.mark.parametrize("delta", [0.05, 1.0, 30.0])
    def test_the_update_is_that_of_all_pairs(self, labels, delta):
        pred, target = make_logits(), make_target(labels)
        want, wanted = ap_pairs(pred.numpy(), target.numpy(), delta)
        value, gradient = value_and_gradient(ap_loss, pred, target, delta=delta)
        assert value.item() == pytest.approx(want, rel=1e-10)
        np.testing.assert_allclose(gradient.flatten(), wanted, atol=1e-12)

    def test_with_ties(self):
        pred, target = make_logits().round(), make_target("hard")
        want, wanted = ap_pairs(pred.numpy(), target.numpy(), 0.5)
        value, gradient = value_and_gradient(ap_loss, pred, target, delta=0.5)
        assert value.item() == pytest.approx(want, rel=1e-10)
        np.testing.assert_allclose(gradient.flatten(), wanted, atol=1e-12)

    def test_a_narrow_step_gives_average_precision(self):
        from sklearn.metrics import average_precision_score

        pred, target = make_logits(), make_target("hard")
        want = 1 - average_precision_score(target.flatten().numpy(), pred.flatten().numpy())
        assert ap_loss(pred, target, delta=1e-6).item() == pytest.approx(want, rel=1e-9)

    def test_by_hand(self):
        # Order: negative 5, positive 4, positive 0, negative -5; ranks 2 and 3, with one false.
        z = torch.tensor([0.0, 5.0, -5.0, 4.0])
        y = torch.tensor([1.0, 0.0, 0.0, 1.0])
        value, gradient = value_and_gradient(ap_loss, z, y, delta=0.25)
        assert value.item() == pytest.approx((1 / 3 + 1 / 2) / 2)
        torch.testing.assert_close(gradient, torch.tensor([-1 / 6, 5 / 12, 0, -1 / 4]))

    def test_a_mistake_far_apart_moves_by_the_update_alone(self):
        z, y = torch.tensor([-9.0, 9.0]), torch.tensor([1.0, 0.0])
        _, update = value_and_gradient(ap_loss, z, y)
        _, derivative = value_and_gradient(ap_loss, z, y, error_driven=False)
        torch.testing.assert_close(update, torch.tensor([-0.5, 0.5]))
        assert not derivative.any()

    def test_one_class_gives_zero(self):
        for fill in (0.0, 1.0):
            value, gradient = value_and_gradient(ap_loss, make_logits(), torch.full(SHAPE, fill))
            assert value == 0
            assert not gradient.any()


def test_lovasz_keeps_its_digits_on_a_large_batch():
    """In float32 the steps of the Jaccard loss would be lost among 800,000 pixels."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 1, 900, 900, generator=generator)
    y = (torch.rand(1, 1, 900, 900, generator=generator) < 0.05).float()
    single, gradient = value_and_gradient(lovasz_hinge_loss, z, y)
    double, wanted = value_and_gradient(lovasz_hinge_loss, z.double(), y)
    assert single.item() == pytest.approx(double.item(), rel=1e-5)
    np.testing.assert_allclose(gradient.sum(), wanted.sum(), rtol=1e-4)
    # One by one, as far as float32 errors keep their places in the order.
    close = torch.isclose(gradient.double(), wanted, rtol=1e-2, atol=0)
    assert close.double().mean() > 0.999


def test_the_names_are_of_all_of_them():
    assert {case.module for case in CASES.values()} == set(REGION_LOSSES.values())
    for loss in REGION_LOSSES.values():
        assert loss.function.__name__.split("_")[0] in loss.__name__.lower()
        assert loss().forward(torch.zeros(2, 3), torch.zeros(2, 3)).isfinite()


def test_print_shows_the_settings():
    assert str(TverskyLoss(alpha=0.2)) == (
        "TverskyLoss(alpha=0.2, beta=0.7, smooth=1.0, from_logits=True)"
    )


@pytest.mark.parametrize("as_module", [True, False])
@pytest.mark.parametrize(
    ("module", "options", "says"),
    [
        (DiceLoss, {"smooth": -1}, "smooth must be >= 0"),
        (SoftF1Loss, {"smooth": float("nan")}, "smooth must be >= 0"),
        (TverskyLoss, {"alpha": -0.1}, "alpha and beta must be >= 0"),
        (TverskyLoss, {"alpha": 0, "beta": 0}, "not both 0"),
        (SoftF1Loss, {"slope": 0}, "slope must be > 0"),
        (SoftF1Loss, {"offset": float("inf")}, "offset must be finite"),
        (AnyLossF1, {"amplification": 0}, "amplification must be > 0"),
        (HeavisideF1Loss, {"threshold": 1}, r"threshold must lie in \(0, 1\)"),
        (HeavisideF1Loss, {"delta": 0.5}, r"delta must lie in \(0, 0.5\)"),
        (ScoreOrientedLoss, {"half_width": 0}, "half_width must be > 0"),
        (ScoreOrientedLoss, {"mean": 0.95}, r"lie in \[0, 1\]"),
        (ScoreOrientedLoss, {"distribution": "normal"}, "distribution must be one of"),
        (APLoss, {"delta": 0}, "delta must be > 0"),
    ],
)
def test_settings_out_of_range(module, options, says, as_module):
    function = partial(module.function, torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match=says):
        (module if as_module else function)(**options)


def test_images_need_a_dimension():
    with pytest.raises(ValueError, match="per_image=False"):
        lovasz_hinge_loss(torch.zeros(3), torch.zeros(3))


def test_labels_are_checked():
    with pytest.raises(ValueError, match="divided by 255"):
        dice_loss(torch.zeros(3), torch.full((3,), 255.0))


# Two processes with half a batch each, as in test_distributed.py.

RANKS = 2


def batch():
    """Unequal halves: the first has few edges, a masked corner and a masked image."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 1, 6, 7, generator=generator, dtype=torch.float64)
    noise = torch.rand(8, 1, 6, 7, generator=generator, dtype=torch.float64)
    share = torch.tensor([0.05] * 4 + [0.5] * 4, dtype=torch.float64).reshape(8, 1, 1, 1)
    mask = torch.ones(8, 1, 6, 7, dtype=torch.bool)
    mask[:3, :, :4] = False
    mask[3] = False
    return images, (noise < share).double(), mask


def model():
    torch.manual_seed(3)
    return torch.nn.Conv2d(1, 1, 3, padding=1, dtype=torch.float64)


def gradients(network, part, masked):
    result = {}
    images, target, mask = (x[part] for x in batch())
    for name, case in CASES.items():
        network.zero_grad()
        case.build()(network(images), target, mask=mask if masked else None).backward()
        result[name] = torch.cat([p.grad.flatten() for p in network.parameters()])
    return result


def work(rank):
    part = slice(4 * rank, 4 * rank + 4)
    network = DistributedDataParallel(model())
    result = {masked: gradients(network, part, masked) for masked in (False, True)}
    if rank == 0:
        with torch.no_grad():  # nothing is exchanged: one rank alone may validate
            dice_loss(torch.zeros(3), torch.ones(3))
    return result


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return first_rank_of(RANKS, work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.sums])
def test_two_ranks_of_four_are_one_of_eight(two_ranks, name, masked):
    alone = gradients(model(), slice(None), masked)[name]
    torch.testing.assert_close(
        two_ranks[masked][name], alone, atol=1e-6 * alone.abs().max(), rtol=0
    )


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.sums])
def test_orders_are_of_each_rank(two_ranks, name):
    halves = [gradients(model(), slice(k, k + 4), False)[name] for k in (0, 4)]
    torch.testing.assert_close(two_ranks[False][name], (halves[0] + halves[1]) / 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu_nothing_waits_and_values_agree(name):
    loss, pred, target = CASES[name].build(), make_logits(), make_target("soft")
    want, wanted = value_and_gradient(loss, pred, target)
    pred, target = pred.cuda(), target.cuda()
    with no_waiting():
        value, gradient = value_and_gradient(loss, pred, target)
    torch.testing.assert_close(value.cpu(), want)
    torch.testing.assert_close(gradient.cpu(), wanted)
