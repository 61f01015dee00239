"""The adjusted loss: recorded numbers, any base, settings, and what it refuses."""

import math

import pytest
import torch
from torch import nn

import knifeedge as ke

# BAA-WBCE with the paper's settings (threshold 0.7, window 0.2, decay 16, delta 1) for
# prob = 0.01 .. 0.99 against label 0 and label 1, all 198 in one batch, so that N+ = N-.
# fmt: off
RECORDED = {
    0: [
        0.00552768, 0.01111149, 0.01675256, 0.02245210, 0.02821131, 0.03403147, 0.03991388,
        0.04585988, 0.05187087, 0.05794828, 0.06409360, 0.07030835, 0.07659414, 0.08295259,
        0.08938541, 0.09589436, 0.10248127, 0.10914802, 0.11589657, 0.12272895, 0.12964728,
        0.13665375, 0.14375062, 0.15094027, 0.15822514, 0.16560780, 0.17309091, 0.18067724,
        0.18836967, 0.19617122, 0.20408502, 0.21211436, 0.22026266, 0.22853349, 0.23693060,
        0.24545791, 0.25411950, 0.26291969, 0.27186298, 0.28095409, 0.29019801, 0.29959995,
        0.30916540, 0.31890017, 0.32881035, 0.33890238, 0.34918305, 0.35965956, 0.37033950,
        0.38123095, 0.45281781, 0.51892975, 0.58029442, 0.63755906, 0.69129949, 0.74202840,
        0.79020262, 0.83622988, 0.88047470, 0.92326381, 0.96489095, 1.00562129, 1.04569531,
        1.08533239, 1.12473405, 1.16408691, 1.20356544, 1.24333452, 1.28355181, 1.32437008,
        1.36166179, 1.40026224, 1.44026665, 1.48178101, 1.52492380, 1.56982799, 1.61664357,
        1.66554051, 1.71671252, 1.77038170, 1.82680433, 1.88627827, 1.94915253, 2.01583961,
        2.08683198, 2.16272414, 2.24424291, 2.33228989, 2.42800240, 2.53284360, 2.64874017,
        2.77830151, 2.92518604, 3.09475179, 3.29530550, 3.54076341, 3.85721369, 4.30322531,
        5.06568720,
    ],
    1: [
        4.60517019, 3.91202301, 3.50655790, 3.21887582, 2.99573227, 2.81341072, 2.65926004,
        2.52572864, 2.40794561, 2.30258509, 2.20727491, 2.12026354, 2.04022083, 1.96611286,
        1.89711998, 1.83258146, 1.77195684, 1.71479843, 1.66073121, 1.60943791, 1.56064775,
        1.51412773, 1.46967597, 1.42711636, 1.38629436, 1.34707365, 1.30933332, 1.27296568,
        1.23787436, 1.20397280, 1.17118298, 1.13943428, 1.10866262, 1.07880966, 1.04982212,
        1.02165125, 0.99425227, 0.96758403, 0.94160854, 0.91629073, 0.89159812, 0.86750057,
        0.84397007, 0.82098055, 0.79850770, 0.77652879, 0.75502258, 0.73396918, 0.71334989,
        0.69314718, 0.67334455, 0.65392647, 0.63487827, 0.61618614, 0.59783700, 0.57981850,
        0.56211892, 0.54472718, 0.52763274, 0.51082562, 0.49429632, 0.47803580, 0.46203546,
        0.44628710, 0.43078292, 0.41551544, 0.40047757, 0.38566248, 0.37106368, 0.35667494,
        0.34122768, 0.32587180, 0.31059123, 0.29536974, 0.28019103, 0.26503903, 0.24989808,
        0.23475343, 0.21959169, 0.20440154, 0.18917465, 0.17390673, 0.15859903, 0.14326014,
        0.12790820, 0.11257383, 0.09730353, 0.08216414, 0.06724813, 0.05268026, 0.04715534,
        0.04169080, 0.03628535, 0.03093770, 0.02564665, 0.02041100, 0.01522960, 0.01010135,
        0.00502517,
    ],
}
# fmt: on


def recorded_inputs(dtype=torch.float64):
    prob = torch.arange(1, 100, dtype=dtype) / 100
    return prob.repeat(2, 1), torch.tensor([[0.0], [1.0]], dtype=dtype).expand(2, 99)


class TestRecorded:
    def test_all_198(self):
        prob, target = recorded_inputs()
        want = torch.tensor([RECORDED[0], RECORDED[1]], dtype=torch.float64)
        from_prob = ke.AdjustedLoss(ke.WBCELoss(from_logits=False), reduction="none")
        torch.testing.assert_close(from_prob(prob, target), want, atol=1e-8, rtol=0)
        from_logits = ke.AdjustedLoss(ke.WBCELoss(), reduction="none")
        torch.testing.assert_close(from_logits(prob.logit(), target), want, atol=1e-8, rtol=0)
        single = from_logits(prob.logit().float(), target)
        torch.testing.assert_close(single.double(), want, atol=1e-6, rtol=0)

    def test_three_by_hand(self):
        """Half the labels are edges: an edge weighs 1/2, a non-edge 1.1 * 1/2 = 0.55."""
        # 0.60 against an edge is wrong, so the adjuster is 1:       (1 + 1) 0.5 (-ln 0.60)
        assert RECORDED[1][59] == pytest.approx(2 * 0.5 * -math.log(0.60), abs=1e-8)
        # 0.80 against an edge is right by 0.1, half the window:
        # f(0.1) = (e^1.6 - e^3.2) / (1 - e^3.2) = (4.95303 - 24.53253) / (-23.53253) = 0.832019
        assert RECORDED[1][79] == pytest.approx(1.832019 * 0.5 * -math.log(0.80), abs=1e-6)
        # 0.10 against a non-edge is right by 0.6, past the window: (0 + 1) 0.55 (-ln 0.90)
        assert RECORDED[0][9] == pytest.approx(0.55 * -math.log(0.90), abs=1e-8)


class TestAnyBase:
    def test_torchs_own(self):
        pred, target = (
            torch.linspace(-3, 3, 24).reshape(2, 1, 3, 4),
            torch.eye(4)[:3].repeat(2, 1, 1, 1),
        )
        got = ke.AdjustedLoss(nn.BCEWithLogitsLoss(reduction="none"), threshold=0.5)(pred, target)
        torch.testing.assert_close(got, ke.AdjustedLoss(ke.BCELoss(), threshold=0.5)(pred, target))
        probs = ke.AdjustedLoss(nn.BCELoss(reduction="none"), threshold=0.5)
        torch.testing.assert_close(probs(pred.sigmoid(), target), got)

    def test_a_function_that_flattens(self):
        """Some libraries' losses return one value per element in one long row."""
        pred, target = torch.linspace(-3, 3, 12).reshape(3, 4), torch.eye(4)[:3]
        flat = lambda p, y: ke.bce_loss(p, y, reduction="none").flatten()  # noqa: E731
        got = ke.AdjustedLoss(flat, reduction="none")(pred, target)
        want = ke.AdjustedLoss(ke.BCELoss(), reduction="none")(pred, target)
        torch.testing.assert_close(got, want)

    def test_the_base_moves_with_the_loss(self):
        base = nn.BCEWithLogitsLoss(reduction="none", pos_weight=torch.tensor(2.0))
        loss = ke.AdjustedLoss(base, threshold=(0.3, 0.6)).to(torch.float64)
        assert base.pos_weight.dtype == torch.float64
        assert loss.threshold.dtype == torch.float64
        assert list(loss.state_dict()) == ["base.pos_weight"]

    def test_compiled_with_a_base_that_learns(self):
        """The single-pass gradient is for the prediction alone: parameters must not lose theirs."""
        torch._dynamo.reset()

        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.tensor(2.0))

            def forward(self, pred, target):
                return self.scale * (pred.sigmoid() - target) ** 2

        loss = ke.AdjustedLoss(Scaled())
        pred, target = torch.linspace(-2, 2, 8).requires_grad_(), torch.ones(8)
        torch.compile(loss, fullgraph=True, backend="aot_eager")(pred, target).backward()
        compiled, loss.base.scale.grad = loss.base.scale.grad, None
        loss(pred, target).backward()
        torch.testing.assert_close(compiled, loss.base.scale.grad)
        assert compiled != 0

    def test_an_adjusted_loss_can_be_adjusted_again(self):
        pred, target = torch.linspace(-3, 3, 12), (torch.arange(12) % 2).float()
        inner = ke.AdjustedLoss(ke.WBCELoss(), threshold=0.3)
        once = ke.AdjustedLoss(ke.WBCELoss(), threshold=0.3, reduction="none")(pred, target)
        adj = ke.adjuster_weight(pred.sigmoid(), target, threshold=0.6)
        twice = ke.AdjustedLoss(inner, threshold=0.6)(pred, target)
        torch.testing.assert_close(twice, ((adj + 1) * once).mean())


class PerImage(ke.PixelLoss):
    """Values that are none per element."""

    def values(self, pred, target, mask):
        return (pred - target).mean(dim=-1)


class WithoutChannel(ke.PixelLoss):
    """Values in another shape than the prediction's."""

    def values(self, pred, target, mask):
        return ((pred - target) ** 2).squeeze(1)


def test_values_in_another_shape_are_brought_to_the_predictions():
    pred, target = torch.linspace(-2, 2, 64).view(4, 1, 4, 4), torch.ones(4, 1, 4, 4)
    want = ((pred - target) ** 2).mean()
    everything = torch.ones(4, 1, 4, 4, dtype=torch.bool)
    torch.testing.assert_close(WithoutChannel()(pred, target, mask=everything), want)
    each = ke.AdjustedLoss(WithoutChannel(), reduction="none")(pred, target)
    adjuster = ke.adjuster_weight(pred.sigmoid(), target)
    torch.testing.assert_close(each, (adjuster + 1) * (pred - target) ** 2)


@pytest.mark.parametrize("cast", [nn.Module.half, nn.Module.bfloat16])
def test_a_model_of_half_precision_keeps_the_thresholds(cast):
    """As part of a model that is cast; what is no setting is cast with it."""
    columns = ke.AdjustedLoss(ke.BCELoss(), threshold=(0.7, 0.3))
    online = ke.AdjustedLoss(
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(1), reduction="none"), "online"
    )
    bins = ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), thresholds=(65.3,))
    model = cast(nn.ModuleList([columns, online, bins, nn.Linear(1, 1)]))
    assert columns.threshold.tolist() == torch.tensor([0.7, 0.3]).tolist()
    assert bins.thresholds.tolist() == torch.tensor([65.3]).tolist()
    assert online.base.pos_weight.dtype == model[3].weight.dtype != torch.float32
    prob = torch.rand(60, 40_000, generator=torch.Generator().manual_seed(0))
    for row in prob:  # more of them than float16 counts
        online.threshold.update(row, (row > 0.6).float())
    assert float(online.threshold.value) == pytest.approx(0.6, abs=0.05)


def test_a_threshold_given_as_a_tensor_is_copied():
    given = torch.tensor([0.3, 0.6])
    loss = ke.AdjustedLoss(ke.BCELoss(), given)
    given[0] = 7.0
    assert loss.threshold.tolist() == pytest.approx([0.3, 0.6])


def test_under_vmap():
    loss = ke.AdjustedLoss(ke.BCELoss(), threshold=0.5)
    pred, target = torch.linspace(-2, 2, 12).view(4, 3), torch.ones(4, 3)
    each = torch.func.vmap(torch.func.grad(loss))(pred, target)
    want = torch.stack([torch.func.grad(loss)(p, y) for p, y in zip(pred, target, strict=True)])
    torch.testing.assert_close(each, want)


@pytest.mark.parametrize("decay", [0.0, 0.04, 0.06, 16.0])
def test_in_the_threshold_itself_the_gradient_is_the_compiled_one(decay):
    """As with a head that starts at zero, at threshold 0.5."""
    torch._dynamo.reset()
    loss = ke.AdjustedLoss(ke.BCELoss(), threshold=0.5, decay=decay)
    pred, target = torch.zeros(8).requires_grad_(), (torch.arange(8) % 2).float()
    (eager,) = torch.autograd.grad(loss(pred, target), pred)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(pred, target)
    torch.testing.assert_close(torch.autograd.grad(compiled, pred)[0], eager)


class TestSettings:
    def test_detached_weight_is_a_pure_reweighting(self):
        pred = torch.linspace(-3, 3, 30, dtype=torch.float64).requires_grad_()
        target = (torch.arange(30) % 3 == 0).double()
        adjuster = ke.adjuster_weight(pred.sigmoid(), target).detach()
        want = ((adjuster + 1) * ke.wbce_loss(pred, target, reduction="none")).mean()
        (want_grad,) = torch.autograd.grad(want, pred)
        loss = ke.AdjustedLoss(ke.WBCELoss(), detach_weight=True)
        (grad,) = torch.autograd.grad(loss(pred, target), pred)
        torch.testing.assert_close(grad, want_grad)
        (through,) = torch.autograd.grad(ke.AdjustedLoss(ke.WBCELoss())(pred, target), pred)
        assert not torch.allclose(through, grad)

    def test_a_threshold_per_column(self):
        pred, target = torch.linspace(-2, 2, 12).reshape(4, 3), torch.ones(4, 3)
        columns = (0.2, 0.5, 0.8)
        loss = ke.AdjustedLoss(ke.BCELoss(), threshold=columns, reduction="none")
        for column, threshold in enumerate(columns):
            alone = ke.AdjustedLoss(ke.BCELoss(), threshold=threshold, reduction="none")
            want = alone(pred[:, column], target[:, column])
            torch.testing.assert_close(loss(pred, target)[:, column], want)

    def test_another_weight_function(self):
        prob = torch.tensor([0.75, 0.8, 0.95])
        loss = ke.AdjustedLoss(
            ke.BCELoss(from_logits=False), weight=ke.cosine_weight, delta=0.0, reduction="none"
        )
        values = loss(prob, torch.ones(3))
        weight = torch.tensor([math.cos(math.pi / 8), math.cos(math.pi / 4), 0.0])
        torch.testing.assert_close(values, -prob.log() * weight)

    def test_confidently_right_elements_have_no_loss_without_delta(self):
        pred = torch.tensor([4.0, -4.0]).requires_grad_()
        loss = ke.AdjustedLoss(ke.WBCELoss(), delta=0.0)(pred, torch.tensor([1.0, 0.0]))
        loss.backward()
        assert loss == 0
        assert torch.equal(pred.grad, torch.zeros(2))

    def test_print_shows_the_settings(self):
        shown = repr(ke.AdjustedLoss(ke.WBCELoss(), threshold=0.6))
        assert "threshold=0.6, window=0.2, decay=16.0, delta=1.0" in shown
        for loss, setting in (
            (ke.WBCELoss(balance=3), "balance=3"),
            (ke.FocalLoss(gamma=5), "gamma=5"),
            (ke.EBTLoss(radius=2), "radius=2"),
            (ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"), window=0.3), "window=0.3"),
        ):
            assert setting in repr(loss)


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=0), ValueError, r"in \(0, 1\), got 0"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=1.0), ValueError, "not a logit"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=(0.5, 2)), ValueError, "got 2"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), window=0), ValueError, "window must be > 0"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), decay=-1), ValueError, "decay must be >= 0"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), delta=-1), ValueError, "delta must be >= 0"),
        (
            lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=()),
            ValueError,
            r"a number, .* got \(\)",
        ),
        (lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=None), ValueError, "got None"),
        (
            lambda: ke.AdjustedLoss(ke.WBCELoss(), nn.Parameter(torch.tensor([0.5]))),
            ValueError,
            "would not learn",
        ),
        (lambda: ke.AdjustedLoss("wbce"), TypeError, "base must be a loss or a callable, got str"),
        (lambda: ke.AdjustedLoss(ke.WBCELoss), TypeError, "the class WBCELoss; write its brackets"),
        (
            lambda: ke.AdjustedLoss(ke.AdjustedLoss(ke.WBCELoss(), "online")),
            ValueError,
            "base must not find a threshold itself",
        ),
        (
            lambda: ke.AdjustedLoss(ke.BCELoss(), (0.5, 0.5, 0.5))(
                torch.zeros(8, 1), torch.ones(8, 1)
            ),
            ValueError,
            r"one per column, or broadcast: got \(3,\) for \(8, 1\)",
        ),
        (
            lambda: ke.AdjustedLoss(ke.BCELoss(), torch.full((5, 1, 1, 1, 1), 0.5))(
                torch.zeros(2, 1, 4, 4), torch.ones(2, 1, 4, 4)
            ),
            ValueError,
            r"got \(5, 1, 1, 1, 1\) for \(2, 1, 4, 4\)",
        ),
        (lambda: PerImage()(torch.zeros(4, 4), torch.zeros(4, 4)), ValueError, "returned .4,. for"),
        (
            lambda: ke.AdjustedLoss(PerImage())(torch.zeros(4, 4), torch.zeros(4, 4)),
            ValueError,
            r"base PerImage must return one value per element, but returned \(4,\)",
        ),
        (
            lambda: ke.BCELoss()(torch.zeros(()), torch.zeros(1)),
            ValueError,
            "must have equal shapes",
        ),
        (
            lambda: ke.BCELoss()(torch.zeros(1), torch.zeros(())),
            ValueError,
            "must have equal shapes",
        ),
        (lambda: ke.AdjustedLoss(nn.BCEWithLogitsLoss()), ValueError, 'reduction="none"'),
        (
            lambda: ke.AdjustedLoss(ke.WBCELoss(), from_logits=False),
            ValueError,
            "WBCELoss takes logits",
        ),
        (
            lambda: ke.AdjustedLoss(nn.BCELoss(reduction="none"), from_logits=True),
            ValueError,
            "BCELoss takes probabilities",
        ),
        (
            lambda: ke.AdjustedLoss(lambda p, y: (p - y).mean())(torch.zeros(3), torch.zeros(3)),
            ValueError,
            r"one value per element.*returned \(\) for \(3,\)",
        ),
    ],
)
def test_bad_settings(build, error, says):
    with pytest.raises(error, match=says):
        build()
