"""What holds for every registered model: one class, run for each of them."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from knifeedge.models import create_model, model_names

SIZE = (33, 47)


def make_images(*size: int, n: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, *size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=model_names())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def shared(name):
    """The model with He weights: the paper's own let some outputs start within 1e-5 of 0."""
    torch.manual_seed(0)
    model = create_model(name)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model


@pytest.fixture
def model(shared):
    shared.zero_grad(set_to_none=True)
    return shared.eval()


def close(got: list[torch.Tensor], want: list[torch.Tensor], tolerance: float) -> bool:
    """Within `tolerance` of the largest logit."""
    return all(
        (g.float() - w).abs().max() <= tolerance * w.abs().max()
        for g, w in zip(got, want, strict=True)
    )


def step(
    model: nn.Module, function: Callable[[torch.Tensor], list[torch.Tensor]], images: torch.Tensor
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Logits, and gradients by parameter, of the model through a function that stands for it."""
    model.zero_grad(set_to_none=True)
    logits = function(images)
    signs = make_images(*images.shape[-2:], n=len(images), seed=1)[:, :1].to(images.device)
    (logits[-1] * signs).sum().backward()
    slopes = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    return [logit.detach() for logit in logits], slopes


def near(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> bool:
    """Whether the difference is that small a part of the tensor as a whole."""
    return bool((got - want).norm() <= tolerance * want.norm())


class TestContract:
    @pytest.mark.parametrize("size", [(64, 64), SIZE, (40, 9), (1, 1)])
    def test_returns_logits_of_the_images_size(self, model, size):
        with torch.no_grad():
            outputs = model(make_images(*size, n=2))
        assert isinstance(outputs, list)
        assert all(logit.shape == (2, 1, *size) for logit in outputs)
        assert all(logit.isfinite().all() for logit in outputs)
        assert outputs[-1].unique().numel() > 1, "the final output is constant"

    def test_backward_from_the_final_output_reaches_every_parameter(self, model):
        model.train()
        outputs = model(make_images(*SIZE, n=2))
        (outputs[-1] * make_images(*SIZE, n=2, seed=1)[:, :1]).sum().backward()
        for key, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, f"{key} has no gradient"
                assert parameter.grad.isfinite().all(), key
                assert parameter.grad.any(), f"{key} has a zero gradient"

    @torch.no_grad()
    def test_evaluation_is_deterministic_and_one_image_does_not_change_another(self, model):
        images = make_images(*SIZE, n=2)
        both = model(images)
        assert all(torch.equal(a, b) for a, b in zip(model(images), both, strict=True))
        assert close(model(images[1:]), [logit[1:] for logit in both], 1e-4)

    @torch.no_grad()
    def test_state_round_trip(self, name, model):
        state = load(save(model.state_dict()))
        with torch.device("meta"):
            other = create_model(name).eval()
        other.load_state_dict(state, assign=True)
        images = make_images(*SIZE)
        assert all(torch.equal(a, b) for a, b in zip(other(images), model(images), strict=True))

    def test_compiled_into_one_graph_it_has_the_same_logits_and_gradients(self, model):
        torch._dynamo.reset()
        images = make_images(*SIZE)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        (logits, slopes), (want, wanted) = (step(model, f, images) for f in (compiled, model))
        assert close(logits, want, 1e-4)
        assert slopes.keys() == wanted.keys()
        assert [key for key in wanted if not near(slopes[key], wanted[key], 1e-3)] == []

    @pytest.mark.gpu
    @pytest.mark.slow
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
    def test_compiled_for_a_device_it_has_the_same_gradients(self, model, monkeypatch):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        torch._dynamo.reset()
        model = deepcopy(model).to("cuda", memory_format=torch.channels_last)
        images = make_images(64, 64, n=2).cuda().contiguous(memory_format=torch.channels_last)
        compiled = torch.compile(model, dynamic=False)
        slopes, wanted = (step(model, f, images)[1] for f in (compiled, model))
        assert slopes.keys() == wanted.keys()
        assert [key for key in wanted if not near(slopes[key], wanted[key], 1e-2)] == []

    def test_bfloat16_autocast(self, model):
        images = make_images(*SIZE)
        with torch.no_grad():
            want = model(images)
        with torch.autocast("cpu", torch.bfloat16):
            got = model(images)
        assert close(got, want, 0.05)
        got[-1].float().sum().backward()
        assert all(
            p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all())
            for p in model.parameters()
        )

    @torch.no_grad()
    def test_channels_last_equals_contiguous(self, model):
        images = make_images(*SIZE, n=2)
        want = model(images)
        model.to(memory_format=torch.channels_last)
        got = model(images.contiguous(memory_format=torch.channels_last))
        model.to(memory_format=torch.contiguous_format)
        assert close(got, want, 1e-4)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (torch.zeros(3, 8, 8), r"\(N, 3, H, W\), got \(3, 8, 8\)"),
            (torch.zeros(1, 1, 8, 8), r"\(N, 3, H, W\), got \(1, 1, 8, 8\)"),
            (torch.zeros(1, 3, 0, 8), "must not be empty"),
            (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), r"floating point, got torch.uint8"),
        ],
    )
    def test_refuses_what_is_no_batch_of_images(self, model, images, message):
        with pytest.raises(ValueError, match=message):
            model(images)


@pytest.mark.parametrize("name", ["tiny", "hed", "bdcn", "dexined"])
def test_the_seed_decides_the_weights(name):
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(create_model(name).state_dict())
    same, other = ([torch.equal(s[k], states[0][k]) for k in s] for s in states[1:])
    assert all(same)
    assert not all(other)


@pytest.mark.slow
def test_tiny_compiles_to_machine_code():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = create_model("tiny").eval()
    images = make_images(*SIZE)
    with torch.no_grad():
        assert close(torch.compile(model, fullgraph=True)(images), model(images), 1e-4)
