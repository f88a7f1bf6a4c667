"""One warp, every lane with inputs and outputs of its own: for what lanes do with one another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tilewise as tw

__all__ = ["ALL", "KEPT", "Array", "entry", "run"]

Array = npt.NDArray[Any]
ALL = 0xFFFF_FFFF
KEPT = 0x5EED_5EED  # what an output holds where no lane writes it


def entry(body: str, parameters: str = "", extra: str = "", target: str = "sm_100a") -> str:
    """A module of one kernel, ``k``."""
    return (
        f".version 9.0\n.target {target}\n.address_size 64\n{extra}\n"
        f".visible .entry k({parameters})\n{{\n{body}\nret;\n}}\n"
    )


def run(snippets: Sequence[str], inputs: Sequence[Array], lanes: int = ALL) -> list[Array]:
    """Run PTX snippets in the lanes of a mask; each leaves 32 bits in ``{d}`` of every lane.

    ``{a}``, ``{b}``, ``{c}``, ``{m}`` are registers with the inputs of 32 bits, ``{A}`` is the first two as one
    of 64, ``{pa}`` whether a is odd; ``{ua}``, ``{ub}``, ``{um}`` are the first lane's, as registers that are
    the same in all lanes; ``{p}`` and ``{q}`` are predicates to use.
    """
    names = ("a", "b", "c", "m")
    where = {name: f"%{name}" for name in names} | {f"u{name}": f"%u{name}" for name in ("a", "b", "m")}
    body = [
        ".reg .b32 %a, %b, %c, %m, %ua, %ub, %um, %lane, %d, %active, %bit; .reg .b64 %base, %at, %off, %A;",
        ".reg .pred %p, %q, %pa, %upa, %off_p;",
        "mov.u32 %lane, %laneid; mul.wide.u32 %off, %lane, 4;",
    ]
    for i, name in enumerate(names):
        body.append(f"ld.param.u64 %base, [p{i}];")  # that alone is known to be the same in all lanes
        body += [f"ld.global.u32 %u{name}, [%base];"] if name in ("a", "b", "m") else []
        body.append(f"add.u64 %at, %base, %off; ld.global.u32 %{name}, [%at];")
    body.append("and.b32 %d, %a, 1; setp.ne.u32 %pa, %d, 0; and.b32 %d, %ua, 1; setp.ne.u32 %upa, %d, 0;")
    body.append("mov.b64 %A, {%a, %b};")
    body.append("ld.param.u32 %active, [mask]; shr.u32 %bit, %active, %lane; and.b32 %bit, %bit, 1;")
    if lanes != ALL:
        body.append("setp.eq.u32 %off_p, %bit, 0; @%off_p bra done;")
    for i, snippet in enumerate(snippets):
        registers = {**where, "d": "%d", "p": "%p", "q": "%q", "A": "%A", "pa": "%pa", "upa": "%upa"}
        body.append(f"mov.u32 %d, {KEPT};\n{snippet.format(**registers)}")
        body.append(f"ld.param.u64 %at, [out]; add.u64 %at, %at, %off; st.global.u32 [%at+{128 * i}], %d;")
    body.append("done:")
    parameters = ", ".join(f".param .u64 p{i}" for i in range(4)) + ", .param .u64 out, .param .u32 mask"
    out = np.full(32 * len(snippets), KEPT, np.uint32)
    given = [np.ascontiguousarray(array, np.uint32) for array in inputs]
    given += [np.zeros(32, np.uint32)] * (4 - len(given))
    tw.Kernel.from_ptx(entry("\n".join(body), parameters), "k")(
        1, 32, [*given, out, lanes], device="emulator"
    )
    return list(out.reshape(-1, 32))
