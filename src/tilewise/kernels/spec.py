"""What a kernel of ours can do: one form for the lessons of the ladder and for the production kernels.

A spec is a pair of files of one stem: ``rung_04_tiled.cu`` holds the CUDA C++, ``rung_04_tiled.py`` says which
problems it takes, its compile-time choices, and how it is launched. A launch names operands, not addresses: each
of its arguments is a slot, bytes with gaps that the address of an operand fills when the kernel is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tilewise.errors import ArchError, ArgumentError, UnknownNameError
from tilewise.gpus import arch_capability
from tilewise.kernel import Kernel
from tilewise.kernels.epilogue import HEADER, epilogue_header, is_of_all_matrices
from tilewise.kernels.stack import refuse_table, table_size
from tilewise.launch import Launch
from tilewise.operands import Operand, Operands, alignment_of, ceil_div
from tilewise.plan import Plan
from tilewise.problem import COMPLEX, SCALED_TERMS, Epilogue, Tile, finished_type, result_of
from tilewise.slots import MapSlot, Slot, constant

__all__ = [
    "AS_IT_IS",
    "SCALED_LINES",
    "KernelSpec",
    "MapSlot",
    "Operand",
    "Operands",
    "Settings",
    "Slot",
    "Step",
    "Work",
    "access_bytes",
    "ceil_div",
    "constant",
    "cut",
    "straddling",
]

Settings = Mapping[str, int | str]
ComplexForm = Literal["matrices", "pairs", "elements"]
"""What a kernel has for a complex number: of B a real matrix, of A and C two real numbers in a row; or these of B, too;
or of A and B the number itself."""

PLAIN = Epilogue()
_INDEX_MOST = 2**32 - 1  # elements that a kernel's 32-bit index reaches
_LINE_BYTES = 128  # of L2
AS_IT_IS = "none"
"""Of the setting ``widened``: no operand becomes wider on its way. Of ``b_element``: it is that of A."""
SCALED_LINES = (0, 1, SCALED_TERMS)
"""Of the settings ``scales_a`` and ``scales_b``: how many rows or columns share scales that differ along K."""
_MANY = 16  # values of a setting, from which on a message does not list them all


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A CUDA source, its compile-time values, and headers that take the place of ours."""

    file: Path
    defines: tuple[tuple[str, object], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def kernel(self, entry: str, arch: str | None) -> Kernel:
        """One of its kernels, compiled for ``arch``."""
        text = self.file.read_text(encoding="utf-8")
        headers = dict(self.headers)
        return Kernel(text, entry, arch, dict(self.defines), headers=headers, filename=self.file.name)


@dataclass(frozen=True, slots=True)
class Step:
    """One launch of a kernel: which entry of its source, and how. The arguments of the launch are slots.

    ``resident``: how many blocks an SM holds at once. If that is more than one, and there are registers for others
    besides, the launch asks for so much shared memory that no more fit. Where a launch begins before the one before
    it has ended, the first SMs to be free may take more blocks than their share; unless the step is to ``spread``, and
    asks for so much that they cannot.
    """

    entry: str
    launch: Launch
    code: KernelSource | None = None  # None: the spec's own source
    resident: int = 1
    spread: bool = False

    def may_begin_early(self, sms: int, after_copies: bool = False) -> bool:
        """Whether its blocks are spread over the SMs as evenly as on an empty GPU, if others are still there.

        They are if an SM holds twice as many as fall to it, so that all find room at once, or no more. SMs that still
        copy an operand have no room for them, whatever they hold.
        """
        each = ceil_div(math.prod(self.launch.grid), sms)
        return each >= self.resident or (2 * each <= self.resident and not after_copies)


# ── what a plan makes the GPU do, for the cost model ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel does with a problem under given settings: all that the cost model asks."""

    unit: str  # what multiplies: "thread", "ffma", "mma8", "mma16", "wgmma", or a unit of the production kernels
    block: Tile
    threads: int
    resident: int = 1  # blocks that an SM holds at once
    stages: int = 1
    cluster: int = 1  # blocks along m that share B
    split: int = 1  # slices of K side by side
    split_in_cluster: bool = False  # whether the blocks of a cluster have the slices of a tile
    parts: int = 1  # slices of K besides, whose sums another launch adds up
    parts_in_turn: int = 1  # of those that a thread of it adds up, one after another
    tail: int = 0  # of tiles, the last ones, that alone are in parts; 0: all are
    tiles: int = 1  # of C that a block computes one after another
    pingpong: bool = False  # whether it stores one of them while it multiplies the next
    exchanged: bool = False  # whether the block is one of C's transpose
    storers: int = 2  # warpgroups that store a tile together, if it has warpgroups
    launches: int = 1
    extra_bytes: int = 0  # read and written besides the operands: copies, partial sums
    load_bytes: int = 16  # that one access reads of A or B: less where they lie aligned for nothing wider
    store_bytes: int = 16  # that one access writes of C
    finishes_in_boxes: bool = False  # whether an epilogue's arrays are read and kept box by box
    stored_in_runs: bool = False  # whether threads store from boxes, as C's rows begin anywhere
    whole_boxes: bool = True  # whether the copy engine stores a tile, which it does in boxes of 64 columns
    straddling: float = 0.0  # the share of a step's bytes in rows that do not begin with lines of L2
    cut: float = 0.0  # the share of those in rows that do, but of which tiles have no whole lines
    shared_bytes: int = 0  # of a block, where they bound how many are resident; 0: ``resident`` has them
    step_clocks: float = 0.0  # that a step takes besides
    shared_reads: int = 0  # turns of shared memory that the warps of a step read in; 0: not counted


def access_bytes(*operands: Operand) -> int:
    """The widest access, up to 16 bytes, that the rows of all these operands are aligned for."""
    apart = (operand.pitch * operand.itemsize if operand.rows > 1 else 0 for operand in operands)
    return alignment_of(*apart, *(operand.alignment for operand in operands))


def straddling(a: Operand, b: Operand, block: Tile, cluster: int) -> float:
    """The share of a step's bytes whose rows do not begin with the lines of L2, if ``cluster`` blocks share B."""
    columns = block.n / cluster
    return (_straddles(a) * block.m + _straddles(b) * columns) / (block.m + columns)


def cut(b: Operand, block: Tile, cluster: int) -> float:
    """The share of a step's bytes that are B's, if its rows begin with the lines of L2 and tiles inside of them."""
    columns = block.n / cluster
    return 0.0 if _straddles(b) else columns / (block.m + columns)


def _straddles(operand: Operand) -> bool:
    return operand.rows > 1 and operand.pitch * operand.itemsize % _LINE_BYTES > 0


# ── the spec ─────────────────────────────────────────────────────────────────────────────────────────────


def _need_none(_operands: Operands, _settings: Settings) -> int:
    """The workspace of a kernel that needs none."""
    return 0


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A kernel of ours: what it takes, its compile-time choices, its launches, what they cost.

    ``settings`` maps each choice to the values that it may have, the default first. ``steps`` turns operands and
    settings into launches. ``promises`` are settings that say something of the operands, and whether it is so: 1 or 0.
    ``refuse`` says why a problem cannot be had, or None, and ``refuse_arch`` why settings
    cannot be had on an arch that the kernel runs on. ``work`` is for the cost model.
    """

    name: str
    title: str
    file: Path
    entries: tuple[str, ...]
    steps: Callable[[Operands, Settings], list[Step]]
    work: Callable[[Operands, Settings], Work]
    least: tuple[int, int] = (7, 5)  # compute capability
    arch: str | None = None  # the only one it can be compiled for, if there is one
    settings: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    refuse: Callable[[Operands, Settings], ArgumentError | None] = lambda _operands, _settings: None
    refuse_arch: Callable[[Settings, str], ArgumentError | None] = lambda _settings, _arch: None
    proposes_on: Callable[[Settings, str], bool] = lambda _settings, _arch: (
        True
    )  # what candidates gave, on an arch
    workspace: Callable[[Operands, Settings], int] = _need_none  # bytes
    candidates: Callable[[Operands, Settings, int], Iterator[Settings]] | None = None
    promises: Callable[[Operands, Settings], Mapping[str, int]] = lambda _operands, _settings: {}
    element_types: tuple[str, ...] = ("float32",)  # of A and B, the default first
    accumulate: Callable[[Settings], str] = lambda _settings: "float32"
    defines: Callable[[Settings], Mapping[str, object]] = lambda _settings: {}
    tiles: Callable[[Settings], Mapping[str, Tile]] = lambda _settings: {}
    raster: str = "row"  # the order in which blocks take tiles, where it is no setting
    strided: bool = False  # takes operands of any strides
    readable: Callable[[Operand], bool] = lambda operand: (
        operand.has_rows
    )  # whether it takes A or B as it lies
    # Whether it takes A and B together as they lie.
    reads_both: Callable[[Operands], bool] = lambda _operands: True
    reads_slowly: Callable[[Operand], bool] = lambda _operand: False  # so that a copy first may be faster
    lies: str = "have contiguous rows, one after another,"  # the same in words
    complex_as: ComplexForm = "matrices"  # what complex numbers come to it as
    stack_axes: int = 0  # axes of a stack that one launch takes
    epilogues: bool = False  # its last argument is the epilogue's
    grouped: bool = False  # takes a matrix of B for each group of A's rows
    sum_slots: Callable[[Operands, Settings], tuple[int, int]] = lambda operands, _settings: operands.sizes[
        :2
    ]  # how many partial sums its epilogue leaves of a column, and of a row
    orient: Callable[[Operands], Operands] = lambda operands: (
        operands
    )  # as it computes it, perhaps transposed
    practical: bool = True  # the planner considers it; most rungs are lessons alone
    arithmetic: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Of element types that it multiplies in another arithmetic than their own: in which; None is their own."""
    superseded: Callable[[str, str], bool] = lambda _dtype, _arch: False
    """Whether another kernel multiplies an element type on an arch as fast in all that was measured."""

    @property
    def pointers(self) -> bool:
        """Whether it takes matrices that lie anywhere."""
        return "pointers" in self.settings

    @property
    def widens(self) -> bool:
        """Whether it multiplies 8 bits by 16 without a copy."""
        return "widened" in self.settings

    @property
    def scales_terms(self) -> bool:
        """Whether it takes scales that differ along K."""
        return "scales_a" in self.settings

    @property
    def source(self) -> str:
        """The CUDA C++ of the kernel."""
        return self.file.read_text(encoding="utf-8")

    @property
    def needs(self) -> str:
        """The least arch that it runs on, or the only one."""
        return self.arch or f"sm_{self.least[0]}{self.least[1]}"

    def runs_on(self, arch: str) -> bool:
        """Whether it can be compiled for this arch."""
        return arch_capability(arch) >= self.least and self.arch in (None, arch)

    # ── which problems and plans are legal ──

    def why_not(self, operands: Operands, settings: Settings) -> ArgumentError | None:
        """Why this kernel cannot have this problem under these settings; None if it can."""
        return self.why_not_operands(operands, settings) or self.refuse(operands, settings)

    def why_not_operands(self, operands: Operands, settings: Settings) -> ArgumentError | None:
        """Why it cannot have operands of these types, as they lie; of the settings only the types count."""
        if operands.groups and not self.grouped:
            return ArgumentError("groups", f"must be 0 for {self.name}", operands.groups)
        if operands.by_pointers and not self.pointers:
            return ArgumentError("pointers", f"must be False for {self.name}", operands.by_pointers)
        if self.pointers and (error := refuse_table(operands, int(settings["pointers"]))):
            return error
        if not self.epilogues and not operands.epilogue.is_plain:
            return ArgumentError("epilogue", f"must be plain for {self.name}", operands.epilogue.expression)
        if error := self._refuse_scales(operands, settings):
            return error
        for array, operand in zip(operands.epilogue.arrays, operands.extras, strict=True):
            summed = array.name in operands.epilogue.summed
            if summed and len(operands.stack) > self.stack_axes and is_of_all_matrices(operands, operand):
                rule = f"must have sums for each matrix of a stack with more than {self.stack_axes} axes"
                return ArgumentError(array.name, rule, operands.stack)
        widened, found = settings.get("widened", AS_IT_IS), operands.widened
        if widened != AS_IT_IS and widened != (found and found.dtype):
            rule = f"must be {AS_IT_IS!r} for operands of {operands.a.dtype} and {operands.b.dtype}"
            return ArgumentError("widened", rule, widened)
        for operand in operands[:2]:
            if operand is found and operand.dtype == widened:
                continue
            if operand is operands.b and operands.other and settings.get("b_element") == operands.other:
                continue
            if operand.dtype not in self.element_types or operand.dtype != self.element(settings):
                rule = f"must have elements of type {' or '.join(self.element_types)} for {self.name}"
                name = operand.name.removeprefix("copy_")
                return ArgumentError(
                    name, rule, operand.dtype, f"convert it: {name}.astype('{self.element(settings)}')"
                )
        possible = self.arithmetic.get(COMPLEX.get(operands.element, operands.element), (None,))
        if operands.arithmetic not in possible:
            rule = f"must be {' or '.join(map(repr, possible))} for {self.name} with {operands.element}"
            return ArgumentError("arithmetic", rule, operands.arithmetic)
        if operands.c.dtype != self.result_type(settings):
            return ArgumentError(
                "result", f"must be {operands.c.dtype!r}, the element type of c", self.result_type(settings)
            )
        if not self.strided:
            for operand in operands[:3]:
                if not (operand.has_rows if operand is operands.c else self.readable(operand)):
                    rule = f"must {self.lies} for {self.name}"
                    return ArgumentError(
                        operand.name, rule, f"strides {operand.row_stride, operand.column_stride}"
                    )
                try:
                    operand.check_index(operand.name)
                except ArgumentError as error:
                    return error
            if not self.reads_both(operands):
                strides = ", ".join(f"{(one.row_stride, one.column_stride)}" for one in operands[:2])
                rule = (
                    "must lie along k with groups of rows"
                    if operands.groups
                    else "must not both lie across k"
                )
                return ArgumentError("a and b", f"{rule} for {self.name}", strides)
        return None

    def _refuse_scales(self, operands: Operands, settings: Settings) -> ArgumentError | None:
        """Refuse scales of terms that it does not take, or settings for others."""
        for operand in ("a", "b"):
            scales, lines = operands.scales_of(operand), operands.epilogue.lines_of(operand)
            if scales is not None and not self.scales_terms:
                return ArgumentError(f"scale_{operand}", f"must be the same along k for {self.name}")
            if self.scales_terms and settings[f"scales_{operand}"] != lines:
                rule = f"must be {lines}, as the scales of {operand} are"
                return ArgumentError(f"scales_{operand}", rule, settings[f"scales_{operand}"])
        return None

    def check(self, operands: Operands, settings: Settings) -> None:
        """Raise what :meth:`why_not` says."""
        error = self.why_not(operands, settings)
        if error is not None:
            raise error

    def complete(self, given: Mapping[str, object], chosen: Settings | None = None) -> dict[str, int | str]:
        """The settings to build with: given ones first, then chosen ones, then the defaults."""
        complete = {name: values[0] for name, values in self.settings.items()}
        complete.update(chosen or {})
        result = result_of(str(given.get("element")))
        if {"element", "result"} <= complete.keys() and result in self.settings["result"]:
            complete["result"] = result  # what A and B make, unless it is asked for otherwise
        for name, value in given.items():
            complete[name] = self._known_value(name, value)
        return complete

    def _known_value(self, name: str, value: object) -> int | str:
        if name not in self.settings:
            raise UnknownNameError(f"setting of {self.name}", name, self.settings)
        plain = value.__index__() if hasattr(value, "__index__") else value
        known = self.settings[name]
        if isinstance(plain, bool) or not isinstance(plain, int | str) or plain not in known:
            listed = ", ".join(map(repr, known if len(known) <= _MANY else (*known[:2], ..., known[-1])))
            raise ArgumentError(name, f"must be one of {listed.replace('Ellipsis', '…')}", value)
        return plain

    def for_types(self, operands: Operands) -> dict[str, int | str]:
        """The settings that operands decide: by their types, that of sums, and by whether pointers give them."""
        found: dict[str, int | str] = {"pointers": table_size(operands)} if self.pointers else {}
        if operands.element in self.settings.get("element", ()):
            found["element"] = operands.element
        if operands.widened is not None and operands.widened.dtype in self.settings.get("widened", ()):
            found["widened"] = operands.widened.dtype
        if operands.other in self.settings.get("b_element", ()):
            found["b_element"] = operands.other
        if self.scales_terms:
            found |= {f"scales_{one}": operands.epilogue.lines_of(one) for one in ("a", "b")}
        if self.complex_as == "pairs":
            found["in_pairs"] = int(operands.in_pairs)
        if operands.c.dtype in self.settings.get("result", ()):
            found["result"] = operands.c.dtype
        if operands.accumulate in self.settings.get("accumulate", ()):
            found["accumulate"] = operands.accumulate
        return found

    def element(self, settings: Settings) -> str:
        """The element type of A and B: the setting ``element`` decides where there is one."""
        return str(settings.get("element", self.element_types[0]))

    def result_type(self, settings: Settings) -> str:
        """What C holds: the setting ``result`` decides where there is one."""
        if "result" in self.settings:
            return str(settings["result"])
        return self.element(settings)

    # ── plans ──

    def plan(self, operands: Operands, gpu: str, settings: Settings) -> Plan:
        """The plan that these settings are."""
        found = dict(settings)
        work = self.work(operands, settings)
        stages, split = int(found.pop("stages", work.stages)), int(found.pop("split", work.split))
        raster = str(found.pop("raster", self.raster))
        return Plan(
            operands.problem(), gpu, self.name, dict(self.tiles(settings)), stages, raster, split, found
        )

    def settings_of(self, plan: Plan, operands: Operands) -> dict[str, int | str]:
        """The settings that a plan says, but no promise that does not hold; its tiles must be ones that they make."""
        given: dict[str, object] = dict(plan.parameters)
        for name in ("stages", "raster", "split"):
            if name in self.settings:
                given[name] = getattr(plan, name)
        settings = self.complete(given)
        made = self.tiles(settings)
        for level, tile in plan.tiles.items():
            if level in made and made[level] != tile:
                rule = f"must be {made[level]} with the plan's parameters for kernel {self.name}"
                raise ArgumentError(f"tiles[{level!r}]", rule, tile, "make the plan again with tw.plan")
        return settings | {name: 0 for name, holds in self.promises(operands, settings).items() if not holds}

    # ── code ──

    def kernel(self, arch: str | None = None, *, entry: str | None = None, **settings: Any) -> Kernel:
        """The kernel as a :class:`tilewise.Kernel`, compiled for ``arch`` with these settings.

        ``entry`` names one of :attr:`entries` where there is more than one; the first is the default.
        """
        chosen = entry if entry is not None else self.entries[0]
        if chosen not in self.entries:
            raise UnknownNameError(f"entry of {self.name}", chosen, self.entries)
        if arch is not None and not self.runs_on(arch):
            newer = "" if self.arch else " or newer"
            raise ArchError(
                f"rung {self.name} needs {self.needs}{newer}, not {arch}; compile it for {self.needs}"
            )
        return self.code(self.complete(settings)).kernel(chosen, arch)

    def code(self, settings: Settings, epilogue: Epilogue = PLAIN) -> KernelSource:
        """The source with the compile-time values of these settings, and what happens to the sums."""
        headers: tuple[tuple[str, str], ...] = ()
        if not epilogue.is_plain:
            headers = ((HEADER, epilogue_header(epilogue, finished_type(self.accumulate(settings)))),)
        defines = dict(self.defines(settings))
        if anywhere := sum(array.pointers for array in epilogue.arrays):
            defines["EXTRA_POINTERS"] = anywhere
        return KernelSource(self.file, tuple(defines.items()), headers)
