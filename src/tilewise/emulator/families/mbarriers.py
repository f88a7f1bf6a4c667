"""``mbarrier``: barriers in shared memory that count arrivals and bytes. What each operation does to one is
in ``support/mbarrier.py``; here instructions become calls of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewise.emulator.analysis.shapes import UNIFORM
from tilewise.emulator.layout import WARP, Mbarrier, Space
from tilewise.emulator.llvm.emit import Value, vector
from tilewise.emulator.lowering.context import Context
from tilewise.emulator.lowering.loops import yield_soon
from tilewise.emulator.lowering.memory import take_addresses
from tilewise.emulator.lowering.tables import check_operand_count, effect, refuse_other_forms, unsupported
from tilewise.emulator.lowering.values import read, write
from tilewise.emulator.operations.operation import MbarrierUse
from tilewise.emulator.ptx.modifiers import space_of
from tilewise.emulator.ptx.syntax import Immediate, Instruction, Operand, Pair, Register
from tilewise.emulator.support.mbarrier import COUNT_BITS

__all__ = ["change", "completion", "lane_addresses"]

_SPACES = {"shared", "shared::cta", "shared::cluster"}
_SCOPES, _LAYOUTS, _PHASES = (
    {"cta", "cluster"},
    {"layout::v0", "layout::v1"},
    {"phase_type::primary", "phase_type::conditional"},
)
# What each operation may say of memory order, and what else.
_ARRIVE, _WAIT = {"release", "relaxed"}, {"acquire", "relaxed"}
_ORDERS = {
    "expect_tx": {"relaxed"},
    "complete_tx": {"relaxed"},
    "arrive": _ARRIVE,
    "arrive_drop": _ARRIVE,
    "test_wait": _WAIT,
    "try_wait": _WAIT,
}
_ARRIVE_OTHERS, _WAIT_OTHERS = {"expect_tx", "noComplete"}, {"parity", *_PHASES}
_OTHERS = {
    "init": _LAYOUTS,
    "check_layout": _LAYOUTS,
    "pending_count": {"layout::v0"},
    "arrive": _ARRIVE_OTHERS,
    "arrive_drop": _ARRIVE_OTHERS,
    "test_wait": _WAIT_OTHERS,
    "try_wait": _WAIT_OTHERS,
}
_VALUES, _BYTES, _RESULTS = 0, 256, 512  # in the buffer that holds what an operation takes and gives
_ONLY_HERE = ("init", "inval", "test_wait", "try_wait", "check_layout")


refuse_other_forms("mbarrier", "not in this form")


def _verb(name: str, **facts: Any) -> Callable[[Any], Any]:
    """Enter the row of a verb of mbarriers, whose modifiers are checked before it is lowered."""

    def enter_checked(lower: Callable[[Context, Instruction], None]) -> Any:
        def lower_checked(e: Context, instruction: Instruction) -> None:
            if instruction.parts[-1] != "b64":
                raise unsupported(instruction)
            _check_modifiers(instruction, name)
            if name in _ONLY_HERE and "shared::cluster" in instruction.parts:
                raise unsupported(instruction, "this works on the block's own shared memory alone")
            lower(e, instruction)

        effect(f"mbarrier.{name}", **facts)(lower_checked)
        return lower

    return enter_checked


def _check_modifiers(instruction: Instruction, verb: str) -> None:
    """Refuse modifiers that the operation does not have."""
    words = instruction.parts[1:-1]
    orders, others = _ORDERS.get(verb, set()), _OTHERS.get(verb, set())
    spaces = set() if verb == "pending_count" else _SPACES
    for word in words:
        if "multicast" in word:
            raise unsupported(instruction, f".{word} is for newer GPUs than the emulator's sm_90")
        if word not in spaces | orders | others | (_SCOPES if orders else set()):
            raise unsupported(instruction, f".{word} is not supported here")
    for kind in (orders, _SCOPES, spaces, _LAYOUTS, _PHASES, _ARRIVE_OTHERS):
        if sum(word in kind for word in words) > 1:
            raise unsupported(instruction, f"only one of .{', .'.join(sorted(kind))} may be said")
    if bool(orders & {*words}) != bool(_SCOPES & {*words}):
        raise unsupported(instruction, "an order such as .relaxed and a scope such as .cta go together")
    if "noComplete" in words and {"relaxed", "cluster", "shared::cluster"} & {*words}:
        raise unsupported(
            instruction, ".noComplete goes with .release.cta alone, on the block's own mbarrier"
        )
    if "phase_type::conditional" in words and "parity" not in words:
        raise unsupported(instruction, ".phase_type::conditional needs .parity")


@_verb("init", has_result=False, mbarrier=MbarrierUse("make"), ptx="7.0", arch="sm_80")
def initialise(e: Context, instruction: Instruction) -> None:
    check_operand_count(instruction, 2)
    kind = Mbarrier.INIT_V1 if "layout::v1" in instruction.parts else Mbarrier.INIT
    change(e, instruction, kind, instruction.operands[0], instruction.operands[1])


@_verb("inval", has_result=False, mbarrier=MbarrierUse("make"), ptx="7.0", arch="sm_80")
def invalidate(e: Context, instruction: Instruction) -> None:
    check_operand_count(instruction, 1)
    change(e, instruction, Mbarrier.INVALIDATE, instruction.operands[0])


@_verb("expect_tx", has_result=False, mbarrier=MbarrierUse("expect"), ptx="8.0", arch="sm_90")
@_verb("complete_tx", has_result=False, mbarrier=MbarrierUse("expect"), ptx="8.0", arch="sm_90")
def count_bytes(e: Context, instruction: Instruction) -> None:
    """``expect_tx`` and ``complete_tx``."""
    check_operand_count(instruction, 2)
    kind = Mbarrier.EXPECT if instruction.parts[0] == "expect_tx" else Mbarrier.COMPLETE
    change(e, instruction, kind, instruction.operands[0], None, instruction.operands[1])


@_verb("arrive", lanes="own", mbarrier=MbarrierUse("arrive", 1), ptx="7.0", arch="sm_80")
@_verb("arrive_drop", lanes="own", mbarrier=MbarrierUse("arrive", 1), ptx="7.0", arch="sm_80")
def arrive(e: Context, instruction: Instruction) -> None:
    """``arrive`` and ``arrive_drop``, with a count or with bytes to expect."""
    parts, one = instruction.parts, Immediate(1)
    drop, expects, incomplete = parts[0] == "arrive_drop", "expect_tx" in parts, "noComplete" in parts
    check_operand_count(instruction, *((3,) if expects or incomplete else (2, 3)))
    target, place = instruction.operands[:2]
    last = instruction.operands[2] if len(instruction.operands) > 2 else None
    count, size = (one, last) if expects else (last or one, None)
    kind = Mbarrier.DROP if drop else Mbarrier.ARRIVE
    if incomplete:
        kind = Mbarrier.DROP_INCOMPLETE if drop else Mbarrier.ARRIVE_INCOMPLETE
    if not isinstance(target, Register):
        raise unsupported(instruction, "the state that it gives goes to a register, or to _")
    if "shared::cluster" in parts and target.name != "_":
        raise unsupported(instruction, "another block's mbarrier gives no state: write _")
    results = change(e, instruction, kind, place, count, size)
    if target.name != "_":
        write(e, target, e.load(vector("i64"), results.ref, 64), "u64", None)


@_verb("check_layout", mbarrier=MbarrierUse("inspect", 1))
def check_layout(e: Context, instruction: Instruction) -> None:
    """Whether an mbarrier was made in the layout that is named."""
    check_operand_count(instruction, 2)
    target, place = instruction.operands
    layout = next((part for part in instruction.parts if part in _LAYOUTS), "")
    if not layout or not isinstance(target, Register):
        raise unsupported(
            instruction, "it takes .layout::v0 or .layout::v1, and its destination is a predicate"
        )
    number = Immediate(1 if layout == "layout::v0" else 2)
    results = change(e, instruction, Mbarrier.IS_LAYOUT, place, number)
    found = e.load(vector("i64"), results.ref, 64)
    holds = e.differs(found, e.splat(e.const("i64", 0)))
    if e.result_shape(instruction) is None:
        write(e, target, holds, "pred", None)
    else:
        _same(e, target, holds)


def completion(destination: Operand) -> Operand:
    """Of what a wait gives, the predicate that says whether the phase is complete."""
    while isinstance(destination, Pair):
        destination = destination.first
    return destination


def _report(e: Context, instruction: Instruction, target: Operand) -> None:
    """The other results of a wait. No copy makes a report, so that there is none."""
    if not isinstance(target, Pair):
        return
    if "phase_type::primary" not in instruction.parts:
        raise unsupported(instruction, "a report goes with .phase_type::primary")
    predicate, value = (
        (target.first.second, target.second) if isinstance(target.first, Pair) else (target.second, None)
    )
    types = e.program.function.registers
    for register, type_ in ((predicate, "pred"), (value, "b8")):
        if register is None:
            continue
        if not isinstance(register, Register) or types.get(register.name, type_) != type_:
            raise unsupported(instruction, f"its report goes to a register of type .{type_}")
        if register is value and register.name == "_":
            raise unsupported(instruction, "a report's value goes to a register, or is left out")
        if register.name != "_":
            scalar = e.const("i1" if type_ == "pred" else "i8", 0)
            shape = e.result_shape(instruction)
            write(e, register, e.splat(scalar) if shape is None else scalar, type_, shape)


@_verb("test_wait", polls=True, mbarrier=MbarrierUse("ask", 1), ptx="7.0", arch="sm_80")
@_verb("try_wait", polls=True, mbarrier=MbarrierUse("ask", 1), ptx="7.8", arch="sm_90")
def ask(e: Context, instruction: Instruction) -> None:
    """``test_wait`` and ``try_wait``: neither holds the warp up, but a loop around one lets others run."""
    target, place = completion(instruction.operands[0]), instruction.operands[1]
    check_operand_count(instruction, *((3, 4) if instruction.parts[0] == "try_wait" else (3,)))
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a predicate")
    _report(e, instruction, instruction.operands[0])
    kind = Mbarrier.TEST_PARITY if "parity" in instruction.parts else Mbarrier.TEST_STATE
    alike = e.result_shape(instruction) == UNIFORM and not e.is_apart and e.guard is None
    results = change(e, instruction, kind, place, instruction.operands[2], one=alike)
    zero = e.const("i64", 0)
    if alike:
        over = e.differs(e.load("i64", results.ref, 8), zero)
        write(e, target, over, "pred")
        waiting = e.select(over, 0, e.mask())
        e.store(waiting, e.offset("%warp", WARP.AWAITING), 4)
    else:
        found = e.load(vector("i64"), results.ref, 64)
        over = e.differs(found, e.splat(zero))
        write(e, target, over, "pred", None) if e.result_shape(instruction) is None else _same(
            e, target, over
        )
    yield_soon(e, e.differs(e.load("i32", e.offset("%warp", WARP.AWAITING), 4), 0))


def _same(e: Context, target: Register, over: Value) -> None:
    """What all lanes that run have found, for a register that has one value for all."""
    some = e.op("and", e.bits(over), e.mask())
    write(e, target, e.differs(some, 0), "pred")


@_verb("pending_count", ptx="7.0", arch="sm_80")
def pending_count(e: Context, instruction: Instruction) -> None:
    check_operand_count(instruction, 2)
    target, state = instruction.operands
    if not isinstance(target, Register):
        raise unsupported(instruction, "its destination must be a register")
    shape = e.result_shape(instruction)
    value = read(e, state, "u64", shape is None)
    count = e.op("and", value, (1 << COUNT_BITS) - 1)
    write(e, target, e.resize(count, "i32", False), "u32", shape)


def change(
    e: Context,
    instruction: Instruction,
    kind: Mbarrier,
    place: Operand,
    value: Operand | None = None,
    size: Operand | None = None,
    one: bool = False,
) -> Value:
    """Do it in every lane that runs, or in ``one`` that stands for all; where the results of the lanes lie."""
    addresses, buffer = e.buffers()
    e.store(lane_addresses(e, instruction, place), addresses, 64)
    wide = "u64" if kind == Mbarrier.TEST_STATE else "u32"
    for operand, offset in ((value, _VALUES), (size, _BYTES)):
        number = e.zero(vector("i64"))
        if operand is not None:
            number = e.wide(read(e, operand, wide, True))
        e.store(number, e.offset(buffer, offset), 64)
    space = Space.SHARED if space_of(instruction) == "shared" else Space.GENERIC
    mask, results = e.mask(), e.offset(buffer, _RESULTS)
    if one:
        mask = e.op("and", mask, e.op("sub", 0, mask))
        results = e.offset(buffer, _RESULTS)
    given = (e.offset(buffer, _VALUES), e.offset(buffer, _BYTES), results)
    e.call_or_leave("tw_mbarrier", addresses, *given, kind, space, mask, instruction.line)
    if not one:
        return Value("ptr", results)

    found = e.first_lane(e.load(vector("i64"), results, 64))
    e.store(found, results, 8)
    return Value("ptr", results)


def lane_addresses(e: Context, instruction: Instruction, operand: Operand) -> Value:
    """The address of every lane; of shared memory, of 32 bits."""
    wide = take_addresses(e, instruction, operand)
    if space_of(instruction) == "shared":
        return e.op("and", wide, 0xFFFF_FFFF)
    return wide
