"""wmma: matrices of every shape, type and layout, from memory through fragments and back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np
import pytest

import tilewise as tw
from tests.harness.fragments import BITS, codes, numbers
from tests.harness.many import Array, refused
from tilewise.errors import KernelFault

_SEED = np.random.SeedSequence()
_RNG = np.random.default_rng(_SEED)
_TALL = ("m16n16k16", "m8n32k16", "m32n8k16")
# Layouts of A, B and C with D. Each is a load or a store of its own: any two of them together, not all three.
_WAYS = [("row", "row", "row"), ("row", "col", "col"), ("col", "row", "col"), ("col", "col", "row")]
# How many 32-bit registers (64 of f64) a fragment has; the document's table.
_REGISTERS = {
    "f16": {"a": (8, 8, 8), "b": (8, 8, 8)}, "bf16": {"a": (4, 2, 8), "b": (4, 8, 2)},
    "s8": {"a": (2, 1, 4), "b": (2, 4, 1)}, "u8": {"a": (2, 1, 4), "b": (2, 4, 1)},
}  # fmt: skip


@dataclass
class Form:
    shape: str
    a: str  # the type of A and B
    c: str
    d: str
    ways: tuple[str, str, str] = ("row", "col", "row")  # of A, B, and C and D
    op: str = ""  # of b1
    end: str = ""
    matrices: dict[str, Array] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # offset and stride in elements

    def type(self, role: str) -> str:
        return {"a": self.a, "b": self.a, "c": self.c, "d": self.d}[role]

    def way(self, role: str) -> str:
        return self.ways["abc".index(role)] if role != "d" else self.ways[2]

    def size(self, role: str) -> tuple[int, int]:
        m, rest = self.shape[1:].split("n")
        n, k = map(int, rest.split("k"))
        return {"a": (int(m), k), "b": (k, n)}.get(role, (int(m), n))

    def registers(self, role: str) -> int:
        if role in "cd":
            rows, columns = self.size(role)
            return rows * columns // 32 // (2 if self.type(role) == "f16" else 1)
        if self.a in _REGISTERS:
            return _REGISTERS[self.a][role][_TALL.index(self.shape)]
        return 4 if self.a == "tf32" else 1

    @property
    def name(self) -> str:
        types = [self.d, self.c] if self.a == "f16" else [self.d, self.a, self.a, self.c]
        words = ["wmma.mma", self.op, "sync.aligned", *self.ways[:2], self.shape, *types, self.end]
        return ".".join(word for word in words if word)


def _forms() -> list[Form]:
    found = []
    for shape in _TALL:
        for i, ways in enumerate(_WAYS):
            found.append(Form(shape, "f16", ("f16", "f32")[i % 2], ("f16", "f32")[i // 2 % 2], ways))
            found.append(Form(shape, "bf16", "f32", "f32", ways))
            found.append(Form(shape, ("s8", "u8")[i % 2], "s32", "s32", ways, end=("", "satfinite")[i // 2]))
    for ways in _WAYS:
        found += [Form("m16n16k8", "tf32", "f32", "f32", ways), Form("m8n8k4", "f64", "f64", "f64", ways)]
    for way in ("row", "col"):
        ways = ("row", "col", way)
        found += [Form("m8n8k32", type_, "s32", "s32", ways) for type_ in ("s4", "u4")]
        found += [Form("m8n8k128", "b1", "s32", "s32", ways, op=f"{op}.popc") for op in ("and", "xor")]
    return found


def _matrix(type_: str, shape: tuple[int, int]) -> Array:
    low, high = {
        "b1": (0, 2), "s4": (-8, 8), "u4": (0, 16), "s8": (-128, 128), "u8": (0, 256), "s32": (-(2**20), 2**20),
    }.get(type_, (-3, 4))  # fmt: skip
    return _RNG.integers(low, high, shape)


class Memory:
    """Matrices in one block of bytes, with gaps between their lines."""

    def __init__(self) -> None:
        self.bytes = _RNG.integers(0, 256, 1 << 20, dtype=np.uint8)
        self.end = 0

    def put(self, form: Form, role: str) -> None:
        """Room for a matrix, and what it holds if it is not D."""
        rows, columns = form.size(role)
        line, lines = (columns, rows) if form.way(role) == "row" else (rows, columns)
        bits = BITS[form.type(role)]
        stride = line + int(_RNG.integers(3)) * max(32 * 8 // bits, line)
        form.places[role] = (self.end, stride)
        if role != "d":
            matrix = form.matrices[role] = _matrix(form.type(role), (rows, columns))
            lined = codes(matrix if form.way(role) == "row" else matrix.T, form.type(role))
            for number, values in enumerate(lined):
                start = self.end + number * stride * bits // 8
                self.bytes[start : start + line * bits // 8] = _bytes(values, bits)
        self.end += -(-lines * stride * bits // 8 // 256) * 256

    def get(self, form: Form, after: Array) -> tuple[Array, Array]:
        """D as it lies in memory, and the bytes that are not its own."""
        rows, columns = form.size("d")
        start, stride = form.places["d"]
        size = BITS[form.d] // 8
        line, lines = (columns, rows) if form.way("d") == "row" else (rows, columns)
        own = (start + np.arange(lines)[:, None] * stride * size + np.arange(line * size)).ravel()
        found = numbers(after[own].view(f"u{size}").reshape(lines, line), form.d)
        return found if form.way("d") == "row" else found.T, own


def _bytes(values: Array, bits: int) -> Array:
    if bits >= 8:
        return np.frombuffer(values.astype(f"u{bits // 8}").tobytes(), np.uint8)
    spread = (values[:, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).ravel(), bitorder="little")


def _expected(form: Form) -> Array:
    a, b, c = (form.matrices[role] for role in "abc")
    if form.a == "b1":
        total: Array = c + (a[:, :, None] & b if form.op.startswith("and") else a[:, :, None] ^ b).sum(1)
    else:
        total = a @ b + c
    return total


def _text(forms: list[Form], space: str, shared: int = 0) -> str:
    """Each form in turn, on memory that ``%base`` begins; in shared memory, copied there and back."""
    lines, counts = [], {"r": 0, "d": 0}
    for form in forms:
        stem = "d" if form.a == "f64" else "r"
        lists = {}
        for role in "abcd":
            first = counts[stem]
            counts[stem] += form.registers(role)
            lists[role] = f"{{{', '.join(f'%{stem}{i}' for i in range(first, counts[stem]))}}}"
        for role in "abc":
            start, stride = form.places[role]
            name = f"wmma.load.{role}.sync.aligned.{form.way(role)}.{form.shape}{space}.{form.type(role)}"
            given = f", {stride}" if stride != _line(form, role) or _RNG.integers(2) else ""
            lines.append(f"{name} {lists[role]}, [%base + {start}]{given};")
        lines.append(f"{form.name} {lists['d']}, {lists['a']}, {lists['b']}, {lists['c']};")
        start, stride = form.places["d"]
        name = f"wmma.store.d.sync.aligned.{form.way('d')}.{form.shape}{space}.{form.d}"
        lines.append(f"{name} [%base + {start}], {lists['d']}, {stride};")
    into, back = "mov.u64 %base, %data;", ""
    if shared:
        loop = """
mov.u32 %i, 0;
{label}: cvt.u64.u32 %w, %i; add.s64 %w, %data, %w;
{move}
add.u32 %i, %i, 16; setp.lt.u32 %p, %i, {shared}; @%p bra {label};
"""
        move = "ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%w]; st.shared.v4.u32 [%i], {%x0, %x1, %x2, %x3};"
        into = loop.format(label="in", move=move, shared=shared)
        into += "mov.u64 %base, room; cvta.shared.u64 %base, %base;" if not space else "mov.u64 %base, room;"
        move = "ld.shared.v4.u32 {%x0, %x1, %x2, %x3}, [%i]; st.global.v4.u32 [%w], {%x0, %x1, %x2, %x3};"
        back = loop.format(label="out", move=move, shared=shared)
    room = f".shared .align 128 .b8 room[{shared}];" if shared else ""
    return f"""
.version 9.0
.target sm_90a
.address_size 64
{room}
.visible .entry k(.param .u64 data) {{
.reg .b32 %r<{counts["r"] + 1}>, %i, %x<4>; .reg .f64 %d<{counts["d"] + 1}>; .reg .b64 %base, %data, %w;
.reg .pred %p;
ld.param.u64 %data, [data];
{into}
{chr(10).join(lines)}
{back}
ret;
}}"""


def _line(form: Form, role: str) -> int:
    rows, columns = form.size(role)
    return columns if form.way(role) == "row" else rows


def _check(forms: list[Form], space: str, shared: bool) -> None:
    memory = Memory()
    for form in forms:
        if shared and memory.end > 20_000:  # room for the next is there
            forms = forms[: forms.index(form)]
            break
        for role in "abcd":
            memory.put(form, role)
    size = memory.end if shared else 0
    after = memory.bytes.copy()
    tw.Kernel.from_ptx(_text(forms, space, size), "k")(1, 32, [after], device="emulator")
    others = np.ones(len(after), bool)
    for form in forms:
        found, own = memory.get(form, after)
        others[own] = False
        assert (found == _expected(form)).all(), (form.name, form.ways, space, _SEED)
    assert (after[others] == memory.bytes[others]).all(), _SEED


@pytest.mark.parametrize("share", range(4))
def test_every_form(share: int) -> None:
    _check(_forms()[share::4], ".global", False)


@pytest.mark.parametrize(("space", "shared"), [(".shared", True), ("", True), ("", False)])
def test_every_space(space: str, shared: bool) -> None:
    every = _forms()
    _check([every[int(i)] for i in _RNG.choice(len(every), 6, replace=False)], space, shared)


def test_in_a_loop() -> None:
    """The second turn finds the arrays that the first one found, and adds to the same sums."""
    a, b = (_RNG.integers(-3, 4, shape).astype(np.float16) for shape in ((16, 80), (80, 16)))
    c = np.zeros((16, 16), np.float32)
    registers = [", ".join(f"%{stem}{i}" for i in range(8)) for stem in ("a", "b", "c")]
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .b32 %a<8>, %b<8>, %i; .reg .f32 %c<8>; .reg .b64 %pa, %pb, %pc; .reg .pred %p;
ld.param.u64 %pa, [a]; ld.param.u64 %pb, [b]; ld.param.u64 %pc, [c];
mov.u32 %i, 0;
{" ".join(f"mov.f32 %c{i}, 0f00000000;" for i in range(8))}
again:
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{registers[0]}}}, [%pa], 80;
wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {{{registers[1]}}}, [%pb], 16;
wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {{{registers[2]}}}, {{{registers[0]}}}, {{{registers[1]}}},
 {{{registers[2]}}};
add.s64 %pa, %pa, 32; add.s64 %pb, %pb, 512; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 5; @%p bra again;
wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%pc], {{{registers[2]}}}, 16;
ret;
}}"""
    kernel = tw.Kernel.from_ptx(text, "k")
    kernel(1, 32, [a, b, c], device="emulator")
    assert (c == a.astype(np.float32) @ b.astype(np.float32)).all()
    with pytest.raises(
        KernelFault, match=r"out-of-bounds read of 16 bytes at global address(.|\n)*wmma\.load\.b"
    ):
        kernel(1, 32, [a, b[:-1].copy(), c], device="emulator")
    with pytest.raises(
        KernelFault, match=r"out-of-bounds write of 16 bytes at global address(.|\n)*wmma\.store"
    ):
        kernel(1, 32, [a, b, c[:-1].copy()], device="emulator")


@pytest.mark.parametrize("space", [".global", ""])
def test_a_pointer_to_nothing_is_a_fault(space: str) -> None:
    """Though shared memory has something at such an offset."""
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 room[4096];
.visible .entry k() {{
.reg .b32 %a<8>; .reg .b64 %p;
st.shared.b32 [room], 0; mov.u64 %p, 256;
wmma.load.a.sync.aligned.row.m16n16k16{space}.f16 {{{", ".join(f"%a{i}" for i in range(8))}}}, [%p], 16;
ret;
}}"""
    with pytest.raises(KernelFault, match="0x100"):
        tw.Kernel.from_ptx(text, "k")(1, 32, [], device="emulator")


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize(
    ("verb", "type_", "registers", "good", "bad"),
    [
        ("load.a", "f16", 8, 24, 20), ("load.b", "f16", 8, 32, 17), ("load.c", "f32", 8, 20, 18),
        ("store.d", "f32", 8, 20, 17), ("store.d", "f16", 4, 24, 20), ("load.a", "s8", 2, 32, 20),
    ],
)  # fmt: skip
def test_every_line_lies_where_its_pieces_may(
    verb: str, type_: str, registers: int, good: int, bad: int, space: str
) -> None:
    """A stride that takes the second line elsewhere is a fault, also where the matrix begins at a good place."""
    held = ", ".join(f"%a{i}" for i in range(registers))
    place = "[%p], %stride"
    operands = (
        f"{{{held}}}, {place}" if verb.startswith("load") else f"{place.split(',')[0]}, {{{held}}}, %stride"
    )
    word = f"wmma.{verb}.sync.aligned.row.m16n16k16{'.' + space if space else ''}.{type_}"
    start = "mov.u64 %p, room;" if space == "shared" else "ld.param.u64 %p, [x];"
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 room[4096];
.visible .entry k(.param .u64 x, .param .u32 stride) {{
.reg .b32 %a<8>, %stride, %turn; .reg .b64 %p; .reg .pred %q;
{" ".join(f"mov.b32 %a{i}, 0;" for i in range(8))} ld.param.u32 %stride, [stride]; {start}
st.shared.b32 [room], 0; mov.u32 %turn, 0;
again: {word} {operands};
add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, 2; @%q bra again;
ret;
}}"""
    kernel, x = tw.Kernel.from_ptx(text, "k"), tw.device("emulator").array(np.zeros(4096, np.uint8))
    for stride in (good, bad):
        verb_said = "read" if verb.startswith("load") else "write"
        fault = pytest.raises(KernelFault, match=f"misaligned {verb_said}")
        with fault if stride == bad else contextlib.nullcontext():
            kernel(1, 32, [x, stride], device="emulator")


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.s4 {%r0}, [%l0]", "not the type s4"),
        ("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%l0]", "A must be row"),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.bf16 {%r0}, [%l0]", "not the type bf16"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0}, [%l0]", "it takes 8 registers"),
        ("wmma.load.d.sync.aligned.row.m16n16k16.global.f16 {%r0}, [%l0]", "which is written wmma.store.d"),
        ("wmma.store.d.sync.aligned.row.m8n8k128.global.f32 [%l0], {%r0, %r1}", "not the type f32"),
        ("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32 {%r0, %r1}, {%r2}, {%r3}, {%r0, %r1}", "not go together"),
        ("wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0, %r1}, {%r2}, {%r3}, {%r0, %r1}", "popc"),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64 {%l0, %l1}, {%l2}, {%l3}, {%l0, %l1}", "not supported"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32.satfinite {%r0}, {%r0}, {%r0}, {%r0}", "satfinite"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_by_name(instruction: str, why: str) -> None:
    said = refused(f"{instruction};")
    assert instruction.split()[0] in said, said
    assert why in said, said
