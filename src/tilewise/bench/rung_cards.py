"""A rung → its card, and the tables of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewise.bench.product import Size
from tilewise.bench.trial import example_size, geometry
from tilewise.kernels.spec import KernelSpec
from tilewise.toolchain.compile import own_headers
from tilewise.toolchain.nvrtc import version

__all__ = ["ARCHS", "RungCard", "card", "markdown", "whole_source"]

# One of each architecture that tilewise compiles for, oldest first.
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")

_OWN_INCLUDE = re.compile(r"^#include <(tilewise/[\w.]+)>.*\n?", re.MULTILINE)
_MANY = 16  # values; of more, only the first and the last are shown


@dataclass(frozen=True, slots=True)
class RungCard:
    """A description of a rung."""

    name: str
    title: str
    about: str
    least: str
    only: bool  # it runs on that arch and on no newer one
    operand_types: tuple[str, ...]
    result_types: tuple[str, ...]
    settings: Mapping[str, Sequence[int | str]]
    entries: tuple[str, ...]
    example: Size
    launch: str

    @property
    def types(self) -> str:
        """What the operands hold, and what the result does."""
        taken, given = " or ".join(self.operand_types), " or ".join(self.result_types)
        return taken if taken == given else f"{taken}, result {given}"

    @property
    def settings_text(self) -> str:
        """Each setting with its values, the default first."""
        shown = {name: _listed(values) for name, values in self.settings.items()}
        return ", ".join(f"{name}={values}" for name, values in shown.items())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _listed(values: Sequence[int | str]) -> str:
    return f"{values[0]}…{values[-1]}" if len(values) > _MANY else "|".join(map(str, values))


def card(rung: KernelSpec) -> RungCard:
    """The card of a rung."""
    size = example_size(rung, on_gpu=True)
    launch = geometry(rung, size, {})
    return RungCard(
        name=rung.name,
        title=rung.title,
        about="\n".join(_header(rung.source)),
        least=rung.needs,
        only=rung.arch is not None,
        operand_types=rung.element_types,
        result_types=tuple(map(str, rung.settings.get("result", ()))) or rung.element_types,
        settings=rung.settings,
        entries=rung.entries,
        example=size,
        launch=f"grid {launch.grid} × block {launch.block}",
    )


def whole_source(source: str) -> str:
    """A CUDA C++ source with the package's headers that it includes in their place: it compiles by itself.

    >>> "struct Matrix" in whole_source("#include <tilewise/matrix.cuh>")
    True
    """
    included: set[str] = set()

    def inline(match: re.Match[str]) -> str:
        name = match[1]
        if name in included:
            return ""
        included.add(name)
        text = _OWN_INCLUDE.sub(inline, own_headers()[name].replace("#pragma once\n", "")).rstrip("\n")
        return f"// ── begin {name} ──\n{text}\n// ── end {name} ──\n"

    return _OWN_INCLUDE.sub(inline, source)


def _header(source: str) -> Iterator[str]:
    """The comment that a source begins with, after its first line, which is the title."""
    for line in source.splitlines()[1:]:
        if not line.startswith("//"):
            return
        text = line.removeprefix("//").removeprefix(" ")
        if text:
            yield text


def markdown(rungs: Mapping[str, KernelSpec]) -> str:
    """The table of ``docs/ladder.md``, from compiling every rung for every arch of :data:`ARCHS`."""
    head = ["rung", "kernel", "shared bytes", *ARCHS]
    lines = [
        f"Registers per thread by NVRTC {'.'.join(map(str, version()))}, with each rung's default settings; "
        "spilled bytes in brackets, where there are any. Shared bytes are a block's, static and dynamic.",
        "",
        _row(head),
        _row(["---", "---", *["---:"] * (len(head) - 2)]),
    ]
    lines += [_row(cells) for rung in rungs.values() for cells in _resource_rows(rung)]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _resource_rows(rung: KernelSpec) -> Iterator[list[str]]:
    first = geometry(rung, example_size(rung, on_gpu=True), rung.complete({}))
    for entry in rung.entries:
        dynamic = first.dynamic_shared if entry == first.entry else 0
        shared, cells = set(), []
        for arch in ARCHS:
            if not rung.runs_on(arch):
                cells.append("–")
                continue
            resources = rung.kernel(arch, entry=entry).resources
            shared.add(resources.shared_bytes + dynamic)
            spills = f" ({resources.spills})" if resources.spills else ""
            cells.append(f"{resources.registers}{spills}")
        yield [rung.name, f"`{entry}`", " or ".join(f"{size:,}" for size in sorted(shared)), *cells]
