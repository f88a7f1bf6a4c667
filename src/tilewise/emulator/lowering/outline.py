"""Outline long computations that a kernel has many of: each kind becomes one function.

One f16 multiply-add is some thirty LLVM operations on 32 lanes, and LLVM's time and the code's size grow
with every one of them. Where a kernel has hundreds, each kind is written once and called: the call costs
little beside what it does.
"""

from __future__ import annotations

import re
from collections import Counter

from tilewise.emulator.analysis.control_flow import Flow
from tilewise.emulator.llvm.emit import Emitter, Results, Value, vector
from tilewise.emulator.operations.operation import OperandTypes
from tilewise.emulator.operations.registry import operation_of
from tilewise.emulator.ptx.syntax import Immediate, Instruction
from tilewise.emulator.ptx.types import bits_of, llvm_scalar

__all__ = ["Outline"]

_LONG = 12  # operations that a call is little beside
_MANY = 1_500  # operations in the whole kernel that are worth the calls


class Outline:
    """Decides which pure instructions of a kernel become calls of a function, and writes the functions."""

    def __init__(self, flow: Flow) -> None:
        self.uses = Counter((item.opcode, item.parts) for item in flow.instructions)
        self.functions: dict[tuple[object, ...], tuple[str, str]] = {}  # name, type of result; or no name

    def lowered(
        self, e: Emitter, instruction: Instruction, form: OperandTypes, sources: list[Value]
    ) -> Results:
        """Return the results of a pure instruction, computed in place or by a call."""
        uses = self.uses[instruction.opcode, instruction.parts]
        if uses * _LONG * 8 < _MANY:  # hardly any is a hundred operations long
            return _compute(e, instruction, *sources)
        # All that the lowering depends on, run-time values aside.
        literal = tuple(item if isinstance(item, Immediate) else type(item) for item in instruction.operands)
        given = tuple((value.type, "" if _is_computed(value) else value.ref) for value in sources)
        key = (instruction.opcode, instruction.parts, instruction.negated, form, literal, given)
        if key not in self.functions:
            self.functions[key] = self._function(e, instruction, sources, uses)
        name, type_ = self.functions[key]
        if not name:
            return _compute(e, instruction, *sources)
        computed = [_as_integer(e, value) for value in sources if _is_computed(value)]
        answer = e.call(name, _integer(type_), *computed)
        return e.set(type_, f"bitcast {answer} to {type_}") if answer.type != type_ else answer

    def row(self, e: Emitter, instruction: Instruction, form: OperandTypes) -> str:
        """Return the name of a function that runs a row of instructions of one kind; "" if none is worth while.

        For each, the table has the place of its result in a frame, and those of its sources.
        """
        key = ("row", instruction.opcode, instruction.parts)
        if key not in self.functions:
            self.functions[key] = (self._row(e, instruction, form), "")
        return self.functions[key][0]

    def _row(self, e: Emitter, instruction: Instruction, form: OperandTypes) -> str:
        body = Emitter(e)
        places = []
        for i in range(len(form.sources) + 1):
            entry = body.offset(body.set("ptr", "getelementptr i32, ptr %table, i64 %at").ref, 4 * i)
            places.append(body.offset("%frame", body.cast("zext", body.load("i32", entry, 4), "i64")))
        sources = [
            body.cast("bitcast", body.load(vector(f"i{bits_of(type_)}"), place, 64), llvm_scalar(type_))
            for type_, place in zip(form.sources, places[1:], strict=True)
        ]
        start = len(body.lines)
        result = _compute(body, instruction, *sources)
        branches = any(not line.startswith(" ") for line in body.lines)
        if not isinstance(result, Value) or len(body.lines) - start < _LONG or branches:
            return ""
        body.store(body.cast("bitcast", result, f"i{bits_of(form.results[0])}"), places[0], 64)
        on = Value("i64", "%at", body) + len(places)
        body.branch(body.is_at_least(on, Value("i64", "%count")), "end", "next")
        body.place("end")
        body.line("ret void")
        phi = f"  %at = phi i64 [ 0, %entry ], [ {on.ref}, %next ]"
        body.lines = ["entry:", "  br label %next", "next:", phi, *body.lines]
        name = re.sub(r"\W", "_", f"tw_row_{instruction.name}")
        e.define(name, "void", "ptr %frame, ptr %table, i64 %count", body)
        return name

    def _function(
        self, e: Emitter, instruction: Instruction, sources: list[Value], uses: int
    ) -> tuple[str, str]:
        """Write a function for instructions of a kind; return its name and result type, "" if not worth while."""
        body = Emitter(e)
        taken, inner = [], []
        for i, value in enumerate(sources):
            if _is_computed(value):
                taken.append(Value(_integer(value.type), f"%a{i}", body))
                inner.append(body.cast("bitcast", taken[-1], value.scalar))
            else:
                inner.append(Value(value.type, value.ref, body))
        result = _compute(body, instruction, *inner)
        length = len(body.lines)
        if not isinstance(result, Value) or length < _LONG or length * uses < _MANY:
            return "", ""
        body.line(f"ret {_as_integer(body, result)}")
        name = re.sub(r"\W", "_", f"tw_{instruction.name}_{len(self.functions)}")
        e.define(name, _integer(result.type), ", ".join(map(str, taken)), body)
        return name, result.type


def _compute(e: Emitter, instruction: Instruction, *sources: Value) -> Results:
    compute = operation_of(instruction).compute
    assert compute is not None
    results: Results = compute(e, instruction, *sources)
    return results


def _is_computed(value: Value) -> bool:
    return value.ref.startswith("%")


def _integer(type_: str) -> str:
    """Return the type that passes a value to a function.

    NOTE: of functions that take vectors of half or bfloat, LLVM calls others that are nowhere.
    """
    return type_.replace("bfloat", "i16").replace("half", "i16")


def _as_integer(e: Emitter, value: Value) -> Value:
    return e.cast("bitcast", value, _integer(value.scalar))
