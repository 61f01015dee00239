"""The fused kernels against the losses as they are written, in float64.

They run on a CUDA device, or in Triton's interpreter: TRITON_INTERPRET=1 with Triton installed.
"""

import os

import pytest
import torch

import knifeedge as ke
from knifeedge.losses import fused, kernels
from knifeedge.losses.reduction import Terms
from waiting import no_waiting

INTERPRETED = kernels.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

on_a_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
anywhere = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(),
    reason="there is no CUDA device, and Triton's interpreter is not chosen",
)

LOSSES = {
    "bce": ke.BCELoss,
    "wbce": ke.WBCELoss,
    "wbce with a balance": lambda **o: ke.WBCELoss(balance=0.4, **o),
    "baa-bce": lambda **o: ke.AdjustedLoss(ke.BCELoss(), 0.4, **o),
    "baa-wbce": lambda **o: ke.AdjustedLoss(ke.WBCELoss(), **o),
    "detached": lambda **o: ke.AdjustedLoss(ke.WBCELoss(), detach_weight=True, **o),
    "without delta": lambda **o: ke.AdjustedLoss(ke.WBCELoss(), window=0.6, delta=0.0, **o),
    **{
        f"decay {decay}": lambda decay=decay, **o: ke.AdjustedLoss(ke.WBCELoss(), decay=decay, **o)
        for decay in (0.0, 1e-6, 0.04, 0.06, 1.2, 1.3, 100.0)
    },
}


def logits(shape=(3, 1, 21, 37), scale=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator)


def labels(kind="hard", shape=(3, 1, 21, 37), seed=1):
    share = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    return share if kind == "soft" else (share < 0.2).float()


def some(shape=(3, 1, 21, 37), seed=2):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6


def run(loss, pred, target, mask=None, upstream=1.0):
    """Value and gradient by the kernels, as CPU tensors."""
    pred = pred.detach().to(DEVICE, copy=True).requires_grad_()
    target, mask = target.to(DEVICE), None if mask is None else mask.to(DEVICE)
    mean = loss.reduction == "mean"
    value = fused.fused_loss(pred, target, mask, loss.to(DEVICE).terms(), mean=mean)
    (upstream * value).backward()
    return value.detach().cpu(), pred.grad.cpu()


def reference(loss, pred, target, mask=None, upstream=1.0):
    pred = pred.detach().double().requires_grad_()
    value = loss.cpu()(pred, target, mask=mask)
    (upstream * value).backward()
    return value.detach(), pred.grad


def agree(loss, pred, target, mask=None, upstream=1.0, tolerance=1e-5):
    value, gradient = run(loss, pred, target, mask, upstream)
    wanted, slope = reference(loss, pred, target, mask, upstream)
    assert value.dtype == torch.float32
    assert gradient.dtype == pred.dtype
    assert float(value) == pytest.approx(float(wanted), rel=tolerance)
    assert (gradient.double() - slope).norm() <= tolerance * slope.norm()


@pytest.mark.gpu
@anywhere
class TestValuesAndGradients:
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("kind", ["hard", "soft"])
    @pytest.mark.parametrize("name", LOSSES)
    def test_the_mean(self, name, kind, masked):
        agree(LOSSES[name](), logits(), labels(kind), some() if masked else None)

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("name", ["bce", "wbce", "baa-wbce"])
    def test_the_sum(self, name, masked):
        agree(LOSSES[name](reduction="sum"), logits(), labels(), some() if masked else None)

    @pytest.mark.parametrize("masked", [False, True])
    def test_many_blocks_a_program(self, monkeypatch, masked):
        monkeypatch.setattr(fused, "BLOCK", 64)
        monkeypatch.setattr(fused, "PROGRAMS", 5)
        agree(LOSSES["baa-wbce"](), logits(), labels("soft"), some() if masked else None)

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("programs", [1, 2, 7, 1000])
    def test_any_number_of_programs(self, monkeypatch, programs, masked, reduction):
        """1000: a program for each of the 146 blocks, whose sums are taken 16 at a time."""
        monkeypatch.setattr(fused, "BLOCK", 16)
        monkeypatch.setattr(fused, "PROGRAMS", programs)
        loss = LOSSES["baa-wbce"](reduction=reduction)
        agree(loss, logits(), labels("soft"), some() if masked else None)

    def test_places_in_64_bits(self, monkeypatch):
        monkeypatch.setattr(fused, "LONG_FROM", 0)
        agree(LOSSES["baa-wbce"](), logits(), labels("soft"))

    @pytest.mark.parametrize("shape", [(), (1,), (16,), (1023,), (1025,)])
    def test_any_number_of_elements(self, shape):
        agree(LOSSES["baa-wbce"](), logits(shape), labels("soft", shape))

    @pytest.mark.parametrize("sure", [5.0, 12.0, 20.0])
    def test_small_losses_keep_their_digits(self, sure):
        target = labels()
        pred = (2 * target - 1) * (sure + logits(scale=0.1))
        agree(LOSSES["bce"](), pred, target)
        agree(LOSSES["baa-wbce"](), pred, target)

    def test_a_wrong_and_sure_prediction(self):
        target = labels()
        agree(LOSSES["baa-wbce"](), (1 - 2 * target) * 1e4, target)

    @pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's NumPy
    @pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
    @pytest.mark.parametrize("label", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("name", ["bce", "baa-bce", "detached"])
    def test_what_is_not_finite_is_not_finite(self, name, label, value):
        pred, target = torch.tensor([value, 0.5]), torch.tensor([label, 1.0])
        both = (f(LOSSES[name](), pred, target) for f in (run, reference))
        for got, wanted in zip(*both, strict=True):
            assert torch.equal(got.isfinite(), wanted.isfinite())
            torch.testing.assert_close(got[got.isfinite()].double(), wanted[wanted.isfinite()])

    @pytest.mark.parametrize("decay", [0.0, 0.04, 1.0, 16.0])
    def test_a_prediction_in_the_threshold_itself(self, decay):
        """As a network begins whose last layer is 0."""
        loss = ke.AdjustedLoss(ke.WBCELoss(), 0.5, decay=decay)
        agree(loss, torch.zeros(40), labels(shape=(40,)))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype):
        """What is rounded is the gradient, and nothing before it."""
        pred, target, loss = logits().to(dtype), labels("soft"), LOSSES["baa-wbce"]()
        value, gradient = run(loss, pred, target)
        wanted, slope = reference(loss, pred, target)
        assert gradient.dtype == dtype
        assert float(value) == pytest.approx(float(wanted), rel=1e-5)
        error = (gradient.double() - slope).abs()
        assert (error <= torch.finfo(dtype).eps * slope.abs() + 6e-8).all()

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
    def test_labels_of_any_dtype(self, dtype):
        agree(LOSSES["baa-wbce"](), logits(), labels().to(dtype))

    def test_tensors_with_gaps(self):
        pred, target, mask = (x[..., ::2] for x in (logits(), labels("soft"), some()))
        agree(LOSSES["baa-wbce"](), pred, target, mask)

    def test_the_gradient_from_above(self):
        agree(LOSSES["baa-wbce"](), logits(), labels(), upstream=-2.5)

    def test_without_positives_and_without_negatives(self):
        for target in (torch.zeros(50), torch.ones(50)):
            agree(LOSSES["baa-bce"](), logits((50,)), target)
        value, gradient = run(LOSSES["wbce"](), logits((50,)), torch.zeros(50))
        assert value == 0
        assert not gradient.any()

    def test_an_empty_mask_gives_0(self):
        nothing = torch.zeros_like(some())
        value, gradient = run(LOSSES["baa-wbce"](), logits(), labels(), nothing)
        assert value == 0
        assert not gradient.any()

    def test_what_is_masked_is_not_seen(self):
        pred, target, mask = logits(), labels(), some()
        before = run(LOSSES["baa-wbce"](), pred, target, mask)
        dirty = run(
            LOSSES["baa-wbce"](), pred.where(mask, torch.nan), target.where(mask, 255.0), mask
        )
        for clean, other in zip(before, dirty, strict=True):
            assert torch.equal(clean, other)

    def test_the_same_bits_again(self):
        first, second = (run(LOSSES["baa-wbce"](), logits(), labels()) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    def test_a_threshold_that_moves(self):
        """It is read on the device, and the way back has the one of the way there."""
        threshold = torch.tensor(0.35, device=DEVICE)
        pred = logits().to(DEVICE).requires_grad_()
        target = labels().to(DEVICE)
        value = fused.fused_loss(pred, target, None, Terms(1.1, threshold), mean=True)
        threshold.fill_(0.8)
        value.backward()
        wanted, slope = reference(ke.AdjustedLoss(ke.WBCELoss(), 0.35), logits(), labels())
        assert float(value.detach()) == pytest.approx(float(wanted), rel=1e-5)
        assert (pred.grad.cpu().double() - slope).norm() <= 1e-5 * slope.norm()

    @pytest.mark.parametrize("step", [1, 2])
    def test_a_second_derivative_is_refused(self, step):
        """Whatever is added to it, as in a penalty on the gradient."""
        pred, target = (
            logits((50,))[::step].to(DEVICE).requires_grad_(),
            labels(shape=(50,))[::step],
        )
        value = fused.fused_loss(pred, target.to(DEVICE), None, Terms(), mean=True)
        (slope,) = torch.autograd.grad(value, pred, create_graph=True)
        _, wanted = reference(ke.BCELoss(), logits((50,))[::step], target)
        assert (slope.detach().cpu().double() - wanted).norm() <= 1e-5 * wanted.norm()
        with pytest.raises(RuntimeError, match='second ones take it with reduction="none"'):
            (value + slope.square().sum()).backward()

    def test_without_gradients(self):
        pred, target = logits().to(DEVICE), labels().to(DEVICE)
        value = fused.fused_loss(pred, target, None, Terms(1.1, 0.7), mean=True)
        assert not value.requires_grad
        wanted, _ = reference(LOSSES["baa-wbce"](), logits(), labels())
        assert float(value) == pytest.approx(float(wanted), rel=1e-5)


@pytest.mark.gpu
@anywhere
class TestWhoIsLast:
    """The last program of a launch finishes; a counter tells it."""

    def test_counters_are_left_at_0_and_used_again(self, monkeypatch):
        monkeypatch.setattr(fused, "BLOCK", 64)
        monkeypatch.setattr(fused, "COUNTERS", 3)
        pred, target = logits((300,)).to(DEVICE), labels(shape=(300,)).to(DEVICE)
        terms = Terms(1.1, 0.7)
        values = [fused.fused_loss(pred, target, None, terms, mean=True) for _ in range(100)]
        assert len({float(value) for value in values}) == 1
        counters, _ = fused._counters(pred.device)
        assert not counters.any()
        wanted, _ = reference(LOSSES["baa-wbce"](), logits((300,)), labels(shape=(300,)))
        assert float(values[0]) == pytest.approx(float(wanted), rel=1e-5)

    def test_launches_take_turns(self):
        device = torch.empty(0, device=DEVICE).device
        places = [fused._counter(device)[1] for _ in range(fused.COUNTERS)]
        assert sorted(places) == list(range(fused.COUNTERS))

    @pytest.mark.parametrize("masked", [False, True])
    def test_the_same_bits_whoever_it_is(self, masked):
        """With all sums there already, a counter that is ahead has another program finish."""
        pred, target = logits().to(DEVICE), labels("soft").to(DEVICE)
        mask, n = some().to(DEVICE) if masked else None, pred.numel()
        programs = -(-n // 32)
        sums, losses = torch.zeros(4 * programs + 4, device=DEVICE), set()
        for ahead in (0, 1, 20, programs - 1):
            loss = torch.full((), torch.nan, device=DEVICE)
            counter = torch.full((1,), ahead, dtype=torch.int32, device=DEVICE)
            kernels.sum_up[(programs,)](
                *(pred, target, mask, 0.7, 1.1, sums, loss, counter, 0, n),
                *fused._settings(0.2, 16.0, 1.0),
                *(False, True, False, 32),
            )
            # It counts those behind the program that finished, from when it was set to 0 again.
            assert 0 <= int(counter) <= ahead
            losses.add((float(loss), *sums[:2].tolist()))
        assert len(losses) == 1
        wanted, _ = reference(
            LOSSES["baa-wbce"](), logits(), labels("soft"), some() if masked else None
        )
        assert losses.pop()[0] == pytest.approx(float(wanted), rel=1e-5)


class TestTerms:
    """What the kernels are told; that needs no device."""

    def test_of_a_loss(self):
        assert ke.BCELoss().terms() == Terms()
        assert ke.WBCELoss(balance=2.0).terms() == Terms(2.0)
        settings = {"window": 0.3, "decay": 4.0, "delta": 0.5, "detach_weight": True}
        adjusted = ke.AdjustedLoss(ke.WBCELoss(), 0.6, **settings)
        assert adjusted.terms() == Terms(1.1, 0.6, **settings)

    def test_defaults_are_the_loss_s(self):
        assert ke.AdjustedLoss(ke.WBCELoss()).terms() == Terms(1.1, 0.7)

    def test_other_losses_have_none(self):
        class Own(ke.WBCELoss):
            def values(self, pred, target, mask):
                return (pred - target) ** 2

        for base in (ke.SWBCELoss(), ke.FocalLoss(), ke.EBTLoss(), Own()):
            assert base.terms() is None
            assert ke.AdjustedLoss(base).terms() is None
        foreign = torch.nn.BCEWithLogitsLoss(reduction="none")
        assert ke.AdjustedLoss(foreign).terms() is None
        assert ke.AdjustedLoss(ke.WBCELoss(), weight=ke.cosine_weight).terms() is None
        assert ke.AdjustedLoss(ke.AdjustedLoss(ke.WBCELoss())).terms() is None

    def test_an_online_threshold_is_read_where_it_is(self):
        online = ke.OnlineThreshold()
        assert ke.AdjustedLoss(ke.WBCELoss(), online).terms().threshold is online.value

    def test_what_they_do_alone(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(fused, "_works", lambda device: True)
        for loss in (ke.BCELoss(), ke.WBCELoss(), ke.AdjustedLoss(ke.WBCELoss(), 0.6)):
            assert fused.covers(loss)
        for loss in (
            ke.WBCELoss(from_logits=False),
            ke.WBCELoss(reduction="none"),
            ke.FocalLoss(),
            ke.AdjustedLoss(ke.WBCELoss(), "online"),
            ke.AdjustedLoss(ke.WBCELoss(), [0.4, 0.6]),
            torch.nn.BCEWithLogitsLoss(),
        ):
            assert not fused.covers(loss)
        monkeypatch.setattr(fused, "_works", lambda device: False)
        assert not fused.covers(ke.WBCELoss())

    def test_nothing_is_taken_on_a_cpu(self):
        assert not fused.takes(logits(), labels(), None, Terms())


@anywhere
def test_the_trial_accepts_the_kernels():
    assert fused._is_right(torch.device(DEVICE))


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.001, False)])
def test_the_trial_finds_kernels_that_are_wrong(monkeypatch, factor, right):
    def stand_in(pred, target, mask, terms, *, mean):
        return factor * torch.nn.functional.binary_cross_entropy_with_logits(pred, target)

    monkeypatch.setattr(fused, "fused_loss", stand_in)
    assert fused._is_right(torch.device("cpu")) is right


@pytest.mark.gpu
@on_a_device
class TestOnADevice:
    @pytest.fixture
    def calls(self, monkeypatch):
        """How often the kernels were asked."""
        found, original = [], fused.fused_loss
        assert fused.takes(logits().cuda(), labels().cuda(), None, Terms())  # tried before counting

        def counted(*args, **options):
            found.append(args)
            return original(*args, **options)

        monkeypatch.setattr(fused, "fused_loss", counted)
        return found

    @pytest.mark.parametrize("name", LOSSES)
    def test_a_loss_takes_them_and_nothing_waits(self, name, calls):
        loss, pred, target = (
            LOSSES[name]().cuda(),
            logits().cuda().requires_grad_(),
            labels().cuda(),
        )
        with no_waiting():
            value = loss(pred, target)
            value.backward()
        assert len(calls) == 1
        wanted, slope = reference(LOSSES[name](), logits(), labels())
        assert float(value) == pytest.approx(float(wanted), rel=1e-5)
        assert (pred.grad.cpu().double() - slope).norm() <= 1e-5 * slope.norm()

    def test_the_functions_take_them(self, calls):
        pred, target = logits().cuda(), labels().cuda()[:, 0]
        ke.bce_loss(pred, target)
        ke.wbce_loss(pred, target, mask=some().cuda().float()[:, 0])
        assert len(calls) == 2

    def test_where_they_are_not_taken(self, calls):
        loss, pred, target = ke.WBCELoss(), logits().cuda(), labels().cuda()
        loss(pred.double(), target)
        loss(pred, target.clone().requires_grad_())
        loss(pred[:0], target[:0])
        ke.WBCELoss(reduction="none")(pred, target)
        ke.WBCELoss(from_logits=False)(pred.sigmoid(), target)
        ke.SWBCELoss()(pred, target)
        columns = ke.AdjustedLoss(loss, [0.5, 0.6]).cuda()
        columns(pred.reshape(-1, 1).expand(-1, 2), target.reshape(-1, 1).expand(-1, 2))
        torch.func.grad(loss)(pred, target)
        torch.compile(loss)(pred, target)
        assert not calls

    def test_a_graph_holds_them(self):
        loss, pred, target = ke.AdjustedLoss(ke.WBCELoss()), logits().cuda(), labels().cuda()
        pred.requires_grad_()

        def step():
            pred.grad = None
            value = loss(pred, target)
            value.backward()
            return value.detach()

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            value = step()
        for seed in (5, 6, 7):
            with torch.no_grad():
                pred.copy_(logits(seed=seed))
            target.copy_(labels(seed=seed + 10))
            graph.replay()
            wanted, slope = reference(loss, logits(seed=seed), labels(seed=seed + 10))
            assert float(value) == pytest.approx(float(wanted), rel=1e-5)
            assert (pred.grad.cpu().double() - slope).norm() <= 1e-5 * slope.norm()
        assert not fused._counters(pred.device)[0].any()

    def test_two_streams_at_once(self):
        """Launches of hundreds of programs each, which run beside one another."""
        loss, shape = ke.AdjustedLoss(ke.WBCELoss()), (4, 1, 300, 300)
        inputs = [
            (logits(shape, seed=i).cuda(), labels(shape=shape, seed=i).cuda()) for i in (0, 1)
        ]
        alone = [loss(*each) for each in inputs]
        torch.cuda.synchronize()
        streams, found = [torch.cuda.Stream() for _ in inputs], ([], [])
        for _ in range(200):
            for each, stream, values in zip(inputs, streams, found, strict=True):
                with torch.cuda.stream(stream):
                    values.append(loss(*each))
        torch.cuda.synchronize()
        for value, values in zip(alone, found, strict=True):
            assert (torch.stack(values) == value).all()
        assert not fused._counters(value.device)[0].any()

    def test_without_triton_the_loss_is_the_same(self, monkeypatch):
        pred, target = logits().cuda(), labels().cuda()
        with_kernels = ke.wbce_loss(pred, target)
        monkeypatch.setattr(fused, "takes", lambda *_: False)
        torch.testing.assert_close(ke.wbce_loss(pred, target), with_kernels)

    def test_a_triton_that_does_not_work_is_said_once(self, monkeypatch):
        def broken(*_, **__):
            raise RuntimeError("Failed to find C compiler.\nAnd more.")

        fused._works.cache_clear()
        monkeypatch.setattr(fused, "fused_loss", broken)
        pred, target = logits().cuda(), labels().cuda()
        with pytest.warns(UserWarning, match=r"without their fused kernels: Failed to find C"):
            first = ke.wbce_loss(pred, target)
        assert torch.equal(ke.wbce_loss(pred, target), first)
        fused._works.cache_clear()
