"""A launch of a kernel in a file, given in words: a grid, a block, and what the arguments are."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tilewise.bench.product import fresh_seed
from tilewise.devices import Device
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.kernel import Kernel
from tilewise.toolchain.signature import read_entries

if TYPE_CHECKING:
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.profile import Profile

__all__ = ["FileLaunch", "Words", "argument", "open_launch", "triple"]

_TYPES: Mapping[str, Any] = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    **{f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_ARRAY = re.compile(r"(?:(?P<how>new|zeros):)?(?P<type>\w+)\[(?P<shape>[\d, ×x]+)\]")
_SEPARATOR = re.compile(r"\s*[,x×]\s*")
_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{]*>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+)?__global__\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?\w[\w\s*]*?"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<name>\w+)\s*\("
)
_EXAMPLES = "such as f32[640,448], new:f32[64], zeros:f32[64], data.npy, 42, 0.5 or null"

# Grid, block, arguments, shared bytes and cluster, as a kernel's call takes them.
_Called = tuple[tuple[int, ...], tuple[int, ...], list[Any], int, tuple[int, ...] | None]


@dataclass(frozen=True)
class Words:
    """What somebody says of a launch: plain data, as it was written."""

    file: str
    grid: str | None
    block: str | None
    kernel: str | None = None
    cluster: str | None = None
    shared: int = 0
    arch: str | None = None
    args: Sequence[str] = ()
    defines: Sequence[str] = ()
    include: Sequence[str] = ()
    seed: int | None = None


@dataclass(frozen=True)
class FileLaunch:
    """A kernel out of a file and how to launch it."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] | None
    shared: int
    words: Sequence[str] = field(repr=False)
    seed: int

    def start(self, device: Device, timeout: float | None = None) -> None:
        """Make the arguments and launch; the same seed makes the same numbers."""
        with self._named_as_given():
            self.kernel(*self._launch(device), device, timeout)

    def profile(
        self,
        gpu: str | None = None,
        *,
        cache: bool = False,
        sample: int | None = None,
        timeout: float | None = None,
    ) -> Profile:
        """The same launch on the emulator, counted as on a GPU: see :meth:`tilewise.Kernel.profile`."""
        with self._named_as_given():
            return self.kernel.profile(*self._launch(open_emulator()), gpu, timeout, cache, sample)

    def check(
        self,
        order: str | int = "late",
        timeout: float | None = None,
        *,
        level: str = "warning",
        lenient: bool = False,
    ) -> list[Finding]:
        """The same launch on the emulator, checked: see :meth:`tilewise.Kernel.check`."""
        with self._named_as_given():
            launch = self._launch(open_emulator())
            return self.kernel.check(*launch, order, timeout, level=level, lenient=lenient)

    def _launch(self, device: Device) -> _Called:
        """What a kernel is called with, its arguments made on a device."""
        rng = np.random.default_rng(self.seed)
        args = [argument(word, rng, device) for word in self.words]
        return self.grid, self.block, args, self.shared, self.cluster

    @contextlib.contextmanager
    def _named_as_given(self) -> Iterator[None]:
        """Errors about arguments name them as they stand on the command line."""
        try:
            yield
        except ArgumentError as error:
            raise self._in_words(error) from None

    def _in_words(self, error: ArgumentError) -> ArgumentError:
        """An error about an argument, as it stands on the command line."""
        found = re.fullmatch(r"args\[(\d+)\]", error.argument)
        if not found:
            return error
        number = int(found[1])
        parameter, word = self.kernel.parameters[number], self.words[number]
        fix = "an array is such as f32[640,448], a null pointer null" if parameter.size == 8 else ""
        if parameter.is_struct:
            fix = "a struct by value comes from a file: an array of no dimension of a structured type, in data.npy"
        return ArgumentError(f"--arg {word!r} (number {number + 1})", error.rule, fix=fix)


def open_launch(words: Words) -> FileLaunch:
    """Read the file, compile the kernel, and look at the words of its launch."""
    path = Path(words.file)
    if path.suffix not in (".cu", ".ptx"):
        raise ArgumentError("a file", "must end in .cu (CUDA C++) or .ptx", words.file)
    text = _read(path)
    for name, given in (("--grid", words.grid), ("--block", words.block)):
        if given is None:
            raise ArgumentError(name, "must be given for a file", fix="such as --grid 11,20 --block 32,32")
    foreign = path.suffix == ".ptx"
    names = list(read_entries(text)) if foreign else _kernels(text)
    entry = words.kernel or _only(names, words.file)
    if foreign:
        kernel = Kernel.from_ptx(text, entry, filename=path.name)
    else:
        folders = [path.parent, *map(Path, words.include)]
        kernel = Kernel(
            text, entry, words.arch, _defines(words.defines), filename=path.name, include_dirs=folders
        )
    if len(words.args) != len(kernel.parameters):
        listed = ", ".join(
            f"{p.type}{f' of {p.size} bytes' if p.is_struct else ''}" for p in kernel.parameters
        )
        need = f"{len(kernel.parameters)} times, for {listed}" if listed else "0 times: the kernel takes none"
        raise ArgumentError("--arg", f"must be given {need}", len(words.args), fix=_EXAMPLES)
    return FileLaunch(
        kernel,
        triple("--grid", words.grid or ""),
        triple("--block", words.block or ""),
        triple("--cluster", words.cluster) if words.cluster is not None else None,
        words.shared,
        words.args,
        fresh_seed() if words.seed is None else words.seed,
    )


def argument(word: str, rng: np.random.Generator, device: Device) -> Any:
    """An argument from a word: an array, a number or a null pointer."""
    if word in ("null", "none"):
        return None
    if found := _ARRAY.fullmatch(word):
        return _array(word, found, rng, device)
    if word.endswith(".npy"):
        return _from_file(word)
    for number in (lambda: int(word, 0), lambda: float(word)):
        try:
            return number()
        except ValueError:
            pass
    raise ArgumentError("--arg", f"must be {_EXAMPLES}", word)


def triple(argument: str, text: str) -> tuple[int, ...]:
    """``"11,20"`` or ``"11x20"`` as numbers."""
    words = _SEPARATOR.split(text.strip())
    if not 1 <= len(words) <= 3 or not all(word.isdecimal() and int(word) for word in words):
        raise ArgumentError(argument, "must be one to 3 numbers above 0, such as 11,20", text)
    return tuple(int(word) for word in words)


def _array(word: str, found: re.Match[str], rng: np.random.Generator, device: Device) -> Any:
    how, name = found["how"], found["type"]
    if name not in _TYPES:
        raise UnknownNameError("--arg", name, _TYPES)
    kind, sizes = np.dtype(_TYPES[name]), _SEPARATOR.split(found["shape"].strip())
    if not all(size.isdecimal() for size in sizes):
        raise ArgumentError("--arg", f"must be {_EXAMPLES}", word)
    shape = tuple(int(size) for size in sizes)
    try:
        if how == "new":
            return device.empty(shape, kind)
        if how == "zeros" or kind.kind in "iu":  # a random index would be out of bounds
            return np.zeros(shape, kind)
        return rng.standard_normal(math.prod(shape), np.float32).reshape(shape).astype(kind)
    except (MemoryError, ValueError):  # more than there is, or than an index reaches
        raise ArgumentError("--arg", "must fit into the host's memory", word) from None


def _from_file(name: str) -> Any:
    try:
        return np.load(name, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"--arg {name!r}", f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ArgumentError(f"--arg {name!r}", f"cannot be read: {error}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"file {str(path)!r}", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ArgumentError(f"file {str(path)!r}", "must be a text: CUDA C++ (.cu) or PTX (.ptx)") from None


def _kernels(source: str) -> list[str]:
    """The kernels of a CUDA source; of a template, its name and "<…>"."""
    return [found["name"] + "<…>" * bool(found["template"]) for found in _KERNEL.finditer(source)]


def _defines(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name.isidentifier():
            raise ArgumentError("--define", "must look like NAME or NAME=VALUE", pair)
        found[name] = value or "1"
    return found


def _only(names: Sequence[str], file: str) -> str:
    if len(names) == 1 and not names[0].endswith("<…>"):
        return names[0]
    if not names:
        raise ArgumentError(f"file {file!r}", "must hold a kernel: a __global__ function")
    how = "a template is named with its arguments, such as 'tiled<32>'" if "<…>" in "".join(names) else ""
    if len(names) == 1:
        raise ArgumentError("--kernel", f"must name an instance of {names[0]}", fix=how)
    raise ArgumentError("--kernel", f"must be given, as {file} has several: {', '.join(names)}", fix=how)
