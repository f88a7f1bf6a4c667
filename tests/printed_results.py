"""Made-up results of commands, for ``tests/printed.py``: every figure another."""

from __future__ import annotations

from typing import Any

from tilewise.bench.demo import BrokenRung, CompiledRung, Demo, MatmulTrial, TooNewRung
from tilewise.bench.dispatch import DispatchTimes
from tilewise.bench.doctor import VARIABLES, Report
from tilewise.bench.emulator import FULL, QUICK, EmulatorFigures
from tilewise.bench.gemm_cases import GemmCase
from tilewise.bench.gemm_figures import OURS, GemmFigures, GemmRow, GpuLoad, Spread, describe_plan
from tilewise.bench.measurement import Measurement
from tilewise.bench.plan_compiling import PlanTime
from tilewise.bench.plans import MeasuredPlan, MeasuredPlans, PlanTimes
from tilewise.bench.toolchain import CompileTime, ToolchainTimes
from tilewise.bench.train_bench import TrainFigures, TrainRow
from tilewise.bench.trial import Geometry, Trial
from tilewise.bench.tune import TriedPlan, Tuned
from tilewise.errors import ArgumentError
from tilewise.nn import Network, TrainingOptions
from tilewise.nn.training import EpochFigures, TrainingFigures
from tilewise.plan import Plan
from tilewise.planner import PlanVerdict, Refusal
from tilewise.planner.measured import KeptPlan
from tilewise.planner.verdict import PlanGain
from tilewise.problem import Problem, Tile
from tilewise.reference import Comparison
from tilewise.toolchain.binary import Resources

_RIGHT = Comparison(True, 0.1875, (3, 4), 1.5, 1.25, 0, 30_720)
_WRONG = Comparison(False, 7.5, (5, 6), 2.5, -0.5, 1_234, 5_678)
_PROBLEM = Problem(9600, 8000, 1120, a="bfloat16", b="bfloat16", c="bfloat16")
_MANY = Problem(9600, 8000, 1120, batch=3, a="float16", b="float16", c="float16")

PLANS = [
    Plan(
        _PROBLEM, "h200", "wgmma", {"block": Tile(128, 96, 64), "warp": Tile(64, 96, 64)}, 4, "grouped", 2,
        {"cluster": "2x1", "group": 8, "element": "bfloat16"}, seconds=12.345e-6, bound="tensor cores",
    ),
    Plan(
        _PROBLEM, "h200", "mma", {"block": Tile(64, 32, 16)}, 3, "row", 1, {"element": "bfloat16"},
        ("a", "b"), 4_321.5e-6, "memory", 98.7e-6,
    ),
    Plan(_MANY, "h200", "simt", {"block": Tile(16, 8, 4)}, seconds=0.25, bound="issue"),
]  # fmt: skip
REFUSED = [
    Refusal("vector", ArgumentError("m", "must be 1", 96)),
    Refusal("general", ArgumentError("k", "no", 7)),
]
VERDICT = PlanVerdict(
    "h200", "wgmma", 12.345e-6, "tensor cores", 3.25e12,
    (("tensor cores", 9e-6), ("launch", 2.5e-6), ("memory", 5e-6), ("power", 1.5e-6)),
    (PlanGain("rows that begin elsewhere", 6.5e-6, 1.9, "mma"), PlanGain("another type", 8e-6, 1.5431, "simt")),
)  # fmt: skip

_SPILLING = Resources(40, 8_192, 356, 2, 24, 1_000, 234, 16)
_PLAIN = Resources(33, 2_048, None, 1, 0, 0, 0)
_GEOMETRY = Geometry("tiled", (5, 3, 2), (16, 8, 4), 1_024, 1)
CHOSEN = MatmulTrial(PLANS[0], (PLANS[1], PLANS[2]), 0.75e-3, _RIGHT)


def _trial(rung: str, found: Comparison, used: Resources, geometry: Geometry, **settings: int | str) -> Trial:
    return Trial(rung, "gpu:1", "sm_89", (96, 80, 112), settings, 41, geometry, used, found, 2.5e-3)


TRIALS = {
    "right": _trial("04_tiled", _RIGHT, _SPILLING, _GEOMETRY, tile=16, element="float32"),
    "wrong": _trial("12_multistage", _WRONG, _PLAIN, Geometry("a", (7, 1, 1), (64, 1, 1), 0, 2)),
}
_BROKEN = BrokenRung("06_broken", "gpu:1", "sm_89", "an error that it ended with")
_TOO_NEW = TooNewRung("13_warp_specialised", "sm_89", "sm_90a")
DEMOS = {
    "right": Demo("emulator", "a CPU", "sm_90a", None, 17, CHOSEN, (TRIALS["right"], _TOO_NEW)),
    "wrong": Demo(
        "gpu:1", "a GPU", "sm_89", None, 18, MatmulTrial(PLANS[1], (), 1.5, _WRONG),
        (*TRIALS.values(), _BROKEN, _TOO_NEW),
    ),
    "compiled": Demo(
        None, None, "sm_89", "there is no GPU", 19, None,
        (
            CompiledRung("04_tiled", "sm_89", _SPILLING, 512, 0.125), _TOO_NEW,
            CompiledRung("05_tiled", "sm_89", _PLAIN, 0, 0.0625),
        ),
    ),
}  # fmt: skip


def _reports() -> dict[str, Report]:
    well = Report(
        {"tilewise": "0.1", "Python": "3.12", "rich": None},
        {"system": "an OS", "cpu": "a CPU", "cores": 96, "python": "CPython"},
        ["sm_75", "sm_90a"],
        12.75,
        "for CUDA 13.1 and older",
        [
            {"name": "gpu:0", "title": "a GPU", "arch": "sm_90a"},
            {"name": "emulator", "title": "a CPU", "arch": "sm_90a"},
        ],
        "gpu:0",
        {
            "directory": "/a",
            "entries": 1_234,
            "bytes": 5_678,
            "limit": 2**30,
            "writable": True,
            "cleared": False,
        },
        {name: "set" if i % 2 else None for i, name in enumerate(VARIABLES)},
    )
    well.note("something is slow", "mend it", essential=False)
    ill = Report({"tilewise": "0.1"}, {"system": "an OS", "cpu": "a CPU", "cores": 1, "python": "CPython"})
    ill.cache = {"directory": None, "entries": 0, "bytes": 0, "limit": 0, "writable": False, "cleared": True}
    ill.note("nothing works", "install it", essential=True)
    ill.note("what it is like", essential=False)
    worse = Report(machine={"system": "", "cpu": "", "cores": 2})
    worse.note("the cache cannot be looked at", essential=True)
    return {"well": well, "ill": ill, "worse": worse}


REPORTS = _reports()

TOOLCHAIN = {
    "within": ToolchainTimes("2026-01-02", 7, 149.96, (CompileTime("04_tiled", "sm_75", 149.994, 4.996, 321, 6_543),)),
    "over": ToolchainTimes(
        "2026-01-03", 9, 151.25,
        (
            CompileTime("04_tiled", "sm_75", 150.126, 5.126, 322, 6_544),
            CompileTime("12_multistage", "sm_80", 299.876, 4.126, 323, 6_545),
            CompileTime("13_warp_specialised", "sm_90a", 301.375, 3.126, 324, 6_546),
        ),
        (PlanTime("float16 nn 64³", "t4", "mma", 299.96), PlanTime("bfloat16 nn 64³", "h200", "wgmma", 300.06)),
    ),
}  # fmt: skip

_JUDGED: dict[str, Any] = {"least": 20.0, "aim": 40.0}
_SPEEDS = (
    Measurement(
        "a", "a rung", "GFLOP/s", (30.0, 20.0, 10.123456), "a BLAS", (50.0, 80.0, 90.0), "%", **_JUDGED
    ),
    Measurement("b", "two threads", "GFLOP/s", (12.5, 13.5), "one", (7.0, 7.25), "×", least=1.95),
    Measurement("c", "a launch", "µs", (151.5,), most=150.0),
    Measurement("d", "a compilation", "s", (0.5,), "1,500 lines", (0.5,), "s per 3,000 lines", most=2.0),
    Measurement("e", "what is not here", note="it is not installed"),
    Measurement("f", "what is not judged", "MiB", (123_456.0, 0.000123), most=64.0, judged=False),
    Measurement("g", "a figure alone", "ms", (1e-3, 0.0)),
)
EMULATOR = {
    "right": EmulatorFigures("2026-01-04", QUICK, 3, (), (0.5, 0.25, 0.125), (*_SPEEDS[:1], *_SPEEDS[4:])),
    "wrong": EmulatorFigures(
        "2026-01-05", FULL, 5, (1.256, 2.5, 3.75), (4.25,),
        (*_SPEEDS, Measurement("h", "a product", "s", (1.0,), wrong=True, note="it is off")),
    ),
    "within": EmulatorFigures("2026-01-06", FULL, 5, (), (), _SPEEDS[3:4]),
}  # fmt: skip

_SHARES: dict[str, Any] = {
    "date": "2026-01-07", "rounds": 21, "compiled": True, "tensors": "tensors of a kind", "share_us": 0.625,
    "share_alloc_us": 0.875, "fused_share_us": 1.25, "python_frames": 2, "allocations": 48,
}  # fmt: skip
DISPATCH = {
    "without a gpu": DispatchTimes(**_SHARES),
    "without torch": DispatchTimes(
        **_SHARES | dict.fromkeys(("share_us", "share_alloc_us", "fused_share_us", "python_frames", "allocations"))
    ),
    "whole": DispatchTimes(
        **_SHARES, gpu="a GPU", call_us=2.125, call_alloc_us=3.125, torch_us=4.125, torch_alloc_us=6.375,
        own_us=3.875, own_alloc_us=5.5, prepared_us=5.125, python_us=11.5, linear_us=4.875, torch_linear_us=8.0,
        fused_us=6.75, fused_python_us=15.0,
    ),
}  # fmt: skip


def _measured(kernel: str, predicted: float, seconds: float, right: bool = True) -> MeasuredPlan:
    return MeasuredPlan(kernel, {"stages": 4, "raster": "row"}, predicted, seconds, right)


TIMES = PlanTimes(
    "2026-01-08",
    "a GPU",
    (
        MeasuredPlans(("bfloat16", "nt", 1, 96, 80, 112), (_measured("wgmma", 1.2345e-5, 2.3456e-5),)),
        MeasuredPlans(
            ("float32", "nn", 64, 5, 6, 7),
            (
                _measured("simt", 5e-6, 8e-6),
                _measured("mma", 7e-6, 6.4e-6),
                _measured("vector", 9e-6, 4e-6, False),
            ),
        ),
        MeasuredPlans(
            ("float64", "tn", 1, 8, 9, 1), (_measured("mma", 5e-6, 8.4e-6), _measured("simt", 7e-6, 8e-6))
        ),
    ),
)

_RIVALS = ("torch", "torch, called")
TRAINING = TrainFigures(
    "2026-01-09", "a GPU", {"torch": "2.0"}, 15, 123.456,
    [
        TrainRow(
            hidden, 0.5,
            {name: Spread(*(hidden * part * (i + 1) * 1e-8 for part in (2, 3, 5))) for i, name in enumerate((OURS, *_RIVALS))},
            {OURS: 0.5, "torch": 0.25}, {"torch": 0.012345, "torch, called": 0.5}, notes,
        )
        for hidden, notes in ((128, ()), (512, ("torch: it cannot be compiled",)))
    ],
)  # fmt: skip

_LOADS = {OURS: GpuLoad(1_755.25, 512.75, 61.5), "torch": GpuLoad(1_655.5, 480.25, 59.5)}


def _row(case: GemmCase, ours: float, rival: float, plan: Plan = PLANS[0], **rest: Any) -> GemmRow:
    spreads = {name: Spread(0.75 * at, at, 1.5 * at) for name, at in ((OURS, ours), ("torch", rival))}
    ratio = Spread(0.9 * rival / ours, rival / ours, 1.2 * rival / ours)
    return GemmRow(
        case, "bfloat16", "timed", plan=describe_plan(plan), worst_share_of_bound=0.375, rival="torch",
        times=spreads, ratio=ratio, launches=11, sets=12, buffer_bytes=13, spent=14.128, **rest,
    )  # fmt: skip


def _gemm(rows: tuple[GemmRow, ...], **protocol: Any) -> GemmFigures:
    usual = {"time": "a clock's time", "load": "alone", "rounds": 25}
    return GemmFigures(
        "2026-01-10", "tilewise bench gemm", "a GPU", "bfloat16", 23, {"torch": "2.0"}, {"cpu": "a CPU"}, {"sm": 1},
        usual | protocol, 98.76, rows,
    )  # fmt: skip


_TIMED = (
    _row(GemmCase("large", 4096, 6144, 2048, "nt"), 1.25e-3, 1.5e-3),
    _row(GemmCase("large", 4096, 1, 2048), 5e-5, 4e-5, PLANS[1], cold=False, note="a note"),
    _row(GemmCase("fused", 512, 256, 128, fused=True, batch=3), 2e-5, 3e-5),
)
GEMM = {
    "right": _gemm(_TIMED),
    "sustained": _gemm((_row(GemmCase("given", 96, 80, 112), 1e-5, 2e-5, loads=_LOADS),), arithmetic="tf32"),
    "wrong": _gemm(
        (
            *_TIMED[:1],
            GemmRow(GemmCase("large", 1, 2, 3), "bfloat16", "wrong", "it is off", worst_share_of_bound=2.5),
            GemmRow(GemmCase("small", 4, 5, 6, batch=2), "bfloat16", "failed", "it ended with an error"),
            GemmRow(GemmCase("small", 7, 8, 9), "bfloat16", "skipped", "it does not fit"),
        )
    ),
}

KEPT = {
    "a product": KeptPlan(
        "wgmma", {"stages": 4}, ("a",), 1.25e-5, 2.5e-5, 7, "2026-01-11", "tilewise 0.0, NVRTC 13.9"
    ),
    "another": KeptPlan("mma", {"split": 2}, (), 0.0025, 0.003, 8, "2026-01-12", "tilewise 0.0, NVRTC 1.0"),
}
TUNED = (
    Tuned(
        "a product", "a GPU", KEPT["a product"], PLANS[0],
        (TriedPlan(PLANS[0], 1.25e-5, True), TriedPlan(PLANS[1], 2.5e-3, True), *[TriedPlan(PLANS[2], 0.5, True)] * 5),
        3.5,
    ),
    Tuned("another", "a GPU", KEPT["another"], PLANS[1], (), 0.0),
    Tuned("a third", "a GPU", KEPT["another"], PLANS[1], (TriedPlan(PLANS[1], 0.0025, True), TriedPlan(PLANS[2], 0.5, False)), 4.5),
)  # fmt: skip

_OPTIONS = TrainingOptions(hidden=96, epochs=2, batch=16, limit=64, seed=5)
TRAINED = TrainingFigures(
    _OPTIONS, "gpu:3", "a GPU", "made digits", True,
    [
        EpochFigures(1, 1.23456, 0.56789, 2.34567, 1_200, 3.0, 12, [2.5, 1.5]),
        EpochFigures(2, 0.12345, 0.98765, 0.23456, 1_250, 2.5e-2, 13, [0.5]),
    ],
    Network.begin(_OPTIONS),
)  # fmt: skip
