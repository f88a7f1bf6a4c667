"""What is explained: a launch, profiled and recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilewise.errors import ArgumentError
from tilewise.instruments.block_views import (
    Owners,
    Pattern,
    Step,
    find_owners,
    find_steps,
    list_patterns,
    machine_widths,
)
from tilewise.instruments.line_figures import SourceFinder
from tilewise.instruments.profile import Profile
from tilewise.instruments.recording import NamedMatrix, Recording
from tilewise.plan import Plan

__all__ = ["Subject"]


@dataclass(frozen=True)
class Subject:
    """A launch with its profile, and a recording of the block that is looked at.

    ``call`` is a line of Python that makes the explanation again, ``element`` the element of C that was asked for.
    ``record_again`` records other blocks of the same launch: those given by number, or those that write an element.
    """

    title: str
    call: str
    profile: Profile
    recording: Recording
    record_again: Callable[[Sequence[int], tuple[int, int] | None], Recording]
    plan: Plan | None = None
    element: tuple[int, int] | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    @cached_property
    def owners(self) -> Owners | None:
        """Who writes the elements of the tile; None where nothing of C is written."""
        return find_owners(self.recording, self.element)

    @cached_property
    def steps(self) -> list[Step]:
        """The steps in which the tile is built; none where A and B are not known."""
        return find_steps(self.recording, self.owners) if self.owners else []

    @cached_property
    def patterns(self) -> list[Pattern]:
        """The patterns in which lanes touch memory, as the machine code has them."""
        return list_patterns(self.recording, machine_widths(self.profile))

    @cached_property
    def finder(self) -> SourceFinder:
        """Finds lines of the source by those of the PTX."""
        return SourceFinder(self.profile.binary)

    def where(self, line: int) -> str:
        """File and line of the source that a line of the PTX comes from."""
        return self.finder.describe(line).partition("  ")[0]

    def number_of(self, line: int) -> int:
        """The number of the source's line that a line of the PTX comes from; its own where it comes from none."""
        place = self.finder.place(line)
        return place[1] if place else line

    def matrix(self, role: str) -> NamedMatrix | None:
        """A, B or C, if it is known which matrix that is."""
        name = self.recording.roles.get(role)
        return self.recording.matrices[name] if name else None

    @property
    def sizes(self) -> tuple[int, int, int] | None:
        """m, n and k, if A, B and C are known."""
        a, c = self.matrix("a"), self.matrix("c")
        return (c.rows, c.columns, a.columns) if a and c and self.matrix("b") else None

    def name_address(self, address: int) -> str:
        """An address as an element, such as "a[3, 0]"; empty for one of no matrix that is known."""
        import numpy as np

        for matrix in self.recording.matrices.values():
            row, column, which = (int(found[0]) for found in matrix.find(np.array([address])))
            if row >= 0:
                stack = f"{which}, " if matrix.count > 1 else ""
                return f"{matrix.name}[{stack}{row}, {column}]"
        return ""

    def showing_element(self, row: int, column: int) -> Subject:
        """The same launch, with a recording of the blocks that write an element of C."""
        if self.owners is not None and self.owners.has(row, column):
            return self
        found = replace(self, recording=self.record_again((), (row, column)), element=(row, column))
        if found.owners is None or not found.owners.has(row, column):
            raise ArgumentError("element", "must be one that the launch writes", f"{row}, {column}")
        return found

    def showing_thread(self, block: int, thread: int) -> Subject:
        """The same launch, with a recording of the block that has a thread."""
        threads = math.prod(self.recording.launch.block)
        if not 0 <= thread < threads:
            raise ArgumentError("thread", f"must be from 0 to {threads - 1:,}, as a block has them", thread)
        if block in self.recording.blocks:
            return self
        return replace(self, recording=self.record_again((block,), None), element=None)
