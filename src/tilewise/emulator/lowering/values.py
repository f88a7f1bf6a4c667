"""Registers and operands as LLVM values: reading them, writing them in the lanes that run."""

from __future__ import annotations

from tilewise.emulator.analysis.control_flow import Block
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.analysis.shapes import UNIFORM, Analysis, Shape
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, HostCall
from tilewise.emulator.llvm.emit import Emitter, Value, vector
from tilewise.emulator.lowering.memory import address_of
from tilewise.emulator.lowering.special import special
from tilewise.emulator.lowering.tables import unsupported
from tilewise.emulator.ptx.agreement import literal_disagreement, register_disagreement
from tilewise.emulator.ptx.syntax import Address, Immediate, Instruction, Not, Operand, Register, Symbol
from tilewise.emulator.ptx.types import bits_of, is_signed, literal_bits, llvm_scalar

__all__ = ["Values", "shape_in"]


def shape_in(program: Program, analysis: Analysis, operand: Operand) -> Shape | None:
    """The shape of an operand, as a build with this analysis reads it."""
    match operand:
        case Register(name=name):
            if name in program.threads:
                return program.threads[name][1]
            if name == "%laneid":
                return Shape(tuple(range(32)), 64, 0)
            if name.startswith("%lanemask"):
                return None
            return analysis.shapes.get(name, UNIFORM)
        case Not(item=item):
            return shape_in(program, analysis, item)
        case Address(base=Register() as base):
            return shape_in(program, analysis, base)
    return UNIFORM


class Values(Emitter):
    """What instruction tables work with: the current place in the program, its registers and lanes."""

    def __init__(self, program: Program, general: bool, name: str) -> None:
        super().__init__()
        self.program, self.name, self.general = program, name, general
        self.analysis: Analysis = program.general if general else program.fast
        self.types = program.function.registers
        self.registers: dict[str, str] = {}  # name → alloca
        self.merged: set[str] = set()  # registers that keep in some lanes what they had
        self.block: Block = program.flow.blocks[0]
        self.guard: Value | None = None  # lanes for which the current instruction is guarded
        self._buffers: tuple[str, str] | None = None
        self._columns = ""
        self.careful_functions: dict[tuple[object, ...], str] = {}  # kind of access → name
        self.hints = 0  # memory instructions so far
        self.live = self.current = ""  # allocas: lanes that have not left, lanes that run where apart
        self.full = False  # whether all 32 lanes are there wherever lanes run together
        self.grouped = False  # whether one check serves a group of accesses
        self.now: Instruction

    @property
    def is_apart(self) -> bool:
        return self.block.index in self.analysis.divergent

    def stored_type(self, name: str) -> str:
        scalar = llvm_scalar(self.types[name])
        return vector(scalar) if self.analysis.shapes.get(name, UNIFORM) is None else scalar

    def launch_values(self) -> None:
        """Name what every function of a kernel needs of the launch and the block."""
        self.line(f"%shared = load ptr, ptr {self.offset('%block', BLOCK.SHARED)}, align 8")
        for name, place in (
            ("shared_bytes", LAUNCH.SHARED_BYTES),
            ("const_bytes", LAUNCH.CONST_BYTES),
            ("param_bytes", LAUNCH.PARAM_BYTES),
        ):
            self.line(f"%{name} = load i64, ptr {self.offset('%ctx', place)}, align 8")
        for name, place in (("params", LAUNCH.PARAMS), ("constants", LAUNCH.CONST)):
            self.line(f"%{name} = load ptr, ptr {self.offset('%ctx', place)}, align 8")

    def warp_index(self) -> None:
        self.line(f"%index = load i32, ptr {self.offset('%warp', WARP.INDEX)}, align 4")

    def pointers(self) -> tuple[Value, Value, Value, Value]:
        """The arguments that every function of the run-time support takes first."""
        return Value("ptr", "%ctx"), Value("ptr", "%worker"), Value("ptr", "%block"), Value("ptr", "%warp")

    def buffers(self) -> tuple[str, str]:
        """Room for an address of every lane, and for 32 bytes of every lane."""
        if not self._buffers:
            self._buffers = (self.alloca("[32 x i64]", 64), self.alloca("[1024 x i8]", 64))
        return self._buffers

    def call_host(self, kind: HostCall, line: int, mask: Value) -> tuple[Value, str]:
        """Call the host from some lanes: its answer, and the buffer with 64 bits for each lane and operand."""
        _, buffer = self.buffers()
        function = self.load("ptr", self.offset("%ctx", LAUNCH.HOST), 8)
        listed = [*self.pointers(), self.const("i32", int(kind)), mask, self.const("i32", line)]
        listed.append(Value("ptr", buffer))
        return self.set("i32", f"call i32 {function.ref}({', '.join(map(str, listed))})"), buffer

    def columns(self) -> str:
        """Room for 16 operands of every lane, 64 bits each, and then 16 bytes more of every lane."""
        if not self._columns:
            self._columns = self.alloca("[4608 x i8]", 64)
        return self._columns

    def mask(self) -> Value:
        """The lanes that run the current instruction, as an i32."""
        if self.is_apart:
            lanes = self.load("i32", self.current, 4)
        else:
            lanes = self.const("i32", -1) if self.full else self.load("i32", self.live, 4)
        return self.op("and", lanes, self.guard) if self.guard else lanes

    def first_lane(self, value: Value) -> Value:
        """The value in the first lane that runs the current instruction."""
        self.declare("llvm.cttz.i32", "i32", ["i32", "i1"])
        lane = self.set("i32", f"call i32 @llvm.cttz.i32({self.mask()}, i1 false)")
        safe = self.op("and", lane, self.const("i32", 31))
        return self.set(value.scalar, f"extractelement {value}, {safe}")

    @property
    def masked(self) -> bool:
        """Whether some lanes may not run, so that writes must leave them unchanged."""
        return self.is_apart or self.guard is not None or not self.full

    def shape_of(self, operand: Operand) -> Shape | None:
        """The shape of an operand as it is read here."""
        return shape_in(self.program, self.analysis, operand)

    def result_shape(self, instruction: Instruction) -> Shape | None:
        return self.analysis.results.get(id(instruction), UNIFORM)

    def check_operand(self, instruction: Instruction, operand: Operand, type_: str) -> None:
        """Refuse what an instruction cannot take as an operand of a type."""
        why = ""
        if isinstance(operand, Register) and operand.name in self.types:
            why = register_disagreement(instruction, operand.name, self.types[operand.name], type_)
        elif isinstance(operand, Immediate):
            why = literal_disagreement(operand, type_)
        if why:
            raise unsupported(instruction, why)

    def read(self, operand: Operand, type_: str, as_vector: bool) -> Value:
        """An operand as a value of a PTX type.

        As a scalar, it is the ``u`` of its shape; as a vector, what each lane has.
        """
        scalar = llvm_scalar(type_)
        match operand:
            case Immediate(value=value, width=width):
                if width and (type_[0] in "us" or (type_ in ("b8", "b16", "b32") and bits_of(type_) < width)):
                    raise unsupported(self.now, f"a floating-point literal where .{type_} is wanted")
                constant = self.const(scalar, literal_bits(value, width, type_))
                return self.splat(constant) if as_vector else constant
            case Not(item=item):
                if type_ != "pred":
                    raise unsupported(self.now, "only a predicate may be negated by !")
                value_ = self.read(item, "pred", as_vector)
                return self.op("xor", value_, self.const(value_, 1))
            case Register(name=name) if name in self.types:
                stored = self.load(self.stored_type(name), self.registers[name], 4)
                shape = self.analysis.shapes.get(name, UNIFORM)
                if as_vector and not stored.is_vector:
                    stored = self.expand(stored, shape)
                return self.fit(stored, type_, self.types[name])
            case Register(name=name):
                value_, own = special(self, name)
                shape = self.shape_of(operand)
                if as_vector and not value_.is_vector:
                    value_ = self.expand(value_, shape)
                return self.fit(value_, type_, own)
            case Symbol():
                value_ = address_of(self, operand)
                value_ = self.splat(value_) if as_vector else value_
                return self.fit(value_, type_, "u64")
        raise unsupported(self.now, "an operand of a kind that does not fit here")

    def read_bits(self, operand: Operand, type_: str) -> Value:
        """The bits that each lane has of an operand of a PTX type: those of 1.0 are not the same in f32 and in f64."""
        return self.cast("bitcast", self.read(operand, type_, True), f"i{bits_of(type_)}")

    def fit(self, value: Value, type_: str, own: str) -> Value:
        """A register's value as another type: the same bits, cut or filled with zeros if widths differ."""
        want = llvm_scalar(type_)
        have = value.scalar
        if have == want:
            return value
        if have == "i1" or want == "i1":
            raise unsupported(self.now, "a predicate where a number is wanted, or the other way round")
        wide, narrow = bits_of(own), bits_of(type_)
        value = self.cast("bitcast", value, f"i{wide}")
        if wide != narrow:
            value = self.resize(value, f"i{narrow}", is_signed(own) and narrow > wide)
        return self.cast("bitcast", value, want)

    def expand(self, value: Value, shape: Shape | None) -> Value:
        """``u`` in every lane, plus what its shape says of each."""
        if value.is_vector:
            return value
        wide = self.splat(value)
        if shape is None or shape.uniform:
            return wide
        # A register of a floating-point type may hold an integer's bits.
        whole = f"i{self.width_of(value.type)}"
        bits = self.cast("bitcast", wide, whole)
        return self.cast("bitcast", self.op("add", bits, self.lanes(whole, shape.lanes)), value.type)

    def width_of(self, scalar: str) -> int:
        """Bits of an LLVM scalar type."""
        return {"half": 16, "bfloat": 16, "float": 32, "double": 64}.get(scalar) or int(scalar[1:])

    def write(self, register: Register, value: Value, type_: str, shape: Shape | None = UNIFORM) -> None:
        """Set a register, in the lanes that run the current instruction."""
        if register.name == "_":
            return
        own = self.types.get(register.name)
        if own is None:
            raise unsupported(self.now, f"{register.name} cannot be written")
        slot = self.registers[register.name]
        stored = self.stored_type(register.name)
        if stored.startswith("<"):
            value = self.expand(value, shape)  # NOTE: before it is made wider: lanes may wrap around
        value = self._fit_result(value, type_, own)
        merge = self.guard is not None or (self.is_apart and register.name not in self.analysis.local)
        if merge:
            self.merged.add(register.name)
            old = self.load(stored, slot, 4)
            if value.is_vector:
                value = self.select(self.bits(self.mask()), value, old)
            else:
                some = self.compare("icmp ne", self.mask(), self.const("i32", 0))
                value = self.select(some, value, old)
        self.store(value, slot, 4)

    def _fit_result(self, value: Value, type_: str, own: str) -> Value:
        want = llvm_scalar(own)
        if value.scalar == want:
            return value
        if value.scalar == "i1" or want == "i1":
            raise unsupported(self.now, "a predicate where a number is wanted, or the other way round")
        have_bits = bits_of(type_)
        value = self.cast("bitcast", value, f"i{have_bits}")
        # A result narrower than its register fills it by its own sign.
        value = self.resize(value, f"i{bits_of(own)}", is_signed(type_))
        return self.cast("bitcast", value, want)

    def leave_on_fault(self, answer: Value, likely: bool | None = True) -> None:
        """Go on where a routine's answer is 0, which is ``likely``; else leave with the fault that it found."""
        good = self.label("good")
        self.branch(self.compare("icmp eq", answer, self.const("i32", 0)), good, "failed", likely)
        self.place(good)

    def fault_now(self, kind: int, instruction: Instruction) -> None:
        """End the launch with a fault of the current lanes."""
        self.call(
            "tw_fault",
            "void",
            *self.pointers(),
            self.const("i32", int(kind)),
            self.const("i32", instruction.line),
            self.mask(),
        )
        self.jump("failed")
