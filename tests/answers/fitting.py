"""Constants of the cost model: measured plans as they are read, how good choices are by them, and what is searched."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.answers.choices import drawn
from tests.answers.drawn import TYPES
from tilewise.gpus import GPUS, find
from tilewise.kernels import KERNELS
from tilewise.kernels.gemm.arrange import ways_to_read
from tilewise.kernels.gemm.real_form import is_complex
from tilewise.planner import fit, list_candidates, operands_of, search, target_of
from tilewise.planner.constants import EMULATOR, FITTED, Constants, UnitCost, scaled
from tilewise.planner.fit import Measured, Quality, get_constant, set_constants

LINES = f"""
read_plans(date=«None|'2026-11-26'|'2026-11-27'|'2026-11-27T03'|'2026-11-27T04'|'2026-11-27T16'|'2026-11-27T17'|'2026-12-01'», dtype=«'bfloat16'|'float32'|'float8_e4m3fn'», layout=«'nt'|'tn'»)
read_plans(scaled=«True|False», batch=«1|3», named=«True|False», b_dtype=«None|'int8'»)
read_plans(gpu=«'NVIDIA H200, 1'|'NVIDIA H200'|'Tesla T4, x'|'other'»)
fit.judge(measured(«1|2|5», «1.0|1.3»), target_of(«'h200'|'t4'»)).errors
quality([«1.0|1.05|2.0», «1.0|1.0501|1.5»], «(0.1,)|(0.1, 0.3)|(0.1, 0.3, 0.2)»)
search.loss(search.group(measured(«1|3», «1.0|1.04|1.3», «1.0|1.04|1.06|1.11|1.13|1.24|1.26|1.69|1.71»), «'wgmma_gemm'|'simt'|'none'»), target_of('h200'))
[len(one) for one in search.group(measured(2, 1.0, «1.0|1.3|3.0»)).values()]
search.UNITS, search.MOST, search.STEPS, search.MARGINS
fit._names(FITTED[«{"|".join(map(repr, sorted(FITTED)[:3]))}»])
used(«1|2»)
[get_constant(set_constants(FITTED['h200'], {{«'launch'|'wgmma_gemm.waits'|'watts'»: 5.0}}), name) for name in ('launch', 'wgmma_gemm.waits', 'watts')]
get_constant(FITTED['h200'], «'x'|'x.waits'|'wgmma_gemm.x'»)
[f"{{one:.3g}}" for one in fit._least_squares(lambda at: np.array([at[0] - «3|0.1», at[1] * at[0] - «6|-2», 0.1 * at[1]]), np.array([1.0, «1.0|-4.0»]))]
fitted('«launch|wgmma_gemm.macs_per_clock|memory_bandwidth»')
others_than_h200('«h100-sxm|h100-nvl|h100-pcie|h800-sxm|gh200|none»')
others_than_h200('«{"|".join(name for name in GPUS if name not in FITTED)}»')
others_than_h200('emulator')
[closely(«{"|".join(map(repr, TYPES[:9]))}», «1|2|3|4|5|6»)]
"""


def measured(problems: int, off: float, spread: float = 1.0) -> list[Measured]:
    """Plans of some problems, each with a time that is off from the predicted one by so much, every other by more."""
    target, found = target_of("h200"), []
    for number in range(problems):
        operands = operands_of(300 << number, 512, 1024 << number, dtype="bfloat16", layout="nt")
        for i, one in enumerate(list_candidates(operands, target)[0][:6]):
            inner = one.operands.inner(one.spec.stack_axes)
            work = one.spec.work(inner, one.settings)
            seconds = one.prediction.seconds * off * (spread if i % 2 else 1.0)
            found.append(
                Measured("run", operands.problem(), one.spec.name, one.settings, seconds, one.operands, inner, operands, work)
            )  # fmt: skip
    return found


def read_plans(
    date: str | None = None, gpu: str = "NVIDIA H200, 1", dtype: str = "bfloat16", named: bool = True, **given: Any
) -> Any:  # fmt: skip
    """Plans that a file has, as they are read, with their times as they are predicted."""
    layout = {name: value for name, value in given.items() if name != "scaled" and value not in (None, 1)}
    operands = operands_of(1000, 384, 520, dtype=dtype, **layout)
    plans, names = [], {}
    for one in list_candidates(operands, target_of("h200"))[0][:12]:
        settings = dict(one.settings)
        names[one.spec.name] = list(settings)
        plans.append(
            [one.spec.name, settings if named else list(settings.values()), one.prediction.seconds * 1e6]
        )
    entry = {
        "size": [1000, 384, 520],
        "dtype": dtype,
        "plans": plans,
        "scaled": given.get("scaled", False),
        **layout,
    }
    data = {"gpu": gpu, "settings": names, "problems": [entry]} | ({"date": date} if date else {})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plans.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        found = fit.read_of_gpu([path], "h200")
    target = target_of("h200")
    return [
        (
            one.run,
            one.kernel,
            one.settings,
            f"{one.predict(target):.3g}",
            one.work,
            one.operands.a,
            one.operands.b,
        )
        for one in found
    ]


def used(problems: int) -> list[str]:
    """The constants that the data says something of."""
    plans = measured(problems, 1.0)
    return [name for name in fit._names(FITTED["h200"]) if fit._used(name, plans)]


def quality(ratios: list[float], errors: tuple[float, ...]) -> Any:
    problem = operands_of(3, 4, 5).problem()
    found = Quality({(str(i), problem): one for i, one in enumerate(ratios)}, errors)
    return str(found), found.within(1.05), found.worst, found.mean, found.median_error


def fitted(name: str) -> Any:
    """A constant that is found again where it was changed."""
    target = target_of("h200")
    changed = set_constants(target.constants, {name: get_constant(target.constants, name) * 1.5})
    plans = [
        replace(one, seconds=one.predict(replace(target, constants=changed))) for one in measured(1, 1.0)
    ]
    return f"{get_constant(fit.fit(plans, target), name) / get_constant(changed, name):.2f}"


def others_than_h200(gpu: str) -> list[str]:
    """What the cost model knows of a GPU that was not measured, or is in no table, and does not know so of an H200: most as a
    multiple of that; and all that it knows of the emulator."""
    known = FITTED["h200"]
    own = EMULATOR if gpu == "emulator" else scaled(None if gpu == "none" else find(gpu))
    pairs: list[tuple[str, Constants | UnitCost, Constants | UnitCost]] = [("", own, known)]
    pairs += [(f"{name}.", unit, known.units[name]) for name, unit in own.units.items()]
    assert own.units.keys() == known.units.keys()
    return [told for name, one, other in pairs for told in _differences(name, one, other, gpu == "emulator")]


def _differences(
    name: str, one: Constants | UnitCost, other: Constants | UnitCost, whole: bool
) -> Iterator[str]:
    for field in fields(one):
        new, old = getattr(one, field.name), getattr(other, field.name)
        if field.name != "units" and (whole or new != old):
            alike = not whole and np.isfinite(new) and np.isfinite(old) and old
            yield f"{name}{field.name} {f'× {new / old:.5g}' if alike else new}"


def closely(kind: str, number: int) -> Any:
    """Copies with their lines as near as they may be."""
    operands = drawn(kind, number)
    for spec in KERNELS.values() if not is_complex(operands) else ():
        read = ways_to_read(spec, operands)[-1][0]
        if read.a.name.startswith("copy_") or read.b.name.startswith("copy_"):
            return [fit._copied_closely(one) for one in (read.a, read.b)]
    return None
