"""PTX text to plain data: a module of variables and functions, each function a flat list of instructions.

Syntax only. Register names are resolved to slots here because nested ``{ }`` scopes may reuse them; labels
and variables are resolved for the same reason. What an instruction means is decided elsewhere.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from .errors import SyntaxFault
from .syntax import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    Pair,
    Register,
    Scope,
    Sink,
    Special,
    Symbol,
    Targets,
    Variable,
    Vector,
    type_bytes,
)

SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(\.[xyz])?$|"
    r"%(laneid|warpid|nwarpid|smid|nsmid|gridid|clock|clock_hi|clock64|globaltimer|globaltimer_lo|globaltimer_hi|"
    r"lanemask_(eq|lt|le|gt|ge)|dynamic_smem_size|total_smem_size|aggr_smem_size|cluster_ctarank|"
    r"cluster_nctarank|is_explicit_cluster|envreg\d+|pm\d+)$"
)
_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SPACE = re.compile(r"\s+")
_LINE_DIRECTIVE = re.compile(r"\.(version|target|address_size|file|loc)\b([^\n]*)")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_TOKEN = re.compile(
    r"\s*(?:(?P<hexfloat>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})"
    r"|(?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    r"|(?P<name>[A-Za-z_$%][\w$]*(?:\.[xyzw]\b)?)|(?P<mark>[][{}(),+\-!|]))"
)
_INSTRUCTION = re.compile(
    r"(?:@(!?)\s*([A-Za-z_$%][\w$]*)\s+)?([a-z][a-zA-Z0-9_]*)((?:\.[A-Za-z0-9_:]+)*)(.*)", re.DOTALL
)
_REGISTER_NAME = re.compile(r"([A-Za-z_$%][\w$]*)(?:<(\d+)>)?$")
_FUNCTION_HEAD = re.compile(r"\s*\.(?:entry|func)\b")
_DECLARATION = re.compile(
    r"(?P<attributes>(?:\.\w+(?:\([^)]*\))?\s*(?:\d+\s+)?)*)(?P<name>[A-Za-z_$%][\w$]*)\s*(?P<dims>(?:\[[^]]*\]\s*)*)$",
    re.DOTALL,
)
_WORDS = re.compile(r"\.(\w+)(?:\([^)]*\))?\s*(\d+)?")


def parse_integer(text: str) -> int:
    """A PTX integer literal (hexadecimal, octal, binary or decimal, with or without U)."""
    text = text.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text.isdigit():
        return int(text, 8)
    return int(text, 0)


class OperandParser:
    """Recursive descent over the operands of one instruction."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.scope = scope
        self.tokens: list[tuple[str, str]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise SyntaxFault(f"cannot read operands {text.strip()!r}")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind]))
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> tuple[str, str]:
        if self.at >= len(self.tokens) or (expected is not None and self.tokens[self.at][1] != expected):
            raise SyntaxFault(f"expected {expected or 'an operand'} before {self.peek() or 'the end'!r}")
        self.at += 1
        return self.tokens[self.at - 1]

    def all(self) -> list[Operand]:
        """Every operand."""
        found: list[Operand] = []
        while self.at < len(self.tokens):
            found.append(self.operand())
            if self.at < len(self.tokens):
                self.take(",")
        return found

    def listed(self, opening: str, closing: str) -> tuple[Operand, ...]:
        self.take(opening)
        items: list[Operand] = []
        while self.peek() != closing:
            items.append(self.operand())
            if self.peek() != closing:
                self.take(",")
        self.take(closing)
        return tuple(items)

    def operand(self) -> Operand:
        """One operand."""
        ahead = self.peek()
        if ahead == "{":
            return Vector(self.listed("{", "}"))
        if ahead == "(":
            return Group(self.listed("(", ")"))
        if ahead == "!":
            self.take()
            return Not(self.operand())
        if ahead == "[":
            parts = self.listed("[", "]")
            base = parts[0]
            if isinstance(base, Symbol):
                return Address(Symbol(base.name), base.offset, parts[1:])
            if isinstance(base, Address):
                return Address(base.base, base.offset, parts[1:])
            return Address(base, 0, parts[1:])
        first = self.simple()
        if self.peek() == "|":
            self.take()
            return Pair(first, self.simple())
        if self.peek() in ("+", "-"):
            offset = self.sum()
            if isinstance(first, Symbol):
                return Symbol(first.name, offset)
            if isinstance(first, Immediate):
                return Immediate("int", first.value + offset)
            return Address(first, offset)
        return first

    def sum(self) -> int:
        total = 0
        while self.peek() in ("+", "-"):
            sign = 1
            while self.peek() in ("+", "-"):
                sign = -sign if self.take()[1] == "-" else sign
            kind, text = self.take()
            if kind != "number":
                raise SyntaxFault(f"expected a number, not {text!r}")
            total += sign * parse_integer(text)
        return total

    def simple(self) -> Operand:
        kind, text = self.take()
        if kind == "hexfloat":
            return Immediate(
                "f32" if text[1] in "fF" else "f64", int.from_bytes(bytes.fromhex(text[2:]), "big")
            )
        if kind == "mark" and text in "+-":
            inner = self.simple()
            if not isinstance(inner, Immediate):
                raise SyntaxFault("a sign must stand before a literal")
            if inner.kind != "int":
                return Immediate(inner.kind, inner.value ^ (1 << (31 if inner.kind == "f32" else 63)))
            return Immediate("int", -inner.value if text == "-" else inner.value)
        if kind == "number":
            if "." in text:
                return Immediate("f64", int.from_bytes(struct.pack("<d", float(text)), "little"))
            return Immediate("int", parse_integer(text))
        if kind != "name":
            raise SyntaxFault(f"unexpected {text!r}")
        if text == "_":
            return Sink()
        register = self.scope.register(text)
        if register is not None:
            return register
        if SPECIAL.match(text):
            return Special(text)
        if text == "WARP_SZ":
            return Immediate("int", 32)
        if text == "generic" and self.peek() == "(":
            return self.listed("(", ")")[0]
        return Symbol(self.scope.variable(text))


def parse_operands(text: str, scope: Scope) -> list[Operand]:
    """The operands in ``text``, names resolved in ``scope`` (labels later)."""
    return OperandParser(text, scope).all()


class ModuleParser:
    """One pass over the text, statement by statement."""

    def __init__(self, text: str) -> None:
        # NOTE: comments become spaces of the same number of lines, so that positions still give PTX lines.
        self.text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
        self.position = 0
        self.line = 1
        self.line_at = 0
        self.module = Module()
        self.scope = Scope()
        self.function: Function | None = None
        self.unique = 0

    def fail(self, message: str) -> SyntaxFault:
        return SyntaxFault(f"PTX line {self.line}: {message}")

    def module_of(self) -> Module:
        """Parse everything."""
        while self.skip_space():
            match = _LINE_DIRECTIVE.match(self.text, self.position)
            if match:
                self.line_directive(match)
            elif self.text.startswith(".section", self.position):
                self.position = self.text.index("}", self.position) + 1
            else:
                self.top_level()
        return self.module

    def skip_space(self) -> bool:
        match = _SPACE.match(self.text, self.position)
        if match:
            self.position = match.end()
        self.line += self.text.count("\n", self.line_at, self.position)
        self.line_at = self.position
        return self.position < len(self.text)

    def line_directive(self, match: re.Match[str]) -> None:
        value = match[2].strip()
        if match[1] == "version":
            self.module.version = value
        elif match[1] == "target":
            self.module.target = value.split(",")[0]
        elif match[1] == "address_size":
            self.module.address_size = int(value)
        self.position = match.end()

    def statement(self) -> str:
        """The text up to the next semicolon (not one inside a string), which is consumed."""
        end = self.position
        while True:
            stop, quote = self.text.find(";", end), self.text.find('"', end)
            if stop < 0:
                raise self.fail("no ';' ends this statement")
            if quote < 0 or stop < quote:
                break
            end = self.text.index('"', quote + 1) + 1
        found = self.text[self.position : stop]
        self.position = stop + 1
        return found

    def top_level(self) -> None:
        words = re.compile(r"((?:\.(?:visible|extern|weak|common)\s+)*)").match(self.text, self.position)
        linking = words[1].split() if words else []
        start = words.end() if words else self.position
        if _FUNCTION_HEAD.match(self.text, start):
            self.position = start
            self.function_of()
        else:
            self.position = start
            text = self.statement()
            if text.startswith(("global", "const", "shared", "local", "param"), 1):
                for variable in self.variables_of(text, self.scope):
                    variable.external = ".extern" in linking
                    self.module.variables.append(variable)
            elif not text.startswith((".pragma", ".alias", ".noreturn")):
                raise self.fail(f"unknown directive {text.split()[0]!r}")

    # -- declarations ------------------------------------------------------------------------------

    def variables_of(self, text: str, scope: Scope) -> list[Variable]:
        """Variables of ``.space .align n .type name[dims] = {...}, ...``."""
        head, _, initial = text.partition("=")
        match = _DECLARATION.match(head.split(",")[0].strip())
        if match is None:
            raise self.fail(f"cannot read the declaration {text.strip()!r}")
        names = [match["name"] + match["dims"], *head.split(",")[1:]]
        return [self.variable_of(match["attributes"], name.strip(), initial, scope) for name in names]

    def variable_of(self, attributes: str, declarator: str, initial: str, scope: Scope) -> Variable:
        space, kind, align, lanes = "", "", 0, 1
        for word, number in _WORDS.findall(attributes):
            if word in ("global", "const", "shared", "local", "param") and not space:
                space = word
            elif word == "reg":
                space = "reg"
            elif word == "align":
                align = int(number)
            elif word in ("v2", "v4"):
                lanes = int(word[1])
            elif re.fullmatch(r"(pred|[busf]\d+(x2)?|bf16(x2)?|e4m3x?2?|e5m2x?2?|b128)", word):
                kind = word
        name = declarator.split("[")[0].strip()
        count, external = lanes, False
        for dim in re.findall(r"\[([^]]*)\]", declarator):
            external |= not dim.strip()
            count *= parse_integer(dim.strip()) if dim.strip() else 0
        width = type_bytes(kind)
        values = None
        if initial.strip():
            values = flatten(parse_operands(initial, scope))
            count = max(count, len(values))
        return Variable(name, space, kind, align or max(width, 1), count * width, values, external=external)

    def function_of(self) -> None:
        end = self.position
        while self.text[end] not in "{;":
            end += 1
            if end >= len(self.text):
                raise self.fail("a function without a body")
        head = self.text[self.position : end].strip()
        match = re.match(
            r"\.(entry|func)\s*(?:\.\w+\s+)*(\([^()]*\))?\s*(?:\.\w+\s+)*([A-Za-z_$%][\w$]*)\s*(\((?:[^()]|\([^()]*\))*\))?",
            head,
            re.DOTALL,
        )
        if match is None:
            raise self.fail(f"cannot read the function head {head!r}")
        function = Function(match[3], match[1] == "entry", self.line)
        self.scope = Scope(outer=self.scope)
        self.function = function
        function.returns = self.parameters_of(match[2])
        function.parameters = self.parameters_of(match[4])
        self.position = end
        if self.text[end] == "{":
            self.position += 1
            function.code = []
            self.body_of(function)
            self.resolve(function)
        else:
            self.position += 1
        known = self.module.functions.get(function.name)
        if known is None or known.code is None:
            self.module.functions[function.name] = function
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        self.function = None

    def parameters_of(self, text: str | None) -> list[Variable]:
        found: list[Variable] = []
        inner = (text or "").strip()[1:-1].strip()
        for part in inner.split(",") if inner else []:
            variable = self.variables_of(part.strip(), self.scope)[0]
            if variable.space == "reg":
                variable.register = self.declare(variable.name, variable.type)
            else:
                self.scope.variables[variable.name] = variable.name
            found.append(variable)
        return found

    def declare(self, name: str, kind: str) -> Register:
        assert self.function is not None
        register = Register(name, kind, len(self.function.registers))
        self.function.registers.append(register)
        self.scope.registers[name] = register
        return register

    # -- bodies ------------------------------------------------------------------------------------

    def body_of(self, function: Function) -> None:
        depth = 1
        while depth:
            if not self.skip_space():
                raise self.fail("a function body is not closed")
            ahead = self.text[self.position]
            if ahead == "{":
                self.position += 1
                self.scope = Scope(outer=self.scope)
                depth += 1
            elif ahead == "}":
                self.position += 1
                depth -= 1
                if depth:
                    assert self.scope.outer is not None
                    self.scope = self.scope.outer
            elif ahead == ";":
                self.position += 1
            else:
                self.in_body(function)

    def in_body(self, function: Function) -> None:
        assert function.code is not None
        match = _LINE_DIRECTIVE.match(self.text, self.position)
        if match:
            self.line_directive(match)
            return
        label = _LABEL.match(self.text, self.position)
        if label:
            self.position = label.end()
            self.skip_space()
            if re.compile(r"\.(branchtargets|calltargets|callprototype)\b").match(self.text, self.position):
                words = self.statement().split(None, 1)
                self.scope.targets[label[1]] = [w.strip() for w in words[1].split(",")]
            else:
                self.scope.labels[label[1]] = len(function.code)
            return
        text = self.statement()
        if text[0] == ".":
            self.directive_in_body(function, text)
        else:
            function.code.append(self.instruction_of(text))

    def directive_in_body(self, function: Function, text: str) -> None:
        word = text[1:].split(None, 1)[0]
        if word == "reg":
            kind, names = re.sub(r"^\.reg\s+(\.v[24]\s+)?\.", "", text).split(None, 1)
            for declared in names.split(","):
                match = _REGISTER_NAME.match(declared.strip())
                if match is None:
                    raise self.fail(f"cannot read {text!r}")
                for name in [f"{match[1]}{i}" for i in range(int(match[2]))] if match[2] else [match[1]]:
                    self.declare(name, kind)
        elif word in ("local", "shared", "param", "global", "const"):
            for variable in self.variables_of(text, self.scope):
                self.unique += 1
                unique = f"{variable.name}@{self.unique}"
                self.scope.variables[variable.name] = unique
                variable.name = unique
                function.variables.append(variable)
        elif word not in ("pragma", "maxntid", "reqntid"):
            raise self.fail(f"unknown directive .{word}")

    def instruction_of(self, text: str) -> Instruction:
        match = _INSTRUCTION.match(text)
        if match is None:
            raise self.fail(f"cannot read {text.strip()!r}")
        predicate = None
        if match[2]:
            predicate = self.scope.register(match[2])
            if predicate is None:
                raise self.fail(f"unknown predicate {match[2]}")
        try:
            operands = parse_operands(match[5], self.scope)
        except SyntaxFault as fault:
            raise self.fail(str(fault)) from None
        modifiers = tuple(match[4].split(".")[1:])
        shown = " ".join(text.split())
        return Instruction(
            self.line, shown, match[3], modifiers, operands, predicate, match[1] == "!", self.scope
        )

    def resolve(self, function: Function) -> None:
        """Turn label names into positions, now that all labels are known."""
        for instruction in function.code or []:
            scope = instruction.scope
            assert scope is not None
            self.line = instruction.line
            instruction.operands = [self.resolved(o, scope) for o in instruction.operands]
            instruction.scope = None

    def resolved(self, operand: Operand, scope: Scope) -> Operand:
        if not isinstance(operand, Symbol):
            return operand
        label = scope.label(operand.name)
        if label is not None:
            return label
        names = scope.branch_targets(operand.name)
        labels = [scope.label(name) for name in names or []]
        if not labels or None in labels:
            return operand
        return Targets(tuple(label for label in labels if label is not None))


def flatten(operands: list[Operand]) -> list[Operand]:
    """The leaves of nested initialiser braces."""
    found: list[Operand] = []
    for operand in operands:
        found += flatten(list(operand.items)) if isinstance(operand, Vector) else [operand]
    return found


@lru_cache(maxsize=256)
def parse(text: str) -> Module:
    """The module in a PTX text (the same object for the same text: do not change it)."""
    return ModuleParser(text.rstrip("\0")).module_of()
