"""The documentation: its Python runs and prints what it says, its commands parse, its tables are fresh."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.fake_device import FakeDevice
from tests.harness.proofs import PROOFS
from tilewise import devices
from tilewise.bench import toolchain
from tilewise.bench.gemm_picture import draw_gemm
from tilewise.bench.rung_cards import ARCHS
from tilewise.bench.rung_cards import markdown as resources
from tilewise.cli.parser import parse
from tilewise.emulator.layout import FaultKind
from tilewise.emulator.operations import page
from tilewise.errors import DeviceUnavailable
from tilewise.instruments.advice import FAULTS, FINDING_TEXTS
from tilewise.kernels import RUNGS
from tilewise.toolchain.nvrtc import version

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))

# A block of Python, and what it prints where the very next block is text.
EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")


@pytest.fixture
def some_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device there is; where there is none, one that can do nothing but multiply matrices."""
    try:
        devices.device()
    except DeviceUnavailable:
        fake = FakeDevice()
        monkeypatch.setattr(devices, "_default", lambda: fake)


def agrees(printed: str, promised: str) -> bool:
    """Whether the text is as promised; an ellipsis stands for anything within a line."""
    pattern = "[^\n]*".join(map(re.escape, promised.split("…")))
    return re.fullmatch(pattern, printed) is not None


@every_document
def test_python_runs_and_prints_what_it_says(
    document: Path, some_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    text = document.read_text(encoding="utf-8")
    for framework in ("torch", "jax"):
        if f"\nimport {framework}\n" in text:
            pytest.importorskip(framework)
    for match in EXAMPLE.finditer(text):
        line = text[: match.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + match[1], str(document), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert match[2] is None or agrees(printed.getvalue(), match[2]), (
            f"line {line} prints {printed.getvalue()!r}"
        )


def test_there_are_examples() -> None:
    assert sum(len(EXAMPLE.findall(path.read_text(encoding="utf-8"))) for path in DOCUMENTS) >= 5


@every_document
def test_commands_are_commands(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for block in SHELL.findall(document.read_text(encoding="utf-8")):
        for line in filter(None, block.splitlines()):
            program, *arguments = shlex.split(line, comments=True)
            if program == "tilewise":
                parse(arguments)
            elif program == "make":
                assert {*arguments} <= targets
            else:
                assert (ROOT / program).is_file(), line


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        if "://" in path:
            continue
        target = document.parent / path if path else document
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
            }


def test_the_architecture_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "tilewise"
    files = {file.relative_to(package).as_posix() for file in package.rglob("*.py")}
    for name in re.findall(r"`?\b([a-z_/0-9]+\.py)\b", text.replace("tests/nothing/", "")):
        if not (ROOT / "tests" / "nothing" / name).is_file():
            assert any(file == name or file.endswith(f"/{name}") for file in files), name


def test_the_ladder_has_a_line_for_every_rung() -> None:
    text = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d\d_\w+) \| \S", text, re.MULTILINE)
    assert listed[: len(RUNGS)] == list(RUNGS)


def table(document: str, command: str) -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    return text.partition(f"<!-- begin: {command} -->\n")[2].partition("<!-- end -->")[0]


def test_the_resource_table_has_every_rung_and_gpu() -> None:
    shown = table("docs/ladder.md", "tilewise ladder --markdown")
    assert all(arch in shown for arch in ARCHS)
    assert all(f"| {name} | " in shown for name in RUNGS)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", RUNGS)
def test_the_resource_table_is_what_the_compiler_says(name: str) -> None:
    shown = table("docs/ladder.md", "tilewise ladder --markdown").splitlines()
    if f"NVRTC {'.'.join(map(str, version()))}," in shown[0]:  # another version chooses other registers
        assert {*resources({name: RUNGS[name]}).splitlines()} <= {*shown}, "stale: make docs"


def test_the_page_of_instructions_is_made_of_the_rows() -> None:
    assert {*PROOFS} == {*page.supported()}, "an operation without a file of tests in tests/harness/proofs.py"
    assert all((ROOT / "tests" / "emulator" / file).is_file() for file in PROOFS.values())
    assert table("docs/instructions.md", "instructions") == page.markdown(PROOFS), "stale: make docs"


def newest(results: list[Path]) -> Path:
    return max(results, key=lambda path: path.name)


def test_pictures_are_those_of_the_newest_results() -> None:
    newest = max((ROOT / "docs/results").glob("gemm-????-??-??.json"), key=lambda file: file.name)
    drawn = draw_gemm(json.loads(newest.read_text(encoding="utf-8"))).to_svg()
    kept = (ROOT / "docs/images/gemm.svg").read_text(encoding="utf-8")
    assert kept == drawn, "stale: make docs"
    newest = max((ROOT / "docs/results").glob("rung-times-*.json"), key=lambda file: file.name)
    shipped = json.loads((ROOT / "src/tilewise/explain/rung_times.json").read_text(encoding="utf-8"))
    times = [[name, m, time] for name, m, n, k, time in shipped["rungs"] if m == n == k == 2048]
    results = json.loads(newest.read_text(encoding="utf-8"))
    assert times == [row for row in results["rungs"] if row[1] == 2048]
    assert shipped["driver"] == results["driver"] and shipped["date"].startswith(results["date"])


def test_the_compile_times_are_those_of_the_kept_result() -> None:
    kept = newest([*ROOT.glob("docs/results/toolchain-*.json")])
    result = json.loads(kept.read_text(encoding="utf-8"))
    assert result["date"] in kept.name
    assert {row["rung"] for row in result["rungs"]} == {*RUNGS}
    shown = table("docs/toolchain.md", "tilewise bench toolchain --markdown")
    assert shown == toolchain.markdown(result), "stale: make docs"
    assert f"results/{kept.name}" in (ROOT / "docs" / "toolchain.md").read_text(encoding="utf-8")


def test_the_checker_names_every_kind_of_finding() -> None:
    text = (ROOT / "docs" / "checker.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if re.match(r"\| \w+check \|", line)]
    told = {kind.strip() for row in rows for kind in row.split(",")}
    unnamed = {kind.name.lower().replace("_", "-") for kind in FaultKind if kind.name not in FAULTS}
    kinds = (
        {words.kind for words in FINDING_TEXTS.values()} | {kind for _, kind, _ in FAULTS.values()} | unnamed
    )
    assert kinds - {"none"} <= told


def test_the_workflow_runs_on_every_python_that_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r"\"(3\.\d+)\"", listed) == named
    assert re.search(r"run: \.ci/run$", workflow, re.MULTILINE)
    least, most = re.findall(r"3\.(\d+)", project["requires-python"])
    assert named == [f"3.{minor}" for minor in range(int(least), int(most))]
