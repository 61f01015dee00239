"""The one-line change: an ordinary PyTorch segmentation loop, with BCE and with BAA.

Thin curves in noise, made by code. Everything but the line marked below is the same.

    python examples/segmentation.py
"""

import torch
from torch import Tensor, nn

import knifeedge as ke


def make_images(count: int, seed: int, size: int = 48) -> tuple[Tensor, Tensor]:
    """Circles one pixel thick (about 5 % of the pixels), blurred by noise."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.arange(size, dtype=torch.float32)
    centre = torch.rand(count, 2, 1, 1, generator=generator) * size
    radius = 8 + 16 * torch.rand(count, 1, 1, generator=generator)
    distance = torch.hypot(grid[:, None] - centre[:, 0], grid[None, :] - centre[:, 1])
    target = ((distance - radius).abs() < 0.6).float().unsqueeze(1)
    noise = torch.randn(count, 1, size, size, generator=generator)
    return target + 0.5 * noise, target


def train(loss: nn.Module, steps: int = 240, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 12, 5, padding=2), nn.ReLU()]
    layers += [nn.Conv2d(12, 12, 5, padding=4, dilation=2), nn.ReLU(), nn.Conv2d(12, 1, 1)]
    model = nn.Sequential(*layers)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        image, target = make_images(8, seed=seed * steps + step)
        optimiser.zero_grad()
        loss(model(image), target).backward()
        optimiser.step()
    return model


def f_score(pred: Tensor, target: Tensor) -> float:
    hits = (pred & (target > 0.5)).sum()
    return float(2 * hits / (pred.sum() + target.sum()))


def main(steps: int = 240) -> dict[str, float]:
    before = nn.BCEWithLogitsLoss()
    after = ke.AdjustedLoss(ke.WBCELoss(), threshold=0.7)  # <- the one line
    scores = {}
    for name, loss in {"BCE": before, "BAA-WBCE": after}.items():
        model = train(loss, steps)
        image, target = make_images(16, seed=10_000)
        with torch.no_grad():
            prob = model(image).sigmoid()
        # Each loss is judged where its user would cut: at 0.5, or at the adjuster's threshold.
        scores[name] = f_score(prob >= (0.5 if name == "BCE" else 0.7), target)
        print(f"{name:>9}: F = {scores[name]:.3f}")
    return scores


if __name__ == "__main__":
    main()
