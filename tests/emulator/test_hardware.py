"""The emulator against what a GPU answered, where that was recorded (``tests/golden/hardware``).

``python -m tests.hardware.record`` asks a GPU, ``python -m tests.hardware.keep`` keeps what it said.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.fragments import Form
from tests.hardware import ladder, matrix, model, profile, random_programs, scalar, wgmma
from tests.hardware.compare import calmed, differences, result_type
from tests.hardware.floats import FORMATS
from tests.hardware.job import Array, Job, Raw
from tests.hardware.keep import KEPT, hashed
from tests.hardware.machine import Emulated
from tests.hardware.matrix import forms, pack_all, unpack_all
from tests.hardware.rules import WIDTHS, wavefronts

_RANDOM = random.Random()


def _recorded(part: str) -> dict[str, Any]:
    """What is kept of a part: nothing where no GPU was asked."""
    file = KEPT / "hashes.json"
    found: dict[str, Any] = json.loads(file.read_text()).get(part, {}) if file.exists() else {}
    return found


def _wrong(part: str, jobs: Iterable[Job]) -> tuple[set[str], set[str]]:
    """Pieces of jobs in which the emulator and the GPU agree, bit for bit, and those in which they do not."""
    kept, emulator = _recorded(part), Emulated()
    same: set[str] = set()
    other: set[str] = set()
    for job in jobs:
        if job.name not in kept:
            continue
        wanted = kept[job.name]
        assert job.inputs.startswith(wanted["inputs"]), (
            f"{job.name} was recorded with other inputs: record it again"
        )
        ours = hashed(part, job, emulator.run(job))
        for piece, value in wanted["hashes"].items():
            name = piece if part == "scalar" else f"{job.name} {piece}"
            (same if ours[piece] == value else other).add(name)
    return same, other


def _differs(form: Form) -> bool:
    """Sums of floats: the emulator adds one product after the other, the GPU a group of them at once."""
    return form.a in FORMATS and form.a != "f64"


@pytest.mark.parametrize("part", ["matrix", "wgmma"])
def test_matrix_instructions(part: str) -> None:
    made = matrix.jobs() if part == "matrix" else wgmma.jobs()
    listed = zip(forms() if part == "matrix" else wgmma.forms(), made, strict=True)
    _, other = _wrong(part, [job for form, job in listed if not _differs(form)])
    assert not other


@pytest.mark.parametrize("part", ["matrix", "wgmma"])
def test_the_model_of_sums_is_the_gpus(part: str) -> None:
    """Every bit of every tensor core form, on inputs that cancel, overflow, underflow and are special."""
    kept = _recorded(part)
    for form in forms() if part == "matrix" else wgmma.forms():
        name = matrix.key(form) if part == "matrix" else matrix.key(form).replace("mma", "wgmma", 1)
        if not model.applies(form) or name not in kept:
            continue
        d = model.predicted(form, asynchronous=part == "wgmma")
        results = {"d": pack_all(d, form.d, form.layout("d"), form.registers("d"))}
        found = hashed(part, matrix.job(form), results)
        assert found == kept[name]["hashes"], name


def test_the_emulators_sums_are_near_the_gpus() -> None:
    """On numbers of like sizes, where all ways to add are good."""
    for form in _RANDOM.sample([form for form in forms() if model.applies(form)], 6):
        words = Emulated().run(matrix.job(form))["d"][: matrix.TILES]
        bits = unpack_all(words, form.d, form.layout("d"), (form.m, form.n))
        kind, word = (np.float16, np.uint16) if form.d == "f16" else (np.float32, np.uint32)
        ours = bits.astype(word).view(kind).astype(np.float64)
        theirs = model.predicted(form)[: matrix.TILES].astype(word).view(kind).astype(np.float64)
        # Of 32 products of up to 2**6 each, and C.
        assert np.abs(ours - theirs).max() < (4.0 if form.d == "f16" else 2.0**-10), form.name


# What the GPU does otherwise than the emulator, and why.
_DIFFERENT = {
    # A result below the smallest normal number before it is rounded is flushed, even if it rounds to that.
    *(f"{name}.{mode}.ftz.f32" for name in ("mul", "fma") for mode in ("rn", "rm", "rp")),
    "div.rm.ftz.f32", "div.rp.ftz.f32", "fma.rn.ftz.sat.f32",
    *(f"{name}.{kind}" for kind in ("f16", "f16x2")
      for name in ("mul.rn.ftz.sat", "fma.rn.ftz", "fma.rn.ftz.sat", "fma.rn.ftz.relu")),
    "cvt.rna.tf32.f32",  # which cuts a NaN's digits off too: of some an infinity is left
    "fns.b32",  # with an offset of -2**31
    "bfe.u64", "bfe.s64", "bfi.b64",  # with a place or length above 255, which PTX leaves open
}  # fmt: skip


def test_scalar_instructions() -> None:
    jobs = [job for job in scalar.jobs() if "-more" not in job.name]
    same, other = _wrong("scalar", jobs)
    texts = {text: _name(text) for text in same | other}
    assert {texts[text] for text in other} <= _DIFFERENT
    plain = {texts[text] for text in same} - {texts[text] for text in other}
    assert not plain & _DIFFERENT - {"bfe.u64", "bfe.s64", "fns.b32"}, (
        "no longer different: take it off the list"
    )


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
    file, emulator = KEPT / "near.npz", Emulated()
    kept = dict(np.load(file)) if file.exists() else {}
    for job in (job for job in scalar.jobs() if "-more" not in job.name):
        texts = [text for text in job.about["texts"] if text in kept]
        results = emulator.run(job) if texts else {}
        for text in texts:
            ours = results[f"o{job.about['texts'].index(text)}"]
            assert not _far(text, job, ours, kept[text]).any(), text


def _far(text: str, job: Job, ours: Array, theirs: Array) -> Array:
    kind = result_type(text).removesuffix("x2")
    name = f"{text.split('.')[0]}.{kind}"
    a, b = (calmed(bits, kind).view(_KINDS[kind]).astype(np.float64) for bits in (ours, theirs))
    with np.errstate(invalid="ignore", over="ignore"):
        bound = np.abs(b) * _RELATIVE.get(name, 0) + _ABSOLUTE.get(name, 0)
        near = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
        if name in ("sin.f32", "cos.f32"):  # farther out they are nobody's promise
            near |= ~(np.abs(job.buffers["a"].view(np.float32)) <= 2 * np.pi)
        if kind == "f64":  # of which they see the upper half: what is a NaN by its lower half is an infinity
            near |= np.isnan(a)
    found: Array = ~near
    return found


def test_random_programs() -> None:
    """Some of them, others each time."""
    file, emulator = KEPT / "programs.json.gz", Emulated()
    kept = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else []
    for row in _RANDOM.sample(kept, min(25, len(kept))):
        job = random_programs.restored(row)
        assert [*hashed("programs", job, emulator.run(job)).values()] == row["hashes"], f"seed {row['name']}"


def test_the_ladder() -> None:
    """Sums of the SIMT rungs are the GPU's to the last bit, where the PTX is what was recorded."""
    kept = _recorded("ladder")
    jobs = [job for job in ladder.jobs() if kept.get(job.name, {}).get("inputs", "?") == job.inputs[:16]]
    simt = [job for job in jobs if job.about["rung"] not in ("10_turing_tensor_core", "12_multistage")]
    assert not _wrong("ladder", _RANDOM.sample(simt, min(12, len(simt))))[1]


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
    theirs = {"d": ours["d"].copy()}
    place = _RANDOM.randrange(theirs["d"].size)
    theirs["d"].flat[place] ^= theirs["d"].dtype.type(1)
    (found,) = differences("matrix", job, theirs, ours)
    assert 0.99 < found.equal < 1
    assert hashed("matrix", job, theirs) != hashed("matrix", job, ours)


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
