"""EES3: what is chosen from, what is frozen, and that the attention counts."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from knifeedge.errors import CheckpointError
from knifeedge.models import EES, HED, create_model, mix
from knifeedge.models.ees import PROBABILITY_MARGIN
from knifeedge.models.selector import ATTENTION_LEVELS, Attention, Selector


@pytest.fixture(scope="module")
def ees3():
    torch.manual_seed(0)
    return create_model("ees3-double")


def small_ees() -> EES:
    torch.manual_seed(0)
    return EES({"a": HED(side_channels=2), "b": HED(side_channels=1)})


def naive_mix(scores: torch.Tensor, features: list[torch.Tensor]) -> torch.Tensor:
    """As the paper says it: everything side by side, softmax, product, sum."""
    planes = []
    for block in features:
        zero = torch.zeros_like(block[:, :1])
        planes += [zero, block, zero + 1]
    return (torch.cat(planes, dim=1) * F.softmax(scores, dim=1)).sum(1, keepdim=True)


def blocks(*channels: int, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(2, c, 3, 4, generator=generator, dtype=dtype) for c in channels]


class TestMix:
    @pytest.mark.parametrize("channels", [(3,), (3, 5), (2, 4, 1)])
    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    def test_equals_the_naive_one_in_value_and_gradient(self, channels, layout):
        features = blocks(*channels)
        scores = torch.randn(2, sum(channels) + 2 * len(channels), 3, 4, dtype=torch.float64)
        scores = scores.contiguous(memory_format=layout)
        grads = []
        for function in (mix, naive_mix):
            leaf = scores.clone().requires_grad_()
            value = function(leaf, features)
            (value**2).sum().backward()
            grads.append((value.detach(), leaf.grad))
        for got, want in zip(*grads, strict=True):
            torch.testing.assert_close(got, want)

    def test_gradcheck(self):
        features = blocks(2, 3)
        scores = torch.randn(2, 9, 3, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda s: mix(s, features), (scores,))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_compiled_it_has_the_same_gradient(self, dtype):
        """PyTorch 2.11 compiles none into a Function whose result was changed in place."""
        torch._dynamo.reset()
        features, slopes = blocks(2, 3, dtype=dtype), []
        scores = torch.randn(2, 9, 3, 4).to(dtype)
        for function in (mix, torch.compile(mix, fullgraph=True, backend="aot_eager")):
            leaf = scores.clone().requires_grad_()
            (function(leaf, features) ** 2).sum().backward()
            slopes.append(leaf.grad)
        torch.testing.assert_close(slopes[1], slopes[0])

    def test_half_precision_is_summed_in_float32(self):
        features = blocks(100, dtype=torch.bfloat16)
        scores = torch.randn(2, 102, 3, 4).bfloat16().requires_grad_()
        got = mix(scores, features)
        assert got.dtype == torch.float32
        want = naive_mix(scores.detach().double(), [f.double() for f in features])
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-6)
        got.sum().backward()
        assert scores.grad is not None
        assert scores.grad.dtype == torch.bfloat16

    def test_the_backward_pass_keeps_one_tensor_of_weights(self):
        features = blocks(6, 4, dtype=torch.float32)
        scores = torch.randn(2, 14, 3, 4, requires_grad=True)
        kept: dict[int, int] = {}

        def pack(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            mean = mix(scores, features)
        held = sum(kept.values()) - sum(f.untyped_storage().nbytes() for f in features)
        assert held == scores.nbytes + mean.nbytes


class TestEES3:
    def test_chooses_from_447_channels_in_the_papers_order(self, ees3):
        assert list(ees3.extractors) == ["dexined", "bdcn", "hed"]
        features = ees3.features(torch.randn(1, 3, 33, 35))
        assert [f.shape[1] + 2 for f in features] == [128, 212, 107]
        assert ees3.selector.head[-1].out_channels == 447

    @torch.no_grad()
    def test_features_are_sigmoids_of_the_side_maps(self, ees3):
        images = torch.randn(1, 3, 33, 35)
        for extractor, feature in zip(ees3.extractors.values(), ees3.features(images), strict=True):
            want = torch.cat([s.sigmoid() for s in extractor.side_maps(images)], dim=1)
            torch.testing.assert_close(feature, want)

    @torch.no_grad()
    def test_the_logit_is_that_of_the_papers_probability(self, ees3):
        ees3.eval()
        images = torch.randn(1, 3, 33, 35)
        (logit,) = ees3(images)
        want = naive_mix(ees3.selector(images), ees3.features(images)).clamp(0, 1)
        torch.testing.assert_close(logit.sigmoid(), want, rtol=0, atol=2 * PROBABILITY_MARGIN)

    def test_only_the_selector_learns(self, ees3):
        ees3.train()
        assert not any(p.requires_grad for p in ees3.extractors.parameters())
        assert not any(m.training for m in ees3.extractors.modules())
        assert ees3.selector.training
        before = [b.clone() for b in ees3.extractors.buffers()]
        ees3(torch.randn(2, 3, 32, 32))[-1].sum().backward()
        after = list(ees3.extractors.buffers())
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert all(p.grad is None for p in ees3.extractors.parameters())


def test_logits_and_gradients_are_finite_where_the_probability_is_0_or_1():
    model = small_ees()
    images = torch.randn(2, 3, 32, 32)
    for end in (0, 1):
        last = model.selector.head[-1]
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, -1e4)
        last.bias.data[0 if end == 0 else -1] = 1e4  # all on a constant plane
        model.zero_grad()
        (logit,) = model(images)
        assert logit.isfinite().all()
        assert (logit.sigmoid() - end).abs().max() < 2 * PROBABILITY_MARGIN
        F.binary_cross_entropy_with_logits(logit, torch.full_like(logit, 1 - end)).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_wrong_certain_probability_still_has_a_gradient():
    """A clamp would leave it without one."""
    prob = torch.tensor([0.0, 1.0], requires_grad=True)
    logit = torch.logit(PROBABILITY_MARGIN + (1 - 2 * PROBABILITY_MARGIN) * prob)
    F.binary_cross_entropy_with_logits(logit, torch.tensor([1.0, 0.0])).backward()
    assert prob.grad is not None
    assert prob.grad[0] < 0 < prob.grad[1]


class TestExtractorWeights:
    def test_are_loaded(self, tmp_path):
        torch.manual_seed(1)
        hed = create_model("hed", side_channels=21)
        torch.save(hed.state_dict(), tmp_path / "hed.pth")
        model = create_model("ees3-double", hed=tmp_path / "hed.pth")
        loaded = model.extractors["hed"].state_dict()
        assert all(torch.equal(v, loaded[k]) for k, v in hed.state_dict().items())

    def test_of_another_model_are_refused(self, tmp_path):
        torch.save(create_model("tiny").state_dict(), tmp_path / "tiny.pth")
        with pytest.raises(CheckpointError, match=r"tiny.pth does not fit HED: .* same options\?"):
            create_model("ees3-double", hed=tmp_path / "tiny.pth")


def test_attention_reaches_the_output():
    torch.manual_seed(0)
    selector = Selector(5, attention=True)
    assert [isinstance(a, Attention) for a in selector.attention] == [False, False, True, True]
    assert ATTENTION_LEVELS == (3, 4)
    scores = selector(torch.randn(1, 3, 48, 32))
    assert scores.shape == (1, 5, 48, 32)
    (scores**2).sum().backward()
    for name, parameter in selector.attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@torch.no_grad()
def test_attention_has_no_position_code():
    """It sees a set of places: rearranging them rearranges the result."""
    torch.manual_seed(0)
    attention = Attention(16).eval()
    x = torch.randn(2, 16, 3, 5)
    order = torch.randperm(15)
    shuffled = x.flatten(2)[..., order].reshape(x.shape)
    want = attention(x).flatten(2)[..., order].reshape(x.shape)
    torch.testing.assert_close(attention(shuffled), want, rtol=1e-4, atol=1e-5)
