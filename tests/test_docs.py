"""The documentation: every Python snippet runs, links lead somewhere, tables agree with the code,
and the site builds without a warning and fetches nothing.
"""

import dataclasses
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import knifeedge as ke
from knifeedge.export import _can_defer_guards

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
# A snippet may name packages that are no part of the set-up: <!-- needs: lightning -->
FENCE = re.compile(
    r"^(?:<!-- needs: ([\w, ]+) -->\n)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE
)
# Tags and style rules that make a browser fetch something from elsewhere.
FETCHES = re.compile(
    r"<(?:script|img|iframe|link)[^>]*?(?:src|href)=\"?(?:https?:)?//|url\(\"?(?:https?:)?//"
)


@dataclasses.dataclass(frozen=True)
class Snippet:
    """Python code of a page, at its own line numbers, and the packages it needs besides."""

    page: Path
    code: str
    needs: tuple[str, ...]

    def run(self, namespace: dict[str, object]) -> None:
        exec(compile(self.code, str(self.page), "exec"), namespace)


def snippets(page: Path) -> list[Snippet]:
    text, found = page.read_text(), []
    for match in FENCE.finditer(text):
        lines = text.count("\n", 0, match.start(2))
        needs = tuple((match[1] or "").replace(",", " ").split())
        found.append(Snippet(page, "\n" * lines + match[2], needs))
    return found


ELSEWHERE = [snippet for page in PAGES for snippet in snippets(page) if snippet.needs]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    if page.name == "export.md" and not _can_defer_guards():
        pytest.skip("it shows what needs PyTorch 2.9")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for snippet in snippets(page):
        if not snippet.needs:
            snippet.run(namespace)


@pytest.mark.parametrize("snippet", ELSEWHERE, ids=lambda s: s.needs[0])
def test_snippets_with_other_packages_run(snippet, tmp_path, monkeypatch):
    missing = [name for name in snippet.needs if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for other in snippets(snippet.page):
        if not other.needs:
            other.run(namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those packages' own
        snippet.run(namespace)


def test_every_snippet_is_found():
    for page in PAGES:
        assert len(snippets(page)) == page.read_text().count("```python"), page.name


def test_only_named_packages_are_needed():
    needed = {name for snippet in ELSEWHERE for name in snippet.needs}
    assert needed == {"lightning", "segmentation_models_pytorch", "transformers", "accelerate"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_row_stands_in_a_table(page):
    # A block of rows without a rule below its first is shown as text, bars and all.
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert re.fullmatch(r"[|:\- ]+", [*block.splitlines(), ""][1]), block


def test_all_settings_of_a_training_are_documented():
    text = (DOCS / "train.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \|(.*?)\|", text.split("## Settings")[1], re.MULTILINE))
    fields = {entry.name: entry.default for entry in dataclasses.fields(ke.TrainConfig)}
    assert table.keys() == fields.keys()
    for name, default in fields.items():
        shown = "" if default is dataclasses.MISSING else f"`{default!r}`".replace("'", '"')
        assert table[name].strip() == shown, name


def test_all_public_names_are_in_the_reference():
    text = (DOCS / "api.md").read_text()
    named = {line.split(".")[-1] for line in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    for room in (ke, ke.data, ke.metrics):
        assert set(room.__all__) <= named, room.__name__


def test_the_table_of_the_demonstration_is_that_of_its_records(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))  # as for a script that is called
    monkeypatch.setattr(sys, "argv", ["seeds.py"])
    runpy.run_path(str(ROOT / "benchmarks" / "seeds.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()[2:]
    assert_table_holds(printed, DOCS / "demo.md")


def assert_table_holds(printed: list[str], page: Path) -> None:
    """Every number of a printed row stands in the page's row of that loss, in its order."""
    assert len(printed) == 3
    rows = page.read_text().splitlines()
    for line in printed:
        loss, *numbers = re.findall(r"^\S+|[+-]?\d\.\d{4}", line)
        found = [row for row in rows if row.startswith(f"| {loss.upper()} |")]
        assert any(re.findall(r"[+-]?\d\.\d{4}", row) == numbers for row in found), line


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mkdocs is not installed; pip install 'knifeedge[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    pages = {path.name for path in (tmp_path / "site").glob("*.html")}
    assert pages == {"404.html"} | {f"{page.stem}.html" for page in DOCS.glob("*.md")}
    for path in (tmp_path / "site").rglob("*"):
        if path.suffix in (".html", ".css"):
            assert not FETCHES.search(path.read_text()), path.name
