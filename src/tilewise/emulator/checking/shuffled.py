"""What a checked launch knows of values that a shuffle took from lanes which do not take part in it.

Such a value is undefined, and programs may throw it away: it is wrong only where it is used. A table of each warp has
a row for every register that such a value may come to: by lane the shuffle that it is from, or 0. Row 0 is of no
register, and always 0. ``ShuffledValues`` follows these values through a kernel's registers, as its code is made, and
the routines through the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from tilewise.emulator.analysis.control_flow import EXIT, walk
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.check_layout import CHECK, CLOCKS, SHUFFLED, FindingKind
from tilewise.emulator.checking.check_routine import CheckRoutine, check_routine
from tilewise.emulator.families.warp import source_lanes
from tilewise.emulator.llvm.emit import LANES, Value
from tilewise.emulator.llvm.routine import I32, Ptr
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.values import read
from tilewise.emulator.operations.operands import reads, registers_in, writes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Pair
from tilewise.emulator.support.checked import accessor, record_finding

__all__ = ["HEAD_BYTES", "ROW_BYTES", "ShuffledValues"]

Part = tuple[list[str], Value]  # registers, and the lanes in which results are made of them

HEAD_BYTES = 64  # in front of the rows: whether any of them was ever set
ROW_BYTES = 32 * 8
_EVERY = 0xFFFF_FFFF
_AT_ONCE = 3  # registers that ``tw_check_spread`` takes


def _row(r: CheckRoutine, register: Value) -> Value:
    return r.item(r.at(r.own_table(CLOCKS.SHUFFLED, CHECK.SHUFFLED), HEAD_BYTES), register, ROW_BYTES)


def _return_if_all_defined(r: CheckRoutine) -> None:
    r.give_if(r.equals(r.field(r.own_table(CLOCKS.SHUFFLED, CHECK.SHUFFLED), 0, "i32"), 0))


@check_routine("tw_check_shuffle")
def _shuffle(
    r: CheckRoutine, target: I32, value: I32, sources: Ptr, named: Ptr, mask: I32, line: I32
) -> None:
    """Lanes read ``value`` of other lanes: by lane which, and the lanes that its mask names."""
    values, row = r.reserve(f"[{ROW_BYTES} x i8]", 8), _row(r, target)
    r.copy(values, _row(r, value), ROW_BYTES)
    with r.each_lane(mask) as lane:
        source = r.element(sources, lane, "i32")
        names = r.element(named, lane, "i32")
        found = r.variable("i64", r.element(values, source, "i64"))
        members = names & mask
        present = (members >> source) & 1
        # NOTE: a lane that does not name itself has a wrong mask, which is another finding.
        own = (members >> lane) & 1
        with r.when(r.is_below(present, own)):
            lanes = (lane << SHUFFLED.READER) | source
            low = (line << SHUFFLED.LINE) | lanes
            found.put((r.wide(names) << SHUFFLED.MASK) | r.wide(low))
            r.put(r.own_table(CLOCKS.SHUFFLED, CHECK.SHUFFLED), 0, 1)
        r.put(r.item(row, lane, 8), 0, found.get())


@check_routine("tw_check_spread")
def _spread(r: CheckRoutine, target: I32, first: I32, second: I32, third: I32, mask: I32) -> None:
    """Lanes compute ``target`` of up to three others; 0 stands for none."""
    _return_if_all_defined(r)
    rows = [_row(r, register) for register in (first, second, third)]
    row = _row(r, target)
    with r.each_lane(mask) as lane:
        found = [r.element(source, lane, "i64") for source in rows]
        worst = reduce(partial(r.intrinsic, "llvm.umax"), found)
        r.put(r.item(row, lane, 8), 0, worst)


@check_routine("tw_check_use")
def _use(r: CheckRoutine, register: I32, mask: I32, line: I32) -> None:
    """Lanes do with a register what others see: store it, branch by it, take it for an address."""
    _return_if_all_defined(r)
    row = _row(r, register)
    with r.each_lane(mask) as lane:
        known = r.element(row, lane, "i64")
        with r.when(r.differs(known, 0)):
            low = r.narrow(known)
            who, other = accessor(r, lane), accessor(r, (low >> SHUFFLED.READER) & 31)
            shuffle = low >> SHUFFLED.LINE
            record_finding(r, FindingKind.SHUFFLE_INACTIVE_LANE, who, shuffle, known, other)
            r.put(r.item(row, lane, 8), 0, r.const("i64", 0))


# -- as code is made -------------------------------------------------------------------------------


class ShuffledValues:
    """Emits the calls that follow undefined values of shuffles to where they are used."""

    def __init__(self, e: Context, call: Callable[..., None]) -> None:
        self.e, self.call = e, call
        self.rows = {name: i + 1 for i, name in enumerate(sorted(_tracked(e.program)))}

    def before(self, instruction: Instruction) -> list[Part] | tuple[Value, Value] | None:
        """What an instruction makes its results of; its results may take the registers of its operands.

        Of a shuffle: by lane its source, and the lanes that its mask names.
        """
        e = self.e
        if operation_of(instruction).lanes == "shuffled" and self.rows:
            synced = operation_of(instruction).exchanges
            named = read(e, instruction.operands[4], "u32", True) if synced else e.splat(e.mask())
            return source_lanes(e, instruction), named
        if self.rows.keys().isdisjoint(writes(instruction)):
            return None
        names = reads(instruction)
        if not _is_computed(instruction) or not self._numbers(names):
            return [([], e.mask())]
        return self._chosen(instruction) or [(names, e.mask())]

    def after(self, instruction: Instruction, seen: list[Part] | tuple[Value, Value] | None) -> None:
        if isinstance(seen, tuple):
            self._use(_names(*instruction.operands[2:]), instruction.line, self.e.mask())
            self._shuffle(instruction, *seen)
            return
        if not _is_computed(instruction):
            self._use(reads(instruction), instruction.line, self.e.mask())
        for target in writes(instruction) if seen else ():
            for names, lanes in seen or ():
                self._spread(target, names, lanes)

    def branch(self, lanes: Value) -> None:
        """Some lanes go where a condition says."""
        terminator = self.e.block.terminator
        if terminator.condition is not None and terminator.instruction is not None:
            self._use([terminator.condition.name], terminator.instruction.line, lanes)

    def _chosen(self, instruction: Instruction) -> list[Part]:
        """Of an instruction that may throw away an operand: in which lanes which operands count."""
        e, (_, *sources) = self.e, instruction.operands
        rule = operation_of(instruction).lanes
        if rule == "selected":
            yes = self._true(sources[2])
            parts = [(sources[::2], yes), (sources[1:], yes ^ -1)]
        elif rule in ("and", "or") and instruction.parts == ("pred",):
            # Of a false operand of "and", or a true one of "or", it does not matter what the other is.
            one, two = (self._lets(rule == "and", source) for source in sources)
            parts = [(sources, one & two), (sources[1:], one & (two ^ -1))]
            parts += [(sources[:1], two & (one ^ -1)), ([], (one | two) ^ -1)]
        elif rule == "compared" and len(sources) == 3 and {"and", "or"} & {*instruction.parts}:
            lets = self._lets("and" in instruction.parts, sources[2])
            parts = [(sources, lets), (sources[2:], lets ^ -1)]
        else:
            return []
        return [(_names(*counting), e.mask() & lanes) for counting, lanes in parts]

    def _true(self, predicate: Operand) -> Value:
        return self.e.bits(self.e.splat(read(self.e, predicate, "pred", True)))

    def _lets(self, joined_by_and: bool, predicate: Operand) -> Value:
        """The lanes in which a predicate leaves it to the other operand what comes of them."""
        true = self._true(predicate)
        return true if joined_by_and else true ^ -1

    def _shuffle(self, instruction: Instruction, sources: Value, named: Value) -> None:
        target = _result(instruction)
        for name in writes(instruction):
            if name != target:
                self._spread(name, [], self.e.mask())
        if target not in self.rows:
            return
        value = next(iter(self._numbers(_names(instruction.operands[1]))), 0)
        places = self.e.buffers()
        for place, lanes in zip(places, (sources, named), strict=True):
            self.e.store(lanes, place, 64)
        self.call("tw_check_shuffle", self.rows[target], value, *places, self.e.mask(), instruction.line)

    def _spread(self, target: str, names: list[str], lanes: Value) -> None:
        if target not in self.rows:
            return
        # NOTE: the target goes first, as it also stands for those before it where there are many.
        own = self.rows[target]
        numbers = sorted(self._numbers(names), key=lambda number: number != own)
        first, rest = numbers[:_AT_ONCE], numbers[_AT_ONCE:]
        self._compute(own, first, lanes)
        for number in rest:
            self._compute(own, [own, number], lanes)

    def _compute(self, target: int, numbers: list[int], lanes: Value) -> None:
        padded = [target, *numbers, *[0] * (_AT_ONCE - len(numbers))]
        self.call("tw_check_spread", *padded, lanes)

    def _use(self, names: list[str], line: int, lanes: Value) -> None:
        for number in self._numbers(names):
            self.call("tw_check_use", number, lanes, line)

    def _numbers(self, names: list[str]) -> list[int]:
        return sorted({self.rows[name] for name in names if name in self.rows})


def _names(*operands: Operand) -> list[str]:
    return [name for operand in operands for name in registers_in(operand)]


def _result(shuffle: Instruction) -> str:
    """The register that a shuffle's value goes to, which a predicate may stand beside; or ``_``."""
    first = shuffle.operands[0]
    return next(iter(_names(first.first if isinstance(first, Pair) else first)), "_")


def _is_computed(instruction: Instruction) -> bool:
    """Whether it computes results lane by lane, and nothing else: it uses no undefined value, but passes it on."""
    operation = operation_of(instruction)
    return operation.is_pure or operation.lanes in ("moved", "address")


def _tracked(program: Program) -> set[str]:
    """The registers to which what a shuffle read may come; none if all lanes take part in every shuffle."""
    inside = [(item, block.index) for block in program.flow.blocks for item in block.instructions]
    shuffles = [
        (item, index) for item, index in inside if operation_of(item).lanes == "shuffled" and item.operands
    ]
    if not shuffles:
        return set()
    if all(_is_whole(item, index, program) for item, index in shuffles) and not _lanes_lack(program):
        return set()
    found = {_result(item) for item, _ in shuffles} - {"_"}
    users: dict[str, set[str]] = {}
    for item, _ in inside:
        if _is_computed(item):
            for source in reads(item):
                users.setdefault(source, set()).update(writes(item))
    return walk(found, lambda name: users.get(name, ()))


def _is_whole(shuffle: Instruction, block: int, program: Program) -> bool:
    """Whether all lanes that are there run a shuffle, and it names them all."""
    named = shuffle.operands[-1]
    every = isinstance(named, Immediate) and named.value & _EVERY == _EVERY
    every = every or not operation_of(shuffle).exchanges
    return every and shuffle.guard is None and block not in program.general.divergent


def _lanes_lack(program: Program) -> bool:
    """Whether lanes may be missing from a warp: it began without them, or they leave before others."""
    blocks, apart = program.flow.blocks, program.general.divergent
    exits = [block for block in blocks if EXIT in block.terminator.targets]
    return (
        program.thread_count % LANES != 0
        or any(block.index in apart or len(block.terminator.targets) > 1 for block in exits)
        or (any(block.gate for block in blocks) and any(block.leaves for block in blocks))
    )
