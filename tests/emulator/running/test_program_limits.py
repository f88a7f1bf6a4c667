"""How large parts of a program may be: as large as is said, and not by one more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewise.emulator.analysis import inlined_body, program
from tilewise.emulator.analysis.inline import inline_calls
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.ptx.parse import parse
from tilewise.errors import PtxError

_CALLS = "".join(f".func f{i}() {{ {f'call f{i - 1};' if i else ''} ret; }}\n" for i in range(101))


def kernel(body: str = "", parameters: str = "", before: str = "") -> str:
    head = ".version 8.4\n.target sm_90a\n.address_size 64\n"
    return f"{head}{before}\n.visible .entry k({parameters}) {{ {body} ret; }}\n"


def _uses(space: str, size: int) -> str:
    """A kernel that takes the address of a variable of so many bytes."""
    body = f".reg .b64 %x; mov.b64 %x, v; {{ .reg .b32 %y; ld.{space}.b32 %y, [%x]; st.shared.b32 [s], %y; }}"
    own, outer = (
        (f".{space} .align 4 .b8 v[{size}];", "")
        if space == "local"
        else ("", f".const .align 4 .b8 v[{size}];")
    )
    return kernel(own + body, before=f".shared .b32 s;\n{outer}")


# What makes a program with so many, how many there may be, and what is said of one more.
LIMITS: dict[str, tuple[Callable[[int], str], int, str]] = {
    # The module and the body of the kernel are scopes, too.
    "scopes": (lambda n: kernel("{" * n + "}" * n), 198, "more than 200 scopes within one another"),
    "calls": (lambda n: kernel(f"call f{n - 1};", before=_CALLS), 100, "more than 100 calls within one another"),
    "dimensions": (
        lambda n: kernel(before=f".global .u8 x{'[1]' * n} = {'{' * n}7{'}' * n};"), 16,
        "an array of so many dimensions is not supported",
    ),
    "bytes of a variable": (
        lambda n: kernel(before=f".global .b8 x[{n}];"), 1 << 31, "a variable of 2,147,483,649 bytes",
    ),
    "bytes of constants": (lambda n: _uses("const", n), 1 << 16, r"the module has 65,\d+ bytes of .const memory"),
    "bytes of a thread": (lambda n: _uses("local", n), 1 << 19, r"a thread has 524,\d+ bytes of .local memory"),
    "bytes of parameters": (
        lambda n: kernel(parameters=f".param .b8 p[{n}]"), 32_764, "the kernel has 32,765 bytes of .param memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITS)
def test_a_program_has_as_much_as_it_may_and_no_more(what: str) -> None:
    make, most, said = LIMITS[what]
    Program(parse(make(most)), "k", (32, 1, 1))
    with pytest.raises(PtxError, match=said):
        Program(parse(make(most + 1)), "k", (32, 1, 1))


def test_calls_written_out_have_as_many_instructions_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are counted as well: one behind each call."""
    function = f".func f() {{ .reg .b32 r; {'not.b32 r, r;' * 9} ret; }}"
    module = parse(kernel("call f;" * 5, before=function))
    monkeypatch.setattr(inlined_body, "_MOST_INSTRUCTIONS", 51)
    assert len(inline_calls(module, "k").body) == 51
    monkeypatch.setattr(inlined_body, "_MOST_INSTRUCTIONS", 50)
    with pytest.raises(PtxError, match="kernel k with its calls written out has more than 50 instructions"):
        inline_calls(module, "k")


def test_a_warp_keeps_as_many_bytes_of_registers_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of registers that are read behind a barrier: 32 lanes of 8 bytes each."""
    body = ".reg .b64 %d<9>; .reg .b64 %x; mov.b64 %x, %clock64;" + "".join(
        f"add.u64 %d{i}, %x, {i};" for i in range(9)
    )
    module = parse(kernel(f"{body} bar.sync 0; {''.join(f'st.global.b64 [%d{i}], %x;' for i in range(9))}"))
    size = Program(module, "k", (32, 1, 1)).stride
    assert size > 10 * 256
    monkeypatch.setattr(program, "_MOST_SLOT_BYTES", size)
    Program(module, "k", (32, 1, 1))
    monkeypatch.setattr(program, "_MOST_SLOT_BYTES", size - 1)
    with pytest.raises(PtxError, match=f"the kernel keeps {size:,} bytes of registers a warp"):
        Program(module, "k", (32, 1, 1))


def test_a_vector_is_as_many_registers_as_it_has_elements() -> None:
    with pytest.raises(PtxError, match="262,145 registers, where a function may have 1,048,576"):
        Program(parse(kernel(".reg .v4 .b32 %v<262145>;")), "k", (32, 1, 1))
