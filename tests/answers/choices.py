"""The planner: of products drawn at random which kernel is chosen on which GPU, in what time, and why none is; what would
shorten it; and plans that were measured, as they are kept."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import tilewise as tw
from tests.answers.drawn import TYPES, Draw, draw_operands
from tests.answers.shown import show
from tilewise.errors import ArgumentError
from tilewise.kernels import KERNELS
from tilewise.planner import (
    PlanVerdict,
    Prediction,
    choose,
    judge_plan,
    list_candidates,
    list_plans,
    measured,
    operands_of,
    target_of,
)
from tilewise.planner.constants import FITTED
from tilewise.planner.measured import KeptPlan, describe_operands
from tilewise.planner.target import Target
from tilewise.toolchain import cache

GPUS = ("h200", "a100-sxm-80gb", "t4", "rtx-4090", "b200", "h100-pcie", "v100-sxm-16gb", "rtx-2060", "l4")
DRAWN = "\n".join(f"chosen({kind!r}, «0|1|2|3|4|5|6|7|8|9|10|11»)" for kind in TYPES)
RANKED = "\n".join(f"ranked({kind!r}, 50)" for kind in TYPES)
LINES = f"""
{DRAWN}
{RANKED}
given('«wgmma|mma|simt|general|vector|04_tiled|13_warp_specialised»', «'h200'|'t4'|'a100-sxm-80gb'», **«{{}}|{{'stages': 4}}|{{'partition': '128x128x32'}}|{{'x': 1}}|{{'split': 2}}|{{'tile': 16}}|{{'partition': 'none'}}»)
tw.plan(«64|0|-1|2**31», «48|1», 32, gpu=«'h200'|'t4'|'v100-sxm-16gb'|'none'|5»)
tw.plan(64, 48, 64, dtype=«'float32'|'bfloat16'|'float8_e4m3fn'|'int4'|'float64'», gpu=«'h200'|'t4'|'rtx-4090'|'a10g'», copy=«None|True|False», layout=«'nn'|'tt'»)
tw.plan(64, 48, 64, dtype='bfloat16', result=«None|'float32'|'int8'|'int32'», arithmetic=«None|'tf32'|'bf16'», gpu=«'h200'|'t4'»)
tw.plan(64, 48, 64, batch=«1|2|1025», pointers=«False|True», groups=«0|3», dtype=«'float32'|'float16'|'complex64'»)
[(refusal.kernel, refusal.error) for refusal in list_plans(operands_of(64, 64, 64, dtype=«'float32'|'float16'|'int32'|'complex128'|'float8_e5m2'», arithmetic=None), target_of(«'h200'|'t4'|'titan-v'»), copy=«None|False»)[1]]
[[verdict.lines(), rounded(verdict)] for verdict in [judge_plan(operands_of(«100|1000|1», «60|1001», «1000|4097», dtype=«'bfloat16'|'float32'|'int8'», layout=«'nn'|'tn'»), target_of(«'h200'|'a100-sxm-80gb'»))]]
PlanVerdict('h200', 'simt', 2e-6, 'math', 1e12, «(('math', 1e-6), ('memory', 5e-7), ('power', 1e-7))|(('launch', 2e-6),)», ()).lines()
describe_operands(drawn(«{"|".join(map(repr, TYPES[:8]))}», «1|2|3|4|5»))
kept(lambda one: KeptPlan.from_dict(asdict(one) | «{{}}|{{'copies': ['a']}}|{{'copies': ['a'], 'x': 1}}|{{'copies': ['a'], 'seconds': 1}}|{{'copies': ['a'], 'kernel': 5}}|{{'copies': ['a'], 'settings': []}}|{{'copies': ['a'], 'plans': 1.5}}|{{'copies': ['a'], 'date': None}}»))
files(lambda path: measured.read(path / «'none'|''»))
files(lambda path: ((path / 'f').write_text(«'{{}}'|'[]'|'x'|'{{"format": 1}}'|'{{"format": 1, "plans": {{}}}}'|'{{"format": 2, "plans": {{}}}}'|'{{"format": 1, "plans": {{"a": {{}}}}}}'|'{{"format": 1, "plans": 5}}'»), measured.read(path / 'f'))[1])
stored(«[]|[('a', '2026-01-01')]|[('a', '2026-01-01'), ('a', '2026-01-02')]|[('a', '2026-01-02'), ('a', '2026-01-01')]|[('b', '1'), ('a', '1')]|[('a', '2', 'other'), ('a', '1')]|[('a', '1'), ('a', '2', 'other')]»)
merged(«True|False», «None|'x'»)
recalled(«'same'|'other settings'|'other versions'|'other operands'|'damaged'|'none'»)
[measured.file_of(replace(target_of('h200'), name=«'h200'|'NVIDIA H200 (x)'|'Ünicode 5!'», sms=«132|1»)).name]
sorted(FITTED), {{name: count_of(name) for name in GPUS}}
"""


def drawn(kind: str, number: int) -> Any:
    """Operands of a kind; one that is refused is drawn again."""
    draw = Draw((kind, number))
    while isinstance(found := draw_operands(draw, kind), ArgumentError):
        pass
    return found


def chosen(kind: str, number: int) -> Any:
    """What is chosen on a GPU or two, how long it is predicted to take, what for, and how many ways there were."""
    draw = Draw((kind, number))
    operands = draw_operands(draw, kind)
    if isinstance(operands, ArgumentError):
        return operands
    told: list[Any] = []
    for gpu in (draw.one(GPUS), draw.one(GPUS[:2])):
        copy = draw.one((None, None, None, False))
        target = target_of(gpu)
        try:
            found, refused = list_candidates(operands, target, copy=copy)
            best = choose(operands, target, copy=copy)
            terms = {
                name: f"{seconds:.3g}" for name, seconds in best.prediction.terms.items() if seconds > 1e-9
            }
            plan = best.plan(operands, target)
            told.append(
                [
                    gpu,
                    best.spec.name,
                    dict(best.settings),
                    best.copies,
                    _rounded(best.prediction),
                    terms,
                    str(plan.tiles),
                ]
            )
            told.append([len(found), [(one.kernel, one.error.argument, one.error.rule) for one in refused]])
        except ArgumentError as error:
            told.append([gpu, error])
    return told


def ranked(kind: str, count: int) -> str:
    """All ways to compute some products, the best first, with their predicted times and what those are made of."""
    made: list[str] = []
    for number in range(count):
        draw = Draw((kind, "ranked", number))
        operands = draw_operands(draw, kind)
        if isinstance(operands, ArgumentError):
            continue
        for one in list_candidates(operands, target_of(draw.one(GPUS)), copy=None)[0]:
            terms = {
                name: f"{seconds:.3g}" for name, seconds in one.prediction.terms.items() if seconds > 1e-9
            }
            made.append(show([one.spec.name, one.settings, one.copies, _rounded(one.prediction), terms]))
    return "\n".join([f"{len(made)} ways", *made])


def _rounded(found: Prediction) -> str:
    return f"{found.seconds:.3g} {found.bound}"


def rounded(verdict: PlanVerdict) -> Any:
    plain = verdict.to_dict()
    return [(gain["what"], f"{gain['times']:.3g}", gain["kernel"]) for gain in plain["gains"]], sorted(plain)


def given(kernel: str, gpu: str, **settings: Any) -> Any:
    """The plan by one kernel with some of its settings given."""
    spec = KERNELS[kernel]
    kind = "float32" if "float32" in spec.element_types else "bfloat16"
    operands = operands_of(256, 192, 128, dtype=kind, layout="nt", result=spec.result_type(spec.complete({})))
    found = choose(operands, target_of(gpu), specs=(spec,), given=settings)
    return dict(found.settings), _rounded(found.prediction)


def count_of(gpu: str) -> Any:
    """How many kernels run on a GPU."""
    return sum(spec.runs_on(target_of(gpu).arch) for spec in KERNELS.values())


ONE = KeptPlan("simt", {"stages": 2}, ("a",), 1e-3, 2e-3, 5, "2026-01-01", "these")


def kept(work: Callable[[KeptPlan], Any]) -> Any:
    """A ValueError has our own words here."""
    try:
        return work(ONE)
    except ValueError as error:
        return f"ValueError: {error}"


def files(work: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return work(Path(folder))
        except ArgumentError as error:
            said = str(error).replace(folder, "FOLDER")
            return "must hold measured plans" if "Expecting" in said or "object" in said else said


def _with_cache(work: Callable[[Path, Target], Any]) -> Any:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(cache, "default", lambda: cache.Cache(Path(folder))),
        mock.patch.object(measured, "versions", lambda: "these"),
    ):
        try:
            return work(Path(folder), target_of("h200"))
        except ArgumentError as error:
            return str(error).replace(folder, "FOLDER")


def stored(plans: list[tuple[str, ...]]) -> Any:
    """What a file has after plans were kept one after another; and how many are dropped then."""

    def work(folder: Path, target: Target) -> Any:
        for name, date, *versions in plans:
            measured.keep(
                target, {name: replace(ONE, date=date, versions=versions[0] if versions else "these")}
            )
        path = measured.file_of(target)
        assert path is not None
        data = json.loads(path.read_text()) if path.exists() else None
        return data, measured.forget(target), measured.forget(target), path.exists()

    return _with_cache(work)


def merged(exists: bool, damaged: str | None) -> Any:
    def work(folder: Path, target: Target) -> Any:
        other = folder / "other.json"
        if exists:
            other.write_text(
                damaged or json.dumps({"format": 1, "plans": {"a": asdict(replace(ONE)) | {"copies": []}}})
            )
        try:
            return measured.merge(target, other)
        except ArgumentError as error:
            return str(error).partition(":")[0].replace(str(folder), "FOLDER")

    return _with_cache(work)


def recalled(case: str) -> Any:
    """What is chosen where a plan was measured, and whether that is said."""

    def work(folder: Path, target: Target) -> Any:
        operands = operands_of(256, 256, 256, dtype="bfloat16")
        second = list_candidates(operands, target)[0][1]
        settings = dict(second.settings) | ({"stages": 999} if case == "other settings" else {})
        one = KeptPlan(
            second.spec.name,
            settings,
            second.copies,
            1e-3,
            2e-3,
            5,
            "1",
            "others" if "versions" in case else "these",
        )
        if case != "none":
            measured.keep(target, {describe_operands(operands): one})
        path = measured.file_of(target)
        if case == "damaged" and path is not None:
            path.write_text("{")
        asked = operands_of(256, 256, 257, dtype="bfloat16") if case == "other operands" else operands
        found = list_candidates(asked, target)[0]
        return (
            found[0].measured,
            found[0].settings == second.settings,
            len(found),
            sum(one.measured is not None for one in found),
        )

    return _with_cache(work)
