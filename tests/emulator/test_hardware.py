"""The emulator against what a GPU answered, where that was recorded (``tests/golden/hardware``).

``python -m tests.hardware.record`` asks a GPU, ``python -m tests.hardware.keep`` keeps what it said.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.hardware import ladder, matrix, profile, random_programs, scalar, wgmma
from tests.hardware.compare import differences
from tests.hardware.job import Array, Job, Raw
from tests.hardware.keep import KEPT, hashed
from tests.hardware.machine import Emulated
from tests.hardware.matrix import forms, pack_all, unpack_all

_RANDOM = random.Random()


def _recorded(part: str) -> dict[str, Any]:
    """What is kept of a part: nothing where no GPU was asked."""
    file = KEPT / "hashes.json"
    found: dict[str, Any] = json.loads(file.read_text()).get(part, {}) if file.exists() else {}
    return found


def _wrong(part: str, jobs: Iterable[Job], known: frozenset[str] = frozenset()) -> list[str]:
    """Pieces of jobs in which the emulator and the GPU do not agree, bit for bit."""
    kept, emulator, found = _recorded(part), Emulated(), []
    for job in jobs:
        if job.name not in kept:
            continue
        wanted = kept[job.name]
        if not job.inputs.startswith(wanted["inputs"]):
            found.append(f"{job.name}: recorded with other inputs; record it again")
            continue
        ours = hashed(part, job, emulator.run(job))
        found += [f"{job.name}: {piece}" for piece, value in wanted["hashes"].items()
                  if ours[piece] != value and piece not in known]  # fmt: skip
    return found


def test_matrix_instructions() -> None:
    assert not _wrong("matrix", matrix.jobs())


def test_asynchronous_products() -> None:
    assert not _wrong("wgmma", wgmma.jobs())


def test_scalar_instructions() -> None:
    assert not _wrong("scalar", scalar.jobs())


def test_random_programs() -> None:
    """Some of them, others each time."""
    kept, emulator = _recorded("programs"), Emulated()
    for name in _RANDOM.sample(sorted(kept), min(40, len(kept))):
        job = random_programs.job(int(name))
        if job.inputs.startswith(kept[name][0]):
            assert [*hashed("programs", job, emulator.run(job)).values()] == kept[name][1:], f"seed {name}"


def test_the_ladder() -> None:
    assert not _wrong("ladder", ladder.jobs())


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
