"""Trained networks as files that other programs run: ONNX, and PyTorch's exported programs.

The file takes a picture as it is, `image` (N, 3, H, W), float32 RGB in [0, 1], and gives the final
`probability` (N, 1, H, W). Normalisation and sigmoid are inside. Batch, height and width are free,
down to a single pixel. What else a user must know is in the file's metadata, see `metadata`.
"""

import contextlib
import importlib.util
import inspect
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from knifeedge.data.pool import DEVIATION, MEAN
from knifeedge.disk import check_target, write_atomically
from knifeedge.engine.checkpoint import WeightsInfo, load_model
from knifeedge.engine.tiles import OVERLAP, TILE
from knifeedge.errors import ConfigError
from knifeedge.models.registry import model_entry
from knifeedge.version import VERSION

if TYPE_CHECKING:
    from torch.export import ExportedProgram

Format = Literal["onnx", "torch"]
Runner = Callable[[Tensor], Tensor]

SUFFIXES: dict[str, str] = {"onnx": ".onnx", "torch": ".pt2"}
METADATA_FILE = "knifeedge.json"  # in a .pt2; an .onnx has properties for it

TOLERANCE = 1e-4
CHECK_SHAPES = ((1, 3, 97, 131), (2, 3, 64, 48))

# No size of a check, and no two numbers alike: a dimension mistaken for another would show.
_TRACED_SHAPE = (2, 3, 67, 83)
_AXES = {0: "batch", 2: "height", 3: "width"}
_LARGEST_ONNX = 2**31 - 2**24  # bytes of one protobuf message, less 16 MB for the graph


def export_model(
    weights: str | Path,
    out: str | Path,
    *,
    format: Format = "onnx",
    model: str | None = None,
    check: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Write a trained network as a file that needs no knifeedge.

    Args:
        weights: A run's folder, or a weights file.
        out: The file to write: .onnx, or .pt2 for torch.
        format: onnx, or torch for a program that `torch.export.load` reads.
        model: Name of the network, for a plain state dict.
        check: Run the file at two sizes before it is put in its place, and compare it with PyTorch.
        tell: Takes a line on the check's outcome.

    Returns:
        The file.

    Raises:
        ConfigError: The format is unknown, a package is missing, or the network cannot be exported;
            nothing is written.

    >>> export_model("runs/first", "edges.onnx", format="tflite")
    Traceback (most recent call last):
    knifeedge.errors.ConfigError: format must be one of onnx, torch, got 'tflite'
    """
    out = Path(out)
    _check_arguments(out, format, check=check)
    network, info = load_model(weights, model=model)
    try:
        content = serialise(network, info, format)
        difference = largest_difference(content, network, format) if check else None
    except ConfigError:
        raise
    except Exception as error:  # exporters, runtimes and a user's own network may raise anything
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{info.model.name} cannot be exported as {format}: {type(error).__name__}: {first}"
        ) from error
    if difference is not None:
        if not difference <= TOLERANCE:  # nan is no agreement
            raise ConfigError(
                f"{info.model.name} as {format} differs from PyTorch by {difference:.2g}, at most"
                f" {TOLERANCE:g} is allowed; {out} was not written"
            )
        if tell is not None:
            sizes = " and ".join(f"{n} x {h} x {w}" for n, _, h, w in CHECK_SHAPES)
            tell(f"largest difference from PyTorch: {difference:.1e} (images {sizes})")
    write_atomically(out, content)
    return out


class Deployed(nn.Module):
    """A network between pictures and probabilities: RGB in [0, 1] in, the final map out.

    >>> class Brightest(nn.Module):
    ...     def forward(self, images):
    ...         return [images.amax(dim=1, keepdim=True)]
    >>> Deployed(Brightest())(torch.tensor(MEAN).view(1, 3, 1, 1)).item()     # sigmoid(0)
    0.5
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1))

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 1, H, W)."""
        prob: Tensor = self.network((image - self.mean) / self.deviation)[-1].sigmoid()
        return prob


def metadata(info: WeightsInfo) -> dict[str, str]:
    """What a file says of itself; the threshold only where one was calibrated.

    >>> from knifeedge.config import ModelConfig
    >>> facts = metadata(WeightsInfo(ModelConfig("tiny"), threshold=0.62))
    >>> facts["model"], facts["threshold"], facts["normalisation"]
    ('tiny', '0.62', 'inside')
    """
    starts = model_entry(info.model.name).weight_options  # files of the machine it was trained on
    options = {k: v for k, v in info.model.options.items() if k not in starts}
    facts = {
        "knifeedge_version": VERSION,
        "model": info.model.name,
        "options": json.dumps(options),
        "input": "image: float32 (N, 3, H, W), RGB in [0, 1]",
        "output": "probability: float32 (N, 1, H, W)",
        "normalisation": "inside",
        "mean": json.dumps(MEAN),
        "deviation": json.dumps(DEVIATION),
        "tile": str(TILE),
        "overlap": str(OVERLAP),
    }
    return facts if info.threshold is None else facts | {"threshold": repr(info.threshold)}


def serialise(network: nn.Module, info: WeightsInfo, format: Format) -> bytes:
    """The bytes of the exported file of a network in evaluation mode."""
    size = sum(p.numel() * p.element_size() for p in network.state_dict().values())
    if format == "onnx" and size > _LARGEST_ONNX:
        raise ConfigError(
            f"{info.model.name} has {size / 1e9:.1f} GB of weights, an ONNX file holds at most 2;"
            " take the format torch-export"
        )
    facts = metadata(info)
    with _quiet(), torch.no_grad():
        if format == "torch":
            return _program_bytes(capture(network), facts)
        return _onnx_bytes(capture(network) if _can_defer_guards() else network, facts)


def capture(network: nn.Module) -> "ExportedProgram":
    """The network as a graph with free batch, height and width."""
    import torch.fx.experimental._config as shapes  # what torch.onnx itself sets for its captures

    free = dict.fromkeys(_AXES, torch.export.Dim.DYNAMIC)
    with shapes.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        program = torch.export.export(
            Deployed(network).eval(),
            (torch.zeros(_TRACED_SHAPE),),
            dynamic_shapes={"image": free},
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    # The sizes round up on the way down, and the solver of PyTorch cannot prove that they fit
    # again on the way up. It also notes which kernel or layout the traced size would have had,
    # such as N > 1. Either would refuse good sizes at run time; the check tells whether one is.
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten._assert_scalar.default:
            program.graph.erase_node(node)
        node.meta.pop("stack_trace", None)  # paths of this machine
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def largest_difference(content: bytes, network: nn.Module, format: Format) -> float:
    """Between an exported file and the network itself, at sizes other than the traced one."""
    run = _onnx_runner(content) if format == "onnx" else _program_runner(content)
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    generator = torch.Generator().manual_seed(0)
    largest = torch.zeros(())
    for shape in CHECK_SHAPES:
        image = torch.rand(shape, generator=generator)
        with torch.no_grad():
            want = network((image - mean) / deviation)[-1].sigmoid()
        got = run(image)
        if got.shape != want.shape:
            return float("inf")
        largest = torch.maximum(largest, (got - want).abs().max())  # nan stays
    return largest.item()


def _check_arguments(out: Path, format: str, *, check: bool) -> None:
    if format not in get_args(Format):
        known = ", ".join(get_args(Format))
        raise ConfigError(f"format must be one of {known}, got {format!r}")
    check_target(out)
    if out.suffix != SUFFIXES[format]:
        (other,) = (end for name, end in SUFFIXES.items() if name != format)
        raise ConfigError(
            f"the file must end in {SUFFIXES[format]} for this format, got {out}; {other} is the"
            " other one's (--format)"
        )
    if format == "torch" and not _can_defer_guards():
        raise ConfigError(f"the format torch-export needs PyTorch 2.9, got {torch.__version__}")
    if format == "onnx":
        wanted = ["onnx", "onnxscript", *(["onnxruntime"] if check else [])]
        missing = [name for name in wanted if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(
                f"the format onnx needs {', '.join(missing)}: pip install 'knifeedge[export]'"
            )


def _can_defer_guards() -> bool:
    """Whether torch.export has what free sizes need here: since PyTorch 2.9."""
    return (
        "prefer_deferred_runtime_asserts_over_guards"
        in inspect.signature(torch.export.export).parameters
    )


def _program_bytes(program: "ExportedProgram", facts: dict[str, str]) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={METADATA_FILE: json.dumps(facts, indent=1)})
    return file.getvalue()


def _onnx_bytes(source: "ExportedProgram | nn.Module", facts: dict[str, str]) -> bytes:
    names: dict[str, Any] = {"input_names": ["image"], "output_names": ["probability"]}
    if isinstance(source, nn.Module):
        proto = _traced(source, names)
    else:
        exported: Any = torch.onnx.export(source, dynamo=True, verbose=False, **names)
        proto = exported.model_proto
    proto.producer_name, proto.producer_version = "knifeedge", facts["knifeedge_version"]
    graph = proto.graph
    for value in (*graph.input, *graph.output):
        for axis, name in _AXES.items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    # Inner shapes have other names for the same sizes, and nodes paths of this machine.
    del graph.value_info[:]
    for part in (proto, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    for key, value in facts.items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    return content


def _traced(network: nn.Module, names: dict[str, Any]) -> Any:
    """The ONNX model by way of the tracer.

    Before 2.9 torch.export holds sizes to what it can prove, which here are multiples of 16.
    """
    import onnx

    file: Any = io.BytesIO()
    options: Any = {**names, "dynamic_axes": {"image": _AXES, "probability": _AXES}}
    example = (torch.zeros(_TRACED_SHAPE),)
    torch.onnx.export(Deployed(network).eval(), example, file, dynamo=False, **options)
    return onnx.load_from_string(file.getvalue())


def _onnx_runner(content: bytes) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda image: torch.from_numpy(session.run(None, {"image": image.numpy()})[0])


def _program_runner(content: bytes) -> Runner:
    with _quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(image: Tensor) -> Tensor:
        with torch.no_grad():
            prob: Tensor = module(image)
        return prob

    return run


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' remarks on themselves and on missing packages from users."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
