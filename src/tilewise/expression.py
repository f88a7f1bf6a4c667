"""Expressions of an epilogue: a line of Python arithmetic over each sum → the same in CUDA C++, or evaluated.

``max(acc * s, 0) + r``: ``acc`` is the sum, every other name is an array or a number that the call gives. Known are
numbers, ``+ - * /``, powers, comparisons, ``and or not``, ``x if condition else y``, and the functions of
:data:`FUNCTIONS`. ``keep(name, x)`` is x, and stores it in the array of that name, which where it is read is what it
held before.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.errors import ArgumentError, UnknownNameError

__all__ = ["ACTIVATIONS", "FUNCTIONS", "KEPT", "PREFIX", "SUM", "EpilogueCall", "Expression", "parse"]

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
KEEP = "keep"
PREFIX = "given_"  # of the call's names in C++, so that none means something there
KEPT = "kept_"  # of the values to keep
_LONGEST = 2000  # characters
_DEEPEST = 100  # levels of the tree
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]  # that a call gives, in the order of their first use; without those kept
    kept: tuple[str, ...]  # arrays that it stores

    @property
    def kept_whole(self) -> str | None:
        """The array that the value of the whole expression is kept in; None if there is none."""
        tree: Any = self.tree
        return tree.args[0].id if _is_keep(tree) else None

    def in_cuda(self) -> str:
        """The expression in CUDA C++, where what it keeps has been computed: see :meth:`kept_in_cuda`."""
        return _in_cuda(self.tree)

    def kept_in_cuda(self) -> list[tuple[str, str]]:
        """What it keeps, whether or not a condition needs it: names and expressions, each after those it has."""
        found = [node for node in _inner_first(self.tree) if _is_keep(node)]
        return [(node.args[0].id, _in_cuda(node.args[1])) for node in found]

    def evaluate(self, operations: Any, values: Mapping[str, Any]) -> Any:
        """Its value by the operations given: a method for each function and operator, named as Python's."""
        return _evaluate(self.tree, operations, values)


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueCall:
    """An expression with the arrays and numbers for its names."""

    expression: Expression
    given: Mapping[str, Any]


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
    return Expression(text.strip(), tree, tuple(check.names), tuple(check.kept))


class _Check:
    """Walks an expression, refuses what is not known, and notes the names in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, None] = {}
        self.kept: dict[str, None] = {}

    def value(self, node: ast.expr, depth: int) -> None:
        """Check what has to be a number."""
        if depth > _DEEPEST:
            raise self.wrong(node, f"is nested more than {_DEEPEST} deep")
        deeper = depth + 1
        match node:
            case ast.Constant(value=bool()):
                raise self.wrong(node, "is a condition, where a number has to be")
            case ast.Constant(value=int() | float()):
                self._check_number(node)
            case ast.Name(id=name):
                if name in FUNCTIONS or name == KEEP:
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
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                self.value(left, depth + 1)
                self.value(right, depth + 1)
            case ast.Compare():
                raise self.wrong(node, "must compare two numbers; join comparisons with 'and'")
            case ast.BoolOp(values=values) if depth < _DEEPEST:
                for one in values:
                    self.condition(one, depth + 1)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if depth < _DEEPEST:
                self.condition(operand, depth + 1)
            case _:
                raise self.wrong(node, "must be a condition, such as acc > 0")

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
        if function == KEEP:
            self._check_keep(node, depth)
            return
        if function not in FUNCTIONS:
            advice = UnknownNameError("function", function, [*FUNCTIONS, KEEP]).fix
            raise self.wrong(node, f"calls {function}, which is not known; {advice}")
        if len(node.args) != FUNCTIONS[function]:
            raise self.wrong(node, f"has {len(node.args)} arguments; {function} takes {FUNCTIONS[function]}")
        arguments = node.args
        if function == "where":
            self.condition(arguments[0], depth)
            arguments = arguments[1:]
        for one in arguments:
            self.value(one, depth)

    def _check_keep(self, node: ast.Call, depth: int) -> None:
        if len(node.args) != 2 or not isinstance(node.args[0], ast.Name) or node.args[0].id == SUM:
            raise self.wrong(node, "must be keep(name, value): the name of an array, and what it shall hold")
        if node.args[0].id in self.kept:
            raise self.wrong(node, f"keeps {node.args[0].id} a second time")
        self._check_name(node.args[0])
        self.kept[node.args[0].id] = None
        self.value(node.args[1], depth)

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


# ── to CUDA C++ ──


def _is_keep(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == KEEP


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
        case ast.Call(func=ast.Name(id="where"), args=[test, body, orelse]):
            return f"({_in_cuda(test)} ? {_in_cuda(body)} : {_in_cuda(orelse)})"
        case ast.Call(func=ast.Name(id="keep"), args=[ast.Name(id=name), _]):
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
        case ast.Call(func=ast.Name(id="keep"), args=[ast.Name(id=name), value]):
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
