"""CUDA C++ → a binary: PTX, machine code and the resource report, by content from the cache."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

from tilewise.errors import ArchError, ArgumentError, UnknownNameError
from tilewise.launch import Parameter
from tilewise.toolchain import cache, diagnostics, nvrtc
from tilewise.toolchain.binary import Binary, Entry, Resources
from tilewise.toolchain.declarations import declare
from tilewise.toolchain.host_code import HOST_HEADERS, implicit_headers, without_host_code
from tilewise.toolchain.report import read_report
from tilewise.toolchain.signature import entry_named, read_entries, read_target

__all__ = [
    "check_arch",
    "compile_source",
    "describe_archs",
    "known_archs",
    "own_headers",
    "read_ptx",
    "with_kernel",
]

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(.*)$", re.MULTILINE)
_NAMED = re.compile(r'[<"]([^>"]+)[>"]')
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_TEMPLATE = re.compile(r"\btemplate\s*<[^;{}]*>[^;{}()]*__global__[^;{}]*?(\w+)\s*\([^()]*\)\s*[{;]")
_ARCH = "--gpu-architecture="
_NUMBERED_ARCH = re.compile(r"(?:sm|compute)_(\d+)")
_FORMAT = "6"  # of a cached binary
# Fixed options: C++17; line tables for the profiler; the resource report in the log.
# NOTE: NVRTC has a cache of its own, where there is a driver; what comes from it comes without the report.
_OPTIONS = ("--std=c++17", "-lineinfo", "--ptxas-options=-v", "--no-cache")
# Leaves out of NVRTC's own header what few kernels use: textures, launches from the device, the runtime's names.
# It takes 4 to 8 ms to read, a sixth of what a small kernel takes.
_WITHOUT_RARE_NAMES = "-minimal"


def compile_source(
    source: str,
    names: Sequence[str],
    arch: str,
    *,
    defines: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    filename: str = "kernel.cu",
) -> Binary:
    """Compile ``source`` for ``arch``; every one of ``names`` must be a kernel in it."""
    check_arch(arch)
    given = {**own_headers(), **(headers or {})}
    reached = dict(_reachable(source, given, [Path(folder) for folder in include_dirs]))
    missing = {name: HOST_HEADERS[name] for name in reached if reached[name] is None and name in HOST_HEADERS}
    if missing:  # NOTE: those that a toolkit brings are found by its own paths
        there = [Path(folder) for folder in _toolkit_headers(reached)]
        missing = {n: text for n, text in missing.items() if not any((path / n).is_file() for path in there)}
        given, reached = {**given, **missing}, {**reached, **missing}
    all_options = [
        *_OPTIONS,
        f"{_ARCH}{arch}",
        *_definitions(defines or {}),
        *(f"--include-path={folder}" for folder in include_dirs),
        *(f"--include-path={folder}" for folder in _toolkit_headers(reached)),
        *options,
    ]
    expressions = [name for name in names if not _IDENTIFIER.fullmatch(name)]
    used = {name: given[name] for name in reached if name in given}
    key = _key(source, filename, all_options, expressions, reached)
    origin = _key(source, filename, [o for o in all_options if not o.startswith(_ARCH)], expressions, reached)
    binary = _load(key) if key else None
    if binary is None:
        binary = _compile(source, filename, arch, all_options, used, expressions)
        binary = replace(binary, entries=declare(binary.entries, source, reached, all_options))
        if key:
            _store(key, binary)
    binary = replace(binary, source=source, filename=filename, key=key, origin=origin)
    for name in names:
        binary = with_kernel(binary, name)
    return binary


def _templates(source: str) -> set[str]:
    """The names of kernels that are templates."""
    return set(_TEMPLATE.findall(source))


def with_kernel(binary: Binary, name: str) -> Binary:
    """The binary, with the entry noted that a user means by ``name``; refused if there is none."""
    if name in binary.lowered:
        return binary
    if binary.cubin is not None and name not in binary.entries and name in _templates(binary.source):
        raise ArgumentError("name", "must be one instance of the template", name, f"such as '{name}<32>'")
    entry = entry_named(name, list(binary.entries))
    return replace(binary, lowered={**binary.lowered, name: entry})


def read_ptx(ptx: str, filename: str = "kernel.ptx") -> Binary:
    """A binary of foreign PTX: entries and parameters; ``assemble.py`` adds machine code and a report."""
    target = read_target(ptx)
    return Binary(target, ptx, None, read_entries(ptx), (), {}, ptx, filename, cache.digest("ptx", ptx))


def known_archs() -> list[str]:
    """Every arch that the installed NVRTC compiles for, the arch-specific ones included."""
    archs = []
    for number in nvrtc.supported():
        archs.append(f"sm_{number}")
        archs += [f"sm_{number}a"] if number >= 90 else []
        archs += [f"sm_{number}f"] if number >= 100 else []
    return archs


def check_arch(arch: str) -> None:
    """Refuse an arch that the installed NVRTC does not know, with the nearest one it does."""
    if not isinstance(arch, str):
        raise ArgumentError("arch", "must be a text such as 'sm_90a'", arch)
    if arch in known_archs():
        return
    error: ArgumentError = UnknownNameError("arch", arch, known_archs())
    number = _NUMBERED_ARCH.fullmatch(arch)
    if number and int(number[1]) < nvrtc.supported()[0]:
        error = ArgumentError("arch", f"must be {known_archs()[0]} or newer", arch)
    raise ArchError(f"{error} ({describe_archs()})")


def describe_archs() -> str:
    """What the installed compiler makes code for, as part of a message."""
    (major, minor), known = nvrtc.version(), known_archs()
    return f"NVRTC {major}.{minor} compiles for {known[0]} to {known[-1]}"


@functools.cache
def own_headers() -> Mapping[str, str]:
    """Our device headers by the name they are included by, from a checkout, a wheel or a zip alike."""
    folder = resources.files("tilewise") / "include" / "tilewise"
    return {
        f"tilewise/{file.name}": file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda item: item.name)
        if file.name.endswith(".cuh")
    }


def _definitions(defines: Mapping[str, object]) -> Iterator[str]:
    for name, value in defines.items():
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
            raise ArgumentError("defines", "must map C identifiers to values", name)
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int | float | str):
            raise ArgumentError(f"defines[{name!r}]", "must be a number or a text", value)
        yield f"--define-macro={name}={value}"


def _reachable(
    text: str, headers: Mapping[str, str], folders: list[Path]
) -> Iterator[tuple[str, str | None]]:
    """Each header that ``text`` includes, directly or not: its name and text, None where not found.

    The text decides the cache key, so it does not matter that conditions are not evaluated.
    """
    seen: set[str] = set()
    queue: list[tuple[str, list[Path]]] = [(text, folders)]
    while queue:
        current, places = queue.pop()
        for match in _INCLUDE.finditer(current):
            named = _NAMED.match(match[1].strip())
            name = named[1] if named else "\0computed"
            if name in seen:
                continue
            seen.add(name)
            if name in headers:
                yield name, headers[name]
                queue.append((headers[name], places))
                continue
            file = next((folder / name for folder in places if (folder / name).is_file()), None)
            try:
                body = file.read_text(encoding="utf-8", errors="replace") if file else None
            except OSError:
                body = None
            yield name, body
            if file and body is not None:
                queue.append((body, [file.parent, *folders]))


@functools.cache
def _toolkit_folder() -> str:
    """Where CUDA's own headers lie, if a wheel or a toolkit brought them."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory

        return str(find_nvidia_header_directory("cudart") or "")
    except Exception:  # an optional convenience: whatever goes wrong, the compiler's error tells the rest
        return ""


def _toolkit_headers(reached: Mapping[str, str | None]) -> list[str]:
    """The folders to search when an include is found nowhere else."""
    if all(text is not None for text in reached.values()):
        return []
    folder = _toolkit_folder()
    if not folder:
        return []
    return [folder, *(str(extra) for extra in [Path(folder) / "cccl"] if extra.is_dir())]


def _key(
    source: str, filename: str, options: list[str], expressions: list[str], reached: Mapping[str, str | None]
) -> str:
    """The content address of a compilation, or "" if its content is not known before it."""
    if "\0computed" in reached:
        return ""
    parts = [_FORMAT, repr(nvrtc.version()), source, filename, "\0".join(options), "\0".join(expressions)]
    for name in sorted(reached):
        parts += [name, reached[name] or ""]
    return cache.digest(*parts)


def _compile(
    source: str,
    filename: str,
    arch: str,
    options: list[str],
    headers: Mapping[str, str],
    expressions: list[str],
) -> Binary:
    output = nvrtc.compile_program(source, filename, [*options, _WITHOUT_RARE_NAMES], headers, expressions)
    if not output.ok:  # it may be one of the few
        output = nvrtc.compile_program(source, filename, options, headers, expressions)
    kernels = source if output.ok else without_host_code(source)
    if kernels != source:
        source, output = kernels, nvrtc.compile_program(kernels, filename, options, headers, expressions)
    implicit = {} if output.ok else implicit_headers(output.log)
    if implicit:
        headers, options = (
            {**headers, **implicit},
            [*options, *(f"--pre-include={name}" for name in implicit)],
        )
        output = nvrtc.compile_program(source, filename, options, headers, expressions)
    if not output.ok:

        def only_ptx() -> str:
            virtual = [option.replace("=sm_", "=compute_") for option in options if "ptxas" not in option]
            return nvrtc.compile_program(source, filename, virtual, headers, expressions).ptx

        raise diagnostics.failure(output.log, source, filename, arch, only_ptx)
    ptx = output.ptx
    # NVRTC puts the working directory before names of files; what a binary says must not depend on it.
    if not os.path.isabs(filename):
        ptx = ptx.replace(f'"{Path.cwd()}{os.sep}', '"')
    report = read_report(output.log, output.cubin)
    entries = {name: replace(entry, resources=report.get(name)) for name, entry in read_entries(ptx).items()}
    found = diagnostics.warnings(output.log, ptx, source, filename)
    return Binary(arch, ptx, output.cubin, entries, found, output.lowered or {})


def _store(key: str, binary: Binary) -> None:
    about = {
        "arch": binary.arch,
        "entries": [asdict(entry) for entry in binary.entries.values()],
        "warnings": binary.warnings,
        "lowered": dict(binary.lowered),
    }
    parts = {"about": json.dumps(about).encode(), "ptx": binary.ptx.encode(), "cubin": binary.cubin or b""}
    cache.default().put("binary", key, parts)


def _load(key: str) -> Binary | None:
    parts = cache.default().get("binary", key)
    if parts is None:
        return None
    try:
        about = json.loads(parts["about"])
        entries = {}
        for entry in about["entries"]:
            parameters = tuple(Parameter(**parameter) for parameter in entry["parameters"])
            found = Resources(**entry["resources"]) if entry["resources"] else None
            block = tuple(entry["block"]) if entry["block"] else None
            entries[entry["name"]] = Entry(entry["name"], parameters, found, entry["most_threads"], block)
        return Binary(
            about["arch"],
            parts["ptx"].decode(),
            parts["cubin"],
            entries,
            tuple(about["warnings"]),
            about["lowered"],
        )
    except (KeyError, TypeError, ValueError):
        return None  # an entry of another version of tilewise: made again
