"""PTX text → a Module. Knows the grammar, not the instructions: an opcode is a word here."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections import ChainMap
from dataclasses import replace
from functools import partial
from math import prod

from tilewise.emulator.ptx import elements, syntax
from tilewise.emulator.ptx.constant_expressions import constant, constant_integer, read_offset
from tilewise.emulator.ptx.initial import check_links, initial_bytes
from tilewise.emulator.ptx.library import add_library
from tilewise.emulator.ptx.modifiers import MARKED, normalise, order_modifiers
from tilewise.emulator.ptx.scope import Scope
from tilewise.emulator.ptx.tokens import TokenReader
from tilewise.emulator.ptx.types import TYPE_BYTES

__all__ = ["Parser", "parse"]

_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_LINKAGE = {".visible", ".extern", ".weak", ".common", ".hidden"}
_NEXT = {".entry", ".func", ".file", ".loc", ".section", *_SPACES, *_LINKAGE}  # no part of a function's head
_MOST_BYTES = 1 << 31  # of one variable
_MOST_REGISTERS = 1 << 20
_MOST_SCOPES = 200
# Opcodes whose first operand is read, where it is no address.
_READING_FIRST = {"bar", "barrier", "bra", "brx", "call", "nanosleep", "stackrestore"}
_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|cluster_n?ctarank|laneid|n?warpid|n?smid|gridid|lanemask_\w+"
    r"|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?|envreg\d+|total_smem_size|aggr_smem_size"
    r"|dynamic_smem_size|current_graph_exec|is_explicit_cluster|reserved_smem_\w+)$"
)


_MODULES = 8  # that are remembered
_READING = threading.RLock()


def _unlock() -> None:
    """In a forked child: replace the locks that threads of the parent may have held."""
    global _READING
    _READING = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


@functools.lru_cache(_MODULES)
def parse(text: str) -> syntax.PtxModule:
    """Read a PTX text, the bodies of its functions aside; a mistake in it is a PtxError that names the line.

    The last modules are remembered: kernels of one module share what was read. ``Module.function`` reads a body.
    """
    module = Parser(text).module()
    add_library(module, parse)
    for variable in module.variables.values():
        check_links(module, variable)
    return module


class Parser(TokenReader):
    """One pass over the words of a text: a module's, or, with that module's parser, those of a part of it."""

    def __init__(self, text: str, line: int = 1, outer: Parser | None = None) -> None:
        super().__init__(text, line, outside=outer is None)
        self.result: syntax.PtxModule = (
            outer.result if outer else syntax.PtxModule((0, 0), "", text=text, read=self.read_body)
        )
        self.scope: Scope = Scope(self.result, outer.scope if outer else None)
        self.narrow: bool = bool(outer and outer.narrow)  # whether the target has no doubles

    # -- the module -----------------------------------------------------------------------------
    def module(self) -> syntax.PtxModule:
        while self.now.kind != "end":
            token = self.now
            if token.text == ".version":
                self.take()
                major, _, minor = self.take().text.partition(".")
                if not major.isdecimal() or not (minor or "0").isdecimal():
                    raise syntax.PtxError(token.line, "a version such as 8.0 expected")
                self.result.version = (int(major), int(minor or 0))
            elif token.text == ".target":
                self.take()
                self.result.target = self.word()
                while self.accept(","):
                    self.narrow |= self.word() == "map_f64_to_f32"
            elif token.text == ".address_size":
                self.take()
                if (bits := self.integer()) != 64:
                    what = f".address_size {bits}: 32-bit modules are supported neither here nor by CUDA 13"
                    raise syntax.PtxError(
                        token.line, f"{what}: compile the source again for 64-bit addresses"
                    )
            elif token.text == ".alias":
                self.alias()
            elif token.text == ".reg":  # of every function, before PTX 3.0
                self.scope.names, self.scope.vectors = ChainMap(self.scope.shared_names), {}
                self.registers(self.scope.shared)
            elif self.directive():
                pass
            elif token.kind == "dotted":
                self.declaration()
            else:
                raise self.error("a directive expected")
        if not self.result.target:
            raise syntax.PtxError(1, "there is no .target line: is this a PTX text?")
        return self.result

    def directive(self) -> bool:
        """Read a directive that may stand anywhere, or a semicolon; return False if there is none."""
        match self.now.text:
            case ";":
                self.take()
            case ".file":
                self.file()
            case ".loc":
                self.loc()
            case ".pragma":
                self.skip_to(";")
            case ".section":
                self.section()
            case _:
                return False
        return True

    def alias(self) -> None:
        """``.alias f, g;``: a call of f is one of g."""
        self.expect(".alias")
        name = self.word()
        self.expect(",")
        token = self.now
        target = self.result.functions.get(self.word())
        if target is None:
            raise syntax.PtxError(token.line, f"there is no function {token.text!r} before its alias")
        self.result.functions[name] = target
        self.expect(";")

    def file(self) -> None:
        self.expect(".file")
        number = self.integer()
        if self.now.kind != "string":
            raise self.error("a file name expected")
        self.result.files[number] = self.take().text[1:-1]
        while self.accept(","):
            self.integer()

    def section(self) -> None:
        self.expect(".section")
        while self.now.text != "{" and self.now.kind != "block":
            if self.now.kind == "end":
                raise self.error("'{' expected")
            self.take()
        self.skip_braces()

    def loc(self) -> None:
        self.expect(".loc")
        file, line = self.integer(), self.integer()
        self.integer()
        while self.accept(","):  # function_name and inlined_at: the innermost place is what is kept
            word = self.word()
            if word == "function_name":
                self.word()
                if self.accept("+"):
                    self.integer()
            else:
                self.integer(), self.integer(), self.integer()
        self.scope.location = (file, line)  # line 0 is of none: what follows is of no line before it

    def declaration(self) -> None:
        external = self.linkage()
        if self.now.text in (".entry", ".func"):
            self.parse_function()
        elif self.now.text in _SPACES:
            for variable in self.variables(external):
                self.result.variables[variable.name] = variable
        else:
            raise self.error("a function or a variable expected")

    def linkage(self) -> bool:
        """Read how a name is linked; return whether it is external."""
        words = set()
        while self.now.text in _LINKAGE:
            words.add(self.take().text)
        return ".extern" in words

    # -- variables ------------------------------------------------------------------------------
    def variables(self, external: bool = False) -> list[syntax.PtxVariable]:
        line = self.now.line
        space = self.take().text[1:]
        align, type_, vector = self.variable_type(line, False)
        found = [self.one_variable(space, type_, align, vector, external, line)]
        while self.accept(","):
            found.append(self.one_variable(space, type_, align, vector, external, line))
        self.accept(";")
        return found

    def variable_type(self, line: int, parameter: bool) -> tuple[int, str, int]:
        """Read what stands between a variable's space and its name: alignment, type, elements of a vector."""
        align, type_, vector = 0, "", 1
        while self.now.kind == "dotted":
            part = self.take().text
            if part == ".align":
                number = self.integer()
                align = align or number
            elif part in (".v2", ".v4", ".v8"):
                vector = int(part[2:])
            elif part[1:] in TYPE_BYTES:
                type_ = type_ or part[1:]
            elif parameter:
                continue
            elif part in (".texref", ".surfref", ".samplerref"):
                type_ = "b64"  # nothing reads it: there are no instructions for textures
            elif part == ".attribute":
                self.expect("(")
                self.skip_to(")")
            elif part not in (".ptr", ".managed", *_SPACES):
                raise syntax.PtxError(line, f"an unknown part of a variable: {part}")
        if align and (align & (align - 1) or align > 4096):
            raise syntax.PtxError(line, f"an alignment that is not a power of two up to 4,096: {align}")
        if not type_:
            raise syntax.PtxError(line, f"a {'parameter' if parameter else 'variable'} without a type")
        return align, type_, vector

    def one_variable(
        self, space: str, type_: str, align: int, vector: int, external: bool, line: int
    ) -> syntax.PtxVariable:
        name = self.word()
        element = TYPE_BYTES[type_] * vector
        sizes: list[int] = []
        if self.accept("<"):
            raise syntax.PtxError(line, "parameterised names are for registers only")
        while self.accept("["):
            sizes.append(0 if self.now.text == "]" else constant_integer(self))
            self.expect("]")
        if any(size < 0 for size in sizes) or prod(sizes) * element > _MOST_BYTES:
            raise syntax.PtxError(line, f"a variable of {prod(sizes) * element:,} bytes")
        data: bytes | None = None
        links: tuple[syntax.Link, ...] = ()
        count = prod(sizes)
        if self.accept("="):
            dimensions = [*sizes, vector] if vector > 1 or not sizes else sizes
            data, links, total = initial_bytes(self, self.scope, type_, dimensions, _MOST_BYTES)
            count = total // element
        size = count * element
        return syntax.PtxVariable(
            name, space, type_, count, align or element, size, data, links, external, line
        )

    # -- functions ------------------------------------------------------------------------------
    def parse_function(self) -> None:
        line = self.now.line
        entry = self.take().text == ".entry"
        returns = self.parameter_list() if not entry and self.now.text == "(" else []
        name = self.word()
        parameters = self.parameter_list() if self.now.text == "(" else []
        function = syntax.PtxFunction(name, entry, parameters, returns, line=line)
        while self.now.kind == "dotted" and self.now.text not in _NEXT:
            self.performance(function)
        # Once no semicolon ended a prototype.
        if self.accept(";") or (not entry and self.now.kind != "block"):
            function.declared_only = True
            self.result.functions.setdefault(name, function)
            return
        if self.now.kind != "block":
            raise self.error("'{' expected")
        body = self.take()
        function.unread, function.body_line = body.text, body.line
        function.last_line = body.line + body.text.count("\n")
        self.result.functions[name] = function

    def read_body(self, function: syntax.PtxFunction) -> None:
        """Read a function's body, once."""
        with _READING:
            if not function.unread:
                return
            # NOTE: a second reading of a body with a mistake in it must not find anything of the first.
            fresh = replace(function, registers={}, variables={}, body=[], tables={})
            fresh.parameters = [replace(variable) for variable in function.parameters]
            fresh.returns = [replace(variable) for variable in function.returns]
            reader = Parser(function.unread, function.body_line, self)
            reader.scope.enter(fresh)
            reader.block()
            for name in ("registers", "variables", "parameters", "returns", "body", "tables"):
                setattr(function, name, getattr(fresh, name))
            function.unread = ""  # the last step: others look at it without the lock

    def performance(self, function: syntax.PtxFunction) -> None:
        part = self.take().text
        numbers: list[int] = []
        while self.now.kind == "int" or (self.now.text == "," and numbers):
            if not self.accept(","):
                numbers.append(self.integer())
        if part == ".reqnctapercluster":
            x, y, z = [*numbers, 1, 1, 1][:3]
            function.cluster = (x, y, z)
        elif part == ".explicitcluster":
            function.explicit_cluster = True
        elif part == ".maxclusterrank" and numbers:
            function.max_cluster = numbers[0]
        elif part == ".blocksareclusters":
            function.blocks_are_clusters = True
        elif part == ".pragma":
            self.skip_to(";")

    def parameter_list(self) -> list[syntax.PtxVariable]:
        self.expect("(")
        found: list[syntax.PtxVariable] = []
        while not self.accept(")"):
            if self.now.text not in (".param", ".reg"):
                raise self.error("a parameter expected")
            line = self.now.line
            space = self.take().text[1:]
            align, type_, vector = self.variable_type(line, True)
            whole = self.one_variable(space, type_, align, vector, False, line)
            if any(whole.name == other.name.partition(".")[0] for other in found):
                raise syntax.PtxError(line, f"the parameter {whole.name!r} stands twice")
            found += elements.elements_of(whole, vector) if space == "reg" and vector > 1 else [whole]
            self.accept(",")
        return found

    def block(self) -> None:
        self.expect("{")
        self.scope.open_block()
        if len(self.scope.names.maps) > _MOST_SCOPES:
            raise syntax.PtxError(self.now.line, f"more than {_MOST_SCOPES} scopes within one another")
        while not self.accept("}"):
            if self.now.kind == "end":
                raise self.error("'}' expected")
            self.statement()
        self.scope.close_block()

    def statement(self) -> None:
        function = self.scope.function
        assert function is not None
        token = self.now
        if token.text == "{":
            self.block()
        elif token.text == ".reg":
            self.registers(function)
        elif self.directive():
            pass
        elif token.text in (".branchtargets", ".calltargets", ".callprototype"):
            raise self.error("a label before the table expected")
        elif token.kind == "dotted":
            self.local_variables(function)
        elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
            self.label(function)
        else:
            function.body.append(self.instruction())

    def registers(self, function: syntax.PtxFunction) -> None:
        self.expect(".reg")
        type_, vector = "", 0
        while self.now.kind == "dotted":
            part = self.take().text
            if part in (".v2", ".v4"):
                vector = int(part[2:])
            else:
                type_ = part[1:]
        if type_ not in TYPE_BYTES:
            raise self.error("a register type expected")
        while True:
            name = self.word()
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                if max(count, 0) * max(vector, 1) + len(function.registers) > _MOST_REGISTERS:
                    said = f"{count:,} registers, where a function may have {_MOST_REGISTERS:,}"
                    raise syntax.PtxError(self.now.line, said)
                names = [f"{name}{i}" for i in range(count)]
            else:
                names = [name]
            for each in names:
                unique = self.scope.unused(function, each)
                self.scope.names[each] = unique
                if vector:
                    self.scope.vectors[unique] = vector
                    function.registers |= {f"{unique}.{part}": type_ for part in syntax.ELEMENTS[:vector]}
                else:
                    function.registers[unique] = type_
            if not self.accept(","):
                break
        self.expect(";")

    def local_variables(self, function: syntax.PtxFunction) -> None:
        external = self.linkage()
        if self.now.text not in _SPACES:
            raise self.error("a variable expected")
        for variable in self.variables(external):
            check_links(self.result, variable)
            own = variable.space in ("local", "param")  # of each call; any other is there once
            unique = variable.name if own else f"{function.name}::{variable.name}"
            taken = {parameter.name for parameter in (*function.parameters, *function.returns)}
            while (free := self.scope.unused(function, unique)) != unique or unique in taken:
                unique = free if free != unique else f"{unique}#"
            self.scope.names[variable.name] = unique
            variable.name = unique
            (function.variables if own else self.result.variables)[unique] = variable

    def label(self, function: syntax.PtxFunction) -> None:
        token = self.take()
        self.expect(":")
        if self.now.text in (".branchtargets", ".calltargets"):
            self.take()
            names = [self.word()]
            while self.accept(","):
                names.append(self.word())
            self.expect(";")
            function.tables[self.scope.define_label(token.text, token.line)] = names
            for i, name in enumerate(names):
                self.scope.name_label(name, partial(names.__setitem__, i))
        elif self.now.text == ".callprototype":
            self.skip_to(";")
        else:
            function.body.append(syntax.Label(self.scope.define_label(token.text, token.line), token.line))

    # -- instructions ---------------------------------------------------------------------------
    def instruction(self) -> syntax.Instruction:
        line = self.now.line
        guard, negated = None, False
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.scope.register(self.word(), self.now.line)
        opcode = self.word()
        parts = []
        while self.now.kind == "dotted":
            parts.append(self.take().text[1:])
        written = ".".join((opcode, *parts))
        parts = [*order_modifiers(line, opcode, parts)]
        operands: list[syntax.Operand] = []
        if (
            opcode not in _READING_FIRST
            and self.now.kind == "word"
            and self.tokens[self.at + 1].text in ("+", "-")
        ):
            raise syntax.PtxError(line, f"{written}: its destination must be a register")
        while self.now.text != ";":
            operands.append(self.marked(parts, len(operands)) if opcode in MARKED else self.operand(opcode))
            if not self.accept(","):
                break
        self.expect(";")
        file, source = self.scope.location
        assert self.scope.function is not None
        whole = syntax.Instruction(
            line, opcode, tuple(parts), tuple(operands), guard, negated, source, file, written
        )
        if self.narrow and "f64" in parts:
            raise syntax.PtxError(line, "f64 that .target map_f64_to_f32 makes f32 is not supported")
        moved = elements.split_vector_move(self.scope, whole)
        found = normalise(moved, self.scope.function.registers, self.result.version)
        if (
            opcode in ("bra", "brx", "call")
            and found.operands
            and isinstance(found.operands[-1], syntax.Symbol)
        ):
            self.scope.name_label(found.operands[-1].name, partial(_rename_target, found))
        return found

    # -- operands -------------------------------------------------------------------------------
    def marked(self, parts: list[str], place: int) -> syntax.Operand:
        """An operand whose minus sign and selector, as in ``-r1.b0``, become parts of the instruction."""
        if self.now.text == "-" and self.tokens[self.at + 1].kind == "word":
            self.take()
            parts.append(f"{place}:-")
        operand = self.operand()
        while self.now.kind == "dotted":
            parts.append(f"{place}:{self.take().text[1:]}")
        return operand

    def operand(self, opcode: str = "", without: tuple[str, ...] = ()) -> syntax.Operand:
        """An operand, but none that begins with one of the marks ``without``."""
        token = self.now
        if token.text in without:
            raise self.error("a register or a number expected")
        items: list[syntax.Operand] = []
        if self.accept("{"):
            while not self.accept("}"):
                items.append(self.operand(without=("{", "[")))
                self.accept(",")
            return syntax.Vector(tuple(items))
        if opcode == "bra" and token.kind == "word":  # a label, whatever else has its name
            return syntax.Symbol(self.take().text)
        if opcode == "call" and self.accept("("):  # its arguments, its results: of a vector, the elements
            while not self.accept(")"):
                items += syntax.items_of(self.operand())
                self.accept(",")
            return syntax.Vector(tuple(items))
        if self.accept("["):
            return self.address()
        if token.text == "!" and self.tokens[self.at + 1].kind == "word":
            self.take()
            return syntax.Not(self.scope.register(self.word(), self.now.line))
        if token.kind in ("int", "float") or token.text in ("-", "+", "!", "~", "(", "WARP_SZ"):
            return constant(self)
        if token.kind != "word":
            raise self.error("an operand expected")
        operand = self.named()
        if self.accept("|"):
            return syntax.Pair(operand, self.named())
        if isinstance(operand, syntax.Symbol) and self.now.text == "[":
            return elements.index_array(self, self.scope, operand, opcode, self.named)
        if isinstance(operand, syntax.Register) and self.now.text in ("+", "-"):
            return elements.add_offset(self, self.scope, operand)
        return operand

    def named(self) -> syntax.Operand:
        token = self.take()
        if token.kind != "word":
            self.at -= 1
            raise self.error("a name expected")
        name = token.text
        if name == "_":
            return syntax.Register("_")
        if name.startswith("%") and _SPECIAL.match(name):
            if self.now.kind == "dotted":
                return syntax.Register(name + self.take().text)
            return elements.special_register(self.scope, name)
        if name == "WARP_SZ":
            return syntax.Immediate(32)
        unique = self.scope.unique_name(name, token.line)
        if unique is not None:
            if unique in self.result.variables or (
                self.scope.function and unique in self.scope.function.variables
            ):
                return syntax.Symbol(unique, read_offset(self))
            return (
                elements.vector_of(self, self.scope, unique)
                if unique in self.scope.vectors
                else syntax.Register(unique)
            )
        if name.startswith("%"):
            raise syntax.PtxError(token.line, f"{name!r} is not declared")
        return syntax.Symbol(name, read_offset(self))

    def address(self) -> syntax.Operand:
        items: list[syntax.Operand] = []
        base: syntax.Operand | None = None
        offset = 0
        if self.now.kind == "word":
            base = self.named()
            if isinstance(base, syntax.Symbol):
                base, offset = syntax.Symbol(base.name), base.offset
            offset += read_offset(self)
        else:
            offset = constant_integer(self)
        while self.accept(","):  # tensor coordinates; the table of that family reads them
            items.append(self.operand(without=("[",)))
        self.expect("]")
        if base is not None and not isinstance(base, syntax.Register | syntax.Symbol):
            raise self.error("a register or a variable expected in an address")
        place = syntax.Address(base, offset)
        return syntax.Vector((place, *items)) if items else place


def _rename_target(branch: syntax.Instruction, label: str) -> None:
    branch.operands = (*branch.operands[:-1], syntax.Symbol(label))
