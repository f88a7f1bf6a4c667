"""The package as a whole: what it offers is there, and importing it costs next to nothing."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tilewise
from tests.defaults import COMMAND, GOLDEN, list_defaults
from tests.golden_text import assert_unchanged
from tilewise.bench.environment import PACKAGES, versions

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "llvmlite", "cuda", "rich", "ml_dtypes", "argparse", "importlib.metadata")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", tilewise.__all__)
def test_every_name_is_there_and_is_the_one_of_its_home(name: str) -> None:
    value = getattr(tilewise, name)
    home = tilewise._HOMES.get(name)
    if home is None:
        assert value is importlib.import_module(f"tilewise.{name}")
    else:
        assert value is getattr(importlib.import_module(f"tilewise.{home}"), name)
    assert vars(tilewise)[name] is value  # and is not looked for again


def test_dir_and_all_agree() -> None:
    assert sorted(tilewise.__all__) == tilewise.__all__
    assert {*dir(tilewise)} == {*tilewise.__all__, "__version__"}
    assert {*tilewise._HOMES} <= {*tilewise.__all__}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'tilewise' has no attribute 'matmull'"):
        _ = tilewise.matmull


def test_every_module_says_what_it_offers_and_has_it() -> None:
    for found in pkgutil.walk_packages(tilewise.__path__, "tilewise."):
        if ".rung_" in found.name or found.name == "tilewise.__main__":
            continue
        made_for = re.match(r"tilewise\.interop\.(torch|jax)\b", found.name)
        if made_for and importlib.util.find_spec(made_for[1]) is None:
            continue  # what is made for torch or JAX imports it
        module = importlib.import_module(found.name)
        assert module.__doc__, f"{found.name} has no docstring"
        # A package that only gathers its modules has nothing of its own to offer.
        assert hasattr(module, "__all__") or found.ispkg, f"{found.name} does not say what it offers"
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{found.name} lacks {name}"


def test_what_is_not_given_stays_what_it_is() -> None:
    """The defaults of all that is offered; and which records can change, which they should only for a reason."""
    assert_unchanged(GOLDEN.read_text(encoding="utf-8"), list_defaults(), GOLDEN.name, COMMAND, context=0)


def test_importing_loads_nothing_heavy() -> None:
    loaded = python("import sys, tilewise; print(*sorted(sys.modules))").split()
    assert not [name for name in HEAVY if name in loaded]


def test_arrays_and_gradients_load_no_framework() -> None:
    loaded = python(
        "import sys, numpy, tilewise, tilewise.interop.torch, tilewise.interop.jax; tilewise.matmul; "
        "print(*sorted(sys.modules))"
    ).split()
    later = ("tilewise.interop.torch.gradients", "tilewise.interop.jax.functions")
    assert not [name for name in ("torch", "cupy", "jax", *later) if name in loaded]


def test_products_of_tensors_load_no_compiler_of_torchs() -> None:
    loaded = python(
        "import sys, torch, tilewise as tw; x = torch.ones(2, 2); tw.matmul(x, x, device='emulator'); "
        "tw.linear(x, x, device='emulator'); print(*sorted(sys.modules))"
    ).split()
    assert "torch._C" in loaded and "torch._dynamo" not in loaded


def test_plain_data_loads_nothing_heavy() -> None:
    loaded = python(
        "import sys; from tilewise import Plan, Problem, gpus; gpus.find('h200'); print(*sorted(sys.modules))"
    ).split()
    assert not [name for name in ("numpy", "llvmlite", "cuda", "rich") if name in loaded]


def test_compiling_needs_no_numpy() -> None:
    loaded = python(
        "import sys; from tilewise.toolchain.compile import compile_source as c;"
        "c('__global__ void f(float *x) { *x = 1; }', ['f'], 'sm_75'); print(*sorted(sys.modules))"
    ).split()
    assert not [
        name for name in ("numpy", "llvmlite", "cuda.core", "rich", "tilewise.devices") if name in loaded
    ]


def test_the_version_is_told_once() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert about["project"]["dynamic"] == ["version"]
    assert (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").count(f"## {tilewise.__version__}") == 1


def test_every_dependency_is_accounted_for() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    everything = [
        *about["dependencies"],
        *(name for extra in about["optional-dependencies"].values() for name in extra),
    ]
    for requirement in everything:
        name = requirement.replace(">", " ").replace("=", " ").split()[0]
        assert f"`{name}`" in listed, f"{name} has no line in docs/dependencies.md"


def test_the_rooms_import_no_framework() -> None:
    for file in (ROOT / "src" / "tilewise").rglob("*.py"):
        if "interop" not in file.parts:
            text = file.read_text(encoding="utf-8")
            assert not [
                name
                for name in ("torch", "cupy", "jax")
                if f"\nimport {name}" in text or f"from {name}" in text
            ]


def test_results_name_the_version_of_every_package_that_tilewise_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [*PACKAGES.values()] == [re.split("[<>=]", one)[0] for one in project["dependencies"]]
    found = versions()
    assert {*found} == {"tilewise", "Python", *PACKAGES} and all(found.values())
