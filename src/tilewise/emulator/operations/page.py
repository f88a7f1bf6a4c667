"""Rows → the tables of docs/instructions.md: what operations there are, what is known of each, which tests prove it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

from tilewise.emulator.operations.operation import Operation
from tilewise.emulator.operations.registry import operations

__all__ = ["markdown", "supported"]

_NO_PTX = re.compile(r"[^:]:[^:]|bar_result")  # what analysis makes: no text can have such a name


def supported() -> dict[str, Operation]:
    """Return the rows of what a PTX text may have and the emulator runs, by name."""
    return {name: row for name, row in sorted(operations().items()) if not _NO_PTX.search(name)}


def markdown(proofs: Mapping[str, str]) -> str:
    """Return a table for each family; ``proofs`` has the file of tests of each operation."""
    families: dict[str, list[Operation]] = {}
    for row in supported().values():
        lowering = row.compute or row.wait or row.emit
        module = getattr(lowering, "__module__", "tilewise.emulator.families.branches")
        families.setdefault(module, []).append(row)
    return "\n".join(line for module in sorted(families) for line in _table(module, families[module], proofs))


def _table(module: str, rows: list[Operation], proofs: Mapping[str, str]) -> Iterator[str]:
    about = (sys.modules[module].__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
    yield f"`families/{module.rpartition('.')[2]}.py`: {about}\n"
    yield "| operation | PTX | from | what is known of it | tests |\n| --- | --- | --- | --- | --- |"
    for row in rows:
        known = ", ".join(_facts(row))
        yield f"| `{row.name}` | {row.ptx} | {row.arch} | {known} | `{proofs[row.name]}` |"
    yield ""


def _facts(row: Operation) -> Iterator[str]:
    actions = [access.action for access in row.accesses]
    facts = {
        "lane by lane": row.is_pure,
        " and ".join(actions): actions,
        "bulk copy": row.bulk_copy,
        "tensor cores": row.multiplies_matrices,
        "mbarrier": row.mbarrier,
        f"groups of {row.group.of}" if row.group else "": row.group,
        "asynchronous": row.asynchronous,
        "fence": row.is_fence,
        "lanes exchange": row.exchanges,
        "all lanes together" + ", where aligned" * (row.gathers == "where aligned"): row.gathers,
        f"waits for the {row.waits_for}": row.waits_for,
    }
    return (fact for fact, holds in facts.items() if holds)
