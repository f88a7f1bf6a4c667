"""A launch of a kernel in a file, as the command line gives it → the kernel compiled, its launch and arguments
parsed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.bench.argument_specs import EXAMPLES, ArgumentMaker, ParsedArgument, triple
from tilewise.bench.product import fresh_seed
from tilewise.bench.unwritten import Unwritten, fill_with_patterns, find_unset, find_unwritten, list_unwritten
from tilewise.devices import Device
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError, Deadlock, KernelFault, LaunchTimeout
from tilewise.instruments.advice import FINDING_TEXTS
from tilewise.kernel import BoundCall, Kernel
from tilewise.toolchain.signature import read_entries

if TYPE_CHECKING:
    from tilewise.explain.explanation import Explanation
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.profile import Profile

__all__ = ["FileLaunch", "LaunchSpec", "open_launch"]

_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{]*>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+)?__global__\s+"
    r"\w[\w\s*]*?(?P<name>\w+)\s*\("
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ATTRIBUTE = re.compile(
    r"\b__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*\((?:[^()]|\([^()]*\))*\)"
)
# Grid, block, arguments, shared bytes and cluster, as a kernel's call takes them.
_CallArguments = tuple[tuple[int, ...], tuple[int, ...], list[Any], int, tuple[int, ...] | None]


@dataclass(frozen=True)
class LaunchSpec:
    """An unparsed launch from the command line: plain data."""

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
    cooperative: bool = False


@dataclass(frozen=True)
class FileLaunch:
    """A kernel from a file and how to launch it."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...] | None
    shared: int
    words: Sequence[str] = field(repr=False)
    seed: int
    cooperative: bool = False

    def make_arguments(self, device: Device) -> list[ParsedArgument]:
        """The arguments on a device; the same seed makes the same numbers."""
        maker = ArgumentMaker(device, self.seed)
        with self.rename_errors():
            return [
                maker.make(number, word, parameter)
                for number, (word, parameter) in enumerate(
                    zip(self.words, self.kernel.parameters, strict=True), 1
                )
            ]

    def start(self, device: Device, timeout: float | None = None) -> None:
        """Make the arguments and launch."""
        made = self.make_arguments(device)
        with self.rename_errors():
            self.kernel(*self._call(made), device, timeout, cooperative=self.cooperative)

    def bind(self, made: Sequence[ParsedArgument], device: Device) -> BoundCall:
        """The launch with its arguments, made ready."""
        with self.rename_errors():
            return self.kernel.bind(*self._call(made), device, cooperative=self.cooperative)

    def profile(
        self,
        gpu: str | None = None,
        *,
        cache: bool = False,
        sample: int | None = None,
        timeout: float | None = None,
    ) -> tuple[Profile, list[Unwritten]]:
        """The same launch on the emulator, counted as on a GPU, and what it did not write of its outputs.

        See :meth:`tilewise.Kernel.profile`. Where ``sample`` leaves blocks out, nothing is said of outputs.
        """
        made = self.make_arguments(open_emulator())
        patterns = fill_with_patterns(made, self.seed)
        with self.rename_errors():
            found = self.kernel.profile(
                *self._call(made), gpu, timeout, cache, sample, cooperative=self.cooperative
            )
        return found, [] if sample else list_unwritten(made, find_unwritten(made, patterns))

    def explain(
        self, gpu: str | None = None, *, element: tuple[int, int] | None = None, timeout: float | None = None
    ) -> Explanation:
        """What binds the launch, and pictures of what it does. See :func:`tilewise.explain`."""
        from tilewise.explain.explain import explain

        made = self.make_arguments(open_emulator())
        with self.rename_errors():
            return explain(
                self.kernel,
                *self._call(made),
                gpu=gpu,
                element=element,
                timeout=timeout,
                cooperative=self.cooperative,
            )

    def check(
        self,
        order: str | int = "late",
        timeout: float | None = None,
        *,
        level: str = "warning",
        lenient: bool = False,
    ) -> tuple[list[Finding], list[Unwritten]]:
        """The same launch on the emulator, checked, and what it did not write of its outputs.

        See :meth:`tilewise.Kernel.check`. Of a launch that did not come to its end, nothing is said of outputs.
        """
        made = self.make_arguments(open_emulator())
        with self.rename_errors():
            findings = self.kernel.check(
                *self._call(made), order, timeout, level=level, lenient=lenient, cooperative=self.cooperative
            )
        return findings, [] if _ended_early(findings) else list_unwritten(made, find_unset(made))

    def _call(self, made: Sequence[ParsedArgument]) -> _CallArguments:
        """The arguments of the kernel's call."""
        return self.grid, self.block, [item.value for item in made], self.shared, self.cluster

    @contextlib.contextmanager
    def rename_errors(self) -> Iterator[None]:
        """Errors about an argument name its ``--arg``; those of the launch mention the seed."""
        try:
            yield
        except ArgumentError as error:
            raise self._rename_argument(error) from None
        except (KernelFault, Deadlock, LaunchTimeout) as error:
            error.add_note(f"--seed {self.seed} makes the same arguments again")
            raise

    def _rename_argument(self, error: ArgumentError) -> ArgumentError:
        """An error about an argument, by its ``--arg``."""
        found = re.fullmatch(r"args\[(\d+)\]", error.argument)
        if not found:
            return error
        number = int(found[1])
        parameter, word = self.kernel.parameters[number], self.words[number]
        fix = "an array is such as f32[640,448], a null pointer null" if parameter.size == 8 else ""
        if parameter.is_struct:
            fix = (
                "a Matrix of tilewise/matrix.cuh is such as matrix:f32[640,448]; any struct by value comes from a "
                "file: an array of no dimension of a structured type, in data.npy"
            )
        return ArgumentError(f"--arg {word!r} (number {number + 1})", error.rule, fix=fix)


def _ended_early(findings: Sequence[Finding]) -> bool:
    """Whether a fault or a deadlock ended the launch: then that is the last finding."""
    going_on = {words.kind for words in FINDING_TEXTS.values()} | {"leak", "uninitialised-mbarrier"}
    return bool(findings) and findings[-1].kind not in going_on


def open_launch(words: LaunchSpec, arch: str | None = None) -> FileLaunch:
    """Read the file, compile the kernel, for ``arch`` where the words name none, and parse the launch."""
    path = Path(words.file)
    if path.suffix not in (".cu", ".ptx"):
        raise ArgumentError("a file", "must end in .cu (CUDA C++) or .ptx", words.file)
    text = _read(path)
    for name, given in (("--grid", words.grid), ("--block", words.block)):
        if given is None:
            raise ArgumentError(name, "must be given for a file", fix="such as --grid 11,20 --block 32,32")
    foreign = path.suffix == ".ptx"
    names = list(read_entries(text)) if foreign else _kernels(text)
    entry = words.kernel or _only_kernel(names, words.file)
    if foreign:
        kernel = Kernel.from_ptx(text, entry, filename=words.file)
    else:
        folders = [path.parent, *map(Path, words.include)]
        kernel = Kernel(
            text,
            entry,
            words.arch or arch,
            _defines(words.defines),
            filename=words.file,
            include_dirs=folders,
        )
    if len(words.args) != len(kernel.parameters):
        listed = ", ".join(
            f"{p.type}{f' of {p.size} bytes' if p.is_struct else ''}" for p in kernel.parameters
        )
        need = f"{len(kernel.parameters)} times, for {listed}" if listed else "0 times: the kernel takes none"
        raise ArgumentError("--arg", f"must be given {need}", len(words.args), fix=EXAMPLES)
    return FileLaunch(
        kernel,
        triple("--grid", words.grid or ""),
        triple("--block", words.block or ""),
        triple("--cluster", words.cluster) if words.cluster is not None else None,
        words.shared,
        words.args,
        fresh_seed() if words.seed is None else words.seed,
        words.cooperative,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"file {str(path)!r}", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ArgumentError(f"file {str(path)!r}", "must be a text: CUDA C++ (.cu) or PTX (.ptx)") from None


def _kernels(source: str) -> list[str]:
    """The kernels of a CUDA source, each once; of a template, its name and "<…>"."""
    text = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", source))
    names = (found["name"] + "<…>" * bool(found["template"]) for found in _KERNEL.finditer(text))
    return list(dict.fromkeys(names))


def _defines(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name.isidentifier():
            raise ArgumentError("--define", "must look like NAME or NAME=VALUE", pair)
        found[name] = value or "1"
    return found


def _only_kernel(names: Sequence[str], file: str) -> str:
    if len(names) == 1 and not names[0].endswith("<…>"):
        return names[0]
    if not names:
        raise ArgumentError(f"file {file!r}", "must hold a kernel: a __global__ function")
    how = "a template is named with its arguments, such as 'tiled<32>'" if "<…>" in "".join(names) else ""
    if len(names) == 1:
        raise ArgumentError("--kernel", f"must name an instance of {names[0]}", fix=how)
    raise ArgumentError("--kernel", f"must be given, as {file} has several: {', '.join(names)}", fix=how)
