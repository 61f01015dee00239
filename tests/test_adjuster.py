"""Section 3 of the paper: conditions C1 to C5, bounds, limits, and the many-valued distances."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import knifeedge as ke

unit = st.floats(0.0, 1.0)
thresholds = st.floats(0.05, 0.95)
windows = st.floats(0.01, 2.0)
decays = st.floats(0.0, 100.0)
labels = st.sampled_from([0.0, 1.0])
WEIGHTS = {
    "exponential": ke.distance_weight,
    "linear": lambda x, window: ke.distance_weight(x, window=window, decay=0.0),
    "power": ke.power_weight,
    "cosine": ke.cosine_weight,
}


def f64(value):
    return torch.as_tensor(value, dtype=torch.float64)


def weight(p, y, **settings):
    return float(ke.adjuster_weight(f64(p), f64(y), **settings))


class TestConditions:
    @given(p=unit, y=unit, t=thresholds, w=windows, b=decays, step=st.floats(0, 1e-6))
    def test_c1_continuous(self, p, y, t, w, b, step):
        """The slope is at most that at the window's end, b / (1 - e^(-b w)), or 1 / w."""
        steepest = max(1 / w, b / -math.expm1(-b * w) if b * w > 1e-6 else 1 / w)
        near = weight(min(p + step, 1), y, threshold=t, window=w, decay=b)
        here = weight(p, y, threshold=t, window=w, decay=b)
        assert abs(near - here) <= steepest * step * 1.001 + 1e-7

    @given(p=unit, y=unit, t=thresholds, w=windows, b=st.floats(0, 1e4))
    def test_c2_within_unit_range(self, p, y, t, w, b):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            prob, target = torch.tensor(p, dtype=dtype), torch.tensor(y, dtype=dtype)
            value = ke.adjuster_weight(prob, target, threshold=t, window=w, decay=b)
            assert 0 <= value <= 1

    @given(y=labels, t=thresholds, w=windows, b=decays, near=unit, far=unit)
    def test_c3_falls_with_the_distance_where_right(self, y, t, w, b, near, far):
        near, far = sorted((near, far))
        edge = 1.0 if y else 0.0
        by = {"threshold": t, "window": w, "decay": b}
        at_near = weight(t + (edge - t) * near, y, **by)
        at_far = weight(t + (edge - t) * far, y, **by)
        assert at_near >= at_far - 1e-12

    @given(y=labels, t=thresholds, w=st.floats(0.01, 0.9), b=decays, beyond=unit)
    def test_c4_zero_beyond_the_window(self, y, t, w, b, beyond):
        p = t + w + beyond if y else t - w - beyond
        assert weight(p, y, threshold=t, window=w, decay=b) == pytest.approx(0, abs=1e-12)

    @given(y=labels, t=thresholds, w=windows, b=decays, depth=unit)
    def test_c5_one_where_wrong(self, y, t, w, b, depth):
        p = t - depth * t if y else t + depth * (1 - t)
        assert weight(p, y, threshold=t, window=w, decay=b) == 1


class TestDistanceWeight:
    @given(x=unit, w=windows, b=decays)
    @pytest.mark.parametrize("name", WEIGHTS)
    def test_bounds(self, name, x, w, b):
        x = x * w
        settings = {"decay": b} if name == "exponential" else {}
        value = float(WEIGHTS[name](f64(x), window=w, **settings))
        assert 1 - x / w - 1e-7 <= value <= 1

    @pytest.mark.parametrize("window", [0.05, 0.2, 3.0])
    @pytest.mark.parametrize("name", WEIGHTS)
    def test_the_ones_here_pass_the_check(self, name, window):
        ke.check_distance_weight(WEIGHTS[name], window=window)

    def test_is_the_papers_formula(self):
        x = np.linspace(0, 0.2, 101)
        want = (np.exp(16 * x) - math.exp(3.2)) / (1 - math.exp(3.2))
        np.testing.assert_allclose(ke.distance_weight(f64(x)), want, atol=1e-14)

    @given(x=st.floats(-1, 1), w=windows, b=st.floats(0, 0.02))
    def test_small_decays_agree_with_the_formula(self, x, w, b):
        """Across the switch to the series, in float64 and through exp(x) - 1 in float32."""
        inside = min(max(x, 0), w)
        want = 1 - inside / w
        if b * w > 1e-12:
            want = math.expm1(b * (inside - w)) / math.expm1(-b * w)
        assert float(ke.distance_weight(f64(x), window=w, decay=b)) == pytest.approx(want, abs=1e-7)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("decay", [0.0, 16.0, 1e4])
    def test_half_precision_is_finite_everywhere(self, dtype, decay):
        logits = torch.tensor([-65504.0, -20, -1, 0, 0.8473, 1, 20, 65504], dtype=dtype)
        for target in (0.0, 0.3, 1.0):
            given = logits.clone().requires_grad_()
            value = ke.adjuster_weight(
                given.sigmoid(), torch.full_like(given, target), window=0.2, decay=decay
            )
            value.sum().backward()
            assert value.dtype == torch.float32
            assert value.isfinite().all()
            assert given.grad.isfinite().all()

    def test_a_weight_in_single_precision_is_good_enough(self):
        ke.check_distance_weight(lambda x, window: torch.cos(x.float() * (math.pi / 2 / window)))

    @pytest.mark.parametrize(
        ("weight", "says"),
        [
            (lambda x, window: 1 - (x / window) ** 0.5, "concave: at x = 0.05"),
            (lambda x, window: (u := 1 - x / window) * (0.91 + 0.09 * u), "it lies 0.006 below"),
            (lambda x, window: 0.9 * (1 - x / window), "1 at x = 0, got 0.9"),
            (lambda x, window: 1 - 0.5 * x / window, "0 at x = window, got 0.5"),
            (lambda x, window: torch.sin(3 * x / window) + 1 - x / window, "window, got 0.14112"),
            (lambda x, window: 1 - x / window + torch.sin(math.pi * x / window), "decrease"),
            (lambda x, window: (x < window).double(), "continuous: it jumps by 1 at x = window"),
            (lambda x, window: 1 / (x - x), "finite: at x = 0"),
            (lambda x, window: x.sum(), r"one value per x, got \(\)"),
        ],
    )
    def test_the_check_says_what_fails_and_where(self, weight, says):
        with pytest.raises(ValueError, match=says):
            ke.check_distance_weight(weight)
        with pytest.raises(ValueError, match=says):
            ke.AdjustedLoss(ke.WBCELoss(), weight=weight)


class TestLimits:
    """The paper's limits, on a grid of probabilities and both labels."""

    prob = torch.linspace(0, 1, 1001, dtype=torch.float64).repeat(2)
    target = torch.tensor([0.0, 1.0], dtype=torch.float64).repeat_interleave(1001)

    def test_infinite_decay_is_the_windowed_mask(self):
        got = ke.adjuster_weight(self.prob, self.target, decay=1e6)
        want = ke.windowed_adjuster(self.prob, self.target)
        away = (ke.masked_distance(self.prob, self.target) - 0.2).abs() > 1e-4
        torch.testing.assert_close(got[away], want[away])
        assert away.sum() >= 2000

    def test_then_a_vanishing_window_is_the_hard_mask(self):
        got = ke.adjuster_weight(self.prob, self.target, window=1e-4, decay=1e8)
        want = ke.hard_adjuster(self.prob, self.target)
        away = (self.prob - 0.7).abs() > 1e-3
        torch.testing.assert_close(got[away], want[away])
        windowed = ke.windowed_adjuster(self.prob, self.target, window=1e-9)
        torch.testing.assert_close(windowed[away], want[away])

    @given(b=decays, delta=st.floats(0, 3))
    @settings(max_examples=20)
    def test_an_infinite_window_is_the_base_loss(self, b, delta):
        pred = torch.logit(self.prob.clamp(1e-6, 1 - 1e-6))
        loss = ke.AdjustedLoss(ke.WBCELoss(), window=1e6, decay=b, delta=delta)
        want = (1 + delta) * ke.wbce_loss(pred, self.target)
        assert float(loss(pred, self.target)) == pytest.approx(float(want), rel=1e-5)

    def test_decay_to_zero_is_linear(self):
        linear = ke.adjuster_weight(self.prob, self.target, decay=0.0)
        want = (1 - ke.masked_distance(self.prob, self.target) / 0.2).clamp(0, 1)
        torch.testing.assert_close(linear, want)
        for decay in (1e-12, 1e-6, 1e-4):
            near = ke.adjuster_weight(self.prob, self.target, decay=decay)
            torch.testing.assert_close(near, linear, atol=decay, rtol=0)


class TestMaskedDistance:
    @given(p=unit, y=unit, t=thresholds)
    def test_is_the_papers_formula(self, p, y, t):
        want = (p - t) * y + (t - p) * (1 - y)
        got = float(ke.masked_distance(f64(p), f64(y), threshold=t))
        assert got == pytest.approx(want, abs=1e-12)

    def test_a_threshold_per_column(self):
        prob, target = torch.full((2, 3), 0.5), torch.ones(2, 3)
        columns = torch.tensor([0.2, 0.5, 0.8])
        want = torch.tensor([[0.3, 0.0, -0.3]] * 2)
        got = ke.masked_distance(prob, target, threshold=columns)
        torch.testing.assert_close(got, want)
        images = ke.masked_distance(
            *(x[..., None, None].expand(2, 3, 4, 4) for x in (prob, target)), threshold=columns
        )
        torch.testing.assert_close(images, want[..., None, None].expand(2, 3, 4, 4))

    @pytest.mark.parametrize(
        "function",
        [ke.masked_distance, ke.adjuster_weight, ke.hard_adjuster, ke.windowed_adjuster],
    )
    def test_what_would_be_broadcast_is_refused(self, function):
        with pytest.raises(ValueError, match=r"equal shapes, got \(8, 1\) and \(8,\)"):
            function(torch.rand(8, 1), torch.ones(8))
        with pytest.raises(
            ValueError, match=r"one per column, or broadcast: got \(2,\) for \(8, 3\)"
        ):
            function(torch.rand(8, 3), torch.ones(8, 3), threshold=torch.tensor([0.3, 0.5]))

    @pytest.mark.parametrize("function", [ke.hard_adjuster, ke.windowed_adjuster])
    def test_the_limits_take_a_threshold_per_column(self, function):
        prob, target = torch.linspace(0, 1, 54).view(2, 3, 3, 3), torch.ones(2, 3, 3, 3)
        columns = (0.2, 0.5, 0.8)
        got = function(prob, target, threshold=torch.tensor(columns))
        for number, threshold in enumerate(columns):
            want = function(prob[:, number], target[:, number], threshold=threshold)
            assert torch.equal(got[:, number], want)


class TestManyValued:
    @given(p=unit, y=st.integers(0, 1))
    def test_two_classes_are_the_binary_distance(self, p, y):
        got = ke.class_margin(f64([[1 - p, p]]), torch.tensor([y]))
        want = ke.masked_distance(f64(p), f64(float(y)), threshold=0.5)
        assert float(got) == pytest.approx(float(want), abs=1e-12)

    @given(p=unit, y=st.integers(0, 1), t=thresholds)
    def test_one_boundary_is_the_binary_distance(self, p, y, t):
        got = ke.bin_distance(f64([p]), torch.tensor([y]), thresholds=[t])
        want = ke.masked_distance(f64(p), f64(float(y)), threshold=t)
        assert float(got) == pytest.approx(float(want), abs=1e-12)

    def test_class_margin_by_hand(self):
        prob = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
        got = ke.class_margin(prob, torch.tensor([1, 2, 0]))
        torch.testing.assert_close(got, torch.tensor([0.1, -0.1, 0.0]))

    def test_bin_distance_by_hand(self):
        value = torch.tensor([0.1, 0.3, 0.55, 0.9, 0.9])
        bins = torch.tensor([0, 1, 1, 2, 0])
        got = ke.bin_distance(value, bins, thresholds=(0.2, 0.6))
        torch.testing.assert_close(got, torch.tensor([0.1, 0.1, 0.05, 0.3, -0.7]))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: ke.distance_weight(x, window=0), r"window must be > 0.*hard_adjuster\(\)"),
        (lambda x: ke.distance_weight(x, window=-0.2), "window must be > 0 and finite, got -0.2"),
        (lambda x: ke.distance_weight(x, window=math.nan), "window must be > 0"),
        (lambda x: ke.distance_weight(x, decay=-1), "decay must be >= 0"),
        (lambda x: ke.distance_weight(x, decay=math.inf), r"windowed_adjuster\(\)"),
        (lambda x: ke.power_weight(x, power=0.5), "power must be >= 1"),
        (lambda x: ke.cosine_weight(x, window=0), "window must be > 0"),
        (lambda x: ke.extended_weight(x, ke.cosine_weight, window=0), "window must be > 0"),
    ],
)
def test_bad_settings(call, says):
    with pytest.raises(ValueError, match=says):
        call(torch.zeros(3))
