"""The counted build: how often everything ran, and what its accesses to memory come to in hardware.

Code counts the runs of every basic block; how often an instruction ran follows from that, unless it is
guarded. Of an access whose lanes lie at known distances from one address, all there is to know is where
that address lies within its word or sector: a count for each such place, or none where there is only one. Of
the others, the lanes are looked at as the kernel runs (``support.py``).

Every multiprocessor has counts of its own, in a *row*; blocks are dealt to them in turn, as the hardware
deals them at first. ``counted.py`` reads what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewise.emulator.analysis.control_flow import walk
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.families.wgmma import shared_bytes_of
from tilewise.emulator.layout import BLOCK, LAUNCH, Space
from tilewise.emulator.llvm.emit import LANES, NULL, Value
from tilewise.emulator.lowering.context import Context, Watcher
from tilewise.emulator.lowering.values import read_bits
from tilewise.emulator.lowering.watch import WORKER_WATCH, Touch, touches
from tilewise.emulator.operations.operands import reads, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.profiling.accesses import LINE_BYTES, WORD_BYTES, Kind
from tilewise.emulator.profiling.copies import watch_copy
from tilewise.emulator.profiling.slow_path_counts import TABLE, kind_of, operands_of, routine_of
from tilewise.emulator.profiling.support import FIGURES, WAY, WAYS
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Instruction, Register

__all__ = ["BLOCK_COUNTS", "Counting", "Layout"]

_PLAIN_COPY = 3  # operands of a copy that does not say how many bytes it reads
_SPACES = {Space.GENERIC: "generic", Space.GLOBAL: "global"}
# Counts of a basic block.
RUNS, THREADS, SPLITS = 0, 8, 16
BLOCK_COUNTS = 24


class Layout:
    """The places of a kernel's counters in a row, the same for both builds."""

    def __init__(self, program: Program) -> None:
        self.points: dict[int, int] = {}  # id of an instruction → the first of its places
        self.guards: dict[int, int] = {}
        # Divisions and roots that may take a longer way: number, kind.
        self.divisions: dict[int, tuple[int, str]] = {}
        count = 0
        for instruction in program.flow.instructions:
            if places := _places(instruction):
                self.points[id(instruction)] = count
                count += places
            if instruction.guard is not None:
                self.guards[id(instruction)] = len(self.guards)
            if kind := kind_of(instruction):
                self.divisions[id(instruction)] = len(self.divisions), kind
        self.blocks, self.point_count = len(program.flow.blocks), count
        self.handed = 2 * self.blocks * BLOCK_COUNTS  # where warps left a block for the general build
        self.guarded = self.handed + 16 * len(program.deopts)
        self.figures = self.guarded + 16 * len(self.guards)
        self.slow = self.figures + 8 * FIGURES * count  # warps of which some lane took the longer way
        self.classes = self.slow + 8 * len(self.divisions)
        self.tables = WAY.SIZE * WAYS * count  # of divisions, before the first row
        self.ways = self.tables + TABLE.SIZE * len(self.divisions)  # bytes before the first row
        self.starts = {name: getattr(self, name) for name in ("guarded", "figures", "slow", "tables", "ways")}


def _places(instruction: Instruction) -> int:
    """Return how many memory accesses of an instruction are counted by their lanes."""
    operation = operation_of(instruction)
    if operation.copy_kind(instruction):
        return 1
    accesses = operation.accesses
    if not accesses or space_of(instruction) in ("param", "const", "local"):
        return 0
    return 3 if accesses[0].action == "copy" else 1


class Counting(Watcher):
    """Counts in one build. What the counts of the fast build mean is in ``notes``."""

    def __init__(self, e: Context) -> None:
        super().__init__(e)
        self.layout = Layout(e.program)
        self.end = self.layout.classes
        self.row = self.ways = ""  # of this multiprocessor; of this worker
        self.targets = ""  # room for addresses
        self.positions = {
            id(item): position
            for block in e.program.flow.blocks
            for position, item in enumerate(block.instructions)
        }
        self.about: dict[str, Any] = {
            "blocks": _describe_blocks(e.program, self.layout),
            "handed": [],
            "points": [None] * self.layout.point_count,
            "products": _products(e.program),
            "divisions": [
                [item.line, self.layout.divisions[id(item)][1]]
                for item in e.program.flow.instructions
                if id(item) in self.layout.divisions
            ],
            **self.layout.starts,
            "row": self.end,
        }
        self.notes = [self.about]

    # -- hooks ----------------------------------------------------------------------------------
    def block(self) -> None:
        e = self.e
        if not self.row:
            self._start()
        at = self._block_counts()
        self._add(at + RUNS, e.const("i64", 1))
        # Of the fast build it is noted that all threads run; a warp that comes to the other one has them counted.
        whole = e.full and not e.is_apart and not e.general
        if not whole:
            self._add(at + THREADS, self._threads(e.mask()))
        if not e.general:
            self.about["blocks"][e.block.index]["whole"] = whole

    def before(self, instruction: Instruction) -> Any:
        if division := self.layout.divisions.get(id(instruction)):
            count, type_ = operands_of(division[1])
            return [read_bits(self.e, item, type_) for item in instruction.operands[1 : 1 + count]]
        return touches(self.e, instruction) if id(instruction) in self.layout.points else None

    def after(self, instruction: Instruction, seen: Any) -> None:
        if instruction.guard is not None:
            lanes, at = self.e.mask(), self.layout.guarded + 16 * self.layout.guards[id(instruction)]
            self._add(at, self.e.wide(self.e.differs(lanes, 0)))
            self._add(at + 8, self._threads(lanes))
        first = self.layout.points.get(id(instruction), 0)
        if way := operation_of(instruction).copy_kind(instruction):
            self._note(instruction, first, "bulk", way=way)
            watch_copy(self.e, instruction, way, self._figures(first), NULL, 0)
        if division := self.layout.divisions.get(id(instruction)):
            self._count_division(*division, seen)
            return
        for i, touch in enumerate(seen or ()):
            if touch.action == "fill":
                self._count_async_copy(instruction, first + i, seen[0], touch)
            else:
                self._count_access(instruction, first + i, touch)

    def hand_over(self, instruction: Instruction) -> None:
        """Count a warp that leaves for the general build before an instruction."""
        number, position = self.e.stops.deopts[id(instruction)]
        place = number - min(number for number, _ in self.e.stops.deopts.values())
        self._add(self.layout.handed + 16 * place, self.e.const("i64", 1))
        self._add(self.layout.handed + 16 * place + 8, self._threads(self.e.mask()))
        entry = [place, self.e.block.index, position]
        if not self.e.general and entry not in self.about["handed"]:
            self.about["handed"].append(entry)

    def split(self, yes: Value, no: Value) -> None:
        """Count a branch at the end of a block that sends lanes of a warp both ways."""
        e = self.e
        both = [e.differs(lanes, 0) for lanes in (yes, no)]
        self._add(self._block_counts() + SPLITS, e.wide(e.op("and", *both)))

    def switch(self, lanes: Value, ways: Sequence[tuple[int, Value]]) -> None:
        """Count a table at the end of a block that sends lanes of a warp to more than one target."""
        e, by_target = self.e, dict[int, Value]()
        for target, some in ways:
            by_target[target] = by_target[target] | some if target in by_target else some
        first = e.const("i32", 0)
        for some in by_target.values():
            first = e.select(e.equals(first, 0), some, first)
        self.split(first, e.without(lanes, first))

    # -- code -----------------------------------------------------------------------------------
    def _start(self) -> None:
        """Emit the function's first lines: find this multiprocessor's row."""
        e, behind = self.e, self.e.lines
        e.lines = []
        launch = e.load("ptr", e.offset("%ctx", LAUNCH.WATCH), 8).ref
        many, row_bytes = e.load("i64", launch, 8), e.load("i64", e.offset(launch, 8), 8)
        self.ways = e.load("ptr", e.offset("%worker", WORKER_WATCH), 8).ref
        which = e.load("i64", e.offset("%block", BLOCK.NUMBER), 8) % many
        self.row = e.offset(e.offset(self.ways, self.layout.ways), which * row_bytes)
        e.allocas += e.lines
        e.lines = behind

    def _block_counts(self) -> int:
        """Return where the counts of this block of the flow are."""
        return (self.e.general * self.layout.blocks + self.e.block.index) * BLOCK_COUNTS

    def _add(self, offset: int | str, amount: Value) -> None:
        e = self.e
        place = e.offset(self.row, offset) if isinstance(offset, int) else offset
        e.store(e.load("i64", place, 8) + amount, place, 8)

    def _threads(self, lanes: Value) -> Value:
        return self.e.wide(self.e.count_bits(lanes))

    def _count_division(self, number: int, kind: str, given: list[Value]) -> None:
        """Count the lanes that take the slow path; ``given`` are the operands' bits in every lane."""
        e = self.e
        places = e.buffers()
        for value, place in zip(given, places, strict=False):
            e.store(value, place, 64)
        table = e.offset(self.ways, self.layout.tables + TABLE.SIZE * number)
        total = e.offset(self.row, self.layout.slow + 8 * number)
        e.call(routine_of(kind), "void", table, total, *places, e.mask())

    def _count_access(self, instruction: Instruction, number: int, touch: Touch) -> None:
        e = self.e
        access = touch.access
        # How the lanes share words of shared memory, and how many lanes' addresses count.
        kind = Kind.LOAD if touch.action == "load" and not touch.rows else Kind.STORE
        kind, rows = Kind.EACH if touch.action == "atomic" else kind, touch.rows or LANES
        space = _SPACES.get(access.space, "shared")
        figures = {"space": space, "size": touch.access.size, "rows": rows, "kind": int(kind)}
        about = self._note(instruction, number, touch.action, **figures)
        if e.general or access.lanes is None or access.space == Space.GENERIC:
            self._count_by_lane(number, touch, rows, kind)
        else:
            self._count_by_class(instruction, number, touch, about)

    def _note(self, instruction: Instruction, number: int, action: str, **more: Any) -> dict[str, Any]:
        """Note what the figures of an access are of. The fast build does for both."""
        about = {"line": instruction.line, "name": instruction.name, "action": action}
        about |= {"block": self.e.block.index, **more}
        if not self.e.general:
            self.about["points"][number] = about
        return about

    def _count_async_copy(self, instruction: Instruction, number: int, source: Touch, target: Touch) -> None:
        """Count the writing half of an asynchronous copy, which depends on the reading half; the place behind
        it remembers that.
        """
        e = self.e
        fills, size = len(instruction.operands) > _PLAIN_COPY, target.access.size
        about = {"space": "shared", "size": size, "rows": 32, "kind": int(Kind.EACH), "fills": fills}
        self._note(instruction, number, "fill", **about)
        if self.targets == "":
            self.targets = e.alloca("[32 x i64]", 64)
        buffer = e.list_addresses(source.addresses)
        e.store(target.addresses, self.targets, 64)
        ways = [e.offset(self.ways, WAY.SIZE * WAYS * (number + i)) for i in (0, 1)]
        figures = self._figures(number)
        e.call("tw_count_copy", "void", *ways, figures, self.targets, buffer, e.mask(), size)

    def _figures(self, number: int) -> str:
        """Return the pointer to the figures of an access."""
        return self.e.offset(self.row, self.layout.figures + 8 * FIGURES * number)

    def _count_by_lane(self, number: int, touch: Touch, rows: int, kind: int) -> None:
        """Count an access by its lanes' addresses at run time."""
        e = self.e
        buffer = e.list_addresses(touch.addresses)
        lanes = e.mask() if rows == 32 else e.mask() & ((1 << rows) - 1)
        ways = e.offset(self.ways, WAY.SIZE * WAYS * number)
        given = (buffer, lanes, touch.access.size, touch.access.space, kind)
        e.call("tw_count", "void", ways, self._figures(number), *given)

    def _count_by_class(
        self, instruction: Instruction, number: int, touch: Touch, about: dict[str, Any]
    ) -> None:
        """Count an access of known lanes by where its lowest address lies in its word or cache line."""
        e, access = self.e, touch.access
        assert access.lanes is not None
        unit = LINE_BYTES if access.space == Space.GLOBAL else WORD_BYTES
        count = max(1, unit // touch.access.size)
        about |= {"lanes": list(access.lanes), "classes": count, "step": touch.access.size}
        whole = e.full and not e.is_apart
        guarded = instruction.guard is not None
        if not guarded:
            self._keep_example(number, access.base)
        # All lanes at one address of global memory touch one sector, however many of them run.
        if not guarded and ((whole and count == 1) or (access.uniform and access.space == Space.GLOBAL)):
            about["classes"] = 1
            about["implied"] = self.positions[id(instruction)]
            return
        about["at"] = self.end
        self.end += 8 * count
        self.about["row"] = self.end
        done = ""
        if not whole or (guarded and e.guard is not None):
            done, all_of = e.label("done"), e.label("all")
            e.branch(e.equals(e.mask(), -1), all_of)
            self._count_by_lane(number, touch, about["rows"], about["kind"])
            e.jump(done)
            e.place(all_of)
        if guarded:  # here all lanes ran; where only some did, the count by lanes has kept them
            self._keep_example(number, access.base)
        number_of = (access.base // touch.access.size) & (count - 1)
        place = e.offset(e.offset(self.row, about["at"]), number_of * 8)
        self._add(place, e.const("i64", 1))
        if done:
            e.jump(done)
            e.place(done)

    def _keep_example(self, number: int, base: Value) -> None:
        """Keep where the lowest lane of an access of known lanes was, and which of them ran."""
        e, example = self.e, WAY.SIZE * WAYS * number + WAY.KNOWN
        e.store(base, e.offset(self.ways, example), 8)
        e.store(e.mask(), e.offset(self.ways, example + 8), 4)


def _products(program: Program) -> list[list[int]]:
    """List every ``wgmma`` that multiplies: its block of the flow, line, and bytes read of shared memory."""
    return [
        [block.index, item.line, shared_bytes_of(item)]
        for block in program.flow.blocks
        for item in block.instructions
        if (row := operation_of(item)).multiplies_matrices and row.asynchronous
    ]


def _describe_blocks(program: Program, layout: Layout) -> list[dict[str, Any]]:
    """List each basic block's instructions by line, name and guard; of a branch also the lines that decide it."""
    written: dict[str, list[Instruction]] = {}
    for item in program.flow.instructions:
        for name in writes(item):
            if program.function.registers.get(name) == "pred":
                written.setdefault(name, []).append(item)
    found = []
    for block in program.flow.blocks:
        items = [
            [item.line, item.name, layout.guards.get(id(item), -1), layout.points.get(id(item), -1)]
            for item in block.instructions
        ]
        end = block.terminator
        last = [end.instruction.line, end.instruction.name] if end.instruction else None
        if end.kind == "table" and end.instruction is not None and end.instruction.guard is not None:
            last = None  # it has run, and was counted, in the block before, which its guard parts
        tests = _test_lines(end.condition, written) if isinstance(end.condition, Register) else None
        found.append({"items": items, "end": last, "kind": end.kind, "tests": tests, "whole": False})
    return found


def _test_lines(condition: Register, written: Mapping[str, Sequence[Instruction]]) -> list[int]:
    """Return the lines that set a predicate, and those that set the predicates it is computed from."""

    def sources(name: str) -> Iterator[str]:
        return (source for item in written.get(name, ()) for source in reads(item))

    return sorted({item.line for name in walk([condition.name], sources) for item in written.get(name, ())})
