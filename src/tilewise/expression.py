"""Expressions of an epilogue: a line of Python arithmetic over each sum → the same in CUDA C++, or evaluated.

``max(acc * s, 0) + r``: ``acc`` is the sum, every other name is an array or a number that the call gives. Known are
numbers, ``+ - * /``, powers, comparisons, ``and or not``, ``x if condition else y``, and the functions of
:data:`FUNCTIONS`. ``keep(name, x)`` is x, and stores it in the array of that name, which where it is read is what it
held before. ``column_sums(name, x)`` and ``row_sums(name, x)`` are x too, and add it up over the columns or rows.
``scaled(acc, s, t)`` is the sum of terms that arrays of scales, which differ along K, have multiplied.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.errors import ArgumentError, UnknownNameError

__all__ = [
    "ACTIVATIONS",
    "COLUMN_SUMS",
    "FUNCTIONS",
    "KEPT",
    "PREFIX",
    "ROW_SUMS",
    "SCALED",
    "SUM",
    "EpilogueCall",
    "Expression",
    "parse",
]

SUM = "acc"
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
# What may be called, and with how many arguments. Each is a function of tilewise/activation.cuh.
FUNCTIONS = {
    **dict.fromkeys(ACTIVATIONS, 1),
    **{f"{name}_grad": 1 for name in ACTIVATIONS},  # the derivative, at what the activation was given
    "abs": 1,
    "exp": 1,
    "log": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "erf": 1,
    "min": 2,
    "max": 2,
    "clamp": 3,
    "where": 3,
}
KEEP, COLUMN_SUMS, ROW_SUMS = "keep", "column_sums", "row_sums"
STORES = (
    KEEP,
    COLUMN_SUMS,
    ROW_SUMS,
)  # what is the value of its second argument, and stores it under its first
SCALED = "scaled"  # the sum of scaled terms: its scales of A and of B, 1 where there are none
PREFIX = "given_"  # of the call's names in C++, so that none means something there
KEPT = "kept_"  # of the values to store
_LONGEST = 2000  # characters
_DEEPEST = 100  # levels of the tree
_VERBS = {KEEP: "keeps", COLUMN_SUMS: "adds up into", ROW_SUMS: "adds up into"}
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]  # that a call gives, in the order of their first use; without those kept
    kept: tuple[str, ...]  # arrays that it stores values in, each element of its own
    column_sums: tuple[str, ...] = ()  # arrays of the sums of columns
    row_sums: tuple[str, ...] = ()
    scales: tuple[str, str] = ("", "")  # arrays of the scales of A's terms, and of B's, if there are

    @property
    def summed(self) -> tuple[str, ...]:
        """The arrays of the sums of columns and rows."""
        return self.column_sums + self.row_sums

    @property
    def written(self) -> tuple[str, ...]:
        """All arrays that it writes."""
        return self.kept + self.summed

    @property
    def given(self) -> tuple[str, ...]:
        """All names that a call gives."""
        return tuple(dict.fromkeys((*filter(None, self.scales), *self.names, *self.written)))

    @property
    def value_array(self) -> str | None:
        """The array that the value of the whole expression is kept in; None if there is none."""
        tree: Any = self.tree
        return tree.args[0].id if _stores(tree) == KEEP else None

    def is_linear(self, numbers: Sequence[str]) -> bool:
        """Whether it adds up the sum and arrays times real numbers, and does nothing else; ``numbers`` are the names of
        such. Then it may be done to the two parts of complex numbers each by itself."""
        return _kind(self.tree, numbers) == _ELEMENT

    def in_cuda(self) -> str:
        """The expression in CUDA C++, where what it stores has been computed: see :meth:`stored_in_cuda`."""
        return _in_cuda(self.tree)

    def stored_in_cuda(self) -> list[tuple[str, str]]:
        """What it stores, whether or not a condition needs it: names and expressions, each after those it has."""
        found = [node for node in _inner_first(self.tree) if _stores(node)]
        return [(node.args[0].id, _in_cuda(node.args[1])) for node in found]

    def evaluate(self, operations: Any, values: Mapping[str, Any]) -> Any:
        """Its value by the operations given: a method for each function and operator, named as Python's."""
        return _evaluate(self.tree, operations, values)


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueCall:
    """An expression with the arrays and numbers for its names."""

    expression: Expression
    given: Mapping[str, Any]

    def replace(self, given: Mapping[str, Any]) -> EpilogueCall:
        """The same with others of its arrays and numbers."""
        return EpilogueCall(self.expression, {**self.given, **given})


@functools.lru_cache(256)
def parse(text: str) -> Expression:
    """Read an expression; an error that points at what is wrong in it."""
    if len(text) > _LONGEST:
        raise ArgumentError("epilogue", f"must have at most {_LONGEST:,} characters", f"{len(text):,}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        column = getattr(error, "offset", None) or 1
        raise _point(text.strip(), column - 1, "cannot be read here") from None
    check = _Check(text.strip())
    check.value(tree, 0)
    check.check_sums(tree)
    check.check_scales(tree)
    kept, columns, rows = (
        tuple(name for name, how in check.stored.items() if how == wanted) for wanted in STORES
    )
    scales = check.scales or ("", "")
    return Expression(text.strip(), tree, tuple(check.names), kept, columns, rows, scales)


class _Check:
    """Walks an expression, refuses what is not known, and notes the names in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, None] = {}
        self.stored: dict[str, str] = {}  # by which function
        self.scales: tuple[str, str] | None = None

    def value(self, node: ast.expr, depth: int) -> None:
        """Check what has to be a number."""
        self._check_depth(node, depth)
        deeper = depth + 1
        match node:
            case ast.Constant(value=bool()):
                raise self.wrong(node, "is a condition, where a number has to be")
            case ast.Constant(value=int() | float()):
                self._check_number(node)
            case ast.Name(id=name):
                if name in FUNCTIONS or name in (*STORES, SCALED):
                    raise self.wrong(node, f"is a function: write {name}(…)")
                self._check_name(node)
                if name != SUM:
                    self.names[name] = None
            case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
                self.value(operand, deeper)
            case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int(power))) if 0 <= power <= 8:
                self.value(left, deeper)
            case ast.BinOp(op=ast.Pow()):
                raise self.wrong(
                    node, "must have a whole power from 0 to 8; write exp(y * log(x)) for others"
                )
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                self.value(left, deeper)
                self.value(right, deeper)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.condition(test, deeper)
                self.value(body, deeper)
                self.value(orelse, deeper)
            case ast.Call(func=ast.Name(id=function)):
                self._check_call(node, function, deeper)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                raise self.wrong(
                    node, "is a condition, where a number has to be: write where(condition, 1, 0)"
                )
            case _:
                raise self.wrong(node, "is nothing that an epilogue can do")

    def condition(self, node: ast.expr, depth: int) -> None:
        """Check what has to be true or false."""
        self._check_depth(node, depth)
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                self.value(left, depth + 1)
                self.value(right, depth + 1)
            case ast.Compare():
                raise self.wrong(node, "must compare two numbers; join comparisons with 'and'")
            case ast.BoolOp(values=values):
                for one in values:
                    self.condition(one, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, depth + 1)
            case _:
                raise self.wrong(node, "must be a condition, such as acc > 0")

    def _check_depth(self, node: ast.expr, depth: int) -> None:
        if depth > _DEEPEST:
            raise self.wrong(node, f"is nested more than {_DEEPEST} deep")

    def _check_name(self, node: ast.Name) -> None:
        if not node.id.isascii():
            raise self.wrong(node, "has a name that CUDA C++ cannot have: write it in ASCII")

    def _check_number(self, node: ast.Constant) -> None:
        try:
            finite = math.isfinite(_number(node))
        except OverflowError:
            finite = False
        if not finite:
            raise self.wrong(node, "is too large a number")

    def _check_call(self, node: ast.Call, function: str, depth: int) -> None:
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
            raise self.wrong(node, "takes its arguments by place")
        if function in STORES:
            self._check_store(node, function, depth)
            return
        if function == SCALED:
            self._check_scaled(node)
            return
        if function not in FUNCTIONS:
            advice = UnknownNameError("function", function, [*FUNCTIONS, *STORES, SCALED]).fix
            raise self.wrong(node, f"calls {function}, which is not known; {advice}")
        if len(node.args) != FUNCTIONS[function]:
            raise self.wrong(node, f"has {len(node.args)} arguments; {function} takes {FUNCTIONS[function]}")
        arguments = node.args
        if function == "where":
            self.condition(arguments[0], depth)
            arguments = arguments[1:]
        for one in arguments:
            self.value(one, depth)

    def _check_store(self, node: ast.Call, function: str, depth: int) -> None:
        if len(node.args) != 2 or not isinstance(node.args[0], ast.Name) or node.args[0].id == SUM:
            what = "what it shall hold" if function == KEEP else "what is to be added up in it"
            raise self.wrong(node, f"must be {function}(name, value): the name of an array, and {what}")
        name = node.args[0].id
        if name in self.stored:
            raise self.wrong(node, f"{_VERBS[function]} {name} a second time")
        self._check_name(node.args[0])
        self.stored[name] = function
        self.value(node.args[1], depth)

    def _check_scaled(self, node: ast.Call) -> None:
        names = [_scale_name(one) for one in node.args[1:]]
        of_sum = bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id == SUM
        if not of_sum or len(names) != 2 or None in names:
            raise self.wrong(node, f"must be {SCALED}({SUM}, a, b): names of arrays of scales, or 1")
        found = str(names[0]), str(names[1])
        if not any(found) or found[0] == found[1]:
            raise self.wrong(node, "must have scales of a or of b, by names of their own")
        if self.scales not in (None, found):
            raise self.wrong(node, "must have the same scales everywhere")
        self.scales = found

    def check_scales(self, tree: ast.expr) -> None:
        """Refuse scales of terms that are anything else too, and sums without them."""
        if self.scales is None:
            return
        calls = [node for node in _inner_first(tree) if _is_scaled(node)]
        inside = {id(argument) for node in calls for argument in node.args}
        for node in _inner_first(tree):
            if not isinstance(node, ast.Name) or id(node) in inside:
                continue
            if node.id == SUM:
                raise self.wrong(node, f"must be {SCALED}({SUM}, …) everywhere")
            if node.id in self.scales:
                raise self.wrong(node, f"has {node.id}, the scales of terms, in another place")

    def check_sums(self, tree: ast.expr) -> None:
        """Refuse arrays of sums that are read too: sums are there when all is over."""
        for node in _inner_first(tree):
            if _stores(node) in (COLUMN_SUMS, ROW_SUMS) and node.args[0].id in self.names:
                raise self.wrong(node, f"{_VERBS[COLUMN_SUMS]} {node.args[0].id}, which is read too")

    def wrong(self, node: ast.expr, what: str) -> ArgumentError:
        """The error that points at a node, whose offset counts bytes."""
        column = len(self.text.encode()[: node.col_offset].decode(errors="ignore"))
        return _point(self.text, column, what)


def _point(text: str, column: int, what: str) -> ArgumentError:
    """An error that shows the expression, and under it where it goes wrong."""
    return ArgumentError("epilogue", f"{what}:\n  {text}\n  {' ' * column}^")


def _number(node: ast.Constant) -> float:
    value: Any = node.value
    return float(value)


# ── of complex numbers ──

_FACTOR, _ELEMENT = "factor", "element"  # a real number, and what may be complex


def _kind(node: ast.expr, numbers: Sequence[str]) -> str | None:
    """Which of the two a node is; None if complex numbers have other values than their parts."""
    match node:
        case ast.Constant():
            return _FACTOR
        case ast.Name(id=name):
            return _FACTOR if name in numbers else _ELEMENT
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _kind(operand, numbers)
        case ast.BinOp(left=left, op=op, right=right):
            kinds = _kind(left, numbers), _kind(right, numbers)
            if None in kinds:
                return None
            match op:
                case ast.Add() | ast.Sub() if kinds[0] == kinds[1]:
                    return kinds[0]
                case ast.Mult() if _FACTOR in kinds:
                    return _ELEMENT if _ELEMENT in kinds else _FACTOR
                case ast.Div() | ast.Pow() if kinds[1] == _FACTOR and (
                    isinstance(op, ast.Div) or kinds[0] == _FACTOR
                ):
                    return kinds[0]
    return None


# ── to CUDA C++ ──


def _stores(node: Any) -> str:
    """Which of the functions that store a node calls; nothing if none."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STORES
    return str(node.func.id) if called else ""


def _is_scaled(node: Any) -> bool:
    """Whether a node is the sum of scaled terms."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == SCALED


def _scale_name(node: ast.expr) -> str | None:
    """The name of an array of scales; nothing for 1, and None for what is neither."""
    if isinstance(node, ast.Name) and node.id != SUM and node.id not in FUNCTIONS and node.id.isascii():
        return node.id
    return "" if isinstance(node, ast.Constant) and node.value == 1 else None


def _inner_first(node: ast.AST) -> Iterator[Any]:
    """The nodes of a tree, each after those below it."""
    for child in ast.iter_child_nodes(node):
        yield from _inner_first(child)
    yield node


def _in_cuda(node: Any) -> str:
    match node:
        case ast.Constant():
            return f"Sum({_number(node)!r})"
        case ast.Name(id=name):
            return name if name == SUM else f"{PREFIX}{name}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"!{_in_cuda(operand)}"
        case ast.UnaryOp(op=op, operand=operand):
            return f"({'-' if isinstance(op, ast.USub) else '+'}{_in_cuda(operand)})"
        case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int(power))):
            return f"activation::power<{power}>({_in_cuda(left)})"
        case ast.BinOp(left=left, op=op, right=right):
            return f"({_in_cuda(left)} {_BINARY[type(op)]} {_in_cuda(right)})"
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return f"({_in_cuda(left)} {_COMPARISONS[type(op)]} {_in_cuda(right)})"
        case ast.BoolOp(op=op, values=values):
            joint = " && " if isinstance(op, ast.And) else " || "
            return f"({joint.join(map(_in_cuda, values))})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({_in_cuda(test)} ? {_in_cuda(body)} : {_in_cuda(orelse)})"
        case ast.Call() if _is_scaled(node):
            return SUM  # which the kernel has scaled
        case ast.Call(func=ast.Name(id="where"), args=[test, body, orelse]):
            return f"({_in_cuda(test)} ? {_in_cuda(body)} : {_in_cuda(orelse)})"
        case ast.Call(args=[ast.Name(id=name), _]) if _stores(node):
            return f"{KEPT}{name}"
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return f"activation::{function}({', '.join(map(_in_cuda, arguments))})"
    raise AssertionError(ast.dump(node))


# ── evaluated ──


def _evaluate(node: Any, operations: Any, values: Mapping[str, Any]) -> Any:
    def of(one: Any) -> Any:
        return _evaluate(one, operations, values)

    match node:
        case ast.Constant():
            return operations.number(_number(node))
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=op, operand=operand):
            return getattr(operations, _METHODS[type(op)])(of(operand))
        case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=power)):
            return operations.power(of(left), power)
        case ast.BinOp(left=left, op=op, right=right):
            return getattr(operations, _METHODS[type(op)])(of(left), of(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return operations.compare(_COMPARISONS[type(op)], of(left), of(right))
        case ast.BoolOp(op=op, values=terms):
            combine: Callable[[Any, Any], Any] = getattr(operations, _METHODS[type(op)])
            return functools.reduce(combine, map(of, terms))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return operations.where(of(test), of(body), of(orelse))
        case ast.Call() if _is_scaled(node):
            return values[SUM]
        case ast.Call(args=[ast.Name(id=name), value]) if _stores(node):
            return operations.keep(name, of(value))
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return operations.call(function, *map(of, arguments))
    raise AssertionError(ast.dump(node))


_METHODS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.USub: "negate",
    ast.UAdd: "identity",
    ast.Not: "invert",
    ast.And: "both",
    ast.Or: "either",
}
