"""A profile: the figures of one launch, and how they are shown."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewise.emulator.profiling.accesses import LINE_BYTES, SECTOR_BYTES, LaneAccess
from tilewise.emulator.profiling.counted import AccessCounts, Counts
from tilewise.errors import ArgumentError, UnknownNameError
from tilewise.gpus import Gpu
from tilewise.instruments.cache_model import Trace, Traffic
from tilewise.instruments.levels import Level, levels
from tilewise.instruments.line_figures import LineFigures, by_cuda, by_machine, by_ptx
from tilewise.instruments.machine import Machine
from tilewise.instruments.metric import EXACT, PREDICTED, Metric
from tilewise.instruments.metrics import select_names
from tilewise.instruments.occupancy import Occupancy
from tilewise.instruments.roofline import Roofline, roofline
from tilewise.instruments.spills import Spills, spills_of
from tilewise.instruments.verdict import Verdict, judge_launch
from tilewise.launch import Launch
from tilewise.toolchain.binary import Binary, Resources

__all__ = ["CSV_COLUMNS", "DEFAULT", "LaneRow", "Profile", "format_number"]

# As ncu prints them.
CSV_COLUMNS = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
)  # fmt: skip
_SECTION = "Command line profiler metrics"

# The metrics that a table shows by default.
DEFAULT = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_*.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_*.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_*.sum",
    "l1tex__m_*_sectors_mem_*_op_tma_*.sum",
    "memory_l2_theoretical_sectors_global*",
    "smsp__inst_executed.sum",
    "smsp__sass_thread_inst_executed_op_*_pred_on.sum",
    "tilewise__*.sum",
    "tilewise__*.ratio",
    "smsp__average_thread_inst_executed_*per_inst_executed.ratio",
    "smsp__sass_branch_targets_threads_divergent.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_*",
    "launch__occupancy_limit_*",
    "launch__waves_per_multiprocessor",
    "sm__maximum_warps_per_active_cycle_pct",
)


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane of an access: the address it touched, and its line and sector."""

    lane: int
    address: int
    line: int
    sector: int


@dataclass
class Profile(Mapping[str, float]):
    """Figures by ncu's names: ``profile["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"]``.

    ``metrics`` has each with what it is worth: "exact"; "estimated", told from the rest; "predicted", where
    there is no machine code; "PTX", of the PTX rather than the machine code; "model".
    """

    kernel: str
    launch: Launch
    gpu: Gpu
    machine: Machine
    counts: Counts
    metrics: dict[str, Metric]
    occupancy: Occupancy | None
    binary: Binary
    notes: list[str] = field(default_factory=list)
    trace: Trace | None = None
    """Where a model of the caches was asked for: which sectors each block touched."""
    traffic: Traffic | None = None
    """What that model makes of them."""
    following: list[Profile] = field(default_factory=list)
    """Profiles of the other launches, in their order, where there was more than one."""
    resources: Resources | None = None
    """What the assembler says that the kernel takes; None for foreign PTX."""
    operand_bytes: int | None = None
    """Bytes of a product's operands and result, which memory moves once at least; None if it is no plan's."""

    def __getitem__(self, name: str) -> float:
        if name not in self.metrics:
            raise UnknownNameError("metric", name, self.metrics)
        return self.metrics[name].value

    def __contains__(self, name: object) -> bool:
        return name in self.metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    @property
    def level(self) -> str:
        """Where widths and counts of accesses come from: "machine code" or "predicted"."""
        return self.machine.level

    @property
    def roofline(self) -> Roofline:
        """How long each part of the GPU is busy, and which part binds."""
        return roofline(self.machine, self, self.gpu, self.operand_bytes)

    @property
    def verdict(self) -> Verdict | None:
        """What binds the launch, and the gain from removing each known slowdown.

        None for foreign PTX that nothing here assembles.
        """
        return judge_launch(self.machine, self.roofline, self.gpu, self.binary)

    @property
    def spills(self) -> Spills | None:
        """Spilled registers and their cost; None if there are none."""
        return spills_of(self.resources, self.machine.ran)

    @property
    def levels(self) -> list[Level]:
        """Bytes read and written at each level of the memory, the nearest first."""
        return levels(self.machine.accesses, self.metrics, EXACT if self.binary.cubin else PREDICTED)

    @property
    def opcodes(self) -> dict[str, float]:
        """Runs of machine instructions by opcode, the most frequent first."""
        found: dict[str, float] = {}
        for item in self.machine.ran:
            name = item.instruction.family
            found[name] = found.get(name, 0.0) + float(item.runs.sum())
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    @property
    def categories(self) -> dict[str, float]:
        """Runs of machine instructions by ncu's categories of opcodes, the most frequent first."""
        found = self.metrics.get("sass__inst_executed_per_opcode_category")
        return dict(found.instances or {}) if found else {}

    @property
    def warps_per_block(self) -> int:
        """Warps of a block: threads in order, x first, 32 to a warp."""
        return -(-math.prod(self.launch.block) // 32)

    # -- where in the source ----------------------------------------------------------------------
    @property
    def lines(self) -> list[LineFigures]:
        """Figures by line of the CUDA source, or of the PTX without one; the worst first."""
        return by_cuda(self.machine, self.counts, self.binary) or self.ptx_lines

    @property
    def ptx_lines(self) -> list[LineFigures]:
        return by_ptx(self.machine, self.counts, self.binary)

    @property
    def machine_lines(self) -> list[LineFigures]:
        return by_machine(self.machine)

    def lanes(self, line: int, what: int = 0) -> list[LaneRow]:
        """Return the address that each lane touched: an access of a line of the CUDA source, as seen last.

        ``line`` is of the PTX where the kernel has no other source; ``what`` chooses among the accesses there.
        """
        places = self._accesses_of(line)
        if not 0 <= what < len(places):
            raise ArgumentError("what", f"must be below {len(places)}, the accesses of line {line}", what)
        seen = places[what].seen
        if seen is None:
            return []
        return [
            LaneRow(lane, address, address // LINE_BYTES, address // SECTOR_BYTES)
            for lane, address in enumerate(seen)
            if address is not None
        ]

    def explain(self, line: int, what: int = 0) -> str:
        """Return the lane-by-lane table behind a line's figure, as text."""
        rows, place = self.lanes(line, what), self._accesses_of(line)[what]
        size, touched = place.size, [row.address for row in rows]
        first = min(touched, default=0) // LINE_BYTES * LINE_BYTES
        head = f"{place.name}, {size} bytes a lane, {len(rows)} lanes: "
        sectors, lines = LaneAccess(touched, size).sectors(), len({row.line for row in rows})
        head += f"{sectors} sectors in {lines} lines of {LINE_BYTES} bytes"
        listed = [
            f"{row.lane:>4}  {row.address:#x}  {row.address - first:>8}  {(row.address - first) // LINE_BYTES:>4}  "
            f"{(row.address - first) // SECTOR_BYTES:>6}"
            for row in rows
        ]
        return "\n".join(
            [head, f"lane  {'address':<{len(hex(first))}}  {'offset':>8}  line  sector", *listed]
        )

    def _accesses_of(self, line: int) -> list[AccessCounts]:
        from tilewise.toolchain.lines import ptx_locations

        known = {} if self.binary.is_foreign else ptx_locations(self.binary.ptx)
        name = self.binary.filename
        found = [
            place
            for place in self.counts.places()
            if (place.line == line if not known else _is_at(known.get(place.line), line, name))
        ]
        if not found:
            raise ArgumentError("line", "must be a line that touches memory", line)
        return found

    # -- output -----------------------------------------------------------------------------------
    def select(self, patterns: Sequence[str] | None = None) -> list[Metric]:
        """Return the metrics whose names match a pattern, all without patterns; refuse a pattern that matches none."""
        everywhere = {name for profile in self.all for name in profile.metrics}
        for pattern in patterns or ():
            if not select_names(everywhere, [pattern]):
                raise UnknownNameError("metric", pattern, self.metrics)
        return self._fitting(patterns)

    def _fitting(self, patterns: Sequence[str] | None) -> list[Metric]:
        names = select_names(self.metrics, patterns) if patterns else list(self.metrics)
        return [self.metrics[name] for name in names]

    @property
    def all(self) -> list[Profile]:
        """This profile and those of the other launches."""
        return [self, *self.following]

    def csv(self, patterns: Sequence[str] | None = None) -> str:
        """Return CSV as ``ncu --csv`` prints it. Columns that only a process on a GPU has are empty."""
        out = io.StringIO()
        writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        self.select(patterns)
        for number, profile in enumerate(self.all):
            major, minor = profile.gpu.capability
            head = [
                number,
                "",
                "tilewise",
                "",
                profile.kernel,
                1,
                7,
                profile.launch.block,
                profile.launch.grid,
            ]
            for metric in profile._fitting(patterns):
                row = [
                    *head,
                    0,
                    f"{major}.{minor}",
                    _SECTION,
                    metric.name,
                    metric.unit,
                    format_number(metric.value),
                ]
                writer.writerow(row)
        return out.getvalue()

    def rows(self, patterns: Sequence[str] | None = None) -> list[tuple[str, str, str, str]]:
        """Return a table's rows for this launch alone: name, figure, unit, and label unless exact."""
        wanted = patterns or [p for p in DEFAULT if select_names(self.metrics, [p])]
        return [
            (m.name, format_number(m.value), m.unit, "" if m.label == EXACT else m.label)
            for m in self._fitting(wanted)
            if patterns or m.value or m.name.startswith("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.")
        ]

    def table(self, patterns: Sequence[str] | None = None) -> str:
        """Return the figures as a table; figures that are not exact carry their label."""
        parts = []
        self.select(patterns)
        for profile in self.all:
            parts += [str(profile), *([f"spills: {profile.spills}"] if profile.spills else []), ""]
            rows = profile.rows(patterns)
            widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
            parts += [
                f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {label}".rstrip()
                for name, value, unit, label in rows
            ]
            parts += ["", *(f"  note: {note}" for note in profile.notes)] if profile.notes else []
        return "\n".join(parts).rstrip() + "\n"

    def to_dict(self, patterns: Sequence[str] | None = None) -> dict[str, Any]:
        """Return plain data: metrics, lines, occupancy, roofline, and the model of the caches."""
        self.select(patterns)
        verdict = self.verdict
        return {
            "kernel": self.kernel,
            "gpu": self.gpu.name,
            "grid": list(self.launch.grid),
            "block": list(self.launch.block),
            "level": self.level,
            "metrics": {
                m.name: {"value": m.value, "unit": m.unit, "label": m.label}
                | ({"instances": dict(m.instances)} if m.instances is not None else {})
                for m in self._fitting(patterns)
            },
            "opcodes": self.opcodes,
            "occupancy": self.occupancy.to_dict() if self.occupancy else None,
            "spills": self.spills.to_dict() if self.spills else None,
            "verdict": verdict.to_dict() if verdict else None,
            "roofline": self.roofline.to_dict() if self.machine.ran else None,
            "levels": [asdict(level) for level in self.levels],
            "traffic": asdict(self.traffic) if self.traffic else None,
            "lines": [asdict(line) for line in self.lines],
            "notes": self.notes,
            "following": [profile.to_dict(patterns) for profile in self.following],
        }

    def json(self, patterns: Sequence[str] | None = None) -> str:
        return json.dumps(self.to_dict(patterns), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        return (
            f"{self.kernel} on {self.gpu.title}: grid {self.launch.grid} × block {self.launch.block}, "
            f"counted at the level of {'the machine code' if self.level == 'machine code' else 'PTX, ' + self.level}"
        )

    def __repr__(self) -> str:
        return f"<tilewise.Profile of {self.kernel}: {len(self)} metrics>"

    __hash__ = None  # type: ignore[assignment]


def format_number(value: float) -> str:
    """Format a number as ncu prints it: thousands apart, two decimals unless it is whole."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.7g}"


def _is_at(location: Any, line: int, filename: str) -> bool:
    """Whether a PTX line comes from a line of the source, directly or through calls."""
    if location is None:
        return False
    return any(
        place.line == line and place.file.replace("\\", "/").endswith(filename)
        for place in (location.source, *location.callers)
    )
