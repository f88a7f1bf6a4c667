"""The instructions of part C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Case", "cases"]

_MODES = ("rn", "rz", "rm", "rp")
_WHOLE = ("rni", "rzi", "rmi", "rpi")
_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


@dataclass(frozen=True)
class Case:
    """PTX text from ``%a``, ``%b``, ``%c`` to ``%d``, by the domain of its operands; ``kind`` says how its
    result is to be held against another: "exact", or "near" where the ISA gives a bound."""

    domain: str
    text: str
    bits: int
    kind: str = "exact"
    version: str = "9.0"  # of PTX

    @property
    def emulated(self) -> bool:
        """Whether the emulator has it; the others are recorded so that it may one day."""
        words = self.text.split(" ")[0].split(".")
        if "oob" in words:
            return False
        if words[0] == "vmad":
            return not ("sat" in words or "-%c" in self.text)
        if words[0] in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
            unsure = words[1:4] == ["u32", "u32", "s32"] and words[0] not in ("vmin", "vmax")
            return words[-1] not in ("min", "max") and not (unsure and "sat" in words)
        return True


def cases() -> Iterator[Case]:
    """Every instruction, in an order that stays."""
    yield from _approximate()
    yield from _singles()
    yield from _conversions()
    yield from _doubles()
    for kind in ("f16", "bf16"):
        yield from _shorts(kind)
    yield from _words()
    yield from _integers()
    yield from _video()
    yield from _between_lanes()


def _approximate() -> Iterator[Case]:
    for ftz in ("", ".ftz"):
        for name in ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos"):
            yield Case("f32", f"{name}.approx{ftz}.f32 %d, %a;", 32, "near")
        yield Case("f32", f"div.approx{ftz}.f32 %d, %a, %b;", 32, "near")
        yield Case("f32", f"div.full{ftz}.f32 %d, %a, %b;", 32, "near")
    yield Case("f32", "tanh.approx.f32 %d, %a;", 32, "near")
    for kind, ftz in (("f16", ""), ("bf16", ".ftz")):
        for suffix, bits in (("", 16), ("x2", 32)):
            yield Case(kind + suffix, f"ex2.approx{ftz}.{kind}{suffix} %d, %a;", bits, "near")
            yield Case(kind + suffix, f"tanh.approx.{kind}{suffix} %d, %a;", bits, "near")
    for text in ("rcp.approx.ftz", "rsqrt.approx.ftz", "rsqrt.approx"):
        yield Case("f64", f"{text}.f64 %d, %a;", 64, "near")
    for name in ("sin", "cos"):
        yield Case("f32", f"{name}.approx.ftz.2pi.f32 %d, %a;", 32, "near", version="9.5")


def _singles() -> Iterator[Case]:
    for mode in _MODES:
        for ftz in ("", ".ftz"):
            for name in ("add", "sub", "mul", "div"):
                yield Case("f32", f"{name}.{mode}{ftz}.f32 %d, %a, %b;", 32)
            for name in ("rcp", "sqrt"):
                yield Case("f32", f"{name}.{mode}{ftz}.f32 %d, %a;", 32)
            yield Case("f32", f"fma.{mode}{ftz}.f32 %d, %a, %b, %c;", 32)
    for name in ("add.rn.sat", "sub.rz.ftz.sat", "mul.rn.sat"):
        yield Case("f32", f"{name}.f32 %d, %a, %b;", 32)
    yield Case("f32", "fma.rn.ftz.sat.f32 %d, %a, %b, %c;", 32)
    yield from _sizes("f32", 32, "f32")
    for ftz in ("", ".ftz"):
        for name in ("abs", "neg"):
            yield Case("f32", f"{name}{ftz}.f32 %d, %a;", 32)
        for three in ("min", "max"):
            yield Case("f32", f"set.{'lt' if three == 'min' else 'geu'}{ftz}.f32.f32 %d, %a, %b;", 32)
    yield Case("f32", "copysign.f32 %d, %a, %b;", 32)
    yield Case("f32", "slct.f32.f32 %d, %a, %b, %c;", 32)
    yield Case("f32", "slct.ftz.b32.f32 %d, %a, %b, %c;", 32)
    for name in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        yield Case("f32", f"testp.{name}.f32 %q, %a; selp.b32 %d, 1, 0, %q;", 32)
    for compare in _COMPARE:
        for ftz in ("", ".ftz"):
            yield Case("f32", f"setp.{compare}{ftz}.f32 %q, %a, %b; selp.b32 %d, 1, 0, %q;", 32)


def _sizes(kind: str, bits: int, domain: str) -> Iterator[Case]:
    """min and max in all their forms."""
    for name in ("min", "max"):
        for ftz in ("", ".ftz") if kind[0] != "b" else ("",):
            for nan in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
                yield Case(domain, f"{name}{ftz}{nan}.{kind} %d, %a, %b;", bits)


def _conversions() -> Iterator[Case]:
    for relu in ("", ".relu"):
        for mode in ("rn", "rz"):
            for to in ("f16", "bf16"):
                yield Case("f32", f"cvt.{mode}{relu}.{to}.f32 %d, %a;", 16)
                yield Case("f32", f"cvt.{mode}{relu}.{to}x2.f32 %d, %a, %b;", 32)
            yield Case("f32", f"cvt.{mode}{relu}.tf32.f32 %d, %a;", 32)
        for to in ("e4m3", "e5m2"):
            yield Case("f32", f"cvt.rn.satfinite{relu}.{to}x2.f32 %d, %a, %b;", 16)
            yield Case("f16x2", f"cvt.rn.satfinite{relu}.{to}x2.f16x2 %d, %a;", 16)
            yield Case("b16", f"cvt.rn{relu}.f16x2.{to}x2 %d, %a;", 32)
    yield Case("f32", "cvt.rna.tf32.f32 %d, %a;", 32)
    for mode in ("rm", "rp"):
        yield Case("f32", f"cvt.{mode}.f16.f32 %d, %a;", 16)
    yield Case("f32", "cvt.rn.ftz.f16.f32 %d, %a;", 16)
    yield Case("f32", "cvt.rz.sat.f16.f32 %d, %a;", 16)
    for mode in _WHOLE:
        for ftz in ("", ".ftz"):
            yield Case("f32", f"cvt.{mode}{ftz}.f32.f32 %d, %a;", 32)
    for to, bits in (("s16", 16), ("u16", 16), ("s32", 32), ("u32", 32), ("s64", 64), ("u64", 64)):
        for mode in _WHOLE:
            yield Case("f32", f"cvt.{mode}.{to}.f32 %d, %a;", bits)
            yield Case("f64", f"cvt.{mode}.{to}.f64 %d, %a;", bits)
            yield Case("f16", f"cvt.{mode}.{to}.f16 %d, %a;", bits)
        yield Case("f32", f"cvt.rzi.ftz.{to}.f32 %d, %a;", bits)
    for to in ("s8", "u8"):
        yield Case("f32", f"cvt.rni.sat.{to}.f32 %d, %a;", 32)
        yield Case("f32", f"cvt.rzi.{to}.f32 %d, %a;", 32)
    yield Case("f32", "cvt.f64.f32 %d, %a;", 64)
    yield Case("f32", "cvt.ftz.f64.f32 %d, %a;", 64)
    yield Case("f32", "cvt.sat.f32.f32 %d, %a;", 32)
    for mode in _MODES:
        for of, domain in (("s32", "b32"), ("u32", "b32"), ("s64", "b64"), ("u64", "b64")):
            yield Case(domain, f"cvt.{mode}.f32.{of} %d, %a;", 32)
            yield Case(domain, f"cvt.{mode}.f16.{of} %d, %a;", 16)
            if of[1:] == "64":
                yield Case(domain, f"cvt.{mode}.f64.{of} %d, %a;", 64)


def _doubles() -> Iterator[Case]:
    for mode in _MODES:
        for name in ("add", "sub", "mul", "div"):
            yield Case("f64", f"{name}.{mode}.f64 %d, %a, %b;", 64)
        for name in ("rcp", "sqrt"):
            yield Case("f64", f"{name}.{mode}.f64 %d, %a;", 64)
        yield Case("f64", f"fma.{mode}.f64 %d, %a, %b, %c;", 64)
        yield Case("f64", f"cvt.{mode}.f32.f64 %d, %a;", 32)
        yield Case("f64", f"cvt.{mode}.ftz.f32.f64 %d, %a;", 32)
        yield Case("f64", f"cvt.{mode}.f16.f64 %d, %a;", 16)
    yield Case("f64", "cvt.rn.sat.f32.f64 %d, %a;", 32)
    for name in ("min", "max", "copysign"):
        yield Case("f64", f"{name}.f64 %d, %a, %b;", 64)
    for name in ("abs", "neg"):
        yield Case("f64", f"{name}.f64 %d, %a;", 64)
    for compare in ("lt", "geu", "num"):
        yield Case("f64", f"setp.{compare}.f64 %q, %a, %b; selp.b32 %d, 1, 0, %q;", 32)


def _shorts(kind: str) -> Iterator[Case]:
    half = kind == "f16"
    for suffix, bits in (("", 16), ("x2", 32)):
        type_ = kind + suffix
        for name in ("add", "sub", "mul"):
            yield Case(type_, f"{name}{'.rn' if half else ''}.{type_} %d, %a, %b;", bits)
            if half:
                yield Case(type_, f"{name}.rn.ftz.sat.{type_} %d, %a, %b;", bits)
        for words in (
            ("rn", "rn.ftz", "rn.ftz.sat", "rn.sat", "rn.relu", "rn.ftz.relu") if half else ("rn", "rn.relu")
        ):
            yield Case(type_, f"fma.{words}.{type_} %d, %a, %b, %c;", bits)
        yield Case(type_, f"fma.rn.oob.{type_} %d, %a, %b, %c;", bits)
        yield Case(type_, f"fma.rn.oob.relu.{type_} %d, %a, %b, %c;", bits)
        yield from _sizes(type_, bits, type_)
        for name in ("abs", "neg"):
            yield Case(type_, f"{name}.{type_} %d, %a;", bits)
            if half:
                yield Case(type_, f"{name}.ftz.{type_} %d, %a;", bits)
    for compare in ("lt", "geu", "equ", "nan"):
        yield Case(kind, f"setp.{compare}.{kind} %q, %a, %b; selp.b32 %d, 1, 0, %q;", 32)
        yield Case(f"{kind}x2", f"set.{compare}.{kind}x2.{kind}x2 %d, %a, %b;", 32)
    yield Case(kind, f"cvt.f32.{kind} %d, %a;", 32)
    if half:
        yield Case(kind, "cvt.f64.f16 %d, %a;", 64)
        yield Case(kind, "cvt.ftz.f32.f16 %d, %a;", 32)
    for mode in _WHOLE:
        yield Case(kind, f"cvt.{mode}.{kind}.{kind} %d, %a;", 16)


def _words() -> Iterator[Case]:
    """Logic, shifts and bit fields of 32 bits."""
    for table in (0x00, 0x1B, 0x80, 0x96, 0xCA, 0xE8, 0xFE):
        yield Case("b32", f"lop3.b32 %d, %a, %b, %c, {table};", 32)
    for way in ("l", "r"):
        for limit in ("clamp", "wrap"):
            yield Case("b32", f"shf.{way}.{limit}.b32 %d, %a, %b, %c;", 32)
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield Case("b32", f"prmt.b32{mode} %d, %a, %b, %c;", 32)
    for kind in ("b32", "u32", "s32"):
        yield Case("b32", f"{'shl' if kind == 'b32' else 'shr'}.{kind} %d, %a, %b;", 32)
    for kind in ("u32", "s32"):
        yield Case("b32", f"bfind.{kind} %d, %a;", 32)
        yield Case("b32", f"bfind.shiftamt.{kind} %d, %a;", 32)
        yield Case("b32", f"bfe.{kind} %d, %a, %b, %c;", 32)
        for limit in ("clamp", "wrap"):
            yield Case("b32", f"szext.{limit}.{kind} %d, %a, %b;", 32)
    for kind in ("u64", "s64"):
        yield Case("b64", f"bfind.{kind} %r0, %a; mov.b32 %d, %r0;", 32)
        yield Case("b64", f"cvt.u32.u64 %r0, %b; cvt.u32.u64 %r1, %c; bfe.{kind} %d, %a, %r0, %r1;", 64)
    for limit in ("clamp", "wrap"):
        yield Case("b32", f"bmsk.{limit}.b32 %d, %a, %b;", 32)
    yield Case("b32", "bfi.b32 %d, %a, %b, %c, 9;", 32)
    yield Case("b32", "bfi.b32 %d, %a, %b, 5, %c;", 32)
    yield Case("b64", "cvt.u32.u64 %r0, %c; bfi.b64 %d, %a, %b, %r0, 21;", 64)
    for bits in (32, 64):
        yield Case(f"b{bits}", f"brev.b{bits} %d, %a;", bits)
        yield Case(f"b{bits}", f"clz.b{bits} %d, %a;", 32)
        yield Case(f"b{bits}", f"popc.b{bits} %d, %a;", 32)
        yield Case(f"b{bits}", f"cnot.b{bits} %d, %a;", bits)
    for half in ("lo", "hi"):
        yield Case("b64", f"clmad.{half}.u64 %d, %a, %b, %c;", 64, version="9.3")
    yield Case("b32", "fns.b32 %d, %a, %b, %c;", 32)
    yield Case(
        "b32", "and.b32 %r0, %b, 31; and.b32 %r1, %c, 15; sub.u32 %r1, %r1, 7; fns.b32 %d, %a, %r0, %r1;", 32
    )


def _integers() -> Iterator[Case]:
    for bits in (16, 32, 64):
        for sign in ("s", "u"):
            kind, domain = f"{sign}{bits}", f"b{bits}"
            for name in ("mul.lo", "mul.hi", "div", "rem", "min", "max", "sub"):
                yield Case(domain, f"{name}.{kind} %d, %a, %b;", bits)
            yield Case(domain, f"mad.lo.{kind} %d, %a, %b, %c;", bits)
            yield Case(domain, f"mad.hi.{kind} %d, %a, %b, %c;", bits)
            yield Case(domain, f"sad.{kind} %d, %a, %b, %c;", bits)
            if bits < 64:
                yield Case(domain, f"mul.wide.{kind} %d, %a, %b;", 2 * bits)
        yield Case(f"b{bits}", f"abs.s{bits} %d, %a;", bits)
    for sign in ("s", "u"):
        for half in ("lo", "hi"):
            yield Case("b32", f"mul24.{half}.{sign}32 %d, %a, %b;", 32)
            yield Case("b32", f"mad24.{half}.{sign}32 %d, %a, %b, %c;", 32)
        for other in ("s", "u"):
            yield Case("b32", f"dp4a.{sign}32.{other}32 %d, %a, %b, %c;", 32)
            for half in ("lo", "hi"):
                yield Case("b32", f"dp2a.{half}.{sign}32.{other}32 %d, %a, %b, %c;", 32)
    for text in ("add.sat.s32 %d, %a, %b;", "sub.sat.s32 %d, %a, %b;", "mad.hi.sat.s32 %d, %a, %b, %c;",
                 "mad24.hi.sat.s32 %d, %a, %b, %c;", "min.relu.s32 %d, %a, %b;", "max.relu.s32 %d, %a, %b;",
                 "add.cc.u32 %r0, %a, %b; addc.u32 %d, %c, %r0;", "sub.cc.u32 %r0, %a, %b; subc.u32 %d, %c, %r0;",
                 "mad.lo.cc.u32 %r0, %a, %b, %c; madc.hi.u32 %d, %a, %b, %r0;"):  # fmt: skip
        yield Case("b32", text, 32)
    for text in (
        "add.u16x2 %d, %a, %b;",
        "min.s16x2 %d, %a, %b;",
        "max.u16x2 %d, %a, %b;",
        "min.relu.s16x2 %d, %a, %b;",
    ):
        yield Case("b32", text, 32)
    for to, of in (
        ("s8", "s32"),
        ("u8", "s32"),
        ("s16", "u32"),
        ("u16", "s32"),
        ("u32", "s32"),
        ("s32", "u32"),
    ):
        yield Case("b32", f"cvt.sat.{to}.{of} %r0, %a; mov.b32 %d, %r0;", 32)


def _video() -> Iterator[Case]:
    for count, mask in ((4, "b3210"), (2, "h10")):
        swap = "b7502" if count == 4 else "h21"
        for name in ("add", "sub", "avrg", "absdiff", "min", "max"):
            for types in ("u32.u32.u32", "s32.s32.s32", "s32.u32.s32"):
                for more in ("", ".sat", ".add"):
                    kind = f"v{name}{count}.{types}{more}"
                    yield Case(
                        "b32",
                        f"{kind} %d.{mask}, %a.{swap}, %b.{mask}, %c;"
                        if more != ".add"
                        else f"{kind} %d, %a.{swap}, %b.{mask}, %c;",
                        32,
                    )
        for compare in ("eq", "lt", "ge"):
            yield Case("b32", f"vset{count}.s32.u32.{compare} %d, %a, %b, %c;", 32)
            yield Case("b32", f"vset{count}.u32.u32.{compare}.add %d, %a, %b, %c;", 32)
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for types in ("s32.s32.u32", "u32.u32.s32", "s32.u32.u32"):
            yield Case("b32", f"{name}.{types} %d, %a.b2, %b.h1;", 32)
            yield Case("b32", f"{name}.{types}.sat %d, %a, %b;", 32)
            yield Case("b32", f"{name}.{types}.sat.max %d, %a.h0, %b, %c;", 32)
            yield Case("b32", f"{name}.{types} %d.b1, %a, %b.b3, %c;", 32)
            yield Case("b32", f"{name}.{types}.min %d, %a, %b, %c;", 32)
    for mode in ("clamp", "wrap"):
        yield Case("b32", f"vshl.u32.u32.u32.{mode} %d, %a, %b;", 32)
        yield Case("b32", f"vshr.s32.s32.u32.{mode}.add %d, %a.h1, %b, %c;", 32)
    for text in ("vmad.s32.s32.u32 %d, %a.h0, %b.b1, %c;", "vmad.u32.u32.u32.po %d, %a, %b, %c;",
                 "vmad.s32.s32.s32.sat.shr7 %d, %a, %b, %c;", "vmad.u32.u32.u32.shr15 %d, %a.h1, %b.h1, -%c;"):  # fmt: skip
        yield Case("b32", text, 32)
    yield Case("b32", "vset.s32.u32.lt %d, %a.h0, %b;", 32)


def _between_lanes() -> Iterator[Case]:
    for name in ("add", "min", "max"):
        for kind in ("s32", "u32"):
            yield Case("b32", f"redux.sync.{name}.{kind} %d, %a, -1;", 32)
    for name in ("and", "or", "xor"):
        yield Case("b32", f"redux.sync.{name}.b32 %d, %a, -1;", 32)
    yield Case("b32", "and.b32 %r0, %a, 3; match.any.sync.b32 %d, %r0, -1;", 32)
    yield Case(
        "b32",
        "and.b32 %r0, %a, 256; match.all.sync.b32 %d|%q, %r0, -1; selp.b32 %r1, 1, 0, %q; xor.b32 %d, %d, %r1;",
        32,
    )
    yield Case("b64", "and.b64 %l0, %a, 7; match.any.sync.b64 %d, %l0, -1;", 32)
    for mode, clamp in (("up", 0), ("down", 31), ("bfly", 31), ("idx", 0x1807)):
        yield Case("b32", f"shfl.sync.{mode}.b32 %d|%q, %a, %b, {clamp}, -1; @%q xor.b32 %d, %d, 1;", 32)
    yield Case("b32", "setp.lt.s32 %q, %a, %b; vote.sync.ballot.b32 %d, %q, -1;", 32)
    yield Case("b32", "activemask.b32 %d;", 32)
