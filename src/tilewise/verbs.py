"""Verbs on plans: a plan is plain data, so what is done with it are functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import Array
from tilewise.devices.emulated import open_emulator
from tilewise.epilogue import bits_of
from tilewise.errors import ArgumentError, integer
from tilewise.gpus import GPUS, find
from tilewise.interop import numpy_dtype
from tilewise.kernels import KERNELS
from tilewise.kernels.bind import bind
from tilewise.kernels.gemm.arrange import readable, with_copies
from tilewise.operands import Operands
from tilewise.plan import Plan
from tilewise.slots import places_of, table_of

if TYPE_CHECKING:
    from tilewise.bound import Bound
    from tilewise.instruments.findings import Finding
    from tilewise.instruments.profile import Profile
    from tilewise.instruments.recording import NamedMatrix, Recording

__all__ = ["check", "profile", "record"]

_Fill = Callable[[int, "np.dtype[Any]"], "npt.NDArray[Any]"]  # so many elements of a type


def profile(plan: Plan, *, cache: bool = False, sample: int | None = None) -> Profile:
    """What a plan comes to on its GPU, counted on the emulator, in the terms of ncu.

    ``cache`` adds what a model of the caches makes of it; ``sample`` runs so many blocks of each kind in place of
    all. It is of the launch that multiplies; what the others come to stands in ``profile.following``. A plan for the
    emulator is counted as on an H200.

    >>> import tilewise as tw
    >>> p = tw.plan(256, 256, 64, dtype="float16", gpu="h200")
    >>> tw.profile(p).launch.blocks > 0
    True
    """
    from tilewise.instruments.profile_launch import DEFAULT_GPU, profile_bound

    blocks = None if sample is None else integer("sample", sample, least=1)
    _check_plan(plan)
    gpu = find(plan.gpu if plan.gpu in GPUS else DEFAULT_GPU)
    bound = _bind_dense(plan, gpu.arch)
    # NOTE: zeros, since what is in memory by chance may be slow to compute with.
    arrays = _make_arrays(plan, bound)
    addresses = _addresses(plan, arrays)
    found = profile_bound(bound, addresses, gpu, cache=cache, sample=blocks)
    found.operand_bytes = sum(
        array.nbytes for name, array in arrays.items() if name not in ("offsets", "workspace")
    )
    return found


def check(plan: Plan, order: str | int = "late", *, seed: int | None = None) -> list[Finding]:
    """What is wrong with multiplying random matrices by a plan, on the emulator: an empty list is good.

    See :meth:`tilewise.Kernel.check` for what is looked for, and for ``order``.

    >>> import tilewise as tw
    >>> tw.check(tw.plan(64, 48, 32))
    []
    """
    from tilewise.instruments.checking import check_bound

    _check_plan(plan)
    bound = _bind_dense(plan, find(plan.gpu).arch if plan.gpu in GPUS else None)
    normal = np.random.default_rng(seed).standard_normal

    def draw(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        drawn = normal(size) + 1j * normal(size) if dtype.kind == "c" else normal(size)
        return drawn.astype(dtype)

    arrays = _make_arrays(plan, bound, draw)
    addresses = _addresses(plan, arrays)
    return check_bound(bound, addresses, order)


def record(plan: Plan, *, blocks: Sequence[int] = (0,), element: tuple[int, int] | None = None) -> Recording:
    """Everything that some blocks of the launch that multiplies do, on the emulator, with names for what they touch.

    ``element``, a row and a column of C, records the blocks that write it in place of ``blocks``; to find them takes a
    run of the whole product.

    >>> import tilewise as tw
    >>> recording = tw.record(tw.ladder["04_tiled"].plan(64, 64, 64, gpu="h200"))
    >>> recording.blocks, recording.lost
    ([0], 0)
    """
    from tilewise.instruments.profile_launch import DEFAULT_GPU
    from tilewise.instruments.record_launch import record_bound

    _check_plan(plan)
    gpu = find(plan.gpu if plan.gpu in GPUS else DEFAULT_GPU)
    bound = _bind_dense(plan, gpu.arch)
    if not bound.launches:
        rule = "must have a launch, and a product without elements has none"
        raise ArgumentError("plan", rule, str(plan.problem))
    arrays = _make_arrays(plan, bound)
    addresses = _addresses(plan, arrays)
    launch, packed = list(bound.packed(addresses))[bound.main_packed]
    wanted = None if element is None else ("c", *element)
    matrices = _name_matrices(plan, bound, addresses)
    return record_bound(bound, launch, packed, gpu, matrices, blocks=blocks, element=wanted, undo=False)


def _name_matrices(plan: Plan, bound: Bound, addresses: Mapping[str, int]) -> list[NamedMatrix]:
    """The matrices that the plan's kernel reads and writes: A and B as copied, where they are copied first."""
    from tilewise.instruments.recording import NamedMatrix

    read = _read_operands(plan, Operands.of(plan.problem))
    found = []
    for one in (*read[:3], *read.extras):
        address = addresses.get(one.name, 0) or addresses["workspace"] + bound.regions[one.name]
        steps, count = [step for step in one.stack if step], math.prod(read.stack_of(one))
        stack = (count, min(steps)) if steps else (1, 0)
        found.append(
            NamedMatrix(
                one.name.removeprefix("copy_"), address + one.offset, one.rows, one.columns, one.row_stride,
                one.column_stride, one.dtype, one.itemsize, *stack,
            )
        )  # fmt: skip
    return found


def _check_plan(plan: Plan) -> None:
    if not isinstance(plan, Plan):
        raise ArgumentError("plan", "must be a Plan", type(plan).__name__, "tw.plan(m, n, k) makes one")


def _bind_dense(plan: Plan, arch: str | None) -> Bound:
    """The plan on the emulator, compiled for ``arch`` (the emulator's own if None), for operands that lie densely."""
    spec, operands = KERNELS[plan.kernel], Operands.of(plan.problem)
    read = _read_operands(plan, operands)
    return bind(spec, spec.settings_of(plan, operands), operands, read, open_emulator(), arch)


def _read_operands(plan: Plan, operands: Operands) -> Operands:
    """The operands as the plan's kernel reads them: after the copies."""
    spec = KERNELS[plan.kernel]
    _, needed = readable(spec, operands)
    return with_copies(spec, operands, (*needed, *plan.copies))


def _make_arrays(plan: Plan, bound: Bound, fill: _Fill | None = None) -> dict[str, Array]:
    """The operands on the emulator, by name: A and B filled, with zeros by default, the result and the workspace not
    set."""
    device, problem = open_emulator(), plan.problem
    made: dict[str, Array] = {}

    def make(name: str, size: int, dtype: str) -> None:
        kind = numpy_dtype(dtype)
        made[name] = device.zeros(size, kind) if fill is None else device.array(fill(size, kind))

    make("a", problem.batch * problem.m * problem.k, problem.a)
    make("b", problem.batch * problem.k * problem.n * max(problem.groups, 1), problem.b)
    operands = Operands.of(problem)
    for one in operands.extras:
        make(one.name, math.prod(operands.stack_of(one)) * one.rows * one.columns, one.dtype)
    made["c"] = device.empty((problem.batch * problem.m * problem.n,), numpy_dtype(problem.c))
    if problem.groups:  # even ones
        ends = np.arange(1, problem.groups + 1) * problem.m // problem.groups
        made["offsets"] = device.array(ends.astype("int32"))
    if bound.workspace_bytes:
        made["workspace"] = device.empty((bound.workspace_bytes,), "uint8")
    return made


def _addresses(plan: Plan, arrays: dict[str, Array]) -> dict[str, int]:
    """Where the operands lie, and the numbers of the epilogue, each 1. Matrices given by pointers lie densely too."""
    problem = plan.problem
    wide = Operands.of(problem).epilogue_type
    numbers = [(name, 1.0) for name in problem.epilogue.numbers]
    found = {name: array.ptr for name, array in arrays.items()} | bits_of(numbers, wide)
    if problem.pointers:
        operands = Operands.of(problem)
        for one in (one for one in (*operands[:3], *operands.extras) if one.by_pointers):
            steps = one.rows * one.columns // one.stack[0]
            found[places_of(one.name)] = table_of([steps * i for i in range(problem.batch)])
    return found
