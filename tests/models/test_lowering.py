"""The second way to compute a layer gives what the first gives, in value and gradient."""

from collections.abc import Callable, Iterator

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from knifeedge.models import create_model, lowering
from knifeedge.models.lowering import (
    ByEights,
    Score,
    Transposed,
    continue_edges,
    max_pool,
    pointwise,
)
from knifeedge.models.vgg import STAGE_DEPTHS

SIZES = [(8, 10), (7, 9), (8, 5), (4, 4)]
MODELS = [("tiny", None), ("hed", 1), ("bdcn", 1), ("dexined", 1), ("bdcn", 3), ("dexined", 3)]

# Operations whose way back adds atomically on a CUDA device.
ATOMIC = ("scatter_add", "index_put", "pad2d_backward", "pool2d_with_indices_backward")


@pytest.fixture
def switch(monkeypatch) -> Callable[[bool], None]:
    """Turns the second way on and off for every tensor."""
    return lambda on: monkeypatch.setattr(lowering, "lowered", lambda x: on)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def run(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *others: torch.Tensor
) -> list[torch.Tensor]:
    """Its value, and the gradients by `x` and the others of a weighted sum."""
    x = x.clone().requires_grad_()
    y = function(x)
    return [y.detach(), *torch.autograd.grad((y * numbers(*y.shape, seed=9)).sum(), [x, *others])]


def check(switch, function, x, *others) -> None:
    switch(False)
    want = run(function, x, *others)
    switch(True)
    for got, expected in zip(run(function, x, *others), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


class TestLayers:
    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("ceil_mode", [False, True])
    @pytest.mark.parametrize(
        ("kernel", "stride", "padding"), [(2, 2, 0), (2, 1, 0), (3, 2, 1), (3, 3, 1), (2, 3, 1)]
    )
    @pytest.mark.parametrize("ties", [False, True])
    def test_max_pool(self, switch, size, ceil_mode, kernel, stride, padding, ties):
        x = numbers(2, 3, *size)
        x = x.round().clamp(min=0) if ties else x  # after ReLU many are equal
        options = {"stride": stride, "padding": padding, "ceil_mode": ceil_mode}
        check(switch, lambda x: max_pool(x, kernel, **options), x)

    @pytest.mark.parametrize("size", [*SIZES, (1, 1)])
    def test_continue_edges(self, switch, size):
        check(switch, continue_edges, numbers(2, 3, *size))

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("outputs", [1, 2, 3])
    def test_score(self, switch, size, outputs):
        layer = Score(5, outputs).double()
        check(switch, layer, numbers(2, 5, *size), *layer.parameters())
        check(switch, lambda x: pointwise(x, layer.weight), numbers(2, 5, *size), layer.weight)

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("channels", [3, 8, 21])
    @pytest.mark.parametrize("options", [{"padding": 1}, {"stride": 2, "bias": False}])
    def test_by_eights(self, switch, size, channels, options):
        layer = ByEights(channels, 4, 3, **options).double()
        check(switch, layer, numbers(2, channels, *size), *layer.parameters())

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("channels", [(1, 1), (3, 3), (8, 5)])
    @pytest.mark.parametrize(
        ("kernel", "options"),
        [
            (2, {"stride": 2}),
            (4, {"stride": 2, "padding": 1, "output_padding": 1}),
            (8, {"stride": 2, "padding": 3}),
            (8, {"stride": 4, "padding": 6, "bias": False}),
            (6, {"stride": 3, "padding": 2, "output_padding": 2}),
        ],
    )
    def test_transposed(self, switch, size, channels, kernel, options):
        layer = Transposed(*channels, kernel, **options).double()
        check(switch, layer, numbers(2, channels[0], *size), *layer.parameters())

    def test_transposed_refuses_more_output_padding_than_padding(self):
        with pytest.raises(ValueError, match="output_padding must be at most the padding 0, got 1"):
            Transposed(1, 1, 4, stride=2, output_padding=1)

    @pytest.mark.parametrize(
        ("own", "plain"),
        [
            (lambda: Score(5, 2), lambda: nn.Conv2d(5, 2, 1)),
            (lambda: ByEights(3, 4, 3), lambda: nn.Conv2d(3, 4, 3)),
            (lambda: Transposed(2, 3, 4, stride=2), lambda: nn.ConvTranspose2d(2, 3, 4, stride=2)),
        ],
    )
    def test_parameters_are_those_of_the_plain_layer(self, own, plain):
        states = []
        for build in (own, plain):
            torch.manual_seed(0)
            states.append(build().state_dict())
        assert list(states[0]) == list(states[1])
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])

    def test_the_first_way_is_pytorchs_own(self):
        x = numbers(1, 3, 6, 6)
        layer = ByEights(3, 4, 3).double()
        assert not lowering.lowered(x)
        assert torch.equal(layer(x), nn.functional.conv2d(x, layer.weight, layer.bias))

    def test_half_precision_is_summed_in_float32(self, switch):
        """257 is not a bfloat16; rounded before the bias is added, it would leave 0."""
        switch(True)
        x = torch.ones(1, 257, 2, 2, dtype=torch.bfloat16)
        got = pointwise(x, torch.ones(1, 257, 1, 1), torch.tensor([-256.0]))
        assert got.dtype == torch.bfloat16
        assert (got == 1).all()

    @pytest.mark.parametrize("name", ["hed", "bdcn", "dexined"])
    def test_bfloat16_autocast_of_both_ways(self, switch, name):
        model, images = lively(name, 1).float().eval(), numbers(1, 3, 33, 47).float()
        with torch.no_grad():
            want = model(images)
        switch(True)
        with torch.autocast("cpu", torch.bfloat16):
            got = model(images)
        for a, b in zip(got, want, strict=True):
            assert (a.float() - b).abs().max() <= 0.05 * b.abs().max()
        got[-1].float().sum().backward()
        assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())


def lively(name: str, side_channels: int | None) -> nn.Module:
    """In double precision, with He weights and biases: the paper's let some paths start at 0."""
    generator = torch.Generator().manual_seed(0)
    options = {} if side_channels is None else {"side_channels": side_channels}
    model = create_model(name, **options)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1, generator=generator)
    return model.double().train()


def step(
    model: nn.Module, call: Callable[..., list[torch.Tensor]], images: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Outputs and all gradients."""
    model.zero_grad(set_to_none=True)
    outputs = call(images)
    sum((o * numbers(*o.shape, seed=i)).sum() for i, o in enumerate(outputs)).backward()
    found = {f"output {i}": o.detach() for i, o in enumerate(outputs)}
    return found | {k: p.grad for k, p in model.named_parameters() if p.grad is not None}


def compare(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor]) -> None:
    assert got.keys() == want.keys()
    for key, expected in want.items():
        # Biases before a batch norm have no gradient but rounding.
        atol = 1e-10 * max(1, float(expected.abs().max()))
        torch.testing.assert_close(got[key], expected, rtol=1e-9, atol=atol, msg=key)


@pytest.mark.parametrize(("name", "side_channels"), MODELS)
@pytest.mark.parametrize("size", [(32, 48), (37, 51)])
def test_models_are_the_same_in_both_ways(switch, name, side_channels, size):
    model, images = lively(name, side_channels), numbers(2, 3, *size)
    switch(False)
    want = step(model, model, images)
    switch(True)
    compare(step(model, model, images), want)


@pytest.mark.parametrize("name", ["hed", "bdcn", "dexined"])
def test_compiled_into_one_graph_whose_way_back_adds_nothing_atomically(switch, name):
    model, images = lively(name, 1), numbers(2, 3, 37, 51)
    want = step(model, model, images)
    switch(True)
    graphs: list[list[str]] = []

    def keep(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    compare(step(model, compiled, images), want)
    assert len(graphs) == 2
    assert "aten.convolution_backward.default" in graphs[1]
    if name != "hed":  # its bilinear upsampling goes by the device alone, here a CPU
        assert [op for op in graphs[1] if any(bad in op for bad in ATOMIC)] == []


def layer_names(name: str) -> Iterator[str]:
    """The layers with weight and bias of a model, as checkpoints name them."""
    yield "fuse"
    depths = list(enumerate(STAGE_DEPTHS))
    if name in ("hed", "bdcn"):
        yield from (f"trunk.{s}.convs.{i}" for s, depth in depths for i in range(depth))
    if name == "hed":
        yield from (f"scores.{s}" for s, _ in depths)
    if name == "bdcn":
        for s, depth in depths:
            yield f"stages.{s}.score"
            for i in range(depth):
                yield f"stages.{s}.reduce.{i}"
                yield f"stages.{s}.enhance.{i}.conv"
                yield from (f"stages.{s}.enhance.{i}.dilated.{d}" for d in range(3))
    if name == "dexined":
        singles = ("side1", "side2", "side3", "side4", "pre2", "pre3", "pre4", "pre5", "pre6")
        yield from (f"{single}.{i}" for single in singles for i in (0, 1))
        doubles = ["block1", "block2"]
        for block, depth in ((3, 2), (4, 3), (5, 3), (6, 3)):
            doubles += [f"block{block}.layers.{i}" for i in range(depth)]
        yield from (f"{double}.{i}" for double in doubles for i in (0, 1, 3, 4))
        for up, steps in enumerate((1, 1, 2, 3, 4, 4)):
            yield from (f"ups.{up}.{kind}.{i}" for kind in ("mixes", "ups") for i in range(steps))


@pytest.mark.parametrize("name", ["hed", "bdcn", "dexined"])
def test_checkpoints_keep_their_names(name):
    want = {f"{layer}.{kind}" for layer in layer_names(name) for kind in ("weight", "bias")}
    if name == "bdcn":
        want |= {f"stages.{s}.up.weight" for s in range(1, 5)}
    with torch.device("meta"):
        model = create_model(name)
    assert {key for key, _ in model.named_parameters()} == want
    batch = {"running_mean", "running_var", "num_batches_tracked"}
    assert {k.rpartition(".")[2] for k in model.state_dict().keys() - want} <= batch
