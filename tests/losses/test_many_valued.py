"""K classes and ordered bins: both are the binary loss where there are two outcomes."""

import pytest
import torch
from torch import nn

import knifeedge as ke

LOGITS = torch.linspace(-4, 4, 33, dtype=torch.float64)
LABELS = torch.arange(33) % 3 % 2


def gradient(loss, x):
    return torch.autograd.grad(loss, x)[0]


def test_two_classes_are_the_binary_loss():
    x = LOGITS.clone().requires_grad_()
    binary = ke.AdjustedLoss(ke.BCELoss(), threshold=0.5)(x, LABELS)
    two = torch.stack([torch.zeros_like(x), x], dim=1)
    classes = ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"))(two, LABELS)
    torch.testing.assert_close(classes, binary)
    torch.testing.assert_close(gradient(classes, x), gradient(binary, x))


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_one_boundary_is_the_binary_loss(threshold):
    x = LOGITS.sigmoid().requires_grad_()
    base = nn.BCELoss(reduction="none")
    binary = ke.AdjustedLoss(base, threshold=threshold)(x, LABELS)
    bins = ke.AdjustedBinLoss(base, thresholds=[threshold])(x, LABELS.double())
    torch.testing.assert_close(bins, binary, atol=1e-7, rtol=0)
    torch.testing.assert_close(gradient(bins, x), gradient(binary, x), atol=1e-6, rtol=0)


def test_classes_of_images():
    logits = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))
    target = torch.randint(0, 4, (2, 5, 6), generator=torch.Generator().manual_seed(1))
    loss = ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"), reduction="none")
    weight = ke.distance_weight(ke.class_margin(logits.softmax(1), target))
    base = nn.functional.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(loss(logits, target), (weight + 1) * base)


def test_a_value_on_a_boundary_belongs_above():
    loss = ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), thresholds=(1.0, 2.0), delta=0.0)
    assert loss(torch.tensor([1.5]), torch.tensor([1.0])) == 0  # inside the right bin by 0.5
    assert loss(torch.tensor([0.9]), torch.tensor([1.0])) > 0


@pytest.mark.parametrize("kind", ["classes", "bins"])
def test_mask_and_half_precision(kind):
    if kind == "classes":
        loss = ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"))
        pred = torch.tensor([[1e4, -1e4, 0.0], [0.0, 1e4, 0.0]], dtype=torch.float16)
        target = torch.tensor([1, 1])
    else:
        loss = ke.AdjustedBinLoss(nn.L1Loss(reduction="none"), thresholds=(0.3, 0.6))
        pred = torch.tensor([0.1, 0.5], dtype=torch.float16)
        target = torch.tensor([0.7, 0.5])
    pred.requires_grad_()
    both = loss(pred, target)
    both.backward()
    assert both.dtype == torch.float32
    assert both.isfinite()
    assert pred.grad.isfinite().all()
    first = loss(pred, target, mask=torch.tensor([True, False]))
    torch.testing.assert_close(first, loss(pred[:1], target[:1]))
    assert loss(pred, target, mask=torch.zeros(2)) == 0


@pytest.mark.parametrize("kind", ["classes", "bins"])
def test_gradcheck_and_compile(kind):
    torch._dynamo.reset()
    if kind == "classes":
        loss = ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"))
        target = torch.tensor([0, 2, 1, 1])
        pred = torch.linspace(-1, 1.3, 12, dtype=torch.float64).sin().reshape(4, 3)
    else:
        loss = ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), thresholds=(0.3, 0.6))
        target = torch.tensor([0.1, 0.4, 0.5, 0.9], dtype=torch.float64)
        pred = torch.tensor([0.12, 0.35, 0.7, 0.65], dtype=torch.float64)
    pred.requires_grad_()
    assert torch.autograd.gradcheck(lambda p: loss(p, target), (pred,))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")(pred, target)
    torch.testing.assert_close(compiled, loss(pred, target))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"))(
                torch.zeros(2, 3), torch.zeros(2, 3)
            ),
            r"class indices \(N, ...\)",
        ),
        (lambda: ke.AdjustedClassLoss(nn.CrossEntropyLoss()), 'reduction="none"'),
        (lambda: ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), (2.0, 1.0)), "increasing"),
        (lambda: ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), ()), "increasing"),
        (
            lambda: ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), (1.0,))(
                torch.zeros(2), torch.zeros(3)
            ),
            "equal shapes",
        ),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match=says):
        call()


@pytest.mark.parametrize("kind", ["classes", "bins"])
def test_a_mask_that_would_be_broadcast_is_refused(kind):
    if kind == "classes":
        loss = ke.AdjustedClassLoss(nn.CrossEntropyLoss(reduction="none"))
        pred, target = torch.randn(4, 3, 5, 5), torch.zeros(4, 5, 5, dtype=torch.long)
    else:
        loss = ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), thresholds=(0.5,))
        pred, target = torch.randn(4, 5, 5), torch.zeros(4, 5, 5)
    with pytest.raises(ValueError, match=r"mask must have equal shapes, got .* \(1, 5, 5\)"):
        loss(pred, target, mask=torch.ones(1, 5, 5))
    with_channel = loss(pred, target, mask=torch.ones(4, 1, 5, 5))
    torch.testing.assert_close(with_channel, loss(pred, target))


@pytest.mark.parametrize("index", [255, -100])
def test_ignored_classes_are_left_out(index):
    base = nn.CrossEntropyLoss(reduction="none", ignore_index=index)
    pred, target = (
        torch.randn(6, 3, generator=torch.Generator().manual_seed(0)),
        torch.arange(6) % 3,
    )
    kept = torch.tensor([True, False, True, True, False, True])
    marked = torch.where(kept, target, index)
    want = ke.AdjustedClassLoss(base)(pred[kept], target[kept])
    torch.testing.assert_close(ke.AdjustedClassLoss(base)(pred, marked), want)
    some = torch.tensor([True, True, True, False, True, True])
    torch.testing.assert_close(
        ke.AdjustedClassLoss(base)(pred, marked, mask=some),
        ke.AdjustedClassLoss(base)(pred[kept & some], target[kept & some]),
    )


@pytest.mark.parametrize("edges", [(float("nan"),), (0.5, float("inf"))])
def test_boundaries_are_finite(edges):
    with pytest.raises(ValueError, match="finite numbers"):
        ke.AdjustedBinLoss(nn.MSELoss(reduction="none"), thresholds=edges)
