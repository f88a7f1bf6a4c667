"""What lowering a kernel works with: its text, its program, the current place in it, its registers and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis, Shape
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, HostCall, Space
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.outline import Outline
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import llvm_scalar

__all__ = ["WARP_PARAMETERS", "Apart", "Context", "Loops", "Stops", "Watcher"]

WARP_PARAMETERS = (
    "ptr noalias %ctx, ptr noalias %worker, ptr %block, ptr noalias %warp"  # of code that a warp runs
)


@dataclass(slots=True)
class Stops:
    """Where a warp may stop and go on."""

    labels: list[str] = field(default_factory=list)  # to go on at, each ending in its number
    last_number: int = 0
    deopts: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Guarded instructions by id → (resume number, position in the block)."""
    hand_over: Callable[[int, set[str]], None] | None = None
    """How a piece that is a function of its own goes on in the general build, while it is being written."""


@dataclass(slots=True)
class Apart:
    """What is kept of lanes that are apart."""

    chain: list[int]  # blocks that lanes may wait for
    pending: dict[int, str]  # block → where the lanes are that wait for it
    stations: list[tuple[int, int, int, str]] = field(default_factory=list)
    """What they pass on their way down: blocks, and the ends of loops, inner ones first."""
    meets: bool = False  # whether they may meet others of their warp
    waits: bool = False  # whether they may wait at all
    gates: list[int] = field(default_factory=list)  # blocks of the chain that all lanes must come to
    leaving: list[int] = field(default_factory=list)  # those behind a gate that nothing but the exit follows


@dataclass(slots=True)
class Loops:
    """Counters of turns: allocas."""

    turns: str = ""  # instructions in loops since the last look at the stop flag
    rounds: str = ""  # that lanes start over from the top
    fairness: dict[int, str] = field(default_factory=dict)  # by loop that lanes apart go around in


class Context(Emitter):
    """The state of lowering one build of a kernel, and what needs nothing else."""

    def __init__(self, program: Program, general: bool, name: str, sums: str = "fast") -> None:
        super().__init__()
        self.program, self.name, self.general = program, name, general
        self.sums = sums  # how tensor cores add: "fast" or "hardware"
        self.analysis: Analysis = program.general if general else program.fast
        self.types = program.function.registers
        self.registers: dict[str, str] = {}  # name → alloca
        self.merged: set[str] = set()  # registers that keep in some lanes what they had
        self.block: Block = program.flow.blocks[0]
        self.guard: Value | None = None  # lanes for which the current instruction is guarded
        self.rooms: dict[str, str] = {}  # type → alloca that a function's instructions share
        self.operand_copies: list[str] = []  # allocas for copies of operands, which all instructions share
        self.careful_functions: dict[tuple[object, ...], str] = {}  # kind of access → name
        self.hints = 0  # memory instructions so far
        self.live = self.current = ""  # allocas: lanes that have not left, lanes that run where apart
        self.full = False  # whether all 32 lanes are there wherever lanes run together
        self.grouped = False  # whether one check serves a group of accesses
        self.watcher = Watcher(self)
        self.watched = False  # whether the watcher does anything
        self.stops, self.apart, self.loops = Stops(), Apart([], {}), Loops()
        self.outline = Outline(program.flow)
        self.now: Instruction

    @property
    def is_apart(self) -> bool:
        return self.block.index in self.analysis.divergent

    @property
    def masked(self) -> bool:
        """Whether some lanes may not run, so that writes must leave them unchanged."""
        return self.is_apart or self.guard is not None or not self.full

    def stored_type(self, name: str) -> str:
        scalar = llvm_scalar(self.types[name])
        return vector(scalar) if self.analysis.shapes.get(name, UNIFORM) is None else scalar

    def launch_values(self) -> None:
        """Name what every function of a kernel needs of the launch, the block and the warp."""
        for name, type_, owner, place in (
            ("shared", "ptr", "%block", BLOCK.SHARED),
            ("shared_bytes", "i64", "%ctx", LAUNCH.SHARED_BYTES),
            ("const_bytes", "i64", "%ctx", LAUNCH.CONST_BYTES),
            ("param_bytes", "i64", "%ctx", LAUNCH.PARAM_BYTES),
            ("params", "ptr", "%ctx", LAUNCH.PARAMS),
            ("constants", "ptr", "%ctx", LAUNCH.CONST),
        ):
            self.line(f"%{name} = load {type_}, ptr {self.offset(owner, place)}, align 8")
        self.line(f"%index = load i32, ptr {self.offset('%warp', WARP.INDEX)}, align 4")

    def pointers(self) -> tuple[Value, Value, Value, Value]:
        """The arguments that every function of the run-time support takes first."""
        return Value("ptr", "%ctx"), Value("ptr", "%worker"), Value("ptr", "%block"), Value("ptr", "%warp")

    def room(self, type_: str) -> str:
        """Room of a type, which all instructions of a function share."""
        if type_ not in self.rooms:
            self.rooms[type_] = self.alloca(type_, 64)
        return self.rooms[type_]

    def buffers(self) -> tuple[str, str]:
        """Room for an address of every lane, and for 32 bytes of every lane."""
        return self.room("[32 x i64]"), self.room("[1024 x i8]")

    def list_addresses(self, addresses: Value) -> str:
        """Store every lane's address in the buffer for them; return it."""
        buffer, _ = self.buffers()
        self.store(addresses, buffer, 64)
        return buffer

    def call_host(self, kind: HostCall, line: int, mask: Value) -> tuple[Value, str]:
        """Call the host from some lanes: its answer, and the buffer with 64 bits for each lane and operand."""
        _, buffer = self.buffers()
        function = self.load("ptr", self.offset("%ctx", LAUNCH.HOST), 8)
        return self.call_at(function, "i32", *self.pointers(), kind, mask, line, buffer), buffer

    def columns(self) -> str:
        """Room for 16 operands of every lane, 64 bits each, and then 16 bytes more of every lane."""
        return self.room("[4608 x i8]")

    def mask(self) -> Value:
        """The lanes that run the current instruction, as an i32."""
        if self.is_apart:
            lanes = self.load("i32", self.current, 4)
        else:
            lanes = self.const("i32", -1) if self.full else self.load("i32", self.live, 4)
        return lanes & self.guard if self.guard else lanes

    def first_lane(self, value: Value) -> Value:
        """The value in the first lane that runs the current instruction."""
        safe = self.find_lowest(self.mask()) & 31
        return self.set(value.scalar, f"extractelement {value}, {safe}")

    def result_shape(self, instruction: Instruction) -> Shape | None:
        return self.analysis.results.get(id(instruction), UNIFORM)

    def leave_on_fault(self, answer: Value, likely: bool | None = True) -> None:
        """Go on where a routine's answer is 0, which is ``likely``; else leave with the fault that it found."""
        self.branch(self.equals(answer, 0), no="failed", likely=likely)

    def call_or_leave(self, name: str, *args: Value | int | str, likely: bool | None = True) -> None:
        """Call a routine of the run-time support; leave if its answer is a fault."""
        self.leave_on_fault(self.call(name, "i32", *self.pointers(), *args), likely)

    def fault_now(self, kind: int, instruction: Instruction, lanes: Value | None = None) -> None:
        """End the launch with a fault of some lanes: of the current ones, unless it says which."""
        whose = self.mask() if lanes is None else lanes
        self.call("tw_fault", "void", *self.pointers(), kind, instruction.line, whose)
        self.jump("failed")


class Watcher:
    """Base of the watchers in ``MODES``: its methods are called while a kernel is lowered, and do nothing."""

    def __init__(self, e: Context) -> None:
        self.e = e
        self.notes: list[Any] = []  # plain data, for who reads what the code writes down

    def block(self) -> None:
        """Called at the start of a block of the flow."""

    def before(self, instruction: Instruction) -> Any:
        """Called before an instruction is lowered; the result is passed to ``after``.

        NOTE: nothing may be written down yet: a warp may leave the instruction for another build, and do it
        again there.
        """

    def after(self, instruction: Instruction, seen: Any) -> None:
        """Called behind an instruction; ``seen`` is what ``before`` returned."""

    def wait(self, instruction: Instruction) -> None:
        """Called where lanes are about to wait at a barrier, or for other lanes of their warp."""

    def through(self, instruction: Instruction) -> None:
        """Called where a barrier has let the lanes pass."""

    def leave(self, lanes: Value) -> None:
        """Called where some lanes exit the kernel."""

    def hand_over(self, instruction: Instruction) -> None:
        """Called where a warp leaves for the general build, before an instruction."""

    def tile(self, space: Space, base: Value, step: Value, shape: tuple[int, int], loads: bool) -> None:
        """Called for a ``wmma`` that copies lines of a matrix; ``shape`` is their number and bytes."""

    def split(self, yes: Value, no: Value) -> None:
        """Called at the end of a block whose lanes may branch both ways."""

    def switch(self, lanes: Value, ways: Sequence[tuple[int, Value]]) -> None:
        """Called at the end of a block whose lanes may go to several targets of a table: each with its lanes."""
