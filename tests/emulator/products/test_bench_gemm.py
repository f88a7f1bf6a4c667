"""``tilewise bench gemm`` without a GPU: everything but the clock, on the emulator and PyTorch for the CPU."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewise
from tests.documented import documented_keys
from tilewise.bench import dispatch, gemm_bench, gemm_products
from tilewise.bench.gemm_cases import DTYPES, GIVEN, SUITES, GemmCase, has_rival, parse_shape, select_cases
from tilewise.bench.gemm_figures import (
    OURS,
    GemmFigures,
    GemmRow,
    GpuLoad,
    Spread,
    Timing,
    summarise,
    timed_row,
)
from tilewise.bench.gemm_products import Products, buffer_bytes, count_sets
from tilewise.bench.gemm_timing import Replay, count_launches
from tilewise.bench.gpu_monitor import Sample, average, parse_sample
from tilewise.bench.product import WrongResult, fresh_seed
from tilewise.cli import bench_commands, gemm_command
from tilewise.cli.main import main
from tilewise.cli.parser import parse
from tilewise.devices import Device, gpu
from tilewise.devices.emulated import open_emulator
from tilewise.errors import ArgumentError, DeviceUnavailable, ToolError

torch: Any = pytest.importorskip("torch")

SMALL = GemmCase("small", 40, 24, 72)
FUSED = GemmCase("fused", 33, 20, 17, fused=True)


@pytest.fixture(autouse=True)
def _emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_DEVICE", "emulator")


class Replayed:
    """A graph that is none: starts its products when it is replayed."""

    def __init__(self, start: Callable[[int], Any], launches: int, sets: int) -> None:
        self._start, self._launches, self._sets = start, launches, sets

    def replay(self) -> None:
        for which in range(self._launches):
            self._start(which % self._sets)


class PretendStage:
    """A stage on the CPU whose clock says what the test wants; ``compile`` fails as it does without Triton."""

    def __init__(self, free: int = 1 << 40, compiles: bool = False) -> None:
        self.torch, self.place, self.free, self.compiles = torch, "cpu", free, compiles
        self.released = 0

    @property
    def device(self) -> Device:
        return open_emulator()

    def cache_bytes(self) -> int:
        return 1 << 10

    def free_bytes(self) -> int:
        return self.free

    def compile(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
        if not self.compiles:
            raise RuntimeError("no Triton\nand more lines")
        return function

    def estimate_seconds(self, start: Callable[[int], Any]) -> float:
        return 1.0

    def capture(self, start: Callable[[int], Any], launches: int, sets: int) -> Replay:
        return Replayed(start, launches, sets)

    def measure(self, graphs: Mapping[str, Replay], launches: int, rounds: int) -> Timing:
        microseconds = {OURS: 2.0, "torch.compile": 3.0}
        return Timing({name: [microseconds.get(name, 5.0) * 1e-6] * rounds for name in graphs})

    def release(self) -> None:
        self.released += 1


def measure(*cases: GemmCase, dtype: str = "float32", **stage: Any) -> list[GemmRow]:
    return gemm_bench.measure_cases(PretendStage(**stage), cases, dtype, 3, fresh_seed())


# ── which products ──


def test_every_class_has_products_of_its_own() -> None:
    cases = select_cases()
    assert len(set(cases)) == len(cases) == sum(map(len, SUITES.values()))
    assert all(case.suite == name for name, suite in SUITES.items() for case in suite)
    assert select_cases(["decode"]) == [*SUITES["decode"]]
    assert select_cases(["small", "decode", "small"]) == [*SUITES["small"], *SUITES["decode"]]
    assert select_cases(["decode"], ["1x2x3"]) == [*SUITES["decode"], GemmCase(GIVEN, 1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("4096x2112x7168", GemmCase(GIVEN, 4096, 2112, 7168)),
        ("64×512×256×128", GemmCase(GIVEN, 512, 256, 128, batch=64)),
        ("8x9x10:tn", GemmCase(GIVEN, 8, 9, 10, "tn")),
    ],
)
def test_a_shape_is_read(text: str, case: GemmCase) -> None:
    assert parse_shape(text) == case


@pytest.mark.parametrize("text", ["", "4096", "1x2", "0x4x4", "1x2x3x4x5", "4x4x4:xy", "-4x4x4", "4x4x4 x"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    how = "write 4096x4096x4096, or 64x512x512x512:nt with a layout"
    said = f"--shape must be MxNxK or BATCHxMxNxK, not {text!r}; {how}"
    if text == "0x4x4":
        said = "--shape must have sizes of at least 1, not '0x4x4'"
    with pytest.raises(ArgumentError) as error:
        parse_shape(text)
    assert str(error.value) == said


def test_bytes_and_rates() -> None:
    case = GemmCase(GIVEN, 2, 3, 5, batch=7)
    assert case.flops("bfloat16") == 2 * 2 * 3 * 5 * 7 and case.bytes("bfloat16") == 2 * 7 * (10 + 15 + 6)
    assert GemmCase(GIVEN, 2, 3, 5, fused=True).bytes("float32") == 4 * (10 + 15 + 6 + 6 + 3)
    assert all(case.is_memory_bound("bfloat16") for case in SUITES["decode"])
    assert not any(case.is_memory_bound("bfloat16") for case in SUITES["large"])


def test_buffers_and_launches_are_bounded() -> None:
    cache = 50 << 20
    assert count_sets(GemmCase(GIVEN, 8192, 8192, 8192), "bfloat16", cache) == 2
    medium = GemmCase(GIVEN, 1024, 1024, 1024)
    sets = count_sets(medium, "bfloat16", cache)
    assert sets * medium.bytes("bfloat16") >= 2.5 * cache > (sets - 1) * medium.bytes("bfloat16")
    assert count_sets(GemmCase(GIVEN, 8, 8, 8), "bfloat16", cache) == gemm_products.MOST_SETS
    assert [count_launches(seconds, 2) for seconds in (1e-6, 1e-4, 1.0)] == [40, 20, 4]
    assert count_launches(1.0, 9) == 9 and count_launches(0.0, 2) == 40
    assert buffer_bytes(FUSED, "float32", 3) > 3 * FUSED.bytes("float32")


# ── measured ──


@pytest.mark.parametrize("cold", [True, False])
def test_a_row_is_cold_from_twice_the_cache_on(monkeypatch: pytest.MonkeyPatch, cold: bool) -> None:
    case = GemmCase(GIVEN, 16, 16, 16)
    half = count_sets(case, "float32", 1 << 10) * case.bytes("float32") // 2
    monkeypatch.setattr(gemm_bench, "count_sets", lambda *_: count_sets(case, "float32", 1 << 10))
    monkeypatch.setattr(PretendStage, "cache_bytes", lambda _: half if cold else half + 1)
    (row,) = measure(case)
    assert row.cold is cold


@pytest.mark.few(1)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_products_of_every_layout_are_checked_and_timed(layout: str) -> None:
    cases = GemmCase("layouts", 40, 24, 72, layout), GemmCase("batched", 9, 10, 11, layout, batch=5)
    rows = measure(*cases)
    assert [row.rival for row in rows] == ["torch.matmul", "torch.bmm"], [row.note for row in rows]
    for row in rows:
        assert row.status == "timed" and row.ratio == Spread(2.5, 2.5, 2.5)
        assert row.worst_share_of_bound is not None and row.worst_share_of_bound < 1


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if has_rival(FUSED, dtype)])
def test_what_is_fused_is_checked_in_every_type(dtype: str) -> None:
    stage = PretendStage()
    (row,) = gemm_bench.measure_cases(stage, [FUSED], dtype, 3, fresh_seed())
    assert row.status == "timed" and row.rival == "torch eager", row.note
    assert row.note == "no torch.compile: RuntimeError: no Triton"
    assert stage.released == 1


@pytest.mark.few(3)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
@pytest.mark.parametrize(
    ("dtype", "rival"), [("float8_e4m3fn", "torch._scaled_mm"), ("int8", "torch._int_mm")]
)
def test_operands_of_8_bits_are_beside_what_pytorch_has_for_them(layout: str, dtype: str, rival: str) -> None:
    (row,) = measure(GemmCase("layouts", 48, 32, 80, layout), dtype=dtype)
    assert (row.status, row.rival) == ("timed", rival), row.note
    assert row.to_dict()["right"]
    skipped = measure(FUSED, GemmCase("batched", 4, 5, 6, batch=3), dtype=dtype)
    assert [one.status for one in skipped] == ["skipped", "skipped"] and "no such product" in skipped[0].note
    assert row.case.bytes(dtype) == 80 * (48 + 32) + 48 * 32 * (4 if dtype == "int8" else 2)


def test_a_sum_of_bytes_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_products, "matmul", lambda a, b, out, arithmetic: None)
    (row,) = measure(SMALL, dtype="int8")
    assert row.status == "wrong" and "960 of 960" in row.note


def test_the_faster_rival_counts() -> None:
    (row,) = measure(FUSED, compiles=True)
    assert row.rival == "torch.compile" and row.ratio == Spread(1.5, 1.5, 1.5)
    assert set(row.times) == {OURS, "torch eager", "torch.compile"} and not row.note


def test_a_rival_that_computes_something_else_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gemm_products, "torch_chain", lambda _torch: lambda a, b, bias, _residual: a @ b + bias
    )
    (row,) = measure(FUSED)
    assert row.status == "failed" and "torch eager gives another result" in row.note


def test_the_plan_of_a_fused_product_has_all_that_is_fused() -> None:
    made = Products(torch, "cpu", FUSED, "float32", 1, 1).bind_product(open_emulator())
    assert made.plan.problem.epilogue.expression == "gelu(acc + bias) + residual"


def test_one_that_does_not_fit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = measure(SMALL, free=10_000)
    assert row.status == "skipped" and row.note == "needs 0.0 GiB of buffers, and 0.0 GiB are free"
    monkeypatch.setattr(gemm_bench, "buffer_bytes", lambda _case, _dtype, _sets: 5 << 30)
    (row,) = measure(SMALL, free=3 << 29)
    assert row.status == "skipped" and row.note == "needs 5.0 GiB of buffers, and 1.5 GiB are free"


@pytest.mark.parametrize("mistake", ["wrong", "unwritten", "lazy", "late"])
def test_a_wrong_result_is_told_and_not_timed(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    """One element, of the eager call or, late, only of calls that a graph makes."""
    calls = []
    right = tilewise.matmul

    def matmul(a: Any, b: Any, out: Any, arithmetic: str | None) -> None:
        assert arithmetic is None
        calls.append(out)
        if mistake == "lazy" and len(calls) > 1:  # what the first call left there is right
            return
        right(a, b, out=out)
        if mistake in ("wrong", "unwritten") or (mistake == "late" and len(calls) > 3):
            out[7, 11] = math.nan if mistake == "unwritten" else out[7, 11] + 1

    monkeypatch.setattr(gemm_products, "matmul", matmul)
    timed, after = measure(SMALL, FUSED)
    assert timed.status == "wrong" and timed.ratio is None and not timed.times
    assert ("in a graph" in timed.note) == (mistake == "late")
    assert after.case == FUSED
    plain = timed.to_dict()
    assert plain["right"] is False and json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_a_wrong_matrix_at_the_end_of_a_long_stack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = tilewise.matmul

    def matmul(a: Any, b: Any, out: Any, arithmetic: str | None) -> None:
        right(a, b, out=out)
        out[-1, 2, 3] += 1

    monkeypatch.setattr(gemm_products, "matmul", matmul)
    (row,) = measure(GemmCase("batched", 4, 5, 6, batch=7))
    assert row.status == "wrong"


def test_the_data_of_each_product_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has the seed that is given, and each the one behind that of the product before it."""
    seeds = []

    def note(stage: Any, case: GemmCase, dtype: str, rounds: int, seed: int, arithmetic: Any) -> GemmRow:
        seeds.append(seed)
        return GemmRow(case, dtype, "skipped")

    monkeypatch.setattr(gemm_bench, "_measure", note)
    gemm_bench.measure_cases(PretendStage(), [SMALL] * 3, "float32", 3, 7)
    assert seeds == [7, 8, 9]


def test_one_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: something\nand a long story")

    monkeypatch.setattr(PretendStage, "release", fail)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "bmm", fail)
        rows = measure(GemmCase("batched", 4, 5, 6, batch=3), SMALL)
    assert [row.status for row in rows] == ["failed", "timed"]
    assert rows[0].note == "RuntimeError: CUDA error: something"
    assert summarise(rows)[0].failed == 1


@pytest.mark.parametrize(("size", "most"), [(1, 4), (4, 4), (5, 4), (6, 4), (100, 4), (1000, 64)])
def test_what_is_compared_is_spread_from_the_first_to_the_last(size: int, most: int) -> None:
    """All where they are few; else at random between, one of each part."""
    products = object.__new__(Products)
    products._random = np.random.default_rng(1)
    seen: set[int] = set()
    for _ in range(600):
        found = products._spread_indices(size, most)
        assert len(found) == len(set(found)) == min(size, most) and found == sorted(found)
        assert (found[0], found[-1]) == (0, size - 1)
        seen.update(found)
    assert len(seen) == size or size == 1000
    parts = np.linspace(1, size - 1, most - 1).astype(int)
    assert size <= most or all(
        low <= one < high for one, low, high in zip(found[1:-1], parts, parts[1:], strict=False)
    )


# ── summed up ──


def row_of(case: GemmCase, *ratios: float) -> GemmRow:
    return timed_row(case, "bfloat16", Timing({OURS: [1.0] * len(ratios), "torch.matmul": ratios}))


def test_ratios_are_of_pairs_and_their_median() -> None:
    timing = Timing({OURS: [1.0, 2.0, 4.0], "torch.matmul": [2.0, 2.0, 2.0]})
    row = timed_row(SMALL, "bfloat16", timing)
    assert row.ratio == Spread(0.75, 1.0, 1.5)
    assert row.seconds == 2.0 and row.rival_seconds == 2.0
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)


def test_classes_weigh_the_same() -> None:
    other, slow = GemmCase("large", 1, 1, 1), GemmCase(SMALL.suite, 3, 4, 5, "tn", batch=2)
    rows = (row_of(SMALL, 2.0), row_of(slow, 0.5), row_of(SMALL, 1.0), row_of(other, 4.0))
    small, large = summarise(rows)
    assert small.geomean == pytest.approx(1.0) and small.worst == 0.5 and small.timed == 3
    assert small.worst_case == "2 × 3×4×5 tn"
    assert large.geomean == pytest.approx(4.0)
    figures = GemmFigures("", "", "", "bfloat16", 1, {}, {}, {}, {}, 1.0, rows)
    assert figures.geomean == pytest.approx(2.0) and figures.ok
    empty = GemmFigures(
        "", "", "", "bfloat16", 1, {}, {}, {}, {}, 1.0, (GemmRow(SMALL, "bfloat16", "skipped"),)
    )
    assert empty.geomean is None and empty.ok and json.dumps(empty.to_dict())


def test_what_is_printed_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Times, the rate that says more, the plan, the load, and notes; then how many were timed, and how many not."""
    plan = {"kernel": "general", "copies": [], "partition": "16x16x16", "split": 2, "cluster": "2x1"}
    times = {OURS: [2e-3] * 3, "torch.matmul": [3e-3] * 3}
    shared: Any = {"plan": plan, "worst_share_of_bound": 0.5}
    rows = (
        timed_row(GemmCase("all", 4096, 4096, 4096), "bfloat16", Timing(times), **shared),
        timed_row(GemmCase("all", 4096, 1, 4096, "nt", fused=True), "bfloat16", Timing(times, {OURS: GpuLoad(1500, 600, 60)}),
                  plan={**plan, "copies": ["a", "b"]}, cold=False),
        GemmRow(GemmCase("all", 5, 6, 7), "bfloat16", "wrong", "off by 3"),
        GemmRow(GemmCase("all", 6, 7, 8), "bfloat16", "failed", "no memory"),
        GemmRow(GemmCase("rest", 7, 8, 9), "bfloat16", "skipped", "too large"),
    )  # fmt: skip
    protocol = {"time": "on a clock", "load": "bursts", "rounds": 3}
    gemm_command._print_figures(
        GemmFigures("", "", "a GPU", "bfloat16", 1, {"torch": "2"}, {}, {}, protocol, 7.0, rows)
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    times_of = ["3000.00", "2000.00"]
    assert ["4096×4096×4096", "nn", *times_of, "68.7", "TFLOP/s", "1.500", "1.500–1.500",
            "general", "16x16x16", "2", "2x1"] in lines  # fmt: skip
    assert ["4096×1×4096", "nt", *times_of, "17", "GB/s", "1.500", "1.500–1.500",
            *["general", "after", "copying", "a", "and", "b", "16x16x16", "2", "2x1", "1500", "600"]] in lines  # fmt: skip
    for text in (
        "4096×1×4096 nt: the operands stay in L2, for both",
        "4096×1×4096: tilewise 2000.00 µs, torch.matmul 3000.00 µs",
        "5×6×7 nn: WRONG: off by 3",
        "6×7×8 nn: failed: no memory",
        "7×8×9 nn: skipped: too large",
        "all 2 1.500 1.500 4096×4096×4096 nn 1 1",
        "rest 0 1",
        "geometric mean of the classes: 1.500; 7 s in all",
    ):
        assert text.split() in lines, text


def test_what_nvidia_smi_prints() -> None:
    assert parse_sample("1980, 651.25, 55\n", 2.5) == Sample(2.5, 1980.0, 651.25, 55.0)
    assert parse_sample("1980, [N/A], 55", 2.5) is None and parse_sample("", 0.0) is None
    samples = [Sample(float(at), 1000.0 + at, 100.0, 50.0) for at in range(10)]
    load = average(samples, [(2.0, 3.0), (7.5, 8.0)])
    assert load is not None and load.clock_mhz == pytest.approx(1000 + (2 + 3 + 8) / 3)
    early = average([Sample(0.0, 1.0, 1.0, 1.0), *samples[2:4]], [(2.0, 3.0)])
    assert early is not None and early.clock_mhz == pytest.approx(1002.5)  # none that was taken before
    assert average(samples, [(20.0, 30.0)]) is None


# ── the command ──


class PretendCuda:
    """What is asked of torch.cuda beside the clock."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def get_device_properties(_where: object) -> Any:
        return type("Properties", (), {"uuid": "none", "L2_cache_size": 1 << 10})


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_emulator()
    monkeypatch.setattr(type(device), "ordinal", 0, raising=False)
    monkeypatch.setattr(gpu, "open", lambda ordinal: {0: device}[ordinal])
    monkeypatch.setattr(torch, "cuda", PretendCuda)
    monkeypatch.setattr(gemm_bench, "CudaStage", lambda *_: PretendStage())


@pytest.mark.usefixtures("pretended")
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    shapes = ["--shape", "16x8x24:nt", "--shape", "3x5x6x7", "--dtype", "float32"]
    assert main(["bench", "gemm", *shapes, "--out", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "16×8×24" in shown and "3 × 5×6×7" in shown and "geometric mean of the classes: 2.500" in shown
    assert main(["bench", "gemm", *shapes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"] == "gemm"
    for result in (found["result"], json.loads(file.read_text())):
        first, second = result["rows"]
        assert first["size"] == [16, 8, 24] and first["layout"] == "nt" and first["right"]
        assert first["ratio"] == 2.5 and first["ratio_quartiles"] == [2.5, 2.5] and first["kernel"]
        assert {*first} == documented_keys("`rows` of `bench gemm`")
        assert second["batch"] == 3 and second["rival"] == "torch.bmm"
        assert result["geomean"] == 2.5 and result["suites"][0]["timed"] == 2
        assert {"date", "gpu", "command", "seed", "clocks", "protocol"} <= {*result}
        assert {"torch", "NVRTC", "driver"} <= {*result["versions"]}


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(("sustained", "arithmetic"), [(False, None), (True, "tf32")])
def test_a_run_says_how_it_was_measured(
    monkeypatch: pytest.MonkeyPatch, sustained: bool, arithmetic: str | None
) -> None:
    """Under load that lasts with a monitor of the same GPU, whose clocks are asked for before and after."""
    free = SimpleNamespace(
        allow_tf32=arithmetic is None,
        allow_bf16_reduced_precision_reduction=True,
        allow_fp16_reduced_precision_reduction=False,
    )
    monkeypatch.setattr(torch.backends.cuda, "matmul", free)
    staged: Any = []
    measured: Any = []
    asked: Any = []
    monkeypatch.setattr(gemm_bench, "CudaStage", lambda *given: staged.append(given) or PretendStage())
    monkeypatch.setattr(gemm_bench, "measure_cases", lambda *given: measured.append(given) or [])
    monkeypatch.setattr(gemm_bench, "query", lambda *given: asked.append(given) or {"asked": len(asked)})
    monkeypatch.setattr(gemm_bench, "torch_versions", lambda _torch, uuid: {"torch": uuid})
    found = gemm_bench.bench_gemm([SMALL], "float32", 16, sustained, "a line", arithmetic=arithmetic)
    ((module, device, monitor),) = staged
    assert module is torch and device is open_emulator()
    assert monitor._uuid == "GPU-none" if sustained else monitor is None
    ((_, cases, dtype, rounds, seed, _, in_what),) = measured
    assert (cases, dtype, rounds, in_what) == ([SMALL], "float32", 16, arithmetic)
    fields = ("clocks.sm", "clocks.max.sm", "power.draw", "power.limit", "temperature.gpu")
    assert asked == [("GPU-none", fields)] * 2
    assert found.clocks == {"before": {"asked": 1}, "after": {"asked": 2}} and found.seed == seed
    assert (found.command, found.gpu, found.dtype, found.rows) == ("a line", device.title, "float32", ())
    assert found.versions == {"torch": "GPU-none"} and 0 <= found.seconds < 60
    load = "sustained: 3 s of the same load, then slices of 0.2 s" if sustained else "bursts of about 2 ms"
    assert found.protocol == {
        "arithmetic": arithmetic,
        "time": "device time by replay of CUDA graphs, in turns in random order",
        "load": load,
        "rounds": 16,
        "data": "normal random numbers, a fresh seed each run",
        "buffers": "sets in rotation, 2.5 times L2 in all where at most 40 do; cold says whether",
        "checked": "before timing and as the graph left it, against float64 by tilewise.reference.compare",
        "ratio": "PyTorch's time over ours, by round; its median and quartiles",
        "l2_bytes": 1 << 10,
        "torch": {
            "allow_tf32": arithmetic == "tf32",
            "allow_bf16_reduced_precision_reduction": True,
            "allow_fp16_reduced_precision_reduction": False,
            "compile": "max-autotune-no-cudagraphs, dynamic=False",
        },
    }


@pytest.mark.usefixtures("pretended")
def test_another_arithmetic_is_beside_pytorchs_own(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shape", "70x80x90", "--dtype", "float32", "--arithmetic", "exact32"]
    assert main(["bench", "gemm", *options]) == 0
    assert "float32 in exact32" in capsys.readouterr().out
    assert main(["bench", "gemm", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert found["protocol"]["arithmetic"] == "exact32" and not found["protocol"]["torch"]["allow_tf32"]


WRONG_USE = {
    "suite": (["--suite", "larg"], "--suite must be one of large, medium, small, ragged, short-k"),
    "shape": (["--shape", "12x13"], "--shape must be MxNxK or BATCHxMxNxK, not '12x13'"),
    "type": (
        ["--dtype", "int16"],
        "--dtype must be one of bfloat16, float16, float32, float64, float8_e4m3fn, int8",
    ),
    "arithmetic": (["--arithmetic", "tf32"], "arithmetic must be None for operands of bfloat16, not 'tf32'"),
    "markdown": (["--markdown"], "--markdown is for toolchain and emulator"),
    "no GPU": ([], "there is no GPU to use"),
}


@pytest.mark.parametrize("case", WRONG_USE.values(), ids=WRONG_USE)
def test_wrong_use_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: tuple[list[str], str]
) -> None:
    def none(_ordinal: int) -> Any:
        raise DeviceUnavailable("there is no GPU to use: none was made")

    monkeypatch.setattr(gpu, "open", none)
    options, said = case
    assert main(["bench", "gemm", *options]) == 2
    assert capsys.readouterr().err.startswith(f"tilewise: error: {said}")


def test_the_command_measures_under_the_load_that_the_function_does() -> None:
    """In bursts, and in the operands' own arithmetic, unless told otherwise."""
    given, defaults = parse(["bench", "gemm"]), inspect.signature(gemm_bench.bench_gemm).parameters
    for name in ("sustained", "arithmetic"):
        assert getattr(given, name) is defaults[name].default
    assert not given.sustained


def test_options_of_gemm_are_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "toolchain", "--suite", "large"]) == 2
    assert "--suite is for gemm" in capsys.readouterr().err


def test_pytorch_has_to_be_there_and_see_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "open", lambda _ordinal: None)
    if not torch.cuda.is_available():
        with pytest.raises(ToolError, match="finds no GPU"):
            gemm_bench.bench_gemm([SMALL])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ToolError, match=r"pip install 'tilewise\[torch\]'"):
        gemm_bench.bench_gemm([SMALL])
    assert "torch" in sys.modules


def test_a_product_is_checked_before_it_is_timed() -> None:
    a, b, _ = dispatch._torch_operands("cpu")
    dispatch._check_result(a @ b, a, b)
    for wrong in (b @ a, a @ b * torch.nan):
        with pytest.raises(WrongResult, match="wrong on the GPU: off by"):
            dispatch._check_result(wrong, a, b)


def test_fused_calls_do_the_same_before_they_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """``tilewise bench dispatch``: each call beside its rival, and a wrong one is not timed."""
    extras = dispatch._torch_extras("cpu")
    monkeypatch.setattr(dispatch, "_torch_extras", lambda _place: extras)
    a, b, out = dispatch._torch_operands("cpu")
    with torch.no_grad():
        calls = dispatch._fused_calls(torch, a, b, out)
        torch.testing.assert_close(calls["linear_us"](), calls["torch_linear_us"](), atol=0.25, rtol=0)
        assert torch.equal(calls["fused_us"]().clone(), calls["fused_python_us"]())
        monkeypatch.setattr(dispatch, "matmul", lambda a, b, **more: tilewise.matmul(b, a, **more))
        with pytest.raises(WrongResult, match="an epilogue is wrong on the GPU: off by"):
            dispatch._fused_calls(torch, a, b, out)


@pytest.mark.parametrize(
    ("asked", "rounds"), [((), 15), (("--repeats", "14"), 15), (("--repeats", "40"), 40)]
)
def test_what_a_call_costs_is_printed_beside_its_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], rounds: int
) -> None:
    """Fewer rounds than 15 are not measured; what is as dear as its budget is not over it."""

    def measure(rounds: int, progress: Any) -> dispatch.DispatchTimes:
        given: dict[str, Any] = {
            "call_us": 4.5,
            "torch_us": 10.0,
            "call_alloc_us": 7.0,
            "torch_alloc_us": 10.0,
        }
        return dispatch.DispatchTimes("today", rounds, True, "pretended", 0.7, 0.7, 1.3, 2, 96, **given)

    monkeypatch.setattr(bench_commands, "bench_dispatch", measure)
    assert main(["bench", "dispatch", *asked]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"host time of a warm call, medians of {rounds} rounds in turns" in lines
    assert "our share, with out= 0.70 ≤ 0.7" in lines and "our share, the result allocated 0.70" in lines
    assert "our share, with bias, gelu, residual and out= 1.30 ≤ 1.2 over" in lines
    assert "tw.matmul on device arrays not measured" in lines
    assert "beside torch.matmul, with out=: 0.45× (≤ 0.45×) ok" in lines
    assert "beside torch.matmul, the result allocated: 0.70× (≤ 0.6×) over" in lines
    assert "in a warm call with out=: 2 Python frames, 96 bytes allocated" in lines
    assert any(line.startswith("No GPU here: the driver's functions were replaced") for line in lines)
