"""Video instructions: arithmetic on bytes and halves of registers, clamped, merged or accumulated.

The parser makes selectors and signs of operands parts of the instruction: ``1:b0`` says that operand 1 is
its lowest byte, ``3:-`` that operand 3 is negated, ``0:b2`` that the result goes to the third byte.

NVIDIA's assembler makes several instructions of each of these, and not in every form are they what the PTX
ISA says: .sat where the unsigned result may be too large, or together with a second operation or a
selector; .min and .max after another operation; a result in the upper half; vmad with .sat or a shift.
Those forms are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.emulator.families.integers import distance, element
from tilewise.emulator.llvm.emit import Emitter, Value
from tilewise.emulator.lowering.tables import pure, unsupported
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.ptx.syntax import Instruction
from tilewise.emulator.ptx.types import is_signed

__all__: list[str] = []

_TYPES = ("u32", "s32")
_SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_DIFFERS_FROM_ISA = "GPUs do not do what the PTX ISA says of it in this form, and it is not supported"
_PLACES = {f"b{i}": (i, 8) for i in range(4)} | {f"h{i}": (i, 16) for i in range(2)}
_CLAMPED_UNSIGNED = ("vmin", "vmax", "vshr")  # what cannot be larger than the type


@dataclass(frozen=True, slots=True)
class _Modifiers:
    """The modifiers of a video instruction, sorted."""

    types: tuple[str, ...]  # of the result, where it has one of its own, and of a and b
    words: tuple[str, ...]
    marks: dict[int, tuple[str, ...]]  # operand → selectors and signs

    @property
    def result(self) -> str:
        """The result's type; of comparisons it is unsigned."""
        return self.types[0] if len(self.types) == 3 else "u32"

    def selector_of(self, operand: int) -> str:
        """The selector of an operand, such as "b0"; "" if it has none."""
        return next((mark for mark in self.marks.get(operand, ()) if mark != "-"), "")


def _read_modifiers(
    instruction: Instruction, *words: str, places: set[str], signs: bool = False
) -> _Modifiers:
    """Sort an instruction's modifiers; refuse those that it does not have."""
    types = tuple(part for part in instruction.parts if part in _TYPES)
    marks: dict[int, tuple[str, ...]] = {}
    found: list[str] = []
    for part in instruction.parts:
        if ":" in part:
            operand, mark = part.split(":")
            if mark not in places and not (mark == "-" and signs):
                raise unsupported(instruction, f"the selector .{mark} does not fit here")
            marks[int(operand)] = (*marks.get(int(operand), ()), mark)
        elif part not in _TYPES:
            if part not in words or part in found:
                raise unsupported(instruction, f".{part} does not fit here")
            found.append(part)
    if len(types) != (2 if instruction.opcode.startswith("vset") else 3):
        raise unsupported(instruction, "its types must be .u32 or .s32, one for each operand")
    if any(len([mark for mark in each if mark != "-"]) > 1 for each in marks.values()):
        raise unsupported(instruction, "an operand takes one selector")
    if len([word for word in found if word in _COMPARISONS]) != instruction.opcode.startswith("vset"):
        raise unsupported(instruction, "it needs one comparison")
    return _Modifiers(types, tuple(found), marks)


def _clamped(e: Emitter, value: Value, bits: int, signed: bool) -> Value:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    above = e.intrinsic("llvm.smax", value, low)
    return e.intrinsic("llvm.smin", above, high)


def _operation(e: Emitter, opcode: str, modifiers: _Modifiers, x: Value, y: Value) -> Value:
    """The first operation, on numbers wide enough not to overflow."""
    match opcode:
        case "vadd" | "vsub":
            return e.op(opcode[1:], x, y)
        case "vmin" | "vmax":
            return e.intrinsic(f"llvm.s{opcode[1:]}", x, y)
        case "vabsdiff":
            return distance(e, x, y, True)
        case "vavrg":
            total = e.op("add", x, y)
            negative = e.op("lshr", total, 31)
            more = e.op("add", total, e.op("sub", 1, negative))
            return e.op("ashr", more, 1)
    word = next(word for word in modifiers.words if word in _COMPARISONS)
    name = f"icmp {word if word in ('eq', 'ne') else 's' + word}"
    return e.cast("zext", e.compare(name, x, y), x.scalar)


# -- one number ------------------------------------------------------------------------------------------
def _scalar_modifiers(instruction: Instruction) -> _Modifiers:
    opcode = instruction.opcode
    words: tuple[str, ...] = ("add", "min", "max", *(_COMPARISONS if opcode == "vset" else ("sat",)))
    words += ("clamp", "wrap") if opcode in ("vshl", "vshr") else ()
    modifiers = _read_modifiers(instruction, *words, places=set(_PLACES))
    if opcode in ("vshl", "vshr") and (
        modifiers.types[2] != "u32" or ("clamp" in modifiers.words) == ("wrap" in modifiers.words)
    ):
        raise unsupported(instruction, "it shifts by a .u32, with .clamp or with .wrap")
    second = [word for word in modifiers.words if word in ("add", "min", "max")]
    if len(second) + bool(modifiers.selector_of(0)) > 1 or modifiers.selector_of(3):
        raise unsupported(instruction, "it takes one second operation, or a selector of its destination")
    clamps = "sat" in modifiers.words
    if (
        "min" in second
        or "max" in second
        or modifiers.selector_of(0) == "h1"
        or (clamps and (second or modifiers.selector_of(0) or opcode == "vshl"))
        or (clamps and modifiers.result == "u32" and opcode not in _CLAMPED_UNSIGNED)
    ):
        raise unsupported(instruction, _DIFFERS_FROM_ISA)
    return modifiers


def _scalar_form(instruction: Instruction) -> OperandTypes:
    modifiers = _scalar_modifiers(instruction)
    third = (modifiers.result,) if "add" in modifiers.words or modifiers.selector_of(0) else ()
    return OperandTypes((modifiers.result,), (*modifiers.types[-2:], *third))


@pure(*_SCALAR, form=_scalar_form, ptx="2.0", arch="sm_20")
def scalar(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value | None = None) -> Value:
    """One operation, clamped if asked for, added to c or merged into it."""
    modifiers, opcode = _scalar_modifiers(instruction), instruction.opcode
    signed = is_signed(modifiers.result)
    x, y = (
        _selected(e, modifiers, i, value, type_)
        for i, value, type_ in zip((1, 2), (a, b), modifiers.types[-2:], strict=True)
    )
    shifts = opcode in ("vshl", "vshr")
    found = _shifted(e, modifiers, opcode, x, y) if shifts else _operation(e, opcode, modifiers, x, y)
    if "sat" in modifiers.words:
        found = _clamped(e, found, 32, signed)
    result = e.resize(found, "i32", False)
    if c is None:
        return result
    return (
        _merged(e, result, c, *_PLACES[modifiers.selector_of(0)])
        if modifiers.selector_of(0)
        else e.op("add", result, c)
    )


def _selected(e: Emitter, modifiers: _Modifiers, operand: int, value: Value, type_: str) -> Value:
    """The byte, half or word of an operand that its selector names, as an i64."""
    if place := modifiers.selector_of(operand):
        value = element(e, value, *_PLACES[place], is_signed(type_))
    return e.resize(value, "i64", is_signed(type_))


def _merged(e: Emitter, value: Value, into: Value, index: int, bits: int) -> Value:
    mask = (1 << bits) - 1 << index * bits
    kept = e.op("and", into, ~mask)
    moved = e.op("shl", value, index * bits)
    return e.op("or", kept, e.op("and", moved, mask))


def _shifted(e: Emitter, modifiers: _Modifiers, opcode: str, x: Value, amount: Value) -> Value:
    """A shift by up to 32."""
    if "wrap" in modifiers.words:
        amount = e.op("and", amount, 31)
    else:
        amount = e.intrinsic("llvm.umin", amount, 32)
    return e.op("ashr" if opcode == "vshr" else "shl", x, amount)


# -- a product and a sum ---------------------------------------------------------------------------------
def _product_modifiers(instruction: Instruction) -> _Modifiers:
    modifiers = _read_modifiers(instruction, "sat", "po", "shr7", "shr15", places=set(_PLACES), signs=True)
    signs = [operand for operand, marks in modifiers.marks.items() if "-" in marks]
    if (
        any(marks.count("-") > 1 for marks in modifiers.marks.values())
        or modifiers.selector_of(0)
        or modifiers.selector_of(3)
    ):
        raise unsupported(instruction, "a selector or a sign does not fit here")
    if signs and ("po" in modifiers.words or (3 in signs and len(signs) > 1)):
        raise unsupported(instruction, "it negates the product or c, and neither with .po")
    if set(modifiers.words) - {"po"}:
        raise unsupported(instruction, _DIFFERS_FROM_ISA)
    return modifiers


def _product_form(instruction: Instruction) -> OperandTypes:
    modifiers = _product_modifiers(instruction)
    return OperandTypes((modifiers.result,), (*modifiers.types[1:], modifiers.result))


@pure("vmad", form=_product_form, ptx="2.0", arch="sm_20")
def product(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """a × b + c, either of both negated, or one more."""
    modifiers = _product_modifiers(instruction)
    negative = {operand for operand, marks in modifiers.marks.items() if "-" in marks}
    x, y = (
        e.resize(_selected(e, modifiers, i, value, type_), "i32", False)
        for i, value, type_ in zip((1, 2), (a, b), modifiers.types[1:], strict=True)
    )
    found = e.op("mul", x, y)
    if len(negative & {1, 2}) == 1:
        found = e.op("sub", 0, found)
    found = e.op("sub" if 3 in negative else "add", found, c)
    return e.op("add", found, 1) if "po" in modifiers.words else found


# -- two or four numbers ---------------------------------------------------------------------------------
_FIRST = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
_MASKS = {
    2: {"h0", "h1", "h10"},
    4: {"b" + "".join(str(i) for i in (3, 2, 1, 0) if mask >> i & 1) for mask in range(1, 16)},
}
_PICKS = {
    2: {f"h{x}{y}" for x in range(4) for y in range(4)},
    4: {f"b{number:04o}" for number in range(8**4)},
}


def _packed_modifiers(instruction: Instruction) -> tuple[str, int, _Modifiers]:
    opcode, count = instruction.opcode[:-1], int(instruction.opcode[-1])
    words = ("add", *_COMPARISONS) if opcode == "vset" else ("add", "sat")
    modifiers = _read_modifiers(instruction, *words, places=_MASKS[count] | _PICKS[count])
    if modifiers.selector_of(0) not in {"", *_MASKS[count]} or modifiers.selector_of(3):
        raise unsupported(instruction, "the selector of its destination does not fit")
    if not {modifiers.selector_of(1), modifiers.selector_of(2)} <= {"", *_PICKS[count]}:
        raise unsupported(instruction, "the selector of a source does not fit")
    if "sat" in modifiers.words and "add" in modifiers.words:
        raise unsupported(instruction, ".sat does not go with .add")
    return opcode, count, modifiers


def _packed_form(instruction: Instruction) -> OperandTypes:
    _, _, modifiers = _packed_modifiers(instruction)
    return OperandTypes((modifiers.result,), (*modifiers.types[-2:], modifiers.result))


@pure(
    *(f"{opcode}{count}" for opcode in _FIRST for count in (2, 4)), form=_packed_form, ptx="3.0", arch="sm_30"
)
def packed(e: Emitter, instruction: Instruction, a: Value, b: Value, c: Value) -> Value:
    """One operation on each of two or four numbers, merged into c or added to it."""
    opcode, count, modifiers = _packed_modifiers(instruction)
    bits = 32 // count
    # A selector names, from the highest element down, which of the numbers in {b, a} to take.
    picks = [
        [int(digit) for digit in reversed((modifiers.selector_of(i + 1) or default)[1:])]
        for i, default in enumerate({2: ("h10", "h32"), 4: ("b3210", "b7654")}[count])
    ]
    mask = modifiers.selector_of(0)[1:] or "3210"
    result = c
    for i in range(count):
        if str(i) not in mask:
            continue
        x, y = (
            element(e, a if pick[i] < count else b, pick[i] % count, bits, is_signed(type_))
            for pick, type_ in zip(picks, modifiers.types[-2:], strict=True)
        )
        found = _operation(e, opcode, modifiers, x, y)
        if "sat" in modifiers.words:
            found = _clamped(e, found, bits, is_signed(modifiers.result))
        result = (
            e.op("add", result, found) if "add" in modifiers.words else _merged(e, found, result, i, bits)
        )
    return result
