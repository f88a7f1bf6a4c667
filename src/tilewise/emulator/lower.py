"""A kernel's flow → one LLVM function that runs a warp until it stops.

The function is entered at the warp's resume point, runs all lanes together where they cannot diverge
(*together* blocks: plain jumps, no masks beyond the lanes that have left) and block by block with masks
where they can (*apart* blocks: the lanes that wait for each block are a mask; the lowest block with lanes
goes next). It returns when the warp leaves, waits, yields or fails. Registers that are still needed are
then in the warp's memory.
"""

from __future__ import annotations

from tilewise.emulator.emit import Emitter, Value, vector
from tilewise.emulator.flow import EXIT, Block
from tilewise.emulator.layout import BLOCK, LAUNCH, WARP, Answer
from tilewise.emulator.program import Program
from tilewise.emulator.shapes import UNIFORM, Analysis, Shape
from tilewise.emulator.syntax import Address, Immediate, Instruction, Not, Operand, Register, Symbol
from tilewise.emulator.tables import OTHER, PURE, Form, unknown
from tilewise.emulator.types import bits_of, is_signed, literal_bits, llvm_scalar

__all__ = ["Lowering", "lower"]

_POLL = 1024  # turns of loops between looks at the stop flag
# Resume numbers: 0 starts the kernel, 1 goes on where lanes are apart, then come the guarded instructions,
# which both builds number alike, then what each build needs for itself.
_FIRST_DEOPT = 2
_FAIR = 64  # turns of a loop of lanes apart before others of the warp are let run


def lower(program: Program, general: bool, name: str) -> str:
    """LLVM text of one build of a kernel: the fast one, or the general one it falls back to."""
    return Lowering(program, general, name).text()


class Lowering(Emitter):
    """The state of lowering one kernel. Instruction tables work through its methods."""

    def __init__(self, program: Program, general: bool, name: str) -> None:
        super().__init__()
        self.program, self.name, self.general = program, name, general
        self.analysis: Analysis = program.general if general else program.fast
        self.types = program.function.registers
        self.registers: dict[str, str] = {}
        self.resumes: list[str] = []  # labels by resume number
        self.block: Block = program.flow.blocks[0]
        self.guard: Value | None = None  # lanes for which the current instruction is guarded
        self._buffers: tuple[str, str] | None = None
        self.hints = 0  # memory instructions so far
        blocks = program.flow.blocks
        apart = self.analysis.divergent
        self.chain = sorted(apart | self._meetings())
        self.pending = {index: "" for index in self.chain}
        self.waits_apart = any(blocks[index].terminator.kind == "wait" for index in apart)
        self.full = program.thread_count % 32 == 0 and not self._lanes_leave()
        self.deopts = self._deopt_points()
        self._resumes = _FIRST_DEOPT + len(self.deopts)

    # -- the whole ------------------------------------------------------------------------------
    def text(self) -> str:
        self._prologue()
        for block in self.program.flow.blocks:
            self._block(block)
        if self.chain:
            self._chain_end()
        self.place("leave")
        self.line(f"ret i32 {int(Answer.EXIT)}")
        self.place("failed")
        self.line(f"ret i32 {int(Answer.FAULT)}")
        self.place("stopped")
        self.line(f"ret i32 {int(Answer.STOP)}")
        body = self.lines
        self.lines = []
        self._entry()
        head = f"define i32 @{self.name}(ptr noalias %ctx, ptr noalias %worker, ptr %block, ptr noalias %warp) #0 {{"
        return "\n".join([head, "entry:", *self.allocas, *self.lines, *body, "}"])

    def _meetings(self) -> set[int]:
        """Blocks run together that lanes come to from apart."""
        found = set()
        for block in self.program.flow.blocks:
            if block.index in self.analysis.divergent or self._diverges(block):
                found |= {t for t in block.terminator.targets if t != EXIT}
        return found

    def _diverges(self, block: Block) -> bool:
        condition = block.terminator.condition
        return condition is not None and self.shape_of(condition) is None

    def _lanes_leave(self) -> bool:
        """Whether some lanes may leave before others."""
        for block in self.program.flow.blocks:
            if EXIT in block.terminator.targets and (
                block.index in self.analysis.divergent or self._diverges(block)
            ):
                return True
        return False

    def _deopt_points(self) -> dict[int, tuple[int, int]]:
        """Guarded instructions by id → (resume number, position in the block)."""
        points: dict[int, tuple[int, int]] = {}
        number = _FIRST_DEOPT
        for block in self.program.flow.blocks:
            for position, instruction in enumerate(block.instructions):
                if id(instruction) in self.program.fast.guarded:
                    points[id(instruction)] = (number, position)
                    number += 1
        return points

    def _new_resume(self) -> int:
        self._resumes += 1
        return self._resumes

    def _prologue(self) -> None:
        for name, type_ in self.types.items():
            shape = self.analysis.shapes.get(name, UNIFORM)
            scalar = llvm_scalar(type_)
            llvm = vector(scalar) if shape is None else scalar
            self.registers[name] = self.alloca(llvm)
        self.live = self.alloca("i32")
        self.current = self.alloca("i32")
        self.turns = self.alloca("i32")
        self.fairness = self.alloca("i32")
        for index in self.chain:
            self.pending[index] = self.alloca("i32")
        self.labels = {block.index: f"body.{block.index}" for block in self.program.flow.blocks}

    def _entry(self) -> None:
        """The function's first lines: pointers, empty registers, the jump to the resume point."""
        self.line(f"%shared = load ptr, ptr {self.offset('%block', BLOCK.SHARED)}, align 8")
        for name, place in (
            ("shared_bytes", LAUNCH.SHARED_BYTES),
            ("const_bytes", LAUNCH.CONST_BYTES),
            ("param_bytes", LAUNCH.PARAM_BYTES),
        ):
            self.line(f"%{name} = load i64, ptr {self.offset('%ctx', place)}, align 8")
        for name, place in (("params", LAUNCH.PARAMS), ("constants", LAUNCH.CONST)):
            self.line(f"%{name} = load ptr, ptr {self.offset('%ctx', place)}, align 8")
        for name, slot in self.registers.items():
            self.store(self.zero(self._stored_type(name)), slot, 4)
        live = self.load("i32", self.offset("%warp", WARP.LIVE), 4)
        self.store(live, self.live, 4)
        for slot in (self.current, self.turns, self.fairness, *self.pending.values()):
            self.store(self.const("i32", 0), slot, 4)
        self.line(f"%index = load i32, ptr {self.offset('%warp', WARP.INDEX)}, align 4")
        resume = self.load("i32", self.offset("%warp", WARP.RESUME), 4)
        cases = " ".join(f"i32 {n}, label %{label}" for n, label in self._resume_labels())
        self.line(f"switch i32 {resume.ref}, label %start [ {cases} ]")
        self.place("start")
        if 0 in self.analysis.divergent:
            self.store(live, self.pending[0], 4)
            self.jump("check.0")
        else:
            self.jump(self.labels[0])

    def _resume_labels(self) -> list[tuple[int, str]]:
        return [(int(label.split(".")[1]), label) for label in self.resumes]

    def _stored_type(self, name: str) -> str:
        scalar = llvm_scalar(self.types[name])
        return vector(scalar) if self.analysis.shapes.get(name, UNIFORM) is None else scalar

    # -- blocks ---------------------------------------------------------------------------------
    @property
    def is_apart(self) -> bool:
        return self.block.index in self.analysis.divergent

    def _block(self, block: Block) -> None:
        self.block = block
        if block.index in self.pending:
            self._check(block)
        self.place(self.labels[block.index])
        for position, instruction in enumerate(block.instructions):
            if self.general and id(instruction) in self.deopts:
                number, _ = self.deopts[id(instruction)]
                here = self.label("at")
                self.jump(here)
                self._resume(number, self._needed(block, position), here, from_fast=True)
                self.place(here)
            self.instruction(instruction)
        self._terminator(block)

    def _check(self, block: Block) -> None:
        """Take the lanes that wait for a block, or pass on to the next."""
        self.place(f"check.{block.index}")
        waiting = self.load("i32", self.pending[block.index], 4)
        if self.waits_apart:
            blocked = self.load("i32", self.offset("%warp", WARP.BLOCKED), 4)
            free = self.op("and", waiting, self.op("xor", blocked, self.const("i32", -1)))
            rest = self.op("and", waiting, blocked)
        else:
            free, rest = waiting, self.const("i32", 0)
        some = self.compare("icmp ne", free, self.const("i32", 0))
        take = self.label("take")
        self.branch(some, take, self._next_check(block.index))
        self.place(take)
        self.store(rest, self.pending[block.index], 4)
        if block.index in self.analysis.divergent:
            self.store(free, self.current, 4)
        self.jump(self.labels[block.index])

    def _next_check(self, index: int) -> str:
        later = [other for other in self.chain if other > index]
        return f"check.{later[0]}" if later else "chain.end"

    def _terminator(self, block: Block) -> None:
        terminator = block.terminator
        if terminator.kind == "wait":
            self._wait(block)
        elif self.is_apart:
            self._end_apart(block)
        elif terminator.kind == "go":
            self._go(block.index, terminator.targets[0])
        elif self._diverges(block):
            self._diverge(block)
        elif terminator.kind == "table":
            self._table(block)
        else:
            assert terminator.condition is not None
            yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
            condition = self.read(terminator.condition, "pred", False)
            first, second = self.label("to"), self.label("to")
            self.branch(condition, first, second)
            self.place(first)
            self._go(block.index, yes)
            self.place(second)
            self._go(block.index, no)

    def _go(self, source: int, target: int) -> None:
        """All lanes go on together."""
        if target == EXIT:
            self.jump("leave")
            return
        if target <= source:
            self._turn(target)
        if target in self.analysis.divergent:
            self.store(self.mask(), self.pending[target], 4)
            self.jump(f"check.{target}")
        else:
            self.jump(self.labels[target])

    def _turn(self, target: int) -> None:
        """One more turn of a loop: look at the stop flag now and then; let others run if it waits for them."""
        spins = target in self.analysis.spins
        label, look = self.label("turn"), self.label("look")
        count = self.op("add", self.load("i32", self.turns, 4), self.const("i32", 1))
        self.store(count, self.turns, 4)
        rare = self.op("and", count, self.const("i32", (16 if spins else _POLL) - 1))
        self.branch(self.compare("icmp eq", rare, self.const("i32", 0)), look, label, likely=False)
        self.place(look)
        self._poll(label if not spins else "")
        if spins:
            number = self._new_resume()
            self._stop(Answer.YIELD, number, self._needed(self.program.flow.blocks[target], 0))
            self._resume(number, self._needed(self.program.flow.blocks[target], 0), label)
        self.place(label)

    def _poll(self, on: str) -> None:
        """Leave if the launch was told to stop; else go on."""
        stop = self.load("i32", self.offset("%ctx", LAUNCH.STOP), 4, volatile=True)
        on = on or self.label("go")
        self.branch(self.compare("icmp eq", stop, self.const("i32", 0)), on, "stopped", likely=True)
        if on.startswith("go."):
            self.place(on)

    def _table(self, block: Block) -> None:
        terminator = block.terminator
        assert terminator.instruction is not None
        index = self.read(terminator.instruction.operands[0], "u32", False)
        bad = self.label("bad")
        labels = [self.label("case") for _ in terminator.targets]
        cases = " ".join(f"i32 {i}, label %{label}" for i, label in enumerate(labels))
        self.line(f"switch i32 {index.ref}, label %{bad} [ {cases} ]")
        for label, target in zip(labels, terminator.targets, strict=True):
            self.place(label)
            self._go(block.index, target)
        self.place(bad)
        self.fault_now(7, terminator.instruction)

    # -- lanes apart ----------------------------------------------------------------------------
    def _diverge(self, block: Block) -> None:
        """Lanes run together so far go different ways."""
        self._split(block, self.mask())
        if all(t == EXIT or t not in self.pending for t in block.terminator.targets):
            self.jump("leave")
            return
        targets = sorted(t for t in block.terminator.targets if t != EXIT)
        if any(t <= block.index for t in targets):
            self._turn_apart()
        self.jump(f"check.{targets[0]}")

    def _end_apart(self, block: Block) -> None:
        self._split(block, self.load("i32", self.current, 4))
        self._after(block)

    def _after(self, block: Block) -> None:
        for target, end in self.program.flow.loop_end.items():
            if end == block.index and target in self.pending:
                self._back(target)
        self.jump(self._next_check(block.index))

    def _back(self, target: int) -> None:
        """Lanes gathered at a loop's end go round again, but let the rest of the warp run now and then."""
        waiting = self.load("i32", self.pending[target], 4)
        again, on = self.label("again"), self.label("on")
        self.branch(self.compare("icmp ne", waiting, self.const("i32", 0)), again, on)
        self.place(again)
        self._turn_apart()
        if target in self.analysis.spins:
            count = self.op("add", self.load("i32", self.fairness, 4), self.const("i32", 1))
            self.store(count, self.fairness, 4)
            rare = self.op("and", count, self.const("i32", _FAIR - 1))
            self.branch(self.compare("icmp eq", rare, self.const("i32", 0)), on, f"check.{target}")
        else:
            self.jump(f"check.{target}")
        self.place(on)

    def _turn_apart(self) -> None:
        label, look = self.label("turn"), self.label("look")
        count = self.op("add", self.load("i32", self.turns, 4), self.const("i32", 1))
        self.store(count, self.turns, 4)
        rare = self.op("and", count, self.const("i32", _POLL - 1))
        self.branch(self.compare("icmp eq", rare, self.const("i32", 0)), look, label, likely=False)
        self.place(look)
        self._poll(label)
        self.place(label)

    def _split(self, block: Block, lanes: Value) -> None:
        """Send the lanes of a block to its targets."""
        terminator = block.terminator
        if terminator.kind == "go":
            self._send(terminator.targets[0], lanes)
            return
        if terminator.kind == "table":
            self._split_table(block, lanes)
            return
        assert terminator.condition is not None
        condition = self.bits(self.splat(self.read(terminator.condition, "pred", True)))
        yes, no = terminator.targets[::-1] if terminator.negated else terminator.targets
        self._send(yes, self.op("and", lanes, condition))
        self._send(no, self.op("and", lanes, self.op("xor", condition, self.const("i32", -1))))

    def _split_table(self, block: Block, lanes: Value) -> None:
        terminator = block.terminator
        assert terminator.instruction is not None
        index = self.read(terminator.instruction.operands[0], "u32", True)
        left = lanes
        for i, target in enumerate(terminator.targets):
            chosen = self.bits(self.compare("icmp eq", index, self.const(index, i)))
            mine = self.op("and", left, chosen)
            self._send(target, mine)
            left = self.op("and", left, self.op("xor", chosen, self.const("i32", -1)))
        bad, good = self.label("bad"), self.label("good")
        self.branch(self.compare("icmp eq", left, self.const("i32", 0)), good, bad, likely=True)
        self.place(bad)
        self.fault_now(7, terminator.instruction)
        self.place(good)

    def _send(self, target: int, lanes: Value) -> None:
        if target == EXIT:
            self._depart(lanes)
            return
        waiting = self.load("i32", self.pending[target], 4)
        self.store(self.op("or", waiting, lanes), self.pending[target], 4)

    def _depart(self, lanes: Value) -> None:
        """Some lanes leave the kernel."""
        live = self.op("and", self.load("i32", self.live, 4), self.op("xor", lanes, self.const("i32", -1)))
        self.store(live, self.live, 4)
        self.call("tw_depart", "void", *self.pointers(), lanes)

    def _chain_end(self) -> None:
        """No lanes wait further down: start over from the top, stop, or leave."""
        self.place("chain.end")
        waiting = self.const("i32", 0)
        for index in self.chain:
            waiting = self.op("or", waiting, self.load("i32", self.pending[index], 4))
        some, over, first = self.label("some"), self.label("over"), f"check.{self.chain[0]}"
        self.branch(self.compare("icmp ne", waiting, self.const("i32", 0)), some, "leave")
        self.place(some)
        needed = self._needed_apart()
        if self.waits_apart:
            blocked = self.load("i32", self.offset("%warp", WARP.BLOCKED), 4)
            free = self.op("and", waiting, self.op("xor", blocked, self.const("i32", -1)))
            halt = self.label("halt")
            self.branch(self.compare("icmp ne", free, self.const("i32", 0)), over, halt)
            self.place(halt)
            self._stop(Answer.WAIT, 1, needed)
            self.place(over)
        self._poll("")
        self._stop(Answer.YIELD, 1, needed)
        self._resume(1, needed, first)

    # -- stopping and going on ------------------------------------------------------------------
    def _needed(self, block: Block, position: int) -> set[str]:
        """Registers to keep when the warp stops before an instruction of a block."""
        needed = self.program.liveness.before(block, position)
        return needed | self._needed_apart() if block.index in self.analysis.divergent else needed

    def _needed_apart(self) -> set[str]:
        return set().union(*(self.program.liveness.entry[index] for index in self.chain))

    def _stop(self, answer: Answer, number: int, names: set[str], to: Analysis | None = None) -> None:
        """Keep what is needed and return; ``to`` is the build that goes on, if it is not this one."""
        for name in sorted(names):
            shape = (to or self.analysis).shapes.get(name, UNIFORM)
            value = self.load(self._stored_type(name), self.registers[name], 4)
            if shape is None:
                value = self.expand(value, self.analysis.shapes.get(name, UNIFORM))
            if value.type == vector("i1"):
                value = self.bits(value)
            self.store(value, self.offset("%warp", self.program.slots[name]), 64)
        for index in self.chain:
            self.store(self.load("i32", self.pending[index], 4), self._pending_slot(index), 4)
        if to is not None:
            for index in {block.index for block in self.program.flow.blocks} - set(self.chain):
                self.store(self.const("i32", 0), self._pending_slot(index), 4)
        current = self.load("i32", self.current, 4)
        self.store(current, self.offset("%warp", WARP.PENDING), 4)
        self.store(self.const("i32", number), self.offset("%warp", WARP.RESUME), 4)
        self.line(f"ret i32 {int(answer)}")

    def _pending_slot(self, index: int) -> str:
        return self.offset("%warp", WARP.HEADER + 4 * index)

    def _resume(self, number: int, names: set[str], to: str, from_fast: bool = False) -> None:
        """The point where a warp that stopped goes on."""
        label = f"resume.{number}"
        self.resumes.append(label)
        self.place(label)
        for name in sorted(names):
            type_ = self._stored_type(name)
            place = self.offset("%warp", self.program.slots[name])
            if type_ == vector("i1"):
                value = self.bits(self.load("i32", place, 64))
            else:
                value = self.load(type_, place, 64)
            self.store(value, self.registers[name], 4)
        for index in self.chain:
            self.store(self.load("i32", self._pending_slot(index), 4), self.pending[index], 4)
        current = self.load("i32", self.offset("%warp", WARP.PENDING), 4)
        if from_fast and self.is_apart:
            # The fast build may have run this block together: then all lanes are here.
            live = self.load("i32", self.live, 4)
            none = self.compare("icmp eq", current, self.const("i32", 0))
            current = self.select(none, live, current)
        self.store(current, self.current, 4)
        self.jump(to)

    def guard_lanes(self, instruction: Instruction, holds: Value) -> None:
        """Go on in the general build unless ``holds``: the lanes are not where the shape says."""
        number, position = self.deopts[id(instruction)]
        on, off = self.label("as"), self.label("not")
        self.branch(holds, on, off, likely=True)
        self.place(off)
        if not self.is_apart:
            self.store(self.const("i32", 0), self.current, 4)
        self._stop(Answer.DEOPT, number, self._needed(self.block, position), self.program.general)
        self.place(on)

    def _wait(self, block: Block) -> None:
        """A barrier: go on if it lets the lanes through at once, else stop."""
        from tilewise.emulator.barriers import arrive

        instruction, target = block.terminator.instruction, block.terminator.targets[0]
        assert instruction is not None
        answer = arrive(self, instruction)
        failed = self.compare("icmp eq", answer, self.const("i32", 2))
        good = self.label("good")
        self.branch(failed, "failed", good, likely=False)
        self.place(good)
        if self.is_apart:
            self._send(target, self.load("i32", self.current, 4))
            self._after(block)
            return
        through, halt = self.label("through"), self.label("halt")
        self.branch(self.compare("icmp eq", answer, self.const("i32", 0)), through, halt)
        needed = set() if target == EXIT else self._needed(self.program.flow.blocks[target], 0)
        number = self._new_resume()
        self.place(halt)
        self._stop(Answer.WAIT, number, needed)
        self._resume(number, needed, through)
        self.place(through)
        self._go(block.index, target)

    # -- what instruction tables use ------------------------------------------------------------
    def pointers(self) -> tuple[Value, Value, Value, Value]:
        """The arguments that every function of the run-time support takes first."""
        return Value("ptr", "%ctx"), Value("ptr", "%worker"), Value("ptr", "%block"), Value("ptr", "%warp")

    def buffers(self) -> tuple[str, str]:
        """Room for an address of every lane, and for 32 bytes of every lane."""
        if not self._buffers:
            self._buffers = (self.alloca("[32 x i64]", 64), self.alloca("[1024 x i8]", 64))
        return self._buffers

    def mask(self) -> Value:
        """The lanes that run the current instruction, as an i32."""
        if self.is_apart:
            lanes = self.load("i32", self.current, 4)
        else:
            lanes = self.const("i32", -1) if self.full else self.load("i32", self.live, 4)
        return self.op("and", lanes, self.guard) if self.guard else lanes

    @property
    def masked(self) -> bool:
        """Whether some lanes may have to be left alone."""
        return self.is_apart or self.guard is not None or not self.full

    def shape_of(self, operand: Operand) -> Shape | None:
        """The shape of an operand as it is read here."""
        match operand:
            case Register(name=name):
                if name in self.program.threads:
                    return self.program.threads[name][1]
                if name == "%laneid":
                    return Shape(tuple(range(32)), 64, 0)
                if name.startswith("%lanemask"):
                    return None
                return self.analysis.shapes.get(name, UNIFORM)
            case Not(item=item):
                return self.shape_of(item)
            case Address(base=Register() as base):
                return self.shape_of(base)
        return UNIFORM

    def result_shape(self, instruction: Instruction) -> Shape | None:
        return self.analysis.results.get(id(instruction), UNIFORM)

    def read(self, operand: Operand, type_: str, as_vector: bool) -> Value:
        """An operand as a value of a PTX type.

        As a scalar, it is the ``u`` of its shape; as a vector, what each lane has.
        """
        scalar = llvm_scalar(type_)
        match operand:
            case Immediate(value=value, width=width):
                constant = self.const(scalar, literal_bits(value, width, type_))
                return self.splat(constant) if as_vector else constant
            case Not(item=item):
                value_ = self.read(item, "pred", as_vector)
                return self.op("xor", value_, self.const(value_, 1))
            case Register(name=name) if name in self.types:
                stored = self.load(self._stored_type(name), self.registers[name], 4)
                shape = self.analysis.shapes.get(name, UNIFORM)
                if as_vector and not stored.is_vector:
                    stored = self.expand(stored, shape)
                return self.fit(stored, type_, self.types[name])
            case Register(name=name):
                from tilewise.emulator.special import special

                value_, own = special(self, name)
                shape = self.shape_of(operand)
                if as_vector and not value_.is_vector:
                    value_ = self.expand(value_, shape)
                return self.fit(value_, type_, own)
            case Symbol():
                from tilewise.emulator.memory import address_of

                value_ = address_of(self, operand)
                value_ = self.splat(value_) if as_vector else value_
                return self.fit(value_, type_, "u64")
        raise unknown(self.now, "an operand of a kind that does not fit here")

    def fit(self, value: Value, type_: str, own: str) -> Value:
        """A register's value as another type: the same bits, cut or filled with zeros if widths differ."""
        want = llvm_scalar(type_)
        have = value.scalar
        if have == want:
            return value
        if have == "i1" or want == "i1":
            raise unknown(self.now, "a predicate where a number is wanted, or the other way round")
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
        return self.op("add", wide, self.lanes(value.type, shape.lanes))

    def write(self, register: Register, value: Value, type_: str, shape: Shape | None = UNIFORM) -> None:
        """Set a register, in the lanes that run the current instruction."""
        if register.name == "_":
            return
        own = self.types[register.name]
        value = self._fit_result(value, type_, own)
        slot = self.registers[register.name]
        stored = self._stored_type(register.name)
        if stored.startswith("<"):
            value = self.expand(value, shape)
        merge = self.guard is not None or (self.is_apart and register.name not in self.analysis.local)
        if merge:
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
            raise unknown(self.now, "a predicate where a number is wanted, or the other way round")
        have_bits = bits_of(type_)
        value = self.cast("bitcast", value, f"i{have_bits}")
        # A result narrower than its register fills it by its own sign.
        value = self.resize(value, f"i{bits_of(own)}", is_signed(type_))
        return self.cast("bitcast", value, want)

    def fault_now(self, kind: int, instruction: Instruction) -> None:
        """End the launch with a fault of the current lanes."""
        self.call(
            "tw_fault",
            "void",
            *self.pointers(),
            self.const("i32", kind),
            self.const("i32", instruction.line),
            self.mask(),
        )
        self.jump("failed")

    # -- instructions ---------------------------------------------------------------------------
    def instruction(self, instruction: Instruction) -> None:
        self.now = instruction
        opcode = instruction.opcode
        if opcode not in PURE and opcode not in OTHER:
            raise unknown(instruction)
        around = ""
        self.guard = None
        if instruction.guard is not None:
            around = self._guarded(instruction)
        if opcode in PURE:
            self._pure(instruction)
        else:
            OTHER[opcode](self, instruction)
        if around:
            self.jump(around)
            self.place(around)
        self.guard = None

    def _guarded(self, instruction: Instruction) -> str:
        """Run the instruction only where its guard holds; returns the label that goes on."""
        assert instruction.guard is not None
        around, do = self.label("around"), self.label("do")
        condition = self.read(instruction.guard, "pred", False)
        if instruction.negated:
            condition = self.op("xor", condition, self.const(condition, 1))
        if not condition.is_vector:
            self.branch(condition, do, around)
            self.place(do)
            return around
        self.guard = self.bits(condition)
        if instruction.opcode in PURE:
            return ""
        some = self.compare("icmp ne", self.mask(), self.const("i32", 0))
        self.branch(some, do, around)
        self.place(do)
        return around

    def _pure(self, instruction: Instruction) -> None:
        entry = PURE[instruction.opcode]
        form = self._form(instruction)
        shape = self.result_shape(instruction)
        sources = [
            self.read(operand, type_, shape is None)
            for operand, type_ in zip(instruction.operands[1:], form.sources, strict=True)
        ]
        if id(instruction) in self.analysis.guarded:
            self._guard_widening(instruction, sources)
        results = entry.lower(self, instruction, *sources)
        values = results if isinstance(results, tuple) and not isinstance(results, Value) else (results,)
        from tilewise.emulator.syntax import Pair, Vector

        first = instruction.operands[0]
        targets = (
            (first.first, first.second)
            if isinstance(first, Pair)
            else first.items
            if isinstance(first, Vector)
            else (first,)
        )
        for target, value, type_ in zip(targets, values, form.results, strict=False):
            if not isinstance(target, Register):
                raise unknown(instruction, "its destination must be a register")
            self.write(target, value, type_, shape)

    def _form(self, instruction: Instruction) -> Form:
        try:
            form = PURE[instruction.opcode].form(instruction)
            for type_ in (*form.results, *form.sources):
                bits_of(type_)
        except (IndexError, KeyError):
            raise unknown(instruction, "not in this form") from None
        if len(form.sources) != len(instruction.operands) - 1:
            raise unknown(instruction, f"it takes {len(form.sources)} sources")
        return form

    def _guard_widening(self, instruction: Instruction, sources: list[Value]) -> None:
        """A 32-bit index is made wider: check that none of its lanes wraps around."""
        for operand, value in zip(instruction.operands[1:], sources, strict=True):
            shape = self.shape_of(operand)
            if shape is None or shape.uniform or value.type != "i32":
                continue
            low, high = min(shape.lanes), max(shape.lanes)
            signed = instruction.parts[-1].startswith("s")
            base = self.cast("sext" if signed else "zext", value, "i64")
            least = -(2**31) if signed else 0
            most = 2**31 - 1 if signed else 2**32 - 1
            ok = self.compare("icmp sge", self.op("add", base, self.const("i64", low)), self.const("i64", least))
            top = self.compare("icmp sle", self.op("add", base, self.const("i64", high)), self.const("i64", most))
            self.guard_lanes(instruction, self.op("and", ok, top))


