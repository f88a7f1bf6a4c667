"""wgmma against a model of the PTX ISA's fragments and layouts: every type, shared memory of every order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.emulator.running.test_targets import BELOW, IDS
from tests.harness.fragments import BITS, Form, codes, numbers, pack, run_alike, unpack
from tests.harness.many import Array, refused
from tests.harness.warpgroups import SWIZZLES, Case, Operand, put, run_cases
from tilewise.emulator.native import CpuTarget

RANDOM = np.random.default_rng()
_RANGES = {"s8": (-128, 128), "u8": (0, 256), "b1": (0, 2)}
_FLOATS = ("f16", "bf16", "tf32", "e4m3", "e5m2")


# -- cases ------------------------------------------------------------------------------------------
def operand(bits: int, rows: int, k: int, swizzle: int, across: bool, start: int) -> tuple[Operand, int]:
    """A matrix from ``start`` on, its pieces in one of the orders that there are, with gaps or without, and
    where it ends."""
    found = Operand(bits, rows, k, swizzle, across, start)
    span = swizzle or 16
    piece = 8 * span  # eight rows, or eight of K
    gap = int(RANDOM.integers(2)) * piece
    if across:
        many = -(-rows // (8 * span // 16))  # pieces along the rows; k // 8 of them along K
        near, far = piece + gap, many * (piece + gap)
        if RANDOM.integers(2):
            near, far = (k // 8) * (piece + gap), piece + gap
        found.leading, found.stride = (near, far) if swizzle else (far, near)
        end = start + many * (k // 8) * (piece + gap)
    else:
        size = k * bits // 8
        pieces = max(1, size // span)  # along K
        found.start += int(RANDOM.integers(max(1, span // size))) * size  # a slice of wider rows
        found.leading, found.stride = piece + gap, pieces * (piece + gap)
        if RANDOM.integers(2):
            found.leading, found.stride = rows // 8 * (piece + gap), piece + gap
        if swizzle and pieces == 1:
            found.leading = 16 * int(RANDOM.integers(4))  # nobody looks at it
        end = start + rows // 8 * pieces * (piece + gap)
    return found, -(-end // 1024) * 1024


def matrix(type_: str, shape: tuple[int, int], small: bool) -> Array:
    """Bits of numbers that a type holds: small integers, of which every sum is exact, or any."""
    if type_ == "s32":
        return RANDOM.integers(-(2**31), 2**31, shape).astype(np.uint32)
    low, high = _RANGES.get(type_, (-3, 4))
    if type_ in _RANGES or small:
        return codes(RANDOM.integers(low, high, shape).astype(np.float64), type_)
    return codes(RANDOM.standard_normal(shape), type_)


def laid(
    case: Case,
    swizzles: tuple[int, int] = (0, 0),
    across: tuple[bool, bool] = (False, False),
    small: bool = True,
) -> Case:
    """Give a case its matrices, in registers and in shared memory."""
    case.matrices = case.matrices or {
        "a": matrix(case.a, (64, case.k), small),
        "b": matrix(case.b, (case.n, case.depth), small),
        "c": matrix(case.d, (64, case.n), small),
    }
    if case.selector is not None:
        case.spread(RANDOM)
    if not case.adds:
        case.matrices["c"] = np.full((64, case.n), (1 << BITS[case.d]) - 1, np.uint64)  # NaN, or -1
    end = 1024 * int(RANDOM.integers(2))
    if not case.in_registers:
        case.left, end = operand(BITS[case.a], 64, case.k, swizzles[0], across[0], end)
    case.right, end = operand(BITS[case.b], case.n, case.depth, swizzles[1], across[1], end)
    case.image = RANDOM.integers(0, 256, -(-end // 4096) * 4096).astype(np.uint8)
    if case.left:
        put(case.image, case.left, case.matrices["a"])
    put(case.image, case.right, case.matrices["b"])
    return case


def some(
    d: str, a: str, b: str, columns: tuple[int, ...], small: bool, selector: int | None = None
) -> list[Case]:
    """Cases of one form: of different widths, with A in registers and not, in layouts of all kinds."""
    found = []
    swizzles = RANDOM.permutation([(x, y) for x in SWIZZLES for y in SWIZZLES])
    for number, n in enumerate(columns):
        case = Case(n, d, a, b, in_registers=number % 3 == 2, adds=number % 4 != 3, selector=selector)
        if a in _FLOATS:
            case.scale = (int(RANDOM.choice((-1, 1))), int(RANDOM.choice((-1, 1))))
        across = (False, False)
        if a in ("f16", "bf16"):
            across = (bool(number & 1) and not case.in_registers, bool(RANDOM.integers(2)))
        left, right = (int(swizzle) for swizzle in swizzles[number])
        found.append(laid(case, (left, right), across, small))
    return found


# -- every type -------------------------------------------------------------------------------------
_FORMS = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
_FORMS += [
    (d, a, b)
    for (a, b), d in zip(
        itertools.product(("e4m3", "e5m2"), repeat=2), ("f32", "f16", "f16", "f32"), strict=True
    )
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("d", "a", "b"), _FORMS)
def test_floats_on_small_integers(d: str, a: str, b: str) -> None:
    columns = tuple(int(n) for n in RANDOM.choice(range(32, 137, 8), 2, replace=False))
    cases = some(d, a, b, (8, *columns, 24), small=True)
    for case, found in zip(cases, run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, case.exact()[0], err_msg=str((case.n, case.left, case.right)))


@pytest.mark.few(1)
@pytest.mark.parametrize(("d", "a", "b"), _FORMS[:5])
def test_floats(d: str, a: str, b: str) -> None:
    cases = some(d, a, b, (16, 72, 40), small=False)
    for case, found in zip(cases, run_cases(cases), strict=True):
        exact, size = case.exact()
        bound = (case.k + 1) * 2.0**-24 * size + (2.0**-11 * np.abs(exact) + 2.0**-25 if d == "f16" else 0)
        assert (np.abs(found - exact) <= bound).all(), (case.n, np.abs(found - exact).max())


@pytest.mark.few("s8-u8", "u8-s8")
@pytest.mark.parametrize(("a", "b"), list(itertools.product(("s8", "u8"), repeat=2)))
def test_integers(a: str, b: str) -> None:
    cases = some("s32", a, b, (8, 48, 24), small=False)
    full = laid(Case(16, "s32", a, b, satfinite=True))
    full.matrices["c"][::2] = RANDOM.choice([2**31 - 1, 2**31], (32, 16)).astype(np.uint32)
    cases.append(full)
    for case, found in zip(cases, run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, case.exact()[0])


def test_bits() -> None:
    cases = some("s32", "b1", "b1", (8, 80, 224), small=False)
    for case, found in zip(cases, run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, case.exact()[0])


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [128, 256])
def test_wide_ones(n: int) -> None:
    case = laid(Case(n, "f32", "bf16", "bf16", in_registers=n == 128), (128, 128), (False, True))
    np.testing.assert_array_equal(run_cases([case])[0], case.exact()[0])


_SPARSE = [
    ("f32", "f16", "f16", 0), ("f16", "f16", "f16", 1), ("f32", "bf16", "bf16", 1), ("f32", "tf32", "tf32", 0),
    ("f32", "tf32", "tf32", 1), ("f32", "e4m3", "e5m2", 0), ("s32", "s8", "u8", 0),
]  # fmt: skip


@pytest.mark.few("f32-f16-f16-0", "f32-tf32-tf32-1", "s32-s8-u8-0")
@pytest.mark.parametrize(("d", "a", "b", "selector"), _SPARSE)
def test_sparse(d: str, a: str, b: str, selector: int) -> None:
    cases = some(d, a, b, (16, 48, 24), small=True, selector=selector)
    for case, found in zip(cases, run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, case.exact()[0])


def test_what_a_sparse_matrix_leaves_out_meets_nothing() -> None:
    """Infinities of B count only where A has an element."""
    case = laid(Case(8, "f32", "f16", "f16", selector=0))
    used = case.matrices["used"]
    assert case.right is not None
    bits = codes(RANDOM.integers(1, 4, (8, 32)).astype(np.float64), "f16")
    bits[:, ~used[5]] = 0x7C00
    case.matrices["b"] = bits
    put(case.image, case.right, bits)
    found = run_cases([case])[0]
    assert np.isfinite(found[5]).all()
    rows = [row for row in range(64) if (used[row] != used[5]).any()]
    assert not np.isfinite(found[rows]).any()


# -- what the layout has no say in ------------------------------------------------------------------
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["f16", "tf32"])
def test_every_layout_gives_the_same_bits(kind: str) -> None:
    first = laid(Case(24, "f32", kind, kind, in_registers=True), small=False)
    cases = [first]
    ways = [(False, False), (True, True), (True, False)] if kind == "f16" else [(False, False)]
    for swizzle, across in itertools.product(SWIZZLES, ways):
        cases.append(laid(Case(24, "f32", kind, kind, matrices=first.matrices), (swizzle, swizzle), across))
    results = run_cases(cases)
    assert all(found.tobytes() == results[0].tobytes() for found in results)


@pytest.mark.few(1)
@pytest.mark.parametrize("across", [False, True])
def test_base_offsets(across: bool) -> None:
    """A pattern that starts between the multiples of its length."""
    cases = []
    for swizzle, base in itertools.product((32, 64, 128), (1, 3, 6)):
        case = laid(Case(16, "f32", "f16", "f16", in_registers=True), (0, swizzle), (False, across))
        case.right = Operand(16, 16, 16, swizzle, across, 128 * base, 8 * swizzle, 16 * swizzle, base)
        put(case.image, case.right, case.matrices["b"])
        cases.append(case)
    for case, found in zip(cases, run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, case.exact()[0])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("d", "kind"), [("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "tf32"), ("f32", "e5m2")]
)
def test_mma_gives_the_same_bits(d: str, kind: str) -> None:
    case = laid(Case(8, d, kind, kind, matrices={}), small=False)
    found = codes(run_cases([case])[0], d)
    forms = []
    for warp in range(4):
        form = Form(f"m16n8k{case.k}", d, kind, kind, d)
        parts = {"a": case.matrices["a"], "c": case.matrices["c"]}
        for which, whole in parts.items():
            rows = whole[16 * warp : 16 * warp + 16]
            form.blocks[which] = pack(rows, getattr(form, which), form.layout(which), form.registers(which))
        form.blocks["b"] = pack(case.matrices["b"].T, kind, form.layout("b"), form.registers("b"))
        forms.append(form)
    for warp, registers in enumerate(run_alike(forms)):
        tile = unpack(registers, d, forms[warp].layout("d"), (16, 8))
        np.testing.assert_array_equal(found[16 * warp : 16 * warp + 16], tile)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "e5m2"])
def test_patterns_of_an_element(kind: str) -> None:
    """One element in each column of B, whose row of A is all ones."""
    bits = BITS[kind]
    case = Case(256, "f32", kind, kind)
    patterns = np.arange(256) if bits == 8 else RANDOM.integers(0, 1 << bits, 256)
    if bits == 16:
        patterns[:8] = [0, 0x8000, 1, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0xFFC1]
    b = np.zeros((256, case.k), np.uint64)
    b[np.arange(256), np.arange(256) % case.k] = patterns
    ones = codes(np.ones((64, case.k)), kind)
    case.matrices = {"a": ones, "b": b, "c": np.zeros((64, 256), np.uint32)}
    found = run_cases([laid(case, (0, 64))])[0]
    wanted = numbers(patterns.astype(np.uint64), kind)
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, (64, 256)))


@pytest.mark.few(1)
@pytest.mark.parametrize("target", BELOW[::2], ids=IDS[::2])
def test_other_cpus_give_the_same_bits(target: CpuTarget) -> None:
    forms = [("f32", "f16"), ("f32", "bf16"), ("f16", "e4m3"), ("s32", "s8"), ("s32", "b1")]
    forms = forms[:1] if target is BELOW[0] else forms  # which takes long to compile for the oldest
    cases = [laid(Case(8, d, kind, kind), (64, 64), small=False) for d, kind in forms]
    cases.append(laid(Case(8, "f32", "f16", "f16", selector=0), (64, 64), small=False))
    for found, wanted in zip(run_cases(cases, target=target), run_cases(cases), strict=True):
        np.testing.assert_array_equal(found, wanted)


# -- refusals ---------------------------------------------------------------------------------------
_D4 = "{%r0, %r1, %r2, %r3}"


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "shape"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {r}, %l0, %l1, %p;", "shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "types"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "types"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {r}, %l0, %l1, %p, 1, 1;", "numbers"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "numbers"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {r}, %l0, %l1, %p, 2, 1, 0, 0;", "scaled"),
        ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {r}, %l0, %l1, %p, 1, 1, 0, 0;", "4 registers"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16.satfinite {r}, %l0, %l1, %p, 1, 1, 0, 0;", "satfinite"),
        ("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.xor.popc {r}, %l0, %l1, %p;", "wgmma"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {r}, %l0, %l1, %r0, 2, %p, 1, 1, 0, 0;", "selector"),
        ("wgmma.wait_group.sync.aligned %r0;", "number of groups"),
        ("wgmma.commit_group.sync;", "form"),
    ],
)  # fmt: skip
def test_other_forms_are_refused_by_name(instruction: str, why: str) -> None:
    said = refused(instruction.replace("{r}", _D4))
    assert why in said, said
    assert "wgmma" in said


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"])
def test_which_widths_there_are(kind: str) -> None:
    """The ISA's tables: multiples of 8 up to 256, of which integers and bits have those of 16, and 8 and 24. With any of
    them it is the registers that are too few here, not the shape that is wrong."""
    whole, bits = kind in ("s8", "u8", "b1"), 256 // BITS[kind]
    words = f"s32.{kind}.{kind}{'.and.popc' * (kind == 'b1')}" if whole else f"f32.{kind}.{kind}"
    numbers = "" if whole else ", 1, 1, 0, 0" if BITS[kind] == 16 else ", 1, 1"
    for n in (0, 4, 16, 20, 24, 32, 40, 48, 56, 104, 120, 128, 136, 240, 248, 256, 264, 272):
        said = refused(f"wgmma.mma_async.sync.aligned.m64n{n}k{bits}.{words} {_D4}, %l0, %l1, %p{numbers};")
        good = 8 <= n <= 256 and (n % 16 == 0 or n == 24 if whole else n % 8 == 0)
        assert ("registers" in said, "not the shape" in said) == (good, not good), (n, said)
