"""Compiled kernels are kept between processes, until any source they may have come from changes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import knifeedge

HELPER = """
from knifeedge.metrics.kernels import inlined

@inlined
def times(value):
    return {factor} * value
"""
CALLER = """
from knifeedge.metrics.helper import times
from knifeedge.metrics.kernels import kernel

@kernel
def scaled(value):
    return times(value)
"""


def test_a_change_in_an_imported_helper_compiles_anew(tmp_path: Path) -> None:
    package = tmp_path / "knifeedge"
    others = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.png")
    shutil.copytree(Path(knifeedge.__file__).parent, package, ignore=others)
    helper = package / "metrics" / "helper.py"
    (package / "metrics" / "caller.py").write_text(CALLER)

    def run(factor: int) -> tuple[str, bool]:
        """What the kernel gives in a new process, and whether it was compiled there."""
        helper.write_text(HELPER.format(factor=factor))
        os.utime(helper, (0, 0))  # as an installer may leave it
        done = subprocess.run(
            [sys.executable, "-c", "from knifeedge.metrics.caller import scaled; print(scaled(5))"],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
            | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip(), "compiling the evaluation kernels" in done.stderr

    assert run(2) == ("10", True)
    assert run(2) == ("10", False)
    assert run(3) == ("15", True)
    assert run(3) == ("15", False)
