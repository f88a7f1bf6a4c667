"""Labels: a name may stand once in each block of braces, and means the one of the nearest block around."""

from __future__ import annotations

from tilewise.emulator.ptx.syntax import Instruction, PtxError, Symbol

__all__ = ["Labels"]

_Path = tuple[int, ...]  # the blocks around a place, the outermost first


class Labels:
    """The labels of one function, and what names them: known once the function has been read."""

    def __init__(self) -> None:
        self._known: dict[_Path, dict[str, str]] = {}
        self._taken: set[str] = set()
        self._branches: list[tuple[_Path, Instruction]] = []
        self._tables: list[tuple[_Path, list[str]]] = []

    def define(self, path: _Path, name: str, line: int) -> str:
        """A label's unique name."""
        here = self._known.setdefault(path, {})
        if name in here:
            raise PtxError(line, f"the label {name!r} stands twice")
        unique = name if name not in self._taken else f"{name}#{len(self._taken)}"
        here[name] = unique
        self._taken.add(unique)
        return unique

    def use(self, path: _Path, instruction: Instruction) -> None:
        """Record an instruction whose last operand may be a label or a table of labels."""
        if instruction.operands and isinstance(instruction.operands[-1], Symbol):
            self._branches.append((path, instruction))

    def list(self, path: _Path, table: list[str]) -> None:
        self._tables.append((path, table))

    def resolve(self) -> None:
        """Put unique names wherever labels are named."""
        for path, branch in self._branches:
            *others, last = branch.operands
            if isinstance(last, Symbol):
                branch.operands = (*others, Symbol(self._find(path, last.name)))
        for path, table in self._tables:
            table[:] = [self._find(path, name) for name in table]

    def _find(self, path: _Path, name: str) -> str:
        for end in range(len(path), -1, -1):
            if name in (here := self._known.get(path[:end], {})):
                return here[name]
        return name
