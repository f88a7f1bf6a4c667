"""Reductions of rows of memory: ``cp.reduce.async.bulk`` and ``red.async``, an element at a time.

Each element is changed in one step, as blocks on other CPU threads may change it too. Numbers are those that
an H200 gives: NaN has no payload (but in f64 the newer one stays), of a number and a NaN the number is the
least and the greatest, and f32 keeps subnormal numbers, though a tensor whose elements are f32.ftz does not.
"""

from __future__ import annotations

from tilewise.emulator.llvm.emit import Value
from tilewise.emulator.llvm.routine import I32, I64, Ptr, Routine, routine
from tilewise.emulator.numerics.rounding import FORMATS, flush, narrow, widen

__all__ = ["OPERATIONS", "element_of", "reduce_row", "reduction_of_tensor", "valid"]

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_WORDS = {"add": "add", "inc": "uinc_wrap", "dec": "udec_wrap", "and": "and", "or": "or", "xor": "xor"}
_BITS = ("and", "or", "xor")
_TYPES = {
    "add": ("u32", "u64", "f16", "bf16", "f32", "f32.ftz", "f64"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64", "f16", "bf16")),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(_BITS, ("u32", "u64")),
}
_KINDS = tuple((operation, type_) for operation in OPERATIONS for type_ in _TYPES[operation])
_SAME = {"b32": "u32", "b64": "u64"}  # where only bits count
# By the number that PTX gives an element type of a tensor (tensor_map.ELEMENT_SIZES).
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "f32", "f32.ftz",
)  # fmt: skip


def valid(operation: str, type_: str) -> str:
    """The type as this module calls it, or nothing if there is no such reduction."""
    type_ = _SAME.get(type_, type_)
    if type_ in ("s32", "s64") and operation not in ("min", "max"):
        type_ = "u" + type_[1:]
    return type_ if type_ in _TYPES.get(operation, ()) else ""


def element_of(operation: str, type_: str) -> int:
    """The number of a reduction, as ``tw_reduce`` takes it."""
    return _KINDS.index((operation, valid(operation, type_)))


def routines() -> list[Routine]:
    return [_reduction(*kind) for kind in _KINDS]


def _name(operation: str, type_: str) -> str:
    return f"tw_reduce_{operation}_{type_.replace('.', '_')}"


@routine("tw_reduce", "void")
def reduce_row(r: Routine, kind: I32, place: Ptr, source: Ptr, length: I64) -> None:
    """Reduce ``length`` at ``place`` with those at ``source``; the kind is one that there is."""
    for number, reduction in enumerate(_KINDS):
        with r.when(r.equals(kind, number)):
            r.call(_name(*reduction), "void", place, source, length)
            r.give()


@routine("tw_reduction", "i32")
def reduction_of_tensor(r: Routine, operation: I32, element: I32) -> None:
    """The number of a reduction of a tensor's elements; -1 if there is none."""
    for number, name in enumerate(OPERATIONS):
        with r.when(r.equals(operation, number)):
            for index, type_ in enumerate(_ELEMENTS):
                # NOTE: hardware adds s32 but not s64, and counts no s32 up or down.
                missing = (name, type_) in (("add", "s64"), ("inc", "s32"), ("dec", "s32"))
                if valid(name, type_) and not missing:
                    r.give_if(r.equals(element, index), element_of(name, type_))
    r.give(-1)


def _reduction(operation: str, type_: str) -> Routine:
    r = Routine(_name(operation, type_), "void", place="ptr", source="ptr", length="i64")
    width = int(type_.removesuffix(".ftz").lstrip("usbf"))
    size, whole = width // 8, f"i{width}"
    with r.count(r["length"], step=size) as offset:
        place = r.at(r["place"], offset)
        operand = r.field(r.at(r["source"], offset), 0, whole)
        if type_[0] in "us":
            word = _WORDS.get(operation) or ("u" if type_[0] == "u" else "") + operation
            r.atomic(word, place, operand, "monotonic")
        else:
            _attempts(r, operation, type_, place, operand)
    return r


def _attempts(r: Routine, operation: str, type_: str, place: Value, operand: Value) -> None:
    """A loop of compare-and-swap around an operation."""
    seen = r.variable(operand.type, r.load_atomic(place, operand.type, "monotonic"))
    with r.loop() as loop:
        old = seen.get()
        new = _combined(r, operation, type_, old, operand)
        found, swapped = r.swap_if(place, old, new, "monotonic")
        seen.put(found)
        loop.leave(swapped)


def _combined(r: Routine, operation: str, type_: str, old: Value, operand: Value) -> Value:
    """The new bits of an element."""
    if type_ == "f64":
        a, b = r.cast("bitcast", operand, "double"), r.cast("bitcast", old, "double")
        total = r.cast("bitcast", r.op("fadd", a, b), "i64")
        total = r.select(r.compare("fcmp uno", b, b), old, total)
        return r.select(r.compare("fcmp uno", a, a), operand, total)
    if type_ in ("f16", "bf16"):
        # A sum of two in single precision, rounded again, is the sum rounded once.
        format_ = FORMATS[type_]
        a, b = widen(r, operand, format_), widen(r, old, format_)
        found = r.op("fadd", a, b) if operation == "add" else r.intrinsic(f"llvm.{operation}imumnum", a, b)
        return narrow(r, found, format_, "rn")
    a, b = r.cast("bitcast", operand, "float"), r.cast("bitcast", old, "float")
    if type_ == "f32.ftz":
        total = flush(r, r.op("fadd", flush(r, a), flush(r, b)))
    else:
        total = r.op("fadd", a, b)
    none = r.compare("fcmp uno", total, total)
    return r.select(none, FORMATS["f32"].nan, r.cast("bitcast", total, "i32"))
