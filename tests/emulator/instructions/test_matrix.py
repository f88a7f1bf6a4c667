"""mma, ldmatrix, stmatrix and movmatrix against NumPy models of the fragments that the PTX ISA describes."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import tilewise as tw
from tests.emulator.running.test_targets import BELOW, IDS
from tests.harness.exact import FORMATS, Number, Special, decode, round_to
from tests.harness.fragments import BITS, Form, codes, numbers, pack, run_alike, run_forms, unpack
from tests.harness.many import Array, refused
from tilewise.emulator.native import CpuTarget
from tilewise.errors import KernelFault

_SEED = np.random.SeedSequence()
_RNG = np.random.default_rng(_SEED)


# -- forms ------------------------------------------------------------------------------------------
def _float_forms() -> list[Form]:
    found = [
        Form(shape, acc, "f16", "f16", acc) for shape in ("m16n8k8", "m16n8k16") for acc in ("f16", "f32")
    ]
    found += [Form(shape, "f32", "bf16", "bf16", "f32") for shape in ("m16n8k8", "m16n8k16")]
    found += [Form(shape, "f32", "tf32", "tf32", "f32") for shape in ("m16n8k4", "m16n8k8")]
    found += [
        Form(shape, "f64", "f64", "f64", "f64") for shape in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    ]
    found += [
        Form(shape, acc, a, b, acc)
        for shape in ("m16n8k16", "m16n8k32")
        for acc in ("f16", "f32")
        for a, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"))
    ]
    found += [
        Form("m8n8k4", d, "f16", "f16", c, ways=f"{a}.{b}")
        for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))
        for a in ("row", "col")
        for b in ("row", "col")
    ]
    return found


def _integer_forms() -> list[Form]:
    """Every shape and type; sums are the same for all types, so half of the forms saturate, of each kind some."""
    found = []
    for bits, shapes in ((8, ("m8n8k16", "m16n8k16", "m16n8k32")), (4, ("m8n8k32", "m16n8k32", "m16n8k64"))):
        found += [
            Form(shape, "s32", f"{a}{bits}", f"{b}{bits}", "s32", after=("", "satfinite")[(i + (a == b)) % 2])
            for i, shape in enumerate(shapes)
            for a in "su"
            for b in "su"
        ]
    found += [
        Form(shape, "s32", "b1", "b1", "s32", end=f"{op}.popc")
        for shape in ("m8n8k128", "m16n8k128", "m16n8k256")
        for op in ("and", "xor")
    ]
    return found


def _sparse_forms() -> list[Form]:
    table = [
        ("m16n8k16", "f16", "f16", 4), ("m16n8k32", "f16", "f32", 2), ("m16n8k16", "bf16", "f32", 4),
        ("m16n8k32", "bf16", "f32", 2), ("m16n8k8", "tf32", "f32", 4), ("m16n8k16", "tf32", "f32", 2),
        ("m16n8k64", "e4m3", "f32", 1), ("m16n8k64", "e5m2", "f32", 1), ("m16n8k32", "s8", "s32", 2),
        ("m16n8k64", "u8", "s32", 1), ("m16n8k64", "s4", "s32", 2), ("m16n8k128", "u4", "s32", 1),
    ]  # fmt: skip
    return [
        Form(shape, acc, a, a, acc, sparse=word, selector=selector)
        for number, (shape, a, acc, selectors) in enumerate(table)
        for selector in range(selectors)
        for word in (("sp", "sp::ordered_metadata")[(number + selector) % 2],)
    ]


# -- operands and results ---------------------------------------------------------------------------
def _matrix(type_: str, shape: tuple[int, int], small: bool) -> Array:
    """Numbers that a type holds: small integers, of which every sum is exact, or any."""
    if type_ == "b1":
        return _RNG.integers(0, 2, shape)
    low, high = {"s4": (-8, 8), "u4": (0, 16), "s8": (-128, 128), "u8": (0, 256)}.get(type_, (-3, 4))
    if type_ == "s32":
        return _RNG.integers(-(2**31), 2**31, shape)
    if low != -3:
        return _RNG.integers(low, high, shape)
    if small:
        return _RNG.integers(low, high, shape).astype(np.float64)
    return numbers(codes(_RNG.standard_normal(shape), type_), type_)


class Problem:
    """Operands of a form, as matrices; A in full, with the zeros that a sparse form leaves out."""

    def __init__(self, form: Form, small: bool) -> None:
        self.form = form
        self.a = _matrix(form.a, (form.m, form.kept), small)
        self.b = _matrix(form.b, (form.k, form.n), small)
        width = 8 if form.volta else form.n
        self.c = _matrix(form.c, (form.m, width), small)
        for which, matrix in (("a", self.a), ("b", self.b), ("c", self.c)):
            type_ = getattr(form, which)
            form.blocks[which] = pack(codes(matrix, type_), type_, form.layout(which), form.registers(which))
        if form.sparse:
            self.spread()

    def spread(self) -> None:
        """Choose at random what A keeps: the metadata, and A in full."""
        form, bits = self.form, BITS[self.form.a]
        chunk, group = {32: (2, 1), 4: (8, 2)}.get(bits, (4, 1))
        words = _RNG.integers(
            0, 2**32, (1, 32), dtype=np.uint32
        )  # what no lane of the selector's has is junk
        full = np.zeros((form.m, form.k), self.a.dtype)
        used = np.zeros((form.m, form.k), bool)
        for row in range(form.m):
            for number in range(form.k // chunk):
                if chunk == 2:
                    places = [int(_RNG.integers(2))]
                    code = (0b0100, 0b1110)[places[0]]
                else:
                    places = sorted(int(x) for x in _RNG.choice(4, 2, replace=False))
                    code = places[0] | places[1] << 2
                lane, low = _metadata_place(form, row, number)
                words[0, lane] = (int(words[0, lane]) & ~(15 << low)) | code << low
                kept = [place * group + i for place in places for i in range(group)]
                for i, place in enumerate(kept):
                    full[row, number * chunk + place] = self.a[row, number * chunk // 2 + i]
                    used[row, number * chunk + place] = True
        self.a, self.used = full, used
        form.blocks["e"] = words

    def exact(self) -> tuple[Array, Array]:
        """D as exact as doubles or 64-bit integers are, and the sum of the sizes of what is added up."""
        form = self.form
        if form.a == "b1":
            pairs = self.a[:, :, None] & self.b if form.end[:3] == "and" else self.a[:, :, None] ^ self.b
            return self.c + pairs.sum(1), self.c
        if form.volta:
            parts = [
                (self.a[8 * q : 8 * q + 8], self.b[:, 8 * q : 8 * q + 8], self.c[8 * q : 8 * q + 8])
                for q in range(4)
            ]
        else:
            parts = [(self.a, self.b, self.c)]
        total = np.concatenate([a @ b + c for a, b, c in parts])
        return total, np.concatenate([np.abs(a) @ np.abs(b) + np.abs(c) for a, b, c in parts])

    def result(self, registers: Array) -> Array:
        type_ = self.form.d
        return numbers(unpack(registers, type_, self.form.layout("d"), self.c.shape), type_)


def _metadata_place(form: Form, row: int, number: int) -> tuple[int, int]:
    """Lane and lowest bit of the metadata of a chunk of a row; the figures of the sparse forms' sections."""
    four = row % 8 * 4
    if BITS[form.a] < 16:  # T0 and T1 have rows g and g + 8 of the first eight chunks, T2 and T3 of the next
        return four + row // 8 + 2 * (number // 8) + 2 * form.selector, number % 8 * 4
    # Each has four chunks of row g in the low half, and of row g + 8 in the high half.
    lanes = form.k // {32: 2}.get(BITS[form.a], 4) // 4
    return four + number // 4 + lanes * form.selector, number % 4 * 4 + 16 * (row // 8)


def _run(forms: list[Form], small: bool) -> list[tuple[Form, Problem, Array]]:
    """Every other form leaves D in C's registers, where their types allow."""
    forms = [
        replace(form, blocks={}, in_place=i % 2 == 0 and form.c == form.d) for i, form in enumerate(forms)
    ]
    problems = [Problem(form, small) for form in forms]
    return list(zip(forms, problems, run_forms(forms), strict=True))


def _wrapped(total: Array) -> Array:
    return (total + 2**31) % 2**32 - 2**31


# Other ones for every share, in turns; each is compiled as one kernel.
every_share = pytest.mark.parametrize("share", range(3))


@every_share
def test_integers(share: int) -> None:
    for form, problem, registers in _run(_integer_forms()[share::3], False):
        total, _ = problem.exact()
        expected = np.clip(total, -(2**31), 2**31 - 1) if form.after else _wrapped(total)
        assert (problem.result(registers) == expected).all(), (form.name, _SEED)


def test_saturation() -> None:
    """Sums next to both ends of the range: with satfinite they stay there, without they wrap around."""
    forms = [Form("m16n8k32", "s32", "s8", "s8", "s32", after=after) for after in ("", "satfinite")]
    problems = [Problem(form, False) for form in forms]
    for form, problem in zip(forms, problems, strict=True):
        problem.c = np.where(problem.a[:, :8] > 0, 2**31 - 9, 9 - 2**31)
        form.blocks["c"] = pack(codes(problem.c, "s32"), "s32", form.layout("c"), 4)
    for form, problem, registers in zip(forms, problems, run_forms(forms), strict=True):
        total, _ = problem.exact()
        assert (np.abs(total) > 2**31).any()
        expected = np.clip(total, -(2**31), 2**31 - 1) if form.after else _wrapped(total)
        assert (problem.result(registers) == expected).all(), (form.name, _SEED)


@every_share
def test_floats_on_small_integers(share: int) -> None:
    """Every partial sum is exact in f16 too: a wrong place shows as a wrong number."""
    for form, problem, registers in _run(_float_forms()[share::3], True):
        assert (problem.result(registers) == problem.exact()[0]).all(), (form.name, _SEED)


@pytest.mark.few(1)
@every_share
def test_floats(share: int) -> None:
    for form, problem, registers in _run(_float_forms()[share::3], False):
        total, size = problem.exact()
        digits = {"f16": 11, "f32": 24, "f64": 53}
        steps = form.k + 1
        bound = steps * size * 2.0 ** -digits["f64" if form.d == "f64" else "f32"] * 2
        bound += np.abs(total) * 2.0 ** -digits[form.d]
        assert (np.abs(problem.result(registers) - total) <= bound).all(), (form.name, _SEED)


@every_share
def test_sparse(share: int) -> None:
    for form, problem, registers in _run(_sparse_forms()[share::3], True):
        total, _ = problem.exact()
        expected = _wrapped(total) if form.d == "s32" else total
        assert (problem.result(registers) == expected).all(), (form.name, form.selector, _SEED)


def test_sparse_zeros_are_skipped() -> None:
    """Where A has nothing, an infinity in B does not become NaN."""
    form = Form("m16n8k16", "f32", "f16", "f16", "f32", sparse="sp")
    problem = Problem(form, True)
    free = ~problem.used.any(0)
    if not free.any():  # make one: no row keeps the first of the first four
        words = form.blocks["e"]
        for lane in range(0, 32, 4):
            words[0, lane] = (int(words[0, lane]) & ~0xF000F) | 0xE000E
        full = np.zeros_like(problem.a)
        full[:, 4:] = problem.a[:, 4:]
        full[:, 2:4] = problem.a[:, :4][problem.used[:, :4]].reshape(16, 2)
        problem.a, free = full, np.arange(16) < 1
    finite = problem.b.copy()
    problem.b[free] = np.inf
    form.blocks["b"] = pack(codes(problem.b, "f16"), "f16", form.layout("b"), 2)
    problem.b = finite
    problem.b[free] = 0
    assert (problem.result(run_forms([form])[0]) == problem.exact()[0]).all(), _SEED


def test_the_order_of_sums_and_their_rounding() -> None:
    """One fused multiply-add after the other, in order of k; f16 sums are rounded once, at the end."""
    forms = [Form("m16n8k16", acc, "f16", "f16", acc) for acc in ("f32", "f16")]
    forms.append(Form("m16n8k16", "f32", "bf16", "bf16", "f32"))
    for form, problem, registers in _run(forms, False):
        found = unpack(registers, form.d, form.layout("d"), (16, 8))
        for row in range(16):
            for column in range(8):
                total = Fraction(problem.c[row, column])
                for k in range(16):
                    total += Fraction(problem.a[row, k]) * Fraction(problem.b[k, column])
                    total = _rounded(total, "f32")
                bits = round_to(Number(total, total < 0), FORMATS[form.d])
                assert found[row, column] == bits, (form.name, row, column, _SEED)


def _rounded(value: Fraction, type_: str) -> Fraction:
    bits = round_to(Number(value, value < 0), FORMATS[type_])
    back = decode(bits or 0, FORMATS[type_])
    assert not isinstance(back, Special)
    return back.value


@pytest.mark.parametrize("type_", ["f16", "bf16", "tf32", "e4m3", "e5m2"])
def test_every_pattern_of_an_element(type_: str) -> None:
    """A times one: each bit pattern as a number, infinities, NaN and subnormal numbers included."""
    shape = {16: "m16n8k16", 32: "m16n8k8", 8: "m16n8k32"}[BITS[type_]]
    low = 13 if type_ == "tf32" else 0  # bits that do not count
    every = _RNG.permutation(1 << min(BITS[type_] - low, 16))[:512].astype(np.uint64)
    every <<= np.uint64(BITS[type_] - min(BITS[type_] - low, 16))  # of tf32 the upper half
    forms, wanted = [], []
    for column in np.resize(every, (len(every) // 16, 16)):
        form = Form(shape, "f32", type_, type_, "f32")
        k = int(_RNG.integers(form.k))
        a, b = np.zeros((16, form.k), np.uint64), np.zeros((form.k, 8))
        a[:, k], b[k] = column, 1
        form.blocks = {
            "a": pack(a, type_, form.layout("a"), form.registers("a")),
            "b": pack(codes(b, type_), type_, form.layout("b"), form.registers("b")),
            "c": pack(codes(np.full((16, 8), -0.0), "f32"), "f32", form.layout("c"), 4),
        }
        forms.append(form)
        wanted.append(numbers(column, type_))
    for form, expected, registers in zip(forms, wanted, run_alike(forms), strict=True):
        found = numbers(unpack(registers, "f32", form.layout("d"), (16, 8)), "f32")
        assert np.array_equal(found, np.repeat(expected[:, None], 8, 1), equal_nan=True), (form.name, _SEED)


def test_tf32_leaves_its_lowest_bits_away() -> None:
    form = Form("m16n8k8", "f32", "tf32", "tf32", "f32")
    problem = Problem(form, False)
    for which in "ab":
        form.blocks[which] |= _RNG.integers(0, 1 << 13, form.blocks[which].shape, dtype=np.uint32)
    (found,) = run_forms([form])
    clean = replace(form, blocks={**form.blocks, **{w: form.blocks[w] & 0xFFFF_E000 for w in "ab"}})
    assert (found == run_forms([clean])[0]).all()
    assert np.allclose(problem.result(found), problem.exact()[0], atol=1e-4)


@pytest.mark.few("x86-64-v3")
@pytest.mark.parametrize("target", BELOW, ids=IDS)
def test_other_cpus_give_the_same_bits(target: CpuTarget) -> None:
    sparse = [
        form for form in _sparse_forms() if form.a in ("f16", "tf32", "s8")
    ]  # what is kept is chosen alike
    every = [*_float_forms(), *_integer_forms(), *sparse]
    # A small one of each kind: where LLVM has no fused multiply-adds, others take long to compile.
    small = sorted((form for form in every if form.k <= 32 or form.a == "b1"), key=lambda form: -form.k)
    chosen = {(form.a, bool(form.sparse)): form for form in small}
    if target.cpu == "x86-64-v2":  # has for floating point what the level below it has
        chosen = {kind: form for kind, form in chosen.items() if form.d == "s32" or kind == ("f16", False)}
    forms = [replace(form, blocks={}) for form in chosen.values()]
    for form in forms:
        Problem(form, False)
    for form, here, there in zip(forms, run_forms(forms), run_forms(forms, target), strict=True):
        assert (here == there).all(), (form.name, _SEED)


def test_lanes_that_do_not_run_keep_their_registers() -> None:
    forms = [
        Form("m16n8k16", "f32", "f16", "f16", "f32"), Form("m16n8k16", "f32", "f16", "f16", "f32", in_place=True),
        Form("m16n8k16", "f16", "f16", "f16", "f16"), Form("m8n8k4", "f32", "f16", "f16", "f16"),
    ]  # fmt: skip
    problems = [Problem(form, True) for form in forms]
    whole = run_forms(forms)
    for form in forms:
        form.guard = "@%odd"
    odd = np.arange(32) % 2 == 1
    for form, problem, all_lanes, registers in zip(forms, problems, whole, run_forms(forms), strict=True):
        assert (problem.result(all_lanes) == problem.exact()[0]).all()
        assert (registers[:, odd] == all_lanes[:, odd]).all(), form.name
        kept = form.blocks["c"] if form.in_place else np.repeat(form.blocks["c"][:1], len(registers), 0)
        assert (registers[:, ~odd] == kept[:, ~odd]).all(), form.name


def test_one_instruction_of_k16_is_two_of_k8() -> None:
    """On small integers they agree to the bit: the two halves of A and B are registers of their own."""
    long = Form("m16n8k16", "f32", "f16", "f16", "f32")
    problem = Problem(long, True)
    (whole,) = run_forms([long])
    sums = long.blocks["c"]
    for half in range(2):
        short = Form("m16n8k8", "f32", "f16", "f16", "f32")
        a, b = long.blocks["a"][2 * half : 2 * half + 2], long.blocks["b"][half : half + 1]
        short.blocks = {"a": a, "b": b, "c": sums}
        (sums,) = run_forms([short])
    assert (sums == whole).all()
    assert (problem.result(whole) == problem.exact()[0]).all()


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {a,b,c,d}, {a,b}, {a}, {a,b,c,d}", "A must be row"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16 {a,b,c,d}, {a,b}, {a}, {a,b}", "must be alike"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.bf16.f32 {a,b,c,d}, {a,b}, {a}, {a,b,c,d}", "f16 and bf16"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {a,b}, {a,b,c,d}, {a,b}, {a,b}", "and f32"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {a,b,c,d}, {a}, {a}, {a,b,c,d}", "where it takes 2"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {a,b,c,d}, {a,b}, {a}", "it takes D, A, B and C"),
        ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f32 {a,b,c,d}, {a,b}, {a,b}, {a,b,c,d,a,b,c,d}", "f32, D"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.bf16 {a,b,c,d,a,b,c,d}, {a,b}, {a,b}, {a,b,c,d}", "C and D f16 or"),
        ("mma.sync.aligned.m8n8k4.row.col.bf16.f16.f16.f16 {a,b,c,d}, {a,b}, {a,b}, {a,b,c,d}", "C and D f16 or f32"),
        ("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {a,b,c,d}, {a,b,c,d}, {a,b}, {a,b,c,d}",
         "satfinite"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32 {a,b}, {a}, {b}, {a,b}", "popc"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz {a,b}, {a}, {b}, {a,b}", "not supported"),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32 {a,b,c,d}, {a,b,c,d}, {a,b}, {a,b,c,d}",
         "not supported"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {a,b,c,d}, {a,b,c,d}, {a,b,c,d}, {a,b,c,d}, a, 2",
         "selector must be a number below 2"),
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {a,b,c,d}, {a,b}, {a}, {a,b,c,d}, a, 0", "m16n8k8"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {a,b}, [a]", "m8n8 of type b16"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {a}, [a]", "only the shape m8n8"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {a}, [a]", "where it takes 2"),
        ("ldmatrix.sync.aligned.m8n8.x3.shared.b16 {a,b,c}, [a]", "x1, x2 or x4"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [a], {a}", "m16n8.trans of type b8"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b16 [a], {a}", "m16n8.trans of type b8"),
        ("stmatrix.sync.aligned.m8n8.x1.trans.shared.b8 [a], {a}", "m16n8.trans of type b8"),
        ("stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [a], {a}", "where it takes 2"),
        ("ldmatrix.sync.aligned.m16n8.x1.trans.shared.b8 {a}, [a]", "m8n8 of type b16"),
        ("movmatrix.sync.aligned.m8n8.b16 a, b", "movmatrix.sync.aligned.m8n8.trans.b16"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_by_name(instruction: str, why: str) -> None:
    for name in "abcd":
        instruction = instruction.replace(f"{{{name}", f"{{%{name}").replace(f",{name}", f",%{name}")
        instruction = instruction.replace(f"[{name}", f"[%{name}").replace(f", {name}", f", %{name}")
        instruction = instruction.replace(f" {name},", f" %{name},")
    said = refused(f"{instruction};", ".reg .b32 %a, %b, %c, %d;")
    assert instruction.split()[0] in said, said
    assert why in said, said


# -- ldmatrix, stmatrix, movmatrix --------------------------------------------------------------------
_ROWS = 40  # of 16 bytes, in shared memory


def _copy_kernel(body: str, shared: int = 16 * _ROWS) -> tw.Kernel:
    """Shared memory from ``data``, the body, then shared memory to ``data`` and %r0 to %r3 to ``out``."""
    return tw.Kernel.from_ptx(
        f"""
.version 9.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 room[{shared}];
.visible .entry k(.param .u64 data, .param .u64 rows, .param .u64 out) {{
.reg .b32 %r<8>, %lane, %bit, %i, %at, %row, %v; .reg .b64 %data, %rows, %out, %w, %far, %base;
.reg .pred %p, %odd;
ld.param.u64 %data, [data]; ld.param.u64 %rows, [rows]; ld.param.u64 %out, [out];
mov.u32 %lane, %tid.x; and.b32 %bit, %lane, 1; setp.eq.u32 %odd, %bit, 1;
mul.wide.u32 %w, %lane, 4; add.s64 %rows, %rows, %w; add.s64 %out, %out, %w;
mov.u32 %i, 0;
fill:
mad.lo.u32 %at, %i, 4, 0; cvt.u64.u32 %w, %at; add.s64 %w, %data, %w;
ld.global.u32 %v, [%w]; st.shared.u32 [%at], %v;
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {shared // 4}; @%p bra fill;
bar.sync 0;
ld.global.u32 %row, [%rows];
cvt.u64.u32 %w, %row; mov.u64 %base, room; cvta.shared.u64 %base, %base; add.s64 %far, %base, %w;
ld.global.u32 %r0, [%out]; ld.global.u32 %r1, [%out + 128];
ld.global.u32 %r2, [%out + 256]; ld.global.u32 %r3, [%out + 384];
{body}
st.global.u32 [%out], %r0; st.global.u32 [%out + 128], %r1;
st.global.u32 [%out + 256], %r2; st.global.u32 [%out + 384], %r3;
bar.sync 0;
mov.u32 %i, 0;
back:
mad.lo.u32 %at, %i, 4, 0; cvt.u64.u32 %w, %at; add.s64 %w, %data, %w;
ld.shared.u32 %v, [%at]; st.global.u32 [%w], %v;
add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {shared // 4}; @%p bra back;
ret;
}}""",
        "k",
    )


def _given() -> tuple[Array, Array, Array]:
    """Shared memory as rows of halves, a row of its own for each lane (never the first), and registers."""
    data = _RNG.integers(0, 2**16, (_ROWS, 8), dtype=np.uint16)
    rows = (_RNG.permutation(np.arange(1, _ROWS))[:32] * 16).astype(np.uint32)
    return data, rows, _RNG.integers(0, 2**32, (4, 32), dtype=np.uint32)


def _loaded(data: Array, rows: Array, count: int, transposed: bool) -> Array:
    """Thread 4·g + t gets the halves 2t and 2t + 1 of row g; transposed, of column g."""
    found = np.zeros((count, 32), np.uint32)
    for i in range(count):
        matrix = data[rows[8 * i : 8 * i + 8] // 16].astype(np.uint32)
        matrix = matrix.T if transposed else matrix
        for lane in range(32):
            low, high = matrix[lane >> 2, lane % 4 * 2 : lane % 4 * 2 + 2]
            found[i, lane] = low | high << 16
    return found


def _registers(count: int) -> str:
    return f"{{{', '.join(f'%r{i}' for i in range(count))}}}"


# Space, address, offset, and whether the shape comes before the count.
_WAYS = [
    (".shared", "%row", 0, True),
    (".shared", "%row", 0, False),
    ("", "%far", 0, True),
    (".shared::cta", "%row + 16", 16, True),
]
_FORMS = pytest.mark.parametrize(
    ("count", "trans"), [(n, trans) for n in (1, 2, 4) for trans in ("", ".trans")]
)


def _shape(count: int, trans: str, shape_first: bool) -> str:
    return f"m8n8.x{count}{trans}" if shape_first else f"x{count}{trans}.m8n8"


@_FORMS
def test_ldmatrix(count: int, trans: str) -> None:
    for space, address, offset, shape_first in _WAYS:
        data, rows, before = _given()
        rows[8 * count :] = 0xFFFF_FFF1  # what these lanes hold is no address
        out, given = before.copy(), rows.copy()
        given[: 8 * count] -= offset
        name = f"ldmatrix.sync.aligned.{_shape(count, trans, shape_first)}{space}.b16"
        kernel = _copy_kernel(f"{name} {_registers(count)}, [{address}];")
        kernel(1, 32, [data, given, out], device="emulator")
        assert (out[:count] == _loaded(data, rows, count, bool(trans))).all(), (name, _SEED)
        assert (out[count:] == before[count:]).all(), name


@_FORMS
def test_stmatrix(count: int, trans: str) -> None:
    for space, address, offset, shape_first in _WAYS:
        data, rows, registers = _given()
        rows[8 * count :] = 0xFFFF_FFF1
        stored, given = data.copy(), rows.copy()
        given[: 8 * count] -= offset
        name = f"stmatrix.sync.aligned.{_shape(count, trans, shape_first)}{space}.b16"
        kernel = _copy_kernel(f"{name} [{address}], {_registers(count)};")
        kernel(1, 32, [stored, given, registers], device="emulator")
        assert (_loaded(stored, rows, count, bool(trans)) == registers[:count]).all(), (name, _SEED)
        others = np.setdiff1d(np.arange(_ROWS), rows[: 8 * count] // 16)
        assert (stored[others] == data[others]).all(), name


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_of_bytes(count: int) -> None:
    """Each matrix has 16 rows and 8 columns, and a row of memory has one of its columns."""
    for space, address, offset, shape_first in _WAYS:
        data, rows, registers = _given()
        rows[8 * count :] = 0xFFFF_FFF1
        stored, given = data.copy(), rows.copy()
        given[: 8 * count] -= offset
        shape = f"m16n8.x{count}.trans" if shape_first else f"x{count}.trans.m16n8"
        name = f"stmatrix.sync.aligned.{shape}{space}.b8"
        _copy_kernel(f"{name} [{address}], {_registers(count)};")(
            1, 32, [stored, given, registers], device="emulator"
        )
        for i in range(count):
            columns = stored[rows[8 * i : 8 * i + 8] // 16].view(np.uint8)
            for lane in range(32):
                g, t = lane // 4, lane % 4
                held = [int(registers[i, lane]) >> 8 * byte & 255 for byte in range(4)]
                places = [(2 * t, g), (2 * t + 1, g), (2 * t, g + 8), (2 * t + 1, g + 8)]
                assert held == [columns[place] for place in places], (name, lane, _SEED)
        others = np.setdiff1d(np.arange(_ROWS), rows[: 8 * count] // 16)
        assert (stored[others] == data[others]).all(), name


def test_rows_at_known_distances() -> None:
    """Addresses that the emulator knows from the thread's number, and one that all lanes share."""
    data, rows, out = _given()
    body = "shl.b32 %at, %lane, 4; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%at + 32];"
    body += "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r2}, [room + 48];"
    _copy_kernel(body)(1, 32, [data, rows, out], device="emulator")
    assert (out[:2] == _loaded(data, np.arange(2, 34) * 16, 2, False)).all()
    assert (out[2] == _loaded(data, np.full(8, 48), 1, True)).all()


def test_movmatrix() -> None:
    data, rows, out = _given()
    before = out.copy()
    body = "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;"
    _copy_kernel(body)(1, 32, [data, rows, out], device="emulator")
    matrix = before[0].view(np.uint16).reshape(8, 8)
    assert (out[1] == np.ascontiguousarray(matrix.T).view(np.uint32).ravel()).all()
    assert (out[2] == before[0]).all()


def test_matrices_in_lanes_that_run() -> None:
    """Undefined in PTX. Here: rows of lanes that do not run are zeros, and their registers stay."""
    data, rows, before = _given()
    odd = np.arange(32) % 2 == 1
    out = before.copy()
    body = "@%odd ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%row];"
    _copy_kernel(body)(1, 32, [data, rows, out], device="emulator")
    loaded = _loaded(data, rows, 4, False)
    given = np.arange(32) // 4 % 2 == 1  # lanes that hold rows of which an odd lane gave the address
    assert (out[:, odd & given] == loaded[:, odd & given]).all()
    assert (out[:, odd & ~given] == 0).all()
    assert (out[:, ~odd] == before[:, ~odd]).all()
    stored = data.copy()
    body = body.replace("ldmatrix", "stmatrix").replace(
        "{%r0, %r1, %r2, %r3}, [%row]", "[%row], {%r0, %r1, %r2, %r3}"
    )
    _copy_kernel(body)(1, 32, [stored, rows, before.copy()], device="emulator")
    assert (_loaded(stored, rows, 4, False)[:, given] == before[:, given]).all()
    assert (stored[rows[~odd] // 16] == data[rows[~odd] // 16]).all()


def test_part_of_a_warp() -> None:
    """A block of 16 threads: they give all rows that x2 needs."""
    data, rows, before = _given()
    out = before.copy()
    body = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%row];"
    _copy_kernel(body)(1, 16, [data, rows, out], device="emulator")
    assert (out[:2, :16] == _loaded(data, rows, 2, False)[:, :16]).all()
    assert (out[:, 16:] == before[:, 16:]).all()


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        (16 * _ROWS, f"out-of-bounds {{verb}} of 16 bytes at shared address {16 * _ROWS:#x}"),
        (2**32 - 16, "out-of-bounds {verb} of 16 bytes at shared address 0xfffffff0"),
        (16 * 7 + 8, "misaligned {verb} of 16 bytes at shared address 0x78"),
    ],
)
@pytest.mark.parametrize("opcode", ["ldmatrix", "stmatrix"])
def test_faults(opcode: str, address: int, fault: str) -> None:
    """The lane that gives the bad address is named; one that gives none may hold anything."""
    lane = int(_RNG.integers(16))
    registers, place = "{%r0, %r1}", "[%row]"
    operands = f"{registers}, {place}" if opcode == "ldmatrix" else f"{place}, {registers}"
    kernel = _copy_kernel(f"{opcode}.sync.aligned.m8n8.x2.shared.b16 {operands};")
    data, rows, out = _given()
    rows[16 + lane] = address
    kernel(1, 32, [data, rows, out], device="emulator")
    rows[lane] = address
    with pytest.raises(KernelFault) as error:
        kernel(1, 32, [data, rows, out], device="emulator")
    said = str(error.value)
    assert fault.format(verb="read" if opcode == "ldmatrix" else "write") in said
    assert f"thread ({lane}, 0, 0)" in said
    assert f"{opcode}.sync.aligned.m8n8.x2.shared.b16" in said


def test_a_generic_address_outside_shared_memory_is_a_fault() -> None:
    data, rows, out = _given()
    kernel = _copy_kernel("ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%data];")
    with pytest.raises(KernelFault, match="out-of-bounds read of 16 bytes at shared address"):
        kernel(1, 32, [data, rows, out], device="emulator")


@pytest.mark.parametrize("opcode", ["ldmatrix", "stmatrix"])
@pytest.mark.parametrize("away", [0, 2**32, 2**33, -(2**32)])
def test_a_generic_address_is_one_of_64_bits(away: int, opcode: str) -> None:
    """4 GiB from shared memory nothing lies, though the lower half of the address says otherwise."""
    operands = "{%r0}, [%at]" if opcode == "ldmatrix" else "[%at], {%r0}"
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {{
.shared .align 16 .b8 room[128]; .reg .b32 %t, %r0; .reg .b64 %at, %o;
mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; mov.u64 %at, room; add.u64 %o, %o, %at; st.shared.u32 [%o], %t; mov.u32 %r0, %t;
and.b32 %t, %t, 7; mul.wide.u32 %o, %t, 16; cvta.shared.u64 %at, %at; add.u64 %at, %at, %o; add.s64 %at, %at, {away};
{opcode}.sync.aligned.m8n8.x1.b16 {operands};
ret;
}}"""
    said = f"out-of-bounds {'read' if opcode == 'ldmatrix' else 'write'} of 16 bytes"
    with pytest.raises(KernelFault, match=said) if away else contextlib.nullcontext():
        tw.Kernel.from_ptx(text, "k")(1, 32, [], device="emulator")
