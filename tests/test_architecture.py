"""The house rules that a reader relies on: the public names, and who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import knifeedge as ke

SOURCE = Path(ke.__file__).parent

PUBLIC = """
    APLoss AdjustedBinLoss AdjustedClassLoss AdjustedLoss AnyLossF1 BCELoss Calibration Callback
    CheckpointError ConfigError DataConfig DataError DeepSupervisionLoss DiceLoss DistanceWeight
    EBTLoss EdgeMetric EdgeScores FocalLoss HeavisideF1Loss KnifeEdgeError LovaszHingeLoss
    ModelConfig OnlineThreshold PixelLoss Protocol ProtocolConfig ProtocolResult RegionLoss Run
    SWBCELoss ScoreOrientedLoss SoftF1Loss TrainConfig TverskyLoss WBCELoss adjuster_weight
    anyloss_f1 ap_loss bce_loss bin_distance calibrate calibrate_pixels check_distance_weight
    class_margin cosine_weight create_model data dice_loss distance_weight ebt_loss evaluate
    extended_weight focal_loss hard_adjuster heaviside_f1_loss load_model lovasz_hinge_loss
    masked_distance metrics power_weight predict predict_many register_model run_protocol
    score_oriented_loss soft_f1_loss swbce_loss train tversky_loss wbce_loss windowed_adjuster
""".split()  # noqa: SIM905

# Each room, and the rooms it may import; everything may import `errors`, `config`, `typed` and
# `version`. Nothing imports `cli`.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config": set(),
    "typed": set(),
    "version": set(),
    "disk": set(),
    "distance": set(),
    "adjuster": {"distance"},
    "losses": {"adjuster", "distance"},
    "mat": set(),
    "metrics": {"mat", "disk"},
    "data": {"mat", "disk"},
    "models": set(),
    "calibration": {"metrics"},
    "edge_metric": {"metrics"},
    "engine": {"losses", "models", "data", "disk", "metrics", "calibration", "edge_metric"},
    "export": {"engine", "models", "data", "disk"},
    "results": {"engine", "losses", "data", "disk", "metrics"},
    "protocol": {"results", "engine", "losses", "models", "data", "disk", "metrics"},
    "experiments": {"results", "protocol", "engine", "losses", "models", "data", "disk", "metrics"},
    # It reads files only; the adjuster and the losses' names tell what these mean.
    "report": {"metrics", "disk", "adjuster", "distance", "losses"},
    "demo": {"results", "protocol", "engine", "disk", "report"},
    "cli": {
        *("demo", "metrics", "data", "models", "engine", "protocol", "experiments", "export"),
        *("report", "results", "disk"),
    },
    "__main__": {"cli"},
    "__init__": {
        *("adjuster", "distance", "losses", "metrics", "calibration", "edge_metric", "data"),
        *("models", "engine", "protocol", "results"),
    },
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    """Every module a file imports, at the top or inside a function, by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_public_names():
    assert sorted(ke.__all__) == sorted(PUBLIC)
    assert dir(ke) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(ke, name) is not None


def test_type_checkers_see_the_same_names():
    block = next(
        n for n in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(n, ast.If)
    )
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen == set(PUBLIC)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"no name 'WbceLoss'; it has .*WBCELoss"):
        _ = ke.WbceLoss


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_import_directions(path):
    own = room(path)
    assert own in MAY_IMPORT, f"{own} is new here: say in this test whom it may import"
    for name in imports(path):
        if name.startswith("knifeedge."):
            other = name.split(".")[1]
            allowed = MAY_IMPORT[own] | {own, "errors", "config", "typed", "version"}
            assert other in allowed, f"{path.name} imports {name}"
        if own == "metrics":
            assert not name.startswith("torch"), f"{path.name} imports {name}"


@pytest.mark.parametrize("statement", ["import knifeedge.metrics", "import knifeedge.cli"])
def test_the_benchmark_does_not_load_torch(statement):
    code = f"{statement}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
