"""tw.ladder: the rungs by name, each to be called, compiled, profiled and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewise.calls import Choice
from tilewise.devices import Device
from tilewise.errors import ArgumentError, integer
from tilewise.gpus import Gpu
from tilewise.kernel import Kernel
from tilewise.kernels import RUNGS
from tilewise.kernels.spec import KernelSpec
from tilewise.matmul import multiply
from tilewise.operands import Operands
from tilewise.plan import Plan
from tilewise.planner import choose, target_of
from tilewise.planner.listing import operands_of

if TYPE_CHECKING:
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.profile import Profile

__all__ = ["Ladder", "Rung", "ladder"]


@dataclass(frozen=True, slots=True)
class Rung:
    """A lesson: one kernel of the ladder."""

    spec: KernelSpec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def source(self) -> str:
        """The CUDA C++ of the rung."""
        return self.spec.source

    @property
    def file(self) -> Path:
        return self.spec.file

    @property
    def entries(self) -> tuple[str, ...]:
        return self.spec.entries

    @property
    def settings(self) -> Mapping[str, Sequence[int | str]]:
        """Each compile-time choice with the values that it may have, the default first."""
        return self.spec.settings

    def kernel(self, arch: str | None = None, *, entry: str | None = None, **settings: Any) -> Kernel:
        """The rung as a :class:`tilewise.Kernel`, compiled for ``arch`` with these settings."""
        return self.spec.kernel(arch, entry=entry, **settings)

    def plan(self, m: int, n: int, k: int, *, gpu: str | Gpu = "h200", **settings: Any) -> Plan:
        """How the rung would multiply m×k by k×n: what is not given is chosen."""
        operands = self._operands(m, n, k, settings)
        target = target_of(gpu)
        return choose(operands, target, specs=(self.spec,), given=settings).plan(operands, target)

    def __call__(
        self, a: Any, b: Any, *, out: Any = None, device: Device | str | None = None, **settings: Any
    ) -> Any:
        """Multiply ``a`` (m×k) by ``b`` (k×n), whatever the arrays are, as ``tw.matmul`` does, by this rung.

        ``out`` is the array to write. ``settings`` are the rung's compile-time choices, such as ``tile``.
        """
        for argument, operand in (("a", a), ("b", b)):
            shape = getattr(operand, "shape", None)
            if shape is not None and len(shape) != 2:
                raise ArgumentError(argument, "must have two dimensions", f"shape {tuple(shape)}")
        return multiply(a, b, out, device, Choice(specs=(self.spec,), settings=tuple(settings.items())))

    def profile(
        self,
        m: int,
        n: int,
        k: int,
        gpu: str | Gpu | None = None,
        *,
        cache: bool = False,
        sample: int | None = None,
        **settings: Any,
    ) -> Profile:
        """What multiplying m×k by k×n comes to on ``gpu``, counted on the emulator.

        ``cache`` adds what a model of the caches makes of it; ``sample`` runs so many blocks of each kind in
        place of all.
        """
        from tilewise.instruments.profile_launch import DEFAULT_GPU, find_gpu
        from tilewise.verbs import profile

        chosen = find_gpu(DEFAULT_GPU if gpu is None else gpu, self.spec.needs)
        return profile(self.plan(m, n, k, gpu=chosen, **settings), cache=cache, sample=sample)

    def check(
        self, m: int, n: int, k: int, order: str | int = "late", *, seed: int | None = None, **settings: Any
    ) -> list[Finding]:
        """What is wrong with multiplying random matrices, m×k by k×n, on the emulator: an empty list is good.

        See :meth:`tilewise.Kernel.check` for what is looked for, and for ``order``.
        """
        from tilewise.verbs import check

        return check(self.plan(m, n, k, gpu="emulator", **settings), order, seed=seed)

    def fitting_size(self, size: tuple[int, int, int]) -> tuple[int, int, int]:
        """m, n and k that the rung takes: those given, or m and n halved as often as it needs."""
        m, n, k = size
        complete = self.spec.complete({})
        while max(m, n) > 1 and self.spec.refuse(self._operands(m, n, k, {}), complete) is not None:
            m, n = max(m // 2, 1), max(n // 2, 1)
        return m, n, k

    def _operands(self, m: int, n: int, k: int, settings: Mapping[str, Any]) -> Operands:
        m, n, k = (integer(name, size, least=1) for name, size in (("m", m), ("n", n), ("k", k)))
        complete = self.spec.complete(settings)
        return operands_of(m, n, k, dtype=self.spec.element(complete), result=self.spec.result_type(complete))

    def __repr__(self) -> str:
        return f"<tilewise rung {self.name}: {self.title}>"


class Ladder(Mapping[str, Rung]):
    """The rungs by name, in the order they are climbed: ``ladder["04_tiled"](a, b)``."""

    def __getitem__(self, name: str) -> Rung:
        return Rung(RUNGS[name])

    def __iter__(self) -> Iterator[str]:
        return iter(RUNGS)

    def __len__(self) -> int:
        return len(RUNGS)

    def __contains__(self, name: object) -> bool:
        return name in RUNGS

    def __repr__(self) -> str:
        return f"<tilewise.ladder: {', '.join(RUNGS)}>"


ladder = Ladder()
