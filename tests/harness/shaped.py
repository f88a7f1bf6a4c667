"""Programs in PTX whose shape decides how they are compiled: long blocks, many multiply-adds, calls that pass values in every
form, variables of every space, sums of tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["list_programs"]

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
{module}
.visible .entry k(.param .u64 x, .param .u32 n)
{{
.reg .b32 %t, %r<40>, %n; .reg .b64 %x, %d<40>; .reg .f32 %f<60>; .reg .f64 %g<40>; .reg .b16 %h<8>; .reg .pred %p<4>;
{variables}
ld.param.u64 %x, [x]; ld.param.u32 %n, [n]; mov.u32 %t, %tid.x; mad.wide.u32 %x, %t, 16, %x; setp.lt.u32 %p0, %t, %n;
{body}
st.global.u32 [%x], %r0; st.global.f32 [%x+4], %f0; st.global.f64 [%x+8], %g0;
ret;
}}
"""


def _text(body: str, variables: str = "", module: str = "") -> str:
    return _HEAD.format(module=module, variables=variables, body=body).replace("; ", ";\n")


def _long() -> Iterator[tuple[str, str]]:
    """Straight code on both sides of what is cut, mixed or in rows of one kind."""
    mixed = (
        "add.u32 %r{a}, %r{b}, {i};", "fma.rn.f32 %f{a}, %f{b}, %f{c}, %f{a};", "ld.shared.f32 %f{b}, [s+{o}];", "mul.lo.u32 %r{c}, %r{a}, %r{b};", "@%p0 xor.b32 %r{a}, %r{a}, {i};",
        "st.shared.u32 [s+{o}], %r{c};", "selp.b32 %r{b}, %r{a}, %r{c}, %p0;", "mov.b64 %d{a}, {{%r{b}, %r{c}}};",
    )  # fmt: skip
    for count, kinds in ((990, 8), (1010, 8), (1600, 3), (1010, 1), (1400, 5)):
        lines = [
            mixed[(i * 5 + i // 40) % kinds].format(a=i % 13, b=i * 3 % 11, c=i * 7 % 12, i=i, o=i * 4 % 1024)
            for i in range(count)
        ]
        yield f"long {count} of {kinds}", _text(" ".join(lines), ".shared .align 16 .b8 s[1024];")
    for row in (23, 24, 60):
        lines = [f"ld.shared.f32 %f{i % 50}, [s+{i * 4}];" for i in range(row)]
        lines = (
            ["add.u32 %r0, %r0, %r1; xor.b32 %r1, %r0, %t;"] * 500
            + lines
            + [f"add.f32 %f0, %f0, %f{i % 50};" for i in range(row)]
        )
        yield f"row of {row}", _text(" ".join(lines), ".shared .align 16 .b8 s[1024];")


def _sums() -> Iterator[tuple[str, str]]:
    """Multiply-adds on both sides of what is put in another order; chains, guards, and what lies between them."""
    for count, chains, kind in (
        (15, 4, "f32"),
        (16, 4, "f32"),
        (17, 1, "f32"),
        (40, 8, "f32"),
        (18, 6, "f64"),
        (32, 16, "f32"),
    ):
        letter = "f" if kind == "f32" else "g"
        for between in (
            "",
            "add.{kind} %{l}30, %{l}0, %{l}31;",
            "bar.sync 0;",
            "ld.shared.{kind} %{l}{b}, [s+{o}];",
            "@%p0 mov.{kind} %{l}1, %{l}32;",
            "ld.volatile.shared.{kind} %{l}{b}, [s+{o}];",
        ):
            lines = []
            for i in range(count):
                lines.append(
                    f"fma.rn.{kind} %{letter}{i % chains}, %{letter}{20 + i % 5}, %{letter}{26 + i % 3}, %{letter}{i % chains};"
                )
                if i % 5 == 3:
                    lines.append(between.format(kind=kind, l=letter, b=20 + i % 5, o=8 * (i % 16)))
            yield (
                f"sums: {count} in {chains} of {kind} {between}",
                _text(" ".join(lines), ".shared .align 16 .b8 s[256];"),
            )


_FUNCTIONS = """.func (.reg .u32 r) twice(.reg .u32 a) { add.u32 r, a, a; ret; }
.func (.param .b32 r) thrice(.param .b32 a) { .reg .b32 v; ld.param.b32 v, [a]; mul.lo.u32 v, v, 3; st.param.b32 [r], v; ret; }
.func (.param .align 16 .b8 r[16]) four(.param .align 16 .b8 a[16], .param .b8 b, .param .b64 c) { .reg .b32 v<4>; .reg .b64 w; .reg .b16 h; ld.param.v4.u32 {v0, v1, v2, v3}, [a];
ld.param.u8 h, [b]; ld.param.u64 w, [c]; cvt.u32.u16 v0, h; cvt.u32.u64 v1, w; st.param.v2.b32 [r], {v3, v0}; st.param.b64 [r+8], w; ret; }
.func none(.param .b64 a) { .reg .b64 w; ld.param.u64 w, [a]; st.global.u32 [w], 7; ret; }
.func (.param .b32 r) deep(.param .b32 a) { .reg .b32 v; .param .b32 p; .param .b32 q; .reg .pred c; ld.param.b32 v, [a]; setp.eq.u32 c, v, 0; @c bra E; sub.u32 v, v, 1; st.param.b32 [p], v;
call (q), deep, (p); ld.param.b32 v, [q]; E: st.param.b32 [r], v; ret; }
.func (.param .f32 r) real(.param .f32 a, .param .f64 b) { .reg .f32 v; .reg .f64 w; ld.param.f32 v, [a]; ld.param.f64 w, [b]; cvt.rn.f32.f64 v, w; st.param.f32 [r], v; ret; }
.func (.param .b32 r) signed(.param .b8 a, .param .b16 b) { .reg .b32 v, u; .reg .b16 h; ld.param.s8 v, [a]; ld.param.s16 h, [b]; cvt.s32.s16 u, h; add.s32 v, v, u; st.param.b32 [r], v; ret; }"""
_CALLS = (
    "call.uni (%r0), twice, (%t);", "@%p0 call (%r0), twice, (5);", "{ .param .b32 p; .param .b32 q; st.param.b32 [p], %t; call.uni (q), thrice, (p); ld.param.b32 %r0, [q]; }",
    "{ .param .b32 p; .param .b32 q; st.param.b32 [p], 9; call (q), thrice, (p); ld.param.u16 %h0, [q]; ld.param.s8 %r0, [q+2]; }", "@%p0 call (%r0), deep, (%t);",
    "{ .param .align 16 .b8 p[16]; .param .b8 b; .param .b64 c; .param .align 16 .b8 q[16]; st.param.v4.b32 [p], {%t, 1, %r1, %r2}; st.param.b8 [b], %t; st.param.b64 [c], %x; call.uni (q), four, (p, b, c); ld.param.v2.b32 {%r0, _}, [q]; ld.param.b64 %d0, [q+8]; }",
    "{ .param .align 16 .b8 p[16]; .param .b8 b; .param .b64 c; .param .align 16 .b8 q[16]; st.param.b32 [p], %t; st.param.b64 [p+4], %d1; st.param.b8 [b], 3; st.param.b64 [c], 77; call (q), four, (p, b, c); ld.param.b16 %h0, [q+4]; ld.param.b32 %r0, [q+4]; }",
    "{ .param .b64 p; st.param.b64 [p], %x; call.uni none, (p); }", "{ .param .f32 p; .param .f64 q; .param .f32 r; st.param.f32 [p], %f0; st.param.f64 [q], %g0; call.uni (r), real, (p, q); ld.param.f32 %f0, [r]; }",
    "{ .param .b8 p; .param .b16 q; .param .b32 r; st.param.b8 [p], %t; st.param.b16 [q], %h0; call (r), signed, (p, q); ld.param.b32 %r0, [r]; }",
    "mov.u64 %d0, twice; P: .callprototype (.reg .u32 _) _ (.reg .u32 _); call (%r0), %d0, (%t), P;", "mov.u64 %d0, thrice; @%p0 mov.u64 %d0, deep; Q: .callprototype (.param .b32 _) _ (.param .b32 _); call (%r0), %d0, (%t), Q;",
)  # fmt: skip
_VARIABLES = (
    ("", ".shared .b8 a[3]; .shared .align 8 .b64 b; .shared .align 32 .b8 c[5];", "st.shared.u8 [a+1], 1; st.shared.u64 [b], %d0; st.shared.u8 [c], 2;"),
    (".extern .shared .align 4 .b8 e[]; .extern .shared .align 64 .b8 f[];", ".shared .b8 a[3];", "st.shared.u8 [a], 1; st.shared.u32 [e+4], %t; st.shared.u32 [f], %t;"),
    (".extern .shared .b32 e[];", "", "st.shared.u32 [e+8], %t;"), (".const .b8 c[3] = {1, 2, 3}; .const .align 16 .f64 d[2]; .const .b64 p = c;", "", "ld.const.u8 %r0, [c+2]; ld.const.f64 %g0, [d+8]; ld.const.u64 %d0, [p];"),
    (".global .b32 g[4]; .global .align 8 .b64 q = g+8; .global .b8 unused[64];", "", "ld.global.u64 %d0, [q]; st.global.u32 [g+12], %t;"), ("", ".local .b8 l[7]; .local .align 32 .b8 m[33];", "st.local.u8 [l+6], 1; st.local.u32 [m+4], %t; ld.local.u32 %r0, [m+4];"),
    ("", ".shared .align 16 .b32 two[3][5];", "st.shared.u32 [two+56], %t; ld.shared.v2.u32 {%r0, %r1}, [two+8];"), (".global .u32 one = 7; .const .s16 few[] = {1, -2, 3};", "", "ld.global.u32 %r0, [one]; ld.const.s16 %h0, [few+2];"),
    (".const .b8 much[65536];", "", "ld.const.u8 %r0, [much+65535];"), (".const .b8 much[65537];", "", "ld.const.u8 %r0, [much];"), ("", ".local .b8 much[524288];", "st.local.u8 [much], 1;"), ("", ".local .b8 much[524289];", "st.local.u8 [much], 1;"),
)  # fmt: skip
_FLOWS = (
    "L: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 9; @%p1 bra L;", "L: add.u32 %r0, %r0, %t; setp.lt.u32 %p1, %r0, 99; @%p1 bra L; bar.sync 0;", "@%p0 bra A; bar.sync 0; bra B; A: add.u32 %r0, %r0, 1; bar.sync 0; B:",
    "@%p0 bra A; exit; A: @!%p0 bra C; add.u32 %r0, %r0, 1; C:", "L: @%p0 bra M; add.u32 %r0, %r0, 2; M: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 50; @%p1 bra L; @!%p0 bra L;", "bra A; B: add.u32 %r0, %r0, 1; bra C; A: bra B; C: bra D; D:",
    "L: ld.volatile.global.u32 %r1, [%x]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;", "and.b32 %r1, %t, 3; brx.idx %r1, T; T: .branchtargets A, B, C, A; A: add.u32 %r0, %r0, 1; B: add.u32 %r0, %r0, 2; @%p0 bra A; C:",
    "mov.u32 %r1, 0; O: mov.u32 %r2, 0; I: add.u32 %r0, %r0, %r2; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra I; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 3; @%p2 bra O;",
    "ld.shared.u32 %r0, [sh]; ld.shared.u32 %r1, [sh+4]; ld.shared.u32 %r2, [sh+8]; ld.shared.v2.u32 {%r3, %r4}, [sh+16]; add.u32 %r0, %r1, %r2;", "shl.b32 %r5, %t, 4; mov.u32 %r6, sh; add.u32 %r5, %r5, %r6; ld.shared.u32 %r0, [%r5]; ld.shared.u32 %r1, [%r5+4]; ld.shared.u32 %r2, [%r5+12]; st.shared.u32 [%r5+32], %r0; st.shared.u32 [%r5+36], %r1;",
    "ld.global.f32 %f0, [%x]; ld.global.f32 %f1, [%x+4]; ld.global.f32 %f2, [%x+8]; add.f32 %f0, %f1, %f2; st.global.f32 [%x+16], %f0; st.global.f32 [%x+20], %f1;",
)  # fmt: skip
_TENSOR = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%r8, %r9};", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f4, %f5, %f6, %f7};", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%g0, %g1}, {%g2}, {%g3}, {%g4, %g5};",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {%r0, %r1, %r2, %r3};",
)  # fmt: skip


def _conversions() -> Iterator[str]:
    """Between all kinds of numbers, in every rounding."""
    for more in ("", ".relu", ".satfinite", ".relu.satfinite"):
        yield f"cvt.rs{more}.bf16x2.f32 %r0, %f0, %f1, %r1;"
        yield f"cvt.rs{more}.f16x2.f32 %r0, %f0, %f1, %r1;"
    for kind in ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2"):
        for more in ("", ".relu"):
            yield f"cvt.rn.satfinite{more}.{kind}.f32 %h0, %f0, %f1;"
            yield f"cvt.rn{more}.f16x2.{kind} %r0, %h0;"
    for more in ("", ".relu"):
        yield f"cvt.rn.satfinite{more}.e2m1x2.f32 %b0, %f0, %f1;"
        yield f"cvt.rn{more}.f16x2.e2m1x2 %r0, %b0;"
    for mode in ("rz", "rp"):
        for more in ("", ".satfinite"):
            yield f"cvt.{mode}{more}.ue8m0x2.f32 %h0, %f0, %f1;"
            yield f"cvt.{mode}{more}.ue8m0x2.bf16x2 %h0, %r1;"
    yield "cvt.rn.bf16x2.ue8m0x2 %r0, %h0;"
    for mode in ("rn", "rz", "rm", "rp"):
        for of, register in (
            ("u8", "%r1"),
            ("s16", "%r1"),
            ("u32", "%r1"),
            ("s32", "%r1"),
            ("u64", "%d1"),
            ("s64", "%d1"),
        ):
            for to, target in (("f16", "%h0"), ("bf16", "%h0"), ("f32", "%f0"), ("f64", "%g0")):
                yield f"cvt.{mode}.{to}.{of} {target}, {register};"
        for to in ("f16", "bf16"):
            yield f"cvt.{mode}.{to}.f64 %h0, %g1;"
            yield f"cvt.{mode}i.{to}.{to} %h0, %h1;"
            yield f"cvt.{mode}i.s32.{to} %r0, %h1;"
        yield f"cvt.{mode}i.f64.f64 %g0, %g1;"
    for op in (
        "add",
        "sub",
        "mul",
        "min",
        "max",
        "fma.rn",
        "fma.rn.relu",
        "fma.rn.oob",
        "fma.rn.oob.relu",
        "add.sat",
        "ex2.approx",
        "tanh.approx",
        "neg",
        "abs",
    ):
        for kind, letter in (("f16", "h"), ("bf16", "h"), ("f16x2", "r"), ("bf16x2", "r")):
            operands = ", ".join(
                f"%{letter}{i}"
                for i in range(4 if "fma" in op else 2 if op[:3] in ("ex2", "tan", "neg", "abs") else 3)
            )
            yield f"{op}.{kind} {operands};"


def list_programs() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Names, texts, and how tensor cores add in them."""
    for name, text in (*_long(), *_sums()):
        yield name, text, ("fast",)
    for i, call in enumerate(_CALLS):
        yield f"call {i}", _text(call, module=_FUNCTIONS), ("fast",)
    for i, (module, variables, body) in enumerate(_VARIABLES):
        yield f"variables {i}", _text(body, variables, module), ("fast",)
    for i, body in enumerate(_FLOWS):
        yield f"flow {i}", _text(body, ".shared .align 16 .b8 sh[4096];"), ("fast",)
    for line in _conversions():
        text = (
            _text(line, ".reg .b8 %b0;").replace("sm_90a", "sm_103a").replace(".version 8.6", ".version 9.0")
        )
        yield f"numbers: {line}", text, ("fast",)
    for i, body in enumerate(_TENSOR):
        yield f"tensor {i}", _text(body), ("fast", "hardware")
