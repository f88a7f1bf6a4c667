"""The emulator against what a GPU answered, where that was recorded (``tests/golden/hardware``).

``python -m tests.hardware.record`` asks a GPU, ``python -m tests.hardware.keep`` keeps what it said. There is
more of it than can be held against the emulator each time: every day has its part, and all have their turn.
"""

from __future__ import annotations

import datetime
import gzip
import json
import random
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest

import tilewise as tw
from tests.emulator.running import test_targets as targets
from tests.hardware import ladder, matrix, model, profile, random_programs, scalar, wgmma
from tests.hardware.compare import calmed, differences, pieces, result_type
from tests.hardware.floats import FORMATS
from tests.hardware.job import Array, Job, Matrix, Raw, Start, bare, digest
from tests.hardware.keep import KEPT, hashed
from tests.hardware.machine import Emulated
from tests.hardware.matrix import forms, pack_all, unpack_all
from tests.hardware.rules import WIDTHS, wavefronts
from tests.hardware.scalar_table import Case
from tests.harness.fragments import BITS, NUMPY, Form
from tilewise.emulator import CpuTarget, build_kernel
from tilewise.instruments.checking import check_bound

_RANDOM = random.Random()
_Item = TypeVar("_Item")


def _part(items: Sequence[_Item], count: int) -> list[_Item]:
    """Today's part of a list: neighbours are far apart, so that it has something of all that is alike."""
    if not items:
        return []
    strides = -(-len(items) // count)
    day = datetime.datetime.now(datetime.UTC).toordinal()
    return list(items[day % strides :: strides])


def _part_of_each(items: Iterable[_Item], kind: Callable[[_Item], Hashable], days: int) -> list[_Item]:
    """Today's part, with at least one of each kind: after so many days all of them had their turn."""
    found: dict[Hashable, list[_Item]] = {}
    for item in items:
        found.setdefault(kind(item), []).append(item)
    return [item for alike in found.values() for item in _part(alike, -(-len(alike) // days))]


@cache
def _kept(part: str) -> dict[str, Any]:
    """What is kept of a part: nothing where no GPU was asked."""
    file = KEPT / "hashes.json"
    found: dict[str, Any] = json.loads(file.read_text()).get(part, {}) if file.exists() else {}
    return found


@cache
def _rungs() -> list[dict[str, Any]]:
    """The rungs as they were recorded."""
    file = KEPT / "ladder.json.gz"
    if not file.exists():
        return []
    found = json.loads(gzip.decompress(file.read_bytes()))
    return [{**row, "text": found["texts"][row["text"]]} for row in found["rows"]]


def _recorded(part: str, jobs: Iterable[Job]) -> Iterator[tuple[Job, dict[str, str]]]:
    """Jobs that were recorded just as they are, with the hashes of their results."""
    kept, others = _kept(part), 0
    for job in jobs:
        wanted = kept.get(job.name)
        if wanted is None:
            continue
        if job.inputs.startswith(wanted["inputs"]):
            yield job, wanted["hashes"]
        else:
            others += 1
    if others:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(f"{others} jobs of {part} were left out: recorded with other inputs", stacklevel=2)


def _wrong(part: str, jobs: Iterable[Job], emulator: Emulated) -> tuple[set[str], set[str]]:
    """Pieces of jobs in which the emulator and the GPU agree, bit for bit, and those in which they do not."""
    same: set[str] = set()
    other: set[str] = set()
    for job, hashes in _recorded(part, jobs):
        ours = hashed(part, job, emulator.run(job))
        for piece, value in hashes.items():
            name = piece if part == "scalar" else f"{job.name} {piece}"
            (same if ours[piece] == value else other).add(name)
    return same, other


def _jobs(part: str, listed: Iterable[Form]) -> Iterator[Job]:
    return map(matrix.job, listed) if part == "matrix" else map(wgmma.job, listed)


def _forms(part: str) -> list[Form]:
    return forms() if part == "matrix" else wgmma.forms()


def _kind(form: Form) -> tuple[int, str, str]:
    """Forms that are carried out alike: sparse ones of other shapes take their metadata from other lanes."""
    return BITS[form.a], form.d, form.sparse and form.shape


@pytest.mark.parametrize("part", ["matrix", "wgmma"])
def test_matrix_instructions_are_hardwares(part: str) -> None:
    """On inputs that cancel, overflow, underflow and are special. Every day, one of each kind."""
    today = _part_of_each(_forms(part), _kind, days=12)
    same, other = _wrong(part, _jobs(part, today), Emulated(sums="hardware"))
    assert not other
    assert same or not _kept(part)


def test_sums_of_m8n8k4_are_hardwares() -> None:
    """Every day, one of each result: no other forms add in these orders."""
    listed = {form.d: form for form in forms() if form.volta}.values()
    same, other = _wrong("matrix", _jobs("matrix", listed), Emulated(sums="hardware"))
    assert not other
    assert same or not _kept("matrix")


@pytest.mark.parametrize(("part", "count"), [("matrix", 12), ("wgmma", 5)])
def test_the_model_of_sums_is_the_gpus(part: str, count: int) -> None:
    for form in _part([form for form in _forms(part) if model.applies(form)], count):
        (job,) = _jobs(part, [form])
        for _, hashes in _recorded(part, [job]):
            d = model.predicted(form, asynchronous=part == "wgmma")
            results = {"d": pack_all(d, form.d, form.layout("d"), form.registers("d"))}
            assert hashed(part, job, results) == hashes, job.name


class Checked(Emulated):
    """The emulator's checked build, adding as hardware does."""

    def start(self, kernel: Any, start: Start, args: list[Any], seconds: float) -> None:
        call = kernel.bind(start.grid, start.block, args, start.shared, device=self._device)
        check_bound(call.bound, {}, sums="hardware", timeout=seconds)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", ["matrix", "wgmma"])
def test_a_checked_build_adds_as_hardware_does(part: str) -> None:
    form = _RANDOM.choice([form for form in _forms(part) if model.applies(form)])
    (job,) = _jobs(part, [form])
    ours = Checked().run(job)
    assert not list(differences(part, job, Emulated(sums="hardware").run(job), ours)), form.name
    assert list(differences(part, job, Emulated(sums="fast").run(job), ours)), form.name


@pytest.mark.few(1)
@pytest.mark.parametrize("part", ["matrix", "wgmma"])
@pytest.mark.parametrize("target", targets.BELOW[:1], ids=targets.IDS[:1])
def test_hardwares_sums_on_a_cpu_of_few_features(part: str, target: CpuTarget) -> None:
    (job,) = _jobs(part, [_RANDOM.choice([form for form in _forms(part) if model.applies(form)])])
    (start,) = job.starts
    made = build_kernel(job.ptx, start.entry, start.block, target, None, "plain", "hardware")
    arrays = {name: array.copy() for name, array in job.buffers.items()}
    given = [arrays[name] for name in start.args]
    targets.run(made, start.grid, [array.ctypes.data.to_bytes(8, "little") for array in given], given)
    wanted = Emulated(sums="hardware").run(job)
    assert not list(differences(part, job, wanted, {"d": arrays["d"]})), job.name


def test_fast_sums_are_within_the_bound() -> None:
    """On numbers of like sizes, where all ways to add are good."""
    dense = [form for form in _forms("matrix") if model.applies(form) and not form.sparse]
    for form in _RANDOM.sample(dense, 3):
        words = Emulated(sums="fast").run(matrix.job(form))["d"][: matrix.TILES]
        bits = unpack_all(words, form.d, form.layout("d"), (form.m, form.n))
        a, b, c, _ = matrix.matrices(form)
        for tile in _RANDOM.sample(range(matrix.TILES), 4):
            d, left, right, start = (
                _numbers(values[tile], type_)
                for values, type_ in ((bits, form.d), (a, form.a), (b, form.b), (c, form.c))
            )
            left, right = np.hstack([left, np.eye(form.m)]), np.vstack([right, start])
            got = d.astype(NUMPY[form.d])
            assert tw.reference.compare(got, left, right, accumulate="float32"), form.name


def _numbers(bits: Array, type_: str) -> Array:
    if type_ == "tf32":
        bits = bits & np.uint64(0xFFFF_E000)
    found: Array = bits.astype(f"u{BITS[type_] // 8}").view(NUMPY[type_]).astype(np.float64)
    return found


# What the GPU does otherwise than the emulator, but for digits of NaN.
_DIFFERENT: set[str] = set()


def test_scalar_instructions() -> None:
    """Every day, some of each instruction in each domain."""
    wanted: dict[Case, str] = {}
    for group in scalar.groups():
        for _, hashes in _recorded("scalar", [scalar.job(group)]):
            wanted |= {case: hashes[case.text] for case in group.cases if case.text in hashes}
    today = _part_of_each((case for case in wanted if case.emulated), _instruction, days=5)
    other = {_name(case.text) for case, ours in _results(today) if digest(ours)[:16] != wanted[case]}
    assert other <= _DIFFERENT
    assert today or not _kept("scalar")


def _instruction(case: Case) -> tuple[str, ...]:
    return case.domain, *(part.split()[0].split(".")[0] for part in case.text.split(";")[:-1])


def _results(chosen: Iterable[Case]) -> Iterator[tuple[Case, Array]]:
    """What the emulator gives, without the digits of NaN."""
    emulator = Emulated()
    for group in scalar.groups(chosen):
        job = scalar.job(group)
        found = pieces("scalar", job, emulator.run(job))
        yield from ((case, found[case.text]) for case in group.cases)


def _name(text: str) -> str:
    """The name of the instruction that makes ``%d``."""
    return next(part.split()[0] for part in text.split(";") if "%d" in part)


# Approximate functions: how far the emulator may be from the GPU, both being within what the ISA allows.
_RELATIVE = {"ex2.f32": 2.0**-22, "rcp.f32": 2.0**-22, "rsqrt.f32": 2.0**-22, "sqrt.f32": 2.0**-22,
             "div.f32": 2.0**-20.9, "tanh.f32": 2.0**-16, "ex2.f16": 2.0**-9.9, "ex2.bf16": 2.0**-6.9,
             "rsqrt.f64": 2.0**-19.9, "rcp.f64": 2.0**-19.9}  # fmt: skip
_ABSOLUTE = {"lg2.f32": 2.0**-16.9, "sin.f32": 2.0**-19, "cos.f32": 2.0**-19, "tanh.f16": 2.0**-10.9,
             "tanh.bf16": 2.0**-7.9, "ex2.f16": 2.0**-23.9}  # fmt: skip
_KINDS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def test_approximate_functions() -> None:
    file = KEPT / "near.npz"
    kept = dict(np.load(file)) if file.exists() else {}
    recorded = {job.name for job, _ in _recorded("scalar", scalar.jobs())}
    groups = [group for group in scalar.groups() if group.name in recorded]
    near = [case for group in groups for case in group.cases if case.text in kept]
    assert len(near) > 20 or not kept
    for case, ours in _results(near):
        assert not _far(case, ours, kept[case.text]).any(), case.text


def _far(case: Case, ours: Array, theirs: Array) -> Array:
    text = case.text
    kind = result_type(text).removesuffix("x2")
    name = f"{text.split('.')[0]}.{kind}"
    a, b = (calmed(bits, kind).view(_KINDS[kind]).astype(np.float64) for bits in (ours, theirs))
    with np.errstate(invalid="ignore", over="ignore"):
        bound = np.abs(b) * _RELATIVE.get(name, 0) + _ABSOLUTE.get(name, 0)
        near = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
        near &= (a != 0) | (b != 0) | (np.signbit(a) == np.signbit(b))
        if name in ("sin.f32", "cos.f32"):  # farther out they are nobody's promise
            near |= ~(np.abs(scalar.operands(case.domain)[0].view(np.float32)) <= 2 * np.pi)
    found: Array = ~near
    return found


def test_random_programs() -> None:
    """Some of them, others each time."""
    file, emulator = KEPT / "programs.json.gz", Emulated()
    kept = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else []
    for row in _RANDOM.sample(kept, min(3, len(kept))):
        job = random_programs.restored(row)
        assert [*hashed("programs", job, emulator.run(job)).values()] == row["hashes"], f"seed {row['name']}"


def _by_text(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Those with the same PTX together: it is compiled once."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["text"], []).append(row)
    return list(found.values())


_CORES = ("10", "12")


@pytest.mark.few(1)
@pytest.mark.parametrize(("cores", "count"), [(True, 1), (False, 2)])
def test_the_ladder(cores: bool, count: int) -> None:
    """The PTX that a GPU ran gives the GPU's sums, to the last bit."""
    rows = [row for row in _rungs() if row["about"]["rung"].startswith(_CORES) == cores]
    emulator = Emulated(sums="hardware")
    for row in (row for listed in _part(_by_text(rows), count) for row in listed):
        job = ladder.restored(row)
        assert hashed("ladder", job, emulator.run(job)) == row["hashes"], job.name


def test_fast_sums_of_a_rung_are_within_the_bound() -> None:
    rows = [row for row in _rungs() if row["about"]["rung"].startswith(_CORES)]
    for row in _part(rows, 1):
        job = ladder.restored(row)
        c = Emulated(sums="fast").run(job)["c"]
        kept = row["about"]["settings"].get("accumulate", "float32")
        compared = tw.reference.compare(c, job.buffers["a"], job.buffers["b"], accumulate=kept)
        assert compared, (job.name, compared)


def test_the_rules_of_wavefronts() -> None:
    """Every recorded access of known addresses: the rule is the counter."""
    file = KEPT / "counters.json"
    groups = json.loads(file.read_text())["groups"] if file.exists() else {}
    name = "smsp__sass_l1tex_pipe_lsu_wavefronts_mem_shared.sum"
    rows = [row for group in groups.values() for row in group["rows"] if row["entry"] in WIDTHS]
    assert not groups or len(rows) > 300
    for row in rows:
        # The compiler makes one ldmatrix of all turns, since they read the same.
        turns = 1 if row["entry"].startswith("ldmatrix") else 16
        assert row["counts"][name] == turns * wavefronts(row["entry"], row["about"]["offsets"]), row["launch"]


# -- sums of hardware where nothing was recorded ----------------------------------------------------
def test_wmma_adds_as_mma_does() -> None:
    """All k of a fragment are one group; where C is wider than D, D is rounded from what C's type holds."""
    raw = Raw(_RANDOM.getrandbits(32))
    of = FORMATS["f16"]
    a, b = (of.make(raw, -7, 7, (16, 16)) for _ in range(2))
    for d_type, c_type in (("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")):
        c = FORMATS[c_type].make(raw, -9, 3, (16, 16))
        given = [bits.astype(f"u{size // 8}") for bits, size in ((a, 16), (b, 16), (c, BITS[c_type]))]
        d = np.zeros((16, 16), f"u{BITS[d_type] // 8}")
        kernel = tw.Kernel.from_ptx(_wmma(d_type, c_type), "k")
        kernel(1, 32, [*given, d], device=tw.device("emulator", sums="hardware"))
        out = "f16" if d_type == c_type == "f16" else "f32"
        want = model.fused(a, b, c, c_type, out)
        if d_type != out:
            with np.errstate(over="ignore"):
                want = want.astype("u4").view(np.float32).astype(np.float16).view("u2")
        assert (d == want).all(), (d_type, c_type)


# Of bf16: in the first number of a pair and in the second, four products of each.
EIGHT = """.version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 x, .param .u64 y) {
.reg .b64 %x, %y, %i; .reg .b32 %b, %t, %u; .reg .f32 %f<4>; mov.u32 %b, %ctaid.x; mul.wide.u32 %i, %b, 8;
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; add.u64 %x, %x, %i; ld.global.v2.b32 {%t, %u}, [%x];
mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%t, %t}, {%u}, {0f00000000, 0f00000000, 0f00000000, 0f00000000};
mul.wide.u32 %i, %b, 4; add.u64 %y, %y, %i; st.global.f32 [%y], %f3; ret; }"""


def test_products_near_the_ends_of_the_exponents_are_exact() -> None:
    """Of bf16: eight products of 1.5·2^i and 1.25·2^j, which a float holds, and nothing added to them."""
    sums = np.array([*range(-140, -95), *range(95, 124)])
    left = np.clip(sums // 2 + _RANDOM.randint(-9, 9), -126, 120)
    right = np.clip(sums - left, -126, 120)
    a, b = 1.5 * 2.0**left, 1.25 * 2.0**right
    pairs = np.stack([a, b], 1).astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32) * 0x10001
    y = np.zeros(len(sums), np.float32)
    tw.Kernel.from_ptx(EIGHT, "k")(len(sums), 32, [pairs, y], device=tw.device("emulator", sums="hardware"))
    assert (y == (8 * a * b).astype(np.float32)).all()


def test_a_subnormal_sum_is_cut_off_at_the_last_place_of_a_float() -> None:
    """2^-127 + 3 · 2^-150, whose last bit a float of that size has no place for."""
    a, b = np.array([2.0**-64, 1.5 * 2.0**-75]), np.array([2.0**-65, 2.0**-76])
    pairs = np.stack([a, b]).astype(ml_dtypes.bfloat16).view(np.uint32)
    y = np.zeros(1, np.float32)
    tw.Kernel.from_ptx(EIGHT, "k")(1, 32, [pairs, y], device=tw.device("emulator", sums="hardware"))
    assert y[0] == np.float32(2.0**-127 + 2.0**-149)


@pytest.mark.parametrize("aside", [1.0, np.inf])
def test_what_rounds_to_zero_has_no_sign(aside: float) -> None:
    """Sums about half of the least number that f16 has, which is 2**-24; by the quick way and by the sure one."""
    shares = np.array([0.5, 1.0, 1.0 + 2.0**-10, 1.5, 2.0, 3.0, 3.0 - 2.0**-9])  # of 2**-25
    a, b, c, d = (np.zeros((16, 16), np.float16) for _ in range(4))
    a[:7, 0], a[8:15, 0], a[15, 0] = -shares * 2.0**-12, shares * 2.0**-12, aside
    b[0] = 2.0**-13
    kernel = tw.Kernel.from_ptx(_wmma("f16", "f16"), "k")
    kernel(1, 32, [a, b, c, d], device=tw.device("emulator", sums="hardware"))
    wanted = np.array([0, 0, 1, 1, 1, 2, 1], np.uint16)
    assert (d.view(np.uint16)[:7] == (wanted | np.where(wanted, 0x8000, 0))[:, None]).all()
    assert (d.view(np.uint16)[8:15] == wanted[:, None]).all()
    left, right, start = (item.view(np.uint16).astype(np.uint64) for item in (a, b, c))
    assert (d.view(np.uint16) == model.fused(left, right, start, "f16", "f16")).all()


@pytest.mark.parametrize("aside", [1.0, np.inf])
def test_what_a_float_has_no_place_for_decides_between_neighbours_of_f16(aside: float) -> None:
    """1,024.5 and 1,025.5 lie between two of them, and 2**-15 is a place that the sum still has."""
    a, b, c, d = (np.zeros((16, 16), np.float16) for _ in range(4))
    whole, tiny = np.array([1024, 1024, 1024, 1025, 1025, 1025, 1024]), np.array([-1, 0, 1, -1, 0, 1, 1])
    a[:7, 0], a[:7, 1], a[:7, 2], a[15, 0] = whole, 0.5, tiny * 2.0**-8, aside
    a[6] *= -1
    b[0], b[1], b[2] = 1, 1, 2.0**-7
    kernel = tw.Kernel.from_ptx(_wmma("f16", "f16"), "k")
    kernel(1, 32, [a, b, c, d], device=tw.device("emulator", sums="hardware"))
    assert (d[:7] == np.array([1024, 1024, 1025, 1025, 1026, 1026, -1025])[:, None]).all()


def test_a_short_sum_without_products_is_cut_off_too() -> None:
    """Of 8-bit factors, by wgmma: a float has 13 places, C's own among them, though all factors are zero."""
    text = """
.version 8.0 .target sm_90a .address_size 64 .visible .entry k(.param .u64 x) {
.shared .align 128 .b8 s[2048]; .reg .b64 %at, %off, %d; .reg .b32 %s; .reg .f32 %f<4>; .reg .b32 %z;
mov.u32 %s, s; mad.lo.u32 %s, %tid.x, 16, %s; mul.wide.u32 %off, %tid.x, 4; ld.param.u64 %at, [x]; add.u64 %at, %at, %off; ld.global.f32 %f0, [%at];
mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.u32 %z, 0;
st.shared.v4.u32 [%s], {%z, %z, %z, %z}; fence.proxy.async; bar.sync 0;
mov.b64 %d, 0x1000080000; wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0, %f1, %f2, %f3}, %d, %d, 1, 1, 1;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; st.global.f32 [%at], %f0; ret; }"""
    c = np.random.default_rng().standard_normal(128).astype(np.float32)
    c[::9] = 0.0
    x = np.where(np.arange(128) % 2, -np.abs(c), c)  # half of the zeros have a sign, which they lose
    c = np.where(c == 0, c, x)
    tw.Kernel.from_ptx(text, "k")(1, 128, [x], device=tw.device("emulator", sums="hardware"))
    assert (x.view(np.uint32) == c.view(np.uint32) & 0xFFFF_FC00).all() and (x != c).any()


def _wmma(d: str, c: str) -> str:
    kinds = {"a": "f16", "b": "f16", "c": c, "d": d}
    counts = {"a": 8, "b": 8} | {name: {"f16": 4, "f32": 8}[kinds[name]] for name in "cd"}
    listed = {name: ", ".join(f"%{name}{i}" for i in range(count)) for name, count in counts.items()}
    loads = [
        f"wmma.load.{name}.sync.aligned.row.m16n16k16.global.{kinds[name]} {{{listed[name]}}}, [%p{i}], 16;"
        for i, name in enumerate("abc")
    ]
    registers = [f".reg .{'f32' if kinds[name] == 'f32' else 'b32'} {listed[name]};" for name in "abcd"]
    return "\n".join([
        ".version 8.0", ".target sm_80", ".address_size 64",
        f".visible .entry k({', '.join(f'.param .u64 x{i}' for i in range(4))}) {{", ".reg .b64 %p<4>;", *registers,
        *(f"ld.param.u64 %p{i}, [x{i}];" for i in range(4)), *loads,
        f"wmma.mma.sync.aligned.row.row.m16n16k16.{d}.{c} {', '.join(f'{{{listed[n]}}}' for n in 'dabc')};",
        f"wmma.store.d.sync.aligned.row.m16n16k16.global.{d} [%p3], {{{listed['d']}}}, 16;", "ret;", "}", "",
    ])  # fmt: skip


def test_rungs_whose_instructions_group_alike_give_the_same_bits() -> None:
    """16 of k at a time, by mma and by wgmma."""
    a, b = (
        np.random.default_rng().standard_normal(shape).astype("float16") for shape in ((70, 90), (90, 60))
    )
    device = tw.device("emulator", sums="hardware")
    c, d = (tw.ladder[name](a, b, device=device) for name in ("12_multistage", "13_warp_specialised"))
    assert c.dtype == d.dtype == np.float16
    assert (c == d).all()


# -- what needs no record ---------------------------------------------------------------------------
@pytest.mark.parametrize("number", range(3))
def test_tiles_come_back_from_registers(number: int) -> None:
    form = _RANDOM.choice(forms())
    layout = form.layout("c")
    c = matrix.matrices(form)[2]
    words = pack_all(c, form.c, layout, form.registers("c"))
    assert np.array_equal(unpack_all(words, form.c, layout, c.shape[1:]), c)


def test_a_difference_is_noticed() -> None:
    job = matrix.job(_RANDOM.choice(forms()))
    ours = Emulated().run(job)
    assert not list(differences("matrix", job, ours, ours))
    flipped = ours["d"] ^ ours["d"].dtype.type(1)
    # NOTE: of a NaN only that it is one is compared: another bit of it is no difference.
    calm = [np.concatenate([*pieces("matrix", job, {"d": bits}).values()]) for bits in (ours["d"], flipped)]
    seen = [bits.ravel().view(flipped.dtype) for bits in calm]  # where halves are packed: words again
    place = _RANDOM.choice(np.flatnonzero(seen[0] != seen[1]))
    theirs = {"d": ours["d"].copy()}
    theirs["d"].flat[place] = flipped.flat[place]
    (found,) = differences("matrix", job, theirs, ours)
    assert 0.99 < found.equal < 1
    assert hashed("matrix", job, theirs) != hashed("matrix", job, ours)


def test_jobs_are_the_same_whoever_makes_them() -> None:
    """What compilers write beside the code is no part of a job, and a rung comes back as it was stored."""
    ptx = ".visible .entry k(.param .u64 a)\n{\nret;\n}\n"
    told = '// made elsewhere\n.file 1 "there.cu"\n' + ptx.replace("ret", "\t.loc 1 2 3\n\nret")
    kinds = {"a": "float16", "b": "float16", "c": "float32", "w": "uint8"}
    buffers: dict[str, Array] = {name: np.ones((2, 2), kind) for name, kind in kinds.items()}
    starts = [Start("k", (1, 1, 1), (32, 1, 1), [Matrix("a", 2, 2), "w", np.uint32(7)])]
    about = {"size": (2, 2, 2)}
    one, other = (Job("k", text, starts, buffers, ["c"], None, about) for text in (ptx, told))
    assert one.inputs == other.inputs
    again = ladder.restored(json.loads(json.dumps(ladder.stored(other))))
    assert [str(start) for start in again.starts] == [str(start) for start in starts]
    assert again.ptx == bare(ptx) and np.isnan(again.buffers["c"]).all()


def test_random_words_are_the_generators_own() -> None:
    """NumPy promises these for ever, and nothing about the distributions made of them."""
    wanted: Array = np.random.PCG64([5, 6]).random_raw(6)
    assert np.array_equal(Raw(5, 6).words(2, 3).ravel(), wanted)


def test_the_profilers_page_is_read() -> None:
    text = (
        "==PROF== Connected to process 7\n"
        '"ID","Kernel Name","smsp__inst_executed.sum","memory_l1_wavefronts_shared"\n'
        '"","","inst",""\n"0","k(int *)","1,024","n/a"\n'
    )
    (row,) = profile.read(text)
    assert profile.trimmed(row) == {"smsp__inst_executed.sum": 1024.0}
    with pytest.raises(ValueError, match="nothing was counted"):
        profile.read("==ERROR== no permission")
